//! Bounds how much the language models of a run may be asked, and counts how much they were.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use turnstream_ports::model::{
    Busy, CallError, Generate, GenerateRequest, Generated, Model, Reply,
};

/// The limits of what language models may be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct ModelLimits {
    /// Ask language models at most N questions. With --answers they are asked only what is not
    /// recorded there, and without a limit nothing.
    #[arg(long, value_name = "N")]
    pub max_requests: Option<u64>,
    /// Ask language models nothing more once they have read and written N tokens; answers under way
    /// are completed. With --answers, as --max-requests.
    #[arg(long, value_name = "N")]
    pub max_tokens: Option<u64>,
}

/// How many questions to language models were answered in which way.
#[derive(Debug, Default)]
pub struct AnswerCounts {
    pub(crate) recorded: AtomicU64,
    asked: AtomicU64,
    pub(crate) unasked: AtomicU64,
}

/// The counts at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AnswersTold {
    /// Questions with a recorded answer.
    pub recorded: u64,
    /// Questions that a model was asked.
    pub asked: u64,
    /// Questions that no model was asked, since nothing is recorded or a limit is reached.
    pub unasked: u64,
}

impl AnswerCounts {
    /// The counts so far.
    pub fn told(&self) -> AnswersTold {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        AnswersTold {
            recorded: of(&self.recorded),
            asked: of(&self.asked),
            unasked: of(&self.unasked),
        }
    }
}

/// Tells how many tokens a model has read and written so far.
pub(crate) type SpentTokens = Box<dyn Fn() -> u64 + Send + Sync>;

/// The limits of a run, which its models share.
pub(crate) struct Budget {
    limits: ModelLimits,
    counts: Arc<AnswerCounts>,
    spent: Mutex<Vec<SpentTokens>>,
}

impl Budget {
    pub(crate) fn new(limits: ModelLimits, counts: Arc<AnswerCounts>) -> Arc<Self> {
        Arc::new(Self { limits, counts, spent: Mutex::default() })
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.limits != ModelLimits::default()
    }

    pub(crate) fn counts(&self) -> &Arc<AnswerCounts> {
        &self.counts
    }

    /// Wraps a model so that it is asked within the limits.
    pub(crate) fn of(self: &Arc<Self>, model: Arc<Generate>, spent: SpentTokens) -> Arc<Generate> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner).push(spent);
        Arc::new(Limited { model, budget: Arc::clone(self) })
    }

    /// Takes one question from the budget.
    ///
    /// # Errors
    /// The limit that is reached.
    fn take(&self) -> Result<(), String> {
        if let Some(most) = self.limits.max_tokens {
            let spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
            if spent.iter().map(|of| of()).sum::<u64>() >= most {
                return Err(format!("--max-tokens {most} is reached"));
            }
        }
        let asked = &self.counts.asked;
        let most = self.limits.max_requests.unwrap_or(u64::MAX);
        let one_more = |asked: u64| (asked < most).then_some(asked.saturating_add(1));
        match asked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more) {
            Ok(_) => Ok(()),
            Err(_) => Err(format!("--max-requests {most} is reached")),
        }
    }
}

/// A model that is asked within a budget.
struct Limited {
    model: Arc<Generate>,
    budget: Arc<Budget>,
}

impl Model<GenerateRequest, Generated> for Limited {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn ask(
        &self,
        request: GenerateRequest,
        reply: Reply<Generated>,
    ) -> Result<(), Busy<GenerateRequest, Generated>> {
        // The probe at the start is not a question of a stage.
        if request.origin.is_none() {
            return self.model.ask(request, reply);
        }
        if let Err(limit) = self.budget.take() {
            self.budget.counts.unasked.fetch_add(1, Ordering::Relaxed);
            reply.answer(Err(CallError::Unasked(limit)));
            return Ok(());
        }
        let taken = self.model.ask(request, reply);
        if taken.is_err() {
            self.budget.counts.asked.fetch_sub(1, Ordering::Relaxed);
        }
        taken
    }
}
