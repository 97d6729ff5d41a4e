//! Measures sentence encoders and the runtime around them.
//!
//! `encode` measures one thread of MiniLM on the fixed texts of `turnstream models bench`, by
//! batch. It needs MiniLM: `turnstream models pull minilm`.
//!
//! `reading` measures one thread of the reader that ships.
//!
//! `batches` puts turns through a dataflow that asks a model of 20 ms for each batch of up to 32,
//! and prints the share of the ideal rate that the runtime reaches. No model is needed.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use turnstream_lab::bench;
use turnstream_models::{Embedder, ModelsConfig};

mod ideal;
mod reading;

use reading::reading;

fn encode(criterion: &mut Criterion) {
    let config =
        ModelsConfig { embedder: Embedder::from("minilm".to_owned()), ..ModelsConfig::default() };
    let encoder = match turnstream_models::encoder(&config) {
        Ok(Some(encoder)) => encoder,
        Ok(None) => return,
        Err(error) => {
            eprintln!("SKIPPED: {error}");
            return;
        }
    };
    for (kind, texts) in [("facts", bench::FACTS), ("utterances", bench::UTTERANCES)] {
        let texts: Vec<&str> = texts.lines().collect();
        let mut group = criterion.benchmark_group(format!("encode/{kind}"));
        for batch in [1, 8, 32, 128] {
            group.throughput(Throughput::Elements(batch as u64));
            let encoder = Arc::clone(&encoder);
            group.bench_function(batch.to_string(), |bencher| {
                let mut batches = texts.chunks_exact(batch).cycle();
                let mut vectors = Vec::new();
                bencher.iter(|| {
                    vectors.clear();
                    let texts = batches.next().unwrap_or_default();
                    let encoded = encoder.encode(black_box(texts), &mut vectors);
                    black_box(encoded.expect("encodes").tokens)
                });
            });
        }
    }
}

fn batches(_: &mut Criterion) {
    ideal::report();
}

criterion_group!(benches, encode, reading, batches);
criterion_main!(benches);
