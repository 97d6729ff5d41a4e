//! An operator beside `history` that waits for further fragments of an utterance: it gives back
//! each pause once its time is over.
//!
//! It holds the capabilities, so that `history` need not.

use std::collections::VecDeque;
use std::rc::Rc;

use timely::dataflow::StreamVec;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::progress::operate::FrontierInterest;

use super::sequence::Pause;
use crate::flow::Epoch;
use crate::timers::Timers;

/// Gives back each pause `ms` milliseconds after it came.
pub(super) fn pause<'scope>(
    pauses: StreamVec<'scope, Epoch, Pause>,
    ms: u64,
    timers: Timers,
) -> StreamVec<'scope, Epoch, Pause> {
    let scope = pauses.scope();
    let mut builder = OperatorBuilder::new("pause".to_owned(), scope);
    let activator = Rc::new(scope.activator_for(builder.operator_info().address));
    let mut input = builder.new_input(pauses, Pipeline);
    builder.set_notify_for(0, FrontierInterest::Never);
    let (output, stream) = builder.new_output();
    let mut output = OutputBuilder::from(output);
    builder.build(move |_| {
        // All wait equally long, so they are over in the order in which they came.
        let mut open = VecDeque::new();
        move |_| {
            let now_ms = timers.now_ms();
            input.for_each(|capability, pauses| {
                let due_ms = now_ms.saturating_add(ms);
                timers.wake_at(due_ms, Rc::clone(&activator));
                for pause in pauses.drain(..) {
                    open.push_back((due_ms, capability.retain(0), pause));
                }
            });
            let mut output = output.activate();
            while let Some((_, capability, pause)) = open.pop_front_if(|(due, ..)| *due <= now_ms) {
                output.session(&capability).give(pause);
            }
        }
    });
    stream
}
