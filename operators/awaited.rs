//! Keeps the turns on one worker whose outcome `history` still waits for.
//!
//! A turn may end while a model works on it: an agent answers first, or another process gets the
//! partition. `history` then gives the turn up here, and the stage that asked the model drops the
//! turn at once. Otherwise a stalled model would hold the turns of all earlier assignments.

use std::cell::RefCell;
use std::rc::Rc;

use rustc_hash::FxHashSet;
use timely::scheduling::Activator;

use turnstream_schemas::RequestId;

/// The turns in flight on one worker whose outcome is still open. Clones share them.
#[derive(Clone, Default)]
pub struct Awaited(Rc<RefCell<AwaitedTurns>>);

#[derive(Default)]
struct AwaitedTurns {
    turns: FxHashSet<RequestId>,
    given_up: u64,
    watching: Vec<Rc<Activator>>,
}

impl Awaited {
    /// Records that a turn goes into the flow.
    pub fn ask(&self, request: RequestId) {
        self.0.borrow_mut().turns.insert(request);
    }

    /// Records that a turn came back to `history`.
    pub fn answered(&self, request: RequestId) {
        self.0.borrow_mut().turns.remove(&request);
    }

    /// Gives a turn up, and schedules the watching operators.
    pub fn give_up(&self, request: RequestId) {
        let mut state = self.0.borrow_mut();
        if state.turns.remove(&request) {
            state.given_up += 1;
            state.watching.iter().for_each(|operator| operator.activate());
        }
    }

    /// Whether the turn is still awaited.
    pub fn contains(&self, request: RequestId) -> bool {
        self.0.borrow().turns.contains(&request)
    }

    /// Returns how many turns have been given up so far. A watcher has nothing to do until it
    /// changes.
    pub fn given_up(&self) -> u64 {
        self.0.borrow().given_up
    }

    /// Schedules the operator whenever a turn is given up.
    pub fn watch(&self, operator: Rc<Activator>) {
        self.0.borrow_mut().watching.push(operator);
    }
}
