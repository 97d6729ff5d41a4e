//! Tests of the order of a scope, the outcomes of inputs and the entries kept, without timely.

use std::sync::atomic::{AtomicI64, Ordering};

use turnstream_knowledge::KnowledgeVersion;
use turnstream_ports::cache::{CacheChange, Cached, MemoryCache};
use turnstream_schemas::{
    Directive, DirectiveKind, EventTime, FaultKind, HistoryChange, InputId, Outcome, RecalledVia,
    RecordedReason, RememberedTurns, RequestId, Response, Scope, ScopeKind, Speaker, Turn, TurnId,
};

use super::preparation::Unprepared;
use super::*;
use crate::flow::{ActionDecision, Draft, Original, TurnInFlight};
use crate::ingest::{ArrivedDirective, ArrivedTurn};

mod forgetting;
mod fragments;
mod hands;
mod keeping;

pub(super) fn rules() -> Rules {
    Rules {
        similarity: Similarity::by_words(),
        response_texts: Arc::default(),
        observer: Observer::none(),
        config: HistoryConfig::default(),
        on_agent_reply: OnAgentReply::Supersede,
        agent_turns: AgentTurns::Beside,
        handover: HandoverConfig::default(),
        fragmenting: Fragmenting::default(),
        source: ResponseSource::Live,
        publish_changes: true,
    }
}

/// One worker's scopes, with short methods to send inputs and answers.
pub(super) struct Talk {
    pub(super) scopes: Scopes,
    cache: Arc<MemoryCache>,
    next_offset: AtomicI64,
    pub(super) unprepared: Vec<Unprepared>,
    pauses: Vec<Pause>,
    pub(super) asked: Vec<Arc<TurnContext>>,
    pub(super) ended: Vec<Finished>,
}

impl Talk {
    pub(super) fn new(rules: Rules) -> Self {
        let cache = Arc::new(MemoryCache::default());
        let keeping = Keeping {
            cache: cache.clone(),
            timers: Timers::default(),
            awaited: Awaited::default(),
            preparing: None,
        };
        let scopes = Scopes::new(rules, keeping, 1);
        let (unprepared, pauses, asked, ended) = Default::default();
        Self { scopes, cache, next_offset: AtomicI64::new(1), unprepared, pauses, asked, ended }
    }

    /// Assigns partition 0 under this generation, with an empty cache.
    pub(super) fn assign(&mut self, generation: u32) {
        self.cache.begin(0, generation).unwrap();
        self.scopes.arrived(Arrived::Assigned { worker: 0, partition: 0, generation });
    }

    fn take(&mut self, steps: Vec<HistoryStep>) {
        for step in steps {
            match step {
                HistoryStep::Ask(context) => self.asked.push(context),
                HistoryStep::Finish(finished) => self.ended.push(finished),
                HistoryStep::Prepare(turn) => self.unprepared.push(*turn),
                HistoryStep::Pause(pause) => self.pauses.push(pause),
            }
        }
    }

    fn say(&mut self, speaker: Speaker, text: &str, change: impl FnOnce(&mut ArrivedTurn)) {
        let offset = self.next_offset.fetch_add(1, Ordering::Relaxed);
        let input = InputId { topic: "turns".to_owned(), partition: 0, offset };
        let turn = Turn::new("c", speaker, text);
        let mut arrived = ArrivedTurn {
            request: RequestId { partition: 0, generation: 1, offset },
            scope: Scope::new(None, "c"),
            turn_id: input.turn_id(),
            input,
            turn,
            event_time: EventTime(offset * 1_000),
            original: Arc::new(Original::default()),
            last_of_scope: false,
            followed: false,
            answered: None,
        };
        change(&mut arrived);
        let steps = self.scopes.arrived(Arrived::Turn(Box::new(arrived)));
        self.take(steps);
    }

    fn direct(&mut self, kind: DirectiveKind, change: impl FnOnce(&mut ArrivedDirective)) {
        let offset = self.next_offset.fetch_add(1, Ordering::Relaxed);
        let input = InputId { topic: "turns".to_owned(), partition: 0, offset };
        let mut arrived = ArrivedDirective {
            request: RequestId { partition: 0, generation: 1, offset },
            scope: Scope::new(None, "c"),
            directive: Directive::new(kind, ScopeKind::Conversation, None, "c"),
            turn_id: input.turn_id(),
            event_time: EventTime(offset * 1_000),
            input,
            original: Arc::new(Original::default()),
            last_of_scope: false,
        };
        change(&mut arrived);
        let steps = self.scopes.arrived(Arrived::Directive(Box::new(arrived)));
        self.take(steps);
    }

    pub(super) fn user(&mut self, text: &str) {
        self.say(Speaker::User, text, |_| {});
    }

    pub(super) fn agent(&mut self, text: &str) {
        self.say(Speaker::System, text, |_| {});
    }

    /// Answers the turn that was asked `place`-th; `false` where the answer was late.
    pub(super) fn answer(&mut self, place: usize, text: &str) -> bool {
        self.answer_by(place, text, None)
    }

    /// Answers likewise, with this decision.
    fn answer_by(&mut self, place: usize, text: &str, decision: Option<ActionDecision>) -> bool {
        let context = Arc::clone(&self.asked[place]);
        let draft = Draft { text: text.to_owned(), ..Draft::default() };
        let turn = TurnInFlight::undecided(context, KnowledgeVersion::default());
        self.give(Ok(Box::new(TurnInFlight { draft, decision, ..turn })))
    }

    fn fail(&mut self, place: usize) -> bool {
        let context = Arc::clone(&self.asked[place]);
        let fault =
            turnstream_schemas::Fault::new(Stage::Generation, FaultKind::Error, "no such luck");
        self.give(Err(Box::new(Failed { context, fault })))
    }

    fn give(&mut self, answer: TurnEnd) -> bool {
        let steps = self.scopes.answered(answer);
        let in_time = steps.is_some();
        self.take(steps.unwrap_or_default());
        in_time
    }

    /// Puts earlier changes into the cache of partition 0.
    pub(super) fn put<'c>(&self, changes: impl Iterator<Item = &'c HistoryChange>) {
        self.cache.put(0, 1, changes.map(on_the_changelog).collect()).unwrap();
    }

    /// Sends a user's turn at this offset, as if other inputs lay before it.
    pub(super) fn say_at(&mut self, offset: i64, text: &str) {
        self.next_offset.store(offset, Ordering::Relaxed);
        self.user(text);
    }

    pub(super) fn give_prepared(&mut self, prepared: Prepared) -> bool {
        let steps = self.scopes.prepared(prepared);
        let in_time = steps.is_some();
        self.take(steps.unwrap_or_default());
        in_time
    }

    /// Every outcome so far in short form, groups in brackets.
    pub(super) fn outcomes(&self) -> String {
        let of = |outcome: &Outcome| {
            let at = outcome.input().offset;
            match outcome {
                Outcome::Response(response) => format!("{at}:{}", response.text),
                Outcome::Recorded(recorded) => format!("{at}:{}", recorded.reason.name()),
                Outcome::DeadLetter(letter) => format!("{at}:dead at {}", letter.fault.stage),
            }
        };
        let group = |finished: &Finished| {
            let outcomes: Vec<_> =
                finished.outcomes.iter().map(|(outcome, _)| of(outcome)).collect();
            format!("[{}]", outcomes.join(" "))
        };
        self.ended.iter().map(group).collect::<Vec<_>>().join(" ")
    }

    /// The history in short form: `query/response`, `-` for a missing one.
    fn history(&self) -> String {
        let Some(sequence) = self.scopes.sequences().next() else { return "none".to_owned() };
        let entry = |entry: &turnstream_schemas::HistoryEntry| {
            let or = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
            format!("{}/{}", or(&entry.query), or(&entry.response))
        };
        sequence.database().entries().map(entry).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn last_response(&self) -> &Response {
        let outcomes = self.ended.iter().flat_map(|finished| &finished.outcomes);
        let mut responses = outcomes.filter_map(|(outcome, _)| match outcome {
            Outcome::Response(response) => Some(&**response),
            _ => None,
        });
        responses.next_back().expect("a response")
    }
}

/// A change as a record of the changelog.
fn on_the_changelog(change: &HistoryChange) -> CacheChange {
    let value = match change {
        HistoryChange::Entry { entry, .. } => Some(serde_json::to_vec(entry).unwrap()),
        HistoryChange::Scope { record, .. } => Some(serde_json::to_vec(record).unwrap()),
        HistoryChange::Gone { .. } => None,
    };
    CacheChange { key: change.key().clone(), value }
}

#[test]
fn a_turn_waits_until_the_one_before_it_ended() {
    let mut talk = Talk::new(rules());
    talk.user("one");
    talk.user("two");
    assert_eq!(talk.asked.len(), 1, "two waits");
    assert!(talk.answer(0, "first"));
    assert_eq!(talk.asked.len(), 2);
    let heard: Vec<_> = talk.asked[1].dialogue.iter().map(|said| &*said.text).collect();
    assert_eq!(heard, ["one", "first", "two"]);
    assert!(talk.answer(1, "second"));
    assert_eq!(talk.outcomes(), "[1:first] [2:second]");
    assert_eq!(talk.history(), "one/first two/second");
    assert!(!talk.answer(1, "again"), "an answer counts once");
}

#[test]
fn a_repeat_is_a_duplicate_and_a_dead_letter_may_be_sent_again() {
    let mut talk = Talk::new(rules());
    let named = |turn: &mut ArrivedTurn| turn.turn_id = TurnId::from("t");
    talk.say(Speaker::User, "one", named);
    talk.say(Speaker::User, "one", named);
    talk.fail(0);
    assert_eq!(talk.asked.len(), 2, "the first became a dead letter, so the second is asked");
    talk.answer(1, "yes");
    talk.say(Speaker::User, "one", named);
    assert_eq!(talk.outcomes(), "[1:dead at generation] [2:yes] [3:duplicate_of]");
    assert_eq!(talk.history(), "one/- one/yes", "a duplicate does not change history");
}

#[test]
fn remembered_turn_ids_survive_eviction_and_are_bounded() {
    let mut rules = rules();
    rules.config.max_entries = 1;
    let mut talk = Talk::new(rules);
    for number in 0..=RememberedTurns::MOST {
        talk.say(Speaker::User, "hm", |turn| turn.turn_id = TurnId(format!("t{number}")));
        talk.answer(number, "ok");
    }
    let before = talk.asked.len();
    talk.say(Speaker::User, "hm", |turn| turn.turn_id = TurnId::from("t1"));
    assert_eq!(talk.asked.len(), before, "t1 is among the last 256");
    talk.say(Speaker::User, "hm", |turn| turn.turn_id = TurnId::from("t0"));
    assert_eq!(talk.asked.len(), before + 1, "t0 is not any more");
}

#[test]
fn turns_of_an_older_record_stay_remembered() {
    let mut database = Database::default();
    let older = r#"{"schema_version":1,"last_applied_offset":2,"latest_event_time":0,
        "recent_turn_ids":["a","b"],"turns":2,"evictions":0}"#;
    let older = Cached { entry: None, value: older.as_bytes().to_vec() };
    database.restore(&older, &Similarity::by_words()).expect("a record");
    database.remember(&"c".into());
    let said = ["a", "b", "c"].map(TurnId::from);
    assert!(said.iter().all(|turn_id| database.remembers(turn_id)));
    let change = database.record(&Scope::new(None, "c"));
    let HistoryChange::Scope { record, .. } = change else { panic!("{change:?}") };
    assert_eq!(record.remembered_turns, said.iter().collect());
    assert_eq!(record.recent_turn_ids, []);
}

/// An imported history remembers names that belong to other turns here.
#[test]
fn a_turn_without_an_id_repeats_none() {
    let mut talk = Talk::new(rules());
    talk.say(Speaker::User, "of another log", |turn| turn.turn_id = TurnId::from("0-2"));
    talk.answer(0, "one");
    talk.user("without an id");
    talk.answer(1, "two");
    talk.say(Speaker::User, "sent again", |turn| turn.turn_id = TurnId::from("0-2"));
    assert_eq!(talk.outcomes(), "[1:one] [2:two] [3:duplicate_of]");
}

#[test]
fn an_agent_supersedes_what_was_not_answered_in_one_group() {
    let mut talk = Talk::new(rules());
    talk.user("one");
    talk.user("two");
    talk.agent("let me see");
    assert_eq!(talk.outcomes(), "[1:superseded_by 2:superseded_by 3:system]");
    assert_eq!(talk.history(), "one/- two/let me see");
    assert!(!talk.answer(0, "too late"), "the answer is late and is dropped");
    talk.user("three");
    talk.answer(1, "now");
    assert_eq!(talk.history(), "one/- two/let me see three/now");
    let (outcome, _) = &talk.ended[0].outcomes[0];
    let Outcome::Recorded(recorded) = outcome else { panic!("{outcome:?}") };
    assert_eq!(recorded.reason, RecordedReason::SupersededBy(TurnId::from("0-3")));
}

#[test]
fn an_agent_may_be_made_to_wait() {
    let mut talk = Talk::new(Rules { on_agent_reply: OnAgentReply::Answer, ..rules() });
    talk.user("one");
    talk.agent("let me see");
    assert_eq!(talk.outcomes(), "");
    talk.answer(0, "ours");
    assert_eq!(talk.outcomes(), "[1:ours] [2:system]");
    assert_eq!(talk.history(), "one/ours -/let me see");
}

#[test]
fn a_repeated_agent_turn_supersedes_nothing() {
    let mut talk = Talk::new(rules());
    let named = |turn: &mut ArrivedTurn| turn.turn_id = TurnId::from("a");
    talk.say(Speaker::System, "hello", named);
    talk.user("one");
    talk.say(Speaker::System, "hello", named);
    assert_eq!(talk.outcomes(), "[1:system]", "it waits behind the answer");
    talk.answer(0, "ours");
    assert_eq!(talk.outcomes(), "[1:system] [2:ours] [3:duplicate_of]");
}

#[test]
fn an_echo_waits_its_turn_and_enters_once() {
    let mut talk = Talk::new(rules());
    talk.user("one");
    talk.answer(0, "ours");
    talk.user("two");
    let echo =
        |of: &'static str| move |turn: &mut ArrivedTurn| turn.turn.response_id = Some(of.into());
    talk.say(Speaker::System, "ours", echo("turns-0-1"));
    assert_eq!(talk.outcomes(), "[1:ours]", "an echo supersedes nothing");
    talk.answer(1, "more");
    assert_eq!(talk.outcomes(), "[1:ours] [2:more] [3:echo]");
    assert_eq!(talk.history(), "one/ours two/more");
    for foreign in ["elsewhere-0-1", "turns-1-1", "turns-0-99", "nonsense"] {
        talk.say(Speaker::System, "theirs", echo(foreign));
    }
    assert!(talk.outcomes().ends_with("[4:system] [5:system] [6:system] [7:system]"));
}

#[test]
fn replays_keep_one_side_only() {
    let recorded =
        Rules { source: ResponseSource::Recorded, on_agent_reply: OnAgentReply::Answer, ..rules() };
    let mut talk = Talk::new(recorded.clone());
    talk.user("one");
    talk.agent("logged");
    talk.answer(0, "ours");
    assert_eq!(talk.outcomes(), "[1:ours] [2:system]");
    assert_eq!(talk.history(), "one/logged");

    let mut talk = Talk::new(Rules { source: ResponseSource::Generated, ..recorded });
    talk.user("one");
    talk.agent("logged");
    talk.answer(0, "ours");
    assert_eq!(talk.history(), "one/ours");
}

#[test]
fn a_response_names_what_it_recalled_and_what_it_pushed_out() {
    let mut rules = rules();
    rules.config = HistoryConfig {
        max_entries: 3,
        window_utterances: 2,
        alpha: 1.0,
        ..HistoryConfig::default()
    };
    let mut talk = Talk::new(rules);
    for (place, said) in ["my parcel is late", "nice weather", "a small cat"].iter().enumerate() {
        talk.user(said);
        talk.answer(place, "ok");
    }
    talk.user("the parcel again");
    let via: Vec<_> = talk.asked[3]
        .recalled
        .iter()
        .map(|recalled| (&*recalled.entry.turn_id.0, recalled.via))
        .collect();
    assert_eq!(via, [("0-3", RecalledVia::Recent), ("0-1", RecalledVia::Cluster)]);
    talk.answer(3, "ok");
    let response = talk.last_response();
    assert_eq!(response.history.len(), 2);
    let evicted = &response.evicted[0];
    assert_eq!((evicted.turn_id.as_str(), evicted.rank), ("0-2", 4), "equal weights: lower offset");
    assert_eq!(talk.history(), "my parcel is late/ok a small cat/ok the parcel again/ok");
}

#[test]
fn a_changelog_restores_what_was() {
    let mut rules = rules();
    rules.config.max_entries = 2;
    let mut talk = Talk::new(rules.clone());
    talk.user("one");
    talk.answer(0, "first");
    talk.user("two");
    talk.fail(1);
    talk.agent("aside");
    talk.user("three");
    talk.answer(2, "third");

    let mut restored = Talk::new(rules);
    restored.assign(1);
    let changes = talk.ended.iter().flat_map(|finished| &finished.changes);
    restored.cache.put(0, 1, changes.map(on_the_changelog).collect()).unwrap();
    restored.next_offset = AtomicI64::new(50);
    restored.say(Speaker::User, "one", |turn| turn.turn_id = TurnId::from("0-1"));
    assert_eq!(restored.outcomes(), "[50:duplicate_of]");
    assert_eq!(restored.history(), talk.history());
}

#[test]
fn a_revoked_partition_leaves_nothing_and_its_answers_are_late() {
    let mut talk = Talk::new(rules());
    talk.assign(1);
    talk.user("one");
    talk.scopes.arrived(Arrived::Revoked { worker: 0, partition: 0 });
    talk.assign(2);
    assert!(!talk.answer(0, "of generation 1"));
    talk.user("read under generation 1");
    assert_eq!((talk.asked.len(), talk.outcomes().as_str()), (1, ""));
    talk.say(Speaker::User, "one", |turn| turn.request.generation = 2);
    assert_eq!(talk.asked.len(), 2);
    assert!(!talk.answer(0, "of generation 1"), "same scope, another request");
    assert!(talk.answer(1, "of generation 2"));
}

#[test]
fn a_retired_scope_leaves_nothing() {
    let mut talk = Talk::new(rules());
    talk.say(Speaker::User, "bye", |turn| turn.last_of_scope = true);
    assert_eq!(talk.scopes.in_memory(), 1);
    talk.answer(0, "bye");
    assert!(talk.scopes.in_memory() == 0);
    talk.say(Speaker::System, "bye", |turn| turn.last_of_scope = true);
    assert!(talk.scopes.in_memory() == 0);

    talk.user("the next turn is refused");
    talk.scopes.arrived(Arrived::Ended { partition: 0, scope: Scope::new(None, "c") });
    assert_eq!(talk.scopes.in_memory(), 1, "an answer is still being made");
    talk.answer(1, "bye");
    assert!(talk.scopes.in_memory() == 0);
}

#[test]
fn an_entry_beyond_the_age_leaves_with_the_next_turn() {
    let mut rules = rules();
    rules.config.max_age_seconds = 2;
    let mut talk = Talk::new(rules);
    // One second passes between two turns.
    for place in 0..4 {
        talk.user("rain on the lake");
        talk.answer(place, "ok");
    }
    let evicted = &talk.last_response().evicted;
    let evicted: Vec<_> = evicted.iter().map(|it| (it.turn_id.as_str(), it.reason)).collect();
    assert_eq!(evicted, [("0-1", turnstream_schemas::EvictionReason::Age)]);
    assert_eq!(talk.history().matches("/ok").count(), 3);
}
