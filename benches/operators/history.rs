//! Measures history: recall for a query, and the update with its clusters, chains and eviction, in
//! full histories of four sizes; by words alone, and with precomputed vectors.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use turnstream_models::static_table::StaticTable;
use turnstream_operators::history::likeness::Signature;
use turnstream_operators::history::similarity::Similarity;
use turnstream_operators::history::{Database, HistoryConfig, Remembering};
use turnstream_ports::model::encoder::{EncodeError, Encoded, Encoder};
use turnstream_schemas::{EventTime, HistoryEntry, InputId, SCHEMA_VERSION, Scope, Speaker, Turn};

use crate::scenes;

/// The numbers of held entries, from the default to more than planned for.
const SIZES: [usize; 4] = [64, 256, 1_024, 4_096];

/// The response to every turn.
const RESPONSE: &str = "So it is, and that is what it is for.";

/// Vectors that the static table gave beforehand, so that only the history is measured.
struct Precomputed {
    table: Arc<StaticTable>,
    vectors: HashMap<String, Vec<f32>>,
}

impl Precomputed {
    fn of<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        let table = StaticTable::shipped().expect("the program carries one");
        let vector = |text: &str| {
            let mut vector = Vec::new();
            table.encode(&[text], &mut vector).expect("a table does not fail");
            (text.to_owned(), vector)
        };
        let vectors = texts.into_iter().map(vector).collect();
        Self { table: Arc::clone(&table), vectors }
    }
}

impl Encoder for Precomputed {
    fn name(&self) -> &str {
        self.table.name()
    }

    fn fingerprint(&self) -> u64 {
        self.table.fingerprint()
    }

    fn dimensions(&self) -> usize {
        self.table.dimensions()
    }

    fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
        texts.iter().for_each(|text| vectors.extend(&self.vectors[*text]));
        Ok(Encoded::default())
    }
}

/// Recalls for every user turn of the dialogues in one iteration of `recall`; adds an entry to a
/// full history, which evicts one, in one of `update`.
pub(crate) fn bench(criterion: &mut Criterion) {
    let turns: Vec<_> =
        scenes::turns().into_iter().filter(|turn| turn.speaker == Speaker::User).collect();
    let said = turns.iter().map(|turn| turn.text.clone());
    let exchanges = turns.iter().map(|turn| format!("{}\n{RESPONSE}", turn.text));
    let texts: Vec<String> = said.chain(exchanges).collect();
    let precomputed = Precomputed::of(texts.iter().map(String::as_str));
    let similarities = [
        ("words", Similarity::by_words()),
        ("vectors", Similarity::by_meaning(Arc::new(precomputed))),
    ];
    let mut group = criterion.benchmark_group("operators/history");
    for (by, similarity) in &similarities {
        for entries in SIZES {
            let config = HistoryConfig { max_entries: entries, ..HistoryConfig::default() };
            let rules = Remembering { config: &config, similarity };
            let full = full(&turns, &rules);
            let queries: Vec<Signature> =
                turns.iter().map(|turn| similarity.of_query(&turn.text)).collect();
            let slug = format!("{by}/{entries}_entries");

            group.throughput(Throughput::Elements(queries.len() as u64));
            group.bench_with_input(BenchmarkId::new("recall", &slug), &full, |bench, full| {
                bench.iter(|| {
                    for query in &queries {
                        black_box(full.recall(query, &rules));
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
                bench.iter_batched(setup, update, BatchSize::LargeInput);
            });
        }
    }
    group.finish();
}

fn full(turns: &[Turn], rules: &Remembering<'_>) -> Database {
    let mut history = Database::default();
    let scope = Scope::new(None, "bench");
    for (at, turn) in turns.iter().cycle().take(rules.config.max_entries).enumerate() {
        let query = rules.similarity.of_query(&turn.text);
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
        response: Some(RESPONSE.to_owned()),
        response_turn_id: None,
        event_time: EventTime(at as i64 * 60_000),
        vector: None,
        extra: serde_json::Map::default(),
    }
}
