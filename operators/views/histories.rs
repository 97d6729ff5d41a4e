//! Views of histories: counts over the last record of each key of the topic of histories.
//!
//! ```text
//!  entries ──┬─▶ passages ──▶ count ──────────────────────────────▶ evidence_remembered
//!            ├─▶ measures ──┬─▶ count ────────────────────────────▶ history_sizes
//!            └─▶ held       │
//!                  ▼        │
//!              semijoin ──▶ count ──┬─────────────────────────────▶ entries_by_cluster
//!                  ▲        │       └─▶ by count, count ──────────▶ cluster_sizes
//!            ┌─▶ members    │
//!  records ──┼──────────────┘
//!  of scopes ├─▶ evictions ──▶ count ─────────────────────────────▶ evictions_by_reason
//!            ├─▶ holder ─────▶ count ─────────────────────────────▶ holders
//!            └─▶ wait ───────▶ count ─────────────────────────────▶ waiting_since
//! ```
//!
//! A record replaces the one before with its key, and a tombstone removes it. The views keep the input
//! of each key to take it out again at that point. An entry counts in the category in which its scope's
//! record places it; an entry that no record places counts in none.

use std::cell::RefCell;
use std::rc::Rc;

use differential_dataflow::input::InputSession;
use rustc_hash::FxHashMap;
use timely::dataflow::operators::Probe;
use timely::dataflow::{ProbeHandle, Scope as Dataflow};
use turnstream_ports::broken::Broken;
use turnstream_schemas::{
    EntryId, EntryKey, EvictionCounts, EvictionReason, HandOffReason, Handover, HistoryChange,
    HistoryEntry, Holder, Scope, ScopeRecord, ViewKey, ViewName,
};

use super::{Rows, Shown, StepCount, counted};

/// A partition, and a scope on it by a number that is never reused.
type Place = (i32, u64);

/// A category of a scope.
type Cluster = (Place, u32);

/// Changes of the number of entries of a category: −1 for the old number, +1 for the new one.
type CategoryDifferences = Rc<RefCell<Vec<((Cluster, i64), isize)>>>;

/// The views of histories on one worker: their inputs, and the records that are in them.
#[derive(Default)]
pub(super) struct Histories {
    inputs: Inputs,
    scopes: FxHashMap<(i32, Scope), OfScope>,
    /// The scopes that a row may still name, by number.
    names: FxHashMap<u64, Scope>,
    next_number: u64,
    /// The number of keys of the topic that have a value.
    keys: usize,
    /// Scopes that lost a record since the last step.
    left: Vec<(i32, Scope)>,
    differences: CategoryDifferences,
}

struct Inputs {
    /// Entries, by their offsets, as the scopes' records name them.
    held: InputSession<StepCount, (Place, i64), isize>,
    /// The categories of entries.
    members: InputSession<StepCount, ((Place, i64), u32), isize>,
    evictions: InputSession<StepCount, Shown, isize>,
    passages: InputSession<StepCount, Shown, isize>,
    measures: InputSession<StepCount, Shown, isize>,
    holders: InputSession<StepCount, Shown, isize>,
    waits: InputSession<StepCount, Shown, isize>,
}

/// The records of a scope that are in the inputs.
struct OfScope {
    number: u64,
    entries: FxHashMap<EntryId, OfEntry>,
    record: Option<OfRecord>,
}

/// The parts of an entry that are in the inputs.
struct OfEntry {
    bytes: usize,
    /// The evidence that its passages name, each once.
    evidence: Box<[Box<str>]>,
}

/// The parts of a scope's own record that are in the inputs.
struct OfRecord {
    /// Offsets of entries with their categories, rising, each pair once.
    members: Box<[(i64, u32)]>,
    categories: usize,
    groups: usize,
    chains: usize,
    evictions: EvictionCounts,
    /// The key of the view `holders`; `None` if the engine holds the scope.
    holder: Option<String>,
    /// The hour since which its user waits.
    waits_since: Option<String>,
}

impl Histories {
    /// Builds this part of the dataflow. Returns the rows of all views except `entries_by_cluster`, which
    /// [`Self::drain_clusters`] returns.
    pub(super) fn install<'scope>(
        &mut self,
        scope: Dataflow<'scope, StepCount>,
        probe: &ProbeHandle<StepCount>,
    ) -> Rows<'scope, (ViewKey, i64)> {
        let Inputs { held, members, evictions, passages, measures, holders, waits } =
            &mut self.inputs;
        let placed = members.to_collection(scope).semijoin(held.to_collection(scope));
        let clusters = placed.map(|((place, _), category)| (place, category)).count();
        let clusters = clusters.map(|(of, count)| (of, count as i64)).consolidate();
        let sizes = clusters.clone();
        let sizes = sizes.map(|(((partition, _), _), count)| (partition, count.to_string()));
        let differences = Rc::clone(&self.differences);
        let noted = clusters.inspect(move |(row, _, difference)| {
            differences.borrow_mut().push((*row, *difference));
        });
        noted.inner.probe_with(probe);
        counted(sizes, ViewName::ClusterSizes)
            .concat(counted(evictions.to_collection(scope), ViewName::EvictionsByReason))
            .concat(counted(passages.to_collection(scope), ViewName::EvidenceRemembered))
            .concat(counted(measures.to_collection(scope), ViewName::HistorySizes))
            .concat(counted(holders.to_collection(scope), ViewName::Holders))
            .concat(counted(waits.to_collection(scope), ViewName::WaitingSince))
    }

    /// Applies a change of a key of the topic. `bytes` is the size of the record.
    pub(super) fn take(&mut self, partition: i32, change: &HistoryChange, bytes: usize) {
        let EntryKey { scope, entry: id } = change.key();
        let name = (partition, scope.clone());
        if let HistoryChange::Gone { .. } = change {
            if !self.scopes.contains_key(&name) {
                return;
            }
            self.left.push(name.clone());
        }
        let of = self.scopes.entry(name).or_insert_with(|| {
            let number = self.next_number;
            self.next_number += 1;
            self.names.insert(number, scope.clone());
            OfScope { number, entries: FxHashMap::default(), record: None }
        });
        let (inputs, place) = (&mut self.inputs, (partition, of.number));
        let (came, went) = match (change, id) {
            (HistoryChange::Entry { entry, .. }, id) => {
                let id = id.unwrap_or_else(|| entry.input.entry_id());
                let now = OfEntry::new(entry, bytes);
                inputs.entry(place, id, &now, 1);
                let before = of.entries.insert(id, now);
                before.iter().for_each(|before| inputs.entry(place, id, before, -1));
                (true, before.is_some())
            }
            (HistoryChange::Gone { .. }, Some(id)) => {
                let before = of.entries.remove(id);
                let uncounted = before.iter().filter(|_| !Broken::CountWhatLeft.here());
                uncounted.for_each(|before| inputs.entry(place, *id, before, -1));
                (false, before.is_some())
            }
            (HistoryChange::Scope { record, .. }, _) => {
                let now = OfRecord::new(record);
                inputs.record(place, of.record.as_ref(), Some(&now));
                (true, of.record.replace(now).is_some())
            }
            (HistoryChange::Gone { .. }, None) => {
                inputs.record(place, of.record.as_ref(), None);
                (false, of.record.take().is_some())
            }
        };
        self.keys = self.keys + usize::from(came) - usize::from(went);
    }

    /// Returns how many keys of the topic have a value: entries, and scopes' own records.
    pub(super) fn keys(&self) -> usize {
        self.keys
    }

    /// Moves the inputs to this step: input so far belongs to the steps before.
    pub(super) fn advance_to(&mut self, step: StepCount) {
        let Inputs { held, members, evictions, passages, measures, holders, waits } =
            &mut self.inputs;
        held.advance_to(step);
        held.flush();
        members.advance_to(step);
        members.flush();
        for shown in [evictions, passages, measures, holders, waits] {
            shown.advance_to(step);
            shown.flush();
        }
    }

    /// Returns the changes of `entries_by_cluster` since the last step. Call it after the dataflow
    /// has worked the step off.
    pub(super) fn drain_clusters(&mut self) -> Vec<((ViewKey, i64), i64)> {
        let mut changed = Vec::new();
        for ((((partition, number), category), count), difference) in
            self.differences.borrow_mut().drain(..)
        {
            let key = format!("{}#{category}", self.names[&number]);
            let key = ViewKey { view: ViewName::EntriesByCluster, partition, key };
            changed.push(((key, count), difference as i64));
        }
        // No row can name a scope without records any more.
        for name in self.left.drain(..) {
            let is_empty = |of: &OfScope| of.entries.is_empty() && of.record.is_none();
            if self.scopes.get(&name).is_some_and(is_empty)
                && let Some(of) = self.scopes.remove(&name)
            {
                self.names.remove(&of.number);
            }
        }
        changed
    }
}

impl Default for Inputs {
    fn default() -> Self {
        Self {
            held: InputSession::new(),
            members: InputSession::new(),
            evictions: InputSession::new(),
            passages: InputSession::new(),
            measures: InputSession::new(),
            holders: InputSession::new(),
            waits: InputSession::new(),
        }
    }
}

impl Inputs {
    fn entry(&mut self, place: Place, id: EntryId, entry: &OfEntry, times: isize) {
        let (partition, _) = place;
        self.held.update((place, id.offset), times);
        self.measure(partition, "entries", times);
        self.measure(partition, "bytes", times * entry.bytes as isize);
        for id in &entry.evidence {
            self.passages.update((partition, String::from(&**id)), times);
        }
    }

    /// Replaces a scope's own record by a new one. Either may be missing.
    fn record(&mut self, place: Place, before: Option<&OfRecord>, now: Option<&OfRecord>) {
        let (partition, _) = place;
        let sides = [(before, -1), (now, 1)];
        for (record, times) in sides.into_iter().filter_map(|(it, times)| Some((it?, times))) {
            self.measure(partition, "scopes", times);
            let OfRecord { categories, groups, chains, .. } = record;
            for (what, many) in [("categories", categories), ("groups", groups), ("chains", chains)]
            {
                self.measure(partition, what, times * *many as isize);
            }
            for (input, key) in
                [(&mut self.holders, &record.holder), (&mut self.waits, &record.waits_since)]
            {
                key.iter().for_each(|key| input.update((partition, key.clone()), times));
            }
            for reason in EvictionReason::ALL {
                let left = record.evictions.of(reason) as isize;
                self.evictions.update((partition, reason.name().to_owned()), times * left);
            }
        }
        // Most entries stay in their category; only the others are updated.
        let [before, now] = [before, now].map(|it| it.map_or(&[][..], |record| &record.members));
        for (of, others, times) in [(before, now, -1), (now, before, 1)] {
            for (at, category) in of.iter().filter(|it| others.binary_search(it).is_err()) {
                self.members.update(((place, *at), *category), times);
            }
        }
    }

    fn measure(&mut self, partition: i32, what: &str, many: isize) {
        self.measures.update((partition, what.to_owned()), many);
    }
}

impl OfEntry {
    fn new(entry: &HistoryEntry, bytes: usize) -> Self {
        let passages = entry.passages.iter().map(|passage| passage.id.as_str().into());
        let mut evidence: Vec<Box<str>> = passages.collect();
        evidence.sort_unstable();
        evidence.dedup();
        Self { bytes, evidence: evidence.into() }
    }
}

impl OfRecord {
    fn new(record: &ScopeRecord) -> Self {
        let categories = &record.categories;
        let groups = || categories.iter().flat_map(|of| of.groups.iter().map(move |it| (of, it)));
        let members = groups()
            .flat_map(|(category, group)| group.entries.iter().map(|at| (*at, category.id)));
        let mut members: Vec<(i64, u32)> = members.collect();
        members.sort_unstable();
        members.dedup();
        let waiting = record.handover.as_ref().filter(|it| it.holder == Holder::Waiting);
        Self {
            members: members.into(),
            categories: record.categories.len(),
            groups: groups().count(),
            chains: record.chains.len(),
            evictions: record.evictions_by_reason,
            holder: record.handover.as_ref().and_then(holder),
            waits_since: waiting.map(|waiting| waiting.time.hour()),
        }
    }
}

/// Returns the key of the view `holders`; `None` if the engine holds the scope.
fn holder(handover: &Handover) -> Option<String> {
    match handover.holder {
        Holder::Bot => None,
        Holder::Agent => Some("agent".to_owned()),
        Holder::Waiting => {
            let why = handover.hand_off.map_or("unknown", HandOffReason::name);
            let queue = handover.queue.iter().map(|queue| format!("/{queue}"));
            Some(format!("waiting/{why}{}", queue.collect::<String>()))
        }
    }
}

#[cfg(test)]
mod tests;
