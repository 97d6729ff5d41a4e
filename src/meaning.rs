//! What ranks by meaning: the encoder of dialogues and the vectors of facts, opened once at the
//! start and shared by all workers.

use std::path::PathBuf;
use std::sync::Arc;

use turnstream_operators::knowledge::{FactVectors, Graph, VectorsError};
use turnstream_operators::meaning::FactMeaning;

use crate::config::{Config, Snapshot};
use crate::knowledge::embed::{open_vectors, vectors_beside};
use crate::knowledge::pack_vectors_path;
use crate::model::encoder::Encoder;

/// What ranks by meaning. Cheap to clone.
#[derive(Clone, Default)]
pub struct Meaning {
    /// The encoder of dialogues, where it is called in place: a static table.
    pub encoder: Option<Arc<dyn Encoder>>,
    /// Name and fingerprint of the configured encoder, wherever it is called.
    pub identity: Option<(String, u64)>,
    vectors: Option<Arc<FactVectors>>,
}

impl Meaning {
    /// None: everything is ranked by words.
    pub fn none() -> Self {
        Self::default()
    }

    /// The configured encoder, and the vectors that it gave the facts of a graph. Where there are
    /// none, facts are ranked by words.
    ///
    /// # Errors
    /// Vectors are there that are for another graph.
    pub fn open(
        config: &Config,
        graph: &Graph,
        encoder: Option<&Arc<dyn Encoder>>,
    ) -> Result<Self, VectorsError> {
        let Some(encoder) = encoder else { return Ok(Self::none()) };
        let vectors = match vectors_path(config, &**encoder) {
            Some(path) => open_vectors(&path, graph, encoder.fingerprint())?,
            None => None,
        };
        if vectors.is_none() {
            let (snapshot, embedder) = (&config.knowledge.snapshot, &config.models.embedder);
            tracing::info!(
                "facts are ranked by words alone: they have no vectors by {embedder}; `turnstream \
                 knowledge embed {snapshot} --encoder {embedder}` makes some"
            );
        }
        let identity = Some((encoder.name().to_owned(), encoder.fingerprint()));
        let in_place = config.models.embedder.is_in_place();
        let encoder = in_place.then(|| Arc::clone(encoder));
        Ok(Self { encoder, identity, vectors: vectors.map(Arc::new) })
    }

    /// What a worker ranks facts by.
    pub fn of_facts(&self) -> Option<FactMeaning> {
        let vectors = Arc::clone(self.vectors.as_ref()?);
        Some(FactMeaning::new(vectors, self.encoder.clone()))
    }
}

/// Where the vectors of the configured snapshot lie that an encoder makes.
fn vectors_path(config: &Config, encoder: &dyn Encoder) -> Option<PathBuf> {
    match &config.knowledge.snapshot {
        Snapshot::Pack => pack_vectors_path(encoder),
        Snapshot::File(path) => Some(vectors_beside(path, encoder.name())),
    }
}
