//! Ranking by meaning: the encoder of dialogues and the vectors of facts, opened once at the start
//! and shared by all workers.

use std::path::PathBuf;
use std::sync::Arc;

use turnstream_knowledge::{FactVectors, Graph, VectorsError};
use turnstream_models::ModelError;
use turnstream_models::static_table::StaticTable;
use turnstream_operators::dialogue_vector::LatestUtterances;
use turnstream_operators::meaning::{FactMeaning, Searched};
use turnstream_ports::model::encoder::Encoder;
use turnstream_sources::knowledge::embed::{EmbedError, embed_pack, open_vectors, vectors_beside};
use turnstream_sources::knowledge::pack_vectors_path;

use crate::config::{Config, Snapshot};

mod live;

pub use live::LiveVectors;
#[cfg(test)]
pub(crate) use live::texts;

/// The encoder and the vectors for ranking by meaning. Cheap to clone.
#[derive(Clone, Default)]
pub struct Meaning {
    /// The encoder of dialogues, if it is called in place: a static table.
    pub encoder: Option<Arc<dyn Encoder>>,
    /// Name and fingerprint of the configured encoder, wherever it runs.
    pub identity: Option<(String, u64)>,
    /// The vectors of live facts, if the encoder is slow.
    pub live: Option<LiveVectors>,
    facts: Option<Facts>,
}

/// The vectors of facts, and the encoder for the dialogues that are compared with them.
#[derive(Clone)]
struct Facts {
    vectors: Arc<FactVectors>,
    /// The encoder that made the vectors, if it is called in place.
    encoder: Option<Arc<dyn Encoder>>,
    /// How to embed dialogues for these vectors, if another encoder embeds the turns.
    own: Option<LatestUtterances>,
    /// The vectors to search when a dialogue names no concept.
    searched: Option<Searched>,
}

/// Why facts cannot be ranked by meaning.
#[derive(Debug, thiserror::Error)]
pub enum MeaningError {
    /// The vectors of the facts cannot be opened.
    #[error(transparent)]
    Vectors(#[from] VectorsError),
    /// The table inside the program cannot be opened.
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl Meaning {
    /// No encoder and no vectors: words rank everything.
    pub fn none() -> Self {
        Self::default()
    }

    /// Opens the configured encoder and the vectors that it made for the facts of a graph. If it
    /// made none, the table inside the program ranks facts; if that has no vectors either, words
    /// do. Missing vectors of the pack are made now, if the encoder takes microseconds.
    ///
    /// # Errors
    /// The vectors belong to another graph.
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
            let own = Some(config.embedding.latest());
            let vectors = vectors(config, graph, &*table, true)?;
            let encoder: Option<Arc<dyn Encoder>> = Some(table);
            facts = vectors.map(|vectors| Facts { vectors, encoder, own, searched: None });
        }
        if facts.as_ref().is_none_or(|facts| facts.own.is_some()) {
            let by = if facts.is_some() { "the static table" } else { "words alone" };
            tracing::info!(
                "facts are ranked by {by}, because they have no vectors by {embedder}; make them \
                 with `turnstream knowledge embed {snapshot} --encoder {embedder}`"
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

    /// The ranking of facts for one worker.
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

/// The vectors that an encoder made for the configured snapshot. Missing vectors of the pack are
/// made now, if the encoder is quick.
fn vectors(
    config: &Config,
    graph: &Graph,
    encoder: &dyn Encoder,
    is_quick: bool,
) -> Result<Option<Arc<FactVectors>>, VectorsError> {
    let Some(path) = vectors_path(config, encoder) else { return Ok(None) };
    let is_pack = config.knowledge.snapshot == Snapshot::Pack;
    let found = match open_vectors(&path, graph, encoder.fingerprint()) {
        // The vectors in the cache are our own, so they can be made again.
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
        tracing::warn!("cannot embed the facts, so they are ranked by words alone: {error}");
    });
    Ok(made.ok().map(Arc::new))
}

/// The path of the vectors that an encoder makes for the configured snapshot.
fn vectors_path(config: &Config, encoder: &dyn Encoder) -> Option<PathBuf> {
    match &config.knowledge.snapshot {
        Snapshot::Pack => pack_vectors_path(encoder),
        Snapshot::File(path) => Some(vectors_beside(path, encoder.name())),
    }
}
