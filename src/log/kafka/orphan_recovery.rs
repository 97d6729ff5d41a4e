//! Recovery of orphaned partitions by static members. If the group is stable while some partitions
//! have no owner, one member leaves and joins again, so that the group assigns all partitions anew.
//!
//! A cooperative rebalance moves partitions in two steps: members first give partitions up, then
//! join again, and the group assigns the partitions. A static member that stops between the two
//! steps and returns within its session gets back its earlier partitions without a rebalance, as
//! static membership intends. If all members that had to join again were stopped, no member
//! triggers the second step. The partitions stay orphaned until some member joins, leaves or is
//! expelled. A dynamic member that returns is a new member and triggers the step.
//!
//! The coordinator's view does not show whether a step is late or will never come. A member
//! therefore acts only if consecutive snapshots agree. They are further apart than the engine needs
//! to give up partitions ([`EVERY_MS`]), and at least a session apart: a member that died in
//! between is expelled by then, so that the group does not wait for it while the released
//! partitions are unserved. If a long restoration delays a member for longer, another one joins
//! again without need. The group then waits for the delayed member, as it would anyway, and nothing
//! is lost or doubled.
//!
//! A member gives up all its partitions to leave, so the member that holds fewest acts first. All
//! members see the same snapshots and so agree on the order; each next one waits for two more
//! snapshots. Dynamic members have a place in the order, but do nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use super::KafkaConfig;
use super::group_snapshots::{GroupSnapshot, GroupSnapshots};

/// The shortest interval between two snapshots, in milliseconds; it is also at least a session. The
/// engine has 5,000 ms to give a partition up.
const EVERY_MS: u32 = 6_000;

/// How many snapshots must agree before the first member acts, and before each next one.
const AGREEING: u32 = 2;

/// How often the number of snapshots doubles at most after attempts that did not help.
const DOUBLINGS: u32 = 4;

/// The recovery of orphaned partitions, for one static member.
pub(super) struct OrphanRecovery {
    snapshots: GroupSnapshots,
    detector: StallDetector,
}

impl OrphanRecovery {
    /// `None` for a dynamic member.
    pub(super) fn new(config: &KafkaConfig, partitions: i32) -> Option<Self> {
        if config.group_instance_id.is_empty() {
            return None;
        }
        let every = Duration::from_millis(u64::from(config.session_timeout_ms.max(EVERY_MS)));
        Some(Self {
            snapshots: GroupSnapshots::start(config, every),
            detector: StallDetector::new(partitions),
        })
    }

    /// The orphaned partitions, if this member is to leave now because of them. `ours` returns its
    /// id and its partitions while it is a member.
    pub(super) fn leaves(
        &mut self,
        ours: impl FnOnce() -> Option<(String, BTreeSet<i32>)>,
    ) -> Option<Vec<i32>> {
        let snapshot = self.snapshots.take()?;
        let (member, held) = ours()?;
        self.detector.acts(snapshot, &member, &held)
    }
}

/// Compares snapshots and decides when one member acts.
#[derive(Debug)]
struct StallDetector {
    partitions: i32,
    last: GroupSnapshot,
    /// How many consecutive snapshots were equal to the last one.
    alike: u32,
    /// How often the member acted since no partition was orphaned.
    acted: u32,
}

impl StallDetector {
    fn new(partitions: i32) -> Self {
        Self { partitions, last: GroupSnapshot::default(), alike: 0, acted: 0 }
    }

    /// Takes a snapshot, this member's id and its partitions. Returns the orphaned partitions if
    /// the member is to act now.
    fn acts(
        &mut self,
        snapshot: GroupSnapshot,
        member: &str,
        held: &BTreeSet<i32>,
    ) -> Option<Vec<i32>> {
        let orphans = snapshot.orphans(self.partitions);
        if snapshot.stable && orphans.is_empty() {
            self.acted = 0;
        }
        // A member whose view differs from the coordinator's is itself in the middle of a step.
        let stands = snapshot.stable && snapshot.members.get(member) == Some(held);
        if !stands || orphans.is_empty() {
            self.alike = 0;
            return None;
        }
        self.alike = if self.alike > 0 && snapshot == self.last { self.alike + 1 } else { 1 };
        self.last = snapshot;
        let needed = AGREEING * (1 + self.last.before(member));
        if self.alike < needed << self.acted.min(DOUBLINGS) {
            return None;
        }
        self.alike = 0;
        self.acted += 1;
        Some(orphans)
    }
}

impl GroupSnapshot {
    /// The partitions, of `0..partitions`, that no member was assigned.
    fn orphans(&self, partitions: i32) -> Vec<i32> {
        let given = |at: &i32| self.members.values().any(|given| given.contains(at));
        (0..partitions).filter(|at| !given(at)).collect()
    }

    /// How many members hold fewer partitions than this one, or as many and have a lower id.
    fn before(&self, member: &str) -> u32 {
        let place = |id: &str| (self.members.get(id).map(BTreeSet::len), id.to_owned());
        let ours = place(member);
        let before = self.members.keys().filter(|other| place(other) < ours).count();
        u32::try_from(before).unwrap_or(u32::MAX).min(1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(members: &[(&str, &[i32])]) -> GroupSnapshot {
        let members = members.iter().map(|(id, given)| {
            ((*id).to_owned(), given.iter().copied().collect::<BTreeSet<i32>>())
        });
        GroupSnapshot { stable: true, members: members.collect() }
    }

    /// Shows a member equal snapshots, which agree with its own partitions, until it acts. Returns
    /// the number of snapshots and the orphaned partitions.
    fn acts_after(
        detector: &mut StallDetector,
        member: &str,
        snapshot: &GroupSnapshot,
        at_most: usize,
    ) -> Option<(usize, Vec<i32>)> {
        let held = snapshot.members.get(member).cloned().unwrap_or_default();
        (1..=at_most).find_map(|nth| Some((nth, detector.acts(snapshot.clone(), member, &held)?)))
    }

    #[test]
    fn the_member_that_holds_least_acts_first_and_others_wait_longer() {
        let stuck = snapshot(&[("a", &[2, 3]), ("b", &[]), ("c", &[4]), ("d", &[5, 6, 7])]);
        for (name, after) in [("b", 2), ("c", 4), ("a", 6)] {
            let acted = acts_after(&mut StallDetector::new(8), name, &stuck, 20);
            assert_eq!(acted, Some((after, vec![0, 1])), "{name}");
        }
        let even = snapshot(&[("b", &[1]), ("a", &[2])]);
        for (name, after) in [("a", 2), ("b", 4)] {
            let acted = acts_after(&mut StallDetector::new(3), name, &even, 20);
            assert_eq!(acted, Some((after, vec![0])), "{name}");
        }
    }

    #[test]
    fn a_group_that_is_well_or_on_the_move_is_left_alone() {
        let stuck = snapshot(&[("a", &[2, 3]), ("b", &[])]);
        for (what, snapshot) in [
            ("all is held", snapshot(&[("a", &[2, 3]), ("b", &[0, 1])])),
            ("a third holds the rest", snapshot(&[("a", &[2, 3]), ("b", &[]), ("c", &[0, 1])])),
            ("a rebalance goes on", GroupSnapshot { stable: false, ..stuck }),
            ("b is no member", snapshot(&[("a", &[2, 3])])),
        ] {
            assert_eq!(acts_after(&mut StallDetector::new(4), "b", &snapshot, 20), None, "{what}");
        }
        let mut detector = StallDetector::new(4);
        for held in [0, 1, 0, 1] {
            let shown = snapshot(&[("a", &[2, 3]), ("b", &[held])]);
            let here = [held].into();
            assert_eq!(detector.acts(shown, "b", &here), None, "it moves");
        }
    }

    #[test]
    fn any_change_between_two_looks_restarts_the_wait() {
        let stuck = snapshot(&[("a", &[2, 3]), ("b", &[])]);
        let nothing = BTreeSet::new();
        for between in [
            snapshot(&[("a", &[2, 3]), ("b", &[0, 1])]),
            GroupSnapshot { stable: false, ..stuck.clone() },
            snapshot(&[("a", &[3]), ("b", &[])]),
        ] {
            let mut detector = StallDetector::new(4);
            for shown in [&stuck, &between, &stuck] {
                assert_eq!(detector.acts(shown.clone(), "b", &nothing), None, "{between:?}");
            }
            assert_eq!(
                detector.acts(stuck.clone(), "b", &nothing),
                Some(vec![0, 1]),
                "{between:?}"
            );
        }
    }

    #[test]
    fn a_member_in_the_middle_of_a_step_waits() {
        let stuck = snapshot(&[("a", &[2, 3]), ("b", &[])]);
        let mut detector = StallDetector::new(4);
        for held in [[0].into(), BTreeSet::new(), [0].into(), BTreeSet::new()] {
            assert_eq!(detector.acts(stuck.clone(), "b", &held), None, "{held:?}");
        }
        assert_eq!(detector.acts(stuck, "b", &BTreeSet::new()), Some(vec![0, 1]));
    }

    #[test]
    fn each_attempt_that_does_not_help_doubles_the_wait() {
        let stuck = snapshot(&[("a", &[2, 3]), ("b", &[])]);
        let well = snapshot(&[("a", &[2, 3]), ("b", &[0, 1])]);
        let mut detector = StallDetector::new(4);
        for after in [2, 4, 8, 16, 32, 32] {
            assert_eq!(acts_after(&mut detector, "b", &stuck, 99), Some((after, vec![0, 1])));
        }
        assert_eq!(acts_after(&mut detector, "b", &well, 1), None);
        assert_eq!(
            acts_after(&mut detector, "b", &stuck, 99),
            Some((2, vec![0, 1])),
            "all was well"
        );
    }
}
