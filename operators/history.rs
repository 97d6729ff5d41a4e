//! History: the order of a scope, what a turn recalls, and what remains of it (DH-RAG).
//!
//! Stands between ingest and the gate, and at the end of the feedback edge. Key: (partition,
//! scope), where turns are exchanged once. State: per scope its entries, the ids of its last 256
//! turns, the turn that is being answered and those that wait behind it; kept until the
//! partition is revoked or the scope retires. It decides which turn goes down the flow next,
//! recalls entries of strictly earlier inputs for it, and, when the outcome is back, updates the
//! history and evicts (eq 11–14). It alone says how an input ended, so an answer that comes late
//! is dropped here and nowhere else.
//!
//! It holds no capability: a turn waits only while another of its scope is in flight, and that
//! one's return brings the capability to go on.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use timely::dataflow::channels::pact::{Exchange, Pipeline};
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::progress::operate::FrontierInterest;
use turnstream_schemas::{HistoryChange, Scope, Stage};

use crate::flow::{Drafted, Epoch, Failed, Finished, RequestId, TurnContext};
use crate::ingest::{Arrived, ArrivedTurn, OnAgentReply};
use crate::language::Lexicon;

pub mod database;
pub mod eviction;
pub mod recall;
pub mod recency;
pub mod sequence;

pub use database::{Database, REMEMBERED_TURN_IDS};
use sequence::{Sequence, Step};

/// `[history]`: how much is remembered, and what is recalled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HistoryConfig {
    /// N: entries of one scope at most. 0 remembers nothing.
    pub max_entries: usize,
    /// α of DH-RAG eq 12: the share of relevance in an entry's weight, 0..=1; the rest is
    /// recency.
    pub alpha: f64,
    /// Seconds of event time in which an entry's recency halves, from 1. The paper's authors
    /// keep a constant of seven days in their code.
    pub half_life_seconds: u64,
    /// Utterances before the current one that the dialogue history H holds at most.
    pub window_utterances: usize,
    /// Bytes of those utterances at most.
    pub window_bytes: usize,
    /// Entries recalled at most from before the window.
    pub recall_entries: usize,
    /// Relevance below which an entry from before the window is not recalled, 0..=1.
    pub min_recall_relevance: f64,
}

impl Default for HistoryConfig {
    fn default() -> Self {
        Self {
            max_entries: 64,
            alpha: 0.5,
            half_life_seconds: 604_800,
            window_utterances: 8,
            window_bytes: 8_192,
            recall_entries: 4,
            min_recall_relevance: 0.2,
        }
    }
}

/// Whose words enter history as responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResponseSource {
    /// Ours when they are made, and those of agents who speak themselves.
    #[default]
    Live,
    /// A replay: the logged ones. Ours are written out and not remembered.
    Recorded,
    /// A replay: ours. Logged ones are dropped.
    Generated,
}

impl ResponseSource {
    fn keeps_ours(self) -> bool {
        self != Self::Recorded
    }

    fn keeps_logged(self) -> bool {
        self != Self::Generated
    }

    fn is_live(self) -> bool {
        self == Self::Live
    }
}

/// What `history` goes by.
#[derive(Clone, Debug)]
pub struct Rules {
    /// How much is remembered.
    pub config: HistoryConfig,
    /// What an agent's words do to an answer that is still being made.
    pub on_agent_reply: OnAgentReply,
    /// Whose words enter history.
    pub source: ResponseSource,
    /// Whether changes are given to the committer.
    pub publish_changes: bool,
    /// The words of the language.
    pub lexicon: &'static Lexicon,
}

/// What comes back on the feedback edge: a draft, or the fault of any stage.
pub type Answer = Result<Box<Drafted>, Box<Failed>>;

/// Keeps every scope in order: arrivals and answers in, (turns to answer, ended inputs) out.
/// `late` is called for every answer that came for a turn that had ended otherwise.
pub fn history<'scope>(
    arrivals: StreamVec<'scope, Epoch, Arrived>,
    answers: StreamVec<'scope, Epoch, Answer>,
    rules: Rules,
    late: impl Fn() + 'static,
) -> (StreamVec<'scope, Epoch, Arc<TurnContext>>, StreamVec<'scope, Epoch, Finished>) {
    let mut builder = OperatorBuilder::new(Stage::History.name().to_owned(), arrivals.scope());
    let mut arrivals = builder.new_input(arrivals, Exchange::new(Arrived::route));
    let mut answers = builder.new_input(answers, Pipeline);
    builder.set_notify_for(0, FrontierInterest::Never);
    builder.set_notify_for(1, FrontierInterest::Never);
    let (asked, asked_stream) = builder.new_output();
    let (finished, finished_stream) = builder.new_output();
    let (mut asked, mut finished) = (OutputBuilder::from(asked), OutputBuilder::from(finished));

    builder.build(move |_| {
        let mut scopes =
            Scopes { rules, generations: FxHashMap::default(), open: FxHashMap::default() };
        move |_| {
            let (mut asked, mut finished) = (asked.activate(), finished.activate());
            answers.for_each(|capability, answers| {
                let mut asked = asked.session(&capability);
                let mut finished = finished.session(&capability);
                for answer in answers.drain(..) {
                    for step in scopes.answered(answer).unwrap_or_else(|| {
                        late();
                        Vec::new()
                    }) {
                        match step {
                            Step::Ask(context) => asked.give(context),
                            Step::Finish(inputs) => finished.give(inputs),
                        }
                    }
                }
            });
            arrivals.for_each(|capability, arrivals| {
                let mut asked = asked.session(&capability);
                let mut finished = finished.session(&capability);
                for arrived in arrivals.drain(..) {
                    for step in scopes.arrived(arrived) {
                        match step {
                            Step::Ask(context) => asked.give(context),
                            Step::Finish(inputs) => finished.give(inputs),
                        }
                    }
                }
            });
        }
    });
    (asked_stream, finished_stream)
}

/// The scopes of one worker.
struct Scopes {
    rules: Rules,
    generations: FxHashMap<i32, u32>,
    open: FxHashMap<(i32, Scope), Sequence>,
}

impl Scopes {
    fn arrived(&mut self, arrived: Arrived) -> Vec<Step> {
        match arrived {
            Arrived::Turn(turn) => self.turn(turn),
            Arrived::Restored { partition, change } => {
                self.restore(partition, *change);
                Vec::new()
            }
            Arrived::Ended { partition, scope } => {
                let key = (partition, scope);
                if self.open.get_mut(&key).is_some_and(Sequence::retire) {
                    self.open.remove(&key);
                }
                Vec::new()
            }
            Arrived::Assigned { partition, generation, .. } => {
                self.drop_partition(partition);
                self.generations.insert(partition, generation);
                Vec::new()
            }
            Arrived::Revoked { partition, .. } => {
                self.drop_partition(partition);
                self.generations.remove(&partition);
                Vec::new()
            }
        }
    }

    fn turn(&mut self, turn: Box<ArrivedTurn>) -> Vec<Step> {
        let RequestId { partition, generation, .. } = turn.request;
        // A turn read under an older assignment will be read again under the new one.
        if self.generations.get(&partition).is_some_and(|current| *current != generation) {
            return Vec::new();
        }
        let key = (partition, turn.scope.clone());
        let sequence = self
            .open
            .entry(key)
            .or_insert_with_key(|(_, scope)| Sequence::new(scope.clone(), partition, generation));
        let steps = sequence.arrive(turn, &self.rules);
        if sequence.is_retired() {
            let scope = sequence.scope().clone();
            self.open.remove(&(partition, scope));
        }
        steps
    }

    fn answered(&mut self, answer: Answer) -> Option<Vec<Step>> {
        let context = match &answer {
            Ok(drafted) => Arc::clone(&drafted.grounded.turn.context),
            Err(failed) => Arc::clone(&failed.context),
        };
        let key = (context.request.partition, context.scope.clone());
        let sequence = self.open.get_mut(&key)?;
        let steps = sequence.answered(context.request, answer, &self.rules);
        if sequence.is_retired() {
            self.open.remove(&key);
        }
        steps
    }

    fn restore(&mut self, partition: i32, change: HistoryChange) {
        let generation = self.generations.get(&partition).copied().unwrap_or_default();
        let key = (partition, change.key().scope.clone());
        let sequence = self
            .open
            .entry(key)
            .or_insert_with_key(|(_, scope)| Sequence::new(scope.clone(), partition, generation));
        sequence.database_mut().restore(change, self.rules.lexicon);
    }

    fn drop_partition(&mut self, partition: i32) {
        self.open.retain(|(of, _), _| *of != partition);
    }
}

#[cfg(test)]
mod tests;
