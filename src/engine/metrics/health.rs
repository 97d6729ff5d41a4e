//! Decides whether a process is alive and whether it is ready, from observations of it. It reads no
//! clock: the caller passes the time.
//!
//! A process is alive while its consumer thread polls; only a restart repairs one that does not.
//! Every other problem, a slow model above all, makes the process not *ready*: a restart would lose
//! the work in flight and repair nothing.

use std::collections::BTreeMap;

use serde::Serialize;

use turnstream_log::{LogError, Standing};

/// Most partitions that a reason names.
const NAMED_PARTITIONS: usize = 8;

/// The observations of a process so far.
#[derive(Debug, Default)]
pub struct Health {
    phase: Phase,
    /// Time of the last poll of the log.
    polled_ms: u64,
    /// Time of the last outcome, or of the first input after nothing was in flight.
    moved_ms: u64,
    standing: Standing,
    partitions: BTreeMap<i32, PartitionHealth>,
    /// Progress of the knowledge feed, if it runs: whether it has read everything that was there at
    /// the start, and the offsets left by partition.
    learning: Option<(bool, BTreeMap<i32, u64>)>,
    /// Failing requests to the log: since when, and the last error.
    in_vain: BTreeMap<&'static str, (u64, String)>,
}

/// The phase of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Opens its knowledge and connects to the log.
    #[default]
    Starting,
    /// Polls.
    Serving,
    /// Polls no more and drains.
    Stopping,
}

/// The observations of a partition that this process holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PartitionHealth {
    restored: bool,
    restoring: bool,
    /// Since when the partition has been paused.
    paused_ms: Option<u64>,
    /// Time of the last commit of one of its outcomes.
    finished_ms: u64,
    /// The committed position. Before the first commit, where reading began.
    committed: Option<i64>,
}

/// How this process serves a partition that it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedPartition {
    /// The partition.
    pub partition: i32,
    /// Whether it is paused.
    pub paused: bool,
    /// Records between the last one read and the partition's end, if known.
    pub lag: Option<u64>,
    /// Records between the committed position and the partition's end, if known.
    pub committed_lag: Option<u64>,
}

/// Inputs in flight, as flow control counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// In the whole process.
    pub in_all: usize,
    /// By partition.
    pub per_partition: BTreeMap<i32, usize>,
}

/// After how long something counts as stalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Milliseconds without a poll after which the process is not alive.
    pub live_stall_ms: u64,
    /// Milliseconds without an outcome after which the process is not ready.
    pub ready_stall_ms: u64,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The name of the check.
    pub name: &'static str,
    /// Whether the check passes.
    pub ok: bool,
    /// The reason, for people.
    pub reason: String,
}

impl Check {
    pub(crate) fn new(name: &'static str, ok: bool, reason: impl Into<String>) -> Self {
        Self { name, ok, reason: reason.into() }
    }
}

impl Health {
    /// Notes that polling begins, without partitions.
    pub fn serving(&mut self, now_ms: u64) {
        let phase = Phase::Serving;
        *self = Self { phase, polled_ms: now_ms, moved_ms: now_ms, ..Self::default() };
    }

    /// Notes that polling has ended.
    pub fn stopping(&mut self) {
        self.phase = Phase::Stopping;
    }

    /// Notes a poll of the log.
    pub fn polled(&mut self, now_ms: u64) {
        self.polled_ms = now_ms;
    }

    /// Notes the first inputs after nothing was in flight.
    pub fn busy(&mut self, now_ms: u64) {
        self.moved_ms = now_ms;
    }

    /// Notes committed outcomes of these partitions, with the positions.
    pub fn finished(&mut self, positions: impl IntoIterator<Item = (i32, i64)>, now_ms: u64) {
        self.moved_ms = now_ms;
        for (partition, position) in positions {
            if let Some(partition) = self.partitions.get_mut(&partition) {
                partition.finished_ms = now_ms;
                partition.committed = Some(position);
            }
        }
    }

    /// Notes where reading of the partition begins: everything before it is finished.
    pub fn begins(&mut self, partition: i32, position: i64) {
        if let Some(partition) = self.partitions.get_mut(&partition) {
            partition.committed.get_or_insert(position);
        }
    }

    /// Notes an assigned partition, which is not restored yet.
    pub fn assigned(&mut self, partition: i32) {
        self.partitions.insert(partition, PartitionHealth::default());
    }

    /// Notes the begin or the end of a restore.
    pub fn restoring(&mut self, partition: i32, restoring: bool, restored: bool) {
        if let Some(partition) = self.partitions.get_mut(&partition) {
            (partition.restoring, partition.restored) = (restoring, restored);
        }
    }

    /// Notes that this process no longer holds the partition.
    pub fn gone(&mut self, partition: i32) {
        self.partitions.remove(&partition);
    }

    /// Notes that the partition is paused or resumed.
    pub fn paused(&mut self, partition: i32, paused: bool, now_ms: u64) {
        if let Some(partition) = self.partitions.get_mut(&partition) {
            partition.paused_ms = paused.then(|| partition.paused_ms.unwrap_or(now_ms));
        }
    }

    /// Notes the consumer's state.
    pub fn stands(&mut self, standing: Standing) {
        self.standing = standing;
    }

    /// Notes the result of a request to the log.
    pub fn asked_log(&mut self, doing: &'static str, failure: Option<&LogError>, now_ms: u64) {
        let Some(failure) = failure else { return drop(self.in_vain.remove(doing)) };
        let (_, said) = self.in_vain.entry(doing).or_insert_with(|| (now_ms, String::new()));
        *said = failure.to_string();
    }

    /// Notes the progress of the knowledge feed.
    pub fn learns(&mut self, caught_up: bool, lag: BTreeMap<i32, u64>) {
        self.learning = Some((caught_up, lag));
    }

    /// The progress of the knowledge feed, if it runs.
    pub fn learning(&self) -> Option<&(bool, BTreeMap<i32, u64>)> {
        self.learning.as_ref()
    }

    /// The partitions that this process holds.
    pub fn partitions(&self) -> impl Iterator<Item = ServedPartition> {
        self.partitions.iter().map(|(at, partition)| {
            let lag = self.standing.lag.get(at).copied();
            let between = self.standing.ends.get(at).zip(partition.committed);
            let behind = between.map(|(end, committed)| end.saturating_sub(committed));
            // Committed records were read, so the committed lag is at least the lag.
            let committed_lag = behind.map(|it| u64::try_from(it).unwrap_or_default()).max(lag);
            ServedPartition {
                partition: *at,
                paused: partition.paused_ms.is_some(),
                lag,
                committed_lag,
            }
        })
    }

    /// The number of partitions that are being restored or wait for it.
    pub fn unrestored(&self) -> usize {
        self.partitions.values().filter(|partition| !partition.restored).count()
    }

    /// Whether the process is alive. It counts as alive during a restore: a restore without
    /// progress ends itself with an error.
    pub fn live(&self, limits: Limits, now_ms: u64) -> Check {
        let silent_ms = now_ms.saturating_sub(self.polled_ms);
        let restoring = self.partitions.values().any(|partition| partition.restoring);
        let (ok, reason) = match self.phase {
            Phase::Starting => (true, "starting".to_owned()),
            Phase::Stopping => (true, "stopping".to_owned()),
            Phase::Serving if restoring => (true, "restoring a partition".to_owned()),
            Phase::Serving => {
                let ok = silent_ms <= limits.live_stall_ms;
                (ok, format!("the log was polled {} ago", seconds(silent_ms)))
            }
        };
        Check::new("polling", ok, reason)
    }

    /// The checks of readiness. The process is ready if all pass.
    pub fn ready(&self, in_flight: &InFlight, limits: Limits, now_ms: u64) -> Vec<Check> {
        let serving = match self.phase {
            Phase::Starting => Check::new("serving", false, "starting"),
            Phase::Serving => Check::new("serving", true, "serving"),
            Phase::Stopping => Check::new("serving", false, "stopping"),
        };
        vec![
            serving,
            self.live(limits, now_ms),
            self.has_learned(),
            self.log_answers(now_ms),
            self.is_assigned(),
            self.is_restored(),
            self.moves(in_flight.in_all, limits, now_ms),
            self.partitions_move(in_flight, limits, now_ms),
        ]
    }

    fn has_learned(&self) -> Check {
        let left = |lag: &BTreeMap<i32, u64>| lag.values().sum::<u64>();
        let (ok, reason) = match &self.learning {
            None => (true, "no topic of knowledge is followed".to_owned()),
            Some((true, lag)) => (true, format!("caught up; {} records behind", left(lag))),
            Some((false, lag)) => (false, format!("{} records left to read", left(lag))),
        };
        Check::new("knowledge", ok, reason)
    }

    fn log_answers(&self, now_ms: u64) -> Check {
        let in_vain = self.in_vain.iter().map(|(doing, (since_ms, said))| {
            format!("{doing} has failed for {}: {said}", seconds(now_ms.saturating_sub(*since_ms)))
        });
        let reasons: Vec<String> = in_vain.collect();
        match reasons.is_empty() {
            true => Check::new("log", true, "no request to it is failing"),
            false => Check::new("log", false, reasons.join("; ")),
        }
    }

    fn is_assigned(&self) -> Check {
        let (ok, reason) = match (self.partitions.len(), self.standing.is_member) {
            (0, Some(true)) => (true, "a member of the group, but without partitions"),
            (0, Some(false)) => (false, "not a member of the group, or it is rebalancing"),
            (0, None) => (false, "no partition has been assigned yet"),
            (held, _) => return Check::new("assigned", true, format!("{held} partitions")),
        };
        Check::new("assigned", ok, reason)
    }

    fn is_restored(&self) -> Check {
        let waiting = self.partitions.iter().filter(|(_, partition)| !partition.restored);
        let waiting = named(waiting.map(|(at, _)| *at));
        match waiting {
            None => Check::new("restored", true, "nothing is left to restore"),
            Some(which) => Check::new("restored", false, format!("still to restore: {which}")),
        }
    }

    /// Checks that something finishes while inputs are in flight.
    fn moves(&self, in_flight: usize, limits: Limits, now_ms: u64) -> Check {
        let still_ms = now_ms.saturating_sub(self.moved_ms);
        if in_flight == 0 {
            return Check::new("progress", true, "nothing is in flight");
        }
        let ok = still_ms < limits.ready_stall_ms;
        let reason = format!("{in_flight} in flight; nothing finished for {}", seconds(still_ms));
        Check::new("progress", ok, reason)
    }

    /// Checks that paused partitions still finish inputs. A partition that waits only because the
    /// whole process is full has nothing in flight and is not stalled.
    fn partitions_move(&self, in_flight: &InFlight, limits: Limits, now_ms: u64) -> Check {
        let stalled = self.partitions.iter().filter(|(at, partition)| {
            let waits = in_flight.per_partition.get(at).is_some_and(|inputs| *inputs > 0);
            let since = partition.paused_ms.map(|paused| paused.max(partition.finished_ms));
            let still_ms = since.map(|since| now_ms.saturating_sub(since));
            waits && still_ms.is_some_and(|still_ms| still_ms >= limits.ready_stall_ms)
        });
        match named(stalled.map(|(at, _)| *at)) {
            None => Check::new("partitions", true, "no partition is stalled at its bound"),
            Some(which) => {
                let limit = seconds(limits.ready_stall_ms);
                let reason = format!("paused, and nothing finished for {limit} or more: {which}");
                Check::new("partitions", false, reason)
            }
        }
    }
}

/// Names partitions: `partition 3`, or `partitions 1, 2, 4 and 5 more`. `None` without any.
fn named(partitions: impl Iterator<Item = i32>) -> Option<String> {
    let all: Vec<String> = partitions.map(|partition| partition.to_string()).collect();
    let more = all.len().saturating_sub(NAMED_PARTITIONS);
    let some = all[..all.len() - more].join(", ");
    match (all.len(), more) {
        (0, _) => None,
        (1, _) => Some(format!("partition {some}")),
        (_, 0) => Some(format!("partitions {some}")),
        _ => Some(format!("partitions {some} and {more} more")),
    }
}

pub(crate) fn seconds(ms: u64) -> String {
    format!("{:.1} s", ms as f64 / 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { live_stall_ms: 60_000, ready_stall_ms: 30_000 };

    /// A process that has served partitions 0 and 1 since `now_ms`.
    fn serving(now_ms: u64) -> Health {
        let mut health = Health::default();
        health.serving(now_ms);
        for partition in [0, 1] {
            health.assigned(partition);
            health.restoring(partition, false, true);
        }
        health
    }

    fn in_flight(inputs: [usize; 2]) -> InFlight {
        let per_partition = (0..).zip(inputs).collect();
        InFlight { in_all: inputs.iter().sum(), per_partition }
    }

    /// The names of the failing checks. The process polls first, so that a missing poll is not
    /// among them.
    fn unready(health: &mut Health, inputs: [usize; 2], now_ms: u64) -> Vec<&'static str> {
        health.polled(now_ms);
        let checks = health.ready(&in_flight(inputs), LIMITS, now_ms);
        assert_eq!(checks.len(), 8);
        checks.into_iter().filter(|check| !check.ok).map(|check| check.name).collect()
    }

    #[test]
    fn a_process_becomes_ready_and_stops_being_so() {
        let mut health = Health::default();
        assert!(health.live(LIMITS, 900_000).ok, "starting takes what it takes");
        assert_eq!(unready(&mut health, [0, 0], 0), ["serving", "assigned"]);
        health.serving(1_000);
        assert_eq!(unready(&mut health, [0, 0], 1_000), ["assigned"]);
        health.learns(false, [(0, 3), (1, 2)].into());
        assert_eq!(unready(&mut health, [0, 0], 1_000), ["knowledge", "assigned"]);
        let said = health.has_learned().reason;
        assert!(said.starts_with("5 records"), "{said}");
        health.assigned(0);
        assert_eq!(unready(&mut health, [0, 0], 1_000), ["knowledge", "restored"]);
        health.learns(true, [(0, 0), (1, 9)].into());
        assert_eq!(unready(&mut health, [0, 0], 1_000), ["restored"], "it goes on learning");
        health.restoring(0, true, false);
        assert_eq!(unready(&mut health, [0, 0], 1_000), ["restored"]);
        health.restoring(0, false, true);
        assert_eq!(unready(&mut health, [0, 0], 1_000), [""; 0]);
        health.gone(0);
        health.stands(Standing { is_member: Some(false), ..Standing::default() });
        assert_eq!(unready(&mut health, [0, 0], 1_000), ["assigned"]);
        health.stands(Standing { is_member: Some(true), ..Standing::default() });
        assert_eq!(unready(&mut health, [0, 0], 1_000), [""; 0], "it has no partition to serve");
        health.stopping();
        assert_eq!(unready(&mut health, [0, 0], 1_000), ["serving"]);
        assert!(health.live(LIMITS, 900_000).ok, "draining takes what it takes");
    }

    #[test]
    fn an_unresponsive_log_is_named_and_does_not_cause_a_restart() {
        let mut health = serving(0);
        let open = |what: &str| LogError::Unsettled { what: what.to_owned() };
        health.asked_log("committing", Some(&open("first")), 1_000);
        health.asked_log("committing", Some(&open("responses")), 3_000);
        assert_eq!(unready(&mut health, [0, 0], 5_000), ["log"]);
        let said = health.log_answers(5_000).reason;
        assert!(said.starts_with("committing has failed for 4.0 s: responses"), "{said}");
        assert!(health.live(LIMITS, 5_000).ok);
        health.asked_log("committing", None, 6_000);
        assert_eq!(unready(&mut health, [0, 0], 6_000), [""; 0]);
    }

    #[test]
    fn only_polling_and_restoring_count_as_alive() {
        let mut health = serving(0);
        health.polled(5_000);
        assert!(health.live(LIMITS, 65_000).ok);
        assert!(!health.live(LIMITS, 65_001).ok);
        health.restoring(1, true, false);
        assert!(health.live(LIMITS, 900_000).ok);
        health.restoring(1, false, true);
        assert!(!health.live(LIMITS, 900_000).ok);
        health.polled(900_000);
        health.busy(0);
        assert_eq!(unready(&mut health, [9, 0], 900_000), ["progress"]);
        assert!(health.live(LIMITS, 900_000).ok, "a stage that stalls is no reason to restart");
    }

    #[test]
    fn a_stall_is_something_in_flight_and_nothing_finished() {
        let mut health = serving(0);
        assert_eq!(unready(&mut health, [0, 0], 500_000), [""; 0], "idle");
        health.busy(500_000);
        assert_eq!(unready(&mut health, [1, 0], 529_999), [""; 0]);
        assert_eq!(unready(&mut health, [1, 0], 530_000), ["progress"]);
        health.finished([(0, 1)], 530_001);
        assert_eq!(unready(&mut health, [1, 0], 560_000), [""; 0]);
    }

    #[test]
    fn what_is_read_and_not_committed_counts_as_behind() {
        let mut health = serving(0);
        let lags = |health: &Health| {
            let served = health.partitions();
            served.map(|of| (of.lag, of.committed_lag)).collect::<Vec<_>>()
        };
        assert_eq!(lags(&health), [(None, None), (None, None)]);
        health.begins(0, 100);
        let stand = |lag, end| Standing {
            lag: [(0, lag)].into(),
            ends: [(0, end)].into(),
            ..Standing::default()
        };
        health.stands(stand(0, 120));
        assert_eq!(lags(&health), [(Some(0), Some(20)), (None, None)]);
        health.finished([(0, 115)], 1);
        health.begins(0, 120);
        assert_eq!(lags(&health)[0], (Some(0), Some(5)));
        health.stands(stand(3, 110));
        assert_eq!(lags(&health)[0], (Some(3), Some(3)), "the end is some seconds old");
        health.assigned(0);
        health.stands(stand(3, 110));
        assert_eq!(lags(&health)[0], (Some(3), Some(3)), "it begins nowhere yet");
    }

    #[test]
    fn a_partition_stalls_at_its_bound_while_others_go_on() {
        let mut health = serving(0);
        health.busy(0);
        health.paused(0, true, 10_000);
        health.paused(1, true, 10_000);
        for now_ms in [20_000, 39_999, 45_000, 60_000] {
            health.paused(0, true, now_ms);
            health.finished([(1, 1)], now_ms);
            let stalled: &[&str] = if now_ms < 40_000 { &[] } else { &["partitions"] };
            assert_eq!(unready(&mut health, [400, 400], now_ms), stalled, "{now_ms}");
        }
        let checks = health.ready(&in_flight([400, 400]), LIMITS, 60_000);
        assert!(checks[7].reason.ends_with("partition 0"), "{}", checks[7].reason);
        assert_eq!(unready(&mut health, [0, 400], 60_000), [""; 0], "it waits for the other");
        health.finished([(0, 1)], 60_000);
        assert_eq!(unready(&mut health, [399, 400], 60_000), [""; 0]);
        health.paused(0, false, 60_000);
        health.finished([(1, 1)], 100_000);
        assert_eq!(unready(&mut health, [399, 400], 100_000), [""; 0], "it was resumed");
    }

    #[test]
    fn reasons_name_a_few_partitions() {
        assert_eq!(named(0..0), None);
        assert_eq!(named(3..4).unwrap(), "partition 3");
        assert_eq!(named(0..3).unwrap(), "partitions 0, 1, 2");
        assert_eq!(named(0..20).unwrap(), "partitions 0, 1, 2, 3, 4, 5, 6, 7 and 12 more");
    }
}
