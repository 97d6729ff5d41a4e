//! The live collection: what differs from the snapshot, from moment to moment.
//!
//! ```text
//!  knowledge topic ──▶ present: ±1 against what stands ──▶ broadcast ──▶ ids ──┬─▶ by head, tail
//!                      (first worker)                      (every worker)     ├─▶ by head, rank
//!                                                                             ├─▶ by tail, rank
//!                                                                             └─▶ degree
//! ```
//!
//! It is a dataflow of its own, whose time is the *version*: how many batches of changes were
//! applied. A turn takes the latest complete version when it comes to its first stage and reads
//! that one to its last, so that changes fall between turns and never within one. What no turn
//! can read any more is compacted.

mod arrange;
mod collect;
mod dictionary;
mod present;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use timely::dataflow::operators::probe::Handle;
use turnstream_schemas::KnowledgeState;

use super::{Fact, Graph, View};
use arrange::{Batches, Trace, Version};
pub(super) use dictionary::Dictionary;

/// A fact that differs from the snapshot, in the order in which those of one head are sought:
/// tail, relation, source, denied, weight.
type Between = (u32, u16, u8, bool, u32);

/// A fact that differs from the snapshot, in the order in which the strongest of one concept are
/// given.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub(super) struct Ranked {
    /// The heavier, the less.
    lightness: u32,
    /// The snapshot has few facts about the other end.
    hesitant: bool,
    /// How many; none for a concept that only the topic names, which somebody put there on
    /// purpose.
    degree: u32,
    /// Ids beyond the snapshot's come in the order of their arrival, which means nothing; these
    /// take their place. 0 for ids of the snapshot.
    far_name: u64,
    far: u32,
    rest_name: u64,
    relation: u16,
    source: u8,
    negated: bool,
}

impl Ranked {
    /// The fact, seen from the concept it is ranked at.
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

    /// Where a fact of the snapshot stands; `degree` is that of its other end in the snapshot.
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
            // Weights are positive and finite, so their bits order as they do.
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

/// From which end facts are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Facts about a head.
    From,
    /// Facts whose tail is the concept.
    To,
}

/// A moment of the knowledge: what a turn looks facts up in, from its first stage to its last.
#[derive(Clone, Debug, Default)]
pub struct Moment(Arc<Named>);

#[derive(Debug, Default)]
struct Named {
    version: Version,
    state: KnowledgeState,
}

impl Moment {
    /// Its name: the snapshot, and the offsets up to which changes were applied.
    pub fn state(&self) -> &KnowledgeState {
        &self.0.state
    }
}

/// How large the live collection is, for who watches the process. Written by its first worker.
#[derive(Debug, Default)]
pub struct LiveCounts {
    /// Statements that the snapshot does not have, or has otherwise.
    pub inserted: AtomicU64,
    /// Statements of the snapshot that do not stand, or stand otherwise.
    pub retracted: AtomicU64,
    /// Keys of the topic whose statement differs from the snapshot.
    pub differing: AtomicU64,
    /// Concepts that only the topic names.
    pub concepts: AtomicU64,
    /// Moments that a turn in flight may still read, the latest included.
    pub moments: AtomicU64,
    /// Updates in the arrangements of one worker; compaction brings them down.
    pub updates: AtomicU64,
    /// Changes that were applied.
    pub applied: AtomicU64,
    /// Changes for which there was no room among the sources or relations.
    pub refused: AtomicU64,
}

/// The knowledge of one worker. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Knowledge {
    graph: Arc<Graph>,
    now: Rc<RefCell<Moment>>,
    live: Rc<RefCell<Option<Live>>>,
}

/// What one worker holds of the live collection.
struct Live {
    dictionary: Dictionary,
    /// Applied, oldest first: complete once the probe has passed them.
    applied: VecDeque<(Version, BTreeMap<i32, i64>)>,
    /// Moments that were complete, oldest first; the last is now.
    moments: VecDeque<Moment>,
    traces: Option<Traces>,
    probe: Handle<Version>,
    counts: Option<Arc<LiveCounts>>,
}

struct Traces {
    between: Trace<Between>,
    from: Trace<Ranked>,
    to: Trace<Ranked>,
    degrees: Trace<()>,
}

/// The live collection as it is read at one version.
pub(super) struct Reading<'k> {
    pub(super) dictionary: &'k Dictionary,
    version: Version,
    between: Batches<Between>,
    from: Batches<Ranked>,
    to: Batches<Ranked>,
    degrees: Batches<()>,
}

impl Knowledge {
    /// What a graph holds, for ever.
    pub fn new(graph: Arc<Graph>) -> Self {
        let state =
            KnowledgeState { snapshot: graph.version().to_owned(), offsets: BTreeMap::new() };
        let now = Moment(Arc::new(Named { version: 0, state }));
        Self { graph, now: Rc::new(RefCell::new(now)), live: Rc::default() }
    }

    /// The latest moment. What begins now is to read it, and keep to it.
    pub fn now(&self) -> Moment {
        self.now.borrow().clone()
    }

    /// Looks things up as they were at a moment.
    pub fn at<T>(&self, moment: &Moment, look: impl FnOnce(View<'_>) -> T) -> T {
        let live = self.live.borrow();
        match live.as_ref().and_then(|live| live.read(moment.0.version)) {
            Some(reading) => look(View::of(&self.graph, &reading)),
            None => look(self.graph.view()),
        }
    }

    /// Takes notice of what was applied: moves to the latest complete moment, and lets go of
    /// those that no turn holds. To be called after the worker has worked, outside of look-ups.
    pub fn settle(&self) {
        let mut live = self.live.borrow_mut();
        let Some(live) = live.as_mut() else { return };
        let mut latest = None;
        while let Some((version, _)) = live.applied.front()
            && !live.probe.less_equal(version)
        {
            latest = live.applied.pop_front();
        }
        let moved = latest.is_some();
        if let Some((version, offsets)) = latest {
            let state = KnowledgeState { snapshot: self.graph.version().to_owned(), offsets };
            let now = Moment(Arc::new(Named { version, state }));
            *self.now.borrow_mut() = now.clone();
            live.moments.push_back(now);
        }
        if moved || live.moments.len() > 1 {
            live.let_go();
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

    /// Forgets the moments that nobody holds but us, and compacts up to the oldest that is left.
    fn let_go(&mut self) {
        let before = self.moments.len();
        let last = before.saturating_sub(1);
        let mut at = 0;
        self.moments.retain(|moment| {
            at += 1;
            // The latest is held as `now` as well.
            at > last || Arc::strong_count(&moment.0) > 1
        });
        let Some(oldest) = self.moments.front() else { return };
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
        counts.moments.store(self.moments.len() as u64, Ordering::Relaxed);
        counts.concepts.store(self.dictionary.len() as u64, Ordering::Relaxed);
    }
}

impl<'k> Reading<'k> {
    /// Facts of a head that differ from the snapshot, with +1 or −1; those with this tail where
    /// one is given.
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

    /// By how much the degree of a concept differs from the snapshot's.
    pub(super) fn degree(&self, concept: super::ConceptId) -> i32 {
        self.degrees.of(concept.0, self.version).map(|((), diff)| diff).sum()
    }
}

#[cfg(test)]
mod tests;
