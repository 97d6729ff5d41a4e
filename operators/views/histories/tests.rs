use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use turnstream_schemas::{
    CategoryRecord, ChainRecord, EventTime, EvidenceId, GroupRecord, InputId, Passage,
};

use super::*;
use crate::views::Views;

/// Holders, and their keys in the views of holders and of waits.
const HOLDERS: [(Holder, Option<&str>, Option<&str>); 3] = [
    (Holder::Bot, None, None),
    (Holder::Agent, Some("agent"), None),
    (Holder::Waiting, Some("waiting/asked/front desk"), Some("2023-11-14T22:00Z")),
];

const SCOPES: [&str; 3] = ["a", "a#1", "b"];

/// Entries with their places: (category, group, offset). A record may also place an entry in two
/// categories, or an entry that does not exist.
type Placements = Vec<(u32, u32, i64)>;

#[derive(Clone, Debug)]
enum Put {
    Entry { id: EntryId, passages: Vec<usize>, bytes: usize },
    Record { said: Placements, chains: usize, evictions: [u64; 3], holder: usize },
    Gone(Option<EntryId>),
}

#[derive(Clone, Debug)]
enum HistoryHappening {
    Put { partition: i32, scope: usize, put: Put },
    Step,
}

fn happening() -> impl Strategy<Value = HistoryHappening> {
    let id = || (0..2_i32, -1..4_i64).prop_map(|(partition, offset)| EntryId { partition, offset });
    let passages = prop::collection::vec(0..4_usize, 0..4);
    let said = prop::collection::vec((0..3_u32, 0..3_u32, -1..4_i64), 0..6);
    let put = prop_oneof![
        4 => (id(), passages, 0..900_usize)
            .prop_map(|(id, passages, bytes)| Put::Entry { id, passages, bytes }),
        3 => (said, 0..3_usize, [0..3_u64, 0..3, 0..3], 0..HOLDERS.len()).prop_map(
            |(said, chains, evictions, holder)| Put::Record { said, chains, evictions, holder }
        ),
        3 => prop::option::weighted(0.8, id()).prop_map(Put::Gone),
    ];
    prop_oneof![
        5 => (0..2_i32, 0..SCOPES.len(), put)
            .prop_map(|(partition, scope, put)| HistoryHappening::Put { partition, scope, put }),
        1 => Just(HistoryHappening::Step),
    ]
}

fn entry(id: EntryId, passages: &[usize]) -> HistoryEntry {
    let fixture = include_str!("../../../tests/fixtures/records/v1/history-entry.json");
    let entry: HistoryEntry = serde_json::from_str(fixture).unwrap();
    let EntryId { partition, offset } = id;
    let passage = |at: &usize| Passage { id: evidence(*at), text: String::new() };
    let passages = passages.iter().map(passage).collect();
    HistoryEntry { input: InputId { topic: "turns".into(), partition, offset }, passages, ..entry }
}

fn evidence(at: usize) -> EvidenceId {
    EvidenceId(format!("ours/IsA/{at}/thing"))
}

fn record(
    said: &Placements,
    chains: usize,
    [capacity, age, forget]: [u64; 3],
    holder: usize,
) -> ScopeRecord {
    let fixture = include_str!("../../../tests/fixtures/records/v1/conversation.json");
    let of: turnstream_schemas::ConversationRecord = serde_json::from_str(fixture).unwrap();
    let handover = Handover { holder: HOLDERS[holder].0, ..of.handover };
    let mut of = BTreeMap::<u32, BTreeMap<u32, Vec<i64>>>::new();
    for (category, group, at) in said {
        of.entry(*category).or_default().entry(*group).or_default().push(*at);
    }
    let groups = |groups: BTreeMap<u32, Vec<i64>>| {
        groups.into_iter().map(|(id, entries)| GroupRecord { id, entries, summary: None }).collect()
    };
    let category = |(id, of)| CategoryRecord { id, groups: groups(of) };
    ScopeRecord {
        latest_event_time: EventTime(7),
        categories: of.into_iter().map(category).collect(),
        chains: (0..chains as u32).map(|id| ChainRecord { id, entries: vec![0] }).collect(),
        evictions_by_reason: EvictionCounts { capacity, age, forget },
        handover: Some(handover),
        ..ScopeRecord::default()
    }
}

/// The last change by partition, scope and key.
type Last = BTreeMap<(i32, usize, Option<EntryId>), Put>;

/// The oracle: computes every view from the last values of all keys.
fn recompute(last: &Last) -> BTreeMap<ViewKey, u64> {
    let mut rows = BTreeMap::new();
    let mut clusters = BTreeMap::new();
    for ((partition, scope, _), put) in last {
        let mut add = |view, key: String, many: usize| {
            if many > 0 {
                let key = ViewKey { view, partition: *partition, key };
                *rows.entry(key).or_insert(0) += many as u64;
            }
        };
        match put {
            Put::Entry { id, passages, bytes } => {
                add(ViewName::HistorySizes, "entries".to_owned(), 1);
                add(ViewName::HistorySizes, "bytes".to_owned(), *bytes);
                for at in passages.iter().collect::<BTreeSet<_>>() {
                    add(ViewName::EvidenceRemembered, evidence(*at).0, 1);
                }
                let Some(Put::Record { said, .. }) = last.get(&(*partition, *scope, None)) else {
                    continue;
                };
                let of_it = said.iter().filter(|(.., at)| *at == id.offset);
                for category in of_it.map(|(category, ..)| category).collect::<BTreeSet<_>>() {
                    *clusters.entry((*partition, *scope, *category)).or_insert(0) += 1;
                }
            }
            Put::Record { said, chains, evictions, holder } => {
                let (_, held, waits) = HOLDERS[*holder];
                held.iter().for_each(|key| add(ViewName::Holders, (*key).to_owned(), 1));
                waits.iter().for_each(|key| add(ViewName::WaitingSince, (*key).to_owned(), 1));
                let categories: BTreeSet<_> = said.iter().map(|(category, ..)| category).collect();
                let groups: BTreeSet<_> = said.iter().map(|(of, group, _)| (of, group)).collect();
                for (what, many) in [
                    ("scopes", 1),
                    ("categories", categories.len()),
                    ("groups", groups.len()),
                    ("chains", *chains),
                ] {
                    add(ViewName::HistorySizes, what.to_owned(), many);
                }
                for (reason, many) in ["capacity", "age", "forget"].into_iter().zip(evictions) {
                    add(ViewName::EvictionsByReason, reason.to_owned(), *many as usize);
                }
            }
            Put::Gone(_) => {}
        }
    }
    for ((partition, scope, category), entries) in clusters {
        let key = format!("default/{}#{category}", SCOPES[scope]);
        rows.insert(ViewKey { view: ViewName::EntriesByCluster, partition, key }, entries);
        let (view, key) = (ViewName::ClusterSizes, entries.to_string());
        *rows.entry(ViewKey { view, partition, key }).or_insert(0) += 1;
    }
    rows
}

fn put(views: &mut Views, (partition, scope, put): (i32, usize, &Put)) -> Option<EntryId> {
    let key = |entry| EntryKey { scope: Scope::new(None, SCOPES[scope]), entry };
    let (change, bytes) = match put {
        Put::Entry { id, passages, bytes } => {
            let entry = Box::new(entry(*id, passages));
            (HistoryChange::Entry { key: key(Some(*id)), entry }, *bytes)
        }
        Put::Record { said, chains, evictions, holder } => {
            let record = Box::new(record(said, *chains, *evictions, *holder));
            (HistoryChange::Scope { key: key(None), record }, 100)
        }
        Put::Gone(id) => (HistoryChange::Gone { key: key(*id), evicted: None }, 0),
    };
    views.remember(partition, &change, bytes);
    change.key().entry
}

/// Checks that after every step the rows equal those of the oracle, and that in the end no state of
/// deleted scopes is left.
fn follow(happenings: Vec<HistoryHappening>) {
    timely::execute_directly(move |worker| {
        let mut views = Views::install(worker);
        let (mut last, mut told) = (Last::new(), BTreeMap::<ViewKey, u64>::new());
        let ids = || {
            (0..2_i32).flat_map(|partition| {
                (-1..4_i64).map(move |offset| Some(EntryId { partition, offset })).chain([None])
            })
        };
        let everything = (0..2_i32).flat_map(|partition| {
            (0..SCOPES.len()).flat_map(move |scope| {
                ids().map(move |id| HistoryHappening::Put { partition, scope, put: Put::Gone(id) })
            })
        });
        let happenings = happenings.into_iter().chain([HistoryHappening::Step]);
        for happening in happenings.chain(everything).chain([HistoryHappening::Step]) {
            match happening {
                HistoryHappening::Put { partition, scope, put: it } => {
                    let id = put(&mut views, (partition, scope, &it));
                    match it {
                        Put::Gone(_) => drop(last.remove(&(partition, scope, id))),
                        it => drop(last.insert((partition, scope, id), it)),
                    }
                    assert_eq!(views.remembered(), last.len());
                }
                HistoryHappening::Step => {
                    for (key, count) in views.step(worker) {
                        let before = match count {
                            Some(count) => told.insert(key.clone(), count),
                            None => told.remove(&key),
                        };
                        assert_ne!(before, count, "{key:?} was told and had not changed");
                    }
                    assert_eq!(told, recompute(&last));
                }
            }
        }
        let Histories { scopes, names, left, .. } = &views.histories;
        assert!(scopes.is_empty() && names.is_empty() && left.is_empty());
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn views_of_histories_are_what_a_recount_gives(
        happenings in prop::collection::vec(happening(), 1..60),
    ) {
        follow(happenings);
    }
}

/// Tests the test: it must fail when the rule is broken on purpose.
#[cfg(debug_assertions)]
mod broken {
    use turnstream_ports::broken::{Broken, choose};

    use super::*;

    #[test]
    fn an_entry_that_left_and_is_still_counted_is_caught() {
        let id = EntryId { partition: 0, offset: 1 };
        let entry = Put::Entry { id, passages: vec![0], bytes: 9 };
        let put = |put| HistoryHappening::Put { partition: 0, scope: 0, put };
        let happenings =
            || vec![put(entry.clone()), HistoryHappening::Step, put(Put::Gone(Some(id)))];
        follow(happenings());
        choose(Some(Broken::CountWhatLeft));
        let noticed = std::panic::catch_unwind(|| follow(happenings()));
        choose(None);
        assert!(noticed.is_err());
    }
}
