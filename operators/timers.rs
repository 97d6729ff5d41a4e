//! Virtual time: what "now" is for the core, and who is to be woken when. Only
//! [`Timers::advance`] moves it, so that a simulation can hold it, and no operator reads a clock.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use timely::scheduling::Activator;

/// The timers of one worker. Clones share them.
#[derive(Clone, Default)]
pub struct Timers(Rc<RefCell<TimerState>>);

#[derive(Default)]
struct TimerState {
    now_ms: u64,
    set: u64,
    due: BTreeMap<(u64, u64), Rc<Activator>>,
}

impl Timers {
    /// Milliseconds of some fixed start. Never goes back.
    pub fn now_ms(&self) -> u64 {
        self.0.borrow().now_ms
    }

    /// Has the operator scheduled once time reaches `at_ms`.
    pub fn wake_at(&self, at_ms: u64, operator: Rc<Activator>) {
        let mut state = self.0.borrow_mut();
        state.set += 1;
        let number = state.set;
        state.due.insert((at_ms, number), operator);
    }

    /// Moves time to `now_ms` (a smaller value is ignored) and wakes everybody who is due.
    pub fn advance(&self, now_ms: u64) {
        let mut state = self.0.borrow_mut();
        state.now_ms = state.now_ms.max(now_ms);
        let later = (state.now_ms.saturating_add(1), 0);
        let rest = state.due.split_off(&later);
        for operator in std::mem::replace(&mut state.due, rest).into_values() {
            operator.activate();
        }
    }

    /// When somebody is next to be woken.
    pub fn next_ms(&self) -> Option<u64> {
        self.0.borrow().due.keys().next().map(|(at_ms, _)| *at_ms)
    }
}
