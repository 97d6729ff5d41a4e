//! Measures each stage over the user turns of the dialogues in `benches/dialogues.jsonl` and the
//! shipped graph. One iteration serves every turn once; rates are turns per second.
//!
//! ```text
//! cargo bench --bench operators                  # all stages
//! cargo bench --bench operators -- gate          # one
//! ```

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};

mod cross_revision;
mod fact_retrieval;
mod fact_selection;
mod gate;
mod generation;
mod history;
mod ingest;
mod query_production;
#[path = "../scenes.rs"]
mod scenes;
mod search;
mod texts;
mod topic_planning;

criterion_group! {
    name = stages;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3));
    targets =
        texts::bench,
        ingest::bench,
        history::bench,
        gate::bench,
        search::bench,
        query_production::bench,
        topic_planning::bench,
        cross_revision::bench,
        fact_retrieval::bench,
        fact_selection::bench,
        generation::bench,
}
criterion_main!(stages);
