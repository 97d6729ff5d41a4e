//! Gauges that are read only at a scrape: the health of the process and its partitions, from state
//! that the engine keeps anyway.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use turnstream_schemas::{Fingerprint, FingerprintPart};

use super::MetricsConfig;
use super::health::{Check, Health, InFlight, Limits, ServedPartition};
use crate::flow_control::FlowControl;

/// The state of a process, for probes and scrapes.
#[derive(Debug)]
pub struct Vitals {
    started: Instant,
    limits: Limits,
    health: Mutex<Health>,
    /// The flow control of the running engine.
    flow: Mutex<Option<Arc<FlowControl>>>,
    /// Whether anything has asked for readiness. Only then the log is asked for its consumer's
    /// state.
    watched: AtomicBool,
    /// The fingerprint of responses, once it is known.
    made_by: OnceLock<Fingerprint>,
}

impl Vitals {
    pub(super) fn new(config: &MetricsConfig) -> Self {
        let limits = Limits {
            live_stall_ms: config.live_stall_seconds.saturating_mul(1_000),
            ready_stall_ms: config.ready_stall_seconds.saturating_mul(1_000),
        };
        let (health, flow) = (Mutex::default(), Mutex::default());
        let watched = AtomicBool::new(false);
        let made_by = OnceLock::new();
        Self { started: Instant::now(), limits, health, flow, watched, made_by }
    }

    /// Notes the fingerprint of responses; the first call counts.
    pub fn made_by(&self, fingerprint: &Fingerprint) {
        self.made_by.get_or_init(|| fingerprint.clone());
    }

    /// Returns the version of the program and the fingerprint of its responses.
    fn build(&self) -> Info<Vec<(&str, &str)>> {
        let mut labels = vec![("version", env!("CARGO_PKG_VERSION"))];
        if let Some(Fingerprint { digest, parts }) = self.made_by.get() {
            labels.push(("fingerprint", digest));
            let parts = parts.iter().filter(|(part, _)| **part != FingerprintPart::Version);
            labels.extend(parts.map(|(part, digest)| (part.name(), &**digest)));
        }
        Info::new(labels)
    }

    /// Milliseconds since the start.
    pub(super) fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    pub(super) fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that an engine begins to serve under this flow control.
    pub(super) fn serving(&self, flow: Arc<FlowControl>) {
        *self.flow.lock().unwrap_or_else(PoisonError::into_inner) = Some(flow);
        self.health().serving(self.now_ms());
    }

    pub(super) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    /// Checks that the process is alive.
    pub fn live(&self) -> Check {
        self.health().live(self.limits, self.now_ms())
    }

    /// The checks of readiness. The process is ready if all pass.
    pub fn ready(&self) -> Vec<Check> {
        self.watched.store(true, Ordering::Relaxed);
        let in_flight = self.in_flight();
        self.health().ready(&in_flight, self.limits, self.now_ms())
    }

    fn in_flight(&self) -> InFlight {
        let flow = self.flow.lock().unwrap_or_else(PoisonError::into_inner).clone();
        flow.map_or_else(InFlight::default, |flow| InFlight {
            in_all: flow.in_flight(),
            per_partition: flow.in_flight_per_partition(),
        })
    }
}

/// Writes the present gauges at each scrape.
#[derive(Debug)]
pub(super) struct VitalsCollector(pub(super) Arc<Vitals>);

impl Collector for VitalsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let in_flight = self.0.in_flight();
        let partitions: Vec<_> = self.0.health().partitions().collect();
        let unrestored = self.0.health().unrestored();
        let learning = self.0.health().learning().cloned();
        let ready = self.0.ready().iter().all(|check| check.ok);

        let help = "The program that runs, and what its responses are made by";
        let build = encoder.encode_descriptor("build", help, None, MetricType::Info)?;
        self.0.build().encode(build)?;
        let help = "Inputs that were polled and have no committed outcome yet";
        gauge(&mut encoder, ("inputs_in_flight", help), in_flight.in_all as i64)?;
        let help = "Partitions that are this process's";
        gauge(&mut encoder, ("partitions_held", help), partitions.len() as i64)?;
        let paused = partitions.iter().filter(|served| served.paused).count();
        let help = "Partitions that are paused because their bound, or the process's, is reached";
        gauge(&mut encoder, ("partitions_paused", help), paused as i64)?;
        let help = "Partitions whose history is being restored, or waits for that";
        gauge(&mut encoder, ("partitions_restoring", help), unrestored as i64)?;
        let help = "Whether the process is ready, as /ready says";
        gauge(&mut encoder, ("ready", help), i64::from(ready))?;

        let help = "Inputs in flight of a partition";
        let flying = in_flight.per_partition.iter().map(|(at, inputs)| (*at, *inputs as i64));
        by_partition(&mut encoder, ("partition_in_flight", help), flying)?;
        let lags = |of: fn(&ServedPartition) -> Option<u64>| {
            let lags = partitions.iter();
            lags.filter_map(move |at| Some((at.partition, i64::try_from(of(at)?).ok()?)))
        };
        let help = "Records between what was read of a partition and its end";
        by_partition(&mut encoder, ("partition_lag", help), lags(|of| of.lag))?;
        let help = "Records between what is committed of a partition and its end";
        by_partition(&mut encoder, ("partition_committed_lag", help), lags(|of| of.committed_lag))?;

        let Some((caught_up, lag)) = learning else { return Ok(()) };
        let help = "Whether everything was learned that the topic of knowledge held at the start";
        gauge(&mut encoder, ("knowledge_caught_up", help), i64::from(caught_up))?;
        let help =
            "Offsets between what was read of a partition of the topic of knowledge and its end";
        let lag = lag.iter().filter_map(|(at, lag)| Some((*at, i64::try_from(*lag).ok()?)));
        by_partition(&mut encoder, ("knowledge_lag", help), lag)
    }
}

/// Writes what the operating system reports of the process, under the names that all exporters use.
#[derive(Debug)]
pub(crate) struct OfProcess;

impl Collector for OfProcess {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Resident memory of the process";
        match resident_bytes("VmRSS:").and_then(|bytes| i64::try_from(bytes).ok()) {
            Some(bytes) => gauge(&mut encoder, ("process_resident_memory_bytes", help), bytes),
            None => Ok(()),
        }
    }
}

/// A memory figure of this process in bytes, if the system gives it (Linux): `VmRSS:` is the
/// resident memory and `VmHWM:` its peak.
pub fn resident_bytes(line: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let found = status.lines().find_map(|of| of.strip_prefix(line))?;
    let kilobytes: u64 = found.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1_024)
}

pub(crate) fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    value: i64,
) -> fmt::Result {
    let mut metric =
        encoder.encode_descriptor(name, &format!("{help}."), None, MetricType::Gauge)?;
    metric.encode_gauge(&value)
}

fn by_partition(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    values: impl Iterator<Item = (i32, i64)>,
) -> fmt::Result {
    let mut metric =
        encoder.encode_descriptor(name, &format!("{help}."), None, MetricType::Gauge)?;
    for (partition, value) in values {
        let labels = [("partition", partition)];
        ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}
