//! Language models and encoders on a server with OpenAI's interface, behind the same ports as the
//! models in this process.
//!
//! A worker puts its request into a bounded queue (`queue`) and goes on. One thread takes requests
//! from the queue, up to the configured number at once. It encodes each request (`wire`), sends it
//! and reads the answer (`server`: time-outs, attempts, the pace, the `breaker`). If the answer
//! must follow a schema, the thread validates it, and asks once more if it is invalid (`writer`).
//! Optional fields that a server refuses are left out from then on (`fields`).
//!
//! Every failure is an answer too: the stage retries, degrades or fails as configured.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use turnstream_ports::model::{Generate, GenerateRequest, Generated};

use crate::metrics::RemoteMetrics;

mod breaker;
mod config;
mod embedding;
mod failure;
mod fields;
mod fit;
mod pace;
mod queue;
mod server;
#[cfg(test)]
mod tests;
mod wire;
mod writer;

pub use config::{Api, ConfigProblem, RemoteConfig, SchemaBy, Streaming};
pub use embedding::RemoteEmbedder;

use queue::Queue;
use server::Server;
use writer::Writer;

/// Why a model on a server cannot be used. Never contains a key.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigProblem),
    /// The variable of the key is not set.
    #[error(
        "the environment variable {variable}, which api_key_env names, is not set; set it to the server's key"
    )]
    NoKey {
        /// The variable's name.
        variable: String,
    },
    /// The variable holds no valid key.
    #[error(
        "the variable {variable} holds no key: it is empty, or has characters that no header can have"
    )]
    BadKey {
        /// The variable's name.
        variable: String,
    },
    /// The certificates cannot be used.
    #[error("ca_file {path}: {reason}; write the path of a file with certificates in PEM", path = path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// What is wrong with them.
        reason: String,
    },
    /// The HTTP client cannot be built.
    #[error("cannot make an HTTP client: {0}; https needs the system's certificates or ca_file")]
    Client(String),
    /// The system cannot start the thread.
    #[error("cannot start a thread for the model: {0}; raise the system's limit")]
    Threads(io::Error),
    /// The configured interface does not suit the task.
    #[error("model `{name}`: api must be {wanted} here")]
    WrongApi {
        /// The model's name.
        name: String,
        /// The required interface.
        wanted: &'static str,
    },
    /// The server did not answer the first request for an embedding.
    #[error("the server gives no embedding: {0}")]
    NoEmbedding(String),
}

impl StartError {
    /// The faulty key of [`RemoteConfig`], if the error is about one.
    pub fn key(&self) -> Option<&'static str> {
        match self {
            Self::Config(problem) => Some(problem.key),
            Self::NoKey { .. } | Self::BadKey { .. } => Some("api_key_env"),
            Self::Certificates { .. } => Some("ca_file"),
            Self::WrongApi { .. } => Some("api"),
            Self::Client(_) | Self::NoEmbedding(_) => Some("base_url"),
            Self::Threads(_) => None,
        }
    }
}

/// Starts a client of a language model on a server. Records and metrics use `name`. The server is
/// first contacted by the first request.
///
/// Dropping the last handle cancels queued and active requests.
///
/// # Errors
/// The configuration, the key or the certificates cannot be used; the error says what to do.
pub fn start(
    name: &str,
    config: &RemoteConfig,
    metrics: RemoteMetrics,
) -> Result<Arc<Generate>, StartError> {
    if config.api == Api::Embeddings {
        return Err(StartError::WrongApi { name: name.to_owned(), wanted: "chat or completions" });
    }
    let server = Server::new(config, metrics.clone())?;
    let called = name.to_owned();
    let writer = || Writer::new(called, server);
    let queue: Queue<GenerateRequest, Generated> =
        Queue::start(name, writer, config, metrics).map_err(StartError::Threads)?;
    Ok(Arc::new(queue))
}
