//! A member that leaves its group to join it again. Its partitions are revoked, as in any
//! rebalance; when they are released the client leaves, and then subscribes again.

use std::time::{Duration, Instant};

/// How long a member without partitions may take to leave. After that it joins again without having
/// left.
const LEAVING: Duration = Duration::from_secs(30);

/// How long the member may take to be a member again. A client that was expelled in the middle of a
/// rebalance may never ask to join (librdkafka 2.12; seen with a static member, each time).
const JOINING: Duration = Duration::from_secs(15);

/// The least time between leaving and joining again. The client drops its identity before it tells
/// the broker that it leaves; a subscription in between would be left and never joined.
const LEFT: Duration = Duration::from_millis(500);

/// Whether a member is leaving or joining again, and how often it did.
#[derive(Debug, Default)]
pub(super) struct Rejoining {
    /// When it began to leave.
    leaving: Option<Instant>,
    /// When it had left.
    left: Option<Instant>,
    /// When it began to join again, until it is a member.
    joining: Option<Instant>,
    times: u64,
}

impl Rejoining {
    /// Whether the member is leaving.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Records that the member leaves.
    pub(super) fn leaving(&mut self) {
        (self.leaving, self.left, self.joining) = (Some(Instant::now()), None, None);
        self.times += 1;
    }

    /// Whether the member is to join again now: it holds no partitions and has left.
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
        self.left = has_left().then(|| self.left.unwrap_or_else(Instant::now));
        let left = self.left.is_some_and(|left| left.elapsed() >= LEFT);
        let joins = left || since.elapsed() >= LEAVING;
        if joins {
            (self.leaving, self.joining) = (None, Some(Instant::now()));
        }
        joins
    }

    /// Whether the member has tried for too long to be a member again. After a `true`, the same
    /// time must pass before the next.
    pub(super) fn is_stuck(&mut self, is_member: impl FnOnce() -> bool) -> bool {
        let Some(since) = self.joining else { return false };
        if is_member() {
            self.joining = None;
            return false;
        }
        let is_stuck = since.elapsed() >= JOINING;
        if is_stuck {
            self.joining = Some(Instant::now());
        }
        is_stuck
    }

    /// How often the member left to join again.
    pub(super) fn times(&self) -> u64 {
        self.times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ago(time: Duration) -> Option<Instant> {
        Instant::now().checked_sub(time)
    }

    #[test]
    fn a_member_that_just_left_waits_and_one_that_never_joins_tries_again() {
        let mut rejoining = Rejoining::default();
        assert!(!rejoining.joins(|| false, || true), "it is not leaving");
        rejoining.leaving();
        assert!(!rejoining.joins(|| true, || true), "it holds something");
        assert!(!rejoining.joins(|| false, || true), "the broker does not know yet");
        rejoining.left = ago(LEFT);
        assert!(!rejoining.joins(|| false, || false), "it was taken in meanwhile");
        assert!(!rejoining.joins(|| false, || true), "and left once more");
        rejoining.left = ago(LEFT);
        assert!(rejoining.joins(|| false, || true) && !rejoining.is_leaving());
        assert!(!rejoining.is_stuck(|| false), "it may take a while");
        rejoining.joining = ago(JOINING);
        assert!(rejoining.is_stuck(|| false));
        assert!(!rejoining.is_stuck(|| false), "it is asked for seldom");
        rejoining.joining = ago(JOINING);
        assert!(!rejoining.is_stuck(|| true), "it is a member");
        rejoining.leaving();
        rejoining.leaving = ago(LEAVING);
        assert!(rejoining.joins(|| false, || false), "it cannot leave");
        assert_eq!(rejoining.times(), 2);
    }
}
