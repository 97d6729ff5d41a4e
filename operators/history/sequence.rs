//! The sequence of one scope: turn t + 1 waits until the answer to turn t is back. The sequence
//! decides which turn goes down the flow next, and how the other inputs end: duplicates, echoes,
//! agents' turns, superseded turns, held turns, fragments, directives.

use std::collections::VecDeque;
use std::sync::Arc;

use turnstream_ports::broken::Broken;
use turnstream_schemas::{
    ConversationRecord, Evicted, Fault, HandoverReason, HistoryChange, HistoryEntry, Outcome,
    Passage, RecordedReason, RequestId, ResponseId, Scope, Speaker, TurnId,
};

use super::Rules;
use super::database::Database;
use super::likeness::Signature;
use super::preparation::{EXCHANGES_AT_ONCE, Prepared, ScopeVectors, SummariesConfig, Unprepared};
use crate::flow::{Failed, Finished, TurnContext, TurnInFlight, Utterance};
use crate::ingest::{AgentTurns, ArrivedTurn, OnAgentReply, dead_letter};

mod ending;
mod fragments;
mod hands;
mod waiting;

use ending::{recorded, response, unanswered};
pub use fragments::{Fragmenting, Pause};
pub use waiting::WaitingInput;
use waiting::Whereabouts;

/// Evictions that the outcome of a demand to forget lists at most; the changes contain all of them. The
/// bound makes the outcome fit into a record of the log, however long the history was.
pub const TOLD_EVICTIONS: usize = 256;

/// A step that `history` takes next.
#[derive(Debug)]
pub enum HistoryStep {
    /// This turn goes down the flow.
    Ask(Arc<TurnContext>),
    /// This turn goes to preparation before recall.
    Prepare(Box<Unprepared>),
    /// This turn waits for further fragments of its utterance.
    Pause(Pause),
    /// These inputs ended.
    Finish(Finished),
}

/// The inputs of one scope and its history.
#[derive(Debug)]
pub struct Sequence {
    scope: Scope,
    partition: i32,
    generation: u32,
    database: Database,
    /// The turn that is being answered; of a turn in fragments the last one, with the words of all.
    asked: Option<Box<ArrivedTurn>>,
    /// The fragments of the utterance that is being answered, or waits for more; empty where every turn is an
    /// utterance.
    #[expect(clippy::vec_box, reason = "they come and leave in their boxes")]
    fragments: Vec<Box<ArrivedTurn>>,
    /// The signature of that turn's query, once entries were recalled for it.
    query: Option<Signature>,
    /// Changes from the turn's preparation, to be published with its outcome.
    changed: Vec<HistoryChange>,
    /// Changes of hands, to be published with the outcome of their input.
    handed: Vec<ConversationRecord>,
    /// The inputs behind that turn, in log order.
    waiting: VecDeque<WaitingInput>,
    retired: bool,
}

impl Sequence {
    /// Starts a scope without history.
    pub fn new(scope: Scope, partition: i32, generation: u32) -> Self {
        let database = Database::default();
        let (asked, waiting, retired) = (None, VecDeque::new(), false);
        let (query, changed, handed) = (None, Vec::new(), Vec::new());
        let fragments = Vec::new();
        Self {
            scope,
            partition,
            generation,
            database,
            asked,
            fragments,
            query,
            changed,
            handed,
            waiting,
            retired,
        }
    }

    /// Returns the scope.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns the history, to restore it.
    pub fn database_mut(&mut self) -> &mut Database {
        &mut self.database
    }

    /// Returns the history.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Whether no turn is being answered or waits, so that the state may move to the cache.
    pub fn is_idle(&self) -> bool {
        self.asked.is_none() && self.fragments.is_empty() && self.waiting.is_empty()
    }

    /// Whether the last turn of the scope ended, so that the state may be dropped.
    pub fn is_retired(&self) -> bool {
        self.retired && self.is_idle()
    }

    /// Notes that no more turns will come, and returns whether the state may be dropped at once.
    pub fn retire(&mut self) -> bool {
        self.retired = true;
        self.is_retired()
    }

    /// Returns the turn whose answer is awaited.
    pub fn asked(&self) -> Option<RequestId> {
        self.asked.as_ref().map(|turn| turn.request)
    }

    /// Handles an input.
    pub fn arrive(&mut self, input: WaitingInput, rules: &Rules) -> Vec<HistoryStep> {
        let mut steps = Vec::new();
        match input {
            agent if self.supersedes(&agent, rules) => {
                let finished = self.supersede(&agent, rules);
                steps.extend(broken_apart(finished).map(HistoryStep::Finish));
            }
            input => {
                self.reopen(&input, rules);
                self.waiting.push_back(input);
                self.advance(rules, &mut steps);
            }
        }
        steps
    }

    /// Handles the answer to the turn that was asked. Returns `None` if the answer is for another
    /// request, and so is late.
    pub fn answered(
        &mut self,
        request: RequestId,
        answer: Result<Box<TurnInFlight>, Box<Failed>>,
        rules: &Rules,
    ) -> Option<Vec<HistoryStep>> {
        let turn = self.asked.take_if(|asked| {
            let late = Broken::LateAnswers.here() && asked.request.offset == request.offset;
            asked.request == request || late
        })?;
        let failed = answer.as_ref().err().map(|failed| &failed.fault);
        let (mut outcomes, turn) = self.end_fragments(turn, failed, rules);
        let (outcome, changes) = match answer {
            Ok(drafted) => self.respond(&turn, *drafted, rules),
            Err(failed) => self.fail(&turn, failed.fault, rules),
        };
        let mut finished = self.finish(&WaitingInput::Turn(turn), outcome, changes, rules);
        outcomes.append(&mut finished.outcomes);
        let mut steps = vec![HistoryStep::Finish(Finished { outcomes, ..finished })];
        self.advance(rules, &mut steps);
        Some(steps)
    }

    /// Serves waiting inputs until a turn must be asked.
    fn advance(&mut self, rules: &Rules, steps: &mut Vec<HistoryStep>) {
        while self.asked.is_none()
            && let Some(input) = self.waiting.front()
        {
            if !self.fragments.is_empty() && !self.is_fragment(input, rules) {
                self.utter(rules, steps);
                break;
            }
            let Some(input) = self.waiting.pop_front() else { break };
            match self.take_note(&input, rules) {
                Ok((outcome, changes)) => {
                    steps.push(HistoryStep::Finish(self.finish(&input, outcome, changes, rules)));
                }
                Err(_) => {
                    if let WaitingInput::Turn(turn) = input {
                        self.begin(turn, rules, steps);
                    }
                }
            }
        }
    }

    /// Ends an input that does not go down the flow; otherwise returns the user's turn that must.
    fn take_note<'i>(
        &mut self,
        input: &'i WaitingInput,
        rules: &Rules,
    ) -> Result<(Outcome, Vec<HistoryChange>), &'i ArrivedTurn> {
        if input.repeats(&self.database) {
            let reason = RecordedReason::DuplicateOf(input.turn_id().clone());
            return Ok((input.recorded(reason, Vec::new()), Vec::new()));
        }
        let turn = match input {
            WaitingInput::Turn(turn) => turn,
            WaitingInput::Directive(of) => return Ok(self.direct(of.directive.kind, input, rules)),
        };
        match (turn.turn.speaker, echo_of(turn, rules)) {
            (Speaker::User, _) => self.hold(turn, rules).ok_or(turn),
            (Speaker::System, Some(response)) => {
                self.database.see_time(turn.event_time);
                self.database.remember(&turn.turn_id);
                Ok((recorded(turn, RecordedReason::Echo(response), Vec::new()), Vec::new()))
            }
            (Speaker::System, None) => Ok(self.record_agent(turn, rules)),
        }
    }

    /// Records an agent's turn: it completes the latest entry that lacks a response, or makes a new one.
    fn record_agent(&mut self, turn: &ArrivedTurn, rules: &Rules) -> (Outcome, Vec<HistoryChange>) {
        self.database.see_time(turn.event_time);
        self.database.remember(&turn.turn_id);
        let (mut changes, mut evicted) = (Vec::new(), Vec::new());
        if rules.source.keeps_logged() {
            let words = &turn.turn.text;
            match self.database.complete(&self.scope, words, &turn.turn_id, &rules.remembering()) {
                Some(change) => changes.push(change),
                None => {
                    let entry = HistoryEntry {
                        response: Some(words.clone()),
                        response_turn_id: Some(turn.turn_id.clone()),
                        ..unanswered(turn, None)
                    };
                    (changes, evicted) = self.insert(entry, words, rules);
                }
            }
        }
        if rules.agent_turns == AgentTurns::TakeOver {
            self.change_hands(HandoverReason::AgentTurn, Whereabouts::of(turn), None);
        }
        (recorded(turn, RecordedReason::System, evicted), changes)
    }

    /// Whether an input of an agent supersedes the turns that are still in flight. An echo does not, nor does
    /// a repeat of an input that ended or is in flight.
    fn supersedes(&self, input: &WaitingInput, rules: &Rules) -> bool {
        let of_agent = match input {
            WaitingInput::Turn(turn) => {
                turn.turn.speaker == Speaker::System && echo_of(turn, rules).is_none()
            }
            WaitingInput::Directive(_) => input.is_takeover(),
        };
        of_agent
            && rules.on_agent_reply == OnAgentReply::Supersede
            && (self.asked.is_some() || !self.fragments.is_empty())
            && !input.repeats(&self.database)
            && !self.in_flight().any(|turn_id| turn_id == input.turn_id())
    }

    /// Returns the ids of the inputs that have not ended.
    fn in_flight(&self) -> impl Iterator<Item = &TurnId> {
        let asked = self.asked.iter().chain(&self.fragments).map(|turn| &turn.turn_id);
        asked.chain(self.waiting.iter().map(WaitingInput::turn_id))
    }

    /// Ends every earlier input of the scope and then the agent's own, as one group: they are committed in
    /// one transaction, in log order. The answer that is still in flight will come late.
    fn supersede(&mut self, agent: &WaitingInput, rules: &Rules) -> Finished {
        let (mut outcomes, mut changes) = (Vec::new(), Vec::new());
        let unended = self.unended();
        for input in unended.chain(std::mem::take(&mut self.waiting)) {
            let (outcome, changed) = self
                .take_note(&input, rules)
                .unwrap_or_else(|turn| self.superseded(turn, agent.turn_id(), rules));
            self.database.applied(&self.scope, input.request().offset);
            outcomes.push((outcome, Arc::clone(input.original())));
            changes.extend(changed);
        }
        let noted = self.take_note(agent, rules);
        let (outcome, changed) = noted.unwrap_or_else(|_| unreachable!("no user's turn"));
        changes.extend(changed);
        let mut finished = self.finish(agent, outcome, changes, rules);
        outcomes.append(&mut finished.outcomes);
        Finished { outcomes, ..finished }
    }

    fn superseded(
        &mut self,
        turn: &ArrivedTurn,
        agent: &TurnId,
        rules: &Rules,
    ) -> (Outcome, Vec<HistoryChange>) {
        self.database.see_time(turn.event_time);
        self.database.remember(&turn.turn_id);
        let entry = unanswered(turn, Some(&turn.turn.text));
        let (changes, evicted) = self.insert(entry, &turn.turn.text, rules);
        let reason = RecordedReason::SupersededBy(agent.clone());
        (recorded(turn, reason, evicted), changes)
    }

    /// Recalls entries for a turn, or sends it to preparation first.
    fn ask(&mut self, turn: &ArrivedTurn, rules: &Rules) -> HistoryStep {
        self.database.see_time(turn.event_time);
        let group =
            rules.summaries().and_then(|SummariesConfig { min_entries, max_shown, .. }| {
                self.database.to_be_summarised(*min_entries as usize, *max_shown as usize)
            });
        let awaited = rules.similarity.is_awaited();
        if awaited || group.is_some() {
            let most = if awaited { EXCHANGES_AT_ONCE } else { 0 };
            let exchanges = self.database.without_vectors(&rules.similarity, most);
            let context = self.context(turn, rules);
            return HistoryStep::Prepare(Box::new(Unprepared::new(context, exchanges, group)));
        }
        let query = rules.similarity.of_query(&turn.turn.text);
        let recalled = self.database.recall(&query, &rules.remembering());
        self.query = Some(query);
        HistoryStep::Ask(Arc::new(TurnContext { recalled, ..self.context(turn, rules) }))
    }

    /// Handles the prepared turn with its vectors. Returns `None` if it is not the turn asked, and
    /// so is late.
    pub fn prepared(&mut self, prepared: Prepared, rules: &Rules) -> Option<Vec<HistoryStep>> {
        let turn = self.asked.take_if(|asked| asked.request == prepared.request())?;
        let (ScopeVectors { query, exchanges, failed }, summary) = prepared.into_parts();
        if let Some((group, summary)) = summary {
            self.database.set_summary(group, summary);
        }
        for (at, vector) in exchanges {
            let change = self.database.set_vector(&self.scope, at, &vector, &rules.remembering());
            self.changed.extend(change);
        }
        let text = &*turn.turn.text;
        let query = match rules.similarity.is_awaited() {
            true => Signature::of([text]).with(query),
            false => rules.similarity.of_query(text),
        };
        let recalled = self.database.recall(&query, &rules.remembering());
        let context = self.context(&turn, rules);
        let context = TurnContext { recalled, recall_fault: failed, ..context };
        (self.query, self.asked) = (Some(query), Some(turn));
        Some(vec![HistoryStep::Ask(Arc::new(context))])
    }

    /// Returns the turn with the dialogue before it, of strictly earlier inputs only, without
    /// recalled entries.
    fn context(&self, turn: &ArrivedTurn, rules: &Rules) -> TurnContext {
        let mut dialogue = self.database.latest_utterances(&rules.config);
        dialogue.push(Utterance {
            turn_id: turn.turn_id.clone(),
            speaker: Speaker::User,
            text: turn.turn.text.as_str().into(),
        });
        let context = TurnContext {
            request: turn.request,
            input: turn.input.clone(),
            scope: self.scope.clone(),
            turn: turn.turn.clone(),
            turn_id: turn.turn_id.clone(),
            event_time: turn.event_time,
            dialogue,
            reconstructed: self.database.reconstruct(&turn.turn.text, &rules.config),
            chosen: None,
            recalled: Vec::new(),
            recall_fault: None,
        };
        context.with_choice(&rules.response_texts)
    }

    /// Makes the response, and adds the exchange to the history.
    fn respond(
        &mut self,
        turn: &ArrivedTurn,
        drafted: TurnInFlight,
        rules: &Rules,
    ) -> (Outcome, Vec<HistoryChange>) {
        self.database.remember(&turn.turn_id);
        let used = drafted.evidence.iter().filter(|evidence| evidence.selected);
        let passages =
            used.map(|evidence| Passage { id: evidence.id.clone(), text: evidence.text.clone() });
        let mut entry = HistoryEntry {
            passages: passages.collect(),
            ..unanswered(turn, Some(&turn.turn.text))
        };
        if rules.source.keeps_ours() {
            entry.response = Some(drafted.draft.text.clone());
            entry.response_turn_id = Some(TurnId(turn.input.response_id().0));
        }
        take_logged_answer(&mut entry, turn, rules);
        let (changes, evicted) = self.insert(entry, &turn.turn.text, rules);
        if rules.source.keeps_ours() {
            self.hand_off(turn, drafted.decision.as_ref(), rules);
        }
        (Outcome::Response(Box::new(response(turn, drafted, evicted))), changes)
    }

    /// Makes the dead letter of a turn that a stage could not serve. Its query enters the history without a
    /// response, and its id is not remembered, so that it may be sent again.
    fn fail(
        &mut self,
        turn: &ArrivedTurn,
        fault: Fault,
        rules: &Rules,
    ) -> (Outcome, Vec<HistoryChange>) {
        let mut entry = unanswered(turn, Some(&turn.turn.text));
        take_logged_answer(&mut entry, turn, rules);
        let (changes, _) = self.insert(entry, &turn.turn.text, rules);
        (dead_letter(turn.input.clone(), &turn.original, fault), changes)
    }

    fn insert(
        &mut self,
        entry: HistoryEntry,
        query: &str,
        rules: &Rules,
    ) -> (Vec<HistoryChange>, Vec<Evicted>) {
        let query = self.query.take().unwrap_or_else(|| rules.similarity.of_query(query));
        let update = self.database.insert(&self.scope, entry, &query, &rules.remembering());
        (update.changes, update.evicted)
    }

    fn finish(
        &mut self,
        input: &WaitingInput,
        outcome: Outcome,
        further: Vec<HistoryChange>,
        rules: &Rules,
    ) -> Finished {
        let mut changes = std::mem::take(&mut self.changed);
        changes.extend(further);
        self.database.applied(&self.scope, input.request().offset);
        self.retired |= input.is_last_of_scope();
        let mut conversations = std::mem::take(&mut self.handed);
        if rules.publish_changes {
            changes.push(self.database.record(&self.scope));
        } else {
            changes.clear();
            conversations.clear();
        }
        let outcomes = vec![(outcome, Arc::clone(input.original()))];
        let (partition, generation) = (self.partition, self.generation);
        Finished { partition, generation, outcomes, changes, conversations }
    }
}

/// Completes an entry with the answer that the log has, if logged answers enter the history.
fn take_logged_answer(entry: &mut HistoryEntry, turn: &ArrivedTurn, rules: &Rules) {
    let logged = turn.answered.as_ref().filter(|_| rules.source.keeps_logged());
    if let Some((turn_id, words)) = logged {
        entry.response = Some(words.clone());
        entry.response_turn_id = Some(turn_id.clone());
    }
}

/// Leaves inputs that end together unchanged, except under [`Broken::SupersededAfterAgent`].
fn broken_apart(mut finished: Finished) -> impl Iterator<Item = Finished> {
    let mut first = None;
    if Broken::SupersededAfterAgent.here() {
        let agent = finished.outcomes.pop().into_iter().collect();
        let (changes, conversations) = Default::default();
        first = Some(Finished { outcomes: agent, changes, conversations, ..finished.clone() });
    }
    first.into_iter().chain([finished])
}

/// Returns the response of the engine that a system turn echoes: its id names an earlier input of
/// the same topic and partition. In a replay no turn is an echo.
fn echo_of(turn: &ArrivedTurn, rules: &Rules) -> Option<ResponseId> {
    let named = turn.turn.response_id.as_ref()?;
    let (rest, offset) = named.as_str().rsplit_once('-')?;
    let (topic, partition) = rest.rsplit_once('-')?;
    let ours = topic == turn.input.topic
        && partition.parse() == Ok(turn.input.partition)
        && offset.parse::<i64>().is_ok_and(|offset| offset < turn.input.offset);
    (ours && rules.source.is_live()).then(|| named.clone())
}
