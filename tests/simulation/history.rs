//! Computes the expected history of a scope, folded from inputs and outcomes by the documented
//! rules, and the allowed outcomes of an input after the earlier ones of its scope.
//!
//! A response makes an entry with it; a superseded or failed turn makes one without. An agent's
//! turn completes the latest entry without a response, or makes its own. A repeat changes nothing.
//! Fragments that are merged into a turn make no entries of their own: the turn's entry has the
//! words of all, as its response quotes them. An echo is only remembered. A demand to forget
//! removes every entry. While an agent holds the scope (from its first turn, if agents take over,
//! or a takeover, until a release or a user turn long after its last one), and perhaps while the
//! user waits for one, user turns are held: they make an entry without a response, and no other
//! outcome of theirs is allowed. If there are more entries than the history holds, the one with the
//! earliest event time is evicted, of equal ones that with the lower offset, and never the entry
//! just added, nor the latest ones, as far as these are half of them. (Recency alone decides: the
//! simulation weighs relevance and importance with 0.)
//!
//! Clusters and chains depend on everything before them. The operators' own code therefore computes
//! them here, without a crash, a restore or a scope that leaves memory. The engine must end with
//! the same.

use std::collections::{BTreeMap, BTreeSet};

use turnstream_engine::config::Config;
use turnstream_knowledge::language::Lexicon;
use turnstream_operators::history::HistoryConfig;
use turnstream_operators::history::chains::Chains;
use turnstream_operators::history::clusters::Clusters;
use turnstream_operators::history::handover::{HandoverConfig, WhileWaiting};
use turnstream_operators::history::likeness::Signature;
use turnstream_operators::history::similarity::Similarity;
use turnstream_operators::ingest::AgentTurns;
use turnstream_schemas::{
    Action, EntryId, EventTime, Evicted, EvictionReason, HandOffReason, Handover, HandoverReason,
    HistoryEntry, Holder, InputId, Outcome, Passage, RecordedReason, Response, ResponseId,
    SCHEMA_VERSION, ScopeRecord, Stage, TurnId, UserId,
};

use crate::instance::mark;
use crate::workload::{By, Said, Sent};

/// The expected state of a scope.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) entries: BTreeMap<EntryId, HistoryEntry>,
    pub(crate) record: ScopeRecord,
    clusters: Clusters,
    chains: Chains,
    /// The signature of each entry, by offset, which comparisons use.
    texts: BTreeMap<i64, Signature>,
    /// The ids of the last 256 turns that ended as a response or a recorded turn.
    last: Vec<TurnId>,
    /// The ids of all turns so far.
    seen: BTreeSet<String>,
    /// The words of the fragments so far of an utterance whose last one is still to come.
    fragments: Vec<String>,
    /// All handovers.
    pub(crate) handovers: Vec<Handover>,
}

impl History {
    /// Applies the outcome of the next input of the scope. `later` are the scope's later inputs
    /// with their outcomes. Panics if the outcome is not allowed.
    pub(crate) fn apply(
        &mut self,
        (sent, said): (&Sent, &Said),
        outcome: &Outcome,
        later: &[(&Said, &Outcome)],
        config: &Config,
    ) {
        let max_entries = config.history.max_entries;
        let repeats = self.last.iter().any(|id| id.as_str() == said.turn_id);
        let duplicate = RecordedReason::DuplicateOf(TurnId(said.turn_id.clone()));
        let reason = match outcome {
            Outcome::Recorded(recorded) => Some(&recorded.reason),
            _ => None,
        };
        let wrong = || -> ! {
            let then = later.iter().map(|(said, outcome)| (&said.speaker, &said.turn_id, outcome));
            panic!("{sent:?} must not end as {outcome:?}, with {:?}", then.collect::<Vec<_>>())
        };
        self.record.last_applied_offset = sent.offset;
        self.seen.insert(said.turn_id.clone());
        if repeats || reason == Some(&duplicate) {
            if !repeats || reason != Some(&duplicate) {
                wrong();
            }
            return;
        }
        if said.speaker == By::User {
            self.time_passes(sent, said, config);
        }
        let is_held = match self.holder() {
            Holder::Bot => false,
            Holder::Waiting => config.handover.while_waiting == WhileWaiting::Hold,
            Holder::Agent => true,
        };
        let ends_as_held = reason == Some(&RecordedReason::Held);
        if (said.speaker == By::User && is_held) != ends_as_held {
            wrong();
        }
        if !matches!(said.speaker, By::Forget | By::Takeover | By::Release) {
            let now = self.record.latest_event_time.max(EventTime(said.time_ms));
            self.record.latest_event_time = now;
        }
        let before = self.record.evictions;
        if let Some(RecordedReason::MergedInto(last)) = reason {
            if said.speaker != By::User || !goes_on(said, last, later, config) {
                wrong();
            }
            self.fragments.push(said.text.clone());
            self.remember(said);
            return;
        }
        let mut texts = std::mem::take(&mut self.fragments);
        texts.push(said.text.clone());
        let words = &texts.join(" ");
        match (&said.speaker, outcome, reason) {
            (By::User, Outcome::Response(response), _) => {
                // The model saw exactly this history, which is strictly before the turn.
                let after = format!(" after {}", mark(self.said_last().unwrap_or("nothing")));
                let degraded = response.is_without(Stage::Generation);
                let hands_off = response.action == Some(Action::HandOff);
                let knows = degraded || hands_off || response.text.ends_with(&after);
                assert!(knows, "{response:?}: not{after}");
                self.insert(answered(sent, said, words, response), max_entries);
                if hands_off {
                    let why = HandOffReason::Asked;
                    let queue = config.handover.queues.get(&why).cloned();
                    self.change_hands(HandoverReason::HandOff, sent, said, Some((why, queue)));
                }
            }
            (By::User, Outcome::DeadLetter(_), _) => {
                self.insert(entry(sent, said, Some(&said.text)), max_entries);
                // The turn may be sent again.
                return;
            }
            (By::User, _, Some(RecordedReason::SupersededBy(agent))) => {
                if !may_overtake(agent, &self.seen, later) {
                    wrong();
                }
                self.insert(entry(sent, said, Some(&said.text)), max_entries);
            }
            (By::User, _, Some(RecordedReason::Held)) => {
                self.insert(entry(sent, said, Some(&said.text)), max_entries);
            }
            (By::Agent, _, Some(RecordedReason::System)) => {
                self.agent_speaks(sent, said, max_entries);
                if config.turns.agent_turns == AgentTurns::TakeOver {
                    self.change_hands(HandoverReason::AgentTurn, sent, said, None);
                }
            }
            (By::Takeover, _, Some(RecordedReason::Takeover)) => {
                self.change_hands(HandoverReason::Takeover, sent, said, None);
            }
            (By::Release, _, Some(RecordedReason::Release)) => {
                self.change_hands(HandoverReason::Release, sent, said, None);
            }
            (By::Echo(response), _, Some(reason)) => {
                if reason != &RecordedReason::Echo(ResponseId(response.clone())) {
                    wrong();
                }
            }
            (By::Forget, Outcome::Recorded(recorded), Some(RecordedReason::Forgotten)) => {
                let by_demand = |gone: &Evicted| gone.reason == EvictionReason::Forget;
                assert!(recorded.evicted.iter().all(by_demand), "{recorded:?}");
                self.forget();
            }
            _ => wrong(),
        }
        let told = match outcome {
            Outcome::Response(response) => response.evicted.len(),
            Outcome::Recorded(recorded) => recorded.evicted.len(),
            Outcome::DeadLetter(_) => 0,
        };
        assert_eq!(told as u64, self.record.evictions - before, "evictions told by {outcome:?}");
        self.remember(said);
    }

    fn remember(&mut self, said: &Said) {
        self.record.schema_version = SCHEMA_VERSION;
        self.record.turns += 1;
        self.last.push(TurnId(said.turn_id.clone()));
        let gone = self.last.len().saturating_sub(256);
        self.last.drain(..gone);
        self.record.remembered_turns = self.last.iter().collect();
    }

    fn holder(&self) -> Holder {
        self.record.handover.as_ref().map_or(Holder::Bot, |last| last.holder)
    }

    /// Returns the scope to the engine if a user turn's own time is long after the agent's last
    /// turn, or after the user began to wait.
    fn time_passes(&mut self, sent: &Sent, said: &Said, config: &Config) {
        let HandoverConfig { return_after_minutes, wait_at_most_minutes, .. } = config.handover;
        let waits_since = self.record.handover.as_ref().map(|last| last.time);
        let (since, minutes, reason) = match self.holder() {
            Holder::Bot => return,
            Holder::Waiting => (waits_since, wait_at_most_minutes, HandoverReason::NobodyCame),
            Holder::Agent => {
                (self.record.agent_time, return_after_minutes, HandoverReason::AgentSilent)
            }
        };
        let passed_ms = said.time_ms - since.expect("held since then").millis();
        if minutes > 0 && passed_ms >= minutes as i64 * 60_000 {
            self.change_hands(reason, sent, said, None);
        }
    }

    fn change_hands(
        &mut self,
        reason: HandoverReason,
        sent: &Sent,
        said: &Said,
        hand_off: Option<(HandOffReason, Option<String>)>,
    ) {
        use HandoverReason::{AgentSilent, AgentTurn, HandOff, NobodyCame, Release, Takeover};
        let holder = match reason {
            HandOff => Holder::Waiting,
            AgentTurn | Takeover => Holder::Agent,
            Release | AgentSilent | NobodyCame => Holder::Bot,
        };
        let time = EventTime(said.time_ms);
        let latest = self.record.agent_time.unwrap_or(time).max(time);
        self.record.agent_time = (holder == Holder::Agent).then_some(latest);
        if holder == self.holder() {
            return;
        }
        let waits_since =
            self.record.handover.as_ref().filter(|_| self.holder() == Holder::Waiting);
        let waited_ms = waits_since.map(|last| (said.time_ms - last.time.millis()).max(0) as u64);
        let (hand_off, queue) = hand_off.unzip();
        let handover = Handover {
            holder,
            reason,
            since: input(sent),
            time,
            hand_off,
            queue: queue.flatten(),
            waited_ms,
        };
        self.handovers.push(handover.clone());
        self.record.handover = Some(handover);
    }

    /// Returns the last words of our side, within the window of the dialogue history.
    fn said_last(&self) -> Option<&str> {
        let entries = self.entries.values().rev();
        let utterances = entries
            .flat_map(|entry| [(true, entry.response.as_deref()), (false, entry.query.as_deref())]);
        let said = utterances.filter_map(|(ours, text)| Some((ours, text?)));
        let window = HistoryConfig::default().window_utterances;
        said.take(window).find(|(ours, _)| *ours).map(|(_, text)| text)
    }

    fn agent_speaks(&mut self, sent: &Sent, said: &Said, max_entries: usize) {
        let waiting = self.entries.values_mut().rev().find(|entry| entry.response.is_none());
        let spoken = |entry: &mut HistoryEntry| {
            entry.response = Some(said.text.clone());
            entry.response_turn_id = Some(TurnId(said.turn_id.clone()));
        };
        if let Some(entry) = waiting {
            spoken(entry);
            let (at, now) = (entry.input.offset, Similarity::by_words().of_entry(entry));
            if let Some(before) = self.texts.insert(at, now.clone()) {
                self.clusters.replace(at, &before, &now);
            }
            self.note_structure();
        } else {
            let mut own = entry(sent, said, None);
            spoken(&mut own);
            self.insert(own, max_entries);
        }
    }

    fn insert(&mut self, entry: HistoryEntry, max_entries: usize) {
        let id = entry.input.entry_id();
        self.join(&entry);
        self.entries.insert(id, entry);
        while self.entries.len() > max_entries {
            // Those of the window stay, at most half of all; here it reaches over all of them.
            let window = self.entries.keys().rev().filter(|of| **of != id);
            let stay: Vec<EntryId> = window.take((max_entries / 2).max(1) - 1).copied().collect();
            let others = self.entries.iter().filter(|(of, _)| **of != id && !stay.contains(of));
            let oldest = others.min_by_key(|(of, entry)| (entry.event_time, **of));
            let leaves = oldest.map_or(id, |(of, _)| *of);
            self.entries.remove(&leaves);
            self.record.evictions += 1;
            self.record.evictions_by_reason.count(EvictionReason::Capacity);
            if let Some(text) = self.texts.remove(&leaves.offset) {
                self.clusters.remove(leaves.offset, &text);
                self.chains.remove(leaves.offset);
            }
        }
        self.note_structure();
    }

    fn forget(&mut self) {
        let entries = self.entries.len() as u64;
        self.record.evictions += entries;
        self.record.evictions_by_reason.forget += entries;
        self.entries.clear();
        for (at, text) in std::mem::take(&mut self.texts) {
            self.clusters.remove(at, &text);
            self.chains.remove(at);
        }
        self.note_structure();
    }

    fn join(&mut self, entry: &HistoryEntry) {
        let config = HistoryConfig::default();
        let (at, text) = (entry.input.offset, Similarity::by_words().of_entry(entry));
        let query = entry.query.as_deref().unwrap_or_default();
        let refers_back = Lexicon::of_text(query).refers_back(query);
        self.clusters.insert(at, &text, &config.clusters);
        let text_of = |at| self.texts.get(&at);
        self.chains.insert(at, &text, refers_back, text_of, &config.chains);
        self.texts.insert(at, text);
    }

    fn note_structure(&mut self) {
        (self.record.categories, self.record.next_cluster) = self.clusters.records();
        (self.record.chains, self.record.next_chain) = self.chains.records();
    }
}

/// Whether this input may have overtaken one that `later` follow: it is an agent's turn or takeover, and
/// each of those before it is a repeat, which overtakes no turn. This holds also if the turn in
/// flight fails later.
fn may_overtake(agent: &TurnId, earlier: &BTreeSet<String>, later: &[(&Said, &Outcome)]) -> bool {
    let mut earlier = earlier.clone();
    for (said, outcome) in later {
        let is_new = earlier.insert(said.turn_id.clone());
        if !matches!(said.speaker, By::Agent | By::Takeover) || is_repeat(outcome) {
            continue;
        }
        if said.turn_id == agent.as_str() {
            return true;
        }
        if is_new {
            return false;
        }
    }
    false
}

/// Whether a fragment may be merged into that turn: all inputs up to it are user turns that follow each other
/// within a burst's time and are merged into it, and it was answered.
fn goes_on(said: &Said, last: &TurnId, later: &[(&Said, &Outcome)], config: &Config) -> bool {
    let mut before = said;
    for (next, outcome) in later {
        let apart_ms = before.time_ms.abs_diff(next.time_ms);
        if next.speaker != By::User || apart_ms > config.turns.burst_ms {
            return false;
        }
        match outcome {
            Outcome::Response(_) => return next.turn_id == last.as_str(),
            Outcome::Recorded(it) if it.reason == RecordedReason::MergedInto(last.clone()) => {}
            _ => return false,
        }
        before = next;
    }
    false
}

fn is_repeat(outcome: &Outcome) -> bool {
    let Outcome::Recorded(recorded) = outcome else { return false };
    matches!(recorded.reason, RecordedReason::DuplicateOf(_))
}

fn entry(sent: &Sent, said: &Said, query: Option<&String>) -> HistoryEntry {
    HistoryEntry {
        schema_version: SCHEMA_VERSION,
        input: input(sent),
        query: query.cloned(),
        turn_id: TurnId(said.turn_id.clone()),
        // Every turn of the workload names its scope as its user.
        user_id: said.scope.strip_prefix("default/").map(UserId::from),
        passages: Vec::new(),
        response: None,
        response_turn_id: None,
        event_time: EventTime(said.time_ms),
        vector: None,
        extra: serde_json::Map::new(),
    }
}

fn input(sent: &Sent) -> InputId {
    InputId { topic: "turns".to_owned(), partition: sent.partition, offset: sent.offset }
}

fn answered(sent: &Sent, said: &Said, words: &String, response: &Response) -> HistoryEntry {
    let used = response.evidence.iter().filter(|evidence| evidence.selected);
    HistoryEntry {
        passages: used
            .map(|used| Passage { id: used.id.clone(), text: used.text.clone() })
            .collect(),
        response: Some(response.text.clone()),
        response_turn_id: Some(TurnId(response.response_id.0.clone())),
        ..entry(sent, said, Some(words))
    }
}
