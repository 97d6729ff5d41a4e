//! The membership of this process in its consumer group, as rebalances report it. The consumer
//! thread, on which rebalances run, shares it with the committer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdkafka::bindings as native;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::statistics::Statistics;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Offset, TopicPartitionList};

use super::super::{Assignment, Event, Position, Standing};
use super::closing::ClosedInTime;
use super::outage;

/// The client through which this process is a member of its group.
pub(super) type MemberClient = ClosedInTime<BaseConsumer<Membership>>;

/// The held partitions and the events that were not yet polled.
pub(super) struct Membership {
    topic: String,
    state: Mutex<MembershipState>,
    /// Whether the process is leaving, so that no revoked partition will be released.
    leaving: AtomicBool,
    /// Whether the member must leave the group and join it again.
    must_join_again: AtomicBool,
    /// The message of a broker that refused the credentials.
    login_refused: Mutex<Option<String>>,
    /// The latest reason why a broker could not be reached.
    failure: Mutex<Option<String>>,
}

#[derive(Default)]
struct MembershipState {
    events: VecDeque<Event>,
    /// Held partitions, each until it is released or lost.
    held: BTreeMap<i32, Held>,
    /// How often each partition was assigned.
    assigned: BTreeMap<i32, u32>,
    /// The error of a failed rebalance.
    error: Option<KafkaError>,
    /// The committed offset of each partition, as far as this process committed or restored it.
    committed: BTreeMap<i32, CommittedOffset>,
    /// The client's latest statistics.
    statistics: GroupStatistics,
}

/// The committed offset of a partition, and its metadata.
pub(super) type CommittedOffset = (Option<i64>, String);

/// The group and its partitions in the client's statistics.
#[derive(Default)]
struct GroupStatistics {
    is_member: Option<bool>,
    /// The next offset to read, and the end at the last fetch.
    read: BTreeMap<i32, (i64, i64)>,
}

struct Held {
    generation: u32,
    revoked: bool,
    /// Our member id when the partition was assigned; empty if the client had none.
    member: Vec<u8>,
}

/// The consumer's identity in its group, as the broker checks it.
#[derive(PartialEq, Eq)]
pub(super) struct Identity {
    member: Vec<u8>,
    generation: i32,
}

impl Identity {
    /// The member id.
    pub(super) fn member(&self) -> String {
        String::from_utf8_lossy(&self.member).into_owned()
    }
}

/// The consumer's identity, if the client has one.
#[allow(unsafe_code)]
pub(super) fn identity(consumer: &BaseConsumer<Membership>) -> Option<Identity> {
    // SAFETY: the client outlives the call, we own the metadata until it is destroyed, and the
    // member id is a string that lives as long as the metadata.
    let identity = unsafe {
        let metadata = native::rd_kafka_consumer_group_metadata(consumer.client().native_ptr());
        if metadata.is_null() {
            return None;
        }
        let member = native::rd_kafka_consumer_group_metadata_member_id(metadata);
        let identity = Identity {
            member: std::ffi::CStr::from_ptr(member).to_bytes().to_vec(),
            generation: native::rd_kafka_consumer_group_metadata_generation_id(metadata),
        };
        native::rd_kafka_consumer_group_metadata_destroy(metadata);
        identity
    };
    (!identity.member.is_empty() && identity.generation >= 0).then_some(identity)
}

impl Membership {
    pub(super) fn new(topic: &str) -> Self {
        Self {
            topic: topic.to_owned(),
            state: Mutex::default(),
            leaving: AtomicBool::new(false),
            must_join_again: AtomicBool::new(false),
            login_refused: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, MembershipState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn next_event(&self) -> Option<Event> {
        self.state().events.pop_front()
    }

    pub(super) fn take_error(&self) -> Option<KafkaError> {
        self.state().error.take()
    }

    /// The message of a broker that refused the credentials, if one did. The client also reports an
    /// authentication failure if a connection breaks during log-in; that does not count.
    pub(super) fn login_refused(&self) -> Option<String> {
        self.login_refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The latest reason why a broker could not be reached, in the client's words.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the partition is held, and not revoked.
    pub(super) fn is_held(&self, partition: i32) -> bool {
        self.state().held.get(&partition).is_some_and(|held| !held.revoked)
    }

    /// All held partitions, including revoked ones that are not yet released.
    pub(super) fn held(&self) -> BTreeSet<i32> {
        self.state().held.keys().copied().collect()
    }

    /// Returns the partitions of the positions whose generation is not the held one.
    pub(super) fn stale(&self, positions: &[Position]) -> Vec<i32> {
        let state = self.state();
        let mut stale: Vec<i32> = positions
            .iter()
            .filter(|position| {
                let held = state.held.get(&position.partition);
                held.is_none_or(|held| held.generation != position.generation)
            })
            .map(|position| position.partition)
            .collect();
        stale.sort_unstable();
        stale
    }

    /// Records the committed offset of a partition.
    pub(super) fn note_committed(&self, partition: i32, committed: CommittedOffset) {
        self.state().committed.insert(partition, committed);
    }

    /// Returns the known committed offsets of the positions' partitions.
    pub(super) fn committed(&self, positions: &[Position]) -> BTreeMap<i32, CommittedOffset> {
        let state = self.state();
        let known = |position: &Position| {
            Some((position.partition, state.committed.get(&position.partition)?.clone()))
        };
        positions.iter().filter_map(known).collect()
    }

    /// Returns the membership and lag. `ends` has newer ends of some partitions.
    pub(super) fn standing(&self, ends: &BTreeMap<i32, i64>) -> Standing {
        let state = self.state();
        let held = state.statistics.read.iter().filter(|(at, _)| state.held.contains_key(at));
        let mut standing =
            Standing { is_member: state.statistics.is_member, ..Standing::default() };
        for (at, (read, end)) in held {
            let end = ends.get(at).copied().unwrap_or_default().max(*end);
            standing.ends.insert(*at, end);
            let behind = u64::try_from(end.saturating_sub(*read)).unwrap_or_default();
            standing.lag.insert(*at, behind);
        }
        standing
    }

    /// Returns the positions' partitions that were assigned to an earlier member id of ours.
    pub(super) fn assigned_to_another(
        &self,
        identity: &Identity,
        positions: &[Position],
    ) -> Vec<i32> {
        let state = self.state();
        let of_another = |partition: &i32| {
            state.held.get(partition).is_some_and(|held| held.member != identity.member)
        };
        positions.iter().map(|position| position.partition).filter(of_another).collect()
    }

    /// Asks the member to join again, since its partitions were assigned to an earlier member id.
    pub(super) fn ask_to_join_again(&self) {
        self.must_join_again.store(true, Ordering::SeqCst);
    }

    /// Whether the member is to leave the group now and join it again: this was asked for, and it
    /// still holds partitions of an earlier member id. Returns false while revoked partitions are
    /// pending: the client handles one rebalance at a time, and after it the held partitions may
    /// have the current id.
    pub(super) fn must_join_again(&self, identity: impl FnOnce() -> Option<Identity>) -> bool {
        if !self.must_join_again.load(Ordering::SeqCst) {
            return false;
        }
        let Some(identity) = identity() else { return false };
        let state = self.state();
        if state.held.values().any(|held| held.revoked) {
            return false;
        }
        self.must_join_again.store(false, Ordering::SeqCst);
        state.held.values().any(|held| held.member != identity.member)
    }

    /// Clears the request, since the member joins again now.
    pub(super) fn joins_again(&self) {
        self.must_join_again.store(false, Ordering::SeqCst);
    }

    /// From now on, revocations count as losses and wait for no release.
    pub(super) fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
    }

    pub(super) fn list(&self, partitions: &[i32]) -> TopicPartitionList {
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for partition in partitions {
            list.add_partition(&self.topic, *partition);
        }
        list
    }

    /// Removes and returns the revoked partitions.
    pub(super) fn take_revoked(&self) -> Vec<i32> {
        let mut state = self.state();
        let revoked: Vec<i32> =
            state.held.iter().filter(|(_, held)| held.revoked).map(|(at, _)| *at).collect();
        state.held.retain(|_, held| !held.revoked);
        revoked
    }

    fn assign(&self, consumer: &BaseConsumer<Self>, list: &mut TopicPartitionList) {
        // Read the id before the assignment: afterwards the member may be expelled and join under
        // another id.
        let member = identity(consumer).map(|identity| identity.member).unwrap_or_default();
        // Any offset will do, since the restoration seeks. Without one, the client itself looks up
        // where to begin. If a seek overtakes that lookup, the client repeats it half a second
        // later, in the middle of reading, and continues from its result: inputs come twice, or
        // never.
        let done = list
            .set_all_offsets(Offset::Offset(0))
            .and_then(|()| consumer.incremental_assign(list))
            .and_then(|()| consumer.pause(list));
        let mut state = self.state();
        if let Err(error) = done {
            state.error = Some(error);
            return;
        }
        let state = &mut *state;
        let mut assignments = Vec::new();
        for partition in partitions(list) {
            let generation = state.assigned.entry(partition).or_insert(0);
            *generation += 1;
            let generation = *generation;
            let member = member.clone();
            state.held.insert(partition, Held { generation, revoked: false, member });
            assignments.push(Assignment { partition, generation });
        }
        if !assignments.is_empty() {
            state.events.push_back(Event::Assigned(assignments));
        }
    }

    fn revoke(&self, consumer: &BaseConsumer<Self>, list: &TopicPartitionList) {
        let partitions = partitions(list);
        let lost = consumer.assignment_lost() || self.leaving.load(Ordering::SeqCst);
        if !lost && !partitions.is_empty() {
            let mut state = self.state();
            for partition in &partitions {
                if let Some(held) = state.held.get_mut(partition) {
                    held.revoked = true;
                }
            }
            state.events.push_back(Event::Revoked(partitions));
            return;
        }
        // Remove them from the held partitions first, so that no commit comes in between.
        let mut state = self.state();
        state.held.retain(|partition, _| !partitions.contains(partition));
        if !partitions.is_empty() {
            state.events.push_back(Event::Lost(partitions));
        }
        drop(state);
        if let Err(error) = consumer.incremental_unassign(list) {
            self.state().error = Some(error);
        }
    }
}

fn partitions(list: &TopicPartitionList) -> Vec<i32> {
    let mut partitions: Vec<i32> =
        list.elements().iter().map(|element| element.partition()).collect();
    partitions.sort_unstable();
    partitions
}

fn note(noted: &Mutex<Option<String>>, reason: &str) {
    *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
}

/// Whether the reason of an authentication failure comes from a broker. If the connection broke
/// meanwhile, the reason contains an error of the client itself.
fn is_refusal(reason: &str) -> bool {
    !reason.contains("handshake failed: Local: ") && !reason.contains("Disconnected")
}

/// The group and partitions in the client's statistics. Unknown offsets are negative. Prefetched
/// records do not count as read.
fn group_statistics(statistics: &Statistics, topic: &str) -> GroupStatistics {
    let group = statistics.cgrp.as_ref();
    let is_member = group.map(|group| group.state == "up" && group.join_state == "steady");
    let partitions = statistics.topics.get(topic).map(|topic| &topic.partitions);
    let read = partitions.into_iter().flatten().filter_map(|(at, of)| {
        let read = if of.app_offset >= 0 { of.app_offset } else { of.next_offset };
        let known = *at >= 0 && of.hi_offset >= 0 && read >= 0;
        known.then_some((*at, (read, of.hi_offset)))
    });
    GroupStatistics { is_member, read: read.collect() }
}

impl ClientContext for Membership {
    /// A connection that a broker closes orderly is no error to the client: only this line says so.
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        if facility == "FAIL" {
            note(&self.failure, message);
        }
        outage::report_log_line(level, facility, message);
    }

    /// The client recovers from these errors itself. Fatal ones also come through polling.
    fn error(&self, error: KafkaError, reason: &str) {
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::AllBrokersDown) => {}
            Some(RDKafkaErrorCode::Authentication) if is_refusal(reason) => {
                note(&self.login_refused, reason);
            }
            _ => note(&self.failure, reason),
        }
        outage::report_error(&error, reason);
    }

    fn stats(&self, statistics: Statistics) {
        outage::report_statistics(&statistics);
        let latest = group_statistics(&statistics, &self.topic);
        self.state().statistics = latest;
    }
}

impl ConsumerContext for Membership {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        what: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        match what {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => self.assign(consumer, list),
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS => self.revoke(consumer, list),
            other => {
                let code: RDKafkaErrorCode = other.into();
                self.state().error = Some(KafkaError::Rebalance(code));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both messages are in the words of librdkafka 2.12.
    #[test]
    fn a_connection_that_breaks_while_logging_in_is_no_refusal() {
        let membership = Membership::new("turns");
        let failure = || KafkaError::Global(RDKafkaErrorCode::Authentication);
        let broke = "GroupCoordinator: SASL PLAIN mechanism handshake failed: Local: Broker \
                     transport failure: broker's supported mechanisms: (n/a) (after 0ms in state \
                     DOWN)";
        membership.error(failure(), broke);
        assert_eq!(membership.login_refused(), None);
        let refused = "sasl_plaintext://127.0.0.1:9092/bootstrap: SASL authentication error: \
                       Authentication failed: Invalid username or password (after 305ms in state \
                       AUTH_REQ)";
        membership.error(failure(), refused);
        membership.error(failure(), broke);
        assert_eq!(membership.login_refused().as_deref(), Some(refused));
    }

    /// librdkafka 2.12 writes one line, and reports no error.
    #[test]
    fn a_connection_that_the_broker_closes_is_a_failure() {
        let membership = Membership::new("turns");
        let closed = "[thrd:127.0.0.1:9092/bootstrap]: 127.0.0.1:9092/bootstrap: Disconnected: \
                      verify that security.protocol is correctly configured, broker might require \
                      SASL authentication (after 4ms in state UP)";
        membership.log(RDKafkaLogLevel::Info, "FAIL", closed);
        membership.log(RDKafkaLogLevel::Info, "REAUTH", "another line");
        assert_eq!(membership.failure().as_deref(), Some(closed));
    }
}
