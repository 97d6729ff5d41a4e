//! Measures the memory of scopes while they are busy, and their room in the cache when they are
//! idle.

use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Receiver;
use turnstream_engine::cache::DiskCache;
use turnstream_engine::commit::Report;
use turnstream_engine::config::Config;
use turnstream_engine::dependencies::Dependencies;
use turnstream_engine::worker::{Inlets, Workers};
use turnstream_knowledge::{Graph, ImportedFact};
use turnstream_log::Topic;
use turnstream_operators::flow::Original;
use turnstream_operators::generation::Generator;
use turnstream_operators::ingest::{Input, InputRecord};
use turnstream_schemas::Response;

use crate::memory::{Peak, Resident};

const PARTITIONS: usize = 4;
const IN_FLIGHT: usize = 4_000;
/// Turns per scope.
const ENTRIES: usize = 4;

/// Returns the dependencies of an engine without facts, whose gate never passes and whose generator
/// is `none`.
pub(crate) fn dependencies() -> Dependencies {
    let mut config = Config::default();
    config.generation.generator = Generator::None;
    config.gate.threshold = 1.0;
    let nothing = [ImportedFact::new("xyzzy", "RelatedTo", "plugh", 1.0)];
    let graph = Arc::new(Graph::from_facts(nothing));
    Dependencies { timings: false, ..Dependencies::with_graph(config, graph) }
}

/// Workers with a client.
struct Served {
    workers: Workers,
    ended: Receiver<Report>,
    next_offset: [i64; PARTITIONS],
    in_flight: usize,
    /// Entries that responses recalled.
    recalled: usize,
}

impl Served {
    fn start(dependencies: &Dependencies) -> Self {
        let (outlet, ended) = crossbeam_channel::unbounded();
        let workers = Workers::start(1, dependencies, &outlet).expect("workers");
        for partition in 0..PARTITIONS as i32 {
            dependencies.cache.begin(partition, 1).expect("a cache");
            let assigned = Input::Assigned { partition, generation: 1 };
            workers.send(partition, vec![assigned]).expect("a worker");
        }
        Self { workers, ended, next_offset: [0; PARTITIONS], in_flight: 0, recalled: 0 }
    }

    fn turn(&mut self, scope: usize) {
        let partition = scope % PARTITIONS;
        let offset = self.next_offset[partition];
        self.next_offset[partition] += 1;
        let value = format!(
            r#"{{"conversation_id":"conversation-{scope:08}","speaker":"user",
            "text":"And what about the parcel number {offset} that I sent to my aunt in May?"}}"#
        );
        let original = Original { value: Some(value.into_bytes()), ..Original::default() };
        let partition = partition as i32;
        let record =
            InputRecord { partition, generation: 1, offset, original, ..InputRecord::default() };
        self.workers.send(partition, vec![Input::Record(record)]).expect("a worker");
        self.in_flight += 1;
        self.wait(IN_FLIGHT);
    }

    /// Waits until at most `in_flight` turns are in flight.
    fn wait(&mut self, in_flight: usize) {
        while self.in_flight > in_flight {
            let Report::Ended(ended) = self.ended.recv().expect("an outcome") else { continue };
            self.in_flight -= ended.offsets.len();
            for output in ended.outputs.iter().filter(|output| output.topic == Topic::Responses) {
                let value = output.value.as_deref().unwrap_or_default();
                let response: Response = serde_json::from_slice(value).expect("a response");
                self.recalled += response.history.len();
            }
        }
    }
}

/// Returns the bytes of the process's own memory per scope.
fn per(scopes: usize, after: Resident, before: Resident) -> f64 {
    after.anon.saturating_sub(before.anon) as f64 * 1024.0 / scopes as f64
}

/// Measures the memory of a scope with four entries, and the part of it beyond the entries: an
/// entry takes what each of four further ones adds.
pub(crate) fn stay() {
    let scopes = crate::number(crate::SCOPES, 1_000_000);
    let mut dependencies = dependencies();
    let config = Arc::make_mut(&mut dependencies.config);
    config.history.max_scopes_in_memory = usize::MAX;
    config.history.idle_after_seconds = u64::MAX;
    let mut served = Served::start(&dependencies);
    served.turn(0);
    served.wait(0);
    let mut grown = [Resident::now(); 3];
    for now in &mut grown[1..] {
        for scope in (0..ENTRIES).flat_map(|_| 1..=scopes) {
            served.turn(scope);
        }
        served.wait(0);
        *now = Resident::now();
    }
    let [before, four, eight] = grown;
    let (scope, entry) = (per(scopes, four, before), per(scopes, eight, four) / ENTRIES as f64);
    let beyond = scope - ENTRIES as f64 * entry;
    println!(
        "in memory, {scopes} scopes of {ENTRIES} entries: {scope:.0} bytes each; an entry {entry:.0}, \
         beyond its entries {beyond:.0}; {four}"
    );
}

/// Serves four turns of each scope, then another of some.
pub(crate) fn come_and_go() {
    let scopes = crate::number(crate::SCOPES, 1_000_000);
    let folder = crate::folder();
    let cache = Arc::new(DiskCache::open_in(folder.path(), 16 * 1024).expect("a cache"));
    let dependencies = Dependencies { cache, ..dependencies() };
    let most = dependencies.config.history.max_scopes_in_memory;
    println!("idle scopes, at most {most} in memory: {} at the start", Resident::now());
    let mut served = Served::start(&dependencies);
    let (peak, begun) = (Peak::watch(), Instant::now());
    // The turns of a scope follow each other, each when the one before it has ended.
    let at_once = IN_FLIGHT.min(most);
    for begin in (0..scopes).step_by(at_once) {
        let some = begin..scopes.min(begin + at_once);
        for _ in 0..ENTRIES {
            some.clone().for_each(|scope| served.turn(scope));
        }
        if some.end / (scopes / 10).max(1) > begin / (scopes / 10).max(1) {
            println!("    {:>9} scopes: {}", some.end, Resident::now());
        }
    }
    served.wait(0);
    let rate = (ENTRIES * scopes) as f64 / begun.elapsed().as_secs_f64();
    println!("    {rate:.0} turns a second; at most {}", peak.end());
    let recalled = ENTRIES * (ENTRIES - 1) / 2;
    assert_eq!(served.recalled, recalled * scopes, "each turn recalled all before it");
    let begun = Instant::now();
    let again = scopes / 10;
    for number in 0..again {
        served.turn(number * 7_919 % scopes);
    }
    served.wait(0);
    let rate = again as f64 / begun.elapsed().as_secs_f64();
    let recalled = recalled * scopes + ENTRIES * again;
    assert_eq!(served.recalled, recalled, "each recalled its turns");
    println!("    {again} of them came back, {rate:.0} turns a second; {}", Resident::now());
}
