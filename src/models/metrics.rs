//! What is counted about models: those that run in this process, by task; those on servers and the
//! language models of this process, by name. The engine registers them beside its own metrics.

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
    /// Metrics of models that did nothing yet, in this registry.
    pub fn register(registry: &mut Registry) -> Self {
        let tasks = ModelsMetrics::register(registry);
        let remote = AllRemoteMetrics::register(registry);
        let decoders = DecodersMetrics::register(registry);
        Self { tasks, remote, decoders }
    }

    /// Metrics that nobody reads.
    pub fn unread() -> Self {
        Self::register(&mut Registry::default())
    }

    /// What the runtime counts about the model of a task.
    pub fn model(&self, task: Task) -> &ModelMetrics {
        self.tasks.of(task)
    }

    /// What is counted about a model on a server, by the name that the configuration gives it.
    pub fn remote(&self, model: &str) -> RemoteMetrics {
        self.remote.of(model)
    }

    /// What is counted about the language model of this process that has this name. There are no
    /// samples of a model that was never asked for here.
    pub fn decoder(&self, model: &str) -> DecoderMetrics {
        self.decoders.of(model)
    }
}
