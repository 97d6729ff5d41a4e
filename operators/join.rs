//! The meeting of query production and topic planning: two halves of one turn become one.
//!
//! The two stages see the same turn side by side, so each turn arrives here twice, once on each
//! stream, in any order. A half that its stage could not serve arrives as well, as a failure:
//! that is why the two stages give one stream of [`Half`] and no stream of faults. A turn leaves
//! exactly once, when its second half is here: with the queries and the topics, or, where a half failed, as one
//! [`Failed`] with the reason of the stage that comes first in the flow.
//!
//! State: by request id, the halves that wait for the other. Both halves descend from one record
//! of one stream and neither stage may swallow a turn, so that what waits here is at most what is
//! in flight. No capability is held: a waiting half leaves with the other half's.

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

/// One side's account of a turn: the turn with what its stage decided, or why it could not.
pub type Half = Result<TurnInFlight, Failed>;

/// The two outputs of a stage as one stream of halves.
pub fn halves<'scope>(
    (turns, faults): Streams<'scope, TurnInFlight>,
) -> StreamVec<'scope, Epoch, Half> {
    turns.map(Ok).concat(faults.map(Err))
}

/// Joins the halves of each turn: turns with queries and topics, and turns of which a half failed.
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
    /// Takes a half in; gives the turn once both are here.
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

/// Two halves of one turn.
fn meet(one: (Side, Half), other: (Side, Half)) -> Half {
    match (one, other) {
        ((Side::Queries, queried), (Side::Topics, planned))
        | ((Side::Topics, planned), (Side::Queries, queried)) => whole(queried, planned),
        // Cannot be while request ids are unique; an answer all the same, so that no turn waits
        // for ever.
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

/// The turn with its queries and with its topics.
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
