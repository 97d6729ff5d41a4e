//! Metrics of the live graph: records of its topic, and what the workers hold beside the snapshot.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use turnstream_knowledge::LiveCounts;

use super::vitals::gauge;

/// The live graph. Cheap to clone: clones share the counters.
#[derive(Clone, Debug, Default)]
pub struct KnowledgeMetrics {
    /// Records of the topic that are not changes.
    pub refused: Counter,
    changes: Family<[(&'static str, &'static str); 1], Counter>,
    counts: Arc<Mutex<Arc<LiveCounts>>>,
}

impl KnowledgeMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let it = Self::default();
        for change in ["upsert", "retraction"] {
            it.changes.get_or_create_owned(&[("change", change)]);
        }
        let help =
            "Changes to the knowledge that were read from its topic and handed to the workers";
        registry.register("knowledge_changes", help, it.changes.clone());
        let help = "Records of the topic of knowledge that are not changes, and were skipped";
        registry.register("knowledge_refused_records", help, it.refused.clone());
        registry.register_collector(Box::new(LiveGraphCollector(it.clone())));
        it
    }

    /// Counts changes that were passed to the workers.
    pub fn learned(&self, upserts: u64, retractions: u64) {
        for (change, count) in [("upsert", upserts), ("retraction", retractions)] {
            self.changes.get_or_create_owned(&[("change", change)]).inc_by(count);
        }
    }

    /// Sets the counts that scrapes read from now on.
    pub fn counted_by(&self, counts: &Arc<LiveCounts>) {
        *self.counts() = Arc::clone(counts);
    }

    fn counts(&self) -> MutexGuard<'_, Arc<LiveCounts>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the present counts at each scrape.
#[derive(Debug)]
struct LiveGraphCollector(KnowledgeMetrics);

impl Collector for LiveGraphCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = Arc::clone(&self.0.counts());
        let number =
            |count: &AtomicU64| i64::try_from(count.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
        let help = "Statements that the topic added to the snapshot or retracted from it.";
        let name = "knowledge_live_statements";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (kind, count) in [("inserted", &counts.inserted), ("retracted", &counts.retracted)] {
            let labels = [("kind", kind)];
            ConstGauge::new(number(count)).encode(metric.encode_family(&labels)?)?;
        }
        let help = "Keys of the topic whose statement differs from the snapshot";
        gauge(&mut encoder, ("knowledge_live_changes", help), number(&counts.differing))?;
        let help = "Concepts that only the topic names";
        gauge(&mut encoder, ("knowledge_live_concepts", help), number(&counts.concepts))?;
        let help = "Phrasings that the topic changed";
        gauge(&mut encoder, ("knowledge_live_phrasings", help), number(&counts.phrasings))?;
        let help = "States of the knowledge that a worker holds because turns read them";
        gauge(&mut encoder, ("knowledge_moments", help), number(&counts.versions))?;
        let help = "Updates in the arrangements of a worker, which compaction brings down";
        gauge(&mut encoder, ("knowledge_updates", help), number(&counts.updates))?;
        let help = "Changes left out because there are too many sources or relations";
        gauge(&mut encoder, ("knowledge_changes_without_room", help), number(&counts.refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn what_is_held_is_read_at_a_scrape() {
        let metrics = Metrics::default();
        let knowledge = metrics.knowledge();
        let counts = Arc::new(LiveCounts::default());
        knowledge.counted_by(&counts);
        for (count, value) in [
            (&counts.inserted, 5),
            (&counts.retracted, 2),
            (&counts.differing, 6),
            (&counts.concepts, 1),
            (&counts.phrasings, 8),
            (&counts.versions, 3),
            (&counts.updates, 40),
            (&counts.refused, 4),
        ] {
            count.store(value, Ordering::Relaxed);
        }
        knowledge.learned(7, 2);
        knowledge.refused.inc();
        let text = metrics.scrape().unwrap();
        for sample in [
            "turnstream_knowledge_live_statements{kind=\"inserted\"} 5",
            "turnstream_knowledge_live_statements{kind=\"retracted\"} 2",
            "turnstream_knowledge_live_concepts 1",
            "turnstream_knowledge_live_changes 6",
            "turnstream_knowledge_live_phrasings 8",
            "turnstream_knowledge_moments 3",
            "turnstream_knowledge_updates 40",
            "turnstream_knowledge_changes_without_room 4",
            "turnstream_knowledge_changes_total{change=\"upsert\"} 7",
            "turnstream_knowledge_changes_total{change=\"retraction\"} 2",
            "turnstream_knowledge_refused_records_total 1",
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample} in {text}");
        }
        assert!(!text.contains("knowledge_lag"), "no topic is followed");
    }
}
