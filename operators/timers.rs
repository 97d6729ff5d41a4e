//! Keeps virtual time: the core's "now", and the operators to wake at a given time. Only
//! [`Timers::advance`] moves it, so that a simulation can control time and no operator reads a
//! clock.

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
    /// Returns the milliseconds since a fixed start. Never goes back.
    pub fn now_ms(&self) -> u64 {
        self.0.borrow().now_ms
    }

    /// Schedules the operator once time reaches `at_ms`.
    pub fn wake_at(&self, at_ms: u64, operator: Rc<Activator>) {
        let mut state = self.0.borrow_mut();
        state.set += 1;
        let number = state.set;
        state.due.insert((at_ms, number), operator);
    }

    /// Moves time to `now_ms` (a smaller value is ignored) and schedules every operator that is due.
    pub fn advance(&self, now_ms: u64) {
        let mut state = self.0.borrow_mut();
        state.now_ms = state.now_ms.max(now_ms);
        let later = (state.now_ms.saturating_add(1), 0);
        let rest = state.due.split_off(&later);
        for operator in std::mem::replace(&mut state.due, rest).into_values() {
            operator.activate();
        }
    }

    /// Returns the time of the next wake-up, if one is set.
    pub fn next_ms(&self) -> Option<u64> {
        self.0.borrow().due.keys().next().map(|(at_ms, _)| *at_ms)
    }
}
