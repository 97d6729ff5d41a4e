//! Phrasings: how customers ask, as a company's staff taught it, with what answers or what the
//! response does instead.
//!
//! They come from a file and, while turns flow, from the `knowledge` topic; like facts, a turn sees
//! those of its [`KnowledgeVersion`](crate::KnowledgeVersion). Embedding compares the turn's question
//! with them. Retrieval finds a section or row by the nearer of its own vector and its phrasings',
//! and the decision learns how near that phrasing was. A phrasing without evidence says what the
//! response does.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use turnstream_ports::model::encoder::{EncodeError, Encoder, encode_all};
use turnstream_schemas::{Action, EvidenceId, PhrasingValue};

/// What staff say that a phrasing asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taught {
    /// A section (`page.md#heading`) or a row (`row:ID`) answers it.
    Place(String),
    /// Nothing does: the response declines, hands over, asks back or is social.
    Action(Action),
}

impl Taught {
    /// Reads what a line of a file or a record says.
    ///
    /// # Errors
    /// An answer names no place, or another action names one; the reason.
    pub fn new(gold: Option<String>, action: Action) -> Result<Self, String> {
        match (gold, action) {
            (Some(place), Action::Answer) => Ok(Self::Place(place)),
            (None, Action::Answer) => Err("an answer needs `gold`".to_owned()),
            (Some(_), action) => Err(format!("{} has no `gold`", action.name())),
            (None, action) => Ok(Self::Action(action)),
        }
    }

    /// The value of the record that teaches it.
    pub fn value(&self) -> PhrasingValue {
        match self {
            Self::Place(place) => {
                PhrasingValue { gold: Some(place.clone()), ..PhrasingValue::default() }
            }
            Self::Action(action) => PhrasingValue { action: *action, ..PhrasingValue::default() },
        }
    }
}

/// A phrasing whose place was found, with its vector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phrasing {
    /// The words.
    pub text: String,
    /// What answers, or what the response does instead.
    pub leads_to: LeadsTo,
    /// The vector of the words by the reader, of length 1.
    pub vector: Vec<f32>,
}

/// What a phrasing leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeadsTo {
    /// Chunks of the documents, each by its id as evidence and its number.
    Chunks(Vec<(EvidenceId, u32)>),
    /// A row of a table, by its id as evidence.
    Row(EvidenceId),
    /// No evidence: what the response does.
    Action(Action),
}

/// A change of one phrasing on the topic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhrasingChange {
    /// The words.
    pub text: String,
    /// The phrasing; `None` withdraws the text, also where the file has it.
    pub phrasing: Option<Arc<Phrasing>>,
}

/// The phrasings of a company, as of one version. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Phrasings {
    /// Those of the file.
    base: Arc<[Arc<Phrasing>]>,
    /// What the topic says, by text.
    changed: BTreeMap<String, Option<Arc<Phrasing>>>,
    /// Those in effect: of the base those that the topic does not name, then the topic's.
    all: Vec<Arc<Phrasing>>,
}

/// How near a question is to the phrasings: the cosine of the nearest, by what they lead to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NearestPhrasings {
    evidence: FxHashMap<EvidenceId, f64>,
    chunks: FxHashMap<u32, f64>,
    /// The action of the nearest phrasing of all, if it leads to one.
    pub action: Option<(Action, f64)>,
}

impl Phrasing {
    /// Adds vectors to texts and what they lead to, in their order, on so many threads.
    ///
    /// # Errors
    /// The encoder failed.
    pub fn encode(
        phrasings: Vec<(String, LeadsTo)>,
        encoder: &dyn Encoder,
        threads: usize,
    ) -> Result<Vec<Arc<Self>>, EncodeError> {
        let texts: Vec<&str> = phrasings.iter().map(|(text, _)| &**text).collect();
        let vectors = encode_all(encoder, &texts, threads, &|_| ())?;
        let vectors = vectors.chunks_exact(encoder.dimensions().max(1));
        let all = phrasings.into_iter().zip(vectors);
        Ok(all
            .map(|((text, leads_to), vector)| {
                Arc::new(Self { text, leads_to, vector: vector.to_vec() })
            })
            .collect())
    }
}

impl Phrasings {
    /// The phrasings of a file.
    pub fn new(base: Vec<Arc<Phrasing>>) -> Self {
        Self { base: base.clone().into(), changed: BTreeMap::new(), all: base }
    }

    /// The number of texts that the topic changed.
    pub fn changed(&self) -> usize {
        self.changed.len()
    }

    /// These phrasings after changes, in the order of the log.
    #[must_use]
    pub fn with(&self, changes: Vec<PhrasingChange>) -> Self {
        let (base, mut changed) = (Arc::clone(&self.base), self.changed.clone());
        changed.extend(changes.into_iter().map(|change| (change.text, change.phrasing)));
        let kept = base.iter().filter(|phrasing| !changed.contains_key(&phrasing.text));
        let all = kept.chain(changed.values().flatten()).map(Arc::clone).collect();
        Self { base, changed, all }
    }

    /// How near they are to a question, by its vector of length 1.
    pub fn nearest(&self, question: &[f32]) -> NearestPhrasings {
        let mut found = NearestPhrasings::default();
        let mut best = 0.0;
        let comparable = |phrasing: &&Arc<Phrasing>| phrasing.vector.len() == question.len();
        for phrasing in self.all.iter().filter(comparable) {
            let products = phrasing.vector.iter().zip(question).map(|(a, b)| a * b);
            let cosine = f64::from(products.sum::<f32>().clamp(0.0, 1.0));
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
    use turnstream_ports::model::encoder::Encoded;

    use super::*;

    /// Counts "sea" and "bread", and divides by the length.
    struct Counting;

    impl Encoder for Counting {
        fn name(&self) -> &str {
            "counting"
        }

        fn fingerprint(&self) -> u64 {
            1
        }

        fn dimensions(&self) -> usize {
            2
        }

        fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
            for text in texts {
                let counts = ["sea", "bread"].map(|word| text.matches(word).count() as f32);
                let length = (counts[0] * counts[0] + counts[1] * counts[1]).sqrt().max(1.0);
                vectors.extend(counts.map(|count| count / length));
            }
            Ok(Encoded::default())
        }
    }

    fn id(id: &str) -> EvidenceId {
        EvidenceId(id.to_owned())
    }

    fn chunks(numbers: &[u32]) -> LeadsTo {
        LeadsTo::Chunks(numbers.iter().map(|at| (id(&format!("d/p#{at}")), *at)).collect())
    }

    fn encoded<const N: usize>(all: [(&str, LeadsTo); N]) -> Vec<Arc<Phrasing>> {
        let all = all.map(|(text, leads_to)| (text.to_owned(), leads_to));
        Phrasing::encode(all.into(), &Counting, 2).expect("vectors")
    }

    fn put<const N: usize>(all: [(&str, LeadsTo); N]) -> Vec<PhrasingChange> {
        let changes = encoded(all).into_iter();
        changes.map(|it| PhrasingChange { text: it.text.clone(), phrasing: Some(it) }).collect()
    }

    #[test]
    fn the_nearest_phrasing_counts() {
        let phrasings = Phrasings::new(encoded([
            ("sea", chunks(&[3, 4])),
            ("sea and bread", chunks(&[3])),
            ("bread", LeadsTo::Row(id("goods/8"))),
            ("bread bread sea", LeadsTo::Action(Action::Decline)),
        ]));
        let near = phrasings.nearest(&[1.0, 0.0]);
        assert_eq!(near.chunks(None), [(3, 1.0), (4, 1.0)].into());
        assert_eq!(near.chunks(Some(&[1, 4])), [(4, 1.0)].into());
        assert_eq!((near.of(&id("d/p#3")), near.of(&id("goods/8")), near.action), (1.0, 0.0, None));
        let near = phrasings.nearest(&[0.45, 0.9]);
        let action = near.action.map(|(action, cosine)| (action, cosine > 0.99));
        assert_eq!(action, Some((Action::Decline, true)));
        let another_encoder = phrasings.nearest(&[1.0]);
        assert_eq!(another_encoder, NearestPhrasings::default());
    }

    #[test]
    fn the_topic_overrides_the_file_text_by_text() {
        let file = Phrasings::new(encoded([
            ("sea", chunks(&[3])),
            ("sea", LeadsTo::Row(id("goods/1"))),
            ("bread", chunks(&[5])),
        ]));
        let taught = file.with(put([("sea", chunks(&[7])), ("bread and sea", chunks(&[8]))]));
        assert_eq!(taught.nearest(&[1.0, 0.0]).chunks(None).get(&7), Some(&1.0));
        assert_eq!(
            taught.nearest(&[1.0, 0.0]).chunks(None).get(&3),
            None,
            "the file's is replaced"
        );
        assert_eq!(taught.nearest(&[1.0, 0.0]).of(&id("goods/1")), 0.0, "each of that text is");
        assert_eq!(taught.nearest(&[0.0, 1.0]).chunks(None).get(&5), Some(&1.0));
        // The earlier version is as it was.
        assert_eq!(file.nearest(&[1.0, 0.0]).chunks(None), [(3, 1.0), (5, 0.0)].into());
        let withdraw = |text: &str| PhrasingChange { text: text.to_owned(), phrasing: None };
        let withdrawn = taught.with(vec![withdraw("sea"), withdraw("bread")]);
        assert_eq!(withdrawn.changed(), 3);
        let near = withdrawn.nearest(&[1.0, 0.0]);
        assert_eq!(near.chunks(None).into_keys().collect::<Vec<_>>(), [8]);
        // The later of two changes of one text applies.
        let again = withdrawn.with([put([("sea", chunks(&[9]))]), vec![withdraw("sea")]].concat());
        assert_eq!(again.nearest(&[1.0, 0.0]), near);
    }
}
