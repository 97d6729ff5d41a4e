//! Measures responses by DCRAG's tables, by common measures against references, and by a language
//! model as judge. `docs/generation.md` has every definition.
//!
//! The input is a replay's output ([`material`]) and optionally the replayed log. The history of a
//! response is the turns of its conversation up to the turn that it answers, and its reference is
//! the next turn in the log. Nothing here is part of the flow.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
use turnstream_knowledge::View;
use turnstream_schemas::ConfidenceKind;

pub mod bleu;
pub mod distinct;
pub mod facts;
pub mod grounding;
pub mod judge;
pub mod material;
pub mod overlap;
pub mod rouge;
#[cfg(test)]
mod tests;
pub mod tokens;

use distinct::Bigrams;
use facts::Named;
use grounding::{Spoken, grounding};
use material::{Answer, Log, Place};
use tokens::Tokenisation;
use turnstream_formats::FormatError;

use super::bootstrap::{Conversations, Mean};

/// Why responses cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum GenerationError {
    /// The file of responses cannot be read.
    #[error("cannot read {path}: {source}; check the path and its permissions", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A line is not a response.
    #[error("{path}:{line}: {reason}; `turnstream replay --out` writes such files", path = path.display())]
    NoResponse {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The problem.
        reason: String,
    },
    /// The file has no response.
    #[error("{path} has no response; did the replay answer anything?", path = path.display())]
    NoResponses {
        /// The file.
        path: PathBuf,
    },
    /// A response belongs to another log.
    #[error(
        "{path} has no user turn {turn} in conversation {conversation}, which a response answers; give --references the log that was replayed, and its --format",
        path = path.display()
    )]
    OtherLog {
        /// The log.
        path: PathBuf,
        /// The response's conversation.
        conversation: String,
        /// The answered turn.
        turn: String,
    },
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] FormatError),
    /// Another error.
    #[error(transparent)]
    Other(super::retrieval::EvalError),
}

/// A mean confidence, with the number of responses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Confidence {
    /// The mean.
    pub mean: f64,
    /// Responses with a confidence of this kind.
    pub n: u64,
}

/// The figures of responses. A figure is `None` without the log, the references or the responses
/// that it needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MeasuredGeneration {
    /// Responses.
    pub n: usize,
    /// Responses with a reference, over which BLEU, ROUGE and F1 are computed.
    pub references: usize,
    /// The tokenisation: `13a` or `zh` ([`Tokenisation`]).
    pub tokenisation: &'static str,
    /// Distinct-2 of all responses ([`distinct`]).
    pub distinct_2: Option<f64>,
    /// The mean Distinct-2 of samples of 300 responses.
    pub distinct_2_of_300: Option<f64>,
    /// The share of responses with a fact tuple ([`facts`]).
    pub cdp: Option<f64>,
    /// The mean over responses of the summed IDF of their fact tuples.
    pub cdf: Option<f64>,
    /// The mean share of a reference's fact tuples that were selected for the response, over the
    /// references with a tuple.
    pub reference_facts: Option<f64>,
    /// BLEU of single words, 0..=100 ([`bleu`]).
    pub bleu_1: Option<f64>,
    /// BLEU of up to four words, 0..=100.
    pub bleu_4: Option<f64>,
    /// ROUGE-1 F ([`rouge`]).
    pub rouge_1: Option<f64>,
    /// ROUGE-2 F.
    pub rouge_2: Option<f64>,
    /// ROUGE-L F.
    pub rouge_l: Option<f64>,
    /// Token F1 ([`overlap`]).
    pub f1: Option<f64>,
    /// The mean share of a response's content words in its evidence or the history
    /// ([`mod@grounding`]).
    pub grounded_words: Option<f64>,
    /// The share of responses with all content words in their evidence or the history.
    pub grounded_responses: Option<f64>,
    /// The mean share of a response's content words in its evidence alone.
    pub evidence_words: Option<f64>,
    /// The mean confidence by kind, over the responses that have one.
    pub confidence: BTreeMap<&'static str, Confidence>,
    /// 95 % intervals by figure ([`bootstrap`](super::bootstrap)).
    pub intervals: BTreeMap<&'static str, [f64; 2]>,
}

/// The replayed log, the place of each response in it, and the graph.
pub struct Beside<'l> {
    /// The log.
    pub log: &'l Log,
    /// The place of each response.
    pub places: &'l [Place],
    /// The graph whose facts are searched for.
    pub graph: View<'l>,
}

/// Measures responses; figures about references and facts need `beside`.
pub fn measure(answers: &[Answer], beside: Option<&Beside<'_>>) -> MeasuredGeneration {
    let tokenisation = Tokenisation::of_corpus(answers.iter().map(|answer| &*answer.text));
    let bigrams = Bigrams::new(tokenisation, answers.iter().map(|answer| &*answer.text));
    let mut figures = FigureSet {
        conversations: Conversations::new(answers.iter().map(|answer| &answer.conversation_id)),
        measured: MeasuredGeneration {
            n: answers.len(),
            tokenisation: tokenisation.name(),
            distinct_2: bigrams.of_all(),
            distinct_2_of_300: bigrams.of_samples(),
            confidence: confidence(answers),
            ..MeasuredGeneration::default()
        },
    };
    if let Some(beside) = beside {
        figures.of_facts(answers, beside);
        figures.of_references(answers, beside, tokenisation);
    }
    figures.of_words(answers, beside);
    figures.measured
}

/// The figures so far.
struct FigureSet {
    conversations: Conversations,
    measured: MeasuredGeneration,
}

impl FigureSet {
    /// Returns the mean of at most one value per response, and records its interval.
    fn mean(
        &mut self,
        name: &'static str,
        values: impl Iterator<Item = Option<f64>>,
    ) -> Option<f64> {
        let parts: Vec<Option<Mean>> = values.map(|value| value.map(Mean::from)).collect();
        let (mean, interval) = self.conversations.figure(&parts, Mean::value);
        self.measured.intervals.extend(interval.map(|interval| (name, interval)));
        mean
    }

    fn of_facts(&mut self, answers: &[Answer], beside: &Beside<'_>) {
        let named = Named::new(beside.graph, beside.log);
        let tuples: Vec<(bool, f64)> = answers
            .iter()
            .zip(beside.places)
            .map(|(answer, place)| {
                let tuples = named.tuples(beside.graph, *place, &answer.text);
                (!tuples.is_empty(), tuples.iter().map(|tuple| named.idf(*tuple)).sum())
            })
            .collect();
        let any = tuples.iter().map(|(any, _)| Some(f64::from(u8::from(*any))));
        self.measured.cdp = self.mean("cdp", any);
        self.measured.cdf = self.mean("cdf", tuples.iter().map(|(_, idf)| Some(*idf)));
        let selected = answers.iter().zip(beside.places).map(|(answer, place)| {
            let tuples = named.tuples(beside.graph, *place, beside.log.reference(*place)?);
            let is_selected = |(head, relation, tail): &&facts::Tuple| {
                let [head, tail] = [head, tail].map(|end| beside.graph.concept(*end).to_owned());
                let relation = beside.graph.relation(*relation).name.to_owned();
                answer.facts.contains(&[head, relation, tail])
            };
            let selected = tuples.iter().filter(is_selected).count();
            (!tuples.is_empty()).then(|| selected as f64 / tuples.len() as f64)
        });
        self.measured.reference_facts = self.mean("reference_facts", selected);
    }

    fn of_references(&mut self, answers: &[Answer], beside: &Beside<'_>, by: Tokenisation) {
        let references: Vec<Option<&str>> =
            beside.places.iter().map(|place| beside.log.reference(*place)).collect();
        let pairs = || {
            let pairs = answers.iter().zip(&references);
            pairs.map(|(answer, reference)| reference.map(|text| (&*answer.text, text)))
        };
        self.measured.references = references.iter().flatten().count();

        let counts: Vec<Option<bleu::BleuCounts>> = pairs()
            .map(|pair| {
                pair.map(|(text, other)| bleu::BleuCounts::of(&by.bleu(text), &by.bleu(other)))
            })
            .collect();
        let has_references = self.measured.references > 0;
        let mut of_order = |name, order| {
            let bleu = |counts: &bleu::BleuCounts| has_references.then(|| counts.bleu(order));
            let (bleu, interval) = self.conversations.figure(&counts, bleu);
            self.measured.intervals.extend(interval.map(|interval| (name, interval)));
            bleu
        };
        (self.measured.bleu_1, self.measured.bleu_4) =
            (of_order("bleu_1", 1), of_order("bleu_4", 4));

        let tokens: Vec<_> = pairs()
            .map(|pair| pair.map(|(text, other)| (by.rouge(text), by.rouge(other))))
            .collect();
        let of_pairs = |score: &dyn Fn(&[String], &[String]) -> f64| {
            let score = |pair: &Option<(Vec<String>, Vec<String>)>| {
                pair.as_ref().map(|(text, other)| score(text, other))
            };
            tokens.iter().map(score).collect::<Vec<_>>()
        };
        let (one, two) =
            (of_pairs(&|a, b| rouge::rouge_n(1, a, b)), of_pairs(&|a, b| rouge::rouge_n(2, a, b)));
        let longest = of_pairs(&rouge::rouge_l);
        self.measured.rouge_1 = self.mean("rouge_1", one.into_iter());
        self.measured.rouge_2 = self.mean("rouge_2", two.into_iter());
        self.measured.rouge_l = self.mean("rouge_l", longest.into_iter());
        let f1 = pairs()
            .map(|pair| pair.map(|(text, other)| overlap::f1(&by.f1(text), &by.f1(other))))
            .collect::<Vec<_>>();
        self.measured.f1 = self.mean("f1", f1.into_iter());
    }

    fn of_words(&mut self, answers: &[Answer], beside: Option<&Beside<'_>>) {
        let spoken = beside.map(|beside| Spoken::new(beside.log));
        let of = |(at, answer): (usize, &Answer)| {
            let place = beside.map(|beside| beside.places[at]);
            grounding(&answer.text, &answer.evidence, spoken.as_ref().zip(place))
        };
        let found: Vec<_> = answers.iter().enumerate().map(of).collect();
        let either = || found.iter().map(|one| one.and_then(|one| one.in_either));
        self.measured.grounded_words = self.mean("grounded_words", either());
        let whole = either().map(|share| share.map(|share| f64::from(u8::from(share >= 1.0))));
        self.measured.grounded_responses = self.mean("grounded_responses", whole);
        let evidence = found.iter().map(|one| one.map(|one| one.in_evidence));
        self.measured.evidence_words = self.mean("evidence_words", evidence);
    }
}

/// Returns the mean confidence by kind; kinds are never mixed.
fn confidence(answers: &[Answer]) -> BTreeMap<&'static str, Confidence> {
    let mut sums = BTreeMap::<&'static str, (f64, u64)>::new();
    for confidence in answers.iter().filter_map(|answer| answer.confidence) {
        let kind = match confidence.kind {
            ConfidenceKind::LowestLogit => "lowest_logit",
            ConfidenceKind::LowestLogProbability => "lowest_log_probability",
            ConfidenceKind::MeanRelevance => "mean_relevance",
            ConfidenceKind::AnswerPrecision => "answer_precision",
        };
        let (sum, n) = sums.entry(kind).or_default();
        *sum += confidence.value;
        *n += 1;
    }
    let mean = |(sum, n): (f64, u64)| Confidence { mean: sum / n as f64, n };
    sums.into_iter().map(|(kind, sum)| (kind, mean(sum))).collect()
}
