//! The contract of every follower of a compacted topic.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::super::{Follower, Record};
use super::{Bed, PARTITIONS, Property};

/// All properties. Each runs on a fresh log.
pub(super) fn properties<B: Bed>() -> Vec<(&'static str, Property<B>)> {
    vec![
        ("a_follower_reads_everything_from_the_beginning", everything_from_the_beginning),
        ("a_follower_passes_what_was_aborted", what_was_aborted_is_passed),
        ("a_follower_waits_for_an_open_transaction", an_open_transaction_is_waited_for),
        ("a_follower_of_nothing_has_caught_up", nothing_is_caught_up_with),
    ]
}

/// A follower and the records that it gave.
struct Followed<F> {
    follower: F,
    wait: Duration,
    records: Vec<Record>,
}

impl<F: Follower> Followed<F> {
    fn open<B: Bed<Follower = F>>(bed: &mut B) -> Self {
        Self { follower: bed.follow(), wait: bed.wait(), records: Vec::new() }
    }

    fn step(&mut self) {
        self.records.extend(self.follower.poll(self.wait).unwrap());
    }

    fn until(&mut self, what: &str, so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !so(self) {
            assert!(Instant::now() < deadline, "not within 30 s: {what}; gave {:?}", self.records);
            self.step();
        }
    }

    fn catch_up(&mut self) {
        self.until("it has caught up", |it| it.follower.has_caught_up());
    }

    /// Keys and values of a partition, in the order in which they came.
    fn given(&self, partition: i32) -> Vec<(String, Option<String>)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let of = self.records.iter().filter(|record| record.partition == partition);
        of.map(|record| (text(record.key.as_ref().unwrap()), record.value.as_deref().map(text)))
            .collect()
    }

    /// One above the last offset that came from each partition, or 0.
    fn behind_the_last(&self) -> BTreeMap<i32, i64> {
        let last = |partition| {
            let of = self.records.iter().filter(|record| record.partition == partition);
            of.map(|record| record.offset + 1).max().unwrap_or(0)
        };
        (0..PARTITIONS).map(|partition| (partition, last(partition))).collect()
    }
}

fn pair(key: &str, value: Option<&str>) -> (String, Option<String>) {
    (key.to_owned(), value.map(str::to_owned))
}

fn everything_from_the_beginning<B: Bed>(bed: &mut B) {
    for partition in [0, 2] {
        for round in ["one", "two"] {
            bed.put(partition, "k", Some(round));
            bed.put(partition, "other", Some(round));
        }
        bed.put(partition, "other", None);
    }
    let expected =
        [("k", Some("one")), ("other", Some("one")), ("k", Some("two")), ("other", Some("two"))];
    let mut expected: Vec<_> = expected.map(|(key, value)| pair(key, value)).into();
    expected.push(pair("other", None));
    let mut first = Followed::open(bed);
    assert!(!first.follower.has_caught_up(), "nothing was given yet");
    first.catch_up();
    for partition in [0, 2] {
        assert_eq!(first.given(partition), expected, "tombstones too");
    }
    assert!(first.given(1).is_empty());
    assert_eq!(first.follower.positions(), first.behind_the_last());
    assert_eq!(first.follower.positions()[&0], 5);
    bed.put(3, "later", Some("three"));
    first.until("what came later", |it| !it.given(3).is_empty());
    assert!(first.follower.has_caught_up(), "once and for all");
    assert_eq!(first.given(3), [pair("later", Some("three"))]);
    assert_eq!(first.given(0), expected, "each once");
    // A follower has no group, so another one reads the same records.
    let mut second = Followed::open(bed);
    second.catch_up();
    for partition in 0..PARTITIONS {
        assert_eq!(second.given(partition), first.given(partition));
    }
    second.until("nothing is left", |it| it.follower.lag().values().all(|lag| *lag == 0));
    assert_eq!(second.follower.lag().len(), usize::try_from(PARTITIONS).unwrap());
}

fn what_was_aborted_is_passed<B: Bed>(bed: &mut B) {
    bed.put(1, "k", Some("certain"));
    let open = bed.open(1, "k", "never");
    bed.abort(open);
    // The partition ends in an aborted record and a marker, so no record shows that it ended.
    let mut followed = Followed::open(bed);
    followed.catch_up();
    assert_eq!(followed.given(1), [pair("k", Some("certain"))]);
    assert_eq!(followed.follower.positions()[&1], 3, "behind the mark");
    bed.put(1, "k", Some("after"));
    followed.until("what came later", |it| it.given(1).len() == 2);
    assert_eq!(followed.given(1)[1], pair("k", Some("after")));
    assert_eq!(followed.follower.positions()[&1], 4);
}

fn an_open_transaction_is_waited_for<B: Bed>(bed: &mut B) {
    bed.put(2, "before", Some("certain"));
    let open = bed.open(2, "k", "never");
    bed.put(2, "behind", Some("written, and certain when it is over"));
    let mut followed = Followed::open(bed);
    (0..10).for_each(|_| followed.step());
    assert!(!followed.follower.has_caught_up(), "what is behind it was committed before");
    bed.abort(open);
    followed.catch_up();
    let keys: Vec<String> = followed.given(2).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["before", "behind"]);
}

fn nothing_is_caught_up_with<B: Bed>(bed: &mut B) {
    let mut followed = Followed::open(bed);
    followed.catch_up();
    assert!(followed.records.is_empty());
    assert!(followed.follower.positions().values().all(|position| *position == 0));
    bed.put(0, "k", Some("first"));
    followed.until("the first", |it| it.records.len() == 1);
    assert_eq!(followed.follower.positions()[&0], 1);
}
