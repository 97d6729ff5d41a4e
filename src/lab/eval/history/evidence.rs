//! Measures recall on questions with gold evidence: the share of the evidence recalled within K
//! utterances, whether all of it is recalled, and the share that is still held.
//!
//! The unit is an utterance: an entry with two counts two towards K, and recall ends before the
//! entry that would exceed K. Evidence that names no earlier turn is left out and counted; a
//! question without other evidence is skipped and counted.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use turnstream_operators::history::HistoryConfig;
use turnstream_operators::history::similarity::Similarity;
use turnstream_schemas::TurnId;

use super::Capacity;
use super::attending::Attending;
use super::held::{Eviction, Held, Keeping, Method, RankedEntries, utterances};
use super::material::{Conversation, Gold, Question, Step};
use crate::eval::bootstrap::{Conversations, Mean};

/// LoCoMo's category of questions without an answer: their evidence is a distractor.
const UNANSWERABLE: &str = "5";

/// The setting of a measurement.
#[derive(Clone, Debug)]
pub struct Measure {
    /// The engine's configuration.
    pub config: HistoryConfig,
    /// The engine's similarity of texts.
    pub similarity: Similarity,
    /// Whether questions are completed before the search.
    pub reconstruct: bool,
    /// Reorders the first recalled entries, if set.
    pub attending: Option<Attending>,
    /// The numbers of recalled utterances, each from 1, ascending.
    pub k: Vec<usize>,
    /// The capacity of the history.
    pub capacity: Capacity,
    /// The rule of eviction.
    pub eviction: Eviction,
    /// The method of recall.
    pub method: Method,
    /// Seeds random eviction.
    pub seed: u64,
}

impl Measure {
    /// Returns the setting of a conversation's history.
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

/// The result of one question.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The question's category.
    pub category: Option<String>,
    /// By K, the recalled share of the evidence.
    pub recall: Vec<f64>,
    /// The share of the evidence that was held.
    pub survival: f64,
}

/// The results of all questions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcomes {
    /// Results in order; the questions do not depend on the setting.
    pub questions: Vec<Outcome>,
    /// Questions left out, because their evidence names no turn.
    pub skipped: usize,
    /// Ids in evidence that name no earlier turn.
    pub malformed: usize,
}

/// Means over questions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvidenceFigures {
    /// Questions.
    pub n: usize,
    /// By K, the recalled share of the evidence.
    pub recall: BTreeMap<usize, f64>,
    /// By K, the share of questions with all their evidence recalled.
    pub full: BTreeMap<usize, f64>,
    /// The share of the evidence that was held at the time of the question.
    pub survival: f64,
}

/// 95 % intervals by resampling questions.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Intervals {
    /// Intervals of the recalls.
    pub recall: BTreeMap<usize, [f64; 2]>,
    /// Intervals of the shares of questions with all evidence recalled.
    pub full: BTreeMap<usize, [f64; 2]>,
    /// Interval of survival.
    pub survival: Option<[f64; 2]>,
}

/// The result printed with `--json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The figures of all questions.
    #[serde(flatten)]
    pub figures: EvidenceFigures,
    /// The intervals of those figures.
    pub intervals: Intervals,
    /// The figures by category.
    pub by_category: BTreeMap<String, EvidenceFigures>,
    /// The figures of the questions with an answer, if the data set has others too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answerable: Option<EvidenceFigures>,
    /// Questions left out.
    pub questions_skipped: usize,
    /// Ids in evidence that name no turn.
    pub malformed_evidence: usize,
}

/// Feeds conversations to a history and asks their questions. `progress` is called once per
/// question.
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
                    // Consecutive questions share one state.
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
    /// Appends results of further questions.
    pub fn append(&mut self, further: Self) {
        self.questions.extend(further.questions);
        self.skipped += further.skipped;
        self.malformed += further.malformed;
    }

    fn add(
        &mut self,
        question: &Question,
        heard: &BTreeSet<&TurnId>,
        ranked: &RankedEntries<'_>,
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

    /// Returns one figure of each question, in order: the recall at the index of a K, or survival.
    pub fn figures_of(&self, at: Option<usize>) -> Vec<f64> {
        let figure = |outcome: &Outcome| at.map_or(outcome.survival, |at| outcome.recall[at]);
        self.questions.iter().map(figure).collect()
    }

    /// Computes the figures for the measured `k`. `category_five` means that questions of category
    /// 5 have no answer.
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

    /// Returns the units of the bootstrap: questions.
    pub fn drawn(&self) -> Conversations {
        Conversations::new(0..self.questions.len())
    }
}

/// Returns the means over questions; zeros without questions.
fn figures(outcomes: &[&Outcome], k: &[usize]) -> EvidenceFigures {
    let mean = |of: &dyn Fn(&Outcome) -> f64| {
        outcomes.iter().map(|outcome| of(outcome)).sum::<f64>() / outcomes.len().max(1) as f64
    };
    let by_k = |of: &dyn Fn(f64) -> f64| {
        let at = |(at, k): (usize, &usize)| (*k, mean(&|outcome| of(outcome.recall[at])));
        k.iter().enumerate().map(at).collect()
    };
    EvidenceFigures {
        n: outcomes.len(),
        recall: by_k(&|share| share),
        full: by_k(&|share| f64::from(u8::from(share >= 1.0))),
        survival: mean(&|outcome| outcome.survival),
    }
}
