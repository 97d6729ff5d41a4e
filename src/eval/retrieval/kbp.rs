//! KBP: are the persona sentence and the knowledge behind it found that the next reply rests on?
//!
//! Before every reply the sentences of the answering side's persona are ranked, and everything
//! known behind any of them; what the reply used is gold, and recall@1 is the share of replies for
//! which the first of a ranking is gold. As in UniMS-RAG (METHODS' table): *persona* over replies
//! that used a persona alone, *both persona* and *both documents* over those that used both.
//! Replies that used nothing are left out.
//!
//! Three retrievers. *BM25* looks at the last user utterance alone, by characters, and takes its
//! statistics from the candidates themselves. *Fusion* looks at the whole dialogue, scores a
//! persona together with the knowledge behind it (PK-ICR's idea the other way round) and weighs
//! what it sees by weights learned from a training split, which are not kept: KBP states no
//! licence, so nothing learned from it may ship. *Stage* is the flow's own persona retrieval, as it
//! is configured; it ranks personas alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use turnstream_operators::bm25::{Bag, Statistics};
use turnstream_operators::embedding::EmbeddingConfig;
use turnstream_operators::persona_retrieval::PersonaRetrievalConfig;
use turnstream_operators::terms::terms;

use super::learned::{Group, Ranker};
use super::{EvalError, records};
use crate::model::encoder::Encoder;

mod stage;

/// Parts of the dialogue that are looked at apart: the last user utterance, the reply before it,
/// the user utterance before that, and everything earlier.
const PARTS: usize = 4;
/// Single terms and pairs of neighbours.
const GRAMS: usize = 2;
/// BM25, the share of the query's weight that is found, the share of the text's weight that is
/// asked for.
const MEASURES: usize = 3;
const MATCH: usize = PARTS * GRAMS * MEASURES;

/// A dialogue.
#[derive(Deserialize)]
pub(in crate::eval) struct Record {
    /// The sentences of who answers, by id.
    pub(in crate::eval) persona: BTreeMap<String, String>,
    /// What is known behind each of them, by its own id.
    #[serde(default)]
    pub(in crate::eval) persona_kg: BTreeMap<String, BTreeMap<String, String>>,
    /// What is said.
    pub(in crate::eval) conversation: Vec<Exchange>,
}

/// What the user says, and the reply.
#[derive(Deserialize)]
pub(in crate::eval) struct Exchange {
    /// The user's words.
    #[serde(rename = "U")]
    pub(in crate::eval) user: String,
    /// The reply.
    #[serde(rename = "S")]
    pub(in crate::eval) system: String,
    /// What the reply used: nothing, sentences, or sentences and knowledge.
    #[serde(rename = "P-K")]
    pub(in crate::eval) used: Vec<Vec<String>>,
}

/// Recall@1, fractions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Replies that used anything.
    pub n: usize,
    /// Of the persona, where it alone was used.
    pub persona: f64,
    /// Of the persona, where both were used.
    pub both_persona: f64,
    /// Of the knowledge, where both were used; `None` where it is not ranked.
    pub both_documents: Option<f64>,
}

/// How candidates are ranked.
#[derive(Clone, Copy)]
pub enum Retriever<'a> {
    /// By BM25.
    Bm25,
    /// By weights learned from this split.
    Fusion {
        /// The training split.
        train: &'a Path,
    },
    /// As the stage `persona_retrieval` does it.
    Stage(Stage<'a>),
}

/// How the stage is run.
#[derive(Clone, Copy)]
pub struct Stage<'a> {
    /// How it searches.
    pub config: &'a PersonaRetrievalConfig,
    /// How dialogues are embedded for it.
    pub embedding: &'a EmbeddingConfig,
    /// What gives sentences and dialogues vectors; words alone where there is nothing.
    pub encoder: Option<&'a dyn Encoder>,
}

/// The first persona and the first document of two rankings.
type First = (Option<usize>, Option<usize>);
/// Whether the first of a ranking is right.
type IsRight<'r> = &'r dyn Fn(&Case, First) -> bool;

/// Ranks the candidates before every reply of `data` that used any.
///
/// # Errors
/// A file cannot be read, or has no such reply.
pub fn evaluate(data: &Path, retriever: Retriever<'_>) -> Result<Figures, EvalError> {
    let mut lexicon = Lexicon::default();
    let records = records::<Record>(data)?;
    let cases = read(data, &records, &mut lexicon)?;
    let rankings: Vec<First> = match retriever {
        Retriever::Stage(stage) => {
            let firsts = records.iter().map(|record| stage.firsts(record));
            let firsts = firsts.collect::<Result<Vec<_>, _>>()?;
            firsts.into_iter().flatten().map(|first| (first, None)).collect()
        }
        Retriever::Bm25 => cases.iter().map(Case::by_bm25).collect(),
        Retriever::Fusion { train } => {
            let learning = read(train, &super::records::<Record>(train)?, &mut lexicon)?;
            let weights = Weights::of(&learning);
            let seen: Vec<Features> = learning.iter().map(|case| case.features(&weights)).collect();
            let personas = Ranker::train(
                seen.iter()
                    .zip(&learning)
                    .map(|(seen, case)| Group { rows: &seen.personas, gold: &case.gold_personas }),
            );
            let documents =
                Ranker::train(seen.iter().zip(&learning).map(|(seen, case)| Group {
                    rows: &seen.documents,
                    gold: &case.gold_documents,
                }));
            let rank = |case: &Case| {
                let seen = case.features(&weights);
                (personas.first(&seen.personas), documents.first(&seen.documents))
            };
            cases.iter().map(rank).collect()
        }
    };
    let figures = figures(&cases, &rankings);
    Ok(match retriever {
        Retriever::Stage(_) => Figures { both_documents: None, ..figures },
        _ => figures,
    })
}

/// The cases of a file's records.
fn read(path: &Path, records: &[Record], lexicon: &mut Lexicon) -> Result<Vec<Case>, EvalError> {
    let cases: Vec<Case> = records.iter().flat_map(|record| cases(record, lexicon)).collect();
    if cases.is_empty() { Err(EvalError::Nothing { path: path.to_owned() }) } else { Ok(cases) }
}

fn figures(cases: &[Case], rankings: &[First]) -> Figures {
    let share = |both: bool, right: IsRight<'_>| {
        let of: Vec<bool> = cases
            .iter()
            .zip(rankings)
            .filter(|(case, _)| case.gold_documents.is_empty() != both)
            .map(|(case, first)| right(case, *first))
            .collect();
        of.iter().filter(|right| **right).count() as f64 / of.len().max(1) as f64
    };
    let persona = |case: &Case, first: First| {
        first.0.is_some_and(|first| case.gold_personas.contains(&first))
    };
    let documents = |case: &Case, first: First| {
        first.1.is_some_and(|first| case.gold_documents.contains(&first))
    };
    Figures {
        n: cases.len(),
        persona: share(false, &persona),
        both_persona: share(true, &persona),
        both_documents: Some(share(true, &documents)),
    }
}

/// Numbers for terms and for pairs of neighbours.
#[derive(Default)]
struct Lexicon {
    numbers: FxHashMap<String, u32>,
}

impl Lexicon {
    fn number(&mut self, term: String) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(term).or_insert(next)
    }

    /// A text's terms, and its pairs of neighbours, each with how often it stands there.
    fn read(&mut self, text: &str) -> Text {
        // Words stand apart in some of the personas; nobody writes so.
        let terms = terms(&text.split_whitespace().collect::<String>());
        let pairs = terms.windows(2).map(|pair| pair.join(" ")).collect::<Vec<_>>();
        let mut bag =
            |terms: Vec<String>| terms.into_iter().map(|term| self.number(term)).collect();
        Text([bag(terms), bag(pairs)])
    }
}

/// A text as bags of single terms and of pairs.
struct Text([Bag<u32>; GRAMS]);

/// Statistics of a training split.
struct Weights([Statistics<u32>; GRAMS]);

impl Weights {
    fn of(cases: &[Case]) -> Self {
        let bags = |kind: usize| {
            let texts = cases.iter().filter(|case| case.first).flat_map(Case::candidates);
            Statistics::of(texts.map(move |text| &text.0[kind]))
        };
        Self([bags(0), bags(1)])
    }

    /// How well a text meets the parts of a dialogue.
    fn matches(&self, parts: &[Text; PARTS], text: &Text) -> Vec<f64> {
        let mut measures = Vec::with_capacity(MATCH);
        for part in parts {
            for (kind, statistics) in self.0.iter().enumerate() {
                let (query, text) = (&part.0[kind], &text.0[kind]);
                measures.push(statistics.bm25(query, text) / 10.0);
                measures.push(statistics.share(query, text));
                measures.push(statistics.share(text, query));
            }
        }
        measures
    }
}

/// What a candidate is judged by, a row each.
struct Features {
    personas: Vec<Vec<f64>>,
    documents: Vec<Vec<f64>>,
}

/// The moment before a reply that used something.
struct Case {
    /// The first of its dialogue.
    first: bool,
    parts: [Text; PARTS],
    personas: Rc<Vec<Text>>,
    /// Each with the persona that it stands behind.
    documents: Rc<Vec<(usize, Text)>>,
    gold_personas: BTreeSet<usize>,
    gold_documents: BTreeSet<usize>,
}

fn cases(record: &Record, lexicon: &mut Lexicon) -> Vec<Case> {
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
    for exchange in &record.conversation {
        let used: Vec<&String> = exchange.used.iter().flatten().collect();
        if !used.is_empty() {
            let gold_personas =
                used.iter().filter_map(|id| ids.iter().position(|it| it == id)).collect();
            let gold_documents = used.iter().filter_map(|id| places.get(*id).copied()).collect();
            let back = |at: usize| said.len().checked_sub(at).map_or("", |at| said[at]);
            let earlier = said[..said.len().saturating_sub(2)].concat();
            let parts = [exchange.user.as_str(), back(1), back(2), &earlier];
            cases.push(Case {
                first: cases.is_empty(),
                parts: parts.map(|part| lexicon.read(part)),
                personas: personas.clone(),
                documents: documents.clone(),
                gold_personas,
                gold_documents,
            });
        }
        said.extend([exchange.user.as_str(), exchange.system.as_str()]);
    }
    cases
}

impl Case {
    fn candidates(&self) -> impl Iterator<Item = &Text> {
        self.personas.iter().chain(self.documents.iter().map(|(_, text)| text))
    }

    /// The first persona and the first document by BM25 over the last user utterance.
    fn by_bm25(&self) -> First {
        let query = &self.parts[0].0[0];
        let first = |texts: Vec<&Bag<u32>>| {
            let statistics = Statistics::of(texts.iter().copied());
            best(texts.iter().map(|text| statistics.bm25(query, text)))
        };
        let personas = self.personas.iter().map(|text| &text.0[0]).collect();
        let documents = self.documents.iter().map(|(_, text)| &text.0[0]).collect();
        (first(personas), first(documents))
    }

    /// What the candidates are judged by. A persona: how it meets the dialogue, and how the best
    /// and the mean of what is behind it do. A document: how it meets the dialogue, how its
    /// persona does, and how much better the best of its neighbours does.
    fn features(&self, weights: &Weights) -> Features {
        let own: Vec<Vec<f64>> =
            self.personas.iter().map(|text| weights.matches(&self.parts, text)).collect();
        let documents: Vec<Vec<f64>> =
            self.documents.iter().map(|(_, text)| weights.matches(&self.parts, text)).collect();
        let mut most = vec![vec![0.0_f64; MATCH]; own.len()];
        let mut mean = vec![vec![0.0_f64; MATCH]; own.len()];
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

/// The place of the largest score, the first of equals.
pub(super) fn best(scores: impl Iterator<Item = f64>) -> Option<usize> {
    let mut best: Option<(f64, usize)> = None;
    for (at, score) in scores.enumerate() {
        if best.is_none_or(|(most, _)| score > most) {
            best = Some((score, at));
        }
    }
    best.map(|(_, at)| at)
}
