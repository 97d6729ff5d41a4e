//! The group as its coordinator describes it: who is in it, and what was given to whom.
//!
//! A thread with a client of its own asks now and then, so that a broker that does not answer
//! holds nobody up. Only static members need it: see `kafka/mending.rs`.

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

/// How long one look may take.
const TIMEOUT_MS: i32 = 5_000;

/// What one look at the group showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// No rebalance is going on, as far as the coordinator knows.
    pub(super) stable: bool,
    /// The partitions of the inputs that each member was given, by the member's id. That of a
    /// static member begins with its instance id.
    pub(super) members: BTreeMap<String, BTreeSet<i32>>,
}

/// Looks at the group until it is dropped; then the thread ends by itself.
pub(super) struct Looks {
    latest: Arc<Mutex<Option<Look>>>,
    _stop: Sender<()>,
}

impl Looks {
    pub(super) fn start(config: &KafkaConfig, every: Duration) -> Self {
        let (stop, stopped) = crossbeam_channel::bounded(0);
        let latest = Arc::new(Mutex::new(None));
        let (looking, config) = (Arc::clone(&latest), config.clone());
        let thread = std::thread::Builder::new().name("group-looks".to_owned());
        let look = move || look_until(&stopped, every, &config, &looking);
        if let Err(error) = thread.spawn(look) {
            tracing::warn!(%error, "partitions that the group gives to nobody will not be noticed");
        }
        Self { latest, _stop: stop }
    }

    /// The latest look, unless it was taken already.
    pub(super) fn take(&self) -> Option<Look> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn look_until(
    stopped: &Receiver<()>,
    every: Duration,
    config: &KafkaConfig,
    latest: &Mutex<Option<Look>>,
) {
    let Ok(group) = CString::new(config.group_id.as_str()) else { return };
    let mut client = None;
    while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        match look(&mut client, config, &group) {
            Ok(Some(look)) => {
                *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(look);
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, group = config.group_id, "looking at the group"),
        }
    }
}

fn look(
    client: &mut Option<BaseConsumer<OutsideGroup>>,
    config: &KafkaConfig,
    group: &CStr,
) -> Result<Option<Look>, KafkaError> {
    let client = match client {
        Some(client) => client,
        none => none.insert(config.watermark_settings().create_with_context(OutsideGroup)?),
    };
    // It subscribed to nothing: what comes are errors of connections, which its context tells.
    while client.poll(Duration::ZERO).is_some() {}
    let groups = Groups::ask(client, group)?;
    Ok(groups.look(group, config.topics.name(Topic::Turns)))
}

/// What the brokers answered; freed when it is dropped.
struct Groups(*const native::rd_kafka_group_list);

impl Groups {
    /// Asks every broker for the group; one of them is its coordinator. The client's newer call,
    /// which asks only that one, is not to be used: where the coordinator does not answer in time
    /// it may end the whole process (an assertion on `eonce->refcnt` in librdkafka up to 2.12; its
    /// issue 4605).
    #[allow(unsafe_code)]
    fn ask(client: &BaseConsumer<OutsideGroup>, group: &CStr) -> Result<Self, KafkaError> {
        let mut list = std::ptr::null();
        let client = client.client().native_ptr();
        // SAFETY: client and name outlive the call, which waits for the answers; the list is ours.
        let code = unsafe {
            native::rd_kafka_list_groups(client, group.as_ptr(), &raw mut list, TIMEOUT_MS)
        };
        match code {
            // Partial: some broker did not answer. It may be another than the coordinator.
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR
            | RDKafkaRespErr::RD_KAFKA_RESP_ERR__PARTIAL
                if !list.is_null() =>
            {
                Ok(Self(list))
            }
            code => Err(KafkaError::GroupListFetch(code.into())),
        }
    }

    /// What is said of a topic's partitions; nothing where its coordinator did not answer, or not
    /// in a way that can be read.
    #[allow(unsafe_code)]
    fn look(&self, group: &CStr, topic: &str) -> Option<Look> {
        // SAFETY: the list and all that it points to live as long as it; its arrays have as many
        // elements as it says, its strings end, and an array or a value that is empty may be null.
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
            Some(Look {
                stable: CStr::from_ptr(of_it.state) == c"Stable",
                members: members.collect::<Option<_>>()?,
            })
        }
    }
}

impl Drop for Groups {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: it is ours, and nothing that it owns is kept.
        unsafe { native::rd_kafka_group_list_destroy(self.0) }
    }
}

/// # Safety
/// The pointer is null, or to so many elements that live as long as is wanted.
#[allow(unsafe_code)]
unsafe fn array<'a, T>(first: *const T, count: i32) -> &'a [T] {
    match usize::try_from(count) {
        // SAFETY: as promised.
        Ok(count) if !first.is_null() => unsafe { std::slice::from_raw_parts(first, count) },
        _ => &[],
    }
}

/// The partitions of a topic in an assignment as the consumer protocol writes it: a version, then
/// the topics, each with its partitions, then what the assignor adds; numbers with the high byte
/// first. Empty before a member was given anything. `None` where it ends too early.
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

    /// Two topics, as the protocol is published.
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
