//! Measures the graph alone: the look-ups of fact retrieval with eight queries and eight topics,
//! with and without hubs, and concept linking.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use turnstream_knowledge::language::Lexicon;
use turnstream_knowledge::linking::{KeptLinks, LinkingConfig, link};
use turnstream_knowledge::{ConceptId, Graph};
use turnstream_operators::fact_retrieval::{DemandedConcepts, FactRetrievalConfig, retrieval_sets};

mod scenes;

/// The number of queries, and of topics.
const DEMANDED: usize = 8;

/// Returns two demands: the concepts with the most facts, and concepts from the middle of those
/// that a dialogue is likely to name.
fn demands(graph: &Graph) -> [(&'static str, DemandedConcepts); 2] {
    let mut concepts: Vec<ConceptId> = graph.concepts().collect();
    concepts.sort_by_key(|concept| (std::cmp::Reverse(graph.degree(*concept)), concept.0));
    let demand = |first: usize, step: usize| {
        let chosen = |offset: usize| -> BTreeMap<ConceptId, f64> {
            let places = (0..DEMANDED).map(|at| first + offset + at * 2 * step);
            places.map(|place| (concepts[place], 1.0)).collect()
        };
        DemandedConcepts { queries: chosen(0), topics: chosen(step) }
    };
    [("hubs_8x8", demand(0, 1)), ("ordinary_8x8", demand(2_000, 50))]
}

fn lookup(criterion: &mut Criterion) {
    let graph = &*scenes::GRAPH;
    let most = FactRetrievalConfig::default().max_neighbours_per_concept as usize;
    let mut group = criterion.benchmark_group("knowledge/lookup");
    for (slug, demand) in demands(graph) {
        let degrees = demand.queries.keys().chain(demand.topics.keys());
        let degrees: Vec<_> = degrees.map(|concept| graph.degree(*concept)).collect();
        let (foreseen, unforeseen) = retrieval_sets(&demand, graph.view(), most);
        eprintln!(
            "{slug}: degrees {degrees:?}; {} foreseen and {} unforeseen facts",
            foreseen.len(),
            unforeseen.len()
        );
        group.bench_with_input(BenchmarkId::new("foreseen", slug), &demand, |bench, demand| {
            bench.iter(|| {
                let mut facts = 0;
                for query in demand.queries.keys() {
                    for topic in demand.topics.keys() {
                        facts += graph.facts_between(*query, *topic).count();
                        facts += graph.facts_between(*topic, *query).count();
                    }
                }
                black_box(facts)
            });
        });
        group.bench_with_input(BenchmarkId::new("both_sets", slug), &demand, |bench, demand| {
            bench.iter(|| black_box(retrieval_sets(demand, graph.view(), most)));
        });
    }
    group.finish();
}

fn linking(criterion: &mut Criterion) {
    let graph = &*scenes::GRAPH;
    let config = LinkingConfig::default();
    let texts: Vec<_> = scenes::turns().into_iter().map(|turn| turn.text).collect();
    let mut group = criterion.benchmark_group("knowledge/linking");
    group.throughput(Throughput::Elements(texts.len() as u64));
    group.bench_with_input(BenchmarkId::from_parameter("utterances"), &texts, |bench, texts| {
        bench.iter(|| {
            for text in texts {
                black_box(link(graph.view(), [(Lexicon::english(), text.as_str())], &config));
            }
        });
    });
    // As a dialogue's utterances come again.
    let kept = KeptLinks::new(config.clone());
    group.bench_with_input(BenchmarkId::from_parameter("again"), &texts, |bench, texts| {
        bench.iter(|| {
            for text in texts {
                let said = [(Lexicon::english(), text.as_str())];
                black_box(kept.link(graph.view(), 0, said));
            }
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3));
    targets = lookup, linking
}
criterion_main!(benches);
