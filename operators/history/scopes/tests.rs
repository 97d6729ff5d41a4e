//! Scopes that leave memory and come back behave exactly like those that stay.

use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use turnstream_knowledge::KnowledgeVersion;
use turnstream_ports::cache::{CacheChange, Cached, MemoryCache, ScopeCache};
use turnstream_schemas::{
    Directive, DirectiveKind, EntryKey, EventTime, Fault, FaultKind, HistoryChange, InputId,
    RequestId, ResponseId, ScopeKind, Speaker, Stage, Turn, TurnId,
};

use super::super::similarity::Similarity;
use super::super::tests::rules;
use super::super::{AgentTurns, HistoryConfig};
use super::*;
use crate::awaited::Awaited;
use crate::flow::{Draft, Failed, Original, TurnContext, TurnInFlight};
use crate::ingest::{ArrivedDirective, ArrivedTurn};
use crate::testing::Counting;
use crate::timers::Timers;

/// A cache that can be made to fail.
#[derive(Default)]
struct Fallible {
    cache: MemoryCache,
    fails: AtomicBool,
}

impl Fallible {
    fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }

    fn check(&self) -> Result<(), CacheError> {
        if !self.fails.load(Ordering::Relaxed) {
            return Ok(());
        }
        let source = "no room left".into();
        Err(CacheError { place: "/the/folder".to_owned(), source, remedy: "make room" })
    }
}

impl ScopeCache for Fallible {
    fn begin(&self, partition: i32, generation: u32) -> Result<(), CacheError> {
        self.cache.begin(partition, generation)
    }

    fn put(&self, partition: i32, number: u32, all: Vec<CacheChange>) -> Result<(), CacheError> {
        self.check().and_then(|()| self.cache.put(partition, number, all))
    }

    fn load(&self, of: i32, number: u32, at: &Scope) -> Result<Option<Vec<Cached>>, CacheError> {
        self.check().and_then(|()| self.cache.load(of, number, at))
    }

    fn forget(&self, partition: i32, number: u32, scope: &Scope) -> Result<(), CacheError> {
        self.cache.forget(partition, number, scope)
    }

    fn end(&self, partition: i32) {
        self.cache.end(partition);
    }
}

/// The scopes of a worker on partition 0, with a client, a generator and a committer.
struct Worker {
    scopes: Scopes,
    cache: Arc<Fallible>,
    timers: Timers,
    generation: u32,
    next_offset: i64,
    asked: Vec<Arc<TurnContext>>,
    /// Everything that ended, as JSON.
    outcomes: Vec<String>,
    changes: Vec<HistoryChange>,
}

fn config(idle_after_seconds: u64, max_scopes_in_memory: usize) -> HistoryConfig {
    HistoryConfig {
        max_entries: 3,
        idle_after_seconds,
        max_scopes_in_memory,
        ..HistoryConfig::default()
    }
}

impl Worker {
    fn new(config: HistoryConfig) -> Self {
        let rules = Rules {
            similarity: Similarity::by_meaning(Arc::new(Counting)),
            config,
            agent_turns: AgentTurns::TakeOver,
            ..rules()
        };
        let (cache, timers) = (Arc::<Fallible>::default(), Timers::default());
        let keeping = Keeping {
            cache: Arc::clone(&cache) as Arc<_>,
            timers: timers.clone(),
            awaited: Awaited::default(),
            preparing: None,
        };
        let mut worker = Self {
            scopes: Scopes::new(rules, keeping, 1),
            cache,
            timers,
            generation: 0,
            next_offset: 0,
            asked: Vec::new(),
            outcomes: Vec::new(),
            changes: Vec::new(),
        };
        worker.assign();
        worker
    }

    /// Assigns partition 0 again, restored from everything that was committed.
    fn assign(&mut self) {
        self.generation += 1;
        let (partition, generation) = (0, self.generation);
        self.cache.begin(partition, generation).unwrap();
        let changelog = self.changes.iter().map(on_the_changelog).collect();
        self.cache.put(partition, generation, changelog).unwrap();
        self.scopes.arrived(Arrived::Assigned { worker: 0, partition, generation });
        self.asked.clear();
    }

    fn take(&mut self, steps: Vec<HistoryStep>) {
        for step in steps {
            match step {
                HistoryStep::Ask(context) => self.asked.push(context),
                HistoryStep::Prepare(_) => unreachable!("the encoder answers at once"),
                HistoryStep::Pause(_) => unreachable!("every turn is an utterance"),
                HistoryStep::Finish(finished) => {
                    let outcomes = finished.outcomes.iter().map(|(outcome, _)| outcome);
                    self.outcomes.extend(outcomes.map(|it| serde_json::to_string(it).unwrap()));
                    self.changes.extend(finished.changes);
                }
            }
        }
    }

    fn say(&mut self, scope: u8, speaker: Speaker, change: impl FnOnce(&mut ArrivedTurn)) {
        let offset = self.next_offset;
        self.next_offset += 1;
        let input = InputId { topic: "turns".to_owned(), partition: 0, offset };
        let conversation = format!("c{scope}");
        let text = ["my parcel is at sea", "the cat sleeps", "is the bread at sea"];
        let turn = Turn::new(&conversation, speaker, text[offset as usize % 3]);
        let mut arrived = ArrivedTurn {
            request: RequestId { partition: 0, generation: self.generation, offset },
            scope: Scope::new(None, &conversation),
            turn_id: input.turn_id(),
            input,
            turn,
            event_time: EventTime(offset * 3_600_000),
            original: Arc::new(Original::default()),
            last_of_scope: false,
            followed: false,
            answered: None,
        };
        change(&mut arrived);
        let steps = self.scopes.arrived(Arrived::Turn(Box::new(arrived)));
        self.take(steps);
    }

    fn user(&mut self, scope: u8) {
        self.say(scope, Speaker::User, |_| {});
    }

    fn direct(&mut self, scope: u8, kind: DirectiveKind) {
        let offset = self.next_offset;
        self.next_offset += 1;
        let input = InputId { topic: "turns".to_owned(), partition: 0, offset };
        let conversation = format!("c{scope}");
        let arrived = ArrivedDirective {
            request: RequestId { partition: 0, generation: self.generation, offset },
            scope: Scope::new(None, &conversation),
            directive: Directive::new(kind, ScopeKind::Conversation, None, &conversation),
            turn_id: input.turn_id(),
            event_time: EventTime(offset * 1_000),
            input,
            original: Arc::new(Original::default()),
            last_of_scope: false,
        };
        let steps = self.scopes.arrived(Arrived::Directive(Box::new(arrived)));
        self.take(steps);
    }

    /// Answers the oldest turn that was asked, or returns a fault for it.
    fn answer(&mut self, well: bool) {
        if self.asked.is_empty() {
            return;
        }
        let context = self.asked.remove(0);
        let answer = if well {
            let draft = Draft { text: "it is on its way".to_owned(), ..Draft::default() };
            let turn = TurnInFlight::undecided(context, KnowledgeVersion::default());
            Ok(Box::new(TurnInFlight { draft, ..turn }))
        } else {
            let fault = Fault::new(Stage::Generation, FaultKind::Error, "no such luck");
            Err(Box::new(Failed { context, fault }))
        };
        let steps = self.scopes.answered(answer);
        self.take(steps.unwrap_or_default());
    }

    /// Sends a user's turn and answers it.
    fn exchange(&mut self, scope: u8) {
        self.user(scope);
        self.answer(true);
    }

    fn pass(&mut self, milliseconds: u64) -> Next {
        self.timers.advance(self.timers.now_ms() + milliseconds);
        self.scopes.evict_idle()
    }

    /// The changelog after compaction: the last value of each key.
    fn folded(&self) -> BTreeMap<EntryKey, Vec<u8>> {
        let mut folded = BTreeMap::new();
        for CacheChange { key, value } in self.changes.iter().map(on_the_changelog) {
            match value {
                Some(value) => drop(folded.insert(key, value)),
                None => drop(folded.remove(&key)),
            }
        }
        folded
    }

    fn cached(&self, scopes: u8) -> BTreeMap<EntryKey, Vec<u8>> {
        let mut cached = BTreeMap::new();
        for scope in 0..scopes {
            let scope = Scope::new(None, &format!("c{scope}"));
            for Cached { entry, value } in
                self.cache.load(0, self.generation, &scope).unwrap().unwrap()
            {
                cached.insert(EntryKey { scope: scope.clone(), entry }, value);
            }
        }
        cached
    }
}

fn on_the_changelog(change: &HistoryChange) -> CacheChange {
    let value = match change {
        HistoryChange::Entry { entry, .. } => Some(serde_json::to_vec(entry).unwrap()),
        HistoryChange::Scope { record, .. } => Some(serde_json::to_vec(record).unwrap()),
        HistoryChange::Gone { .. } => None,
    };
    CacheChange { key: change.key().clone(), value }
}

/// Something that happens to a worker.
#[derive(Clone, Debug)]
enum Act {
    User(u8),
    Agent(u8),
    Direct(u8, DirectiveKind),
    /// A turn that has the id of an earlier one.
    Repeat(u8, u8),
    /// A system turn that echoes an earlier response.
    Echo(u8, u8),
    Answer(bool),
    Pass(u64),
    Assign,
}

const SCOPES: u8 = 6;

fn act() -> impl Strategy<Value = Act> {
    let scope = 0..SCOPES;
    let kind = prop_oneof![
        Just(DirectiveKind::Forget),
        Just(DirectiveKind::Takeover),
        Just(DirectiveKind::Release),
    ];
    prop_oneof![
        6 => scope.clone().prop_map(Act::User),
        2 => scope.clone().prop_map(Act::Agent),
        3 => (scope.clone(), kind).prop_map(|(scope, kind)| Act::Direct(scope, kind)),
        1 => (scope.clone(), any::<u8>()).prop_map(|(scope, of)| Act::Repeat(scope, of)),
        1 => (scope, any::<u8>()).prop_map(|(scope, of)| Act::Echo(scope, of)),
        6 => prop::bool::weighted(0.8).prop_map(Act::Answer),
        2 => (0..5_000_u64).prop_map(Act::Pass),
        1 => Just(Act::Assign),
    ]
}

fn perform(worker: &mut Worker, act: &Act) {
    let earlier = |of: u8| i64::from(of) % worker.next_offset.max(1);
    match *act {
        Act::User(scope) => worker.user(scope),
        Act::Agent(scope) => worker.say(scope, Speaker::System, |_| {}),
        Act::Direct(scope, kind) => worker.direct(scope, kind),
        Act::Repeat(scope, of) => {
            let id = TurnId(format!("0-{}", earlier(of)));
            worker.say(scope, Speaker::User, |turn| turn.turn_id = id);
        }
        Act::Echo(scope, of) => {
            let id = ResponseId(format!("turns-0-{}", earlier(of)));
            worker.say(scope, Speaker::System, |turn| turn.turn.response_id = Some(id));
        }
        Act::Answer(well) => worker.answer(well),
        Act::Pass(milliseconds) => drop(worker.pass(milliseconds)),
        Act::Assign => worker.assign(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whichever scopes are in memory, the outcomes and changes are the same, and the cache holds what
    /// the compacted changelog holds.
    #[test]
    fn an_idle_scope_behaves_like_a_busy_one(
        acts in prop::collection::vec(act(), 1..120),
        max_scopes_in_memory in 0..3_usize,
        idle_after_seconds in 0..3_u64,
    ) {
        let mut stays = Worker::new(config(u64::MAX, usize::MAX));
        let mut leaves = Worker::new(config(idle_after_seconds, max_scopes_in_memory));
        for act in &acts {
            perform(&mut stays, act);
            perform(&mut leaves, act);
            leaves.scopes.evict_idle();
            prop_assert_eq!(&stays.outcomes, &leaves.outcomes);
            prop_assert_eq!(&stays.changes, &leaves.changes);
            prop_assert_eq!(stays.asked.len(), leaves.asked.len());
            for (stayed, left) in stays.asked.iter().zip(&leaves.asked) {
                prop_assert_eq!(format!("{stayed:?}"), format!("{left:?}"));
            }
        }
        while !leaves.asked.is_empty() {
            leaves.answer(true);
        }
        leaves.pass(10_000);
        prop_assert_eq!(leaves.scopes.in_memory(), 0);
        prop_assert_eq!(leaves.cached(SCOPES), leaves.folded());
    }
}

#[test]
fn scopes_leave_after_their_time_and_whoever_is_busy_stays() {
    let mut worker = Worker::new(config(10, 100));
    worker.exchange(0);
    assert_eq!(worker.pass(1_500), Next::At(10_000), "one timer for all");
    worker.exchange(1);
    worker.user(2);
    assert_eq!(worker.pass(8_000), Next::Never, "it is armed");
    assert_eq!(worker.scopes.in_memory(), 3);
    assert_eq!(worker.pass(500), Next::At(12_000), "0 left, 1 is next, at 11.5 s");
    assert_eq!(worker.scopes.in_memory(), 2);
    assert_eq!(worker.pass(100_000), Next::Never, "who waits for an answer needs no timer");
    assert_eq!(worker.scopes.in_memory(), 1);
    worker.answer(true);
    worker.pass(10_000);
    assert_eq!(worker.scopes.in_memory(), 0);
    worker.user(0);
    assert_eq!(worker.asked[0].recalled.len(), 1, "and comes back");
}

#[test]
fn vectors_that_are_made_at_once_are_not_written() {
    let mut worker = Worker::new(config(0, 100));
    worker.exchange(0);
    let has_vector = |worker: &Worker| {
        let database = worker.scopes.sequences().next().unwrap().database();
        database.text_of(0).unwrap().vector.is_some()
    };
    assert!(has_vector(&worker));
    let written = |record: Vec<u8>| String::from_utf8(record).unwrap().contains("vector");
    assert!(!worker.folded().into_values().any(written));
    worker.pass(0);
    worker.user(0);
    assert!(has_vector(&worker), "made again");
}

#[test]
fn a_scope_that_left_memory_is_forgotten_where_it_lies() {
    let mut worker = Worker::new(config(0, 100));
    worker.exchange(0);
    worker.exchange(0);
    worker.pass(0);
    assert_eq!((worker.scopes.in_memory(), worker.cache.cache.len(0)), (0, 3));
    worker.direct(0, DirectiveKind::Forget);
    assert!(worker.outcomes[2].contains("forgotten"), "{:?}", worker.outcomes);
    worker.pass(1_000);
    assert_eq!(worker.cache.cache.len(0), 1, "its own record is left");
    assert_eq!(worker.cached(1), worker.folded());
}

#[test]
fn with_too_many_in_memory_the_longest_idle_leave() {
    let mut worker = Worker::new(config(u64::MAX, 3));
    (0..3).for_each(|scope| worker.exchange(scope));
    worker.exchange(0);
    worker.user(3);
    worker.user(4);
    worker.scopes.evict_idle();
    let mut left: Vec<_> =
        worker.scopes.sequences().map(|it| it.scope().as_str().to_owned()).collect();
    left.sort();
    assert_eq!(left, ["default/c0", "default/c3", "default/c4"], "1 and 2 were idle longest");
}

#[test]
fn many_leave_a_few_at_a_time() {
    let mut worker = Worker::new(config(1, 10_000));
    for offset in 0..600 {
        worker.say(0, Speaker::User, |turn| turn.scope = Scope::new(None, &format!("x{offset}")));
        worker.answer(true);
    }
    assert_eq!(worker.pass(2_000), Next::Now);
    assert_eq!(worker.scopes.in_memory(), 600 - SCOPES_AT_ONCE);
    worker.scopes.evict_idle();
    assert_eq!(worker.scopes.evict_idle(), Next::Never);
    assert_eq!(worker.scopes.in_memory(), 0);
}

#[test]
fn a_cache_that_takes_nothing_leaves_scopes_in_memory_and_is_tried_again() {
    let mut worker = Worker::new(config(0, 100));
    worker.exchange(0);
    worker.cache.fail(true);
    assert_eq!(worker.pass(0), Next::At(1_000));
    assert_eq!(worker.scopes.in_memory(), 1);
    worker.exchange(0);
    worker.cache.fail(false);
    assert_eq!(worker.pass(500), Next::Never, "not before its time");
    assert_eq!(worker.scopes.in_memory(), 1);
    worker.pass(500);
    assert_eq!(worker.scopes.in_memory(), 0);
    assert_eq!(worker.cached(1), worker.folded());
}

#[test]
#[should_panic(expected = "scope default/c0: history cache /the/folder: no room left; make room")]
fn a_history_that_cannot_be_read_stops_the_worker() {
    let mut worker = Worker::new(config(0, 100));
    worker.exchange(0);
    worker.pass(0);
    worker.cache.fail(true);
    worker.user(0);
}

#[test]
#[should_panic(expected = "the entry 0-0 of scope default/c0")]
fn a_history_that_is_not_ours_stops_the_worker() {
    let mut worker = Worker::new(config(0, 100));
    worker.exchange(0);
    worker.pass(0);
    let entry = Some(InputId { topic: "turns".to_owned(), partition: 0, offset: 0 }.entry_id());
    let key = EntryKey { scope: Scope::new(None, "c0"), entry };
    worker.cache.put(0, 1, vec![CacheChange { key, value: Some(b"{}".to_vec()) }]).unwrap();
    worker.user(0);
}

#[test]
#[should_panic(expected = "scope default/c0: the input at offset 0 came after the one at 0")]
fn an_input_that_comes_again_stops_the_worker() {
    let mut worker = Worker::new(config(0, 100));
    worker.exchange(0);
    worker.pass(0);
    worker.next_offset = 0;
    worker.say(0, Speaker::System, |turn| turn.turn_id = TurnId::from("another"));
}

#[test]
fn a_turn_of_a_generation_that_is_gone_is_left_to_the_next() {
    let mut worker = Worker::new(config(0, 100));
    worker.exchange(0);
    worker.pass(0);
    // The next assignment began, but the worker has not received it yet.
    worker.cache.begin(0, 2).unwrap();
    worker.user(0);
    worker.exchange(1);
    assert!(worker.asked.is_empty() && worker.outcomes.len() == 1, "without its history, nothing");
    assert_eq!(worker.cache.cache.len(0), 0);
}

#[test]
fn a_scope_that_is_over_leaves_the_cache_too() {
    let mut worker = Worker::new(config(0, 100));
    for scope in 0..2 {
        worker.exchange(scope);
        worker.pass(0);
    }
    assert_eq!(worker.cache.cache.len(0), 4);
    worker.say(0, Speaker::System, |turn| turn.last_of_scope = true);
    worker.scopes.arrived(Arrived::Ended { partition: 0, scope: Scope::new(None, "c1") });
    assert_eq!((worker.cache.cache.len(0), worker.scopes.in_memory()), (0, 0));
}
