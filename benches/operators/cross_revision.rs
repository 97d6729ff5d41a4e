//! Measures cross revision: queries and topics repair each other.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use turnstream_operators::cross_revision::{CrossRevisionConfig, revise};

use crate::scenes;

/// Serves every user turn of the dialogues in one iteration.
pub(crate) fn bench(criterion: &mut Criterion) {
    let turns = scenes::half_demanded();
    let config = CrossRevisionConfig::default();
    let mut group = criterion.benchmark_group("operators/cross_revision");
    group.throughput(Throughput::Elements(turns.len() as u64));
    group.bench_with_input(BenchmarkId::from_parameter("dialogues"), &turns, |bench, turns| {
        bench.iter(|| {
            for turn in turns {
                black_box(revise(turn, scenes::GRAPH.view(), &config));
            }
        });
    });
    group.finish();
}
