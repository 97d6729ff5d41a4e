//! What ranks by meaning: the encoder of dialogues and the vectors of facts, opened once at the
//! start and shared by all workers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use turnstream_operators::embedding::EmbeddingConfig;
use turnstream_operators::knowledge::{FactVectors, Graph, VectorsError};
use turnstream_operators::meaning::FactMeaning;
use turnstream_operators::model::Embed;

use crate::config::{Config, Snapshot};
use crate::knowledge::embed::{embed_facts, open_vectors, vectors_beside};
use crate::knowledge::{Progress, pack_vectors_path};
use crate::model::encoder::Encoder;
use crate::model::static_table::{StaticTable, TableError};

/// Why ranking by meaning cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum MeaningError {
    /// The static table.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The vectors of the facts.
    #[error(transparent)]
    Vectors(#[from] VectorsError),
}

/// What turns dialogues and facts into vectors. Cheap to clone.
#[derive(Clone, Default)]
pub struct Meaning {
    /// The sentence encoder that has to be waited for, where one is configured.
    pub embed: Option<Arc<Embed>>,
    /// The encoder that is called in place: the static table.
    pub encoder: Option<Arc<dyn Encoder>>,
    vectors: Option<Arc<FactVectors>>,
}

impl Meaning {
    /// None: everything is ranked by words.
    pub fn none() -> Self {
        Self::default()
    }

    /// The shipped table, and the vectors that it gives the facts of a graph.
    ///
    /// # Errors
    /// The table is damaged, or vectors are there that are for another graph.
    pub fn of_table(config: &Config, graph: &Graph) -> Result<Self, MeaningError> {
        let table: Arc<dyn Encoder> = Arc::new(StaticTable::shipped()?);
        let vectors = match &config.knowledge.snapshot {
            Snapshot::Pack => pack_vectors(graph, &*table),
            Snapshot::File(path) => file_vectors(path, graph, &*table)?,
        };
        Ok(Self { embed: None, encoder: Some(table), vectors: vectors.map(Arc::new) })
    }

    /// What a worker ranks facts by.
    pub fn of_facts(&self, dialogue: &EmbeddingConfig) -> Option<FactMeaning> {
        let meaning = FactMeaning::new(Arc::clone(self.vectors.as_ref()?));
        let own = |encoder: &&Arc<dyn Encoder>| {
            self.vectors.as_ref().is_some_and(|it| it.header().is_by(encoder.fingerprint()))
        };
        let Some(encoder) = self.encoder.as_ref().filter(own) else { return Some(meaning) };
        let meaning = meaning.with_encoder(Arc::clone(encoder));
        // A turn brings the vector of the encoder that is waited for along.
        let other = self.embed.is_some();
        Some(if other { meaning.with_own_dialogue(dialogue.clone()) } else { meaning })
    }
}

/// The vectors of the pack by the table: made once, as its snapshot is. Where they cannot be kept,
/// facts are ranked by words.
fn pack_vectors(graph: &Graph, table: &dyn Encoder) -> Option<FactVectors> {
    let path = pack_vectors_path(table)?;
    match open_vectors(&path, graph, table.fingerprint()) {
        Ok(Some(vectors)) => return Some(vectors),
        Ok(None) => {}
        Err(error) => tracing::warn!("embedding the shipped knowledge again: {error}"),
    }
    tracing::info!(path = %path.display(), "embedding the shipped knowledge, once");
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let embedded = embed_facts(graph, table, &path, threads, Progress::Silent);
    let opened = embedded.map_err(|error| error.to_string()).and_then(|_| {
        open_vectors(&path, graph, table.fingerprint()).map_err(|error| error.to_string())
    });
    opened.unwrap_or_else(|error| {
        tracing::warn!("facts are ranked by words alone: {error}");
        None
    })
}

/// The vectors beside a snapshot, if they were made.
fn file_vectors(
    path: &Path,
    graph: &Graph,
    encoder: &dyn Encoder,
) -> Result<Option<FactVectors>, VectorsError> {
    let beside: PathBuf = vectors_beside(path, encoder.name());
    let vectors = open_vectors(&beside, graph, encoder.fingerprint())?;
    if vectors.is_none() {
        tracing::info!(
            "facts are ranked by words alone; `turnstream knowledge embed {}` makes vectors for \
             them to be ranked by meaning as well",
            path.display()
        );
    }
    Ok(vectors)
}
