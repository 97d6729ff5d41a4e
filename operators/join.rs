//! Joins the two halves of a turn that query production and topic planning made of it.
//!
//! The two stages see the same turn side by side, so each turn arrives here twice, once on each
//! stream, in any order. A half on which its stage failed arrives as well; that is why the two stages
//! return one stream of [`Half`] and no stream of faults. A turn leaves exactly once, when its second
//! half arrives: with queries and topics, or, if a half failed, as one [`Failed`]. If both failed, it
//! names both reasons, under the stage of the half that comes first in the flow.
//!
//! State: by request id, the halves that wait for the other. Both halves come from one record of one
//! stream, and neither stage may swallow a turn, so at most the turns in flight wait here. The join
//! holds no capability: a waiting half leaves with the capability of the other half.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use timely::dataflow::StreamVec;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::Concat;
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::dataflow::operators::vec::Map;
use timely::progress::operate::FrontierInterest;
use turnstream_schemas::{Fault, FaultKind, RequestId, Stage};

use crate::flow::{Epoch, Failed, TurnContext, TurnInFlight};
use crate::stage::Streams;

/// The half of a turn from one stage: the turn with the stage's decision, or why the stage failed.
pub type Half = Result<TurnInFlight, Failed>;

/// Merges the two outputs of a stage into one stream of halves.
pub fn halves<'scope>(
    (turns, faults): Streams<'scope, TurnInFlight>,
) -> StreamVec<'scope, Epoch, Half> {
    turns.map(Ok).concat(faults.map(Err))
}

/// Joins the halves of each turn. Returns (turns with queries and topics, turns of which a half failed).
pub fn join<'scope>(
    queried: StreamVec<'scope, Epoch, Half>,
    planned: StreamVec<'scope, Epoch, Half>,
) -> Streams<'scope, TurnInFlight> {
    let mut builder = OperatorBuilder::new("join".to_owned(), queried.scope());
    let mut queried = builder.new_input(queried, Pipeline);
    let mut planned = builder.new_input(planned, Pipeline);
    builder.set_notify_for(0, FrontierInterest::Never);
    builder.set_notify_for(1, FrontierInterest::Never);
    let (whole, whole_stream) = builder.new_output();
    let (faults, fault_stream) = builder.new_output();
    let (mut whole, mut faults) = (OutputBuilder::from(whole), OutputBuilder::from(faults));

    builder.build(move |_| {
        let mut waiting = WaitingHalves::default();
        move |_| {
            let (mut whole, mut faults) = (whole.activate(), faults.activate());
            let mut give = |capability: &_, joined| match joined {
                Some(Ok(turn)) => whole.session(capability).give(turn),
                Some(Err(failed)) => faults.session(capability).give(failed),
                None => {}
            };
            queried.for_each(|capability, halves| {
                for half in halves.drain(..) {
                    give(&capability, waiting.arrive(Side::Queries, half));
                }
            });
            planned.for_each(|capability, halves| {
                for half in halves.drain(..) {
                    give(&capability, waiting.arrive(Side::Topics, half));
                }
            });
        }
    });
    (whole_stream, fault_stream)
}

/// Which of the two stages a half is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Queries,
    Topics,
}

fn context(half: &Half) -> &Arc<TurnContext> {
    match half {
        Ok(turn) => &turn.context,
        Err(failed) => &failed.context,
    }
}

/// Halves that wait for the other.
#[derive(Debug, Default)]
struct WaitingHalves(BTreeMap<RequestId, (Side, Half)>);

impl WaitingHalves {
    /// Takes a half in. Returns the turn once both halves have arrived.
    fn arrive(&mut self, side: Side, arrived: Half) -> Option<Half> {
        match self.0.entry(context(&arrived).request) {
            Entry::Vacant(place) => {
                place.insert((side, arrived));
                None
            }
            Entry::Occupied(other) => Some(meet(other.remove(), (side, arrived))),
        }
    }
}

/// Joins two halves of one turn, in the order of arrival.
fn meet(one: (Side, Half), other: (Side, Half)) -> Half {
    match (one, other) {
        ((Side::Queries, queried), (Side::Topics, planned))
        | ((Side::Topics, planned), (Side::Queries, queried)) => whole(queried, planned),
        // Impossible while request ids are unique. A fault still ends the turn, so that it does not
        // wait for ever.
        ((_, one), _) => Err(Failed {
            context: Arc::clone(context(&one)),
            fault: Fault::new(
                Stage::CrossRevision,
                FaultKind::Error,
                "one side answered twice: two attempts run under one request id",
            ),
        }),
    }
}

/// Merges the half with queries and the half with topics.
fn whole(queried: Half, planned: Half) -> Half {
    match (queried, planned) {
        (Ok(mut turn), Ok(mut planned)) => {
            turn.demand.topics = planned.demand.topics;
            turn.demand.thoughts.topics = planned.demand.thoughts.topics;
            let progress = &mut turn.progress;
            progress.timings_us.extend(&planned.progress.timings_us);
            progress.models.append(&mut planned.progress.models);
            progress.degraded.append(&mut planned.progress.degraded);
            progress.written.join(planned.progress.written);
            progress.degraded.sort_by_key(|fault| fault.stage);
            progress.degraded.dedup_by_key(|fault| fault.stage);
            Ok(turn)
        }
        (Err(mut failed), Err(also)) => {
            failed.fault.reason = format!("{}; {}", failed.fault.reason, also.fault);
            Err(failed)
        }
        (Err(failed), Ok(_)) | (Ok(_), Err(failed)) => Err(failed),
    }
}

#[cfg(test)]
mod tests;
