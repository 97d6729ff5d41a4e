//! A member on its way out of its group, in order to join it again: everything that it holds is
//! revoked as in any rebalance, the client leaves once that is released, and then it subscribes anew.

use std::time::{Duration, Instant};

/// How long a member that holds nothing any more may take to leave. Then it joins again without
/// having left.
const LEAVING: Duration = Duration::from_secs(30);

/// Whether a member is on its way out, and how often it was.
#[derive(Debug, Default)]
pub(super) struct Rejoining {
    /// Since when.
    leaving: Option<Instant>,
    times: u64,
}

impl Rejoining {
    /// Whether it is on its way out.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// It is on its way out.
    pub(super) fn leaving(&mut self) {
        self.leaving = Some(Instant::now());
        self.times += 1;
    }

    /// Whether this member is to join again now, once nothing is held any more.
    pub(super) fn joins(
        &mut self,
        holds: impl FnOnce() -> bool,
        has_left: impl FnOnce() -> bool,
    ) -> bool {
        let Some(since) = self.leaving else { return false };
        if holds() {
            self.leaving = Some(Instant::now());
            return false;
        }
        let joins = has_left() || since.elapsed() >= LEAVING;
        if joins {
            self.leaving = None;
        }
        joins
    }

    /// How often it left and joined again.
    pub(super) fn times(&self) -> u64 {
        self.times
    }
}
