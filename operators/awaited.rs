//! Whose answers `history` still waits for, on one worker.
//!
//! A turn may end while a model works on it: an agent overtakes it, or its partition becomes
//! another's. `history` says so here, and whoever asked a model gives the turn up at once:
//! otherwise a model that is stalled would hold the turns of every assignment there ever was.

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
    /// A turn goes down the flow.
    pub fn ask(&self, request: RequestId) {
        self.0.borrow_mut().turns.insert(request);
    }

    /// What became of it came back.
    pub fn answered(&self, request: RequestId) {
        self.0.borrow_mut().turns.remove(&request);
    }

    /// Nobody waits for it any more. Wakes those who watch.
    pub fn give_up(&self, request: RequestId) {
        let mut state = self.0.borrow_mut();
        if state.turns.remove(&request) {
            state.given_up += 1;
            state.watching.iter().for_each(|operator| operator.activate());
        }
    }

    /// Whether somebody waits for it.
    pub fn contains(&self, request: RequestId) -> bool {
        self.0.borrow().turns.contains(&request)
    }

    /// How many were given up so far: while it stays, nobody has to look.
    pub fn given_up(&self) -> u64 {
        self.0.borrow().given_up
    }

    /// Has the operator scheduled whenever a turn is given up.
    pub fn watch(&self, operator: Rc<Activator>) {
        self.0.borrow_mut().watching.push(operator);
    }
}
