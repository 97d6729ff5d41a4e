//! The meeting of query production and topic planning: two halves of one turn become one.
//!
//! The two stages see the same turn side by side, so each turn arrives here twice, once on each
//! stream, in any order. A half that its stage could not serve arrives as well, as a failure:
//! that is why the two stages give one stream of [`Half`] and no stream of faults. A turn leaves
//! exactly once, when its second half is here: as a [`Pair`], or, where a half failed, as one
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

use crate::flow::{Epoch, Failed, InFlight, Planned, Progress, Queried, TurnContext};
use crate::stage::Streams;

/// One side's account of a turn: what its stage made of it, or why it could not.
pub type Half<T> = Result<T, Failed>;

/// A turn with its query production and its topic planning.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The query production. Its progress is that of both halves.
    pub queried: Queried,
    /// The topic planning.
    pub planned: Planned,
}

impl InFlight for Pair {
    fn context(&self) -> &Arc<TurnContext> {
        self.queried.context()
    }

    fn progress(&mut self) -> &mut Progress {
        self.queried.progress()
    }
}

/// The two outputs of a stage as one stream of halves.
pub fn halves<'scope, T: 'static>(
    (values, faults): Streams<'scope, T>,
) -> StreamVec<'scope, Epoch, Half<T>> {
    values.map(Ok).concat(faults.map(Err))
}

/// Joins the halves of each turn: whole turns, and turns of which a half failed.
pub fn join<'scope>(
    queried: StreamVec<'scope, Epoch, Half<Queried>>,
    planned: StreamVec<'scope, Epoch, Half<Planned>>,
) -> Streams<'scope, Pair> {
    let mut builder = OperatorBuilder::new("join".to_owned(), queried.scope());
    let mut queried = builder.new_input(queried, Pipeline);
    let mut planned = builder.new_input(planned, Pipeline);
    builder.set_notify_for(0, FrontierInterest::Never);
    builder.set_notify_for(1, FrontierInterest::Never);
    let (pairs, pair_stream) = builder.new_output();
    let (faults, fault_stream) = builder.new_output();
    let (mut pairs, mut faults) = (OutputBuilder::from(pairs), OutputBuilder::from(faults));

    builder.build(move |_| {
        let mut waiting = Waiting::default();
        move |_| {
            let (mut pairs, mut faults) = (pairs.activate(), faults.activate());
            let mut give = |capability: &_, joined| match joined {
                Some(Ok(pair)) => pairs.session(capability).give(pair),
                Some(Err(failed)) => faults.session(capability).give(failed),
                None => {}
            };
            queried.for_each(|capability, halves| {
                for half in halves.drain(..) {
                    give(&capability, waiting.arrive(Side::Queried(half)));
                }
            });
            planned.for_each(|capability, halves| {
                for half in halves.drain(..) {
                    give(&capability, waiting.arrive(Side::Planned(half)));
                }
            });
        }
    });
    (pair_stream, fault_stream)
}

/// A half and which one it is.
#[derive(Debug)]
enum Side {
    Queried(Half<Queried>),
    Planned(Half<Planned>),
}

impl Side {
    fn request(&self) -> RequestId {
        match self {
            Self::Queried(Ok(half)) => half.turn.context.request,
            Self::Planned(Ok(half)) => half.turn.context.request,
            Self::Queried(Err(failed)) | Self::Planned(Err(failed)) => failed.context.request,
        }
    }

    fn context(self) -> Arc<TurnContext> {
        match self {
            Self::Queried(Ok(half)) => half.turn.context,
            Self::Planned(Ok(half)) => half.turn.context,
            Self::Queried(Err(failed)) | Self::Planned(Err(failed)) => failed.context,
        }
    }
}

/// Halves that wait for the other.
#[derive(Debug, Default)]
struct Waiting(BTreeMap<RequestId, Side>);

impl Waiting {
    /// Takes a half in; gives the turn once both are here.
    fn arrive(&mut self, arrived: Side) -> Option<Result<Pair, Failed>> {
        match self.0.entry(arrived.request()) {
            Entry::Vacant(place) => {
                place.insert(arrived);
                None
            }
            Entry::Occupied(other) => Some(meet(other.remove(), arrived)),
        }
    }
}

/// Two halves of one turn.
fn meet(one: Side, other: Side) -> Result<Pair, Failed> {
    match (one, other) {
        (Side::Queried(queried), Side::Planned(planned))
        | (Side::Planned(planned), Side::Queried(queried)) => pair(queried, planned),
        // Cannot be while request ids are unique; an answer all the same, so that no turn waits
        // for ever.
        (one, _) => Err(Failed {
            context: one.context(),
            fault: Fault::new(
                Stage::CrossRevision,
                FaultKind::Error,
                "one side answered twice: two attempts run under one request id",
            ),
        }),
    }
}

fn pair(queried: Half<Queried>, planned: Half<Planned>) -> Result<Pair, Failed> {
    match (queried, planned) {
        (Ok(mut queried), Ok(mut planned)) => {
            let progress = &mut queried.turn.progress;
            progress.timings_us.extend(&planned.turn.progress.timings_us);
            progress.models.append(&mut planned.turn.progress.models);
            progress.degraded.append(&mut planned.turn.progress.degraded);
            progress.degraded.sort_by_key(|fault| fault.stage);
            progress.degraded.dedup_by_key(|fault| fault.stage);
            Ok(Pair { queried, planned })
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
