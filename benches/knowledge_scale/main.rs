//! Measures look-ups on a graph of ConceptNet's full size, with no, 10,000 and 100,000 live changes
//! beside it, on one worker and on two; next to adjacency lists in a hash map, and to SQLite.
//!
//! A demand has 8 queries and 8 topics, hubs among them. `foreseen` looks up the facts between them
//! in both directions; `both_sets` does what fact retrieval does: foreseen and unforeseen facts,
//! hubs cut. The second look-up of the others returns the neighbours alone, neither sorted nor told
//! apart, which is less work.
//!
//! Criterion gives means; the tables before them give p50 and p99 of single look-ups. The graph is
//! made once and kept in the target folder; `TURNSTREAM_SCALE_SNAPSHOT` names another.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use timely::worker::Worker;
use turnstream_knowledge::phrasings::Phrasings;
use turnstream_knowledge::{Changes, Graph, Knowledge, View};
use turnstream_lab::generate::{GenerateOptions, generate};
use turnstream_operators::fact_retrieval::{DemandedConcepts, FactRetrievalConfig, retrieval_sets};
use turnstream_sources::knowledge::{Progress, SourceFile, import_sorted};

mod contenders;
mod demands;

use contenders::{HashMaps, Sqlite};
use demands::Draw;

/// Different demands, asked in turn.
const DEMANDS: usize = 1_000;
/// Look-ups in a table's row.
const LOOKUPS: usize = 20_000;
/// SQLite's look-ups: few, since it is slow.
const SQLITE_LOOKUPS: usize = 2_000;
/// The numbers of live changes, one for each row.
const CHANGES: [usize; 3] = [0, 10_000, 100_000];

fn main() {
    let graph = Arc::new(graph());
    let stats = graph.stats();
    eprintln!("{} facts, {} concepts", stats.facts, stats.concepts);
    let demands: Arc<Vec<DemandedConcepts>> = {
        let mut draw = Draw::new(&graph, 1);
        Arc::new((0..DEMANDS).map(|_| draw.demand()).collect())
    };
    eprintln!("\n{:<34}{:>10}{:>10}{:>10}", "microseconds", "p50", "p99", "facts");
    others(&graph, &demands);
    for workers in [1, 2] {
        for changes in CHANGES {
            on_workers(workers, changes, &graph, &demands);
        }
    }
    means(graph, demands);
}

/// A look-up, which returns the number of facts that it found.
type LookUp = fn(View<'_>, &DemandedConcepts) -> usize;

/// Returns how many of a concept's strongest facts are taken in each direction.
fn most() -> usize {
    FactRetrievalConfig::default().max_neighbours_per_concept as usize
}

/// Returns the graph of full size.
fn graph() -> Graph {
    if let Some(path) = std::env::var_os("TURNSTREAM_SCALE_SNAPSHOT") {
        return Graph::open(Path::new(&path)).expect("the snapshot");
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let snapshot = folder.join("scale.snapshot");
    if let Ok(graph) = Graph::open(&snapshot) {
        return graph;
    }
    let file = folder.join("scale.csv.gz");
    generate(&file, &GenerateOptions::default(), Progress::for_stderr()).expect("generated");
    let files = [SourceFile::new(file)];
    import_sorted(&files, &snapshot, 512 << 20, Progress::for_stderr()).expect("imported").0
}

fn foreseen(view: View<'_>, demand: &DemandedConcepts) -> usize {
    let mut facts = 0;
    for query in demand.queries.keys() {
        for topic in demand.topics.keys() {
            facts += view.facts_between(*query, *topic).count();
            facts += view.facts_between(*topic, *query).count();
        }
    }
    facts
}

fn both_sets(view: View<'_>, demand: &DemandedConcepts) -> usize {
    let (foreseen, unforeseen) = retrieval_sets(demand, view, most());
    foreseen.len() + unforeseen.len()
}

/// Times single look-ups, and returns their row of the table.
fn row(
    demands: &[DemandedConcepts],
    count: usize,
    look: impl Fn(&DemandedConcepts) -> usize,
) -> String {
    let mut facts = 0;
    let mut nanoseconds: Vec<u128> = (0..count)
        .map(|at| {
            let begun = Instant::now();
            facts += black_box(look(&demands[at % demands.len()]));
            begun.elapsed().as_nanos()
        })
        .collect();
    nanoseconds.sort_unstable();
    let at = |percent: usize| nanoseconds[(count - 1) * percent / 100] as f64 / 1_000.0;
    format!("{:>10.1}{:>10.1}{:>10.1}", at(50), at(99), facts as f64 / count as f64)
}

/// Measures the hash map and SQLite, on the graph without changes.
fn others(graph: &Graph, demands: &[DemandedConcepts]) {
    let maps = HashMaps::of(graph);
    let sqlite = Sqlite::of(graph).expect("a database");
    for demand in demands.iter().take(50) {
        let expected = foreseen(graph.view(), demand);
        assert_eq!(maps.foreseen(demand), expected, "all find the same");
        assert_eq!(sqlite.foreseen(demand).expect("rows"), expected);
        let near = maps.neighbours(demand, most());
        assert_eq!(sqlite.neighbours(demand, most()).expect("rows"), near);
    }
    let of_maps = |demand: &DemandedConcepts| maps.foreseen(demand);
    eprintln!("{:<34}{}", "hash map, foreseen", row(demands, SQLITE_LOOKUPS, of_maps));
    let of_maps = |demand: &DemandedConcepts| maps.neighbours(demand, most());
    eprintln!("{:<34}{}", "hash map, neighbours", row(demands, LOOKUPS, of_maps));
    let of_sqlite = |demand: &DemandedConcepts| sqlite.foreseen(demand).expect("rows");
    eprintln!("{:<34}{}", "SQLite, foreseen", row(demands, SQLITE_LOOKUPS, of_sqlite));
    let of_sqlite = |demand: &DemandedConcepts| sqlite.neighbours(demand, most()).expect("rows");
    eprintln!("{:<34}{}", "SQLite, neighbours", row(demands, SQLITE_LOOKUPS, of_sqlite));
}

/// Returns the knowledge of a worker with `changes` live changes.
fn learned(worker: &mut Worker, graph: &Arc<Graph>, changes: usize) -> Knowledge {
    let knowledge = Knowledge::new(Arc::clone(graph), Phrasings::default());
    let (inlet, inbox) = crossbeam_channel::unbounded();
    let counts = Arc::default();
    let waker = worker.dataflow(|scope| knowledge.follow(scope, inbox, counts));
    if worker.index() == 0 {
        let mut changes = Draw::new(graph, 2).changes(changes);
        let mut sent = 0;
        // In batches, as from a topic; the last ones are small.
        while !changes.is_empty() {
            let batch = if changes.len() > 500 { 500 } else { 10 };
            let rest = changes.split_off(batch.min(changes.len()));
            sent += changes.len() as i64;
            let offsets = [(0, sent)].into();
            inlet.send(Changes { changes, offsets, ..Changes::default() }).expect("a worker");
            changes = rest;
        }
    }
    drop(inlet);
    waker.activate().expect("a worker");
    let complete = |knowledge: &Knowledge| {
        knowledge.now().state().offsets.get(&0).copied().unwrap_or(0) >= changes as i64
    };
    while !complete(&knowledge) {
        worker.step();
        knowledge.settle();
    }
    knowledge
}

fn on_workers(
    workers: usize,
    changes: usize,
    graph: &Arc<Graph>,
    demands: &Arc<Vec<DemandedConcepts>>,
) {
    let (graph, demands) = (Arc::clone(graph), Arc::clone(demands));
    let guards = timely::execute(timely::Config::process(workers), move |worker| {
        let knowledge = learned(worker, &graph, changes);
        let now = knowledge.now();
        let look = |what: LookUp| {
            row(&demands, LOOKUPS, |demand| knowledge.at(&now, |view| what(view, demand)))
        };
        [look(foreseen), look(both_sets)]
    });
    let rows = guards.expect("workers").join();
    for (index, rows) in rows.into_iter().enumerate() {
        for (name, row) in ["foreseen", "both sets"].into_iter().zip(rows.expect("rows")) {
            let who = format!("{changes} changes, worker {} of {workers}, {name}", index + 1);
            eprintln!("{who:<44}{row}");
        }
    }
}

/// Measures criterion's means, on one worker.
fn means(graph: Arc<Graph>, demands: Arc<Vec<DemandedConcepts>>) {
    timely::execute_directly(move |worker| {
        let mut criterion = Criterion::default()
            .sample_size(20)
            .warm_up_time(Duration::from_secs(1))
            .measurement_time(Duration::from_secs(3))
            .configure_from_args();
        let mut group = criterion.benchmark_group("knowledge_scale");
        for changes in CHANGES {
            let knowledge = learned(worker, &graph, changes);
            let now = knowledge.now();
            let looks: [(&str, LookUp); 2] = [("foreseen", foreseen), ("both_sets", both_sets)];
            for (name, look) in looks {
                let mut at = 0;
                group.bench_function(BenchmarkId::new(name, changes), |bench| {
                    bench.iter(|| {
                        at = (at + 1) % demands.len();
                        knowledge.at(&now, |view| black_box(look(view, &demands[at])))
                    });
                });
            }
        }
        group.finish();
        criterion.final_summary();
    });
}
