//! What ranks by meaning: the encoder of dialogues and the vectors of facts, opened once at the
//! start and shared by all workers.

use std::path::PathBuf;
use std::sync::Arc;

use turnstream_knowledge::{FactVectors, Graph, VectorsError};
use turnstream_operators::embedding::EmbeddingConfig;
use turnstream_operators::meaning::{FactMeaning, Searched};

use crate::config::{Config, Snapshot};
use crate::knowledge::embed::{EmbedError, embed_pack, open_vectors, vectors_beside};
use crate::knowledge::pack_vectors_path;
use crate::model::ModelError;
use crate::model::encoder::Encoder;
use crate::model::static_table::StaticTable;

mod live;

pub use live::LiveVectors;
#[cfg(test)]
pub(crate) use live::texts;

/// What ranks by meaning. Cheap to clone.
#[derive(Clone, Default)]
pub struct Meaning {
    /// The encoder of dialogues, where it is called in place: a static table.
    pub encoder: Option<Arc<dyn Encoder>>,
    /// Name and fingerprint of the configured encoder, wherever it is called.
    pub identity: Option<(String, u64)>,
    /// The vectors of facts that are learned, where the encoder takes its time.
    pub live: Option<LiveVectors>,
    facts: Option<Facts>,
}

/// The vectors of facts, and by what dialogues are compared with them.
#[derive(Clone)]
struct Facts {
    vectors: Arc<FactVectors>,
    /// The encoder that made them, where it is called in place.
    encoder: Option<Arc<dyn Encoder>>,
    /// How dialogues are embedded for these vectors, where turns have theirs by another encoder.
    own: Option<EmbeddingConfig>,
    /// Those that are searched where a dialogue names none.
    searched: Option<Searched>,
}

/// Why facts cannot be ranked by meaning.
#[derive(Debug, thiserror::Error)]
pub enum MeaningError {
    /// The vectors of the facts.
    #[error(transparent)]
    Vectors(#[from] VectorsError),
    /// The table inside the program.
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl Meaning {
    /// None: everything is ranked by words.
    pub fn none() -> Self {
        Self::default()
    }

    /// The configured encoder, and the vectors that it gave the facts of a graph. Where it gave
    /// none, facts are ranked by the table inside the program; where that gave none either, by
    /// words. What is missing for the shipped knowledge and an encoder of microseconds is made.
    ///
    /// # Errors
    /// Vectors are there that are for another graph.
    pub fn open(
        config: &Config,
        graph: &Graph,
        encoder: Option<&Arc<dyn Encoder>>,
    ) -> Result<Self, MeaningError> {
        let Some(encoder) = encoder else { return Ok(Self::none()) };
        let in_place = config.models.embedder.is_in_place();
        let called = in_place.then(|| Arc::clone(encoder));
        let mut facts = vectors(config, graph, &**encoder, in_place)?.map(|vectors| Facts {
            vectors,
            encoder: called.clone(),
            own: None,
            searched: None,
        });
        let (snapshot, embedder) = (&config.knowledge.snapshot, &config.models.embedder);
        if facts.is_none() && !in_place {
            let table = StaticTable::shipped().map_err(ModelError::Table)?;
            let own = Some(config.embedding.clone());
            let vectors = vectors(config, graph, &*table, true)?;
            let encoder: Option<Arc<dyn Encoder>> = Some(table);
            facts = vectors.map(|vectors| Facts { vectors, encoder, own, searched: None });
        }
        if facts.as_ref().is_none_or(|facts| facts.own.is_some()) {
            let by = if facts.is_some() { "the static table" } else { "words alone" };
            tracing::info!(
                "facts are ranked by {by}: they have no vectors by {embedder}; `turnstream \
                 knowledge embed {snapshot} --encoder {embedder}` makes some"
            );
        }
        let by_meaning = &config.query_production.by_meaning;
        if let Some(facts) = facts.as_mut().filter(|_| by_meaning.enabled) {
            let most = by_meaning.max_searched_facts as usize;
            facts.searched = Some(Searched::strongest(graph, most));
        }
        let identity = Some((encoder.name().to_owned(), encoder.fingerprint()));
        let by_it = facts.as_ref().is_some_and(|facts| facts.own.is_none());
        let live = (by_it && !in_place && config.knowledge.live).then(|| {
            let (threads, most) = (config.models.threads(), config.knowledge.max_live_changes);
            LiveVectors::new(Arc::clone(encoder), threads, most)
        });
        Ok(Self { encoder: called, identity, live, facts })
    }

    /// What a worker ranks facts by.
    pub fn of_facts(&self) -> Option<FactMeaning> {
        let Facts { vectors, encoder, own, searched } = self.facts.clone()?;
        let meaning = match (encoder, own) {
            (Some(encoder), Some(own)) => FactMeaning::beside(vectors, encoder, own),
            (encoder, _) => {
                let meaning = FactMeaning::new(vectors, encoder);
                match self.live.clone() {
                    Some(live) => meaning.with_live(Arc::new(live)),
                    None => meaning,
                }
            }
        };
        Some(match searched {
            Some(searched) => meaning.with_searched(searched),
            None => meaning,
        })
    }
}

/// The vectors of the configured snapshot by an encoder. Those of the shipped knowledge are made
/// where they are missing and the encoder is quick.
fn vectors(
    config: &Config,
    graph: &Graph,
    encoder: &dyn Encoder,
    is_quick: bool,
) -> Result<Option<Arc<FactVectors>>, VectorsError> {
    let Some(path) = vectors_path(config, encoder) else { return Ok(None) };
    let is_pack = config.knowledge.snapshot == Snapshot::Pack;
    let found = match open_vectors(&path, graph, encoder.fingerprint()) {
        // What lies in the cache is ours, and made again.
        Err(error) if is_pack && is_quick => {
            tracing::warn!("embedding the shipped knowledge again: {error}");
            None
        }
        found => found?,
    };
    if found.is_some() || !is_pack || !is_quick {
        return Ok(found.map(Arc::new));
    }
    let made = embed_pack(graph, encoder, &path, config.models.threads());
    let made = made.inspect_err(|error: &EmbedError| {
        tracing::warn!("facts are ranked by words alone: they cannot be embedded: {error}");
    });
    Ok(made.ok().map(Arc::new))
}

/// Where the vectors of the configured snapshot lie that an encoder makes.
fn vectors_path(config: &Config, encoder: &dyn Encoder) -> Option<PathBuf> {
    match &config.knowledge.snapshot {
        Snapshot::Pack => pack_vectors_path(encoder),
        Snapshot::File(path) => Some(vectors_beside(path, encoder.name())),
    }
}
