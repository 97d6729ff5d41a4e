//! Measures the shipped unified model: the requests of a turn about rows of a table, for 1 and 8
//! conversations at once, through the queue that stages use.
//!
//! ```text
//! cargo bench --bench unified
//! ```

#![allow(clippy::print_stdout)] // Memory is printed.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use turnstream_engine::metrics::{Metrics, resident_bytes};
use turnstream_models::unified::UnifiedWeights;
use turnstream_models::{ModelsConfig, Runtime};
use turnstream_operators::tables::Row;
use turnstream_ports::model::reply;
use turnstream_ports::model::unified::{
    EvidenceText, Exchange, Task, Unified, UnifiedAnswer, UnifiedRequest,
};
use turnstream_schemas::SourceKind;

const AT_ONCE: [usize; 2] = [1, 8];
const PLAN: [SourceKind; 1] = [SourceKind::Table];

/// Returns the model without a cache of answers, since the same is asked again and again here.
fn model() -> Arc<Unified> {
    let weights = UnifiedWeights::Shipped;
    let config = ModelsConfig { cache_entries: 0, ..ModelsConfig::default() };
    let before = resident_bytes("VmRSS:");
    let metrics = Metrics::default();
    let unified =
        Runtime::new(&config, metrics.models()).unified(&weights).expect("the unified model");
    ask_all(&*unified, vec![plan(0)]);
    if let (Some(before), Some(after)) = (before, resident_bytes("VmRSS:")) {
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!("memory: {:.1} MiB, with its model {:.1}", mebibytes(before), mebibytes(after));
    }
    unified
}

/// Returns four exchanges; the last question differs by conversation, so that no answer is known.
fn dialogue(conversation: usize) -> Vec<Exchange> {
    let said = |user: &str, response: &str| Exchange {
        user: user.to_owned(),
        response: Some(response.to_owned()),
    };
    vec![
        said("Hi, I am looking for a place to eat tonight.", "Which city are you in?"),
        said("In Fresno, and nothing too dear, please.", "What do you feel like eating?"),
        said("Something with noodles would be lovely.", "How about Lucky Crane? It is moderate."),
        Exchange {
            user: format!("Sounds good. What is the address, we are {conversation} people?"),
            response: None,
        },
    ]
}

fn rows() -> [EvidenceText; 3] {
    ["Lucky Crane", "Blue Ladle", "Third Bowl"].map(|name| {
        let row = serde_json::json!({
            "restaurant_name": name, "city": "Fresno", "cuisine": "Asian", "price_range": "moderate",
            "address": "77 North Palm Avenue", "phone_number": "559-555-0177", "live_music": false
        });
        let Row { columns, text } = Row::of(row.as_object().expect("an object"));
        EvidenceText { kind: SourceKind::Table, text, columns }
    })
}

fn ask_all(unified: &Unified, requests: Vec<Vec<UnifiedRequest>>) -> Vec<Vec<UnifiedAnswer>> {
    let asked: Vec<_> = requests
        .into_iter()
        .map(|requests| {
            let (answers, asked) = reply();
            assert!(unified.ask(requests, answers).is_ok(), "the queue has room");
            asked
        })
        .collect();
    asked.into_iter().map(|asked| asked.wait().expect("answers")).collect()
}

fn plan(conversation: usize) -> Vec<UnifiedRequest> {
    let task = Task::Plan { kinds: PLAN.to_vec() };
    vec![UnifiedRequest { dialogue: dialogue(conversation), task }]
}

fn relevance(conversation: usize) -> Vec<UnifiedRequest> {
    let task = |evidence| Task::Relevance { plan: PLAN.to_vec(), evidence };
    let request =
        |evidence| UnifiedRequest { dialogue: dialogue(conversation), task: task(evidence) };
    rows().map(request).into()
}

fn response(conversation: usize, drafts: u32) -> Vec<UnifiedRequest> {
    let evidence = rows().into_iter().zip([9, 3, 3]).collect();
    let task = Task::Response { plan: PLAN.to_vec(), evidence, max_tokens: 96, drafts };
    vec![UnifiedRequest { dialogue: dialogue(conversation), task }]
}

/// Asks for a plan, or for the relevance of three rows, for each conversation in one iteration; a
/// dialogue is read anew for its plan and is known for the rest.
fn judged(criterion: &mut Criterion) {
    let unified = model();
    for at_once in AT_ONCE {
        let mut group = criterion.benchmark_group("unified");
        group.throughput(Throughput::Elements(at_once as u64));
        let mut next = 1_000;
        group.bench_function(BenchmarkId::new("plan", at_once), |bench| {
            bench.iter(|| {
                next += at_once;
                ask_all(&*unified, (next..next + at_once).map(plan).collect())
            });
        });
        group.bench_function(BenchmarkId::new("relevance", at_once), |bench| {
            bench.iter(|| ask_all(&*unified, (0..at_once).map(relevance).collect()));
        });
        group.finish();
    }
}

/// Asks for a response for each conversation in one iteration; elements are tokens of all drafts.
fn worded(criterion: &mut Criterion) {
    let unified = model();
    for at_once in AT_ONCE {
        let mut group = criterion.benchmark_group("unified/response");
        for drafts in [1, 4] {
            let ask = || ask_all(&*unified, (0..at_once).map(|at| response(at, drafts)).collect());
            let answers = ask().concat();
            let tokens = answers.iter().flat_map(|answer| match answer {
                UnifiedAnswer::Response(drafts) => drafts.as_slice(),
                _ => &[],
            });
            let tokens: u64 = tokens.map(|draft| u64::from(draft.tokens)).sum();
            group.throughput(Throughput::Elements(tokens));
            let id = BenchmarkId::new(format!("drafts_{drafts}"), at_once);
            group.bench_function(id, |bench| bench.iter(|| black_box(ask())));
        }
        group.finish();
    }
}

/// Prints the most memory that the process held, including kept dialogues.
fn memory(_: &mut Criterion) {
    if let Some(most) = resident_bytes("VmHWM:") {
        println!("memory: {:.1} MiB at most", most as f64 / f64::from(1 << 20));
    }
}

criterion_group!(benches, judged, worded, memory);
criterion_main!(benches);
