//! Measures vector search: arroy's trees beside the exact scan, all items and filtered, at 10,000
//! and 100,000 vectors: recall@10 against the scan, build time and size, then latencies by
//! criterion.
//!
//! ```text
//! cargo bench --bench index
//! TURNSTREAM_BENCH_VECTORS=10000 cargo bench --bench index
//! ```
//!
//! The vectors are those of facts of the shipped pack, evenly spread over it, by the shipped static
//! table; the queries are our own utterances, the same as in `models bench`.

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion};
use heed::{CommitOrAbort, Env, EnvOpenOptions, WithoutTls};
use turnstream_knowledge::verbalise;
use turnstream_lab::bench;
use turnstream_models::static_table::StaticTable;
use turnstream_ports::index::{Found, Search};
use turnstream_ports::model::encoder::Encoder;
use turnstream_sources::index::arroy::TreeTable;
use turnstream_sources::index::{Scan, TreeConfig, Trees, TreesWriter};
use turnstream_sources::knowledge;

const QUERIES: usize = 100;
const LIMIT: usize = 10;
/// The filters by name; every n-th item passes.
const FILTERS: [(&str, u32); 3] = [("50 %", 2), ("10 %", 10), ("0.1 %", 1000)];

fn main() {
    let asked = std::env::var("TURNSTREAM_BENCH_VECTORS");
    let counts = match asked.map(|count| count.parse::<u32>()) {
        Ok(Ok(count)) => vec![count],
        Ok(Err(error)) => panic!("TURNSTREAM_BENCH_VECTORS: {error}; give a number"),
        Err(_) => vec![10_000, 100_000],
    };
    let mut criterion = Criterion::default().configure_from_args();
    for count in counts {
        measure(count, &mut criterion);
    }
    criterion.final_summary();
}

fn measure(count: u32, criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let (vectors, queries) = vectors(count);
    let dimensions = queries[0].len();
    let mut scan = Scan::new(dimensions);
    for (item, vector) in vectors.iter().enumerate() {
        assert!(scan.push(item as u32, vector), "the scan holds every vector");
    }
    let config = TreeConfig::default();
    let (env, table) = environment(folder.path());
    let begun = Instant::now();
    let writer = TreesWriter::new(table, dimensions);
    let mut txn = env.write_txn().expect("a transaction");
    for (item, vector) in vectors.iter().enumerate() {
        writer.put(&mut txn, item as u32, vector).expect("put");
    }
    writer.build(&mut txn, &config).expect("built");
    txn.commit().expect("committed");
    let bytes = std::fs::metadata(folder.path().join("data.mdb")).map_or(0, |file| file.len());
    println!(
        "{count} vectors, {} trees: built in {:.1} s, {:.0} MB",
        config.trees,
        begun.elapsed().as_secs_f64(),
        bytes as f64 / 1e6
    );
    for oversampling in [1, 4] {
        let config = TreeConfig { oversampling, ..config.clone() };
        let trees = Trees::new(env.clone(), table, dimensions, &config, "bench".to_owned());
        let name = format!("trees, oversampling {oversampling}");
        println!("  {name}: recall@{LIMIT} {:.3}", recall(&scan, &trees, &queries, None));
        for (share, every) in FILTERS {
            let candidates: Vec<u32> = (0..count).step_by(every as usize).collect();
            let recall = recall(&scan, &trees, &queries, Some(&candidates));
            println!("  {name}, {share} of the items: recall@{LIMIT} {recall:.3}");
        }
        latencies(criterion, count, &name, &trees, &queries);
    }
    latencies(criterion, count, "scan", &scan, &queries);
}

fn latencies(
    criterion: &mut Criterion,
    count: u32,
    name: &str,
    of: &dyn Search,
    queries: &[Vec<f32>],
) {
    let mut group = criterion.benchmark_group(format!("{count} vectors/{name}"));
    group.sample_size(10);
    let mut at = 0;
    let mut query = || {
        at = (at + 1) % queries.len();
        &queries[at]
    };
    group.bench_function("all", |bencher| {
        bencher.iter(|| black_box(of.search(query(), LIMIT, None).expect("found")));
    });
    for (share, every) in FILTERS {
        let candidates: Vec<u32> = (0..count).step_by(every as usize).collect();
        group.bench_function(BenchmarkId::new("of", share), |bencher| {
            bencher.iter(|| {
                let found = of.search(query(), LIMIT, Some(&candidates));
                black_box(found.expect("found"))
            });
        });
    }
    group.finish();
}

/// Returns the share of the scan's results that the trees find, too.
fn recall(scan: &Scan, trees: &Trees, queries: &[Vec<f32>], candidates: Option<&[u32]>) -> f64 {
    let (mut found, mut all) = (0, 0);
    for query in queries {
        let right = scan.search(query, LIMIT, candidates).expect("scanned");
        let given: Vec<Found> = trees.search(query, LIMIT, candidates).expect("found");
        found += right.iter().filter(|it| given.iter().any(|it2| it2.item == it.item)).count();
        all += right.len();
    }
    found as f64 / all.max(1) as f64
}

/// Returns vectors of facts to hold, and of utterances to search for.
fn vectors(count: u32) -> (Vec<Vec<f32>>, Vec<Vec<f32>>) {
    let table = StaticTable::shipped().expect("the shipped table");
    let graph = knowledge::open(knowledge::PACK_LOCATION).expect("the shipped pack");
    let every = (graph.stats().facts / u64::from(count)).max(1) as usize;
    let facts = graph.facts().step_by(every).take(count as usize);
    let facts: Vec<String> = facts.map(|fact| verbalise(graph.view(), &fact)).collect();
    assert_eq!(facts.len(), count as usize, "the pack has as many facts");
    let encode = |texts: &[&str]| {
        let mut numbers = Vec::new();
        table.encode(texts, &mut numbers).expect("encoded");
        numbers.chunks_exact(table.dimensions()).map(<[f32]>::to_vec).collect::<Vec<_>>()
    };
    let utterances: Vec<&str> = bench::UTTERANCES.lines().take(QUERIES).collect();
    let facts: Vec<&str> = facts.iter().map(String::as_str).collect();
    (encode(&facts), encode(&utterances))
}

#[allow(unsafe_code)]
fn environment(folder: &Path) -> (Env<WithoutTls>, TreeTable) {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(8 << 30).max_dbs(1);
    // SAFETY: the folder is new, and nothing else opens it.
    let env = unsafe { options.open(folder) }.expect("an environment");
    let txn = env.write_txn().expect("a transaction");
    let made = env.create_databases_and_commit(txn, |databases, txn| {
        let table = databases.create_database(txn, Some("vectors"))?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(table))
    });
    let CommitOrAbort::Commit(table) = made.expect("a table") else { panic!("it commits") };
    (env, table)
}
