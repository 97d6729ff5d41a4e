//! What is counted about live knowledge: records of its topic, and what the workers hold beside
//! the snapshot.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::vitals::gauge;

/// What a worker holds beside the snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveKnowledge {
    /// Statements that are not in the snapshot, or stand otherwise there.
    pub inserted: u64,
    /// Statements of the snapshot that do not stand any more, or stand otherwise.
    pub retracted: u64,
    /// Concepts that are not in the snapshot.
    pub concepts: u64,
    /// Moments that are held because turns look things up in them.
    pub moments: u64,
}

/// Live knowledge. Cheap to clone; clones count the same.
#[derive(Clone, Debug, Default)]
pub struct KnowledgeMetrics {
    /// Records of the topic that are no change.
    pub refused: Counter,
    changes: Family<[(&'static str, &'static str); 1], Counter>,
    workers: Arc<Mutex<BTreeMap<usize, LiveKnowledge>>>,
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
        let help = "Records of the topic of knowledge that are no change, and were passed over";
        registry.register("knowledge_refused_records", help, it.refused.clone());
        registry.register_collector(Box::new(AtScrape(it.clone())));
        it
    }

    /// Counts changes that were handed to the workers.
    pub fn learned(&self, upserts: u64, retractions: u64) {
        for (change, count) in [("upsert", upserts), ("retraction", retractions)] {
            self.changes.get_or_create_owned(&[("change", change)]).inc_by(count);
        }
    }

    fn workers(&self) -> MutexGuard<'_, BTreeMap<usize, LiveKnowledge>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker tells what it holds now.
    pub fn holds(&self, worker: usize, live: LiveKnowledge) {
        self.workers().insert(worker, live);
    }

    /// What the process holds: every worker has the same statements and concepts, of which the
    /// one that is ahead tells, and moments of its own.
    pub fn live(&self) -> LiveKnowledge {
        self.workers().values().fold(LiveKnowledge::default(), |all, of| LiveKnowledge {
            inserted: all.inserted.max(of.inserted),
            retracted: all.retracted.max(of.retracted),
            concepts: all.concepts.max(of.concepts),
            moments: all.moments + of.moments,
        })
    }
}

/// Writes what is held at this moment.
#[derive(Debug)]
struct AtScrape(KnowledgeMetrics);

impl Collector for AtScrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let LiveKnowledge { inserted, retracted, concepts, moments } = self.0.live();
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let help = "Statements that were put, or do not stand any more, beside the snapshot.";
        let name = "knowledge_live_statements";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (kind, count) in [("inserted", inserted), ("retracted", retracted)] {
            let labels = [("kind", kind)];
            ConstGauge::new(number(count)).encode(metric.encode_family(&labels)?)?;
        }
        let help = "Concepts that are not in the snapshot";
        gauge(&mut encoder, ("knowledge_live_concepts", help), number(concepts))?;
        let help =
            "States of the knowledge that are held, over all workers, because turns use them";
        gauge(&mut encoder, ("knowledge_moments", help), number(moments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn workers_are_summed_up_once() {
        let metrics = Metrics::default();
        let knowledge = metrics.knowledge();
        let of = |inserted, moments| LiveKnowledge { inserted, retracted: 2, concepts: 1, moments };
        knowledge.holds(0, of(5, 3));
        knowledge.holds(1, of(4, 2));
        knowledge.learned(7, 2);
        knowledge.refused.inc();
        assert_eq!(knowledge.live(), of(5, 5), "one worker is behind");
        let text = metrics.scrape().unwrap();
        for sample in [
            "turnstream_knowledge_live_statements{kind=\"inserted\"} 5",
            "turnstream_knowledge_live_statements{kind=\"retracted\"} 2",
            "turnstream_knowledge_live_concepts 1",
            "turnstream_knowledge_moments 5",
            "turnstream_knowledge_changes_total{change=\"upsert\"} 7",
            "turnstream_knowledge_changes_total{change=\"retraction\"} 2",
            "turnstream_knowledge_refused_records_total 1",
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample} in {text}");
        }
        assert!(!text.contains("knowledge_lag"), "no topic is followed");
    }
}
