//! Ranks by the fusion: features of a dialogue and of the candidates for its next reply, and the
//! rankings trained on them.

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use turnstream_knowledge::terms::terms;
use turnstream_operators::bm25::{Bag, Statistics};
use turnstream_ports::model::encoder::{EncodeError, Encoder, encode_all};

use super::{EvalError, First, Record, best, read, records};
use crate::eval::retrieval::learned::{CandidateGroup, NeuralRanker};

/// Parts of the dialogue with separate features: the last user utterance, the reply before it, the
/// user utterance before that, and everything earlier.
const PARTS: usize = 4;
/// Single terms and bigrams.
const GRAMS: usize = 2;
/// BM25, the share of the query's weight that the text covers, and the share of the text's weight
/// that the query covers.
const MEASURES: usize = 3;

/// Ranks personas and the knowledge behind them by trained weights.
pub struct Fusion {
    weights: Weights,
    personas: NeuralRanker,
    documents: NeuralRanker,
}

/// Candidates by their positions in the record, best first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Sentences of the persona.
    pub personas: Vec<usize>,
    /// Pieces of knowledge behind any of them.
    pub documents: Vec<usize>,
}

impl Order {
    pub(super) fn first(&self) -> First {
        (self.personas.first().copied(), self.documents.first().copied())
    }
}

impl Fusion {
    /// Trains on a split. Later rankings must use the same lexicon.
    ///
    /// # Errors
    /// The file cannot be read, or has no reply that used any evidence; or the encoder failed.
    pub fn train(train: &Path, lexicon: &mut Lexicon<'_>) -> Result<Self, EvalError> {
        let records = records::<Record>(train)?;
        lexicon.encode(&records)?;
        let learning = read(train, &records, lexicon)?;
        let weights = Weights::of(&learning);
        let seen: Vec<Features> = learning.iter().map(|case| case.features(&weights)).collect();
        let groups = |rows: fn(&Features) -> &[Vec<f64>],
                      gold: fn(&ReplyCandidates) -> &BTreeSet<usize>| {
            let groups = seen.iter().zip(&learning);
            NeuralRanker::train(
                groups.map(|(seen, case)| CandidateGroup { rows: rows(seen), gold: gold(case) }),
            )
        };
        let personas = groups(|seen| &seen.personas, |case| &case.gold_personas);
        let documents = groups(|seen| &seen.documents, |case| &case.gold_documents);
        Ok(Self { weights, personas, documents })
    }

    /// Orders the candidates of every reply of a dialogue.
    pub(in crate::eval) fn orders(&self, record: &Record, lexicon: &mut Lexicon<'_>) -> Vec<Order> {
        cases(record, lexicon).iter().map(|case| self.order(case)).collect()
    }

    pub(super) fn order(&self, case: &ReplyCandidates) -> Order {
        let seen = case.features(&self.weights);
        Order {
            personas: self.personas.order(&seen.personas),
            documents: self.documents.order(&seen.documents),
        }
    }
}

/// Numbers terms and bigrams and, if it has an encoder, keeps the vectors of texts.
#[derive(Default)]
pub struct Lexicon<'e> {
    numbers: FxHashMap<String, u32>,
    /// The encoder, and on how many threads it encodes.
    encoder: Option<(&'e dyn Encoder, usize)>,
    /// Vectors of length 1, by text without spaces.
    vectors: FxHashMap<String, Rc<[f32]>>,
}

/// Some Chinese personas have spaces between words.
fn without_spaces(text: &str) -> String {
    text.split_whitespace().collect()
}

impl<'e> Lexicon<'e> {
    /// Makes a lexicon that compares texts by meaning too.
    pub fn with_encoder(encoder: &'e dyn Encoder, threads: usize) -> Self {
        Self { encoder: Some((encoder, threads)), ..Self::default() }
    }

    /// Encodes the utterances and candidates of records, if there is an encoder.
    ///
    /// # Errors
    /// The encoder failed.
    pub(super) fn encode(&mut self, records: &[Record]) -> Result<(), EncodeError> {
        let Some((encoder, threads)) = self.encoder else { return Ok(()) };
        let said = |record: &Record| -> Vec<String> {
            let exchanges = record.conversation.iter();
            let utterances = exchanges.flat_map(|exchange| [&exchange.user, &exchange.system]);
            let knowledge = record.persona_kg.values().flat_map(|texts| texts.values());
            let texts = utterances.chain(record.persona.values()).chain(knowledge);
            texts.map(|text| without_spaces(text)).collect()
        };
        let new = |text: &String| !self.vectors.contains_key(text);
        let texts: BTreeSet<String> = records.iter().flat_map(said).filter(new).collect();
        let given: Vec<&str> = texts.iter().map(String::as_str).collect();
        let numbers = encode_all(encoder, &given, threads, &|_| ())?;
        let vectors = numbers.chunks_exact(encoder.dimensions()).map(Rc::from);
        self.vectors.extend(texts.into_iter().zip(vectors));
        Ok(())
    }

    fn number(&mut self, term: String) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(term).or_insert(next)
    }

    /// Counts a text's terms and bigrams.
    fn read(&mut self, text: &str) -> Text {
        let text = without_spaces(text);
        let vector = self.vectors.get(&text).cloned();
        let terms = terms(&text);
        let pairs = terms.windows(2).map(|pair| pair.join(" ")).collect::<Vec<_>>();
        let mut bag =
            |terms: Vec<String>| terms.into_iter().map(|term| self.number(term)).collect();
        Text { bags: [bag(terms), bag(pairs)], vector }
    }
}

/// A text.
struct Text {
    /// Its terms and its bigrams.
    bags: [Bag<u32>; GRAMS],
    /// Its vector, if it was encoded.
    vector: Option<Rc<[f32]>>,
}

/// Statistics of a training split.
struct Weights([Statistics<u32>; GRAMS]);

impl Weights {
    fn of(cases: &[ReplyCandidates]) -> Self {
        let bags = |kind: usize| {
            let texts =
                cases.iter().filter(|case| case.first).flat_map(ReplyCandidates::candidates);
            Statistics::of(texts.map(move |text| &text.bags[kind]))
        };
        Self([bags(0), bags(1)])
    }

    /// Returns the features of a text against the parts of a dialogue: its measures by words and, if
    /// texts were encoded, its cosine to each part that is one utterance, else 0.
    fn matches(&self, parts: &[Text; PARTS], text: &Text) -> Vec<f64> {
        let mut measures = Vec::with_capacity(PARTS * (GRAMS * MEASURES + 1));
        for part in parts {
            for (kind, statistics) in self.0.iter().enumerate() {
                let (query, text) = (&part.bags[kind], &text.bags[kind]);
                measures.push(statistics.bm25(query, text) / 10.0);
                measures.push(statistics.share(query, text));
                measures.push(statistics.share(text, query));
            }
        }
        if let Some(vector) = &text.vector {
            let cosine = |other: &Text| {
                let pairs = other.vector.iter().flat_map(|other| vector.iter().zip(&**other));
                pairs.map(|(a, b)| f64::from(a * b)).sum::<f64>()
            };
            measures.extend(parts.iter().map(cosine));
        }
        measures
    }
}

/// The features of the candidates, one row each.
struct Features {
    personas: Vec<Vec<f64>>,
    documents: Vec<Vec<f64>>,
}

/// The state before a reply.
pub(super) struct ReplyCandidates {
    /// Whether the reply used any evidence.
    pub(super) is_grounded: bool,
    /// Whether it is the first such reply of its dialogue.
    first: bool,
    parts: [Text; PARTS],
    personas: Rc<Vec<Text>>,
    /// Documents with the index of their persona.
    documents: Rc<Vec<(usize, Text)>>,
    pub(super) gold_personas: BTreeSet<usize>,
    pub(super) gold_documents: BTreeSet<usize>,
}

/// Returns a dialogue's cases, one per reply.
pub(super) fn cases(record: &Record, lexicon: &mut Lexicon<'_>) -> Vec<ReplyCandidates> {
    let ids: Vec<&String> = record.persona.keys().collect();
    let personas: Vec<Text> = record.persona.values().map(|text| lexicon.read(text)).collect();
    let (mut places, mut documents) = (FxHashMap::default(), Vec::new());
    for (at, id) in ids.iter().enumerate() {
        for (below, text) in record.persona_kg.get(*id).into_iter().flatten() {
            places.insert(format!("{id}-{below}"), documents.len());
            documents.push((at, lexicon.read(text)));
        }
    }
    let (personas, documents) = (Rc::new(personas), Rc::new(documents));
    let (mut said, mut cases) = (Vec::<&str>::new(), Vec::new());
    let mut is_first = true;
    for exchange in &record.conversation {
        let used: Vec<&String> = exchange.used.iter().flatten().collect();
        let gold_personas =
            used.iter().filter_map(|id| ids.iter().position(|it| it == id)).collect();
        let gold_documents = used.iter().filter_map(|id| places.get(*id).copied()).collect();
        let back = |at: usize| said.len().checked_sub(at).map_or("", |at| said[at]);
        let earlier = said[..said.len().saturating_sub(2)].concat();
        let parts = [exchange.user.as_str(), back(1), back(2), &earlier];
        let is_grounded = !used.is_empty();
        let first = is_grounded && std::mem::take(&mut is_first);
        cases.push(ReplyCandidates {
            is_grounded,
            first,
            parts: parts.map(|part| lexicon.read(part)),
            personas: personas.clone(),
            documents: documents.clone(),
            gold_personas,
            gold_documents,
        });
        said.extend([exchange.user.as_str(), exchange.system.as_str()]);
    }
    cases
}

impl ReplyCandidates {
    fn candidates(&self) -> impl Iterator<Item = &Text> {
        self.personas.iter().chain(self.documents.iter().map(|(_, text)| text))
    }

    /// Returns the first persona and the first document by BM25 over the last user utterance.
    pub(super) fn by_bm25(&self) -> First {
        let query = &self.parts[0].bags[0];
        let first = |texts: Vec<&Bag<u32>>| {
            let statistics = Statistics::of(texts.iter().copied());
            best(texts.iter().map(|text| statistics.bm25(query, text)))
        };
        let personas = self.personas.iter().map(|text| &text.bags[0]).collect();
        let documents = self.documents.iter().map(|(_, text)| &text.bags[0]).collect();
        (first(personas), first(documents))
    }

    /// Computes the features. A persona has its own match with the dialogue, and the best and the
    /// mean match of the documents behind it. A document has its own match, the match of its
    /// persona, and how much better its best neighbour matches.
    fn features(&self, weights: &Weights) -> Features {
        let own: Vec<Vec<f64>> =
            self.personas.iter().map(|text| weights.matches(&self.parts, text)).collect();
        let documents: Vec<Vec<f64>> =
            self.documents.iter().map(|(_, text)| weights.matches(&self.parts, text)).collect();
        let none = vec![0.0_f64; own.first().map_or(0, Vec::len)];
        let (mut most, mut mean) = (vec![none.clone(); own.len()], vec![none; own.len()]);
        let mut behind = vec![0.0_f64; own.len()];
        for ((persona, _), row) in self.documents.iter().zip(&documents) {
            behind[*persona] += 1.0;
            for (at, value) in row.iter().enumerate() {
                most[*persona][at] = most[*persona][at].max(*value);
                mean[*persona][at] += value;
            }
        }
        for (row, count) in mean.iter_mut().zip(&behind) {
            row.iter_mut().for_each(|value| *value /= count.max(1.0));
        }
        let personas = own.iter().zip(&most).zip(&mean);
        let personas =
            personas.map(|((own, most), mean)| [&own[..], most, mean].concat()).collect();
        let documents = self.documents.iter().zip(&documents).map(|((persona, _), row)| {
            let ahead: Vec<f64> =
                most[*persona].iter().zip(row).map(|(most, value)| most - value).collect();
            [&row[..], &own[*persona], &ahead].concat()
        });
        Features { personas, documents: documents.collect() }
    }
}
