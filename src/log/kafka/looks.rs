//! The group as its coordinator describes it: who is in it, and what was given to whom.
//!
//! A thread with a client of its own asks now and then, so that a broker that does not answer
//! holds nobody up. Only static members need it: see `kafka/mending.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use rdkafka::bindings as native;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::types::{RDKafka, RDKafkaRespErr};

use super::super::Topic;
use super::KafkaConfig;
use super::restore::OutsideGroup;

/// How long one look may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What one look at the group showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// No rebalance is going on, as far as the coordinator knows.
    pub(super) stable: bool,
    /// Partitions of the inputs by the instance id of the static member they were given to.
    pub(super) static_members: BTreeMap<String, BTreeSet<i32>>,
    /// Those of all members without an instance id.
    pub(super) of_others: BTreeSet<i32>,
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
            Ok(look) => {
                *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(look);
            }
            Err(error) => tracing::debug!(%error, group = config.group_id, "looking at the group"),
        }
    }
}

fn look(
    client: &mut Option<BaseConsumer<OutsideGroup>>,
    config: &KafkaConfig,
    group: &CStr,
) -> Result<Look, KafkaError> {
    let client = match client {
        Some(client) => client,
        none => none.insert(config.watermark_settings().create_with_context(OutsideGroup)?),
    };
    // It subscribed to nothing: what comes are errors of connections, which its context tells.
    while client.poll(Duration::ZERO).is_some() {}
    let description = Description::ask(client.client().native_ptr(), group)?;
    description.look(config.topics.name(Topic::Turns))
}

/// What the coordinator answered; freed when it is dropped.
struct Description(*mut native::rd_kafka_event_t);

impl Description {
    #[allow(unsafe_code)]
    fn ask(client: *mut RDKafka, group: &CStr) -> Result<Self, KafkaError> {
        use native::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS as DESCRIBE;
        let deadline = Instant::now() + TIMEOUT;
        let timeout_ms = i32::try_from(TIMEOUT.as_millis()).unwrap_or(i32::MAX);
        let mut groups = [group.as_ptr()];
        // SAFETY: the client and the group's name outlive the calls, and the client copies name and
        // options. No room is offered for the text of an error. Queue and options are ours until
        // they are destroyed; an answer that comes later is freed by the client.
        let event = unsafe {
            let queue = native::rd_kafka_queue_new(client);
            let options = native::rd_kafka_AdminOptions_new(client, DESCRIBE);
            native::rd_kafka_AdminOptions_set_request_timeout(
                options,
                timeout_ms,
                std::ptr::null_mut(),
                0,
            );
            native::rd_kafka_DescribeConsumerGroups(client, groups.as_mut_ptr(), 1, options, queue);
            native::rd_kafka_AdminOptions_destroy(options);
            let left = deadline.saturating_duration_since(Instant::now()).as_millis();
            let event = native::rd_kafka_queue_poll(queue, i32::try_from(left).unwrap_or(0));
            native::rd_kafka_queue_destroy(queue);
            event
        };
        if event.is_null() {
            return Err(KafkaError::AdminOp(RDKafkaErrorCode::OperationTimedOut));
        }
        Ok(Self(event))
    }

    /// What it says of a topic's partitions.
    #[allow(unsafe_code)]
    fn look(&self, topic: &str) -> Result<Look, KafkaError> {
        use native::rd_kafka_consumer_group_state_t::RD_KAFKA_CONSUMER_GROUP_STATE_STABLE as STABLE;
        let mut look = Look::default();
        // SAFETY: everything that is read here belongs to the event and lives as long as it; the
        // client gives null for the result of another kind of event, and nothing else is null but
        // the instance id of a dynamic member and what is checked for it.
        unsafe {
            failed(native::rd_kafka_event_error(self.0))?;
            let result = native::rd_kafka_event_DescribeConsumerGroups_result(self.0);
            if result.is_null() {
                return Err(KafkaError::AdminOp(RDKafkaErrorCode::InvalidType));
            }
            let mut count = 0;
            let groups = native::rd_kafka_DescribeConsumerGroups_result_groups(result, &mut count);
            if count == 0 {
                return Ok(look);
            }
            let group = *groups;
            let error = native::rd_kafka_ConsumerGroupDescription_error(group);
            if !error.is_null() {
                failed(native::rd_kafka_error_code(error))?;
            }
            look.stable = native::rd_kafka_ConsumerGroupDescription_state(group) == STABLE;
            for at in 0..native::rd_kafka_ConsumerGroupDescription_member_count(group) {
                let member = native::rd_kafka_ConsumerGroupDescription_member(group, at);
                let assignment = native::rd_kafka_MemberDescription_assignment(member);
                let list = native::rd_kafka_MemberAssignment_partitions(assignment);
                let given = partitions(list, topic);
                let name = native::rd_kafka_MemberDescription_group_instance_id(member);
                match name.is_null() {
                    true => look.of_others.extend(given),
                    false => {
                        let name = CStr::from_ptr(name).to_string_lossy().into_owned();
                        look.static_members.insert(name, given);
                    }
                }
            }
        }
        Ok(look)
    }
}

impl Drop for Description {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: it is ours, and nothing that it owns is kept.
        unsafe { native::rd_kafka_event_destroy(self.0) }
    }
}

fn failed(code: RDKafkaRespErr) -> Result<(), KafkaError> {
    match code {
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
        code => Err(KafkaError::AdminOp(code.into())),
    }
}

/// The partitions of a topic in a list.
///
/// # Safety
/// The list is null or one of the client's, and nobody changes it meanwhile.
#[allow(unsafe_code)]
unsafe fn partitions(
    list: *const native::rd_kafka_topic_partition_list_t,
    topic: &str,
) -> BTreeSet<i32> {
    // SAFETY: as promised; a list has as many elements as it says, each with a topic's name.
    unsafe {
        let Some(list) = list.as_ref() else { return BTreeSet::new() };
        let count = usize::try_from(list.cnt).unwrap_or(0);
        let elements = (0..count).map(|at| &*list.elems.add(at));
        let of_it =
            elements.filter(|element| CStr::from_ptr(element.topic).to_bytes() == topic.as_bytes());
        of_it.map(|element| element.partition).collect()
    }
}
