//! Consumer groups of the embedded log: which member holds which partition, under which generation.
//!
//! Partitions are spread evenly and stay with their holders as far as that allows. The others are
//! revoked, and reassigned once their holder has released them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use turnstream_ports::broken::Broken;

use super::super::{
    Assignment, CountedChangelog, Event, LogError, Position, Record, Restored, Standing, Start,
    TakeChangelog, Topic,
};
use super::Isolation;
use super::state::LogState;

/// The most records of a changelog in memory at once during a restoration.
const RESTORE_RECORDS: usize = if cfg!(test) { 4 } else { 1_024 };

/// The members of a group, in the order in which they joined.
#[derive(Default)]
pub(super) struct Group {
    members: BTreeMap<u64, GroupMember>,
}

struct GroupMember {
    topic: Topic,
    /// False from its expulsion until its next poll.
    active: bool,
    held: BTreeMap<i32, HeldPartition>,
    /// How often each partition was assigned to this member.
    assigned: BTreeMap<i32, u32>,
    /// The events that its next polls return.
    events: VecDeque<Event>,
    /// The partition of the last records that it received.
    last: i32,
}

#[derive(Default)]
struct HeldPartition {
    generation: u32,
    /// The next offset to read, if known.
    position: Option<i64>,
    flowing: bool,
    revoked: bool,
}

impl GroupMember {
    fn kept(&self) -> impl DoubleEndedIterator<Item = i32> {
        self.held.iter().filter(|(_, held)| !held.revoked).map(|(partition, _)| *partition)
    }

    fn assign(&mut self, partitions: Vec<i32>) {
        let assignments = partitions.into_iter().map(|partition| {
            let generation = self.assigned.entry(partition).or_insert(0);
            *generation += 1;
            self.held.insert(
                partition,
                HeldPartition { generation: *generation, ..HeldPartition::default() },
            );
            Assignment { partition, generation: *generation }
        });
        self.events.push_back(Event::Assigned(assignments.collect()));
    }

    fn revoke(&mut self, partitions: Vec<i32>) {
        for partition in &partitions {
            if let Some(held) = self.held.get_mut(partition) {
                (held.flowing, held.revoked) = (false, true);
            }
        }
        self.events.push_back(Event::Revoked(partitions));
    }
}

impl Group {
    /// Revokes the partitions that members hold beyond their share, and assigns those without a
    /// holder.
    fn rebalance(&mut self, partitions: i32) {
        let mut order: Vec<u64> =
            self.members.iter().filter(|(_, member)| member.active).map(|(id, _)| *id).collect();
        // The members that hold most keep the partitions that remain after an even division.
        order.sort_by_key(|id| (Reverse(self.members[id].kept().count()), *id));
        let Some(count) = i32::try_from(order.len()).ok().filter(|count| *count > 0) else {
            return;
        };
        let (share, extra) = (partitions / count, partitions % count);
        let mut free: VecDeque<i32> = (0..partitions)
            .filter(|partition| {
                !self.members.values().any(|member| member.held.contains_key(partition))
            })
            .collect();
        for (rank, id) in (0..).zip(&order) {
            let quota = usize::try_from(share + i32::from(rank < extra)).unwrap_or(0);
            let Some(member) = self.members.get_mut(id) else { continue };
            let kept: Vec<i32> = member.kept().collect();
            if kept.len() > quota {
                member.revoke(kept[quota..].to_vec());
            }
            let wanted = quota.saturating_sub(kept.len()).min(free.len());
            if wanted > 0 {
                member.assign(free.drain(..wanted).collect());
            }
        }
    }
}

/// Identifies a member of a group.
pub(super) struct MemberRef<'a> {
    pub(super) group: &'a str,
    pub(super) member: u64,
}

impl LogState {
    pub(super) fn join(&mut self, group: &str, topic: Topic) -> Result<u64, LogError> {
        Self::check_name(group)?;
        let id = self.next_member;
        self.next_member += 1;
        let member = GroupMember {
            topic,
            active: true,
            held: BTreeMap::new(),
            assigned: BTreeMap::new(),
            events: VecDeque::new(),
            last: -1,
        };
        let members = &mut self.groups.entry(group.to_owned()).or_default().members;
        if let Some(other) = members.values().find(|other| other.topic != topic) {
            return Err(LogError::Refused(format!(
                "group `{group}` reads {}, so it cannot read {}; name another group",
                other.topic.name(),
                topic.name()
            )));
        }
        members.insert(id, member);
        self.rebalance(group);
        Ok(id)
    }

    pub(super) fn leave(&mut self, at: &MemberRef<'_>) {
        if let Some(group) = self.groups.get_mut(at.group) {
            group.members.remove(&at.member);
        }
        self.rebalance(at.group);
    }

    pub(super) fn expel(&mut self, group: &str, member: u64) {
        let Some(member) = self.member(&MemberRef { group, member }) else {
            return;
        };
        member.active = false;
        let lost: Vec<i32> = std::mem::take(&mut member.held).into_keys().collect();
        if !lost.is_empty() {
            member.events.push_back(Event::Lost(lost));
        }
        self.rebalance(group);
    }

    fn rebalance(&mut self, group: &str) {
        let partitions = self.partitions;
        if let Some(group) = self.groups.get_mut(group) {
            group.rebalance(partitions);
        }
    }

    fn member(&mut self, at: &MemberRef<'_>) -> Option<&mut GroupMember> {
        self.groups.get_mut(at.group)?.members.get_mut(&at.member)
    }

    fn held(&mut self, at: &MemberRef<'_>, partition: i32) -> Option<&mut HeldPartition> {
        self.member(at)?.held.get_mut(&partition)
    }

    pub(super) fn flow(&mut self, at: &MemberRef<'_>, partition: i32, flowing: bool) {
        if let Some(held) = self.held(at, partition) {
            held.flowing = flowing && !held.revoked;
        }
    }

    pub(super) fn release(&mut self, at: &MemberRef<'_>) {
        if let Some(member) = self.member(at) {
            member.held.retain(|_, held| !held.revoked);
        }
        self.rebalance(at.group);
    }

    /// Returns the partitions of the positions whose generation differs from the member's.
    pub(super) fn stale(&mut self, at: &MemberRef<'_>, positions: &[Position]) -> Vec<i32> {
        let mut stale: Vec<i32> = positions
            .iter()
            .filter(|position| {
                self.held(at, position.partition)
                    .is_none_or(|held| held.generation != position.generation)
            })
            .map(|position| position.partition)
            .collect();
        stale.sort_unstable();
        stale
    }

    /// Returns the next event, or records; `None` if there is nothing now.
    pub(super) fn poll(
        &mut self,
        at: &MemberRef<'_>,
        start: Start,
        max: usize,
    ) -> Result<Option<Event>, LogError> {
        let Some(member) = self.member(at) else {
            return Err(LogError::Refused(format!("group `{}` has no such member", at.group)));
        };
        if !member.active {
            member.active = true;
            self.rebalance(at.group);
        }
        let Some(member) = self.member(at) else { return Ok(None) };
        if let Some(event) = member.events.pop_front() {
            return Ok(Some(event));
        }
        let records = self.poll_records(at, start, max)?;
        if !records.is_empty() {
            return Ok(Some(Event::Records(records)));
        }
        let Some((topic, positions)) = self.member(at).map(|member| {
            let held = member.held.iter();
            (member.topic, held.map(|(at, held)| (*at, held.position)).collect::<Vec<_>>())
        }) else {
            return Ok(None);
        };
        let done = self.sealed.contains(&topic)
            && !positions.is_empty()
            && positions.iter().all(|(at, next)| *next >= Some(self.end((topic, *at))));
        Ok(done.then_some(Event::End))
    }

    /// Records of the partitions that flow, starting after the partition that was served last.
    fn poll_records(
        &mut self,
        at: &MemberRef<'_>,
        start: Start,
        max: usize,
    ) -> Result<Vec<Record>, LogError> {
        let Some(member) = self.member(at) else { return Ok(Vec::new()) };
        let (topic, last) = (member.topic, member.last);
        let mut flowing: Vec<(i32, Option<i64>)> = member
            .held
            .iter()
            .filter(|(_, held)| held.flowing)
            .map(|(partition, held)| (*partition, held.position))
            .collect();
        flowing.sort_by_key(|(partition, _)| (*partition <= last, *partition));
        let mut records = Vec::new();
        for (partition, position) in flowing {
            let from = match position {
                Some(position) => position,
                None => self.beginning(at.group, (topic, partition), start)?,
            };
            let room = max - records.len();
            let (read, next) =
                self.read((topic, partition), from, room, Isolation::ReadCommitted)?;
            let some = !read.is_empty();
            records.extend(read);
            if let Some(member) = self.member(at) {
                if some {
                    member.last = partition;
                }
                if let Some(held) = member.held.get_mut(&partition) {
                    held.position = Some(next);
                }
            }
            if records.len() >= max {
                break;
            }
        }
        Ok(records)
    }

    fn beginning(&self, group: &str, place: (Topic, i32), start: Start) -> Result<i64, LogError> {
        Ok(match (self.committed(group, place.1)?, start) {
            (Some(committed), _) => committed.offset,
            (None, Start::Earliest) => 0,
            (None, Start::Latest) => self.end(place),
        })
    }

    /// Whether the member is active, and the lag of its partitions.
    pub(super) fn standing(&self, at: &MemberRef<'_>) -> Standing {
        let group = self.groups.get(at.group);
        let member = group.and_then(|group| group.members.get(&at.member));
        let Some(member) = member.filter(|member| member.active) else {
            return Standing { is_member: Some(false), ..Standing::default() };
        };
        let read = member.held.iter().filter_map(|(at, held)| Some((*at, held.position?)));
        let mut standing = Standing { is_member: Some(true), ..Standing::default() };
        for (at, next) in read {
            let end = self.end((member.topic, at));
            standing.ends.insert(at, end);
            let behind = u64::try_from(end.saturating_sub(next)).unwrap_or_default();
            standing.lag.insert(at, behind);
        }
        standing
    }

    pub(super) fn restore(
        &mut self,
        at: &MemberRef<'_>,
        partition: i32,
        start: Start,
        changelog: TakeChangelog<'_>,
    ) -> Result<Restored, LogError> {
        let topic = match self.member(at) {
            Some(member) if member.held.contains_key(&partition) => member.topic,
            _ => return Err(LogError::Stale { partitions: vec![partition] }),
        };
        if self.is_unsettled(at.group, partition) {
            return Err(LogError::Unsettled { what: format!("history, partition {partition}") });
        }
        let beginning = self.beginning(at.group, (topic, partition), start)?;
        let committed = self.committed(at.group, partition)?;
        let position = committed.as_ref().map(|committed| committed.offset);
        let mut counted = CountedChangelog::new(partition, position, changelog);
        let (history, mut next, mut last) = ((Topic::History, partition), 0, None);
        while next < self.stable_end(history) {
            let read = self.read(history, next, RESTORE_RECORDS, Isolation::ReadCommitted)?;
            next = read.1;
            last = read.0.last().map(|record| record.offset + 1).or(last);
            for Record { partition, offset, key, value, .. } in read.0 {
                counted.pass(Record { partition, offset, key, value, ..Record::default() })?;
            }
        }
        if Broken::RestoreByLastMessage.here() && last.is_some_and(|last| last < next) {
            return Err(LogError::Unsettled { what: format!("history, partition {partition}") });
        }
        let metadata = committed.map(|committed| committed.metadata).unwrap_or_default();
        let restored = counted.finish(metadata, at.group)?;
        if let Some(held) = self.held(at, partition) {
            held.position = Some(beginning);
        }
        Ok(restored)
    }
}
