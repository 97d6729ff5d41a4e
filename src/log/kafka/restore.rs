//! Restoring a partition: its stable committed offset with metadata, then its changelog to the end.

use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};
use turnstream_ports::panics::contain;

use super::super::{CountedChangelog, LogError, Record, Restored, Start, TakeChangelog, Topic};
use super::closing::ClosedInTime;
use super::errors::remedy_of;
use super::membership::{CommittedOffset, Membership};
use super::sweep::is_of_sweep;
use super::{KafkaConfig, failed, outage};

/// The longest single wait within a restoration.
const SLICE: Duration = Duration::from_millis(100);
/// How long one attempt waits for an open transaction or a broker that does not answer. Other
/// partitions are held back meanwhile, so the engine tries again instead of waiting longer.
pub(super) const SETTLE: Duration = Duration::from_secs(2);
/// The wait before the next request.
pub(super) const RETRY: Duration = Duration::from_millis(20);
/// The interval of polls that keep the membership alive.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// The interval of log lines about the progress of a long restoration.
const TELL: Duration = Duration::from_secs(5);

/// The context of clients outside of the engine's group.
pub(super) struct OutsideGroup;

impl ClientContext for OutsideGroup {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        outage::report_log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        outage::report_error(&error, reason);
    }
}

impl ConsumerContext for OutsideGroup {}

/// Reads changelogs, with its own clients, which never join a group.
pub(super) struct Restorer {
    config: KafkaConfig,
    changelog: ClosedInTime<BaseConsumer<OutsideGroup>>,
    watermarks: ClosedInTime<BaseConsumer<OutsideGroup>>,
}

impl Restorer {
    pub(super) fn new(config: &KafkaConfig) -> Result<Self, LogError> {
        let make = |settings: rdkafka::ClientConfig| {
            settings
                .create_with_context(OutsideGroup)
                .map(ClosedInTime::new)
                .map_err(|source| failed("making the reader of the changelog", source))
        };
        Ok(Self {
            config: config.clone(),
            changelog: make(config.restorer_settings())?,
            watermarks: make(config.watermark_settings())?,
        })
    }

    fn timeout(&self) -> Duration {
        timeout(&self.config)
    }

    /// Restores a partition. Every partition of the member must be paused: the member is polled
    /// meanwhile to keep it alive, and must bring no record. Rebalances are recorded for later.
    pub(super) fn restore(
        &self,
        client: &BaseConsumer<Membership>,
        partition: i32,
        changelog: TakeChangelog<'_>,
    ) -> Result<Restored, LogError> {
        let begun = Instant::now();
        let mut alive =
            KeepAlive { client, last: Instant::now(), turns: &self.config.topics.turns };
        let stood = committed(client, &self.config, partition)?;
        let end = self.settled_end(partition, &mut alive)?;
        let mut counted = CountedChangelog::new(partition, stood.0, changelog);
        self.read_changelog((partition, end), &mut counted, &mut alive)?;
        // A process that was halted meanwhile may have lost the partition. If the next owner has
        // committed, the changelog is ahead of the offset.
        if committed(client, &self.config, partition)? != stood {
            alive.keep_now()?;
            if !client.context().is_held(partition) {
                return Err(LogError::Stale { partitions: vec![partition] });
            }
            let group = &self.config.group_id;
            let what = format!("the offset of partition {partition} of group `{group}`");
            return Err(LogError::Unsettled { what });
        }
        client.context().note_committed(partition, stood.clone());
        let (position, metadata) = stood;
        let restored = counted.finish(metadata, &self.config.group_id)?;
        let begin = match position {
            Some(position) => position,
            None => self.begin(partition, &mut alive)?,
        };
        self.seek(client, partition, begin, &mut alive)?;
        let Restored { records, bytes, .. } = restored;
        let milliseconds = begun.elapsed().as_millis() as u64;
        tracing::info!(partition, position, records, bytes, milliseconds, "restored");
        Ok(restored)
    }

    /// The end of the changelog partition, after every transaction below that end has ended.
    fn settled_end(&self, partition: i32, alive: &mut KeepAlive<'_>) -> Result<i64, LogError> {
        let topic = self.config.topics.name(Topic::History);
        let place = (topic, partition);
        let deadline = Instant::now() + self.timeout().min(SETTLE);
        let (_, end) = edges(&self.watermarks, place, deadline, || alive.keep())?;
        while edges(&self.changelog, place, deadline, || alive.keep())?.1 < end {
            if Instant::now() >= deadline {
                return Err(LogError::Unsettled {
                    what: format!("`{topic}`, partition {partition}"),
                });
            }
            alive.keep()?;
            std::thread::sleep(RETRY);
        }
        Ok(end)
    }

    /// Where to begin reading a partition without a committed offset. The client must not look this
    /// up by itself: see `assign` of [`Membership`].
    fn begin(&self, partition: i32, alive: &mut KeepAlive<'_>) -> Result<i64, LogError> {
        let place = (self.config.topics.name(Topic::Turns), partition);
        let deadline = Instant::now() + self.timeout().min(SETTLE);
        let (first, end) = edges(&self.changelog, place, deadline, || alive.keep())?;
        Ok(match self.config.start {
            Start::Earliest => first,
            Start::Latest => end,
        })
    }

    /// Reads all committed records up to the end. The client reports the end of a partition by its
    /// position, which includes control records and aborted records. Since every transaction below
    /// `end` has ended, the reported end is at or above `end`.
    fn read_changelog(
        &self,
        (partition, end): (i32, i64),
        counted: &mut CountedChangelog<'_>,
        alive: &mut KeepAlive<'_>,
    ) -> Result<(), LogError> {
        if end == 0 {
            return Ok(());
        }
        let topic = self.config.topics.name(Topic::History);
        let doing = format!("reading the changelog `{topic}`, partition {partition}");
        let failed = |source| failed(&doing, source);
        let mut list = TopicPartitionList::with_capacity(1);
        list.add_partition_offset(topic, partition, Offset::Beginning).map_err(failed)?;
        self.changelog.assign(&list).map_err(failed)?;
        let (mut told, mut last) = (Instant::now(), Instant::now());
        let outcome = loop {
            let passed = match self.changelog.poll(SLICE) {
                Some(Ok(message)) => {
                    last = Instant::now();
                    if last.duration_since(told) >= TELL {
                        told = last;
                        let (records, bytes) = counted.passed();
                        let (offset, of) = (message.offset(), end);
                        tracing::info!(partition, offset, of, records, bytes, "restoring");
                    }
                    if is_of_sweep(&message) { Ok(()) } else { counted.pass(change(&message)) }
                }
                Some(Err(KafkaError::PartitionEOF(at))) if at == partition => break Ok(()),
                // The client's context has reported the error.
                Some(Err(error)) => {
                    tracing::debug!(%error, topic, partition, "reading the changelog");
                    Ok(())
                }
                None => Ok(()),
            };
            if last.max(told).elapsed() >= TELL {
                told = Instant::now();
                let silent_ms = last.elapsed().as_millis() as u64;
                tracing::warn!(partition, topic, silent_ms, "nothing comes from the changelog");
            }
            if let Err(error) = passed.and_then(|()| alive.keep()) {
                break Err(error);
            }
            if last.elapsed() > self.timeout() {
                break Err(failed(KafkaError::MessageConsumption(
                    RDKafkaErrorCode::OperationTimedOut,
                )));
            }
        };
        // Unassigning drops prefetched records.
        self.changelog.unassign().map_err(failed)?;
        outcome
    }

    /// Moves the reader of inputs to its first offset. Retries, since the client is not ready to
    /// seek right after an assignment.
    fn seek(
        &self,
        client: &BaseConsumer<Membership>,
        partition: i32,
        begin: i64,
        alive: &mut KeepAlive<'_>,
    ) -> Result<(), LogError> {
        let topic = self.config.topics.name(Topic::Turns);
        let doing = format!("seeking `{topic}`, partition {partition}");
        let failed = |source| failed(&doing, source);
        let deadline = Instant::now() + self.timeout();
        loop {
            if !client.context().is_held(partition) {
                return Err(LogError::Stale { partitions: vec![partition] });
            }
            let mut list = TopicPartitionList::with_capacity(1);
            list.add_partition_offset(topic, partition, Offset::Offset(begin)).map_err(failed)?;
            let sought = client
                .seek_partitions(list, self.timeout().min(SETTLE))
                .and_then(|list| list.elements().iter().try_for_each(|element| element.error()));
            match sought {
                Ok(()) => return Ok(()),
                Err(source) if Instant::now() >= deadline => return Err(failed(source)),
                Err(_) => {
                    alive.keep()?;
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        }
    }
}

fn timeout(config: &KafkaConfig) -> Duration {
    Duration::from_millis(u64::from(config.restore_timeout_ms))
}

/// The first offset of a partition and its end as this client sees it: the high watermark, or the
/// stable end for readers of committed records. Retries until the deadline, since a partition has
/// no leader for a moment after its topic was created or its broker left, and calls `meanwhile`
/// between two requests. Each takes at most [`SETTLE`].
///
/// # Errors
///
/// The error of the last request, or of the first that every attempt would meet; that of
/// `meanwhile`.
pub(super) fn edges(
    client: &BaseConsumer<impl ConsumerContext>,
    (topic, partition): (&str, i32),
    deadline: Instant,
    mut meanwhile: impl FnMut() -> Result<(), LogError>,
) -> Result<(i64, i64), LogError> {
    loop {
        match client.fetch_watermarks(topic, partition, SETTLE) {
            Ok(edges) => return Ok(edges),
            Err(source) if remedy_of(&source).is_some() || Instant::now() >= deadline => {
                let doing = format!("asking for the ends of `{topic}`, partition {partition}");
                return Err(failed(&doing, source));
            }
            Err(_) => {
                meanwhile()?;
                std::thread::sleep(RETRY);
            }
        }
    }
}

/// The offsets that the client's group has committed. Retries until the deadline, since the group
/// has no coordinator for a moment after its first member came or its broker left, and the client
/// only looks for the new one. Each request takes at most [`SETTLE`].
///
/// # Errors
///
/// The error of the last request, or of the first that every attempt would meet.
pub(super) fn committed_in_time(
    client: &BaseConsumer<impl ConsumerContext>,
    partitions: &TopicPartitionList,
    deadline: Instant,
    doing: &str,
) -> Result<TopicPartitionList, LogError> {
    loop {
        match client.committed_offsets(partitions.clone(), SETTLE) {
            Ok(committed) => return Ok(committed),
            Err(source) if remedy_of(&source).is_some() || Instant::now() >= deadline => {
                return Err(failed(doing, source));
            }
            Err(_) => std::thread::sleep(RETRY),
        }
    }
}

/// The committed offset and its metadata, once no open transaction can change them. The client
/// waits for that, since it reads committed records only.
pub(super) fn committed(
    client: &BaseConsumer<impl ConsumerContext>,
    config: &KafkaConfig,
    partition: i32,
) -> Result<CommittedOffset, LogError> {
    let group = &config.group_id;
    let doing = format!("fetching the offset of partition {partition} of group `{group}`");
    let mut wanted = TopicPartitionList::with_capacity(1);
    wanted.add_partition(config.topics.name(Topic::Turns), partition);
    let unsettled = || LogError::Unsettled { what: doing.clone() };
    let found = match client.committed_offsets(wanted, timeout(config).min(SETTLE)) {
        Ok(found) => found,
        Err(error) if is_unstable(&error) => return Err(unsettled()),
        Err(source) => return Err(failed(&doing, source)),
    };
    let Some(element) = found.find_partition(&config.topics.turns, partition) else {
        return Ok((None, String::new()));
    };
    match element.error() {
        Ok(()) => {}
        Err(error) if is_unstable(&error) => return Err(unsettled()),
        Err(source) => return Err(failed(&doing, source)),
    }
    let Offset::Offset(offset) = element.offset() else {
        return Ok((None, String::new()));
    };
    // The client library panics if the metadata is not UTF-8; ours is ASCII.
    let metadata = contain(|| element.metadata().to_owned());
    let metadata = metadata.map_err(|_| {
        LogError::Refused(format!(
            "{doing}: the metadata of offset {offset} is not text, so another program commits \
             for this group; stop it, or name another group"
        ))
    })?;
    Ok((Some(offset), metadata))
}

/// A record of a compacted topic.
pub(super) fn change(message: &BorrowedMessage<'_>) -> Record {
    Record {
        partition: message.partition(),
        offset: message.offset(),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        ..Record::default()
    }
}

fn is_unstable(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(RDKafkaErrorCode::UnstableOffsetCommit | RDKafkaErrorCode::OperationTimedOut)
    )
}

/// Polls the paused member regularly, so that the group does not take it for stuck.
struct KeepAlive<'a> {
    client: &'a BaseConsumer<Membership>,
    last: Instant,
    turns: &'a str,
}

impl KeepAlive<'_> {
    fn keep(&mut self) -> Result<(), LogError> {
        if self.last.elapsed() < KEEP_ALIVE {
            return Ok(());
        }
        self.keep_now()
    }

    fn keep_now(&mut self) -> Result<(), LogError> {
        self.last = Instant::now();
        match self.client.poll(Duration::ZERO) {
            Some(Err(source @ KafkaError::MessageConsumptionFatal(_))) => {
                Err(failed("keeping the membership while restoring", source))
            }
            // The record was in flight when its partition was paused. The seek delivers it again.
            Some(Ok(message)) => {
                let offset = Offset::Offset(message.offset());
                self.client
                    .seek(self.turns, message.partition(), offset, super::REQUEST_TIMEOUT)
                    .map_err(|source| failed("giving back a record while restoring", source))
            }
            // The client recovers from other errors.
            _ => Ok(()),
        }
    }
}
