//! Measures the same work by turnstream, by Kafka Streams and by a bare loop, on one Kafka: keyed
//! by conversation, the latest turns as state, a response and a changelog record for each turn,
//! exactly once.
//!
//! ```sh
//! cargo bench --bench peers                       # turns that wait on the topic, three rounds
//! cargo bench --bench peers -- latency            # 500 turns a second
//! cargo bench --bench peers -- restore            # start again without local state
//! cargo bench --bench peers -- streams closed     # these contenders alone
//! PEERS_ROUNDS=1 PEERS_TURNS=20000 cargo bench --bench peers
//! ```
//!
//! Contenders alternate within a round, so that other load of the machine affects all of them. A
//! rate is over the last nine tenths of the turns, from the first that is visible to a reader of
//! committed records to the last; the processor time is that of the contender's process alone.
//! `restore` stops a contender that has answered all turns, removes its local state, lets another
//! turn wait on each partition and starts it again: what counts is the time until these have their
//! responses, with everything that the start of a process takes.
//! Figures are in docs/measurements/speed.md. Asserts only that every turn has its response.

#![allow(clippy::print_stdout)] // The benchmark prints its numbers.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

mod bare;
#[allow(dead_code)] // This benchmark does not use all of the tests' broker.
#[path = "../../tests/it/broker.rs"]
mod broker;
mod contenders;
mod watch;

use broker::Broker;
use contenders::{BARE, Contender, Site, jars};
use watch::{Watch, latencies, usage};

const PARTITIONS: i32 = 8;
/// Turns of a conversation.
const LENGTH: usize = 6;
/// Turns per second where latencies are measured: for `WARM_SECONDS` that do not count, then for
/// `SECONDS`.
const RATE: usize = 500;
const WARM_SECONDS: usize = 10;
const SECONDS: usize = 30;
/// The dialogues whose user turns are sent.
const DIALOGUES: &str = include_str!("../dialogues.jsonl");

fn main() {
    if let Ok(place) = std::env::var(BARE) {
        let place: Vec<&str> = place.split(' ').collect();
        return bare::serve(place[0], place[1], place[2]);
    }
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let [is_latency, is_restore] =
        ["latency", "restore"].map(|it| wanted.iter().any(|name| name == it));
    let named: Vec<Contender> =
        Contender::ALL.into_iter().filter(|of| wanted.iter().any(|it| it == of.name())).collect();
    let mut contenders = if named.is_empty() { Contender::ALL.to_vec() } else { named };
    if is_restore {
        // It keeps its state nowhere that another process would find.
        contenders.retain(|of| *of != Contender::Bare);
    }
    let Some(broker) = Broker::start_or_skip("peers") else { return };
    let jars = jars();
    contenders.retain(|of| *of != Contender::Streams || jars.is_some());
    let folder = tempfile::tempdir().expect("a folder");
    let bootstrap = broker.bootstrap();
    let site = Site { bootstrap, jars: jars.unwrap_or_default(), folder: folder.path() };
    broker.create_topics("", PARTITIONS);
    let turns = number("PEERS_TURNS", 60_000);
    if !is_latency {
        let sender = Sender::new(bootstrap);
        (0..turns).for_each(|at| sender.send("turns", at, turns / LENGTH));
        sender.0.flush(Duration::from_secs(60)).expect("delivered");
    }
    let mut on_topic = turns;
    let mut runs: HashMap<&str, Vec<Run>> = HashMap::new();
    for round in 1..=number("PEERS_ROUNDS", 3) {
        for contender in &contenders {
            let prefix = format!("{}-{round}-", contender.name());
            broker.create_topics(&prefix, PARTITIONS);
            let run = if is_latency {
                at_rate(&site, *contender, &prefix)
            } else if is_restore {
                restored(&site, *contender, &prefix, &mut on_topic)
            } else {
                waiting(&site, *contender, &prefix, turns)
            };
            println!("{round} {:15} {}", contender.name(), run.line());
            runs.entry(contender.name()).or_default().push(run);
        }
    }
    println!("\nmedians");
    for contender in &contenders {
        let figures = &runs[contender.name()];
        let median = |of: fn(&Run) -> f64| {
            let mut values: Vec<f64> = figures.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let of_all = Run {
            rate: median(|run| run.rate),
            per_cpu_second: median(|run| run.per_cpu_second),
            peak_mib: median(|run| run.peak_mib),
            p50_ms: median(|run| run.p50_ms),
            p99_ms: median(|run| run.p99_ms),
            restored_seconds: median(|run| run.restored_seconds),
            restored_cpu_seconds: median(|run| run.restored_cpu_seconds),
            bytes: figures[0].bytes.clone(),
        };
        println!("  {:15} {}", contender.name(), of_all.line());
    }
}

/// The result of one run of a contender; a figure that was not measured is 0.
#[derive(Default)]
struct Run {
    /// Turns per second.
    rate: f64,
    /// Turns per second of the process's processor time.
    per_cpu_second: f64,
    peak_mib: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// From the start of a process without local state until every partition has a response.
    restored_seconds: f64,
    /// Processor time until then.
    restored_cpu_seconds: f64,
    /// Bytes of keys and values for each turn, by topic, before compression.
    bytes: Vec<(&'static str, f64)>,
}

impl Run {
    fn line(&self) -> String {
        let Self { rate, per_cpu_second, peak_mib, p50_ms, p99_ms, .. } = self;
        let mut line = format!("{peak_mib:5.0} MiB");
        if *rate > 0.0 {
            line += &format!("  {rate:7.0} turns/s  {per_cpu_second:7.0} a CPU second");
        }
        if self.restored_seconds > 0.0 {
            let Self { restored_seconds, restored_cpu_seconds, .. } = self;
            line += &format!(
                "  all answer after {restored_seconds:.1} s, {restored_cpu_seconds:.1} CPU s"
            );
        }
        if *p99_ms > 0.0 {
            line += &format!("  p50 {p50_ms:.1} ms, p99 {p99_ms:.1} ms");
        }
        for (topic, bytes) in &self.bytes {
            line += &format!("  {topic} {bytes:.0} B");
        }
        line
    }
}

/// Measures a contender while all turns wait on the topic.
fn waiting(site: &Site<'_>, contender: Contender, prefix: &str, turns: usize) -> Run {
    let watch = Watch::begin(site.bootstrap, &format!("{prefix}responses"), PARTITIONS);
    let mut process = contender.start(site, prefix, "turns");
    let mut begun = None;
    watch.take(turns, |seen, _, _| {
        if seen == turns / 10 {
            begun = Some((Instant::now(), usage(process.id()).0));
        }
    });
    let (since, used) = begun.expect("turns came");
    let (took, (now_used, peak_mib)) = (since.elapsed(), usage(process.id()));
    let counted = (turns - turns / 10) as f64;
    process.kill().expect("it is running");
    process.wait().expect("it ended");
    Run {
        rate: counted / took.as_secs_f64(),
        per_cpu_second: counted / (now_used - used).max(0.01),
        peak_mib,
        bytes: sizes(site, contender, prefix, turns),
        ..Run::default()
    }
}

/// Measures how soon a contender that has answered all that waits serves again without its local
/// state. Adds a turn of each partition to those that wait.
fn restored(site: &Site<'_>, contender: Contender, prefix: &str, on_topic: &mut usize) -> Run {
    let watch = Watch::begin(site.bootstrap, &format!("{prefix}responses"), PARTITIONS);
    let mut process = contender.start(site, prefix, "turns");
    watch.take(*on_topic, |_, _, _| {});
    terminate(&mut process);
    if let Err(error) = std::fs::remove_dir_all(site.state(prefix)) {
        assert_eq!(error.kind(), ErrorKind::NotFound, "its local state");
    }
    let sender = Sender::new(site.bootstrap);
    for partition in 0..PARTITIONS {
        sender.send_to("turns", Some(partition), *on_topic + partition as usize, *on_topic);
    }
    sender.0.flush(Duration::from_secs(60)).expect("delivered");
    *on_topic += PARTITIONS as usize;

    let begun = Instant::now();
    let mut process = contender.start(site, prefix, "turns");
    watch.take(PARTITIONS as usize, |_, _, _| {});
    let restored_seconds = begun.elapsed().as_secs_f64();
    let (restored_cpu_seconds, peak_mib) = usage(process.id());
    terminate(&mut process);
    let bytes = sizes(site, contender, prefix, *on_topic);
    Run { restored_seconds, restored_cpu_seconds, peak_mib, bytes, ..Run::default() }
}

/// Lets a process end in its own way, so that it leaves the group.
fn terminate(process: &mut Child) {
    let sent = Command::new("kill").arg(process.id().to_string()).status();
    assert!(sent.expect("kill runs").success());
    process.wait().expect("it ended");
}

/// Returns the bytes of keys and values of a contender's records for each turn, by topic.
fn sizes(
    site: &Site<'_>,
    contender: Contender,
    prefix: &str,
    turns: usize,
) -> Vec<(&'static str, f64)> {
    let of = |topic: &&'static str| {
        let mut bytes = 0;
        let watch = Watch::begin(site.bootstrap, &format!("{prefix}{topic}"), PARTITIONS);
        watch.take_all(|key, value| bytes += key + value.len());
        (*topic, bytes as f64 / turns as f64)
    };
    contender.topics().iter().map(of).collect()
}

/// Measures a contender while turns come at a rate that all contenders can keep.
fn at_rate(site: &Site<'_>, contender: Contender, prefix: &str) -> Run {
    let watch = Watch::begin(site.bootstrap, &format!("{prefix}responses"), PARTITIONS);
    let turns = format!("{prefix}turns");
    let mut process = contender.start(site, prefix, &turns);
    let sent = Mutex::new(HashMap::new());
    let (warm, all) = (RATE * WARM_SECONDS, RATE * (WARM_SECONDS + SECONDS));
    let (mut took, mut used) = (Vec::new(), 0.0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let sender = Sender::new(site.bootstrap);
            let begun = Instant::now();
            for at in 0..all {
                let due = Duration::from_secs_f64(at as f64 / RATE as f64);
                std::thread::sleep(due.saturating_sub(begun.elapsed()));
                sent.lock().expect("nobody panics").insert(turn_id(at), Instant::now());
                sender.send(&turns, at, all / LENGTH);
                sender.0.poll(Duration::ZERO);
            }
            sender.0.flush(Duration::from_secs(60)).expect("delivered");
        });
        drop(latencies(&watch, &sent, warm));
        used -= usage(process.id()).0;
        took = latencies(&watch, &sent, all - warm);
    });
    let (now_used, peak_mib) = usage(process.id());
    process.kill().expect("it is running");
    process.wait().expect("it ended");
    took.sort_by(f64::total_cmp);
    let at = |share: usize| took[(took.len() * share / 100).min(took.len() - 1)];
    Run {
        rate: RATE as f64,
        per_cpu_second: took.len() as f64 / (used + now_used).max(0.01),
        peak_mib,
        p50_ms: at(50),
        p99_ms: at(99),
        ..Run::default()
    }
}

fn turn_id(at: usize) -> String {
    format!("turn-{at:06}")
}

struct Sender(BaseProducer);

impl Sender {
    fn new(bootstrap: &str) -> Self {
        let mut settings = ClientConfig::new();
        settings.set("bootstrap.servers", bootstrap).set("linger.ms", "1");
        Self(settings.create().expect("a producer"))
    }

    /// Sends a turn; `conversations` conversations speak in rotation.
    fn send(&self, topic: &str, at: usize, conversations: usize) {
        self.send_to(topic, None, at, conversations);
    }

    /// Sends a turn to a partition, instead of the one of its conversation.
    fn send_to(&self, topic: &str, partition: Option<i32>, at: usize, conversations: usize) {
        let conversation = format!("conversation-{:05}", at % conversations);
        let text = TEXTS.with(|texts| texts[(at / conversations + at) % texts.len()].clone());
        let turn = serde_json::json!({
            "conversation_id": conversation, "turn_id": turn_id(at), "speaker": "user", "text": text,
        });
        let turn = turn.to_string();
        let mut record = BaseRecord::to(topic).key(&conversation).payload(&turn);
        record.partition = partition;
        while let Err((_, back)) = self.0.send(record) {
            record = back;
            self.0.poll(Duration::from_millis(5));
        }
    }
}

thread_local! {
    static TEXTS: Vec<String> = DIALOGUES
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|turn| turn["speaker"] == "user")
        .filter_map(|turn| Some(turn["text"].as_str()?.to_owned()))
        .collect();
}

/// Returns a number that the environment may set.
fn number(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect("a whole number"))
}
