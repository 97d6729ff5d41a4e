//! Measures whole-graph search: the cost of an utterance that names no concept of the shipped
//! graph.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion};
use turnstream_knowledge::language::Lexicon;
use turnstream_knowledge::search::{SearchConfig, search};

use crate::scenes::GRAPH;

/// Utterances, each named by what the search finds for it, with the most mentions that it may find.
const UTTERANCES: [(&str, &str, usize); 4] = [
    ("a slip of the pen", "Is there an umbrela?", 1),
    ("a compound", "It was the bridegroom.", 1),
    ("nothing", "A zorblaxian flimflomery, perhaps?", 0),
    (
        "nothing, sixteen words",
        "Zorblaxian, flimflomery, grumbuscule, transcentralise, premulative, contrastible, \
         dispersonate, reconfabule, interpolitary, overstanding, misconducture, subterrain, \
         counterpartisan, antipodalise, superstructual, undermentioner!",
        4,
    ),
];

/// Searches for one utterance in one iteration.
pub(crate) fn bench(criterion: &mut Criterion) {
    let config = SearchConfig::default();
    let mut group = criterion.benchmark_group("operators/search");
    for (name, text, most) in UTTERANCES {
        let once = || search(GRAPH.view(), (0, Lexicon::english(), text), &[], 0.15, &config);
        let found = once().mentions.len();
        assert!(found <= most && (most != 1 || found == 1), "{name}: {found} found");
        group.bench_function(BenchmarkId::from_parameter(name), |bench| {
            bench.iter(|| black_box(once()));
        });
    }
    group.finish();
}
