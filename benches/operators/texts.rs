//! Measures what several stages read of a text: its terms, words, small talk and vector, and whether
//! it refers back.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use turnstream_knowledge::language::Lexicon;
use turnstream_knowledge::small_talk::{small_talk_in, spoken_words};
use turnstream_knowledge::terms::terms;
use turnstream_models::static_table::StaticTable;
use turnstream_operators::history::similarity::Similarity;

use crate::scenes;

/// Reads every utterance of the dialogues in one iteration.
pub(crate) fn bench(criterion: &mut Criterion) {
    let texts: Vec<String> = scenes::turns().into_iter().map(|turn| turn.text).collect();
    let by_meaning = Similarity::by_meaning(StaticTable::shipped().expect("the table"));
    let english = Lexicon::english();

    let mut group = criterion.benchmark_group("operators/texts");
    group.throughput(Throughput::Elements(texts.len() as u64));
    let mut of_each = |name: &str, read: &dyn Fn(&str)| {
        group.bench_with_input(name, &texts, |bench, texts| {
            bench.iter(|| texts.iter().for_each(|text| read(text)));
        });
    };
    of_each("terms", &|text| drop(black_box(terms(text))));
    of_each("words", &|text| drop(black_box(english.words(text))));
    of_each("refers_back", &|text| {
        black_box(english.refers_back(text));
    });
    of_each("small_talk", &|text| drop(black_box(small_talk_in(text, &spoken_words(text)))));
    of_each("signature", &|text| drop(black_box(by_meaning.of_query(text))));
    group.finish();
}
