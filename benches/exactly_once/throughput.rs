//! The engine on a real Kafka with a generator that says nothing, beside a bare loop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use turnstream_engine::config::Config;
use turnstream_engine::dependencies::Dependencies;
use turnstream_engine::serve::serve as serve_engine;
use turnstream_log::kafka::{self, KafkaConfig, KafkaTopics};
use turnstream_log::{Ends, LogError, Producer, Topic, Transaction};
use turnstream_operators::generation::Generator;

use crate::broker::Broker;
use crate::turns::PARTITIONS;

/// Turns that each process serves.
pub(crate) fn turns() -> usize {
    crate::number("THROUGHPUT_TURNS", 60_000)
}

pub(crate) fn measure(broker: &Broker) {
    let bootstrap = broker.bootstrap();
    println!("{} turns of 10,000 conversations on 8 partitions", turns());
    crate::run("fill", bootstrap);
    for open in [false, true] {
        broker.create_topics(&prefix(open), PARTITIONS);
    }
    for part in ["bare", "bare-three", "engine-gate-closed", "engine"] {
        crate::run(part, bootstrap);
    }
}

/// What the names of an engine's own topics begin with: two engines keep two histories.
fn prefix(open: bool) -> String {
    format!("open-{open}-")
}

/// One line of the result.
pub(crate) fn print(name: &str, turns: usize, took: Duration, mut commits: Vec<Duration>) {
    commits.sort_unstable();
    let at = |share: usize| commits[(commits.len() * share / 100).min(commits.len() - 1)];
    println!(
        "{name}: {turns} turns in {:.2} s, {:.0} a second; {} commits, p50 {:.1} ms, p99 {:.1} ms",
        took.as_secs_f64(),
        turns as f64 / took.as_secs_f64(),
        commits.len(),
        at(50).as_secs_f64() * 1e3,
        at(99).as_secs_f64() * 1e3,
    );
}

/// The engine's producer, with a watch on it.
struct Timed<P> {
    inner: P,
    watch: Arc<Watch>,
}

/// What was seen of the commits.
#[derive(Default)]
struct Watch {
    seen: Mutex<Seen>,
    /// Set once every turn was answered.
    done: AtomicBool,
}

#[derive(Default)]
struct Seen {
    begun: Option<Instant>,
    ended: Option<Instant>,
    served: usize,
    commits: Vec<Duration>,
}

impl<P: Producer> Producer for Timed<P> {
    fn commit(&mut self, transaction: &Transaction) -> Result<(), LogError> {
        let committing = Instant::now();
        self.inner.commit(transaction)?;
        let mut seen = self.watch.seen.lock().expect("one writer");
        // Where the first of them was read cannot be later.
        let interval = Duration::from_millis(50);
        seen.begun.get_or_insert(committing - interval);
        seen.commits.push(committing.elapsed());
        seen.served += transaction
            .outputs
            .iter()
            .filter(|output| matches!(output.topic, Topic::Responses | Topic::Recorded))
            .count();
        if seen.served >= turns() {
            seen.ended = Some(Instant::now());
            self.watch.done.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Serves the topic, with a gate that is open or closed.
pub(crate) fn serve(bootstrap: &str, open: bool) {
    let name = if open { "engine, every stage" } else { "engine, gate closed" };
    let mut config = Config::default();
    config.generation.generator = Generator::None;
    if !open {
        config.gate.threshold = 1.0;
    }
    let log = KafkaConfig {
        bootstrap_servers: bootstrap.to_owned(),
        group_id: format!("engine-{open}"),
        transactional_id: format!("engine-{open}"),
        topics: KafkaTopics {
            turns: Topic::Turns.name().to_owned(),
            responses: prefix(open) + Topic::Responses.name(),
            traces: prefix(open) + Topic::Traces.name(),
            recorded: prefix(open) + Topic::Recorded.name(),
            dead_letters: prefix(open) + Topic::DeadLetters.name(),
            history: prefix(open) + Topic::History.name(),
            knowledge: Topic::Knowledge.name().to_owned(),
            views: Topic::Views.name().to_owned(),
        },
        ..KafkaConfig::default()
    };
    let (consumer, producer) = kafka::connect(&log).expect("a broker");
    let watch = Arc::new(Watch::default());
    let producer = Timed { inner: producer, watch: Arc::clone(&watch) };
    let ends = Ends::new(consumer, producer);
    let dependencies = Dependencies::new(&config).expect("the graph");
    let stop = Arc::clone(&watch);
    serve_engine(ends, &dependencies, 1, &stop.done).expect("served");
    let seen = std::mem::take(&mut *watch.seen.lock().expect("nobody writes"));
    let (begun, ended) = (seen.begun.expect("begun"), seen.ended.expect("ended"));
    print(name, seen.served, ended - begun, seen.commits);
}
