//! Embeddings from a server: for stages through the port, and as an [`Encoder`] for callers that
//! may wait.

use std::cell::Cell;
use std::time::Duration;

use turnstream_ports::model::encoder::{EncodeError, Encoded, Encoder};
use turnstream_ports::model::{Busy, CallError, EmbedRequest, Embedding, Model, Reply, reply};

use crate::metrics::RemoteMetrics;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::StartError;
use super::config::{Api, RemoteConfig};
use super::failure::Failure;
use super::queue::{Queue, Work};
use super::server::{Body, Server};
use super::wire::Usage;

/// How long an [`Encoder`]'s caller sleeps when the queue is full.
const FULL: Duration = Duration::from_millis(5);

/// Embeds texts through a server.
struct EmbeddingClient {
    server: Server,
    /// Numbers in an embedding, known after the first one.
    dimensions: Cell<Option<usize>>,
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Item>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Item {
    index: Option<usize>,
    embedding: Vec<f32>,
}

impl Work<EmbedRequest, Vec<Embedding>> for EmbeddingClient {
    async fn work(&self, texts: &EmbedRequest) -> Result<Vec<Embedding>, CallError> {
        let mut embeddings = Vec::with_capacity(texts.len());
        for texts in texts.chunks(self.server.config.batch_texts) {
            let embedded = self.embed(texts).await;
            embeddings.extend(embedded.map_err(|failure| self.server.error(&failure))?);
        }
        Ok(embeddings)
    }
}

impl EmbeddingClient {
    async fn embed(&self, texts: &[String]) -> Result<Vec<Embedding>, Failure> {
        let RemoteConfig { model, .. } = &self.server.config;
        let request = json!({ "model": model, "input": texts, "encoding_format": "float" });
        let answer = self.server.post(&request, async |body: Body<'_>| {
            let server = body.server();
            let body = body.whole().await?;
            serde_json::from_slice::<Answer>(&body)
                .map_err(|error| server.malformed("no embeddings", &error, &body))
        });
        let Answer { data, usage } = answer.await?;
        self.server.metrics.prompt_tokens.inc_by(usage.unwrap_or_default().prompt_tokens);
        let embeddings = in_order(data, texts.len()).and_then(|vectors| {
            vectors.into_iter().map(|vector| self.normalised(vector)).collect()
        });
        embeddings.map_err(|reason| {
            let failure = Failure::Embeddings(reason);
            self.server.metrics.fault(failure.fault()).inc();
            failure
        })
    }

    /// Checks a vector's dimensions and normalises it to length 1.
    fn normalised(&self, mut vector: Vec<f32>) -> Result<Embedding, String> {
        let dimensions = *self.dimensions.get().get_or_insert(vector.len());
        if vector.len() != dimensions || dimensions == 0 {
            return Err(format!(
                "an embedding of {} numbers where {dimensions} were expected; set dimensions to \
                 what the model has",
                vector.len()
            ));
        }
        let square: f64 = vector.iter().map(|x| f64::from(*x).powi(2)).sum();
        let length = square.sqrt();
        if !length.is_normal() {
            return Err("an embedding without a direction: all zeros, or not finite".to_owned());
        }
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
        self.dimensions.set(Some(dimensions));
        Ok(vector.into())
    }
}

/// Sorts the vectors into the order of the texts.
fn in_order(data: Vec<Item>, texts: usize) -> Result<Vec<Vec<f32>>, String> {
    let given = data.len();
    let mut vectors: Vec<Option<Vec<f32>>> = vec![None; texts];
    for (place, Item { index, embedding }) in data.into_iter().enumerate() {
        if let Some(vector) = vectors.get_mut(index.unwrap_or(place)) {
            *vector = Some(embedding);
        }
    }
    let all: Option<Vec<_>> = vectors.into_iter().collect();
    all.filter(|_| given == texts).ok_or_else(|| format!("{given} embeddings for {texts} texts"))
}

/// An encoder on a server.
pub struct RemoteEmbedder {
    queue: Queue<EmbedRequest, Vec<Embedding>>,
    dimensions: usize,
    fingerprint: u64,
    batch_texts: usize,
}

impl RemoteEmbedder {
    /// Checks the configuration, the key and the certificates without contacting the server.
    ///
    /// # Errors
    /// One of them cannot be used.
    pub fn check(name: &str, config: &RemoteConfig) -> Result<(), StartError> {
        Self::server(name, config, RemoteMetrics::unread()).map(drop)
    }

    fn server(
        name: &str,
        config: &RemoteConfig,
        metrics: RemoteMetrics,
    ) -> Result<Server, StartError> {
        if config.api != Api::Embeddings {
            return Err(StartError::WrongApi { name: name.to_owned(), wanted: "embeddings" });
        }
        Server::new(config, metrics)
    }

    /// Starts the client's thread, then requests one embedding and waits for it, to learn the
    /// dimensions.
    ///
    /// # Errors
    /// The configuration cannot be used, or the server gives no embedding.
    pub fn start(
        name: &str,
        config: &RemoteConfig,
        metrics: RemoteMetrics,
    ) -> Result<Self, StartError> {
        let server = Self::server(name, config, metrics.clone())?;
        let dimensions = Cell::new(config.dimensions);
        let embedder = || EmbeddingClient { server, dimensions };
        let queue = Queue::start(name, embedder, config, metrics).map_err(StartError::Threads)?;
        let (reply, asked) = reply();
        // The new queue has room.
        let _ = queue.ask(vec!["dimensions".to_owned()], reply);
        let first = asked.wait().map_err(|error| StartError::NoEmbedding(error.to_string()))?;
        let dimensions = first.first().map_or(0, |vector| vector.len());
        let mut digest = Sha256::new();
        digest.update(config.address());
        digest.update([0]);
        digest.update(&config.model);
        digest.update(dimensions.to_le_bytes());
        let digest = digest.finalize();
        let fingerprint = digest.iter().take(8).fold(0, |all, byte| all << 8 | u64::from(*byte));
        Ok(Self { queue, dimensions, fingerprint, batch_texts: config.batch_texts })
    }
}

impl Model<EmbedRequest, Vec<Embedding>> for RemoteEmbedder {
    fn name(&self) -> &str {
        self.queue.name()
    }

    fn ask(
        &self,
        texts: EmbedRequest,
        reply: Reply<Vec<Embedding>>,
    ) -> Result<(), Busy<EmbedRequest, Vec<Embedding>>> {
        self.queue.ask(texts, reply)
    }
}

impl Encoder for RemoteEmbedder {
    fn name(&self) -> &str {
        self.queue.name()
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
        let before = vectors.len();
        for texts in texts.chunks(self.batch_texts) {
            let (mut answer, asked) = reply();
            let mut texts: EmbedRequest = texts.iter().map(|text| (*text).to_owned()).collect();
            while let Err(busy) = self.queue.ask(texts, answer) {
                (texts, answer) = (busy.request, busy.reply);
                std::thread::sleep(FULL);
            }
            match asked.wait() {
                Ok(embeddings) => {
                    vectors.extend(embeddings.iter().flat_map(|vector| vector.iter()));
                }
                Err(error) => {
                    vectors.truncate(before);
                    let encoder = self.queue.name().to_owned();
                    return Err(EncodeError { encoder, reason: error.to_string() });
                }
            }
        }
        // The token count is in the metrics.
        Ok(Encoded::default())
    }
}
