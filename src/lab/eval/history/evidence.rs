//! Questions with gold evidence: which share of it is recalled within K utterances, whether all of
//! it is, and which share is still held.
//!
//! An utterance is one unit: an entry that holds two counts two towards K, and recall ends before
//! the entry that would go beyond K. Evidence that names no turn heard so far is left out and
//! counted; a question without any other is skipped and counted.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use turnstream_operators::history::HistoryConfig;
use turnstream_operators::history::similarity::Similarity;
use turnstream_schemas::TurnId;

use super::Capacity;
use super::attending::Attending;
use super::held::{Eviction, Held, Keeping, Method, Ranked, utterances};
use super::material::{Conversation, Gold, Question, Step};
use crate::eval::bootstrap::{Conversations, Mean};

/// LoCoMo's questions that have no answer: their evidence only looks like one.
const UNANSWERABLE: &str = "5";

/// What is measured.
#[derive(Clone, Debug)]
pub struct Measure {
    /// The engine's own configuration.
    pub config: HistoryConfig,
    /// What the engine compares texts by.
    pub similarity: Similarity,
    /// Whether questions are completed before they are searched with.
    pub reconstruct: bool,
    /// What orders that which is recalled first, where it is ordered once more.
    pub attending: Option<Attending>,
    /// Utterances that are recalled, each from 1, rising.
    pub k: Vec<usize>,
    /// How much is held.
    pub capacity: Capacity,
    /// What leaves.
    pub eviction: Eviction,
    /// What ranks.
    pub method: Method,
    /// What random eviction draws from.
    pub seed: u64,
}

impl Measure {
    /// How the history of a conversation is kept.
    pub fn keeping(&self, conversation: &Conversation) -> Keeping {
        let said = conversation.steps.iter().filter(|step| matches!(step, Step::Said(_))).count();
        Keeping {
            config: self.config.clone(),
            similarity: self.similarity.clone(),
            reconstruct: self.reconstruct,
            attending: self.attending.clone(),
            eviction: self.eviction,
            method: self.method,
            capacity: self.capacity.entries(said),
            seed: self.seed,
        }
    }
}

/// What became of one question.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Its kind.
    pub category: Option<String>,
    /// By K, the share of its evidence that was recalled.
    pub recall: Vec<f64>,
    /// The share of its evidence that was held.
    pub survival: f64,
}

/// What became of all questions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcomes {
    /// In order; the same questions whatever is measured.
    pub questions: Vec<Outcome>,
    /// Questions left out, for none of their evidence names a turn.
    pub skipped: usize,
    /// Ids in evidence that name no turn heard so far.
    pub malformed: usize,
}

/// Figures over questions, each a mean.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Questions.
    pub n: usize,
    /// By K, the share of the evidence that was recalled.
    pub recall: BTreeMap<usize, f64>,
    /// By K, the share of questions whose evidence was recalled in full.
    pub full: BTreeMap<usize, f64>,
    /// The share of the evidence that was held when the question was asked.
    pub survival: f64,
}

/// 95 % intervals, questions being drawn.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Intervals {
    /// Of the recalls.
    pub recall: BTreeMap<usize, [f64; 2]>,
    /// Of the shares of questions answered in full.
    pub full: BTreeMap<usize, [f64; 2]>,
    /// Of survival.
    pub survival: Option<[f64; 2]>,
}

/// What programs read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Of all questions.
    #[serde(flatten)]
    pub figures: Figures,
    /// Of those figures.
    pub intervals: Intervals,
    /// By the data set's kinds of questions.
    pub by_category: BTreeMap<String, Figures>,
    /// Of the questions that have an answer, where the data set asks others too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answerable: Option<Figures>,
    /// Questions that are not counted.
    pub questions_skipped: usize,
    /// Ids in evidence that name no turn.
    pub malformed_evidence: usize,
}

/// Puts conversations through a history and asks what is asked of them. `progress` is called once
/// a question.
pub fn ask(measure: &Measure, conversations: &[Conversation], progress: &dyn Fn()) -> Outcomes {
    let mut outcomes = Outcomes::default();
    for conversation in conversations {
        let keeping = measure.keeping(conversation);
        let mut held = Held::new(&keeping);
        let mut heard = BTreeSet::new();
        let mut steps = conversation.steps.iter().peekable();
        while let Some(step) = steps.next() {
            match step {
                Step::Said(said) => {
                    held.hear(said);
                    heard.insert(&said.id);
                }
                Step::Asked(first) => {
                    // Nothing is heard between questions that follow each other.
                    let ranked = held.ask();
                    let mut question = Some(first);
                    while let Some(asked) = question {
                        outcomes.add(asked, &heard, &ranked, &measure.k);
                        progress();
                        question = steps
                            .next_if(|step| matches!(step, Step::Asked(_)))
                            .and_then(Step::question);
                    }
                }
            }
        }
    }
    outcomes
}

impl Outcomes {
    /// Takes in what became of further questions.
    pub fn append(&mut self, further: Self) {
        self.questions.extend(further.questions);
        self.skipped += further.skipped;
        self.malformed += further.malformed;
    }

    fn add(
        &mut self,
        question: &Question,
        heard: &BTreeSet<&TurnId>,
        ranked: &Ranked<'_>,
        k: &[usize],
    ) {
        let Gold::Evidence(named) = &question.gold else { return };
        let ids: BTreeSet<TurnId> = named.iter().map(|id| TurnId(id.clone())).collect();
        let gold: BTreeSet<&TurnId> = ids.iter().filter(|id| heard.contains(id)).collect();
        self.malformed += ids.len() - gold.len();
        if gold.is_empty() {
            self.skipped += 1;
            return;
        }
        let share = |found: usize| found as f64 / gold.len() as f64;
        let held = ranked.entries();
        let survival = held.iter().flat_map(|entry| utterances(entry));
        let survival = share(survival.filter(|id| gold.contains(id)).count());
        let order = ranked.recall(&question.text);
        let recall = k.iter().map(|k| {
            let (mut units, mut found) = (0, 0);
            for place in &order {
                units += utterances(held[*place]).count();
                if units > *k {
                    break;
                }
                found += utterances(held[*place]).filter(|id| gold.contains(id)).count();
            }
            share(found)
        });
        let recall = recall.collect();
        self.questions.push(Outcome { category: question.category.clone(), recall, survival });
    }

    /// One list of figures, in the questions' order: the recall at the place of a K, or survival.
    pub fn figures_of(&self, at: Option<usize>) -> Vec<f64> {
        let figure = |outcome: &Outcome| at.map_or(outcome.survival, |at| outcome.recall[at]);
        self.questions.iter().map(figure).collect()
    }

    /// The figures, with `k` as it was measured. `category_five` says that questions of category 5
    /// have no answer.
    pub fn measured(&self, k: &[usize], category_five: bool) -> Measured {
        let all: Vec<&Outcome> = self.questions.iter().collect();
        let mut by_category: BTreeMap<String, Vec<&Outcome>> = BTreeMap::new();
        for outcome in &all {
            if let Some(category) = &outcome.category {
                by_category.entry(category.clone()).or_default().push(outcome);
            }
        }
        let answerable: Vec<&Outcome> = all
            .iter()
            .filter(|outcome| outcome.category.as_deref() != Some(UNANSWERABLE))
            .copied()
            .collect();
        Measured {
            figures: figures(&all, k),
            intervals: self.intervals(k),
            by_category: by_category
                .into_iter()
                .map(|(category, outcomes)| (category, figures(&outcomes, k)))
                .collect(),
            answerable: category_five.then(|| figures(&answerable, k)),
            questions_skipped: self.skipped,
            malformed_evidence: self.malformed,
        }
    }

    fn intervals(&self, k: &[usize]) -> Intervals {
        let drawn = self.drawn();
        let interval = |values: Vec<f64>| {
            let parts: Vec<_> = values.into_iter().map(|value| Some(Mean::from(value))).collect();
            drawn.figure(&parts, Mean::value).1
        };
        let mut intervals =
            Intervals { survival: interval(self.figures_of(None)), ..Intervals::default() };
        for (at, k) in k.iter().enumerate() {
            let recall = self.figures_of(Some(at));
            let full = recall.iter().map(|share| f64::from(u8::from(*share >= 1.0))).collect();
            intervals.recall.extend(interval(recall).map(|interval| (*k, interval)));
            intervals.full.extend(interval(full).map(|interval| (*k, interval)));
        }
        intervals
    }

    /// What a bootstrap draws: questions.
    pub fn drawn(&self) -> Conversations {
        Conversations::new(0..self.questions.len())
    }
}

/// The means over questions; zeros of none.
fn figures(outcomes: &[&Outcome], k: &[usize]) -> Figures {
    let mean = |of: &dyn Fn(&Outcome) -> f64| {
        outcomes.iter().map(|outcome| of(outcome)).sum::<f64>() / outcomes.len().max(1) as f64
    };
    let by_k = |of: &dyn Fn(f64) -> f64| {
        let at = |(at, k): (usize, &usize)| (*k, mean(&|outcome| of(outcome.recall[at])));
        k.iter().enumerate().map(at).collect()
    };
    Figures {
        n: outcomes.len(),
        recall: by_k(&|share| share),
        full: by_k(&|share| f64::from(u8::from(share >= 1.0))),
        survival: mean(&|outcome| outcome.survival),
    }
}
