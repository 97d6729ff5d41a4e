//! Language models and encoders on a server with OpenAI's interface: behind the same ports as those
//! of this process, and as far as that goes with the same behaviour.
//!
//! A worker hands its request to a bounded queue (`queue`) and goes on. One thread takes requests
//! from it, as many at once as configured; each is written out (`wire`), sent and read
//! (`server`: time-outs, attempts, the pace, the `breaker`), and where it must follow a schema
//! the answer is checked here and asked for once more if it does not (`writer`). What a server
//! does not know of the interface is found out and left out (`fields`).
//!
//! Whatever goes wrong is an answer too: the stage retries, degrades or fails as configured.

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

/// Why a model on a server cannot be used. Never holds a key.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigProblem),
    /// The variable of the key.
    #[error(
        "there is no variable {variable} in the environment, which api_key_env names; set it to the server's key"
    )]
    NoKey {
        /// Its name.
        variable: String,
    },
    /// What it holds.
    #[error(
        "the variable {variable} holds no key: it is empty, or has letters that no header can have"
    )]
    BadKey {
        /// Its name.
        variable: String,
    },
    /// The certificates.
    #[error("ca_file {path}: {reason}; write the path of a file with certificates in PEM", path = path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// What is the matter.
        reason: String,
    },
    /// The client.
    #[error(
        "no client for the server: {0}; over https the system must have certificates, or ca_file"
    )]
    Client(String),
    /// The thread.
    #[error("no thread for the model: {0}; raise the limit of the system")]
    Threads(io::Error),
    /// What is asked of it.
    #[error("model `{name}`: api must be {wanted} here")]
    WrongApi {
        /// Which one.
        name: String,
        /// What would do.
        wanted: &'static str,
    },
    /// The first embedding.
    #[error("the server gives no embedding: {0}")]
    NoEmbedding(String),
}

impl StartError {
    /// The key of [`RemoteConfig`] that is at fault, where it is one.
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

/// Starts asking a language model on a server; `name` is what records and metrics call it. The
/// server need not be there yet: a request is what finds out.
///
/// When the last handle is dropped, requests that wait or are under way are cancelled.
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
