//! One thread of the reader that ships: a turn with two turns before it and four sections of
//! `tests/companies/campsite`, as the decision asks for them. `new` reads all texts for the first
//! time, `known` sections that were read before with a turn that was not.

use std::hint::black_box;

use criterion::{BatchSize, Criterion};
use turnstream_models::batch::Backend;
use turnstream_models::reader::{AnswerReader, ReaderBackend};
use turnstream_ports::model::reader::{Question, ReadRequest, Section};

const PAGE: &str = include_str!("../../tests/companies/campsite/docs/arrival.md");

pub(super) fn reading(criterion: &mut Criterion) {
    let reader = ReaderBackend(AnswerReader::shipped().expect("the reader ships"));
    let mut group = criterion.benchmark_group("reading");
    let mut turns = 0_u32;
    for (name, known) in [("new", false), ("known", true)] {
        group.bench_function(name, |bencher| {
            let request = || {
                turns += 1;
                request(turns, known)
            };
            let read = |request: ReadRequest| black_box(reader.run(&[request]).expect("reads"));
            bencher.iter_batched(request, read, BatchSize::SmallInput);
        });
    }
    group.finish();
}

/// The request of a turn: its number makes its text new, and its sections too if they are not known.
fn request(turn: u32, known: bool) -> ReadRequest {
    let section = |text: &str| {
        let (heading, rest) = text.split_once('\n').unwrap_or_default();
        let title = if known { heading.to_owned() } else { format!("{heading} {turn}") };
        Section {
            title,
            sentences: rest.split_inclusive(". ").map(str::to_owned).collect(),
            taught: 0,
        }
    };
    ReadRequest {
        question: Question {
            utterance: format!(
                "there are {turn} of us and we won't be there before eleven at night, is that a problem"
            ),
            user_before: Some("hi, we booked the cabin by the lake for saturday".to_owned()),
            system_before: Some(
                "Cabins, pods and safari tents are handed over between 16:00 and 19:00.".to_owned(),
            ),
        },
        sections: PAGE.split("## ").skip(1).take(4).map(section).collect(),
    }
}
