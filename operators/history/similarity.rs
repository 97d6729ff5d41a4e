//! What the texts of a history are compared by: an encoder where one is configured that can be
//! called in place, and their words.

use std::fmt;
use std::sync::Arc;

use turnstream_schemas::{EntryVector, HistoryEntry, RoundedVector};

use super::likeness::{Signature, Vector};
use crate::model::encoder::Encoder;

/// Makes [`Signature`]s. Cheap to clone.
#[derive(Clone, Default)]
pub struct Similarity(Option<Meaning>);

#[derive(Clone)]
struct Meaning {
    encoder: Arc<dyn Encoder>,
    /// Name and fingerprint, as entries keep them.
    identity: Arc<str>,
}

impl Similarity {
    /// By words alone.
    pub fn by_words() -> Self {
        Self(None)
    }

    /// By what an encoder makes of texts that takes microseconds; by words where it knows nothing
    /// in them, or fails.
    pub fn by_meaning(encoder: Arc<dyn Encoder>) -> Self {
        let identity = format!("{}/{:016x}", encoder.name(), encoder.fingerprint()).into();
        Self(Some(Meaning { encoder, identity }))
    }

    /// What a query is compared by.
    pub fn of_query(&self, text: &str) -> Signature {
        Signature::of([text]).with(self.vector(text))
    }

    /// What an entry is compared by: query and response as one text. Its vector is the one that it
    /// keeps where it has one of this encoder.
    pub fn of_entry(&self, entry: &HistoryEntry) -> Signature {
        let vector = self.0.as_ref().and_then(|Meaning { identity, .. }| {
            let kept = entry.vector.as_ref().filter(|kept| *kept.encoder == **identity);
            kept.map(|kept| Vector::rounded(Arc::clone(&kept.numbers.0)))
        });
        let said = [entry.query.as_deref(), entry.response.as_deref()];
        Signature::of(said.into_iter().flatten()).with(vector)
    }

    /// The vector that an entry is to keep.
    pub fn vector_of(&self, entry: &HistoryEntry) -> Option<EntryVector> {
        let Meaning { identity, .. } = self.0.as_ref()?;
        let vector = match (&entry.query, &entry.response) {
            (Some(query), Some(response)) => self.vector(&format!("{query}\n{response}")),
            (Some(said), None) | (None, Some(said)) => self.vector(said),
            (None, None) => None,
        }?;
        let numbers = RoundedVector(Arc::clone(vector.numbers()));
        Some(EntryVector { encoder: identity.to_string(), numbers })
    }

    fn vector(&self, text: &str) -> Option<Vector> {
        let Meaning { encoder, .. } = self.0.as_ref()?;
        let mut numbers = Vec::with_capacity(encoder.dimensions());
        encoder.encode(&[text], &mut numbers).ok()?;
        Vector::of(&numbers)
    }
}

impl fmt::Debug for Similarity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = self.0.as_ref().map_or("words", |meaning| &meaning.identity);
        f.debug_tuple("Similarity").field(&by).finish()
    }
}
