//! History: recall for a query, and the update with its eviction, in histories of two sizes.

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use turnstream_operators::history::likeness::Signature;
use turnstream_operators::history::similarity::Similarity;
use turnstream_operators::history::{Database, HistoryConfig, Remembering};
use turnstream_schemas::{EventTime, HistoryEntry, InputId, SCHEMA_VERSION, Scope, Speaker, Turn};

use crate::scenes;

/// Entries held: the default, and the most that is planned for.
const SIZES: [usize; 2] = [64, 1_024];

/// One iteration of `recall` recalls for every user turn of the dialogues; one of `update` adds
/// an entry to a full history, which evicts one.
pub(crate) fn bench(criterion: &mut Criterion) {
    let turns: Vec<_> =
        scenes::turns().into_iter().filter(|turn| turn.speaker == Speaker::User).collect();
    let queries: Vec<_> = turns.iter().map(|turn| Signature::of([turn.text.as_str()])).collect();
    let mut group = criterion.benchmark_group("operators/history");
    for entries in SIZES {
        let config = HistoryConfig { max_entries: entries, ..HistoryConfig::default() };
        let similarity = Similarity::by_words();
        let rules = Remembering { config: &config, similarity: &similarity };
        let full = full(&turns, &rules);
        let slug = format!("{entries}_entries");

        group.throughput(Throughput::Elements(queries.len() as u64));
        group.bench_with_input(BenchmarkId::new("recall", &slug), &full, |bench, full| {
            bench.iter(|| {
                for query in &queries {
                    black_box(full.recall(query, &config));
                }
            });
        });

        group.throughput(Throughput::Elements(1));
        group.bench_with_input(BenchmarkId::new("update", &slug), &full, |bench, full| {
            let setup = || (full.clone(), entry(&turns[0], entries));
            let update = |(mut history, entry): (Database, HistoryEntry)| {
                let scope = Scope::new(None, "bench");
                let evicted = history.insert(&scope, entry, &queries[0], &rules).evicted;
                assert_eq!(evicted.len(), 1, "the history was full");
                (history, evicted)
            };
            bench.iter_batched(setup, update, BatchSize::SmallInput);
        });
    }
    group.finish();
}

fn full(turns: &[Turn], rules: &Remembering<'_>) -> Database {
    let mut history = Database::default();
    let scope = Scope::new(None, "bench");
    for (at, turn) in turns.iter().cycle().take(rules.config.max_entries).enumerate() {
        let query = Signature::of([turn.text.as_str()]);
        history.see_time(EventTime(at as i64 * 60_000));
        history.insert(&scope, entry(turn, at), &query, rules);
    }
    history
}

fn entry(turn: &Turn, at: usize) -> HistoryEntry {
    HistoryEntry {
        schema_version: SCHEMA_VERSION,
        input: InputId { topic: "turns".to_owned(), partition: 0, offset: at as i64 },
        query: Some(turn.text.clone()),
        turn_id: format!("{at}").into(),
        user_id: None,
        passages: Vec::new(),
        response: Some("So it is, and that is what it is for.".to_owned()),
        response_turn_id: None,
        event_time: EventTime(at as i64 * 60_000),
        vector: None,
        importance: None,
        extra: serde_json::Map::default(),
    }
}
