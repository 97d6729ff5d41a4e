//! Snapshots of the group as its coordinator describes it: its members and their partitions.
//!
//! A thread with its own client asks regularly, so that a broker that does not answer delays
//! nothing else. Only static members need snapshots: see `kafka/orphan_recovery.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use rdkafka::bindings as native;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaRespErr;

use super::super::Topic;
use super::KafkaConfig;
use super::restore::OutsideGroup;

/// The timeout of one request.
const TIMEOUT_MS: i32 = 5_000;

/// The group at one point in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupSnapshot {
    /// Whether the coordinator reports that no rebalance is in progress.
    pub(super) stable: bool,
    /// The partitions of the topic of turns that each member was assigned, by member id. The id of
    /// a static member begins with its instance id.
    pub(super) members: BTreeMap<String, BTreeSet<i32>>,
}

/// Takes snapshots of the group. The thread ends after this value is dropped.
pub(super) struct GroupSnapshots {
    latest: Arc<Mutex<Option<GroupSnapshot>>>,
    _stop: Sender<()>,
}

impl GroupSnapshots {
    pub(super) fn start(config: &KafkaConfig, every: Duration) -> Self {
        let (stop, stopped) = crossbeam_channel::bounded(0);
        let latest = Arc::new(Mutex::new(None));
        let (shared, config) = (Arc::clone(&latest), config.clone());
        let thread = std::thread::Builder::new().name("group-snapshots".to_owned());
        let polling = move || poll_until(&stopped, every, &config, &shared);
        if let Err(error) = thread.spawn(polling) {
            tracing::warn!(%error, "no thread to look for partitions without an owner");
        }
        Self { latest, _stop: stop }
    }

    /// The latest snapshot, unless it was already taken.
    pub(super) fn take(&self) -> Option<GroupSnapshot> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn poll_until(
    stopped: &Receiver<()>,
    every: Duration,
    config: &KafkaConfig,
    latest: &Mutex<Option<GroupSnapshot>>,
) {
    let Ok(group) = CString::new(config.group_id.as_str()) else { return };
    let mut client = None;
    while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        match snapshot(&mut client, config, &group) {
            Ok(Some(snapshot)) => {
                *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot);
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, group = config.group_id, "asking for the group"),
        }
    }
}

fn snapshot(
    client: &mut Option<BaseConsumer<OutsideGroup>>,
    config: &KafkaConfig,
    group: &CStr,
) -> Result<Option<GroupSnapshot>, KafkaError> {
    let client = match client {
        Some(client) => client,
        none => none.insert(config.watermark_settings().create_with_context(OutsideGroup)?),
    };
    // The client has no subscription, so polling only brings connection errors, which its context
    // reports.
    while client.poll(Duration::ZERO).is_some() {}
    let groups = Groups::ask(client, group)?;
    Ok(groups.snapshot(group, config.topics.name(Topic::Turns)))
}

/// The answer of the brokers, freed on drop.
struct Groups(*const native::rd_kafka_group_list);

impl Groups {
    /// Asks every broker for the group; one of them is its coordinator. The client's newer call
    /// asks only the coordinator, but it may end the whole process if the coordinator does not
    /// answer in time (an assertion on `eonce->refcnt` in librdkafka up to 2.12; its issue 4605).
    #[allow(unsafe_code)]
    fn ask(client: &BaseConsumer<OutsideGroup>, group: &CStr) -> Result<Self, KafkaError> {
        let mut list = std::ptr::null();
        let client = client.client().native_ptr();
        // SAFETY: client and name outlive the call, which waits for the answers. We own the list.
        let code = unsafe {
            native::rd_kafka_list_groups(client, group.as_ptr(), &raw mut list, TIMEOUT_MS)
        };
        match code {
            // Partial: some broker did not answer. It need not be the coordinator.
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR
            | RDKafkaRespErr::RD_KAFKA_RESP_ERR__PARTIAL
                if !list.is_null() =>
            {
                Ok(Self(list))
            }
            code => Err(KafkaError::GroupListFetch(code.into())),
        }
    }

    /// The snapshot of a topic's partitions. `None` if the coordinator did not answer, or its
    /// answer cannot be read.
    #[allow(unsafe_code)]
    fn snapshot(&self, group: &CStr, topic: &str) -> Option<GroupSnapshot> {
        // SAFETY: the list and everything that it points to live as long as `self`. Its arrays have
        // the lengths that it states, its strings are terminated, and an empty array or value may
        // be null.
        unsafe {
            let list = &*self.0;
            let of_it = array(list.groups, list.group_cnt).iter().find(|found| {
                found.err == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR
                    && CStr::from_ptr(found.group) == group
            })?;
            let members = array(of_it.members, of_it.member_cnt).iter().map(|member| {
                let id = CStr::from_ptr(member.member_id).to_string_lossy().into_owned();
                let assignment =
                    array(member.member_assignment.cast::<u8>(), member.member_assignment_size);
                Some((id, assigned(assignment, topic)?))
            });
            Some(GroupSnapshot {
                stable: CStr::from_ptr(of_it.state) == c"Stable",
                members: members.collect::<Option<_>>()?,
            })
        }
    }
}

impl Drop for Groups {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: we own the list, and no reference into it remains.
        unsafe { native::rd_kafka_group_list_destroy(self.0) }
    }
}

/// # Safety
/// The pointer is null, or points to `count` elements that live for `'a`.
#[allow(unsafe_code)]
unsafe fn array<'a, T>(first: *const T, count: i32) -> &'a [T] {
    match usize::try_from(count) {
        // SAFETY: the caller guarantees it.
        Ok(count) if !first.is_null() => unsafe { std::slice::from_raw_parts(first, count) },
        _ => &[],
    }
}

/// The partitions of a topic in an assignment of the consumer protocol: a version, then the topics
/// with their partitions, then the assignor's own data; numbers are big-endian. Empty for a member
/// that was not assigned anything yet. `None` if the assignment ends too early.
fn assigned(mut assignment: &[u8], topic: &str) -> Option<BTreeSet<i32>> {
    let mut found = BTreeSet::new();
    if assignment.is_empty() {
        return Some(found);
    }
    let rest = &mut assignment;
    let _version = i16::from_be_bytes(take(rest)?);
    for _ in 0..i32::from_be_bytes(take(rest)?) {
        let length = usize::try_from(i16::from_be_bytes(take(rest)?)).ok()?;
        let (name, after) = rest.split_at_checked(length)?;
        *rest = after;
        for _ in 0..i32::from_be_bytes(take(rest)?) {
            let partition = i32::from_be_bytes(take(rest)?);
            if name == topic.as_bytes() {
                found.insert(partition);
            }
        }
    }
    Some(found)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two topics, in the published format of the protocol.
    const ASSIGNMENT: &[u8] = b"\0\x03\0\0\0\x02\
        \0\x05other\0\0\0\x01\0\0\0\x09\
        \0\x05turns\0\0\0\x02\0\0\0\x04\0\0\x01\0\
        \xff\xff\xff\xff";

    #[test]
    fn an_assignment_is_read_by_topic() {
        assert_eq!(assigned(ASSIGNMENT, "turns"), Some([4, 256].into()));
        assert_eq!(assigned(ASSIGNMENT, "other"), Some([9].into()));
        assert_eq!(assigned(ASSIGNMENT, "turn"), Some(BTreeSet::new()));
        assert_eq!(assigned(b"", "turns"), Some(BTreeSet::new()));
        assert_eq!(assigned(b"\0\0\0\0\0\0\0\0\0\0", "turns"), Some(BTreeSet::new()));
    }

    #[test]
    fn an_assignment_that_ends_too_early_is_none() {
        let data = 4;
        for end in 1..ASSIGNMENT.len() - data {
            assert_eq!(assigned(&ASSIGNMENT[..end], "turns"), None, "{end} bytes");
        }
        assert_eq!(assigned(b"\0\0\0\0\0\x01\xff\xff", "turns"), None, "a length below 0");
    }
}
