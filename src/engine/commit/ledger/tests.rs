use std::collections::BTreeSet;

use proptest::prelude::*;

use super::metadata::{MetadataError, OffsetRange, decode, encode};
use super::*;

fn at(ledger: &Ledger, partition: i32) -> Position {
    ledger.position(partition).unwrap().unwrap()
}

#[test]
fn the_position_is_the_lowest_pending_and_carries_the_finished_above() {
    let mut ledger = Ledger::default();
    ledger.assign(3, 1, Some(10), "").unwrap();
    assert_eq!(at(&ledger, 3).offset, 10, "nothing polled: where reading begins");
    for offset in [10, 11, 12, 15, 16] {
        assert_eq!(ledger.polled(3, 1, offset), Polled::Pending);
    }
    assert!(ledger.finished(3, 1, 12));
    assert!(ledger.finished(3, 1, 15));
    let position = at(&ledger, 3);
    assert_eq!((position.offset, position.generation), (10, 1));
    let ranges = decode(10, &position.metadata).unwrap();
    assert_eq!(ranges, [OffsetRange { first: 12, last: 15 }], "13 and 14 were never polled");
    assert!(ledger.finished(3, 1, 10) && ledger.finished(3, 1, 11));
    assert_eq!((at(&ledger, 3).offset, at(&ledger, 3).metadata.as_str()), (16, ""));
    assert!(ledger.finished(3, 1, 16));
    assert_eq!((at(&ledger, 3).offset, ledger.pending_count(3)), (17, 0));
}

#[test]
fn finished_offsets_survive_a_restart_until_they_are_passed() {
    let mut ledger = Ledger::default();
    let before = encode(5, &[OffsetRange { first: 7, last: 9 }]);
    ledger.assign(0, 1, Some(5), &before).unwrap();
    assert!(ledger.is_finished(0, 8) && !ledger.is_finished(0, 6));
    assert_eq!(ledger.polled(0, 1, 5), Polled::Pending);
    assert!(ledger.finished(0, 1, 5));
    let position = at(&ledger, 0);
    assert_eq!(position.offset, 6);
    assert_eq!(decode(6, &position.metadata).unwrap(), [OffsetRange { first: 7, last: 9 }]);
    assert_eq!(ledger.polled(0, 1, 6), Polled::Pending);
    assert_eq!(ledger.polled(0, 1, 7), Polled::AlreadyFinished);
    assert_eq!(ledger.polled(0, 1, 9), Polled::AlreadyFinished);
    assert_eq!(ledger.polled(0, 1, 10), Polled::Pending);
    assert!(ledger.finished(0, 1, 6));
    assert_eq!(at(&ledger, 0).offset, 10);
}

#[test]
fn late_and_repeated_answers_are_refused() {
    let mut ledger = Ledger::default();
    ledger.assign(0, 1, None, "").unwrap();
    assert_eq!(ledger.position(0), Ok(None), "nobody knows where reading begins");
    assert_eq!(ledger.polled(0, 1, 4), Polled::Pending);
    assert_eq!(ledger.polled(0, 1, 5), Polled::Pending);
    assert_eq!(ledger.polled(0, 1, 5), Polled::Unexpected);
    assert!(ledger.finished(0, 1, 5));
    assert!(!ledger.finished(0, 1, 5), "twice");
    assert!(!ledger.finished(0, 1, 6), "never polled");
    ledger.assign(0, 2, Some(4), "").unwrap();
    assert_eq!(ledger.polled(0, 1, 4), Polled::Unexpected);
    assert_eq!(ledger.polled(0, 2, 4), Polled::Pending);
    assert!(!ledger.finished(0, 1, 4), "an answer of the old generation");
    assert!(ledger.finished(0, 2, 4));
    ledger.drop_partition(0);
    assert!(!ledger.finished(0, 2, 4));
    assert_eq!(ledger.position(0), Err(LedgerError::NotHeld(0)));
}

#[test]
fn metadata_that_cannot_be_read_says_why() {
    assert!(matches!(decode(3, "Zzz"), Err(MetadataError::Version { found: 'Z', position: 3 })));
    assert!(matches!(decode(0, "A!A"), Err(MetadataError::Damaged { at: 1, .. })));
    assert!(matches!(decode(0, "AA"), Err(MetadataError::Damaged { .. })), "half a range");
    assert!(matches!(decode(0, "Ag"), Err(MetadataError::Damaged { .. })), "half a number");
    let too_big = format!("A{}", "_".repeat(14));
    assert!(matches!(decode(0, &too_big), Err(MetadataError::Damaged { .. })));
    assert!(matches!(decode(i64::MAX, "ABB"), Err(MetadataError::Damaged { .. })));
    assert_eq!(decode(9, ""), Ok(Vec::new()));
}

#[test]
fn what_is_polled_within_the_room_always_fits() {
    let mut ledger = Ledger::new(100);
    ledger.assign(0, 1, Some(1_000_000), "").unwrap();
    let mut offset = 1_000_000;
    while ledger.room(0) > 0 {
        assert_eq!(ledger.polled(0, 1, offset), Polled::Pending);
        offset += 50_000;
    }
    for index in (0..offset - 1_000_000).step_by(100_000) {
        ledger.finished(0, 1, 1_050_000 + index);
        assert!(at(&ledger, 0).metadata.len() <= 100);
    }
    assert!(ledger.pending_count(0) >= 4, "the room was not nothing");
    let mut careless = Ledger::new(10);
    careless.assign(0, 1, Some(0), "").unwrap();
    for offset in 0..20 {
        careless.polled(0, 1, offset);
    }
    for offset in (1..20).step_by(2) {
        careless.finished(0, 1, offset);
    }
    assert!(matches!(careless.position(0), Err(LedgerError::TooLong { bytes: 21, .. })));
}

/// The model of the ledger: plain sets of offsets.
#[derive(Default)]
struct Naive {
    log: Vec<i64>,
    cursor: usize,
    pending: BTreeSet<i64>,
    done: BTreeSet<i64>,
}

impl Naive {
    fn lowest(&self, begun: i64) -> i64 {
        let next = match self.cursor {
            0 => begun,
            cursor => begun.max(self.log[cursor - 1] + 1),
        };
        self.pending.first().copied().unwrap_or(next)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Poll,
    Finish(prop::sample::Index),
    Commit,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => Just(Step::Poll),
        4 => any::<prop::sample::Index>().prop_map(Step::Finish),
        1 => Just(Step::Commit),
        1 => Just(Step::Crash),
    ]
}

proptest! {
    /// In any order of polls, ends, commits and losses, a crash brings back exactly what had
    /// finished at the last commit: no offset twice and none lost.
    #[test]
    fn the_ledger_equals_plain_sets(
        gaps in prop::collection::vec(prop_oneof![4 => 1..2_i64, 1 => 2..5_000_i64], 1..80),
        start in 0..1_000_i64,
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut offset = start - 1;
        let log: Vec<i64> = gaps.iter().map(|gap| { offset += gap; offset }).collect();
        let mut naive = Naive { log, ..Naive::default() };
        let mut ledger = Ledger::default();
        let mut generation = 1;
        ledger.assign(7, generation, Some(start), "").unwrap();
        let mut committed = (start, String::new(), BTreeSet::new());
        for step in steps {
            match step {
                Step::Poll if naive.cursor < naive.log.len() && ledger.room(7) > 0 => {
                    let offset = naive.log[naive.cursor];
                    naive.cursor += 1;
                    prop_assert_eq!(ledger.is_finished(7, offset), naive.done.contains(&offset));
                    if naive.done.contains(&offset) {
                        prop_assert_eq!(ledger.polled(7, generation, offset), Polled::AlreadyFinished);
                    } else {
                        prop_assert_eq!(ledger.polled(7, generation, offset), Polled::Pending);
                        naive.pending.insert(offset);
                    }
                }
                Step::Finish(index) if !naive.pending.is_empty() => {
                    let offset = *naive.pending.iter().nth(index.index(naive.pending.len())).unwrap();
                    prop_assert!(ledger.finished(7, generation, offset));
                    naive.pending.remove(&offset);
                    naive.done.insert(offset);
                }
                Step::Poll | Step::Finish(_) => {}
                Step::Commit => {
                    let position = at(&ledger, 7);
                    prop_assert_eq!(position.offset, naive.lowest(committed.0));
                    prop_assert!(position.metadata.is_ascii());
                    let ranges = decode(position.offset, &position.metadata).unwrap();
                    for &offset in naive.log.iter().filter(|offset| **offset >= position.offset) {
                        let within = ranges.iter().any(|r| r.first <= offset && offset <= r.last);
                        prop_assert_eq!(within, naive.done.contains(&offset), "offset {}", offset);
                    }
                    committed = (position.offset, position.metadata, naive.done.clone());
                }
                Step::Crash => {
                    generation += 1;
                    ledger.assign(7, generation, Some(committed.0), &committed.1).unwrap();
                    naive.done = committed.2.clone();
                    naive.pending.clear();
                    naive.cursor = naive.log.partition_point(|offset| *offset < committed.0);
                }
            }
            prop_assert_eq!(ledger.pending_count(7), naive.pending.len());
        }
    }

    #[test]
    fn metadata_reads_back(
        position in 0..i64::MAX / 4,
        spans in prop::collection::vec((0..1_000_000_i64, 0..1_000_000_i64), 0..50),
    ) {
        let mut end = position;
        let ranges: Vec<_> = spans.iter().map(|(gap, length)| {
            let range = OffsetRange { first: end + gap, last: end + gap + length };
            end = range.last + 1;
            range
        }).collect();
        let text = encode(position, &ranges);
        prop_assert!(text.is_ascii());
        prop_assert_eq!(decode(position, &text).unwrap(), ranges);
    }

    #[test]
    fn no_text_makes_decoding_panic(position in any::<i64>(), text in "A?[A-Za-z0-9_!-]{0,40}") {
        let _ = decode(position, &text);
    }
}
