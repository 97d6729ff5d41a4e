//! The dataflow of the live collection on one worker.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, TryRecvError};
use serde::{Deserialize, Serialize};
use timely::container::CapacityContainerBuilder;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::generic::OutputBuilderSession;
use timely::dataflow::operators::generic::operator::{Operator, source};
use timely::dataflow::operators::vec::{Broadcast, Map};
use timely::dataflow::operators::{Probe, probe::Handle};
use timely::dataflow::{Scope, StreamVec};
use timely::scheduling::SyncActivator;

use super::super::phrasings::PhrasingChange;
use super::super::{Change, Changes, Fact, Graph};
use super::arrange::{KeyedUpdate, Version, arrange};
use super::dictionary::Dictionary;
use super::present::{Present, Update};
use super::{Applied, Between, Knowledge, Live, LiveCounts, Ranked, Side, Traces};

/// Most batches of changes that the source takes in at one scheduling, so that other operators get
/// to run.
const BATCHES_PER_SCHEDULING: usize = 16;

/// The content of one version.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct VersionUpdates {
    updates: Vec<Update>,
    /// Changes of own words.
    reworded: Vec<Change>,
    phrasings: Vec<PhrasingChange>,
    offsets: BTreeMap<i32, i64>,
}

/// An update with the ids of one worker, and its ranks.
type Placed = (Fact, Ranked, Ranked);

impl Knowledge {
    /// Builds the dataflow that applies live changes, on one worker. Only the first worker reads
    /// `inlet`, and its changes end when `inlet` is closed. Returns the waker of the source.
    pub fn follow(
        &self,
        scope: Scope<'_, Version>,
        inlet: Receiver<Changes>,
        counts: Arc<LiveCounts>,
    ) -> SyncActivator {
        let is_first = scope.index() == 0;
        let probe = Handle::new();
        *self.live.borrow_mut() = Some(Live {
            dictionary: Dictionary::new(Arc::clone(&self.graph)),
            applied: std::collections::VecDeque::new(),
            versions: [self.now()].into(),
            traces: None,
            probe: probe.clone(),
            counts: is_first.then(|| Arc::clone(&counts)),
        });
        let present = is_first.then(|| Present::new(Arc::clone(&self.graph)));
        let (steps, waker) = steps(scope, inlet, present.map(|present| (present, counts)));
        let placed = place(steps.broadcast(), Arc::clone(&self.graph), Rc::clone(&self.live));

        let between =
            placed.clone().map(|((fact, ..), version, diff)| between(&fact, version, diff));
        let from =
            placed.clone().map(|((fact, from, _), at, diff)| ((fact.head.0, from), at, diff));
        let to = placed.clone().map(|((fact, _, to), at, diff)| ((fact.tail.0, to), at, diff));
        let degrees = placed.flat_map(|((fact, ..), at, diff)| {
            [fact.head, fact.tail].map(|end| ((end.0, ()), at, diff))
        });
        let (between, batches) = arrange(between, "facts by head and tail");
        batches.probe_with(&probe);
        let (from, batches) = arrange(from, "facts by head, strongest first");
        batches.probe_with(&probe);
        let (to, batches) = arrange(to, "facts by tail, strongest first");
        batches.probe_with(&probe);
        let (degrees, batches) = arrange(degrees, "degrees");
        batches.probe_with(&probe);
        if let Some(live) = self.live.borrow_mut().as_mut() {
            live.traces = Some(Traces { between, from, to, degrees });
        }
        waker
    }
}

fn between(fact: &Fact, version: Version, diff: i32) -> KeyedUpdate<Between> {
    let value = (fact.tail.0, fact.relation.0, fact.source, fact.negated, fact.weight.to_bits());
    ((fact.head.0, value), version, diff)
}

/// The source: each batch of changes is one version.
fn steps<'scope>(
    scope: Scope<'scope, Version>,
    inlet: Receiver<Changes>,
    mut present: Option<(Present, Arc<LiveCounts>)>,
) -> (StreamVec<'scope, Version, VersionUpdates>, SyncActivator) {
    let mut waker = None;
    let stream = source(scope, "knowledge", |capability, info| {
        let again = scope.activator_for(Rc::clone(&info.address));
        waker = Some(scope.worker().sync_activator_for(info.address.to_vec()));
        let mut capability = present.is_some().then_some(capability);
        // Version 0 is the graph before any change.
        if let Some(capability) = &mut capability {
            capability.downgrade(&1);
        }
        move |output: &mut OutputBuilderSession<
            '_,
            Version,
            CapacityContainerBuilder<Vec<VersionUpdates>>,
        >| {
            let Some((held, (present, counts))) = capability.as_mut().zip(present.as_mut()) else {
                return;
            };
            for _ in 0..BATCHES_PER_SCHEDULING {
                match inlet.try_recv() {
                    Ok(changes) => {
                        output.session(&*held).give(step(changes, present, counts));
                        let next = *held.time() + 1;
                        held.downgrade(&next);
                    }
                    Err(TryRecvError::Empty) => return,
                    Err(TryRecvError::Disconnected) => {
                        capability = None;
                        return;
                    }
                }
            }
            again.activate();
        }
    });
    let waker = waker.unwrap_or_else(|| unreachable!("the source was built above"));
    (stream, waker)
}

/// Computes the differences that a batch of changes makes.
fn step(changes: Changes, present: &mut Present, counts: &LiveCounts) -> VersionUpdates {
    let mut updates = Vec::with_capacity(changes.changes.len());
    let mut reworded = Vec::new();
    for change in &changes.changes {
        match present.apply(change, &mut updates) {
            Ok(words) => {
                reworded.extend(words);
                counts.applied.fetch_add(1, Ordering::Relaxed)
            }
            Err(reason) => {
                tracing::warn!(key = ?change.key, %reason, "a change of the knowledge is left out");
                counts.refused.fetch_add(1, Ordering::Relaxed)
            }
        };
    }
    for update in &updates {
        // Facts of the snapshot are retracted and restored; others are inserted and removed.
        let (of, comes) = match (update.diff > 0, update.differs) {
            (true, true) => (&counts.inserted, true),
            (false, false) => (&counts.inserted, false),
            (false, true) => (&counts.retracted, true),
            (true, false) => (&counts.retracted, false),
        };
        let _ = if comes {
            of.fetch_add(1, Ordering::Relaxed)
        } else {
            of.fetch_sub(1, Ordering::Relaxed)
        };
    }
    counts.differing.store(present.len() as u64, Ordering::Relaxed);
    VersionUpdates { updates, reworded, phrasings: changes.phrasings, offsets: changes.offsets }
}

/// Gives updates the ids of this worker.
fn place(
    steps: StreamVec<'_, Version, VersionUpdates>,
    graph: Arc<Graph>,
    live: Rc<RefCell<Option<Live>>>,
) -> StreamVec<'_, Version, (Placed, Version, i32)> {
    steps.unary(Pipeline, "ids", move |_, _| {
        move |input, output: &mut OutputBuilderSession<'_, Version, CapacityContainerBuilder<Vec<_>>>| {
            input.for_each(|capability, steps| {
                let version = *capability.time();
                let mut live = live.borrow_mut();
                let Some(live) = live.as_mut() else { return };
                let mut session = output.session(&capability);
                for VersionUpdates { updates, reworded, phrasings, offsets } in steps.drain(..) {
                    for update in &updates {
                        let placed = live.dictionary.place(update, version, &graph);
                        session.give((placed, version, update.diff));
                    }
                    live.applied.push_back(Applied { version, reworded, phrasings, offsets });
                }
            });
        }
    })
}

impl Dictionary {
    /// An update with ids. Gives ids to its new concepts.
    fn place(&mut self, update: &Update, version: Version, graph: &Graph) -> Placed {
        let key = &update.key;
        let head = self.concept(&key.head, &update.language);
        let tail = self.concept(&key.tail, &update.language);
        for end in [head, tail] {
            if update.differs { self.touch(end) } else { self.leave(version, end) }
        }
        let (relation, source) = (self.relation(&key.relation), self.source(&key.source));
        let Update { weight, negated, .. } = *update;
        let fact = Fact { head, tail, relation, weight, source, negated };
        let of_snapshot =
            self.live_relation(relation).is_none() && self.live_source(source).is_none();
        let rest = if of_snapshot { 0 } else { name(&[&key.relation, &key.source]) };
        let far = |id, text| match self.live(id) {
            Some(concept) => name(&[text, &concept.language]),
            None => 0,
        };
        let from = (far(tail, &key.tail), rest);
        let to = (far(head, &key.head), rest);
        (
            fact,
            Ranked::named(&fact, Side::From, graph, from),
            Ranked::named(&fact, Side::To, graph, to),
        )
    }
}

/// A hash of names that is the same on every worker and never 0.
fn name(of: &[&str]) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    of.hash(&mut hasher);
    hasher.finish().max(1)
}
