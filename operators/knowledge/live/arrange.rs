//! Arranges the differences from the snapshot, and reads them at a version.
//!
//! Each batch has its own cursor, and the differences are summed over batches: the merged cursors
//! of differential-dataflow 0.25 panic when they seek a value among several batches.

use std::rc::Rc;

use differential_dataflow::Data;
use differential_dataflow::operators::arrange::arrangement::arrange_core;
use differential_dataflow::operators::arrange::{Arranged, TraceAgent};
use differential_dataflow::trace::implementations::chunker::ContainerChunker;
use differential_dataflow::trace::implementations::ord_neu::OrdValBatch;
use differential_dataflow::trace::implementations::{ValBatcher, ValBuilder, ValSpine, Vector};
use differential_dataflow::trace::{BatchReader, Cursor, Navigable, TraceReader};
use timely::dataflow::StreamVec;
use timely::dataflow::channels::pact::Pipeline;
use timely::progress::Antichain;

/// The dataflow's time: the number of applied batches of changes.
pub(super) type Version = u64;

/// A change of a collection keyed by concept.
pub(super) type KeyedUpdate<V> = ((u32, V), Version, i32);

type Batch<V> = Rc<OrdValBatch<Vector<KeyedUpdate<V>>>>;
type BatchCursor<V> = <Batch<V> as Navigable>::Cursor;

/// A collection arranged by concept, on one worker.
pub(super) struct Trace<V: Data>(TraceAgent<ValSpine<u32, V, Version, i32>>);

/// Arranges a collection by concept. Every worker holds all of it, so there is no exchange.
pub(super) fn arrange<'scope, V: Data>(
    changes: StreamVec<'scope, Version, KeyedUpdate<V>>,
    name: &str,
) -> (Trace<V>, StreamVec<'scope, Version, Batch<V>>) {
    let Arranged { stream, trace } = arrange_core::<
        _,
        _,
        ContainerChunker<Vec<KeyedUpdate<V>>>,
        ValBatcher<u32, V, Version, i32>,
        ValBuilder<u32, V, Version, i32>,
        ValSpine<u32, V, Version, i32>,
    >(changes, Pipeline, name);
    (Trace(trace), stream)
}

impl<V: Data> Trace<V> {
    /// Merges all versions before this one into one, and allows batches to be merged.
    pub(super) fn compact(&mut self, version: Version) {
        let frontier = Antichain::from_elem(version);
        self.0.set_logical_compaction(frontier.borrow());
        // Readers filter by time and read no frontier, so batches may merge freely.
        self.0.set_physical_compaction(Antichain::new().borrow());
    }

    /// The present content of the arrangement.
    pub(super) fn read(&self) -> Batches<V> {
        let mut batches = Vec::new();
        self.0.map_batches(|batch| {
            if !batch.is_empty() {
                batches.push(Rc::clone(batch));
            }
        });
        Batches(batches)
    }
}

/// The batches of an arrangement at one instant.
pub(super) struct Batches<V: Data>(Vec<Batch<V>>);

impl<V: Data> Batches<V> {
    /// The number of updates.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|batch| batch.len()).sum()
    }

    /// The values of a concept that differ from the snapshot at a version, in order, each with +1
    /// or −1.
    pub(super) fn of(&self, concept: u32, version: Version) -> Values<'_, V> {
        self.from(concept, None, version)
    }

    /// The same, from the first value that is at least `first`.
    pub(super) fn from(&self, concept: u32, first: Option<&V>, version: Version) -> Values<'_, V> {
        let mut cursors = Vec::with_capacity(self.0.len());
        for batch in &self.0 {
            let mut cursor = batch.cursor();
            cursor.seek_key(batch, &concept);
            if cursor.get_key(batch) != Some(&concept) {
                continue;
            }
            if let Some(first) = first {
                cursor.seek_val(batch, first);
            }
            if cursor.val_valid(batch) {
                cursors.push((batch, cursor));
            }
        }
        Values { cursors, version }
    }
}

/// Values of one concept, merged over batches.
pub(super) struct Values<'b, V: Data> {
    cursors: Vec<(&'b Batch<V>, BatchCursor<V>)>,
    version: Version,
}

impl<V: Data> Iterator for Values<'_, V> {
    type Item = (V, i32);

    fn next(&mut self) -> Option<(V, i32)> {
        loop {
            let values = self.cursors.iter().filter_map(|(batch, cursor)| cursor.get_val(batch));
            let least = values.min()?.clone();
            let mut sum = 0;
            self.cursors.retain_mut(|(batch, cursor)| {
                if cursor.get_val(batch) != Some(&least) {
                    return true;
                }
                cursor.map_times(batch, |time, diff| {
                    if *time <= self.version {
                        sum += *diff;
                    }
                });
                cursor.step_val(batch);
                cursor.val_valid(batch)
            });
            if sum != 0 {
                return Some((least, sum));
            }
        }
    }
}
