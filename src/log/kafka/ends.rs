//! The ends of paused partitions. Nothing fetches from a paused partition, so the client does not
//! learn of its growth, although its lag is the one that matters.
//!
//! A thread with its own client asks regularly, so that a broker that does not answer delays
//! nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};

use super::super::Topic;
use super::KafkaConfig;
use super::restore::OutsideGroup;

/// The interval of requests while some partition is paused.
const EVERY: Duration = Duration::from_secs(2);
/// The timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Asks for the ends of partitions. The thread ends after this value is dropped.
pub(super) struct EndPoller {
    shared: Arc<Mutex<PolledEnds>>,
    _stop: Sender<()>,
}

#[derive(Default)]
struct PolledEnds {
    wanted: BTreeSet<i32>,
    ends: BTreeMap<i32, i64>,
}

impl EndPoller {
    pub(super) fn start(config: &KafkaConfig) -> Self {
        let (stop, stopped) = crossbeam_channel::bounded(0);
        let shared = Arc::new(Mutex::new(PolledEnds::default()));
        let (asking, config) = (Arc::clone(&shared), config.clone());
        let thread = std::thread::Builder::new().name("partition-ends".to_owned());
        if let Err(error) = thread.spawn(move || ask_until(&stopped, &config, &asking)) {
            tracing::warn!(%error, "the lag of paused partitions will not be known");
        }
        Self { shared, _stop: stop }
    }

    /// The known ends of these partitions, which the thread asks for from now on.
    pub(super) fn of(&self, partitions: &BTreeSet<i32>) -> BTreeMap<i32, i64> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.ends.retain(|partition, _| partitions.contains(partition));
        shared.wanted.clone_from(partitions);
        shared.ends.clone()
    }
}

fn ask_until(stopped: &Receiver<()>, config: &KafkaConfig, shared: &Mutex<PolledEnds>) {
    let mut client = None;
    loop {
        let wanted = shared.lock().unwrap_or_else(PoisonError::into_inner).wanted.clone();
        if !wanted.is_empty() {
            let found = ask(&mut client, config, &wanted).unwrap_or_else(|error| {
                tracing::debug!(%error, "asking for the ends of paused partitions");
                BTreeMap::new()
            });
            if found.len() < wanted.len() {
                // As in a failed restoration, the client may ask a broker that no longer leads.
                client = None;
            }
            shared.lock().unwrap_or_else(PoisonError::into_inner).ends.extend(found);
        }
        if stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

fn ask(
    client: &mut Option<BaseConsumer<OutsideGroup>>,
    config: &KafkaConfig,
    wanted: &BTreeSet<i32>,
) -> Result<BTreeMap<i32, i64>, KafkaError> {
    let client = match client {
        Some(client) => client,
        none => none.insert(config.watermark_settings().create_with_context(OutsideGroup)?),
    };
    let topic = config.topics.name(Topic::Turns);
    let mut list = TopicPartitionList::with_capacity(wanted.len());
    for partition in wanted {
        list.add_partition_offset(topic, *partition, Offset::End)?;
    }
    let found = client.offsets_for_times(list, TIMEOUT)?;
    let known = found.elements().into_iter().filter_map(|element| match element.offset() {
        Offset::Offset(end) => Some((element.partition(), end)),
        _ => None,
    });
    Ok(known.collect())
}
