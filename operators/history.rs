//! History keeps the turns of a scope in order, recalls entries for a turn, and remembers the turn
//! afterwards (DH-RAG).
//!
//! The operator runs between ingest and the gate, and at the end of the feedback edge. Turns are
//! exchanged here, once, by (partition, scope). The state of a scope is its entries, the ids of its
//! last 256 turns, who holds the conversation ([`handover`]), the turn that is being answered and
//! the inputs that wait behind it. The operator keeps it until the partition is revoked or the
//! scope retires: in memory while the scope is busy, in the [cache](turnstream_ports::cache) while
//! it is idle. It decides which turn goes down the flow next, recalls entries of strictly earlier
//! inputs for it, and, when the turn comes back, updates the history and evicts entries (eq 11–14).
//! Only this operator decides how an input ends, so it is the one place that drops late answers.
//!
//! The operator holds no capability: a turn waits only while another of its scope is in flight, and that
//! one brings a capability when it comes back. Where recall uses an encoder that does not answer at once,
//! a turn first goes around a loop of its own ([`mod@preparation`]), and so it does where it waits for
//! further fragments of its utterance.

use std::rc::Rc;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use timely::dataflow::channels::pact::{Exchange, Pipeline};
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::dataflow::operators::{ConnectLoop, Feedback};
use timely::progress::operate::FrontierInterest;
use turnstream_ports::cache::ScopeCache;
use turnstream_ports::panics::at_work;
use turnstream_schemas::Stage;

use crate::awaited::Awaited;
use crate::flow::{Epoch, Failed, Finished, TurnContext, TurnInFlight};
use crate::ingest::{AgentTurns, Arrived, OnAgentReply};
use crate::response_texts::ResponseTexts;
use crate::stage::Observer;
use crate::timers::Timers;

pub mod chains;
pub mod clusters;
pub mod database;
pub mod eviction;
pub mod handover;
pub mod hierarchy;
pub mod importance;
pub mod likeness;
mod pause;
pub mod preparation;
pub mod recall;
pub mod recency;
pub mod reconstruction;
pub mod relevance;
mod scopes;
pub mod sequence;
pub mod similarity;

use chains::ChainsConfig;
use clusters::ClustersConfig;
pub use database::{Database, Remembering};
use handover::HandoverConfig;
use preparation::{
    PreparationConfig, Prepared, Preparing, SummariesConfig, SummariesForm, preparation,
};
use recall::RecallConfig;
use reconstruction::ReconstructionConfig;
use scopes::{Next, Scopes};
use sequence::{Fragmenting, HistoryStep, Pause};
use similarity::Similarity;

/// `[history]`: how much is remembered, and what is recalled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HistoryConfig {
    /// N: the most entries of one scope, up to 100,000. 0 remembers nothing.
    #[schemars(range(max = Self::MOST_ENTRIES))]
    pub max_entries: usize,
    /// Seconds of event time after which an entry is evicted, whatever its weight; 0 keeps entries of
    /// any age. The entry just added stays. Ages are checked when an entry is added, so an idle history
    /// may hold older entries.
    pub max_age_seconds: u64,
    /// α of DH-RAG eq 12: the share of relevance in an entry's weight, 0..=1; the rest is
    /// recency.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub alpha: f64,
    /// β: the share of importance in an entry's weight, 0..=1; the rest is the paper's weight. An
    /// extension: users ask much later for what is specific, which relevance to the present turn cannot
    /// tell. At 0 the weight is the paper's. At any value the entries of the window stay, as far as they
    /// are half of N at most.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub importance_share: f64,
    /// Seconds of event time in which an entry's recency halves, from 1. The paper's authors
    /// keep a constant of seven days in their code.
    #[schemars(range(min = 1))]
    pub half_life_seconds: u64,
    /// The most utterances before the current one that the dialogue history H holds.
    pub window_utterances: usize,
    /// The most bytes of those utterances.
    pub window_bytes: usize,
    /// Seconds that a scope stays in memory after its last turn ended; then it moves to the cache on
    /// disk (`run.cache_directory`), and its next turn brings it back. 0: it moves as soon as none of
    /// its turns is in flight. Its records stay on the history topic.
    pub idle_after_seconds: u64,
    /// The most scopes that the process holds in memory, spread evenly over its workers; beyond
    /// them, those whose last turn ended longest ago move to the cache at once. Scopes with a turn
    /// in flight stay, and `turns.max_in_flight` bounds those. The two settings together bound the
    /// memory of all histories: about 6 KiB for a scope, 1 KiB for each of its entries, and twice
    /// the text that they hold; with the static table, depending on the size of its vectors, ½ KiB
    /// more for an entry and about 3 KiB for each group. Mapped pages of the cache's files count as
    /// the process's memory too; the system takes them back when it needs room.
    pub max_scopes_in_memory: usize,
    /// How the history is searched.
    pub recall: RecallConfig,
    /// How entries are grouped.
    pub clusters: ClustersConfig,
    /// How a group of entries is summarised.
    pub summaries: SummariesConfig,
    /// How entries follow from each other.
    pub chains: ChainsConfig,
    /// How queries are completed.
    pub reconstruction: ReconstructionConfig,
    /// How an encoder that does not answer at once is asked.
    pub preparation: PreparationConfig,
}

impl HistoryConfig {
    /// The largest N: sums over more entries would not fit into their numbers.
    pub const MOST_ENTRIES: usize = 100_000;
}

impl Default for HistoryConfig {
    fn default() -> Self {
        Self {
            max_entries: 64,
            max_age_seconds: 0,
            alpha: 0.5,
            importance_share: 0.75,
            half_life_seconds: 604_800,
            window_utterances: 8,
            window_bytes: 8_192,
            idle_after_seconds: 900,
            max_scopes_in_memory: 10_000,
            recall: RecallConfig::default(),
            clusters: ClustersConfig::default(),
            summaries: SummariesConfig::default(),
            chains: ChainsConfig::default(),
            reconstruction: ReconstructionConfig::default(),
            preparation: PreparationConfig::default(),
        }
    }
}

/// Whose responses enter the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResponseSource {
    /// Those that the engine generates, and those of human agents.
    #[default]
    Live,
    /// In a replay, the logged ones. The engine's own are written out but not remembered.
    Recorded,
    /// In a replay, the engine's own. The logged ones are dropped.
    Generated,
}

impl Rules {
    /// Returns the settings of summaries, if a language model writes them.
    fn summaries(&self) -> Option<&SummariesConfig> {
        Some(&self.config.summaries).filter(|summaries| summaries.form == SummariesForm::Prompted)
    }

    fn remembering(&self) -> Remembering<'_> {
        Remembering { config: &self.config, similarity: &self.similarity }
    }
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

/// The rules that `history` follows.
#[derive(Clone, Debug)]
pub struct Rules {
    /// How much is remembered.
    pub config: HistoryConfig,
    /// Compares the texts of a history.
    pub similarity: Similarity,
    /// What the texts of our own responses mean for the turn after them.
    pub response_texts: Arc<ResponseTexts>,
    /// What happens to an answer in flight when an agent replies.
    pub on_agent_reply: OnAgentReply,
    /// What an agent's turn means for the turns after it.
    pub agent_turns: AgentTurns,
    /// How conversations change hands.
    pub handover: HandoverConfig,
    /// Which user turns are fragments of one utterance.
    pub fragmenting: Fragmenting,
    /// Whose responses enter the history.
    pub source: ResponseSource,
    /// Whether changes of the history go to the committer.
    pub publish_changes: bool,
    /// Is told how many scopes are in memory.
    pub observer: Observer,
}

/// What `history` needs from outside: the cache for idle scopes, timers, and models.
#[derive(Clone)]
pub struct Keeping {
    /// Holds the scopes of the process that are not in memory.
    pub cache: Arc<dyn ScopeCache>,
    /// The clock that measures how long a scope has been idle.
    pub timers: Timers,
    /// Is told of every turn that goes down the flow, and when its answer is no longer awaited.
    pub awaited: Awaited,
    /// The models that embed texts and write summaries, if any must be asked.
    pub preparing: Option<Preparing>,
}

/// A record of the feedback edge: a draft, or the fault of any stage.
pub type TurnEnd = Result<Box<TurnInFlight>, Box<Failed>>;

/// Returns the turn that an answer is for.
fn context_of(answer: &TurnEnd) -> &Arc<TurnContext> {
    match answer {
        Ok(drafted) => &drafted.context,
        Err(failed) => &failed.context,
    }
}

/// Keeps every scope in order: arrivals and answers in, (turns to answer, ended inputs) out.
/// Calls `late` for every answer to a turn that has already ended in another way.
///
/// # Panics
/// If the history of a scope cannot be read from the cache, or an input comes twice. Every later
/// outcome of the scope would be wrong, and must not be committed.
pub fn history<'scope>(
    arrivals: StreamVec<'scope, Epoch, Arrived>,
    answers: StreamVec<'scope, Epoch, TurnEnd>,
    rules: Rules,
    keeping: Keeping,
    late: impl Fn() + 'static,
) -> (StreamVec<'scope, Epoch, Arc<TurnContext>>, StreamVec<'scope, Epoch, Finished>) {
    let scope = arrivals.scope();
    let (feedback, prepared) = scope.feedback::<Vec<Prepared>>(1);
    let (after_pause, paused) = scope.feedback::<Vec<Pause>>(1);
    let (burst_ms, timers) = (rules.fragmenting.burst_ms, keeping.timers.clone());
    let preparing = keeping.preparing.clone();
    let mut builder = OperatorBuilder::new(Stage::History.name().to_owned(), scope);
    let activator = Rc::new(scope.activator_for(builder.operator_info().address));
    let workers = scope.peers();
    let mut arrivals = builder.new_input(arrivals, Exchange::new(Arrived::route));
    let mut answers = builder.new_input(answers, Pipeline);
    let mut prepared = builder.new_input(prepared, Pipeline);
    let mut paused = builder.new_input(paused, Pipeline);
    (0..4).for_each(|input| builder.set_notify_for(input, FrontierInterest::Never));
    let (asked, asked_stream) = builder.new_output();
    let (finished, finished_stream) = builder.new_output();
    let (unprepared, unprepared_stream) = builder.new_output();
    let (pauses, pauses_stream) = builder.new_output();
    let (mut asked, mut finished) = (OutputBuilder::from(asked), OutputBuilder::from(finished));
    let mut unprepared = OutputBuilder::from(unprepared);
    let mut pauses = OutputBuilder::from(pauses);

    builder.build(move |_| {
        let timers = keeping.timers.clone();
        let observer = rules.observer.clone();
        let mut scopes = Scopes::new(rules, keeping, workers);
        let mut in_memory = 0;
        move |_| {
            let (mut asked, mut finished) = (asked.activate(), finished.activate());
            let (mut unprepared, mut pauses) = (unprepared.activate(), pauses.activate());
            let late = || {
                late();
                Vec::new()
            };
            macro_rules! take {
                ($input:ident, $step:expr) => {
                    $input.for_each(|capability, records| {
                        let mut asked = asked.session(&capability);
                        let mut finished = finished.session(&capability);
                        let mut unprepared = unprepared.session(&capability);
                        let mut pauses = pauses.session(&capability);
                        for record in records.drain(..) {
                            for step in $step(&mut scopes, record) {
                                match step {
                                    HistoryStep::Ask(context) => asked.give(context),
                                    HistoryStep::Finish(inputs) => finished.give(inputs),
                                    HistoryStep::Prepare(turn) => unprepared.give(*turn),
                                    HistoryStep::Pause(turn) => pauses.give(turn),
                                }
                            }
                        }
                    });
                };
            }
            take!(prepared, |scopes: &mut Scopes, turn: Prepared| {
                at_work(turn.request(), || scopes.prepared(turn)).unwrap_or_else(late)
            });
            take!(answers, |scopes: &mut Scopes, answer: TurnEnd| {
                at_work(context_of(&answer).request, || scopes.answered(answer))
                    .unwrap_or_else(late)
            });
            take!(paused, |scopes: &mut Scopes, pause: Pause| {
                at_work(pause.request, || scopes.paused(&pause)).unwrap_or_default()
            });
            take!(arrivals, |scopes: &mut Scopes, arrived: Arrived| {
                at_work(arrived.request(), || scopes.arrived(arrived))
            });
            match scopes.evict_idle() {
                Next::Never => {}
                Next::At(at_ms) => timers.wake_at(at_ms, Rc::clone(&activator)),
                Next::Now => activator.activate(),
            }
            let now = scopes.in_memory() as i64;
            if now != in_memory {
                observer.tell(|observer| observer.scopes_changed(now - in_memory));
                in_memory = now;
            }
        }
    });
    preparation(unprepared_stream, preparing).connect_loop(feedback);
    pause::pause(pauses_stream, burst_ms, timers).connect_loop(after_pause);
    (asked_stream, finished_stream)
}

#[cfg(test)]
mod tests;
