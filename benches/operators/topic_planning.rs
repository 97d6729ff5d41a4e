//! Measures topic planning: maintained and extended topics.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use turnstream_operators::topic_planning::{TopicPlanningConfig, plan};

use crate::scenes;

/// Serves every user turn of the dialogues in one iteration.
pub(crate) fn bench(criterion: &mut Criterion) {
    let turns = scenes::gated();
    let config = TopicPlanningConfig::default();
    let mut group = criterion.benchmark_group("operators/topic_planning");
    group.throughput(Throughput::Elements(turns.len() as u64));
    group.bench_with_input(BenchmarkId::from_parameter("dialogues"), &turns, |bench, turns| {
        bench.iter(|| {
            for turn in turns {
                black_box(plan(turn, scenes::GRAPH.view(), &config));
            }
        });
    });
    group.finish();
}
