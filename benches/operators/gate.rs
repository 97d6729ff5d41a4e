//! Measures the gate: linking the dialogue's concepts, features, decision.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use turnstream_operators::gate::GateConfig;

use crate::scenes;

/// Serves every user turn of the dialogues in one iteration.
pub(crate) fn bench(criterion: &mut Criterion) {
    let turns = scenes::contexts();
    let config = GateConfig::default();
    let mut group = criterion.benchmark_group("operators/gate");
    group.throughput(Throughput::Elements(turns.len() as u64));
    group.bench_with_input(BenchmarkId::from_parameter("dialogues"), &turns, |bench, turns| {
        bench.iter(|| {
            for turn in turns {
                black_box(scenes::gate(turn, &config));
            }
        });
    });
    group.finish();
}
