//! Tests `turnstream run` on a real Apache Kafka, fed by a client that is not ours.
//!
//! kcat writes and reads 10,000 records of 1,000 conversations, 100 of them unfit. `checks` has the
//! assertions; each works its expectation out from the inputs as kcat reads them back, not from
//! what the engine says about them.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::broker::Broker;

mod checks;
pub(crate) mod engine;
pub(crate) mod hands;
pub(crate) mod histories;
pub(crate) mod kcat;
pub(crate) mod outcomes;
pub(crate) mod workload;

use checks::Outputs;
use engine::Engine;
use kcat::{Counter, KEY_END, send_files, send_lines};
use outcomes::OUTCOMES;
use workload::{ALL_ROUNDS, INVALID, Invalid, Sent, TURNS, conversation, invalid, turns};

/// Partitions of every topic.
const PARTITIONS: i32 = 6;

/// How long the test waits without any progress before it gives up.
const PATIENCE: Duration = Duration::from_secs(180);

#[test]
fn ten_thousand_turns_from_kcat_end_as_ten_thousand_outcomes() {
    let test = "ten_thousand_turns_from_kcat_end_as_ten_thousand_outcomes";
    let Some(broker) = Broker::start_or_skip(test) else { return };
    broker.create_topics("", PARTITIONS);
    let folder = tempfile::tempdir().expect("a folder");
    let config = write_config(&broker, folder.path());
    let invalid = invalid();
    let counter = Counter::start(&broker, &OUTCOMES);
    let mut starts = 0;
    let mut start = || {
        starts += 1;
        Engine::start(&config, &folder.path().join(format!("run-{starts}.log")))
    };

    // A clean stop after a quarter of the turns, and then on to the end.
    let mut engine = start();
    let began = Instant::now();
    produce(&broker, &invalid);
    wait_for(&counter, TURNS / 4, &mut engine);
    let drained = engine.stop();
    eprintln!("stopped after {} outcomes within {drained:?}", counter.count());
    let mut engine = start();
    wait_for(&counter, TURNS + INVALID, &mut engine);
    eprintln!("{} outcomes {:?} after the first input", counter.count(), began.elapsed());
    engine.stop();

    let before = Outputs::read(&broker);
    before.check(&invalid, TURNS, INVALID);
    before.print_rate();
    eprintln!("read back and checked {:?} after the first input", began.elapsed());

    // Start once more: nothing old is served again, and histories are there.
    let mut engine = start();
    let late = late_turns(&before);
    send_lines(&broker, &late, &[], false);
    wait_for(&counter, TURNS + INVALID + late.len(), &mut engine);
    engine.stop();
    let after = Outputs::read(&broker);
    after.check(&invalid, TURNS + late.len(), INVALID);
    after.check_late(&before, late.len());
    eprintln!("all done {:?} after the first input", began.elapsed());
}

fn write_config(broker: &Broker, folder: &Path) -> std::path::PathBuf {
    let text = format!(
        "[run]\nworkers = 2\n\n[source_planning]\nform = \"off\"\n\n[log]\nkind = \"kafka\"\n\n\
         [log.kafka]\nbootstrap_servers = \"{}\"\ngroup_id = \"kcat-test\"\n\
         transactional_id = \"kcat-test-1\"\n",
        broker.bootstrap()
    );
    let path = folder.join("turnstream.toml");
    std::fs::write(&path, text).expect("written");
    path
}

/// Sends everything: a third of the turns with headers, and the invalid records in between.
fn produce(broker: &Broker, invalid: &[Invalid]) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let now_ms = u64::try_from(now.as_millis()).expect("within range");
    let of = |sent: Sent| {
        let kinds = invalid.iter().filter(move |kind| kind.sent == sent);
        kinds.flat_map(|kind| &kind.records)
    };
    let line = |key: &str, value: &[u8]| [key.as_bytes(), &[KEY_END], value].concat();
    let valid: Vec<_> = turns(ALL_ROUNDS, now_ms)
        .iter()
        .map(|(key, turn)| line(key, turn.to_string().as_bytes()))
        .collect();
    let spoilt: Vec<_> = of(Sent::Lines)
        .map(|(key, value)| line(key, value.as_deref().unwrap_or_default()))
        .collect();
    let tombstones: Vec<_> = of(Sent::Tombstones).map(|(key, _)| line(key, b"")).collect();

    let third = valid.len() / 3;
    let (early, later) = spoilt.split_at(spoilt.len() / 2);
    send_lines(broker, &scatter(&valid[..third], early), &[], false);
    let traced = ["traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"];
    send_lines(broker, &scatter(&valid[third..2 * third], later), &traced, false);
    send_lines(broker, &tombstones, &traced, true);
    let files = tempfile::tempdir().expect("a folder");
    for (at, (key, value)) in of(Sent::Files).enumerate() {
        let path = files.path().join(at.to_string());
        std::fs::write(&path, value.as_deref().unwrap_or_default()).expect("written");
        send_files(broker, key, &[&path]);
    }
    send_lines(broker, &valid[2 * third..], &[], false);
}

/// Returns the lines with the others scattered among them, both in their order.
fn scatter(lines: &[Vec<u8>], others: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let share = lines.len().div_ceil(others.len());
    let mut others = others.iter();
    lines.chunks(share).flat_map(|chunk| chunk.iter().chain(others.next())).cloned().collect()
}

/// Returns one more turn in one conversation of each partition.
fn late_turns(before: &Outputs) -> Vec<Vec<u8>> {
    let turn = |conversation: &str| {
        let turn = serde_json::json!({
            "conversation_id": conversation, "turn_id": "late", "speaker": "user",
            "text": "And what else could one do with it?",
        });
        [conversation.as_bytes(), &[KEY_END], turn.to_string().as_bytes()].concat()
    };
    let first_of = |partition| {
        let mut names = (0..workload::CONVERSATIONS).map(conversation);
        let name = names.find(|name| before.partition_of(name) == Some(partition));
        name.unwrap_or_else(|| panic!("partition {partition} has no conversation"))
    };
    (0..PARTITIONS).map(|partition| turn(&first_of(partition))).collect()
}

/// Waits until `count` outcomes are there, as long as more come.
fn wait_for(counter: &Counter, count: usize, engine: &mut Engine) {
    let (mut seen, mut moved) = (counter.count(), Instant::now());
    while counter.count() < count {
        engine.assert_running();
        std::thread::sleep(Duration::from_millis(50));
        if counter.count() > seen {
            (seen, moved) = (counter.count(), Instant::now());
        }
        assert!(
            moved.elapsed() < PATIENCE,
            "{seen} of {count} outcomes, and nothing for {PATIENCE:?}\n{}\n{}",
            engine.held_back(),
            engine.log_end()
        );
    }
}
