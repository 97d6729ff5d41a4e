//! The oracle of the views: counts every row again from everything on the log. It uses plain maps
//! and nothing of `operators/views.rs`. `tests/it/views.rs` uses it too.

use std::collections::{BTreeMap, BTreeSet};

use turnstream_knowledge::Change;
use turnstream_schemas::{
    Action, CategoryRecord, EntryKey, EvictionCounts, FactKey, Handover, HistoryEntry, Holder,
    Response, Scope, ScopeRecord, ViewKey, ViewName,
};

/// Counts the rows over responses and traces, each with its partition, and over changes. A later
/// change of a key replaces an earlier one.
pub(crate) fn recount(
    responses: &[(i32, Response)],
    traces: &[(i32, Response)],
    changes: &[Change],
) -> BTreeMap<ViewKey, u64> {
    let mut stands = BTreeMap::<&FactKey, bool>::new();
    for change in changes {
        stands.insert(&change.key, change.upsert.is_some());
    }
    let mut named = BTreeSet::new();
    let mut taken_back = BTreeSet::new();
    for (FactKey { source, head, relation, tail }, stands) in stands {
        if stands {
            named.extend([head.as_str(), tail.as_str()]);
        } else {
            taken_back.insert(format!("{source}/{relation}/{head}/{tail}"));
        }
    }
    let mut rows = BTreeMap::new();
    for (partition, response) in responses {
        let Some(action) = response.action else { continue };
        let key = match (action, response.hand_off) {
            (Action::HandOff, Some(reason)) => format!("hand_off/{}", reason.name()),
            _ => action.name().to_owned(),
        };
        let key = ViewKey { view: ViewName::Actions, partition: *partition, key };
        *rows.entry(key).or_insert(0) += 1;
    }
    for (partition, response) in responses.iter().chain(traces) {
        let mut count = |view, key: &str| {
            let key = ViewKey { view, partition: *partition, key: key.to_owned() };
            *rows.entry(key).or_insert(0) += 1;
        };
        for evidence in response.evidence.iter().filter(|evidence| evidence.selected) {
            let Some(fact) = &evidence.fact else { continue };
            count(ViewName::FactsUsed, &evidence.id.0);
            count(ViewName::RelationsUsed, &fact.relation);
            if taken_back.contains(&evidence.id.0) {
                count(ViewName::WithdrawnFactsUsed, &evidence.id.0);
            }
        }
        let explicit = &response.demand.queries.explicit;
        let asked: BTreeSet<&str> = explicit.iter().map(|query| query.concept.as_str()).collect();
        asked.into_iter().for_each(|concept| count(ViewName::ConceptsAsked, concept));
        let missing: BTreeSet<&str> = response.demand.missing.iter().map(String::as_str).collect();
        for concept in missing.difference(&named) {
            count(ViewName::ConceptsMissing, concept);
        }
    }
    rows
}

/// A record of the topic of histories: partition, key and value.
pub(crate) type Told = (i32, Vec<u8>, Option<Vec<u8>>);

/// The rows over the topic of histories. The last record of each key counts.
pub(crate) fn recount_histories(records: &[Told]) -> BTreeMap<ViewKey, u64> {
    let mut last = BTreeMap::new();
    for (partition, key, value) in records {
        last.insert((*partition, key), value.as_deref());
    }
    // Keyed by partition and scope.
    let mut entries = BTreeMap::<(i32, Scope), Vec<i64>>::new();
    let mut categories = BTreeMap::<(i32, Scope), Vec<CategoryRecord>>::new();
    let mut rows = BTreeMap::new();
    for ((partition, key), value) in last {
        let Some(value) = value else { continue };
        let Ok(EntryKey { scope, entry: id }) = serde_json::from_slice(key) else { continue };
        let mut add = |view, key: &str, many: u64| {
            let key = ViewKey { view, partition, key: key.to_owned() };
            if many > 0 {
                *rows.entry(key).or_insert(0) += many;
            }
        };
        let Some(id) = id else {
            let Ok(record) = serde_json::from_slice::<ScopeRecord>(value) else { continue };
            let groups: usize = record.categories.iter().map(|it| it.groups.len()).sum();
            add(ViewName::HistorySizes, "scopes", 1);
            add(ViewName::HistorySizes, "categories", record.categories.len() as u64);
            add(ViewName::HistorySizes, "groups", groups as u64);
            add(ViewName::HistorySizes, "chains", record.chains.len() as u64);
            let EvictionCounts { capacity, age, forget } = record.evictions_by_reason;
            add(ViewName::EvictionsByReason, "capacity", capacity);
            add(ViewName::EvictionsByReason, "age", age);
            add(ViewName::EvictionsByReason, "forget", forget);
            match &record.handover {
                Some(Handover { holder: Holder::Waiting, time, hand_off, queue, .. }) => {
                    let why = hand_off.map_or("unknown", |why| why.name());
                    let places = ["waiting", why].into_iter().chain(queue.as_deref());
                    add(ViewName::Holders, &places.collect::<Vec<_>>().join("/"), 1);
                    add(ViewName::WaitingSince, &time.hour(), 1);
                }
                Some(Handover { holder: Holder::Agent, .. }) => add(ViewName::Holders, "agent", 1),
                Some(Handover { holder: Holder::Bot, .. }) | None => {}
            }
            categories.insert((partition, scope), record.categories);
            continue;
        };
        let Ok(entry) = serde_json::from_slice::<HistoryEntry>(value) else { continue };
        add(ViewName::HistorySizes, "entries", 1);
        add(ViewName::HistorySizes, "bytes", (key.len() + value.len()) as u64);
        let named: BTreeSet<&str> = entry.passages.iter().map(|it| it.id.as_str()).collect();
        named.into_iter().for_each(|id| add(ViewName::EvidenceRemembered, id, 1));
        entries.entry((partition, scope)).or_default().push(id.offset);
    }
    for ((partition, scope), categories) in &categories {
        let Some(held) = entries.get(&(*partition, scope.clone())) else { continue };
        for CategoryRecord { id, groups } in categories {
            let is_in = |at: &&i64| groups.iter().any(|group| group.entries.contains(at));
            let many = held.iter().filter(is_in).count() as u64;
            if many == 0 {
                continue;
            }
            let row = |view, key| ViewKey { view, partition: *partition, key };
            rows.insert(row(ViewName::EntriesByCluster, format!("{scope}#{id}")), many);
            *rows.entry(row(ViewName::ClusterSizes, many.to_string())).or_insert(0) += 1;
        }
    }
    rows
}
