//! Measures retrieval on KBP: the persona sentence, and the knowledge behind it, that the next
//! reply uses.
//!
//! Before every reply, the sentences of the answering side's persona are ranked, and all knowledge
//! behind any of them. The gold items are those that the reply used, and recall@1 is the share of
//! replies whose first item is gold. As in UniMS-RAG: *persona* over replies that used a persona
//! alone, *both persona* and *both documents* over replies that used both. Replies that used
//! nothing are left out.
//!
//! There are three retrievers. *BM25* compares the last user utterance alone, by characters, with
//! statistics of the candidates themselves. *Fusion* compares the whole dialogue by words and by
//! meaning, scores a persona together with the knowledge behind it (the reverse of PK-ICR's idea),
//! and weighs its features by weights trained on a training split. The weights are not saved: KBP
//! states no licence, so nothing trained on it may ship. *Stage* is the flow's own persona retrieval
//! as configured; it ranks personas only.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use turnstream_operators::embedding::EmbeddingConfig;
use turnstream_operators::persona_retrieval::PersonaRetrievalConfig;
use turnstream_ports::model::encoder::Encoder;

use super::{EvalError, records};

mod fusion;
mod stage;

pub use fusion::{Fusion, Lexicon, Order};
use fusion::{ReplyCandidates, cases};

/// A dialogue.
#[derive(Deserialize)]
pub(in crate::eval) struct Record {
    /// The sentences of the answering side's persona, by id.
    pub(in crate::eval) persona: BTreeMap<String, String>,
    /// The knowledge behind each sentence, by its own id.
    #[serde(default)]
    pub(in crate::eval) persona_kg: BTreeMap<String, BTreeMap<String, String>>,
    /// The exchanges.
    pub(in crate::eval) conversation: Vec<Exchange>,
}

/// A user's utterance with the reply.
#[derive(Deserialize)]
pub(in crate::eval) struct Exchange {
    /// The user's utterance.
    #[serde(rename = "U")]
    pub(in crate::eval) user: String,
    /// The reply.
    #[serde(rename = "S")]
    pub(in crate::eval) system: String,
    /// The ids of the evidence that the reply used: none, sentences, or sentences and knowledge.
    #[serde(rename = "P-K")]
    pub(in crate::eval) used: Vec<Vec<String>>,
}

/// Recall@1 as fractions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RecallFigures {
    /// Replies that used any evidence.
    pub n: usize,
    /// Persona, over replies that used it alone.
    pub persona: f64,
    /// Persona, over replies that used both.
    pub both_persona: f64,
    /// Knowledge, over replies that used both; `None` if the retriever does not rank it.
    pub both_documents: Option<f64>,
}

/// The retriever.
#[derive(Clone, Copy)]
pub enum KbpRetriever<'a> {
    /// By BM25.
    Bm25,
    /// By trained weights.
    Fusion {
        /// The training split.
        train: &'a Path,
        /// The encoder, and on how many threads it encodes; without one, only words are compared.
        encoder: Option<(&'a dyn Encoder, usize)>,
    },
    /// By the stage `persona_retrieval`.
    Stage(Stage<'a>),
}

/// The setting of the stage.
#[derive(Clone, Copy)]
pub struct Stage<'a> {
    /// The stage's configuration.
    pub config: &'a PersonaRetrievalConfig,
    /// The embedding of dialogues.
    pub embedding: &'a EmbeddingConfig,
    /// The encoder; without one, only words are compared.
    pub encoder: Option<&'a dyn Encoder>,
}

/// The first persona and the first document of two rankings.
type First = (Option<usize>, Option<usize>);
/// Whether the first items of rankings are right.
type IsRight<'r> = &'r dyn Fn(&ReplyCandidates, First) -> bool;

/// Ranks the candidates before every reply of `data` that used any evidence.
///
/// # Errors
/// A file cannot be read, or has no such reply.
pub fn evaluate(data: &Path, retriever: KbpRetriever<'_>) -> Result<RecallFigures, EvalError> {
    let mut lexicon = match retriever {
        KbpRetriever::Fusion { encoder: Some((encoder, threads)), .. } => {
            Lexicon::with_encoder(encoder, threads)
        }
        _ => Lexicon::default(),
    };
    let records = records::<Record>(data)?;
    lexicon.encode(&records)?;
    let cases = read(data, &records, &mut lexicon)?;
    let rankings: Vec<First> = match retriever {
        KbpRetriever::Stage(stage) => {
            let firsts = records.iter().map(|record| stage.firsts(record));
            let firsts = firsts.collect::<Result<Vec<_>, _>>()?;
            firsts.into_iter().flatten().map(|first| (first, None)).collect()
        }
        KbpRetriever::Bm25 => cases.iter().map(ReplyCandidates::by_bm25).collect(),
        KbpRetriever::Fusion { train, .. } => {
            let fusion = Fusion::train(train, &mut lexicon)?;
            cases.iter().map(|case| fusion.order(case).first()).collect()
        }
    };
    let figures = figures(&cases, &rankings);
    Ok(match retriever {
        KbpRetriever::Stage(_) => RecallFigures { both_documents: None, ..figures },
        _ => figures,
    })
}

/// Returns the replies of a file's records that used any evidence.
fn read(
    path: &Path,
    records: &[Record],
    lexicon: &mut Lexicon<'_>,
) -> Result<Vec<ReplyCandidates>, EvalError> {
    let cases = records.iter().flat_map(|record| cases(record, lexicon));
    let cases: Vec<ReplyCandidates> = cases.filter(|case| case.is_grounded).collect();
    if cases.is_empty() { Err(EvalError::Nothing { path: path.to_owned() }) } else { Ok(cases) }
}

fn figures(cases: &[ReplyCandidates], rankings: &[First]) -> RecallFigures {
    let share = |both: bool, right: IsRight<'_>| {
        let of: Vec<bool> = cases
            .iter()
            .zip(rankings)
            .filter(|(case, _)| case.gold_documents.is_empty() != both)
            .map(|(case, first)| right(case, *first))
            .collect();
        of.iter().filter(|right| **right).count() as f64 / of.len().max(1) as f64
    };
    let persona = |case: &ReplyCandidates, first: First| {
        first.0.is_some_and(|first| case.gold_personas.contains(&first))
    };
    let documents = |case: &ReplyCandidates, first: First| {
        first.1.is_some_and(|first| case.gold_documents.contains(&first))
    };
    RecallFigures {
        n: cases.len(),
        persona: share(false, &persona),
        both_persona: share(true, &persona),
        both_documents: Some(share(true, &documents)),
    }
}

/// Returns the index of the largest score, the first of equals.
fn best(scores: impl Iterator<Item = f64>) -> Option<usize> {
    let mut best: Option<(f64, usize)> = None;
    for (at, score) in scores.enumerate() {
        if best.is_none_or(|(most, _)| score > most) {
            best = Some((score, at));
        }
    }
    best.map(|(_, at)| at)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use turnstream_ports::model::encoder::{EncodeError, Encoded};

    use super::*;

    /// Knows which of three things a text is about, in whatever words.
    struct OfThings;

    const THINGS: [[&str; 2]; 3] = [["海", "浪"], ["面包", "烤箱"], ["山", "峰顶"]];

    impl Encoder for OfThings {
        fn name(&self) -> &'static str {
            "things"
        }

        fn fingerprint(&self) -> u64 {
            1
        }

        fn dimensions(&self) -> usize {
            THINGS.len()
        }

        fn encode(&self, texts: &[&str], out: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
            for text in texts {
                let is_about = |words: &[&str; 2]| words.iter().any(|word| text.contains(word));
                out.extend(THINGS.iter().map(|words| f32::from(u8::from(is_about(words)))));
            }
            Ok(Encoded::default())
        }
    }

    #[test]
    fn the_fusion_compares_by_meaning_if_it_has_an_encoder() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for at in 0..60 {
            // The user's word is never the persona's.
            let persona: BTreeMap<String, String> = THINGS
                .iter()
                .enumerate()
                .map(|(at, [own, _])| (at.to_string(), format!("我 爱 {own}")))
                .collect();
            let user = format!("{}呢？", THINGS[at % 3][1]);
            let exchange =
                serde_json::json!({ "U": user, "S": "好。", "P-K": [[(at % 3).to_string()]] });
            let record = serde_json::json!({ "persona": persona, "conversation": [exchange] });
            writeln!(file, "{record}").unwrap();
        }
        let found = |encoder| {
            let retriever = KbpRetriever::Fusion { train: file.path(), encoder };
            evaluate(file.path(), retriever).unwrap().persona
        };
        assert!(found(None) < 0.5, "words say nothing");
        assert!((found(Some((&OfThings as &dyn Encoder, 2))) - 1.0).abs() < 1e-9);
    }
}
