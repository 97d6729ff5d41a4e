//! Metrics of models: of those in this process, by task; of those on servers and of language models
//! in this process, by name. The engine registers them beside its own.

use prometheus_client::registry::Registry;

mod decoder;
mod remote;
mod tasks;

pub use decoder::DecoderMetrics;
pub use remote::{RemoteFault, RemoteMetrics};
pub use tasks::{ModelMetrics, Task};

use decoder::DecodersMetrics;
use remote::AllRemoteMetrics;
use tasks::ModelsMetrics;

/// The metrics of all models of one process.
#[derive(Clone, Debug)]
pub struct Metrics {
    tasks: ModelsMetrics,
    remote: AllRemoteMetrics,
    decoders: DecodersMetrics,
}

impl Metrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let tasks = ModelsMetrics::register(registry);
        let remote = AllRemoteMetrics::register(registry);
        let decoders = DecodersMetrics::register(registry);
        Self { tasks, remote, decoders }
    }

    /// Metrics without a registry.
    pub fn unread() -> Self {
        Self::register(&mut Registry::default())
    }

    /// The runtime's metrics for the model of a task.
    pub fn model(&self, task: Task) -> &ModelMetrics {
        self.tasks.of(task)
    }

    /// The metrics of a model on a server, by its name in the configuration.
    pub fn remote(&self, model: &str) -> RemoteMetrics {
        self.remote.of(model)
    }

    /// The metrics of a language model in this process, by name. A model that never asks for its
    /// metrics has no samples.
    pub fn decoder(&self, model: &str) -> DecoderMetrics {
        self.decoders.of(model)
    }
}
