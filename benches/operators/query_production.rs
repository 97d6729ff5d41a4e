//! Measures query production: explicit and implicit queries.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use turnstream_operators::query_production::{QueryProductionConfig, produce};

use crate::scenes;

/// Serves every user turn of the dialogues in one iteration.
pub(crate) fn bench(criterion: &mut Criterion) {
    let turns = scenes::gated();
    let config = QueryProductionConfig::default();
    let mut group = criterion.benchmark_group("operators/query_production");
    group.throughput(Throughput::Elements(turns.len() as u64));
    group.bench_with_input(BenchmarkId::from_parameter("dialogues"), &turns, |bench, turns| {
        bench.iter(|| {
            for turn in turns {
                black_box(produce(turn, scenes::GRAPH.view(), None, &config));
            }
        });
    });
    group.finish();
}
