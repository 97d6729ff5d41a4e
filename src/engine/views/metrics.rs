//! Metrics and liveness of `turnstream views`. They have their own registry, because views run in
//! another process than the engine.
//!
//! The number of series is bounded for any questions of users: views appear by name, and their
//! largest counts by rank. The topic of views names the concept of each rank.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use turnstream_schemas::ViewName;

use super::{Size, ViewsSummary};
use crate::metrics::health::{Check, seconds};
use crate::metrics::server::Observed;
use crate::metrics::{MetricsConfig, OfProcess, PREFIX, gauge};

/// The state of the views at one moment.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// The counts of the process so far.
    pub summary: ViewsSummary,
    /// The size of each view.
    pub sizes: BTreeMap<ViewName, Size>,
    /// The largest counts of each view, in falling order.
    pub top: BTreeMap<ViewName, Vec<u64>>,
    /// Remembered statements of the topic of knowledge.
    pub statements: u64,
    /// Remembered entries of histories and records of scopes.
    pub entries: u64,
    /// Offsets left to read of responses, of traces, of knowledge and of histories.
    pub lag: [u64; 4],
}

/// The metrics of one process. All clones share them.
#[derive(Clone, Debug)]
pub struct ViewsMetrics(Arc<ViewsMetricsInner>);

#[derive(Debug)]
struct ViewsMetricsInner {
    registry: Registry,
    seen: Arc<Mutex<Seen>>,
    started: Instant,
    live_stall_ms: u64,
}

#[derive(Debug, Default)]
struct Seen {
    counted: Counted,
    /// The time of the last poll; `None` before the first.
    polled_ms: Option<u64>,
}

impl Default for ViewsMetrics {
    fn default() -> Self {
        Self::new(&MetricsConfig::default())
    }
}

impl ViewsMetrics {
    /// Metrics of a new process: all zero.
    pub fn new(config: &MetricsConfig) -> Self {
        let mut registry = Registry::default();
        let seen = Arc::<Mutex<Seen>>::default();
        let ours = registry.sub_registry_with_prefix(PREFIX);
        ours.register_collector(Box::new(ViewsCollector(Arc::clone(&seen))));
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        ours.register("build", "The program that runs", build);
        registry.register_collector(Box::new(OfProcess));
        let live_stall_ms = config.live_stall_seconds.saturating_mul(1_000);
        Self(Arc::new(ViewsMetricsInner { registry, seen, started: Instant::now(), live_stall_ms }))
    }

    /// Notes a poll of the log.
    pub fn polled(&self) {
        self.seen().polled_ms = Some(self.now_ms());
    }

    /// Notes a poll of the log and the state after it.
    pub fn tell(&self, counted: Counted) {
        *self.seen() = Seen { counted, polled_ms: Some(self.now_ms()) };
    }

    fn now_ms(&self) -> u64 {
        self.0.started.elapsed().as_millis() as u64
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        locked(&self.0.seen)
    }
}

fn locked(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Observed for ViewsMetrics {
    fn scrape(&self) -> Result<String, fmt::Error> {
        let mut written = String::new();
        text::encode(&mut written, &self.0.registry)?;
        Ok(written)
    }

    fn live(&self) -> Check {
        let Some(polled_ms) = self.seen().polled_ms else {
            return Check::new("polling", true, "starting");
        };
        let silent_ms = self.now_ms().saturating_sub(polled_ms);
        let reason = format!("the log was polled {} ago", seconds(silent_ms));
        Check::new("polling", silent_ms <= self.0.live_stall_ms, reason)
    }

    fn ready(&self) -> Vec<Check> {
        let (caught_up, [responses, traces, knowledge, histories]) = {
            let seen = self.seen();
            (seen.counted.summary.caught_up, seen.counted.lag)
        };
        let left = format!(
            "{responses} responses, {traces} traces, {knowledge} changes to the knowledge and \
             {histories} to histories are left to count"
        );
        vec![self.live(), Check::new("caught_up", caught_up, left)]
    }
}

/// Writes the present state at each scrape.
#[derive(Debug)]
struct ViewsCollector(Arc<Mutex<Seen>>);

impl Collector for ViewsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counted = locked(&self.0).counted.clone();
        let Counted { summary, sizes, top, statements, entries, lag } = &counted;
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let of_views = |of: fn(&Size) -> u64| {
            sizes.iter().map(move |(view, size)| ([("view", view.name())], number(of(size))))
        };
        let help = "Different keys of a view, over all partitions";
        gauges(&mut encoder, ("views_keys", help), of_views(|size| size.keys))?;
        let help = "The sum of the counts of a view";
        gauges(&mut encoder, ("views_count", help), of_views(|size| size.count))?;
        let help = "The largest counts of a view, by rank from 1";
        let ranks = top.iter().flat_map(|(view, counts)| {
            let ranked = (1..).zip(counts);
            ranked.map(|(rank, count): (u32, _)| {
                ([("view", view.name().to_owned()), ("rank", rank.to_string())], number(*count))
            })
        });
        gauges(&mut encoder, ("views_top_count", help), ranks)?;
        let help = "Offsets between what was counted of a topic and its end";
        let lags = ["responses", "traces", "knowledge", "history"].into_iter().zip(lag);
        let lags = lags.map(|(topic, lag)| ([("topic", topic)], number(*lag)));
        gauges(&mut encoder, ("views_lag", help), lags)?;
        let help = "Statements of the topic of knowledge that are remembered";
        gauge(&mut encoder, ("views_statements", help), number(*statements))?;
        let help = "Entries of histories that are remembered, and records of scopes";
        gauge(&mut encoder, ("views_entries", help), number(*entries))?;
        let help = "Whether everything was counted and published that was there at the start";
        gauge(&mut encoder, ("views_caught_up", help), i64::from(summary.caught_up))?;

        let help = "Records that were counted";
        let counted = [
            ("responses", summary.responses),
            ("knowledge", summary.changes),
            ("history", summary.history_changes),
        ];
        let counted = counted.map(|(topic, count)| ([("topic", topic)], count));
        counters(&mut encoder, ("views_counted_records", help), counted)?;
        let help = "Records that were written to the topic of views";
        let published = [("row", summary.written), ("tombstone", summary.removed)];
        let published = published.map(|(kind, count)| ([("kind", kind)], count));
        counters(&mut encoder, ("views_published_records", help), published)?;
        let help = "Records that could not be read, and were skipped.";
        let name = "views_refused_records";
        let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(summary.refused).encode(metric)
    }
}

fn gauges<L: prometheus_client::encoding::EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    values: impl Iterator<Item = (L, i64)>,
) -> fmt::Result {
    let help = format!("{help}.");
    let mut metric = encoder.encode_descriptor(name, &help, None, MetricType::Gauge)?;
    for (labels, value) in values {
        ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

fn counters<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    values: [([(&str, &str); 1], u64); N],
) -> fmt::Result {
    let help = format!("{help}.");
    let mut metric = encoder.encode_descriptor(name, &help, None, MetricType::Counter)?;
    for (labels, value) in values {
        ConstCounter::new(value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_read_at_a_scrape() {
        let metrics = ViewsMetrics::default();
        assert!(metrics.live().ok && !metrics.ready().iter().all(|check| check.ok));
        let view = ViewName::FactsUsed;
        metrics.tell(Counted {
            summary: ViewsSummary {
                responses: 9,
                changes: 4,
                history_changes: 6,
                refused: 2,
                written: 7,
                removed: 1,
                caught_up: true,
            },
            sizes: [(view, Size { keys: 3, count: 12 })].into(),
            top: [(view, vec![8, 3])].into(),
            statements: 5,
            entries: 11,
            lag: [6, 3, 0, 2],
        });
        let text = metrics.scrape().unwrap();
        for sample in [
            "turnstream_views_keys{view=\"facts_used\"} 3",
            "turnstream_views_count{view=\"facts_used\"} 12",
            "turnstream_views_top_count{view=\"facts_used\",rank=\"1\"} 8",
            "turnstream_views_top_count{view=\"facts_used\",rank=\"2\"} 3",
            "turnstream_views_lag{topic=\"responses\"} 6",
            "turnstream_views_lag{topic=\"traces\"} 3",
            "turnstream_views_lag{topic=\"history\"} 2",
            "turnstream_views_statements 5",
            "turnstream_views_entries 11",
            "turnstream_views_caught_up 1",
            "turnstream_views_counted_records_total{topic=\"responses\"} 9",
            "turnstream_views_counted_records_total{topic=\"knowledge\"} 4",
            "turnstream_views_counted_records_total{topic=\"history\"} 6",
            "turnstream_views_published_records_total{kind=\"row\"} 7",
            "turnstream_views_published_records_total{kind=\"tombstone\"} 1",
            "turnstream_views_refused_records_total 2",
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample} in {text}");
        }
        let ready = metrics.ready();
        assert!(ready.iter().all(|check| check.ok), "{ready:?}");
        assert!(ready[1].reason.starts_with("6 responses, 3 traces, 0 changes"), "{ready:?}");
    }

    #[test]
    fn a_process_that_stops_polling_is_not_alive() {
        let metrics =
            ViewsMetrics::new(&MetricsConfig { live_stall_seconds: 0, ..MetricsConfig::default() });
        assert!(metrics.live().ok, "starting takes what it takes");
        metrics.polled();
        std::thread::sleep(std::time::Duration::from_millis(3));
        assert!(!metrics.live().ok);
    }
}
