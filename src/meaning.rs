//! What ranks by meaning: the encoder of dialogues and the vectors of facts, opened once at the
//! start and shared by all workers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use turnstream_operators::embedding::EmbeddingConfig;
use turnstream_operators::knowledge::{FactVectors, Graph, VectorsError};
use turnstream_operators::meaning::FactMeaning;

use crate::config::{Config, Snapshot};
use crate::knowledge::embed::{embed_facts, open_vectors, vectors_beside};
use crate::knowledge::{Progress, pack_vectors_path};
use crate::model::Embedder;
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

/// What ranks by meaning. Cheap to clone.
#[derive(Clone, Default)]
pub struct Meaning {
    /// The encoder that is called in place: the static table.
    pub encoder: Option<Arc<dyn Encoder>>,
    vectors: Option<Arc<FactVectors>>,
    /// The vectors are the table's, and turns bring vectors of another encoder along.
    own_dialogue: bool,
}

impl Meaning {
    /// None: everything is ranked by words.
    pub fn none() -> Self {
        Self::default()
    }

    /// The vectors that the configured encoder gave the facts of a graph; where there are none of
    /// a model's, those of the static table, which ranks first whatever follows.
    ///
    /// # Errors
    /// The table is damaged, or vectors are there that are for another graph.
    pub fn open(
        config: &Config,
        graph: &Graph,
        encoder: Option<&Arc<dyn Encoder>>,
    ) -> Result<Self, MeaningError> {
        let Some(encoder) = encoder else { return Ok(Self::none()) };
        if config.models.embedder == Embedder::Static {
            return Self::of_table(config, graph, Arc::clone(encoder));
        }
        if let Some(path) = vectors_path(config, &**encoder)
            && let Some(vectors) = open_vectors(&path, graph, encoder.fingerprint())?
        {
            return Ok(Self { vectors: Some(Arc::new(vectors)), ..Self::default() });
        }
        let (snapshot, name) = (&config.knowledge.snapshot, encoder.name());
        tracing::info!(
            "the facts have no vectors by {name}: the static table ranks them; `turnstream \
             knowledge embed {snapshot} --encoder {}` makes some",
            config.models.embedder
        );
        let table = Self::of_table(config, graph, Arc::new(StaticTable::shipped()?))?;
        Ok(Self { own_dialogue: true, ..table })
    }

    /// The table, and the vectors that it gave the facts.
    fn of_table(
        config: &Config,
        graph: &Graph,
        table: Arc<dyn Encoder>,
    ) -> Result<Self, MeaningError> {
        let vectors = match &config.knowledge.snapshot {
            Snapshot::Pack => pack_vectors(graph, &*table),
            Snapshot::File(path) => file_vectors(path, graph, &*table)?,
        };
        let vectors = vectors.map(Arc::new);
        Ok(Self { encoder: Some(table), vectors, own_dialogue: false })
    }

    /// What a worker ranks facts by.
    pub fn of_facts(&self, dialogue: &EmbeddingConfig) -> Option<FactMeaning> {
        let meaning = FactMeaning::new(Arc::clone(self.vectors.as_ref()?));
        let Some(encoder) = &self.encoder else { return Some(meaning) };
        let meaning = meaning.with_encoder(Arc::clone(encoder));
        let own = self.own_dialogue.then(|| dialogue.clone());
        Some(own.map_or(meaning.clone(), |dialogue| meaning.with_own_dialogue(dialogue)))
    }
}

/// Where the vectors of the configured snapshot lie that an encoder makes.
fn vectors_path(config: &Config, encoder: &dyn Encoder) -> Option<PathBuf> {
    match &config.knowledge.snapshot {
        Snapshot::Pack => pack_vectors_path(encoder),
        Snapshot::File(path) => Some(vectors_beside(path, encoder.name())),
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
