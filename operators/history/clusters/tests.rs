use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn text(text: &str) -> Signature {
    Signature::of([text])
}

/// The entries by group within category, in order.
fn shape(clusters: &Clusters) -> Vec<Vec<Vec<i64>>> {
    let groups = |category: &Category| {
        let groups = category.groups().filter_map(|number| clusters.group(number));
        groups.map(|group| group.members().collect()).collect()
    };
    clusters.categories().values().map(groups).collect()
}

fn told(said: &[&str], config: &ClustersConfig) -> Clusters {
    let mut clusters = Clusters::default();
    for (entry, said) in (0..).zip(said) {
        clusters.insert(entry, &text(said), config);
    }
    clusters
}

#[test]
fn what_is_alike_lies_together() {
    let clusters = told(
        &[
            "my parcel from the shop is late",
            "the violin needs new strings",
            "the parcel is still late",
            "a box with a parcel for a town by train",
            "strings for a violin",
        ],
        &ClustersConfig::default(),
    );
    assert_eq!(shape(&clusters), [vec![vec![0, 2], vec![3]], vec![vec![1, 4]]]);
    assert_eq!(clusters.category_of(3), clusters.category_of(0));
    assert_ne!(clusters.group_of(3), clusters.group_of(0));
}

#[test]
fn an_empty_cluster_disappears_and_its_number_never_comes_back() {
    let config = ClustersConfig::default();
    let mut clusters = told(&["parcel", "violin"], &config);
    let (of_violin, all) = (clusters.category_of(1), clusters.categories().len());
    clusters.remove(1, &text("violin"));
    assert_eq!((all, clusters.categories().len()), (2, 1));
    assert_eq!(clusters.group_of(1), None);
    clusters.insert(2, &text("violin"), &config);
    assert_ne!(clusters.category_of(2), of_violin);
}

#[test]
fn beyond_the_bound_the_two_most_alike_become_one() {
    let config = ClustersConfig {
        max_categories: 2,
        category_likeness: 0.9,
        group_likeness: 0.9,
        ..Default::default()
    };
    let said = ["parcel late shop", "violin strings", "parcel late train"];
    assert_eq!(shape(&told(&said, &config)), [vec![vec![0], vec![2]], vec![vec![1]]]);

    let config = ClustersConfig { max_groups: 1, ..Default::default() };
    assert_eq!(shape(&told(&["parcel", "violin", "rain"], &config)), [[[0, 1, 2]]]);
}

#[test]
fn an_entry_that_says_something_else_stays_and_counts_anew() {
    let config = ClustersConfig::default();
    let mut clusters = told(&["parcel"], &config);
    clusters.replace(0, &text("parcel"), &text("parcel violin"));
    let group = clusters.group_of(0).and_then(|number| clusters.group(number)).unwrap();
    let mut sum = Centroid::default();
    sum.add(&text("parcel violin"));
    assert_eq!(*group.centroid(), sum);
    clusters.remove(0, &text("parcel violin"));
    assert_eq!((clusters.categories().len(), clusters.groups.len()), (0, 0));
}

/// What happens to a history.
#[derive(Clone, Debug)]
enum Event {
    Comes(Signature),
    /// The entry at this place among those that are held goes.
    Goes(usize),
    Changes(usize, Signature),
    Restart,
}

fn any_event() -> impl Strategy<Value = Event> {
    let words = || {
        let words = vec!["dog", "parcel", "violin", "train", "rain", "book", "lake"];
        let words = proptest::collection::vec(proptest::sample::select(words), 0..4);
        words.prop_map(|words| text(&words.join(" ")))
    };
    prop_oneof![
        6 => words().prop_map(Event::Comes),
        3 => (0..20_usize).prop_map(Event::Goes),
        2 => (0..20_usize, words()).prop_map(|(at, text)| Event::Changes(at, text)),
        1 => Just(Event::Restart),
    ]
}

/// Checks that every entry is in one group and every group in one category, that none is empty,
/// that the bounds hold, and that every centroid is the sum of its members.
fn check(clusters: &Clusters, there: &BTreeMap<i64, Signature>, config: &ClustersConfig) {
    let mut seen = Vec::new();
    for category in clusters.categories().values() {
        let mut sum = Centroid::default();
        assert!(!category.groups.is_empty());
        for number in category.groups() {
            let group = clusters.group(number).expect("a group of the category");
            let mut of_group = Centroid::default();
            assert!(!group.members.is_empty());
            for entry in group.members() {
                assert_eq!(clusters.group_of(entry), Some(number));
                of_group.add(&there[&entry]);
                sum.add(&there[&entry]);
                seen.push(entry);
            }
            assert_eq!(of_group, *group.centroid);
        }
        assert_eq!(sum, *category.centroid);
    }
    seen.sort_unstable();
    assert_eq!(seen, there.keys().copied().collect::<Vec<_>>());
    assert_eq!(clusters.group_of.len(), there.len());
    assert!(clusters.categories.len() <= config.max_categories as usize);
    assert!(clusters.groups.len() <= config.max_groups as usize);
}

proptest! {
    /// Whichever entries come, go and change: the clusters are sound, and a restart from the record
    /// changes nothing that follows.
    #[test]
    fn clusters_are_sound_and_survive_a_restart(
        events in proptest::collection::vec(any_event(), 1..60),
        max_categories in 1..4_u32,
        max_groups in 1..8_u32,
    ) {
        let config = ClustersConfig { max_categories, max_groups, ..Default::default() };
        let (mut lived, mut restarted) = (Clusters::default(), Clusters::default());
        let mut there: BTreeMap<i64, Signature> = BTreeMap::new();
        for (at, event) in (0_i64..).zip(events) {
            let chosen = |at: usize| there.keys().copied().nth(at % there.len().max(1));
            match event {
                Event::Comes(text) => {
                    lived.insert(at, &text, &config);
                    restarted.insert(at, &text, &config);
                    there.insert(at, text);
                }
                Event::Goes(place) => if let Some(entry) = chosen(place) {
                    let text = there.remove(&entry).unwrap_or_default();
                    lived.remove(entry, &text);
                    restarted.remove(entry, &text);
                },
                Event::Changes(place, text) => if let Some(entry) = chosen(place) {
                    lived.replace(entry, &there[&entry], &text);
                    restarted.replace(entry, &there[&entry], &text);
                    there.insert(entry, text);
                },
                Event::Restart => {
                    let (records, next) = restarted.records();
                    restarted = Clusters::restored(&records, next, |at| there.get(&at));
                }
            }
            check(&lived, &there, &config);
            prop_assert_eq!(&lived, &restarted);
        }
    }
}
