//! Writes a history topic with many entries, reads it with a bare consumer, and restores it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use turnstream_engine::cache::DiskCache;
use turnstream_engine::commit::Report;
use turnstream_engine::dependencies::Dependencies;
use turnstream_engine::flow_control::FlowControl;
use turnstream_engine::intake::Intake;
use turnstream_engine::worker::Workers;
use turnstream_log::kafka::{self, KafkaConfig};
use turnstream_log::{Consumer, Event, Output, Position, Producer, Topic, Transaction};
use turnstream_ports::cache::ScopeCache;
use turnstream_schemas::{
    EntryId, EntryKey, EventTime, HistoryEntry, InputId, Passage, SCHEMA_VERSION, Scope,
    ScopeRecord, TurnId,
};

use crate::memory::{Peak, Resident};

pub(crate) const PARTITIONS: i32 = 4;
const ENTRIES_EACH: usize = 5;
const RECORDS_PER_TRANSACTION: usize = 10_000;

fn entries() -> usize {
    crate::number("RESTORE_ENTRIES", 1_000_000)
}

fn scopes() -> usize {
    entries() / ENTRIES_EACH
}

fn config(bootstrap: &str) -> KafkaConfig {
    KafkaConfig { bootstrap_servers: bootstrap.to_owned(), ..KafkaConfig::default() }
}

fn scope(number: usize) -> Scope {
    Scope::new(None, &format!("conversation-{number:08}"))
}

fn record(number: usize, entry: Option<usize>) -> Output {
    let partition = number as i32 % PARTITIONS;
    let offset = |round: usize| (round * scopes() + number) as i64;
    let turn_id = |round: usize| TurnId(format!("{partition}-{}", offset(round)));
    let id = entry.map(|round| EntryId { partition, offset: offset(round) });
    let value = match entry {
        Some(round) => serde_json::to_vec(&HistoryEntry {
            schema_version: SCHEMA_VERSION,
            input: InputId { topic: "turns".to_owned(), partition, offset: offset(round) },
            query: Some(format!("And what about the parcel that I sent on day {round} of May?")),
            turn_id: turn_id(round),
            user_id: None,
            passages: vec![Passage {
                id: "conceptnet/UsedFor/parcel/send".into(),
                text: "A parcel is used for sending things.".to_owned(),
            }],
            response: Some(
                "You said that it was late. It is used for sending things, so somebody has it: \
                 ask at the post office nearest to you, and have its number with you."
                    .to_owned(),
            ),
            response_turn_id: Some(TurnId(format!("turns-{partition}-{}", offset(round)))),
            event_time: EventTime(1_700_000_000_000 + offset(round)),
            vector: None,
            extra: serde_json::Map::new(),
        }),
        None => serde_json::to_vec(&ScopeRecord {
            schema_version: SCHEMA_VERSION,
            last_applied_offset: offset(ENTRIES_EACH - 1),
            latest_event_time: EventTime(1_700_000_000_000),
            remembered_turns: (0..ENTRIES_EACH).map(turn_id).collect::<Vec<_>>().iter().collect(),
            turns: ENTRIES_EACH as u64,
            evictions: 0,
            ..ScopeRecord::default()
        }),
    };
    let key = EntryKey { scope: scope(number), entry: id };
    Output {
        topic: Topic::History,
        partition,
        input_offset: 0,
        key: Some(serde_json::to_vec(&key).expect("a key")),
        value: Some(value.expect("a record")),
        headers: Vec::new(),
    }
}

/// Writes the topic as the engine does: entries as turns come, round after round over all scopes,
/// each scope's own record with its last entry.
pub(crate) fn fill(bootstrap: &str) {
    let (mut consumer, mut producer) = kafka::connect(&config(bootstrap)).expect("a broker");
    let mut generations = Vec::new();
    while generations.len() < PARTITIONS as usize {
        if let Event::Assigned(assigned) = consumer.poll(POLL).expect("polled") {
            for assignment in assigned {
                let empty = consumer.restore(assignment.partition, &mut |_| Ok(()));
                assert_eq!(empty.expect("restored").records, 0, "a fresh broker");
                generations.push(assignment);
            }
        }
    }
    let begun = Instant::now();
    let all = (0..ENTRIES_EACH).flat_map(|round| (0..scopes()).map(move |at| (at, Some(round))));
    let all = all.chain((0..scopes()).map(|at| (at, None)));
    let (mut outputs, mut written) = (Vec::new(), (0, 0));
    let mut commit = |outputs: Vec<Output>| {
        let positions = generations.iter().map(|assignment| Position {
            partition: assignment.partition,
            generation: assignment.generation,
            offset: 0,
            metadata: String::new(),
        });
        let transaction = Transaction { outputs, positions: positions.collect() };
        producer.commit(&transaction).expect("committed");
        consumer.poll(Duration::ZERO).expect("polled");
    };
    for (number, entry) in all {
        let output = record(number, entry);
        let bytes = |part: &Option<Vec<u8>>| part.as_ref().map_or(0, Vec::len);
        written = (written.0 + 1, written.1 + bytes(&output.key) + bytes(&output.value));
        outputs.push(output);
        if outputs.len() == RECORDS_PER_TRANSACTION {
            commit(std::mem::take(&mut outputs));
        }
    }
    commit(outputs);
    println!(
        "history topic: {} entries of {} scopes, {} records, {:.0} MB, {PARTITIONS} partitions; \
         written in {:.1} s",
        entries(),
        scopes(),
        written.0,
        written.1 as f64 / 1e6,
        begun.elapsed().as_secs_f64()
    );
}

const POLL: Duration = Duration::from_millis(50);

fn say(what: &str, records: u64, took: Duration, peak: Resident, before: Resident) {
    println!(
        "{what}: {records} records in {:.2} s, {:.0} a second; at most {peak} ({before} before)",
        took.as_secs_f64(),
        records as f64 / took.as_secs_f64()
    );
}

/// Reads the topic to its end and parses nothing.
pub(crate) fn read_bare(bootstrap: &str) {
    let ours = config(bootstrap);
    let mut settings = ClientConfig::new();
    settings
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "bare")
        .set("isolation.level", "read_committed")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("queued.max.messages.kbytes", ours.fetch_queue_kib.to_string());
    let consumer: BaseConsumer = settings.create().expect("a consumer");
    let before = Resident::now();
    let (peak, begun) = (Peak::watch(), Instant::now());
    let mut list = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        let name = Topic::History.name();
        list.add_partition_offset(name, partition, Offset::Beginning).expect("a place");
    }
    consumer.assign(&list).expect("assigned");
    let (mut ended, mut records, mut bytes) = (0, 0, 0);
    while ended < PARTITIONS {
        match consumer.poll(POLL) {
            Some(Ok(message)) => {
                records += 1;
                bytes += message.payload_len() + message.key_len();
            }
            Some(Err(KafkaError::PartitionEOF(_))) => ended += 1,
            Some(Err(error)) => panic!("{error}"),
            None => {}
        }
    }
    let took = begun.elapsed();
    assert!(bytes > 0);
    say("bare consumer", records, took, peak.end(), before);
}

/// Restores the topic through the engine's own intake, with its workers running.
pub(crate) fn restore(bootstrap: &str) {
    let folder = crate::folder();
    let cache = Arc::new(DiskCache::open_in(folder.path(), 16 * 1024).expect("a cache"));
    let dependencies = Dependencies { cache: cache.clone(), ..crate::idle::dependencies() };
    let (consumer, producer) = kafka::connect(&config(bootstrap)).expect("a broker");
    let (reports, reported) = crossbeam_channel::unbounded();
    let workers = Workers::start(1, &dependencies, &reports).expect("workers");
    let flow = Arc::new(FlowControl::new(400, 8_000));
    let before = Resident::now();
    let mut intake = Intake::new(Box::new(consumer), &workers, reports, flow, cache.clone());
    let (peak, mut took) = (Peak::watch(), Duration::ZERO);
    let mut restored = BTreeSet::new();
    while restored.len() < PARTITIONS as usize {
        let begun = Instant::now();
        assert!(intake.poll(0, POLL).expect("polled"));
        let assigned = reported.try_iter().filter_map(|report| match report {
            Report::Assigned { assignment, .. } => Some(assignment),
            _ => None,
        });
        let assigned: Vec<_> = assigned.collect();
        // A poll that returns an assignment has restored it.
        if !assigned.is_empty() {
            took += begun.elapsed();
            restored.extend(assigned);
        }
    }
    let peak = peak.end();
    let records = (entries() + scopes()) as u64;
    say("restored", records, took, peak, before);
    let size = |path: &std::path::Path| path.metadata().map_or(0, |file| file.len());
    let files = restored.iter().map(|at| {
        let name = format!("{}-{}/data.mdb", at.partition, at.generation);
        size(&cache.folder().join(name))
    });
    println!("    on disk: {:.0} MB", files.sum::<u64>() as f64 / 1e6);
    for number in [0, scopes() / 2, scopes() - 1] {
        let at = restored.iter().find(|at| at.partition == number as i32 % PARTITIONS);
        let at = at.expect("it is ours");
        let loaded = cache.load(at.partition, at.generation, &scope(number)).expect("read");
        assert_eq!(loaded.expect("held").len(), ENTRIES_EACH + 1, "the whole scope");
    }
    drop(producer);
    drop(intake.stop());
    workers.drain(None).expect("a clean end");
}
