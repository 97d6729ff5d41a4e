//! Views over an embedded log. `tests/it/views.rs` uses a real broker.

use proptest::prelude::*;
use serde_json::{Value, json};
use turnstream_knowledge::{Change, Upsert};
use turnstream_log::embedded::{EmbeddedConfig, EmbeddedLog, Isolation, Message};
use turnstream_log::write::Written;
use turnstream_schemas::{BriefResponse, FactKey};

use super::recount::{recount, recount_histories};
use super::*;

mod histories;

const PARTITIONS: i32 = 2;
const CONCEPTS: [&str; 4] = ["dog", "cat", "rain", "town"];

fn log() -> EmbeddedLog {
    let config = EmbeddedConfig { partitions: PARTITIONS, ..EmbeddedConfig::default() };
    EmbeddedLog::in_memory(&config).unwrap()
}

/// The writer of a process that is killed at its n-th record.
struct Killed {
    inner: Box<dyn Writer>,
    left: usize,
}

impl Writer for Killed {
    fn partitions(&self) -> i32 {
        self.inner.partitions()
    }

    fn write_to(
        &mut self,
        partition: i32,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result<(), LogError> {
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => return Err(LogError::Refused("killed".to_owned())),
        }
        self.inner.write_to(partition, key, value)
    }

    fn finish(&mut self) -> Result<Written, LogError> {
        self.inner.finish()
    }
}

/// A process on the log, killed at its n-th record if `killed_at` is set.
fn process(log: &EmbeddedLog, config: &ViewsConfig, killed_at: Option<usize>) -> Publishing {
    let inner: Box<dyn Writer> = Box::new(log.writer(Topic::Views));
    let ends = Ends {
        writer: match killed_at {
            Some(left) => Box::new(Killed { inner, left }),
            None => inner,
        },
        published: Some(Box::new(log.follower(Topic::Views))),
        responses: Box::new(log.follower(Topic::Responses)),
        traces: Some(Box::new(log.follower(Topic::Traces))),
        knowledge: Some(Box::new(log.follower(Topic::Knowledge))),
        histories: config.histories.then(|| Box::new(log.follower(Topic::History)) as _),
    };
    Publishing::new(ends, config, &ViewsMetrics::default())
}

/// Runs a process once and returns its summary.
fn once(log: &EmbeddedLog) -> ViewsSummary {
    let mut process = process(log, &ViewsConfig::default(), None);
    process.run(true, &AtomicBool::new(false)).unwrap();
    process.summary().clone()
}

fn read(log: &EmbeddedLog, topic: Topic) -> impl Iterator<Item = Record> {
    (0..PARTITIONS).flat_map(move |partition| {
        log.read(topic, partition, 0, usize::MAX, Isolation::ReadCommitted).unwrap()
    })
}

/// The rows that a reader of the whole topic of views sees.
fn on_topic(log: &EmbeddedLog) -> BTreeMap<ViewKey, u64> {
    let mut rows = BTreeMap::new();
    for Record { key, value, .. } in read(log, Topic::Views) {
        let Ok(key) = serde_json::from_slice::<ViewKey>(&key.unwrap()) else { continue };
        match value {
            Some(value) => {
                let value: ViewValue = serde_json::from_slice(&value).unwrap();
                rows.insert(key, value.count);
            }
            None => drop(rows.remove(&key)),
        }
    }
    rows
}

/// The rows that the oracle counts from the log.
fn expected(log: &EmbeddedLog) -> BTreeMap<ViewKey, u64> {
    let responses = |topic| -> Vec<(i32, Response)> {
        let read = read(log, topic).filter_map(|record| {
            Some((record.partition, serde_json::from_slice(&record.value?).ok()?))
        });
        read.collect()
    };
    let changes = read(log, Topic::Knowledge)
        .filter_map(|record| Change::read(&record.key?, record.value.as_deref()).ok());
    let (responses, traces) = (responses(Topic::Responses), responses(Topic::Traces));
    let mut rows = recount(&responses, &traces, &changes.collect::<Vec<_>>());
    let histories = read(log, Topic::History)
        .filter_map(|Record { partition, key, value, .. }| Some((partition, key?, value)));
    rows.extend(recount_histories(&histories.collect::<Vec<_>>()));
    rows
}

/// A response that used one fact, asked for one concept and missed another.
fn answer(log: &EmbeddedLog, partition: i32, [head, tail, missing]: [usize; 3]) {
    let fixture = include_str!("../../../tests/fixtures/records/v1/response.json");
    let mut response: Value = serde_json::from_str(fixture).unwrap();
    let (head, tail) = (CONCEPTS[head], CONCEPTS[tail]);
    response["demand"]["queries"]["explicit"][0]["concept"] = json!(head);
    response["demand"]["missing"] = json!([CONCEPTS[missing]]);
    response["brief"] = json!(false);
    let evidence = &mut response["evidence"][0];
    evidence["id"] = json!(format!("ours/IsA/{head}/{tail}"));
    evidence["fact"]["head"] = json!(head);
    evidence["fact"]["tail"] = json!(tail);
    // One in three responses is brief, with its trace beside it.
    let whole = response.to_string().into_bytes();
    if missing % 3 > 0 {
        append(log, Topic::Responses, partition, None, Some(whole));
        return;
    }
    let brief: Response = serde_json::from_slice(&whole).unwrap();
    let brief = serde_json::to_vec(&BriefResponse::from(&brief)).unwrap();
    append(log, Topic::Responses, partition, None, Some(brief));
    append(log, Topic::Traces, partition, None, Some(whole));
}

fn change(log: &EmbeddedLog, [head, tail]: [usize; 2], stands: bool) {
    let [head, tail] = [head, tail].map(|at| CONCEPTS[at].to_owned());
    let key = FactKey { source: "ours".to_owned(), head, relation: "IsA".to_owned(), tail };
    let upsert = stands.then(|| Upsert::new(1.0, "en"));
    let (key, value) = Change { key, upsert }.record();
    let message = Message { key: Some(key), value: Some(value), ..Message::default() };
    log.append_by_key(Topic::Knowledge, message).unwrap();
}

fn append(
    log: &EmbeddedLog,
    topic: Topic,
    partition: i32,
    key: Option<&str>,
    value: Option<Vec<u8>>,
) {
    let key = key.map(|key| key.as_bytes().to_vec());
    log.append(topic, partition, Message { key, value, ..Message::default() }).unwrap();
}

#[derive(Clone, Debug)]
enum Happening {
    Answered(i32, [usize; 3]),
    Changed([usize; 2], bool),
    Talked(histories::Talk),
    Repeated(i32, usize),
    /// A process starts, catches up, and is killed at its n-th record. If it has fewer, it sees
    /// `more` first.
    Ran {
        killed_at: usize,
        more: Vec<Happening>,
    },
    Compacted,
}

fn happening() -> impl Strategy<Value = Happening> {
    let simple = prop_oneof![
        3 => (0..PARTITIONS, [0..4_usize, 0..4, 0..4])
            .prop_map(|(partition, what)| Happening::Answered(partition, what)),
        2 => ([0..4_usize, 0..4], any::<bool>()).prop_map(|(what, it)| Happening::Changed(what, it)),
        4 => histories::talk().prop_map(Happening::Talked),
        1 => (0..PARTITIONS, 1..9_usize).prop_map(|(of, many)| Happening::Repeated(of, many)),
        1 => Just(Happening::Compacted),
    ];
    let more = prop::collection::vec(simple.clone(), 0..6);
    prop_oneof![
        3 => simple,
        1 => (0..24_usize, more).prop_map(|(killed_at, more)| Happening::Ran { killed_at, more }),
    ]
}

fn happen(log: &EmbeddedLog, happening: &Happening) {
    match happening {
        Happening::Answered(partition, what) => answer(log, *partition, *what),
        Happening::Changed(what, stands) => change(log, *what, *stands),
        Happening::Talked(talk) => histories::happen_to(log, talk),
        Happening::Repeated(partition, records) => histories::repeat(log, *partition, *records),
        Happening::Compacted => {
            log.compact(Topic::Views).unwrap();
            log.compact(Topic::History).unwrap();
            log.compact(Topic::Knowledge).unwrap();
        }
        Happening::Ran { killed_at, more } => {
            let config = ViewsConfig { max_batch_records: 3, ..ViewsConfig::default() };
            let mut process = process(log, &config, Some(*killed_at));
            while !process.look(Duration::ZERO).unwrap() {}
            while !process.count(Duration::ZERO).unwrap() {}
            if process.publish().is_err() {
                return;
            }
            for happening in more {
                happen(log, happening);
                process.count(Duration::ZERO).unwrap();
                if process.publish().is_err() {
                    return;
                }
                assert_eq!(on_topic(log), expected(log), "each publication is whole");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After processes that were killed at any record, the next one makes the topic equal to the
    /// oracle's counts, and one after it has nothing to do.
    #[test]
    fn a_killed_process_is_replaced(happenings in prop::collection::vec(happening(), 1..24)) {
        let log = log();
        happenings.iter().for_each(|it| happen(&log, it));
        once(&log);
        prop_assert_eq!(on_topic(&log), expected(&log));
        let again = once(&log);
        prop_assert_eq!((again.written, again.removed), (0, 0));
    }
}

#[test]
fn rows_without_a_count_are_removed_from_the_topic() {
    let log = log();
    answer(&log, 1, [0, 1, 2]);
    let row = |view: &str, key: &str| format!(r#"{{"view":"{view}","partition":1,"key":"{key}"}}"#);
    for (key, value) in [
        // Too large a count, a row that no response backs, a value that is not a count, and an
        // unreadable key.
        (row("concepts_asked", "dog"), r#"{"count":9}"#),
        (row("concepts_asked", "unicorn"), r#"{"count":1}"#),
        (row("concepts_missing", "rain"), "much"),
        ("{}".to_owned(), "{}"),
    ] {
        append(&log, Topic::Views, 0, Some(&key), Some(value.as_bytes().to_vec()));
    }
    // Unreadable records are skipped.
    append(&log, Topic::Responses, 0, None, Some(b"{}".to_vec()));
    append(&log, Topic::Knowledge, 0, Some("no statement"), None);
    let done = once(&log);
    assert_eq!((done.responses, done.changes, done.refused), (1, 0, 3));
    assert_eq!((done.written, done.removed, done.caught_up), (5, 1, true));
    // A writer of the same partitioner puts a key on the same partition, so compaction keeps one of
    // both.
    let last: BTreeMap<ViewKey, Option<Vec<u8>>> = read(&log, Topic::Views)
        .filter_map(|record| Some((serde_json::from_slice(&record.key?).ok()?, record.value)))
        .collect();
    let standing: BTreeMap<ViewKey, u64> = last
        .into_iter()
        .filter_map(|(key, value)| {
            Some((key, serde_json::from_slice::<ViewValue>(&value?).ok()?.count))
        })
        .collect();
    assert_eq!(standing, expected(&log));
}

#[test]
fn more_than_may_be_held_stops_it() {
    let log = log();
    for at in 0..4 {
        answer(&log, 0, [at, 0, 0]);
        change(&log, [at, 0], true);
    }
    for (config, key) in [
        (ViewsConfig { max_rows: 8, ..ViewsConfig::default() }, "views.max_rows allows 8"),
        (ViewsConfig { max_statements: 3, ..ViewsConfig::default() }, "max_statements allows 3"),
    ] {
        let error = process(&log, &config, None).run(true, &AtomicBool::new(false)).unwrap_err();
        assert!(error.to_string().contains(key), "{error}");
    }
    assert_eq!(read(&log, Topic::Views).count(), 0, "nothing was published");
    let config = ViewsConfig { max_rows: 10, max_statements: 4, ..ViewsConfig::default() };
    let mut fits = process(&log, &config, None);
    fits.run(true, &AtomicBool::new(false)).unwrap();
    assert_eq!(fits.rows().len(), 10);
}

#[test]
fn a_stop_before_it_has_caught_up_publishes_nothing() {
    let log = log();
    answer(&log, 0, [0, 1, 2]);
    let mut stopped = process(&log, &ViewsConfig::default(), None);
    stopped.run(false, &AtomicBool::new(true)).unwrap();
    assert!(!stopped.summary().caught_up);
    assert_eq!(read(&log, Topic::Views).count(), 0);
}
