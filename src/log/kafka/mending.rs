//! Static members look after their group: where it stands still with partitions that are nobody's,
//! one of them leaves and joins again, which has the group share everything out anew.
//!
//! A cooperative rebalance moves partitions in two steps: first they are given up, then those who
//! gave them up join again, and they are given on. A static member that is stopped between the two
//! and comes back within its session is taken in with what it had, and without a rebalance: that
//! is what static membership is for. So if all that had to join again were stopped, nobody asks
//! for the second step, and the partitions stay nobody's until somebody joins, leaves or is
//! expelled. A dynamic member that comes back is a new member, and asks for it.
//!
//! The coordinator's view cannot tell a step that never comes from one that takes its time. Hence
//! only what two looks show alike counts, further apart than the engine takes to give partitions
//! up ([`EVERY_MS`]), and than a session: a member that died in between would be waited for, with
//! what the others gave up for it not served, and is expelled by then. Where a long restoration
//! holds a member up for longer, somebody joins again for nothing: then the group waits for that
//! member, as it would have anyway, and nothing is lost or doubled.
//!
//! To leave, a member gives everything up as in any rebalance, so it is best one that holds little.
//! All members see the same, so all know who that is; the others wait for two looks more each.
//! Dynamic members have a place in that order too, and do nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use super::KafkaConfig;
use super::looks::{Look, Looks};

/// Milliseconds between two looks at least, and no less than a session: the engine has 5,000 to give
/// a partition up.
const EVERY_MS: u32 = 6_000;

/// How many looks have to show the same before the first member acts, and each next one after it.
const ALIKE: u32 = 2;

/// How often, where it did not help, the number of looks doubles at most.
const DOUBLINGS: u32 = 4;

/// What a static member does about its group.
pub(super) struct Mending {
    looks: Looks,
    vigil: Vigil,
}

impl Mending {
    /// Nothing where the member has no name of its own.
    pub(super) fn new(config: &KafkaConfig, partitions: i32) -> Option<Self> {
        if config.group_instance_id.is_empty() {
            return None;
        }
        let every = Duration::from_millis(u64::from(config.session_timeout_ms.max(EVERY_MS)));
        Some(Self { looks: Looks::start(config, every), vigil: Vigil::new(partitions) })
    }

    /// The partitions that are nobody's, where this member is to leave now because of them. `ours`
    /// gives its id and what it holds, as long as it is a member.
    pub(super) fn leaves(
        &mut self,
        ours: impl FnOnce() -> Option<(String, BTreeSet<i32>)>,
    ) -> Option<Vec<i32>> {
        let look = self.looks.take()?;
        let (member, held) = ours()?;
        self.vigil.acts(look, &member, &held)
    }
}

/// What the looks so far came to, for one member.
#[derive(Debug)]
struct Vigil {
    partitions: i32,
    last: Look,
    /// How many looks in a row showed the last one.
    alike: u32,
    /// How often it acted since all was well.
    acted: u32,
}

impl Vigil {
    fn new(partitions: i32) -> Self {
        Self { partitions, last: Look::default(), alike: 0, acted: 0 }
    }

    /// Takes a look in, with this member's id and the partitions that it holds; where it is to act,
    /// gives those that are nobody's.
    fn acts(&mut self, look: Look, member: &str, held: &BTreeSet<i32>) -> Option<Vec<i32>> {
        let nobodys = look.nobodys(self.partitions);
        if look.stable && nobodys.is_empty() {
            self.acted = 0;
        }
        // One that has not heard yet, or still gives up, is in the middle of a step itself.
        let stands = look.stable && look.members.get(member) == Some(held);
        if !stands || nobodys.is_empty() {
            self.alike = 0;
            return None;
        }
        self.alike = if self.alike > 0 && look == self.last { self.alike + 1 } else { 1 };
        self.last = look;
        let turn = ALIKE * (1 + self.last.before(member));
        if self.alike < turn << self.acted.min(DOUBLINGS) {
            return None;
        }
        self.alike = 0;
        self.acted += 1;
        Some(nobodys)
    }
}

impl Look {
    /// Of so many partitions, those that were given to nobody.
    fn nobodys(&self, partitions: i32) -> Vec<i32> {
        let given = |at: &i32| self.members.values().any(|given| given.contains(at));
        (0..partitions).filter(|at| !given(at)).collect()
    }

    /// How many members hold less than this one, or as much and have a lesser id.
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

    fn look(members: &[(&str, &[i32])]) -> Look {
        let members = members.iter().map(|(id, given)| {
            ((*id).to_owned(), given.iter().copied().collect::<BTreeSet<i32>>())
        });
        Look { stable: true, members: members.collect() }
    }

    /// Shows a member looks, of which it holds what they say, until it acts: after how many, and
    /// for which partitions.
    fn acts_after(
        vigil: &mut Vigil,
        member: &str,
        look: &Look,
        at_most: usize,
    ) -> Option<(usize, Vec<i32>)> {
        let held = look.members.get(member).cloned().unwrap_or_default();
        (1..=at_most).find_map(|nth| Some((nth, vigil.acts(look.clone(), member, &held)?)))
    }

    #[test]
    fn who_holds_least_acts_first_and_the_others_wait_longer() {
        let stuck = look(&[("a", &[2, 3]), ("b", &[]), ("c", &[4]), ("d", &[5, 6, 7])]);
        for (name, after) in [("b", 2), ("c", 4), ("a", 6)] {
            let acted = acts_after(&mut Vigil::new(8), name, &stuck, 20);
            assert_eq!(acted, Some((after, vec![0, 1])), "{name}");
        }
        let even = look(&[("b", &[1]), ("a", &[2])]);
        for (name, after) in [("a", 2), ("b", 4)] {
            let acted = acts_after(&mut Vigil::new(3), name, &even, 20);
            assert_eq!(acted, Some((after, vec![0])), "{name}");
        }
    }

    #[test]
    fn a_group_that_is_well_or_on_the_move_is_left_alone() {
        let stuck = look(&[("a", &[2, 3]), ("b", &[])]);
        for (what, look) in [
            ("all is held", look(&[("a", &[2, 3]), ("b", &[0, 1])])),
            ("a third holds the rest", look(&[("a", &[2, 3]), ("b", &[]), ("c", &[0, 1])])),
            ("a rebalance goes on", Look { stable: false, ..stuck }),
            ("b is no member", look(&[("a", &[2, 3])])),
        ] {
            assert_eq!(acts_after(&mut Vigil::new(4), "b", &look, 20), None, "{what}");
        }
        let mut vigil = Vigil::new(4);
        for held in [0, 1, 0, 1] {
            let shown = look(&[("a", &[2, 3]), ("b", &[held])]);
            let here = [held].into();
            assert_eq!(vigil.acts(shown, "b", &here), None, "it moves");
        }
    }

    #[test]
    fn what_is_between_two_looks_begins_anew() {
        let stuck = look(&[("a", &[2, 3]), ("b", &[])]);
        let nothing = BTreeSet::new();
        for between in [
            look(&[("a", &[2, 3]), ("b", &[0, 1])]),
            Look { stable: false, ..stuck.clone() },
            look(&[("a", &[3]), ("b", &[])]),
        ] {
            let mut vigil = Vigil::new(4);
            for shown in [&stuck, &between, &stuck] {
                assert_eq!(vigil.acts(shown.clone(), "b", &nothing), None, "{between:?}");
            }
            assert_eq!(vigil.acts(stuck.clone(), "b", &nothing), Some(vec![0, 1]), "{between:?}");
        }
    }

    #[test]
    fn a_member_in_the_middle_of_a_step_waits() {
        let stuck = look(&[("a", &[2, 3]), ("b", &[])]);
        let mut vigil = Vigil::new(4);
        for held in [[0].into(), BTreeSet::new(), [0].into(), BTreeSet::new()] {
            assert_eq!(vigil.acts(stuck.clone(), "b", &held), None, "{held:?}");
        }
        assert_eq!(vigil.acts(stuck, "b", &BTreeSet::new()), Some(vec![0, 1]));
    }

    #[test]
    fn what_does_not_help_is_done_ever_more_seldom() {
        let stuck = look(&[("a", &[2, 3]), ("b", &[])]);
        let well = look(&[("a", &[2, 3]), ("b", &[0, 1])]);
        let mut vigil = Vigil::new(4);
        for after in [2, 4, 8, 16, 32, 32] {
            assert_eq!(acts_after(&mut vigil, "b", &stuck, 99), Some((after, vec![0, 1])));
        }
        assert_eq!(acts_after(&mut vigil, "b", &well, 1), None);
        assert_eq!(acts_after(&mut vigil, "b", &stuck, 99), Some((2, vec![0, 1])), "all was well");
    }
}
