//! Compares the texts of a history: by an encoder's vectors, where one is configured, and by words.
//! It does not ask an encoder that does not answer at once: the vectors of such an encoder come
//! from [`preparation`](mod@super::preparation).

use std::fmt;
use std::sync::Arc;

use turnstream_ports::model::encoder::Encoder;
use turnstream_schemas::{EntryVector, HistoryEntry, RoundedVector};

use super::likeness::{Signature, Vector};

/// Makes [`Signature`]s. Cheap to clone.
#[derive(Clone, Default)]
pub struct Similarity(Option<Meaning>);

#[derive(Clone)]
struct Meaning {
    /// `None` where it does not answer at once.
    encoder: Option<Arc<dyn Encoder>>,
    /// Name and fingerprint, as entries keep them.
    identity: Arc<str>,
}

impl Similarity {
    /// Compares by words alone.
    pub fn by_words() -> Self {
        Self(None)
    }

    /// Compares by the vectors of an encoder that takes microseconds; by words where it knows nothing in a
    /// text, or fails.
    pub fn by_meaning(encoder: Arc<dyn Encoder>) -> Self {
        let identity = identity(encoder.name(), encoder.fingerprint());
        Self(Some(Meaning { encoder: Some(encoder), identity }))
    }

    /// Compares by the vectors of an encoder that does not answer at once, given by its name and
    /// fingerprint; by words while a text has no vector.
    pub fn by_awaited_meaning(name: &str, fingerprint: u64) -> Self {
        Self(Some(Meaning { encoder: None, identity: identity(name, fingerprint) }))
    }

    /// Whether vectors come from [`preparation`](mod@super::preparation).
    pub fn is_awaited(&self) -> bool {
        self.0.as_ref().is_some_and(|meaning| meaning.encoder.is_none())
    }

    /// Makes the signature of a query or a passage.
    pub fn of_query(&self, text: &str) -> Signature {
        Signature::of([text]).with(self.vector(text))
    }

    /// Makes the signature of an entry: query and response as one text, with the vector that the
    /// entry keeps, if that is of this encoder, or that the encoder gives at once.
    pub fn of_entry(&self, entry: &HistoryEntry) -> Signature {
        let kept = entry.vector.as_ref().filter(|_| self.has_vector(entry));
        let vector = match kept {
            Some(kept) => Some(Vector::rounded(Arc::clone(&kept.numbers.0))),
            None => text_of(entry).and_then(|text| self.vector(&text)),
        };
        Signature::of(said(entry)).with(vector)
    }

    /// Whether an entry keeps a vector of this encoder.
    pub fn has_vector(&self, entry: &HistoryEntry) -> bool {
        let vectors = self.0.as_ref().zip(entry.vector.as_ref());
        vectors.is_some_and(|(meaning, kept)| *kept.encoder == *meaning.identity)
    }

    /// Converts a vector of this encoder to the form that entries keep.
    pub fn kept(&self, vector: &Vector) -> Option<EntryVector> {
        let Meaning { identity, .. } = self.0.as_ref()?;
        let numbers = RoundedVector(Arc::clone(vector.numbers()));
        Some(EntryVector { encoder: identity.to_string(), numbers })
    }

    fn vector(&self, text: &str) -> Option<Vector> {
        let encoder = self.0.as_ref()?.encoder.as_ref()?;
        let mut numbers = Vec::with_capacity(encoder.dimensions());
        encoder.encode(&[text], &mut numbers).ok()?;
        Vector::of(&numbers)
    }
}

/// Returns an encoder's name and fingerprint, as entries keep them.
fn identity(name: &str, fingerprint: u64) -> Arc<str> {
    format!("{name}/{fingerprint:016x}").into()
}

/// Returns what was said in an entry: its query, then its response.
pub(super) fn said(entry: &HistoryEntry) -> impl Iterator<Item = &str> {
    [entry.query.as_deref(), entry.response.as_deref()].into_iter().flatten()
}

/// Returns the text that an entry's vector is made from: query and response together.
pub fn text_of(entry: &HistoryEntry) -> Option<String> {
    match (&entry.query, &entry.response) {
        (Some(query), Some(response)) => Some(format!("{query}\n{response}")),
        (Some(said), None) | (None, Some(said)) => Some(said.clone()),
        (None, None) => None,
    }
}

impl fmt::Debug for Similarity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = self.0.as_ref().map_or("words", |meaning| &meaning.identity);
        f.debug_tuple("Similarity").field(&by).finish()
    }
}
