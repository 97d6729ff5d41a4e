//! Merges fragments: user turns that follow each other closely are one utterance. "hi", "my
//! parcel", "is late" are answered once.
//!
//! A user turn waits for the next one before it is asked: live for `turns.burst_ms`, in a replay
//! only if the log says that a fragment follows. All fragments are asked as one utterance under the
//! id of the last one. A fragment that comes while the utterance is being answered supersedes the
//! answer, and the wait begins anew. Any other input ends the wait.

use std::sync::Arc;

use turnstream_ports::broken::Broken;
use turnstream_schemas::{EventTime, Fault, Outcome, RecordedReason, RequestId, Scope, Speaker};

use super::ending::recorded;
use super::waiting::WaitingInput;
use super::{HistoryStep, Sequence};
use crate::flow::Original;
use crate::history::Rules;
use crate::ingest::ArrivedTurn;

/// Most fragments of one utterance.
const MOST_FRAGMENTS: usize = 16;

/// Which user turns are fragments of one utterance.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fragmenting {
    /// Milliseconds between two fragments at most, by their event times; 0: every turn is an utterance.
    pub burst_ms: u64,
    /// Bytes of an utterance at most.
    pub max_text_bytes: usize,
}

impl Fragmenting {
    /// Whether a turn at `time` may continue what was said at `before`.
    pub fn goes_on(&self, before: EventTime, time: EventTime) -> bool {
        self.burst_ms > 0 && before.millis().abs_diff(time.millis()) <= self.burst_ms
    }
}

/// The wait after the latest fragment of a scope, at whose end the utterance is asked.
#[derive(Clone, Debug)]
pub struct Pause {
    /// The attempt to serve the fragment.
    pub request: RequestId,
    /// Its scope.
    pub scope: Scope,
}

impl Sequence {
    /// Asks a user turn, or lets it wait for the fragments that may follow it.
    pub(super) fn begin(
        &mut self,
        turn: Box<ArrivedTurn>,
        rules: &Rules,
        steps: &mut Vec<HistoryStep>,
    ) {
        if rules.fragmenting.burst_ms == 0 {
            steps.push(self.ask(&turn, rules));
            self.asked = Some(turn);
            return;
        }
        self.database.see_time(turn.event_time);
        let (request, followed) = (turn.request, turn.followed);
        self.fragments.push(turn);
        if rules.source.is_live() {
            steps.push(HistoryStep::Pause(Pause { request, scope: self.scope.clone() }));
        } else if !followed {
            self.utter(rules, steps);
        }
    }

    /// Asks the utterance at the end of a wait. Returns `None` if another fragment came since, or
    /// the utterance no longer waits.
    pub fn paused(&mut self, request: RequestId, rules: &Rules) -> Option<Vec<HistoryStep>> {
        let last = self.fragments.last().filter(|_| self.asked.is_none())?;
        if last.request != request {
            return None;
        }
        let mut steps = Vec::new();
        self.utter(rules, &mut steps);
        Some(steps)
    }

    /// Asks the fragments so far as one utterance.
    pub(super) fn utter(&mut self, rules: &Rules, steps: &mut Vec<HistoryStep>) {
        let Some(last) = self.fragments.last() else { return };
        let mut turn = last.clone();
        if self.fragments.len() > 1 {
            let texts: Vec<&str> = self.fragments.iter().map(|of| &*of.turn.text).collect();
            turn.turn.text = texts.join(" ");
        }
        steps.push(self.ask(&turn, rules));
        self.asked = Some(turn);
    }

    /// Whether an input is the next fragment of the utterance.
    pub(super) fn is_fragment(&self, input: &WaitingInput, rules: &Rules) -> bool {
        let (WaitingInput::Turn(turn), Some(last)) = (input, self.fragments.last()) else {
            return false;
        };
        let bytes: usize = self.fragments.iter().map(|of| of.turn.text.len() + 1).sum();
        turn.turn.speaker == Speaker::User
            && (rules.source.is_live() || last.followed)
            && rules.fragmenting.goes_on(last.event_time, turn.event_time)
            && self.fragments.len() < MOST_FRAGMENTS
            && bytes + turn.turn.text.len() <= rules.fragmenting.max_text_bytes
            && !input.repeats(&self.database)
            && !self.fragments.iter().any(|of| of.turn_id == turn.turn_id)
    }

    /// Makes an utterance that is being answered wait again, if the input is a further fragment of
    /// it. The answer will come late.
    pub(super) fn reopen(&mut self, fragment: &WaitingInput, rules: &Rules) {
        let may =
            rules.source.is_live() && self.waiting.is_empty() && self.is_fragment(fragment, rules);
        if may && !Broken::FragmentAnsweredTwice.here() {
            (self.asked, self.query) = (None, None);
        }
    }

    /// Takes the inputs of the utterance that has not ended, in log order.
    pub(super) fn unended(&mut self) -> impl Iterator<Item = WaitingInput> + use<> {
        let asked = self.asked.take().filter(|_| self.fragments.is_empty());
        if asked.is_none() {
            // The signature was that of the whole utterance.
            self.query = None;
        }
        let fragments = std::mem::take(&mut self.fragments);
        asked.into_iter().chain(fragments).map(WaitingInput::Turn)
    }

    /// Ends the fragments before the last one: as merged into it, or as dead letters if the
    /// utterance failed. Returns their outcomes, and the last one, with the words of all unless the
    /// utterance failed.
    pub(super) fn end_fragments(
        &mut self,
        utterance: Box<ArrivedTurn>,
        failed: Option<&Fault>,
        rules: &Rules,
    ) -> (Vec<(Outcome, Arc<Original>)>, Box<ArrivedTurn>) {
        let mut fragments = std::mem::take(&mut self.fragments);
        if Broken::FragmentAnsweredTwice.here() && !self.waiting.is_empty() {
            self.fragments.clone_from(&fragments);
        }
        let Some(last) = fragments.pop().filter(|_| !fragments.is_empty()) else {
            return (Vec::new(), utterance);
        };
        if failed.is_some() {
            // The signature was that of the whole utterance.
            self.query = None;
        }
        let end = |fragment: Box<ArrivedTurn>| {
            let outcome = match failed {
                None => {
                    self.database.remember(&fragment.turn_id);
                    let reason = RecordedReason::MergedInto(last.turn_id.clone());
                    recorded(&fragment, reason, Vec::new())
                }
                Some(fault) => {
                    let (outcome, changes) = self.fail(&fragment, fault.clone(), rules);
                    self.changed.extend(changes);
                    outcome
                }
            };
            self.database.applied(&self.scope, fragment.request.offset);
            self.retired |= fragment.last_of_scope;
            (outcome, fragment.original)
        };
        let outcomes = fragments.into_iter().map(end).collect();
        (outcomes, if failed.is_some() { last } else { utterance })
    }
}
