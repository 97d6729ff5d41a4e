//! Measures fact retrieval: both sets, ranked and cut.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use turnstream_operators::fact_retrieval::{FactRetrievalConfig, Likeness, retrieve};

use crate::scenes;

/// Serves every user turn of the dialogues in one iteration.
pub(crate) fn bench(criterion: &mut Criterion) {
    let turns = scenes::demanded();
    let config = FactRetrievalConfig::default();
    let mut group = criterion.benchmark_group("operators/fact_retrieval");
    group.throughput(Throughput::Elements(turns.len() as u64));
    group.bench_with_input(BenchmarkId::from_parameter("dialogues"), &turns, |bench, turns| {
        bench.iter(|| {
            for turn in turns {
                let means = scenes::GRAPH.view();
                black_box(retrieve(
                    &turn.demand,
                    &Likeness::read(turn, means, None, &config.recency),
                    &config,
                ));
            }
        });
    });
    group.finish();
}
