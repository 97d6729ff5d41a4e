//! The live collection: what differs from the snapshot, by version.
//!
//! ```text
//!  knowledge topic ──▶ present: ±1 against what stands ──▶ broadcast ──▶ ids ──┬─▶ by head, tail
//!                      (first worker)                      (every worker)     ├─▶ by head, rank
//!                                                                             ├─▶ by tail, rank
//!                                                                             └─▶ degree
//! ```
//!
//! The live collection is a separate dataflow. Its time is the *version*: the number of applied
//! batches of changes. A turn takes the latest complete version at its first stage and reads that
//! one until its last, so that changes apply between turns and never within one. Versions that no
//! turn can read any more are compacted.

mod arrange;
mod collect;
mod dictionary;
mod present;
mod reworded;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use timely::dataflow::operators::probe::Handle;
use turnstream_schemas::KnowledgeState;

use super::phrasings::{PhrasingChange, Phrasings};
use super::{Change, Fact, Graph, View};
use arrange::{Batches, Trace, Version};
pub(super) use dictionary::Dictionary;
pub(super) use reworded::Reworded;

/// A fact that differs from the snapshot, in the sort order of a head's facts: tail, relation,
/// source, negated, weight.
type Between = (u32, u16, u8, bool, u32);

/// A fact that differs from the snapshot, in the sort order of a concept's strongest facts.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub(super) struct Ranked {
    /// The inverted weight, so that heavier facts sort first.
    lightness: u32,
    /// Whether the snapshot has few facts about the other end.
    hesitant: bool,
    /// The degree of the other end. 0 for a concept that only the topic names, since it was added
    /// on purpose.
    degree: u32,
    /// A hash of the far concept's name, as `rest_name` is of the relation's and the source's; 0 if
    /// the snapshot has the names. The hashes sort before the ids, because ids beyond the
    /// snapshot's depend on the order of arrival.
    far_name: u64,
    far: u32,
    rest_name: u64,
    relation: u16,
    source: u8,
    negated: bool,
}

impl Ranked {
    /// The fact, for the concept at its near end.
    pub(super) fn fact(&self, near: super::ConceptId, side: Side) -> Fact {
        let far = super::ConceptId(self.far);
        let (head, tail) = match side {
            Side::From => (near, far),
            Side::To => (far, near),
        };
        Fact {
            head,
            tail,
            relation: super::RelationId(self.relation),
            weight: f32::from_bits(!self.lightness),
            source: self.source,
            negated: self.negated,
        }
    }

    /// The rank of a fact of the snapshot.
    pub(super) fn of_snapshot(fact: &Fact, side: Side, graph: &Graph) -> Self {
        Self::named(fact, side, graph, (0, 0))
    }

    fn named(fact: &Fact, side: Side, graph: &Graph, (far_name, rest_name): (u64, u64)) -> Self {
        let far = match side {
            Side::From => fact.tail,
            Side::To => fact.head,
        };
        let known = (far.0 as usize) < graph.concepts().len();
        let degree = if known { graph.degree(far) } else { 0 };
        Self {
            // Weights are positive and finite, so their bits sort like the numbers.
            lightness: !fact.weight.to_bits(),
            hesitant: (1..super::compile::WELL_ATTESTED_DEGREE).contains(&degree),
            degree,
            far_name,
            far: far.0,
            rest_name,
            relation: fact.relation.0,
            source: fact.source,
            negated: fact.negated,
        }
    }
}

/// The end of a fact at which a look-up begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Facts about a head.
    From,
    /// Facts whose tail is the concept.
    To,
}

/// A version of the graph, of the own words of its facts, and of the phrasings. A turn reads one
/// version from its first stage to its last.
#[derive(Clone, Debug, Default)]
pub struct KnowledgeVersion(Arc<Named>);

#[derive(Debug, Default)]
struct Named {
    version: Version,
    state: KnowledgeState,
    reworded: Arc<Reworded>,
    phrasings: Phrasings,
}

impl KnowledgeVersion {
    /// Its number; it rises with every change.
    pub fn number(&self) -> u64 {
        self.0.version
    }

    /// The phrasings of the version.
    pub fn phrasings(&self) -> &Phrasings {
        &self.0.phrasings
    }

    /// The name of the version: the snapshot, and the offsets up to which changes are applied.
    pub fn state(&self) -> &KnowledgeState {
        &self.0.state
    }
}

/// The size of the live collection, for monitoring. The first worker writes it.
#[derive(Debug, Default)]
pub struct LiveCounts {
    /// Statements that the snapshot does not have, or has with other values.
    pub inserted: AtomicU64,
    /// Statements of the snapshot that were retracted or replaced.
    pub retracted: AtomicU64,
    /// Keys of the topic whose statement differs from the snapshot.
    pub differing: AtomicU64,
    /// Concepts that only the topic names.
    pub concepts: AtomicU64,
    /// Phrasings that the topic changed.
    pub phrasings: AtomicU64,
    /// Versions that a turn in flight may still read, including the latest.
    pub versions: AtomicU64,
    /// Updates in the arrangements of one worker; compaction brings them down.
    pub updates: AtomicU64,
    /// Applied changes.
    pub applied: AtomicU64,
    /// Changes that were refused because there are too many sources or relations.
    pub refused: AtomicU64,
}

/// The graph of one worker with its live changes. Cheap to clone: all clones share it.
#[derive(Clone)]
pub struct Knowledge {
    graph: Arc<Graph>,
    now: Rc<RefCell<KnowledgeVersion>>,
    live: Rc<RefCell<Option<Live>>>,
}

/// One worker's part of the live collection.
struct Live {
    dictionary: Dictionary,
    /// Applied batches, oldest first. A batch is complete once the probe has passed its version.
    applied: VecDeque<Applied>,
    /// Complete versions, oldest first. The last is the latest.
    versions: VecDeque<KnowledgeVersion>,
    traces: Option<Traces>,
    probe: Handle<Version>,
    counts: Option<Arc<LiveCounts>>,
}

/// An applied batch of changes.
struct Applied {
    version: Version,
    reworded: Vec<Change>,
    phrasings: Vec<PhrasingChange>,
    offsets: BTreeMap<i32, i64>,
}

struct Traces {
    between: Trace<Between>,
    from: Trace<Ranked>,
    to: Trace<Ranked>,
    degrees: Trace<()>,
}

/// The live collection, read at one version.
pub(super) struct Reading<'k> {
    pub(super) dictionary: &'k Dictionary,
    version: Version,
    between: Batches<Between>,
    from: Batches<Ranked>,
    to: Batches<Ranked>,
    degrees: Batches<()>,
}

impl Knowledge {
    /// A graph and phrasings without live changes.
    pub fn new(graph: Arc<Graph>, phrasings: Phrasings) -> Self {
        let state =
            KnowledgeState { snapshot: graph.version().to_owned(), offsets: BTreeMap::new() };
        let reworded = Arc::default();
        let now = KnowledgeVersion(Arc::new(Named { version: 0, state, reworded, phrasings }));
        Self { graph, now: Rc::new(RefCell::new(now)), live: Rc::default() }
    }

    /// The latest version. A new turn reads it until its end.
    pub fn now(&self) -> KnowledgeVersion {
        self.now.borrow().clone()
    }

    /// Runs look-ups in a version.
    pub fn at<T>(&self, version: &KnowledgeVersion, look: impl FnOnce(View<'_>) -> T) -> T {
        let live = self.live.borrow();
        let reading = live.as_ref().and_then(|live| live.read(version.0.version));
        look(View::of(&self.graph, reading.as_ref(), &version.0.reworded))
    }

    /// Moves to the latest complete version and drops versions that no turn holds. Call it after
    /// the worker's step, outside look-ups.
    pub fn settle(&self) {
        let mut live = self.live.borrow_mut();
        let Some(live) = live.as_mut() else { return };
        let (mut latest, mut reworded, mut taught) = (None, Vec::new(), Vec::new());
        while let Some(Applied { version, .. }) = live.applied.front()
            && !live.probe.less_equal(version)
        {
            latest = live.applied.pop_front().map(|applied| {
                reworded.extend(applied.reworded);
                taught.extend(applied.phrasings);
                (applied.version, applied.offsets)
            });
        }
        let moved = latest.is_some();
        if let Some((version, offsets)) = latest {
            let state = KnowledgeState { snapshot: self.graph.version().to_owned(), offsets };
            let KnowledgeVersion(before) = self.now();
            let Named { reworded: words, phrasings, .. } = &*before;
            let reworded = match reworded.is_empty() {
                true => Arc::clone(words),
                false => Arc::new(words.with(reworded)),
            };
            let phrasings =
                if taught.is_empty() { phrasings.clone() } else { phrasings.with(taught) };
            let now = KnowledgeVersion(Arc::new(Named { version, state, reworded, phrasings }));
            *self.now.borrow_mut() = now.clone();
            live.versions.push_back(now);
        }
        if moved || live.versions.len() > 1 {
            live.release_unread();
        }
        if moved {
            live.tell();
        }
    }
}

impl Live {
    fn read(&self, version: Version) -> Option<Reading<'_>> {
        if self.dictionary.is_idle() {
            return None;
        }
        let traces = self.traces.as_ref()?;
        Some(Reading {
            dictionary: &self.dictionary,
            version,
            between: traces.between.read(),
            from: traces.from.read(),
            to: traces.to.read(),
            degrees: traces.degrees.read(),
        })
    }

    /// Drops the versions that only this struct holds, and compacts up to the oldest one left.
    fn release_unread(&mut self) {
        let before = self.versions.len();
        let last = before.saturating_sub(1);
        let mut at = 0;
        self.versions.retain(|version| {
            at += 1;
            // `now` holds the latest version as well.
            at > last || Arc::strong_count(&version.0) > 1
        });
        let Some(oldest) = self.versions.front() else { return };
        let oldest = oldest.0.version;
        if let Some(traces) = &mut self.traces {
            traces.between.compact(oldest);
            traces.from.compact(oldest);
            traces.to.compact(oldest);
            traces.degrees.compact(oldest);
        }
        self.dictionary.forget_before(oldest);
    }

    fn tell(&self) {
        let Some((counts, traces)) = self.counts.as_ref().zip(self.traces.as_ref()) else { return };
        let updates = traces.between.read().len()
            + traces.from.read().len()
            + traces.to.read().len()
            + traces.degrees.read().len();
        counts.updates.store(updates as u64, Ordering::Relaxed);
        counts.versions.store(self.versions.len() as u64, Ordering::Relaxed);
        counts.concepts.store(self.dictionary.len() as u64, Ordering::Relaxed);
        let phrasings = self.versions.back().map_or(0, |now| now.phrasings().changed());
        counts.phrasings.store(phrasings as u64, Ordering::Relaxed);
    }
}

impl<'k> Reading<'k> {
    /// Facts between a head and a tail that differ from the snapshot, with +1 or −1.
    pub(super) fn between(
        &'k self,
        head: super::ConceptId,
        tail: super::ConceptId,
    ) -> impl Iterator<Item = (Fact, i32)> + 'k {
        let first = (tail.0, 0, 0, false, 0);
        let values = self.between.from(head.0, Some(&first), self.version);
        values.take_while(move |(value, _)| value.0 == tail.0).map(move |(value, diff)| {
            let (_, relation, source, negated, weight) = value;
            let weight = f32::from_bits(weight);
            let relation = super::RelationId(relation);
            (Fact { head, tail, relation, weight, source, negated }, diff)
        })
    }

    /// Facts of a concept that differ from the snapshot, strongest first, with +1 or −1.
    pub(super) fn ranked(
        &'k self,
        concept: super::ConceptId,
        side: Side,
    ) -> impl Iterator<Item = (Ranked, i32)> + 'k {
        let batches = match side {
            Side::From => &self.from,
            Side::To => &self.to,
        };
        batches.of(concept.0, self.version)
    }

    /// The difference between a concept's degree and its degree in the snapshot.
    pub(super) fn degree(&self, concept: super::ConceptId) -> i32 {
        self.degrees.of(concept.0, self.version).map(|((), diff)| diff).sum()
    }
}

#[cfg(test)]
mod tests;
