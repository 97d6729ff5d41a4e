//! Phrasings: how customers ask, as a company's staff taught it, and what answers or what is to be done.
//!
//! [`embedding`](mod@crate::embedding) looks how near a turn's question is to them. Retrieval finds a section or
//! row by the nearer of its own vector and its phrasings'
//! ([`document_retrieval`](mod@crate::document_retrieval), [`table_retrieval`](mod@crate::table_retrieval)),
//! and the reader hears how near that phrasing was ([`decision`](mod@crate::decision)). A phrasing that
//! nothing answers says what the response does.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use turnstream_ports::model::encoder::{EncodeError, Encoder};
use turnstream_schemas::{Action, EvidenceId};

/// How customers ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phrasing {
    /// The words.
    pub text: String,
    /// What answers, or what the response does instead.
    pub leads_to: LeadsTo,
}

/// What a phrasing leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeadsTo {
    /// Chunks of the documents, each by its id as evidence and its number.
    Chunks(Vec<(EvidenceId, u32)>),
    /// A row of a table, by its id as evidence.
    Row(EvidenceId),
    /// No evidence: the response declines, hands over, or is social.
    Action(Action),
}

/// The phrasings of a company.
#[derive(Clone, Debug, Default)]
pub struct Phrasings {
    all: Vec<Phrasing>,
    /// Their vectors, one after the other.
    vectors: Vec<f32>,
}

/// How near a question is to the phrasings: the cosine of the nearest, by what they lead to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NearestPhrasings {
    evidence: FxHashMap<EvidenceId, f64>,
    chunks: FxHashMap<u32, f64>,
    /// The action of the nearest phrasing of all, if it leads to one.
    pub action: Option<(Action, f64)>,
}

impl Phrasings {
    /// Phrasings with the vectors of an encoder.
    ///
    /// # Errors
    /// The encoder failed.
    pub fn new(all: Vec<Phrasing>, encoder: &dyn Encoder) -> Result<Self, EncodeError> {
        let texts: Vec<&str> = all.iter().map(|phrasing| &*phrasing.text).collect();
        let mut vectors = Vec::new();
        encoder.encode(&texts, &mut vectors)?;
        Ok(Self { all, vectors })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How near they are to a question, by its vector of length 1.
    pub fn nearest(&self, question: &[f32]) -> NearestPhrasings {
        let mut found = NearestPhrasings::default();
        if self.vectors.len() != self.all.len() * question.len() {
            return found;
        }
        let mut best = 0.0;
        let vectors = self.vectors.chunks_exact(question.len().max(1));
        for (phrasing, vector) in self.all.iter().zip(vectors) {
            let cosine = vector.iter().zip(question).map(|(a, b)| a * b).sum::<f32>();
            let cosine = f64::from(cosine.clamp(0.0, 1.0));
            let keep = |known: &mut f64| *known = known.max(cosine);
            match &phrasing.leads_to {
                LeadsTo::Chunks(chunks) => {
                    for (id, number) in chunks {
                        keep(found.evidence.entry(id.clone()).or_default());
                        keep(found.chunks.entry(*number).or_default());
                    }
                }
                LeadsTo::Row(id) => keep(found.evidence.entry(id.clone()).or_default()),
                LeadsTo::Action(_) => {}
            }
            if cosine > best {
                best = cosine;
                found.action = match phrasing.leads_to {
                    LeadsTo::Action(action) => Some((action, cosine)),
                    _ => None,
                };
            }
        }
        found
    }
}

impl NearestPhrasings {
    /// The cosine of the nearest phrasing of a piece of evidence, 0..=1; 0 if it has none.
    pub fn of(&self, evidence: &EvidenceId) -> f64 {
        self.evidence.get(evidence).copied().unwrap_or_default()
    }

    /// The chunks that have phrasings among these, each with its cosine; all of them for `None`.
    pub fn chunks(&self, within: Option<&[u32]>) -> BTreeMap<u32, f64> {
        let is_within = |at: &u32| within.is_none_or(|within| within.binary_search(at).is_ok());
        let chunks = self.chunks.iter().map(|(at, cosine)| (*at, *cosine));
        chunks.filter(|(at, _)| is_within(at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Counting;

    #[test]
    fn the_nearest_phrasing_counts() {
        let of = |text: &str, leads_to| Phrasing { text: text.to_owned(), leads_to };
        let id = |id: &str| EvidenceId(id.to_owned());
        let chunks = |numbers: &[u32]| {
            LeadsTo::Chunks(numbers.iter().map(|at| (id(&format!("d/p#{at}")), *at)).collect())
        };
        let all = vec![
            of("sea", chunks(&[3, 4])),
            of("sea and bread", chunks(&[3])),
            of("bread", LeadsTo::Row(id("goods/8"))),
            of("bread bread sea", LeadsTo::Action(Action::Decline)),
        ];
        let phrasings = Phrasings::new(all, &Counting).expect("vectors");
        let near = phrasings.nearest(&[1.0, 0.0]);
        assert_eq!(near.chunks(None), [(3, 1.0), (4, 1.0)].into());
        assert_eq!(near.chunks(Some(&[1, 4])), [(4, 1.0)].into());
        assert_eq!((near.of(&id("d/p#3")), near.of(&id("goods/8")), near.action), (1.0, 0.0, None));
        let near = phrasings.nearest(&[0.45, 0.9]);
        let action = near.action.map(|(action, cosine)| (action, cosine > 0.99));
        assert_eq!(action, Some((Action::Decline, true)));
        assert_eq!(
            phrasings.nearest(&[1.0]),
            NearestPhrasings::default(),
            "another encoder's vector"
        );
    }
}
