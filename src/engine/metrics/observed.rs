//! Wrappers that observe both ends of a log. The engine's calls to the log and their results are
//! all that health and most gauges need.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use turnstream_log::{
    Consumer, Event, LogError, Producer, Restored, Standing, TakeChangelog, Transaction,
};

use super::outcomes::CommitMetrics;
use super::vitals::Vitals;
use crate::flow_control::FlowControl;

/// How often the consumer is asked for its state.
const STANDING_EVERY_MS: u64 = 200;

const RESTORE_BUCKETS_SECONDS: [f64; 12] =
    [0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0];

/// Events of partitions. Cheap to clone: clones share the counters.
#[derive(Clone, Debug)]
pub(super) struct PartitionMetrics {
    events: Family<[(&'static str, &'static str); 1], Counter>,
    restored_records: Counter,
    restore_seconds: Histogram,
    group_mended: Counter,
    swept: Counter,
}

impl PartitionMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let it = Self {
            events: Family::default(),
            restored_records: Counter::default(),
            restore_seconds: Histogram::new(RESTORE_BUCKETS_SECONDS),
            group_mended: Counter::default(),
            swept: Counter::default(),
        };
        for event in ["assigned", "revoked", "lost"] {
            it.events.get_or_create_owned(&[("event", event)]);
        }
        let help = "Partitions that this process gained or lost";
        registry.register("partition_events", help, it.events.clone());
        let help = "Records of changelogs that were read to restore partitions";
        registry.register("restored_records", help, it.restored_records.clone());
        let help = "Times that it rejoined its group because partitions had no owner";
        registry.register("group_mended", help, it.group_mended.clone());
        let help = "Partitions with an open transaction of ours that the broker had given up";
        registry.register("partitions_swept", help, it.swept.clone());
        let help = "Time that restoring a partition took";
        let seconds = it.restore_seconds.clone();
        registry.register_with_unit("restore_duration", help, Unit::Seconds, seconds);
        it
    }

    fn happened(&self, event: &'static str, partitions: usize) {
        self.events.get_or_create_owned(&[("event", event)]).inc_by(partitions as u64);
    }
}

/// A consumer that updates the metrics.
pub(super) struct ObservedConsumer {
    pub(super) inner: Box<dyn Consumer>,
    pub(super) vitals: Arc<Vitals>,
    pub(super) partitions: PartitionMetrics,
    pub(super) flow: Arc<FlowControl>,
    /// The time of the next question for its state.
    pub(super) ask_ms: u64,
    /// How often it had joined its group again, at the last question.
    pub(super) rejoins: u64,
    /// On how many partitions something was swept, at the last question.
    pub(super) swept: u64,
}

impl ObservedConsumer {
    fn note(&mut self, event: &Event, now_ms: u64) {
        let mut health = self.vitals.health();
        health.polled(now_ms);
        match event {
            Event::Records(records) => {
                if !records.is_empty() && self.flow.in_flight() == 0 {
                    health.busy(now_ms);
                }
                let mut partition = None;
                for record in records {
                    if partition.replace(record.partition) != Some(record.partition) {
                        health.begins(record.partition, record.offset);
                    }
                }
            }
            Event::Assigned(assignments) => {
                self.partitions.happened("assigned", assignments.len());
                for assignment in assignments {
                    health.assigned(assignment.partition);
                }
            }
            Event::Revoked(partitions) => {
                self.partitions.happened("revoked", partitions.len());
                partitions.iter().for_each(|partition| health.gone(*partition));
            }
            Event::Lost(partitions) => {
                self.partitions.happened("lost", partitions.len());
                partitions.iter().for_each(|partition| health.gone(*partition));
            }
            Event::End => {}
        }
        if now_ms >= self.ask_ms && self.vitals.is_watched() {
            self.ask_ms = now_ms + STANDING_EVERY_MS;
            let standing = self.inner.standing();
            let PartitionMetrics { group_mended, swept, .. } = &self.partitions;
            group_mended.inc_by(standing.rejoins.saturating_sub(self.rejoins));
            swept.inc_by(standing.swept.saturating_sub(self.swept));
            (self.rejoins, self.swept) = (standing.rejoins, standing.swept);
            health.stands(standing);
        }
    }
}

impl Consumer for ObservedConsumer {
    fn poll(&mut self, wait: Duration) -> Result<Event, LogError> {
        let polled = self.inner.poll(wait);
        let now_ms = self.vitals.now_ms();
        if let Ok(event) = &polled {
            self.note(event, now_ms);
        }
        polled
    }

    fn pause(&mut self, partition: i32) -> Result<(), LogError> {
        self.vitals.health().paused(partition, true, self.vitals.now_ms());
        self.inner.pause(partition)
    }

    fn resume(&mut self, partition: i32) -> Result<(), LogError> {
        self.vitals.health().paused(partition, false, self.vitals.now_ms());
        self.inner.resume(partition)
    }

    fn restore(
        &mut self,
        partition: i32,
        changelog: TakeChangelog<'_>,
    ) -> Result<Restored, LogError> {
        let began = Instant::now();
        self.vitals.health().restoring(partition, true, false);
        let records = &self.partitions.restored_records;
        let restored = self.inner.restore(partition, &mut |record| {
            records.inc();
            changelog(record)
        });
        if restored.is_ok() {
            self.partitions.restore_seconds.observe(began.elapsed().as_secs_f64());
        }
        let now_ms = self.vitals.now_ms();
        let mut health = self.vitals.health();
        health.restoring(partition, false, restored.is_ok());
        health.asked_log("restoring", in_vain(&restored), now_ms);
        if let Ok(Restored { position: Some(position), .. }) = &restored {
            health.begins(partition, *position);
        }
        health.polled(now_ms);
        restored
    }

    fn release(&mut self) -> Result<(), LogError> {
        self.inner.release()
    }

    fn standing(&self) -> Standing {
        self.inner.standing()
    }
}

/// The error of a failed request to the log. A stale partition is an answer and not a failure.
fn in_vain<T>(done: &Result<T, LogError>) -> Option<&LogError> {
    done.as_ref().err().filter(|error| !matches!(error, LogError::Stale { .. }))
}

/// A producer that updates the metrics.
pub(super) struct ObservedProducer {
    pub(super) inner: Box<dyn Producer>,
    pub(super) vitals: Arc<Vitals>,
    pub(super) commits: CommitMetrics,
}

impl Producer for ObservedProducer {
    fn commit(&mut self, transaction: &Transaction) -> Result<(), LogError> {
        let began = Instant::now();
        let committed = self.inner.commit(transaction);
        match &committed {
            Ok(()) => {
                self.commits.seconds.observe(began.elapsed().as_secs_f64());
                let positions = transaction.positions.iter();
                let positions = positions.map(|position| (position.partition, position.offset));
                self.vitals.health().finished(positions, self.vitals.now_ms());
            }
            Err(LogError::Stale { .. }) => self.commits.failed("stale"),
            Err(error) if error.is_fatal() => self.commits.failed("fatal"),
            Err(_) => self.commits.failed("aborted"),
        }
        let now_ms = self.vitals.now_ms();
        self.vitals.health().asked_log("committing", in_vain(&committed), now_ms);
        committed
    }

    fn keeps_every_change(&self) -> bool {
        self.inner.keeps_every_change()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use turnstream_log::{Assignment, Position, Record};

    use super::*;
    use crate::metrics::Metrics;

    /// A consumer and producer with scripted results.
    #[derive(Default)]
    struct ScriptedLog {
        events: VecDeque<Event>,
        /// Each restore gives this many records and ends with this result.
        restorations: VecDeque<(usize, Result<Restored, LogError>)>,
        commits: VecDeque<Result<(), LogError>>,
    }

    impl Consumer for ScriptedLog {
        fn poll(&mut self, _: Duration) -> Result<Event, LogError> {
            Ok(self.events.pop_front().unwrap_or(Event::Records(Vec::new())))
        }

        fn pause(&mut self, _: i32) -> Result<(), LogError> {
            Ok(())
        }

        fn resume(&mut self, _: i32) -> Result<(), LogError> {
            Ok(())
        }

        fn restore(&mut self, _: i32, changelog: TakeChangelog<'_>) -> Result<Restored, LogError> {
            let (records, ends) = self.restorations.pop_front().unwrap();
            for _ in 0..records {
                changelog(Record::default())?;
            }
            ends
        }

        fn release(&mut self) -> Result<(), LogError> {
            Ok(())
        }

        fn standing(&self) -> Standing {
            let (lag, ends) = ([(0, 7)].into(), [(0, 19)].into());
            Standing { is_member: Some(true), lag, ends, rejoins: 2, swept: 3 }
        }
    }

    impl Producer for ScriptedLog {
        fn commit(&mut self, _: &Transaction) -> Result<(), LogError> {
            self.commits.pop_front().unwrap()
        }

        fn keeps_every_change(&self) -> bool {
            true
        }
    }

    fn observed(
        metrics: &Metrics,
        consumer: ScriptedLog,
        producer: ScriptedLog,
    ) -> turnstream_log::Ends {
        let ends = turnstream_log::Ends::new(consumer, producer);
        metrics.observe(ends, &Arc::new(FlowControl::new(4, 8)))
    }

    fn has(metrics: &Metrics, samples: &[&str]) {
        let text = metrics.scrape().unwrap();
        for sample in samples {
            assert!(text.lines().any(|line| line == *sample), "{sample} in {text}");
        }
    }

    fn failing(metrics: &Metrics) -> Vec<&'static str> {
        let checks = metrics.vitals().ready().into_iter();
        checks.filter(|check| !check.ok).map(|check| check.name).collect()
    }

    #[test]
    fn partitions_are_followed_through_their_life() {
        let metrics = Metrics::default();
        let assigned = |partition| Assignment { partition, generation: 1 };
        let unsettled = Err(LogError::Unsettled { what: "history".to_owned() });
        let restored = || Ok(Restored { position: Some(10), ..Restored::default() });
        let told = ScriptedLog {
            events: [
                Event::Assigned(vec![assigned(0), assigned(1)]),
                Event::Revoked(vec![1]),
                Event::Lost(vec![0]),
            ]
            .into(),
            restorations: [(1, unsettled), (3, restored()), (0, restored())].into(),
            ..ScriptedLog::default()
        };
        let mut consumer = observed(&metrics, told, ScriptedLog::default()).consumer;
        assert_eq!(failing(&metrics), ["assigned"]);
        consumer.poll(Duration::ZERO).unwrap();
        assert_eq!(failing(&metrics), ["restored"]);
        has(&metrics, &["turnstream_partitions_held 2", "turnstream_partitions_restoring 2"]);
        let mut given = 0;
        let mut take = |_| {
            given += 1;
            Ok(())
        };
        assert!(consumer.restore(0, &mut take).is_err());
        assert_eq!(failing(&metrics), ["log", "restored"]);
        has(&metrics, &["turnstream_partitions_restoring 2"]);
        assert!(consumer.restore(0, &mut take).is_ok());
        has(
            &metrics,
            &["turnstream_partitions_restoring 1", "turnstream_restored_records_total 4"],
        );
        assert_eq!(failing(&metrics), ["restored"]);
        consumer.restore(1, &mut take).unwrap();
        assert_eq!(given, 4);
        assert_eq!(failing(&metrics), [""; 0]);
        consumer.pause(1).unwrap();
        has(
            &metrics,
            &[
                "turnstream_partitions_paused 1",
                "turnstream_partition_lag{partition=\"0\"} 7",
                "turnstream_partition_committed_lag{partition=\"0\"} 9",
                "turnstream_restore_duration_seconds_count 2",
                "turnstream_partition_events_total{event=\"assigned\"} 2",
                "turnstream_group_mended_total 2",
                "turnstream_partitions_swept_total 3",
            ],
        );
        consumer.resume(1).unwrap();
        has(&metrics, &["turnstream_partitions_paused 0"]);
        consumer.poll(Duration::ZERO).unwrap();
        consumer.poll(Duration::ZERO).unwrap();
        has(
            &metrics,
            &[
                "turnstream_partitions_held 0",
                "turnstream_partition_events_total{event=\"revoked\"} 1",
                "turnstream_partition_events_total{event=\"lost\"} 1",
            ],
        );
    }

    #[test]
    fn transactions_are_timed_and_their_errors_told_apart() {
        let metrics = Metrics::default();
        let stale = LogError::Stale { partitions: vec![0] };
        let aborted = LogError::Unsettled { what: "a transaction".to_owned() };
        let fatal = LogError::Refused("no".to_owned());
        assert!(fatal.is_fatal() && !aborted.is_fatal());
        let commits = [Err(stale), Err(aborted), Ok(()), Err(fatal)].into();
        let told = ScriptedLog { commits, ..ScriptedLog::default() };
        let mut producer = observed(&metrics, ScriptedLog::default(), told).producer;
        let position = Position { partition: 0, generation: 1, offset: 1, metadata: String::new() };
        let transaction = Transaction { outputs: Vec::new(), positions: vec![position] };
        let done = [(); 4].map(|()| producer.commit(&transaction).is_ok());
        assert_eq!(done, [false, false, true, false]);
        has(
            &metrics,
            &[
                "turnstream_commit_errors_total{reason=\"stale\"} 1",
                "turnstream_commit_errors_total{reason=\"aborted\"} 1",
                "turnstream_commit_errors_total{reason=\"fatal\"} 1",
                "turnstream_commit_duration_seconds_count 1",
            ],
        );
        assert!(producer.keeps_every_change());
    }
}
