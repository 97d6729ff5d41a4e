//! The knowledge feed on a follower with scripted polls.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use turnstream_knowledge::phrasings::LeadsTo;
use turnstream_knowledge::{Graph, ImportedFact};
use turnstream_operators::meaning::LiveRows;
use turnstream_ports::model::encoder::{EncodeError, Encoded, Encoder};
use turnstream_schemas::Action;

use super::*;
use crate::config::Config;

/// The result of one poll.
type PollResult = Result<Vec<Record>, LogError>;

#[derive(Default)]
struct ScriptedFollower {
    polls: VecDeque<PollResult>,
    positions: BTreeMap<i32, i64>,
    /// The follower has caught up when this many polls are left.
    caught_up_with: usize,
}

impl Follower for ScriptedFollower {
    fn poll(&mut self, _: Duration) -> PollResult {
        let records = self.polls.pop_front().unwrap_or(Ok(Vec::new()))?;
        for record in &records {
            self.positions.insert(record.partition, record.offset + 1);
        }
        Ok(records)
    }

    fn positions(&self) -> BTreeMap<i32, i64> {
        self.positions.clone()
    }

    fn has_caught_up(&self) -> bool {
        self.polls.len() <= self.caught_up_with
    }

    fn lag(&self) -> BTreeMap<i32, u64> {
        [(0, self.polls.len() as u64)].into()
    }
}

/// Records the changes it receives. It needs the given number of calls before it knows them.
#[derive(Default)]
struct Pupil(RefCell<Vec<Changes>>, Cell<usize>);

impl Learn for Pupil {
    fn learn(&self, changes: Changes) -> Result<(), WorkerError> {
        self.0.borrow_mut().push(changes);
        Ok(())
    }

    fn knows(&self, offsets: &BTreeMap<i32, i64>) -> Result<bool, WorkerError> {
        let last = self.0.borrow().last().map(|changes| changes.offsets.clone());
        assert_eq!(last.as_ref(), Some(offsets), "asked for what was handed on");
        let left = self.1.get();
        self.1.set(left.saturating_sub(1));
        Ok(left == 0)
    }
}

fn dependencies(config: Config) -> Dependencies {
    let graph = Graph::from_facts([ImportedFact::new("coffee", "IsA", "drink", 1.0)]);
    Dependencies::with_graph(config, Arc::new(graph))
}

fn learning(follower: ScriptedFollower) -> (KnowledgeFeed, Metrics, CaughtUp) {
    let (dependencies, learned) = (dependencies(Config::default()), CaughtUp::default());
    let learning = KnowledgeFeed::new(Box::new(follower), &dependencies, learned.clone());
    (learning, dependencies.metrics, learned)
}

fn record(partition: i32, offset: i64, head: &str, value: Option<&str>) -> Record {
    let key = format!(r#"{{"source":"ours","head":"{head}","relation":"IsA","tail":"drink"}}"#);
    let (key, value) = (Some(key.into_bytes()), value.map(|value| value.as_bytes().to_vec()));
    Record { partition, offset, key, value, ..Record::default() }
}

/// One batch: each head with whether its fact is put, and the offsets after the batch.
type Lesson = (Vec<(String, bool)>, BTreeMap<i32, i64>);

fn taught(pupil: &Pupil) -> Vec<Lesson> {
    let batches = pupil.0.borrow();
    let change = |change: &Change| (change.key.head.clone(), change.upsert.is_some());
    let batch =
        |batch: &Changes| (batch.changes.iter().map(change).collect(), batch.offsets.clone());
    batches.iter().map(batch).collect()
}

const STANDS: Option<&str> = Some(r#"{"weight":2}"#);

#[test]
fn one_poll_is_one_batch_with_the_offsets_behind_it() {
    let polls = [
        Ok(vec![record(0, 3, "coffee", STANDS), record(1, 0, "tea", STANDS)]),
        Ok(Vec::new()),
        Ok(vec![record(0, 7, "coffee", None), record(0, 8, "milk", Some(r#"{"retracted":true}"#))]),
    ];
    let (mut learning, metrics, _) =
        learning(ScriptedFollower { polls: polls.into(), ..ScriptedFollower::default() });
    let pupil = Pupil::default();
    (0..4).for_each(|_| learning.poll(&pupil, Duration::ZERO).unwrap());
    let stands = |head: &str, stands| (head.to_owned(), stands);
    assert_eq!(
        taught(&pupil),
        [
            (vec![stands("coffee", true), stands("tea", true)], [(0, 4), (1, 1)].into()),
            (vec![stands("coffee", false), stands("milk", false)], [(0, 9), (1, 1)].into()),
        ]
    );
    let text = metrics.scrape().unwrap();
    for sample in ["upsert\"} 2", "retraction\"} 2"] {
        assert!(text.contains(sample), "{sample} in {text}");
    }
}

/// Encodes every text as the same vector.
struct Constant;

impl Encoder for Constant {
    fn name(&self) -> &str {
        "constant"
    }

    fn fingerprint(&self) -> u64 {
        1
    }

    fn dimensions(&self) -> usize {
        1
    }

    fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
        vectors.extend(texts.iter().map(|_| 1.0));
        Ok(Encoded::default())
    }
}

/// Checks that the vector of a change exists when the change arrives.
struct Attentive(LiveVectors, Cell<bool>);

impl Learn for Attentive {
    fn learn(&self, changes: Changes) -> Result<(), WorkerError> {
        let texts = crate::meaning::texts(&changes.changes);
        self.1.set(texts.iter().all(|text| self.0.row(text).is_some()));
        Ok(())
    }

    fn knows(&self, _: &BTreeMap<i32, i64>) -> Result<bool, WorkerError> {
        Ok(true)
    }
}

#[test]
fn a_fact_has_its_vector_before_workers_learn_it() {
    let mut dependencies = dependencies(Config::default());
    let vectors = LiveVectors::new(Arc::new(Constant), 1, 10);
    dependencies.meaning.live = Some(vectors.clone());
    let polls = [Ok(vec![record(0, 3, "green tea", STANDS)])].into();
    let told = Box::new(ScriptedFollower { polls, ..ScriptedFollower::default() });
    let mut learning = KnowledgeFeed::new(told, &dependencies, CaughtUp::default());
    let attentive = Attentive(vectors, Cell::new(false));
    learning.poll(&attentive, Duration::ZERO).unwrap();
    assert!(attentive.1.get());
}

#[test]
fn a_record_that_is_not_a_change_is_skipped_and_counted() {
    let no_key =
        Record { partition: 0, offset: 1, value: Some(b"{}".to_vec()), ..Record::default() };
    let polls = [
        Ok(vec![record(0, 0, "coffee", STANDS), no_key, record(0, 2, "tea", Some("not JSON"))]),
        Ok(vec![record(0, 3, "tea", Some(r#"{"weight":0}"#))]),
    ];
    let (mut learning, metrics, _) =
        learning(ScriptedFollower { polls: polls.into(), ..ScriptedFollower::default() });
    let pupil = Pupil::default();
    (0..2).for_each(|_| learning.poll(&pupil, Duration::ZERO).unwrap());
    assert_eq!(metrics.knowledge().refused.get(), 3);
    let taught = taught(&pupil);
    assert_eq!(taught[0].0, [("coffee".to_owned(), true)]);
    assert_eq!(taught[1], (Vec::new(), [(0, 4)].into()), "the state is named by what was read");
}

#[test]
fn a_phrasing_reaches_the_workers_with_what_it_leads_to() {
    let phrasing = |offset: i64, text: &str, value: Option<&str>| Record {
        offset,
        key: Some(format!("{{\"phrasing\":\"{text}\"}}").into_bytes()),
        value: value.map(|value| value.as_bytes().to_vec()),
        ..Record::default()
    };
    let polls = [Ok(vec![
        phrasing(0, "about the court letter", Some(r#"{"action":"hand_off"}"#)),
        record(0, 1, "coffee", STANDS),
        phrasing(2, "a page that went", Some(r#"{"gold":"gone.md#away"}"#)),
        phrasing(3, "withdrawn", None),
        phrasing(4, "no place", Some("{}")),
    ])];
    let (mut learning, metrics, _) =
        learning(ScriptedFollower { polls: polls.into(), ..ScriptedFollower::default() });
    let pupil = Pupil::default();
    learning.poll(&pupil, Duration::ZERO).unwrap();
    let taught = pupil.0.borrow();
    let [Changes { changes, phrasings, offsets }] = &taught[..] else { panic!("{taught:?}") };
    assert_eq!((changes.len(), offsets), (1, &[(0, 5)].into()));
    let texts = ["about the court letter", "a page that went", "withdrawn"];
    assert_eq!(phrasings.iter().map(|it| &*it.text).collect::<Vec<_>>(), texts);
    let court = phrasings[0].phrasing.as_ref().expect("a phrasing");
    assert_eq!(court.leads_to, LeadsTo::Action(Action::HandOff));
    assert!((court.vector.iter().map(|it| it * it).sum::<f32>() - 1.0).abs() < 1e-3);
    assert!(phrasings[1..].iter().all(|it| it.phrasing.is_none()));
    assert_eq!(metrics.knowledge().refused.get(), 1);
}

#[test]
fn turns_wait_until_it_has_caught_up() {
    let polls = (0..3).map(|offset| Ok(vec![record(0, offset, "coffee", STANDS)])).collect();
    let told = ScriptedFollower { polls, caught_up_with: 1, ..ScriptedFollower::default() };
    let (mut learning, metrics, learned) = learning(told);
    let unready = || {
        let checks = metrics.vitals().ready().into_iter();
        checks.filter(|check| !check.ok).any(|check| check.name == "knowledge")
    };
    assert!(unready() && !learned.is_done());
    let pupil = Pupil::default();
    learning.poll(&pupil, Duration::ZERO).unwrap();
    assert!(unready() && !learned.is_done());
    let text = metrics.scrape().unwrap();
    assert!(text.contains("turnstream_knowledge_caught_up 0"), "{text}");
    assert!(text.contains("turnstream_knowledge_lag{partition=\"0\"} 2"), "{text}");
    pupil.1.set(1);
    learning.poll(&pupil, Duration::ZERO).unwrap();
    assert!(unready() && !learned.is_done(), "handed on, and not known by every worker yet");
    learning.poll(&pupil, Duration::ZERO).unwrap();
    assert!(learned.is_done() && !unready());
    assert!(metrics.scrape().unwrap().contains("turnstream_knowledge_caught_up 1"));
}

#[test]
fn more_live_changes_than_allowed_are_an_error_with_the_remedy() {
    let mut config = Config::default();
    config.knowledge.max_live_changes = 3;
    let dependencies = dependencies(config);
    let told = ScriptedFollower {
        caught_up_with: 9,
        positions: [(0, 0)].into(),
        ..ScriptedFollower::default()
    };
    let mut learning = KnowledgeFeed::new(Box::new(told), &dependencies, CaughtUp::default());
    let pupil = Pupil::default();
    dependencies.live.differing.store(3, Ordering::Relaxed);
    learning.poll(&pupil, Duration::ZERO).unwrap();
    dependencies.live.differing.store(4, Ordering::Relaxed);
    let error = learning.poll(&pupil, Duration::ZERO).unwrap_err().to_string();
    for said in ["4 statements", "allows 3", "knowledge import", "max_live_changes"] {
        assert!(error.contains(said), "{said} is not in {error}");
    }
}

#[test]
fn learning_ends_when_it_is_told_or_the_log_fails() {
    let polls = [Ok(Vec::new()), Err(LogError::Refused("topic is gone".to_owned()))];
    let (mut learning, ..) =
        learning(ScriptedFollower { polls: polls.into(), ..ScriptedFollower::default() });
    let pupil = Pupil::default();
    learning.run(&pupil, || true).unwrap();
    let error = learning.run(&pupil, || false).unwrap_err();
    assert!(matches!(error, KnowledgeFeedError::Log(LogError::Refused(_))), "{error}");
}

/// The engine takes no turn in before the feed has caught up. It stops when its follower fails, and
/// reports why.
mod in_an_engine {
    use std::sync::atomic::AtomicUsize;

    use turnstream_log::Ends;
    use turnstream_log::embedded::{EmbeddedConfig, EmbeddedLog, Message};

    use super::*;
    use crate::serve::{EngineError, serve};

    /// Catches up once `may` is set, and then fails if `fails` is set.
    struct Gated {
        may: Arc<AtomicBool>,
        fails: bool,
        polls: Arc<AtomicUsize>,
    }

    impl Follower for Gated {
        fn poll(&mut self, _: Duration) -> PollResult {
            self.polls.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
            match self.fails {
                true => Err(LogError::Refused("topic `knowledge` is gone".to_owned())),
                false => Ok(Vec::new()),
            }
        }

        fn positions(&self) -> BTreeMap<i32, i64> {
            BTreeMap::new()
        }

        fn has_caught_up(&self) -> bool {
            self.may.load(Ordering::SeqCst)
        }

        fn lag(&self) -> BTreeMap<i32, u64> {
            BTreeMap::new()
        }
    }

    fn log() -> EmbeddedLog {
        let config = EmbeddedConfig { partitions: 2, ..EmbeddedConfig::default() };
        let log = EmbeddedLog::in_memory(&config).unwrap();
        let value = br#"{"conversation_id":"c","speaker":"user","text":"Coffee?"}"#.to_vec();
        let turn = Message { key: Some(b"c".to_vec()), value: Some(value), ..Message::default() };
        log.append_by_key(Topic::Turns, turn).unwrap();
        log.seal(Topic::Turns);
        log
    }

    fn ends(log: &EmbeddedLog, follower: Gated) -> Ends {
        let consumer = log.consumer("g", Topic::Turns).unwrap();
        let producer = log.producer(&consumer, "t").unwrap();
        Ends { knowledge: Some(Box::new(follower)), ..Ends::new(consumer, producer) }
    }

    fn answers(log: &EmbeddedLog) -> i64 {
        (0..2).map(|partition| log.end(Topic::Responses, partition)).sum()
    }

    #[test]
    fn turns_wait_for_it() {
        let (log, polls) = (log(), Arc::new(AtomicUsize::new(0)));
        let may = Arc::new(AtomicBool::new(false));
        let gated = Gated { may: Arc::clone(&may), fails: false, polls: Arc::clone(&polls) };
        let (ends, dependencies) = (ends(&log, gated), dependencies(Config::default()));
        let engine =
            std::thread::spawn(move || serve(ends, &dependencies, 1, &AtomicBool::new(false)));
        while polls.load(Ordering::SeqCst) < 200 && !engine.is_finished() {
            std::thread::yield_now();
        }
        assert_eq!(answers(&log), 0, "it may have been taken back");
        may.store(true, Ordering::SeqCst);
        let summary = engine.join().unwrap().unwrap();
        assert_eq!((summary.tally.inputs, summary.tally.responses), (1, 1));
        assert!(answers(&log) > 0);
    }

    #[test]
    fn a_stop_is_heeded_while_turns_wait() {
        let (log, stop) = (log(), Arc::new(AtomicBool::new(false)));
        let polls = Arc::new(AtomicUsize::new(0));
        let gated = Gated { may: Arc::default(), fails: false, polls: Arc::clone(&polls) };
        let (ends, dependencies, stopped) =
            (ends(&log, gated), dependencies(Config::default()), Arc::clone(&stop));
        let engine = std::thread::spawn(move || serve(ends, &dependencies, 2, &stopped));
        while polls.load(Ordering::SeqCst) < 3 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::SeqCst);
        assert_eq!(engine.join().unwrap().unwrap().tally.inputs, 0);
    }

    #[test]
    fn a_follower_that_fails_ends_the_engine() {
        let log = log();
        let gated = Gated { may: Arc::default(), fails: true, polls: Arc::default() };
        let error =
            serve(ends(&log, gated), &dependencies(Config::default()), 1, &AtomicBool::new(false))
                .unwrap_err();
        assert!(matches!(error, EngineError::KnowledgeFeed(KnowledgeFeedError::Log(_))), "{error}");
        assert!(error.to_string().contains("is gone"), "{error}");
        assert_eq!(answers(&log), 0);
    }
}
