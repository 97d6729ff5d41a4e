//! Measures fact selection: up to twenty facts, diverse.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use turnstream_operators::fact_selection::{FactSelectionConfig, select};

use crate::scenes;

/// Serves every user turn of the dialogues in one iteration.
pub(crate) fn bench(criterion: &mut Criterion) {
    let turns = scenes::retrieved();
    let config = FactSelectionConfig::default();
    let mut group = criterion.benchmark_group("operators/fact_selection");
    group.throughput(Throughput::Elements(turns.len() as u64));
    group.bench_with_input(BenchmarkId::from_parameter("dialogues"), &turns, |bench, turns| {
        bench.iter(|| {
            for turn in turns {
                black_box(select(&turn.candidates, &config));
            }
        });
    });
    group.finish();
}
