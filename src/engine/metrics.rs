//! Metrics and health of one process: counters, liveness and readiness.
//!
//! Metrics observe the flow and change nothing in it. The stages report to a [`StageObserver`], the
//! committer counts its outcomes, and [`Metrics::observe`] wraps both ends of the log. Everything
//! else is read at the scrape. Counting is an atomic addition. `docs/metrics.md` lists every metric
//! with what to alert on; [`server`] serves them.
//!
//! Nothing here is global: each engine, replay and test has its own [`Metrics`].

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_log::Ends;
use turnstream_operators::stage::{Observer, StageObserver};

use self::health::Check;
use self::server::{Observed, Server, ServerError};
use crate::flow_control::FlowControl;

mod connections;
pub mod health;
mod knowledge;
mod observed;
mod outcomes;
mod seldom;
pub mod server;
mod stages;
mod vitals;

pub use knowledge::KnowledgeMetrics;
pub use outcomes::OutcomeMetrics;
pub use vitals::{Vitals, resident_bytes};

use observed::{ObservedConsumer, ObservedProducer, PartitionMetrics};
use outcomes::CommitMetrics;
use stages::StageMetrics;
use vitals::VitalsCollector;
pub(crate) use vitals::{OfProcess, gauge};

/// The prefix of the names of our metrics.
pub(crate) const PREFIX: &str = "turnstream";

/// `[metrics]`: where metrics and health are served, and after which time something counts as
/// stalled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsConfig {
    /// Where `turnstream run` serves `/metrics`, `/live` and `/ready` over HTTP: an IP address and
    /// a port, as `"127.0.0.1:9464"`; `"0.0.0.0:9464"` serves all networks. If it is not set, they
    /// are not served. There is no password: restrict access by the network.
    pub address: Option<String>,
    /// Seconds without a poll of the log after which `/live` fails, 10 or more. A slow flow does
    /// not delay polling, so this detects an engine that hangs.
    #[schemars(range(min = 10))]
    pub live_stall_seconds: u64,
    /// Seconds without an outcome after which `/ready` fails, 1 or more: of the process while
    /// something is in flight, or of a partition that is paused at its bound.
    #[schemars(range(min = 1))]
    pub ready_stall_seconds: u64,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self { address: None, live_stall_seconds: 60, ready_stall_seconds: 30 }
    }
}

impl MetricsConfig {
    /// The configured address, if it is set and valid.
    pub fn socket_address(&self) -> Option<SocketAddr> {
        self.address.as_deref()?.parse().ok()
    }

    /// Serves these metrics until the returned server is dropped, if an address is set.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn serve(&self, metrics: impl Observed) -> Result<Option<Server>, ServerError> {
        let Some(address) = self.socket_address() else { return Ok(None) };
        let server = Server::start(address, metrics)?;
        tracing::info!(address = %server.address(), "serving metrics");
        Ok(Some(server))
    }
}

/// The metrics of one engine. Clones are handles on the same metrics.
#[derive(Clone)]
pub struct Metrics(Arc<MetricsInner>);

struct MetricsInner {
    registry: Registry,
    outcomes: OutcomeMetrics,
    knowledge: KnowledgeMetrics,
    commits: CommitMetrics,
    partitions: PartitionMetrics,
    stages: Arc<StageMetrics>,
    models: turnstream_models::metrics::Metrics,
    vitals: Arc<Vitals>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(&MetricsConfig::default())
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Metrics of a new engine: all zero.
    pub fn new(config: &MetricsConfig) -> Self {
        let mut registry = Registry::default();
        let ours = registry.sub_registry_with_prefix(PREFIX);
        let outcomes = OutcomeMetrics::register(ours);
        let knowledge = KnowledgeMetrics::register(ours);
        let commits = CommitMetrics::register(ours);
        let partitions = PartitionMetrics::register(ours);
        let stages = Arc::new(StageMetrics::register(ours));
        let models = turnstream_models::metrics::Metrics::register(ours);
        let vitals = Arc::new(Vitals::new(config));
        ours.register_collector(Box::new(VitalsCollector(Arc::clone(&vitals))));
        registry.register_collector(Box::new(OfProcess));
        Self(Arc::new(MetricsInner {
            registry,
            outcomes,
            knowledge,
            commits,
            partitions,
            stages,
            models,
            vitals,
        }))
    }

    /// The committer's metrics.
    pub fn outcomes(&self) -> &OutcomeMetrics {
        &self.0.outcomes
    }

    /// The metrics of the live graph.
    pub fn knowledge(&self) -> &KnowledgeMetrics {
        &self.0.knowledge
    }

    /// Notes the progress of the knowledge feed: whether it has read everything that was there at
    /// the start, and how many offsets each partition has left.
    pub fn learns(&self, caught_up: bool, lag: BTreeMap<i32, u64>) {
        self.0.vitals.health().learns(caught_up, lag);
    }

    /// The observer for the stages.
    pub fn stage_observer(&self) -> Observer {
        Observer::new(Arc::clone(&self.0.stages) as Arc<dyn StageObserver>)
    }

    /// The metrics of models.
    pub fn models(&self) -> &turnstream_models::metrics::Metrics {
        &self.0.models
    }

    /// The process's liveness and readiness.
    pub fn vitals(&self) -> &Vitals {
        &self.0.vitals
    }

    /// Wraps the ends of a log that an engine is about to serve.
    pub fn observe(&self, ends: Ends, flow: &Arc<FlowControl>) -> Ends {
        self.0.vitals.serving(Arc::clone(flow));
        let consumer = ObservedConsumer {
            inner: ends.consumer,
            vitals: Arc::clone(&self.0.vitals),
            partitions: self.0.partitions.clone(),
            flow: Arc::clone(flow),
            ask_ms: 0,
            rejoins: 0,
            swept: 0,
        };
        let producer = ObservedProducer {
            inner: ends.producer,
            vitals: Arc::clone(&self.0.vitals),
            commits: self.0.commits.clone(),
        };
        Ends { consumer: Box::new(consumer), producer: Box::new(producer), ..ends }
    }

    /// Notes that the engine polls no more and drains.
    pub fn stopping(&self) {
        self.0.vitals.health().stopping();
    }

    /// All metrics as they are now, in the text format of OpenMetrics 1.0.
    ///
    /// # Errors
    /// A metric cannot be written: a bug.
    pub fn scrape(&self) -> Result<String, fmt::Error> {
        let mut written = String::new();
        text::encode(&mut written, &self.0.registry)?;
        Ok(written)
    }
}

impl Observed for Metrics {
    fn scrape(&self) -> Result<String, fmt::Error> {
        self.scrape()
    }

    fn live(&self) -> Check {
        self.vitals().live()
    }

    fn ready(&self) -> Vec<Check> {
        self.vitals().ready()
    }
}
