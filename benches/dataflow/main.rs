//! Measures the dataflow without a model, beside a bare timely loop with the same exchanges.
//!
//! Each iteration starts the workers, puts 10,000 turns of 1,000 conversations through, at most
//! [`IN_FLIGHT`] at a time, and drains. The contenders:
//!
//! - `bare_loop`: source, exchange by conversation, one turn of a conversation at a time with
//!   feedback, sink; it moves the same bytes and never reads them.
//! - `engine_gate_closed`: from the workers' inlets to their outlets, with the generator `none`, no
//!   facts and a gate that never passes: JSON in, history with its updates, the gate's linking with
//!   nothing to find, JSON out. No log and no committer.
//! - `engine`: the same with a gate that always passes, so that turns go through every stage.
//! - `engine_embedded_log`: the same as a process runs it, from an embedded log in memory into
//!   transactions on it.
//! - `engine_shipped_graph`: as `engine`, with the shipped graph, so that the stages do their work.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{
    BatchSize, BenchmarkGroup, BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group,
    criterion_main,
};
use crossbeam_channel::Receiver;
use turnstream_engine::commit::Report;
use turnstream_engine::config::Config;
use turnstream_engine::dependencies::Dependencies;
use turnstream_engine::serve::serve;
use turnstream_engine::worker::{Inlets, Workers};
use turnstream_knowledge::{Graph, ImportedFact};
use turnstream_log::embedded::{EmbeddedConfig, EmbeddedLog, Message};
use turnstream_log::{Ends, Topic};
use turnstream_operators::flow::Original;
use turnstream_operators::generation::Generator;
use turnstream_operators::ingest::{Input, InputRecord};
use turnstream_schemas::Speaker;

mod bare_loop;
#[path = "../scenes.rs"]
mod scenes;

const CONVERSATIONS: usize = 1_000;
const TURNS_EACH: usize = 10;
const PARTITIONS: usize = 4;

/// The most turns in flight.
const IN_FLIGHT: usize = 4_000;

/// A turn as the log holds it: partition, key and value, in log order.
type Sent = (usize, Vec<u8>, Vec<u8>);

/// Returns the turns: the conversations speak in rotation, with the utterances of users in the
/// dialogues.
fn records(conversations: usize) -> Vec<Sent> {
    let turns = scenes::turns();
    let said: Vec<_> =
        turns.iter().filter(|turn| turn.speaker == Speaker::User).map(|turn| &turn.text).collect();
    let record = |round: usize, number: usize| {
        let key = format!("talk-{number}");
        let turn = serde_json::json!({
            "conversation_id": key, "speaker": "user",
            "text": said[(number * 7 + round) % said.len()],
        });
        (number % PARTITIONS, key.into_bytes(), turn.to_string().into_bytes())
    };
    (0..TURNS_EACH)
        .flat_map(|round| (0..conversations).map(move |number| (round, number)))
        .map(|(round, number)| record(round, number))
        .collect()
}

/// Returns the batches of one partition that the consumer would hand to the workers.
fn batches(records: &[Sent]) -> Vec<(i32, Vec<Input>)> {
    let mut offsets = [0; PARTITIONS];
    let mut batches = Vec::new();
    for chunk in records.chunks(1_000) {
        let mut of: [Vec<Input>; PARTITIONS] = Default::default();
        for (partition, key, value) in chunk {
            let original = Original {
                key: Some(key.clone()),
                value: Some(value.clone()),
                headers: Vec::new(),
                time_ms: Some(1_700_000_000_000),
            };
            of[*partition].push(Input::Record(InputRecord {
                partition: *partition as i32,
                generation: 1,
                offset: offsets[*partition],
                original,
                ..InputRecord::default()
            }));
            offsets[*partition] += 1;
        }
        batches.extend((0..).zip(of));
    }
    batches
}

/// Returns the engine's dependencies: the generator `none`, and a gate that passes every turn (0)
/// or none (1).
fn dependencies(graph: &Arc<Graph>, threshold: f64) -> Dependencies {
    let mut config = Config::default();
    config.generation.generator = Generator::None;
    config.gate.threshold = threshold;
    Dependencies { timings: false, ..Dependencies::with_graph(config, Arc::clone(graph)) }
}

/// Makes one pass of the workers over the batches.
fn pass(dependencies: &Dependencies, workers: usize, batches: Vec<(i32, Vec<Input>)>) {
    let (outlet, ended) = crossbeam_channel::unbounded();
    let workers = Workers::start(workers, dependencies, &outlet).expect("workers");
    drop(outlet);
    let (mut sent, mut done) = (0, 0);
    for (partition, inputs) in batches {
        sent += inputs.len();
        workers.send(partition, inputs).expect("a worker");
        while sent - done > IN_FLIGHT {
            done += count(&ended);
        }
    }
    workers.drain(None).expect("a clean end");
    done += ended.into_iter().map(|report| inputs_of(&report)).sum::<usize>();
    assert_eq!(done, sent, "every input ends");
}

fn count(ended: &Receiver<Report>) -> usize {
    inputs_of(&ended.recv().expect("an outcome"))
}

fn inputs_of(report: &Report) -> usize {
    match report {
        Report::Ended(ended) => ended.offsets.len(),
        _ => 0,
    }
}

/// Returns a log that holds the records and gets no more.
fn filled(records: &[Sent]) -> EmbeddedLog {
    let partitions = i32::try_from(PARTITIONS).expect("few");
    let config = EmbeddedConfig { partitions, ..EmbeddedConfig::default() };
    let log = EmbeddedLog::in_memory(&config).expect("a log");
    for (partition, key, value) in records {
        let message = Message {
            key: Some(key.clone()),
            value: Some(value.clone()),
            headers: Vec::new(),
            time_ms: Some(1_700_000_000_000),
        };
        log.append(Topic::Turns, *partition as i32, message).expect("appended");
    }
    log.seal(Topic::Turns);
    log
}

fn serve_log(dependencies: &Dependencies, workers: usize, log: &EmbeddedLog) -> u64 {
    let consumer = log.consumer("bench", Topic::Turns).expect("a consumer");
    let producer = log.producer(&consumer, "bench").expect("a producer");
    let ends = Ends::new(consumer, producer);
    serve(ends, dependencies, workers, &AtomicBool::new(false)).expect("served").tally.responses
}

fn dataflow(criterion: &mut Criterion) {
    let records = records(CONVERSATIONS);
    let turns = records.len() as u64;
    // One fact that no turn names, since a graph must not be empty.
    let nothing = Graph::from_facts([ImportedFact::new("xyzzy", "RelatedTo", "plugh", 1.0)]);
    let nothing = Arc::new(nothing);
    let (alone, closed) = (dependencies(&nothing, 0.0), dependencies(&nothing, 1.0));
    let mut group = criterion.benchmark_group("dataflow");
    group.sampling_mode(SamplingMode::Flat).throughput(Throughput::Elements(turns));
    for workers in [1, 2] {
        let slug = format!("{workers}_workers");
        group.bench_function(BenchmarkId::new("bare_loop", &slug), |bench| {
            let setup = || bare_loop::batches(&records);
            let pass = |batches| bare_loop::pass(workers, IN_FLIGHT, batches);
            bench.iter_batched(setup, pass, BatchSize::PerIteration);
        });
        engine(&mut group, ("engine_gate_closed", &slug), (&closed, workers), &records);
        engine(&mut group, ("engine", &slug), (&alone, workers), &records);
        group.bench_function(BenchmarkId::new("engine_embedded_log", &slug), |bench| {
            let routine = |log| assert_eq!(serve_log(&alone, workers, &log), turns);
            bench.iter_batched(|| filled(&records), routine, BatchSize::PerIteration);
        });
    }
    // Ten times fewer turns, since here the stages have work to do.
    let records = crate::records(CONVERSATIONS / 10);
    let dependencies = dependencies(&scenes::GRAPH, 0.0);
    group.throughput(Throughput::Elements(records.len() as u64));
    for workers in [1, 2] {
        let slug = format!("{workers}_workers");
        engine(&mut group, ("engine_shipped_graph", &slug), (&dependencies, workers), &records);
    }
    group.finish();
}

fn engine(
    group: &mut BenchmarkGroup<'_, WallTime>,
    (name, slug): (&str, &str),
    (dependencies, workers): (&Dependencies, usize),
    records: &[Sent],
) {
    group.bench_function(BenchmarkId::new(name, slug), |bench| {
        let routine = |batches| pass(dependencies, workers, batches);
        bench.iter_batched(|| batches(records), routine, BatchSize::PerIteration);
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(5));
    targets = dataflow
}
criterion_main!(benches);
