//! Preparation: what recall goes by and a model has to be asked for: vectors, where the encoder has
//! to be waited for, and summaries, where a language model is to write them.
//!
//! A loop of `history`'s own, run before a turn goes down the flow: the turn's query is embedded, and with
//! it the entries of its scope that have no vector yet, which for the most part is the exchange before.
//! The turn comes back and is recalled for; the vectors of entries are kept with them, and published with the
//! turn's outcome. With it at most one group of the history is summarised ([`SummariesConfig`]); the summary
//! stands in the scope's record. Where the encoder fails or takes too long, recall goes by words, and the response
//! names `history` under `degraded`.

use std::rc::Rc;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use timely::dataflow::operators::Concat;
use timely::dataflow::operators::vec::{Branch, Map};
use turnstream_ports::form::{Form, Refused, check_bound};
use turnstream_ports::model::{Embed, Embedding, Generated};
use turnstream_schemas::{Fault, FaultKind, GroupSummary, ModelUsed, RequestId, Stage};

use super::likeness::Vector;
use crate::awaited::Awaited;
use crate::call::{CallConfig, CallShell, Question, call};
use crate::flow::{Epoch, InFlight, Progress, TurnContext};
use crate::prompted::material::of_exchanges;
use crate::prompted::{Asking, PromptedConfig, Prompter, Slot, Thinking, one_line};
use crate::stage::Shell;
use crate::timers::Timers;

/// Entries that are embedded with one turn at most; others wait for the next turn.
pub const EXCHANGES_AT_ONCE: usize = 32;

/// `[history.preparation]`: how an encoder is asked that has to be waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PreparationConfig {
    /// Whether it is asked at all; where it is not, histories are searched by words alone.
    pub enabled: bool,
    /// How long to wait for it.
    pub call: CallConfig,
}

impl Default for PreparationConfig {
    fn default() -> Self {
        let call = CallConfig { timeout_ms: 2_000, ..CallConfig::default() };
        Self { enabled: true, call }
    }
}

/// `[history.summaries]`: what stands for a group of entries in the hierarchy (DH-RAG eq 19).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SummariesConfig {
    /// An extract of the group's entries (`lexical`), or that and what a language model writes of them
    /// (`prompted`).
    pub form: Form,
    /// Entries that a group has before a model writes of it, from 1. It writes again when they have
    /// doubled or halved.
    pub min_entries: u32,
    /// Entries that it is shown at most, from 1: the most central one, and the latest.
    pub max_shown: u32,
    /// How the language model is asked.
    pub prompted: PromptedConfig,
}

impl Default for SummariesConfig {
    fn default() -> Self {
        let prompted = PromptedConfig { max_tokens: 120, ..PromptedConfig::default() };
        Self { form: Form::Lexical, min_entries: 3, max_shown: 12, prompted }
    }
}

impl SummariesConfig {
    /// Checks the form and the ranges.
    ///
    /// # Errors
    /// [`Refused`] by key.
    pub fn check(&self) -> Result<(), Refused> {
        self.form.is_one_of(&[Form::Lexical, Form::Prompted], Stage::History)?;
        check_bound(Stage::History, "min_entries", self.min_entries, u32::MAX)?;
        check_bound(Stage::History, "max_shown", self.max_shown, 1_024)?;
        self.prompted.check(Stage::History)
    }
}

/// Who is asked.
#[derive(Clone)]
pub struct Preparing {
    /// The encoder, where there is one that has to be waited for.
    pub embed: Option<Arc<Embed>>,
    /// How the language model is asked that writes summaries, where there is one.
    pub summaries: Option<Asking>,
    /// How long the encoder is waited for.
    pub call: CallConfig,
    /// Measures it. What fails is gone without, whatever the shell says.
    pub shell: Shell,
    /// Wakes at deadlines.
    pub timers: Timers,
    /// The turns that somebody still waits for.
    pub awaited: Awaited,
}

/// A turn that recall is not ready for.
#[derive(Clone, Debug)]
pub struct Unprepared {
    /// The turn; nothing is recalled for it yet.
    pub context: Arc<TurnContext>,
    /// Entries that have no vector, by their offset, with what they say.
    pub exchanges: Vec<(i64, String)>,
    /// A group that is to be summarised.
    pub group: Option<Grouped>,
    progress: Progress,
}

/// A group that a language model is to write of.
#[derive(Clone, Debug, PartialEq)]
pub struct Grouped {
    /// Its number.
    pub group: u32,
    /// How many entries it has.
    pub entries: u32,
    /// What is shown of them: query and response of each.
    pub shown: Vec<[Option<String>; 2]>,
}

impl Unprepared {
    /// A turn with the entries of its scope that have no vector, and a group without a summary.
    pub fn new(
        context: TurnContext,
        exchanges: Vec<(i64, String)>,
        group: Option<Grouped>,
    ) -> Self {
        Self { context: Arc::new(context), exchanges, group, progress: Progress::default() }
    }
}

impl InFlight for Unprepared {
    fn context(&self) -> &Arc<TurnContext> {
        &self.context
    }

    fn progress(&mut self) -> &mut Progress {
        &mut self.progress
    }
}

/// A turn that recall is ready for.
#[derive(Clone, Debug)]
pub struct Prepared {
    turn: Unprepared,
    vectors: Vectors,
    summary: Option<(u32, GroupSummary)>,
}

/// What the encoder made of a turn's texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vectors {
    /// Of the query; `None` where nothing is known in it, or the encoder failed.
    pub query: Option<Vector>,
    /// Of entries, by their offset.
    pub exchanges: Vec<(i64, Vector)>,
    /// Why the encoder failed, where it did.
    pub failed: Option<Fault>,
}

impl Prepared {
    /// A turn that came back with its vectors.
    pub fn new(turn: Unprepared, vectors: Vectors) -> Self {
        Self { turn, vectors, summary: None }
    }

    /// The same with what was written of its group.
    fn with_summary(self, summary: GroupSummary) -> Self {
        let summary = self.turn.group.as_ref().map(|grouped| (grouped.group, summary));
        Self { summary, ..self }
    }

    /// Which turn.
    pub fn context(&self) -> &Arc<TurnContext> {
        &self.turn.context
    }

    /// Which attempt.
    pub fn request(&self) -> RequestId {
        self.turn.context.request
    }

    /// The vectors, and a group's summary, where it is to have one.
    pub fn into_parts(self) -> (Vectors, Option<(u32, GroupSummary)>) {
        (self.vectors, self.summary)
    }
}

impl InFlight for Prepared {
    fn context(&self) -> &Arc<TurnContext> {
        &self.turn.context
    }

    fn progress(&mut self) -> &mut Progress {
        &mut self.turn.progress
    }
}

/// Asks the encoder and the language model for every turn: turns out, each with what it asked for.
/// Nothing comes where nobody is asked.
pub fn preparation<'scope>(
    turns: StreamVec<'scope, Epoch, Unprepared>,
    preparing: Option<Preparing>,
) -> StreamVec<'scope, Epoch, Prepared> {
    let Some(Preparing { embed, summaries, call: config, shell, timers, awaited }) = preparing
    else {
        return turns.flat_map(|_| None);
    };
    let shell = CallShell { shell, call: config, timers, awaited };
    let prepared = match embed {
        Some(embed) => embedded(turns, embed, shell),
        None => turns.map(|turn| Prepared::new(turn, Vectors::default())),
    };
    match summaries {
        Some(asking) => {
            let (plain, grouped) = prepared.branch(|_, turn| turn.turn.group.is_some());
            plain.concat(summarised(grouped, asking))
        }
        None => prepared,
    }
}

fn embedded<'scope>(
    turns: StreamVec<'scope, Epoch, Unprepared>,
    embed: Arc<Embed>,
    shell: CallShell,
) -> StreamVec<'scope, Epoch, Prepared> {
    let question = Question {
        ask: |turn: &Unprepared| {
            let exchanges = turn.exchanges.iter().map(|(_, text)| text.clone());
            std::iter::once(turn.context.query().to_owned()).chain(exchanges).collect()
        },
        read: |turn: &Unprepared, vectors: Vec<Embedding>| {
            let mut vectors = vectors.iter().map(|vector| Vector::of(vector));
            let query = vectors.next().flatten();
            let offsets = turn.exchanges.iter().map(|(offset, _)| *offset);
            let exchanges = offsets.zip(vectors).filter_map(|(at, vector)| Some((at, vector?)));
            Ok(Vectors { query, exchanges: exchanges.collect(), failed: None })
        },
        fallback: |_: &Unprepared| Vectors::default(),
        // What failed was noted on the turn, which has been nowhere else yet.
        join: |mut turn: Unprepared, vectors| {
            let failed = turn.progress.degraded.pop();
            Prepared::new(turn, Vectors { failed, ..vectors })
        },
    };
    // What fails is gone without, so there are no faults.
    let (prepared, _) = call(turns, Stage::History, embed, shell, question);
    prepared
}

fn summarised<'scope>(
    turns: StreamVec<'scope, Epoch, Prepared>,
    asking: Asking,
) -> StreamVec<'scope, Epoch, Prepared> {
    const STAGE: Stage = Stage::History;
    let Asking { model, prompts, config, shell } = asking;
    let name = model.name().to_owned();
    let prompter = Rc::new(Prompter { stage: STAGE, prompts, config, fill, thought: None });
    let asks = Rc::clone(&prompter);
    let entries = |turn: &Prepared| turn.turn.group.as_ref().map_or(0, |grouped| grouped.entries);
    let question = Question {
        ask: move |turn: &Prepared| asks.ask(&Thinking::without(turn.clone())),
        read: move |turn: &Prepared, answer: Generated| {
            let text = one_line(&answer.text);
            if text.is_empty() {
                return Err(Fault::new(STAGE, FaultKind::Unfit, "the model said nothing"));
            }
            let prompt_hash = Some(prompter.hash(turn).to_owned());
            let model = ModelUsed { prompt_hash, ..answer.model };
            Ok(GroupSummary { text: Some(text), entries: entries(turn), model })
        },
        fallback: move |turn: &Prepared| {
            let model = ModelUsed { name: name.clone(), prompt_hash: None };
            GroupSummary { text: None, entries: entries(turn), model }
        },
        join: Prepared::with_summary,
    };
    // What fails is gone without, so there are no faults.
    let (summarised, _) = call(turns, STAGE, model, shell, question);
    summarised
}

/// What of a turn fills a slot.
fn fill(turn: &Prepared, slot: Slot) -> String {
    match (slot, &turn.turn.group) {
        (Slot::Exchanges, Some(grouped)) => of_exchanges(&turn.turn.context, &grouped.shown),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
