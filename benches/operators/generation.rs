//! Measures generation: the realiser beside the generator `none`.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use turnstream_operators::generation::{GenerationConfig, Generator, generate};

use crate::scenes;

/// Serves every user turn of the dialogues in one iteration.
pub(crate) fn bench(criterion: &mut Criterion) {
    let turns = scenes::grounded();

    let mut group = criterion.benchmark_group("operators/generation");
    group.throughput(Throughput::Elements(turns.len() as u64));
    for generator in [Generator::Realiser, Generator::None] {
        let config = GenerationConfig { generator, ..GenerationConfig::default() };
        let id = BenchmarkId::from_parameter(generator.name());
        group.bench_with_input(id, &turns, |bench, turns| {
            bench.iter(|| {
                for turn in turns {
                    black_box(generate(turn, scenes::GRAPH.view(), &config));
                }
            });
        });
    }
    group.finish();
}
