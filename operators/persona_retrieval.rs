//! Persona retrieval: which sentences of the turn's persona have to do with what is said?
//!
//! A turn may bring sentences that describe who is spoken with (`persona`). They are searched for
//! the current utterance by words (BM25 over the sentences themselves), by meaning (the cosine of
//! embeddings, with what the dialogue is about as a second view: "and you?" says nothing by
//! itself), or by both, fused. They are few, so each is looked at. `docs/personas.md` has what that
//! measured. UniMS-RAG asks the persona before the documents, hence the place in the flow.
//! PK-ICR scores a sentence together with knowledge and dialogue; here a sentence is scored by
//! itself ([`search`]).
//!
//! Key: none. State: none; the same sentences come again with each turn. An encoder that takes
//! microseconds embeds them in place, any other is asked for them through
//! [`mod@call`](mod@crate::call), where the runtime of models remembers what it embedded before.
//! Where that fails, words alone decide unless the configuration says otherwise. A turn without a
//! persona passes by. The stage never says what will be used, and never what is true: who wrote a
//! persona may have written anything.

use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use timely::dataflow::operators::Concat;
use timely::dataflow::operators::generic::operator::empty;
use timely::dataflow::operators::vec::Branch;
use turnstream_schemas::{
    Evidence, EvidenceId, Fault, FaultKind, PersonaSentence, Score, Speaker, Stage,
};

use crate::bm25::{Bag, Statistics};
use crate::call::{CallConfig, CallShell, Question, call};
use crate::flow::{Embedded, Epoch, Failed, Gated, Retrieved};
use crate::form::{Refused, check_bound, check_fraction};
use crate::fusion::{Fused, SearchForm, fuse};
use crate::model::encoder::Encoder;
use crate::model::{Embed, Embedding};
use crate::resources::Resources;
use crate::stage::{Observer, OnFailure, Work, instead, stage};
use crate::terms::terms;

pub mod pairs;

const STAGE: Stage = Stage::PersonaRetrieval;

/// The source's name in plans and evidence.
pub const SOURCE: &str = "persona";

/// How the persona of a turn is searched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PersonaRetrievalConfig {
    /// Whether it is searched at all.
    pub enabled: bool,
    /// By words, by meaning, or both.
    pub form: SearchForm,
    /// What becomes of a turn that the stage fails on; `lexical`: words alone find what there is.
    pub on_failure: OnFailure,
    /// Whom the sentences describe: `user`, or `system`, who answers.
    pub describes: Speaker,
    /// Sentences of a turn's persona that are looked at, from the first on; 1..=1024. Further ones
    /// are passed over, and counted.
    pub max_persona_sentences: u32,
    /// Longest sentence that is looked at, in bytes of UTF-8; 1..=65536. Longer ones are passed over,
    /// and counted: cut, a sentence may say the opposite.
    pub max_sentence_bytes: u32,
    /// Most sentences that one way of searching gives to the fusion; 1..=1024.
    pub max_found: u32,
    /// Most sentences that go on as evidence; 1..=1024.
    pub max_sentences: u32,
    /// Least score of a sentence that goes on; 0..=1.
    pub min_score: f64,
    /// The share of words in a fused score, against meaning; 0..=1.
    pub word_share: f64,
    /// The share of what the dialogue is about in a score by meaning, against the current utterance;
    /// 0..=1.
    pub dialogue_share: f64,
    /// How long to wait for the encoder where it is not called in place.
    pub call: CallConfig,
}

impl Default for PersonaRetrievalConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            form: SearchForm::Fusion,
            on_failure: OnFailure::Lexical,
            describes: Speaker::User,
            max_persona_sentences: 64,
            max_sentence_bytes: 1_024,
            max_found: 64,
            max_sentences: 3,
            min_score: 0.05,
            word_share: 0.3,
            dialogue_share: 0.2,
            call: CallConfig { timeout_ms: 2_000, ..CallConfig::default() },
        }
    }
}

impl PersonaRetrievalConfig {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`Refused`] by key.
    pub fn check(&self) -> Result<(), Refused> {
        check_bound(STAGE, "max_persona_sentences", self.max_persona_sentences, 1024)?;
        check_bound(STAGE, "max_sentence_bytes", self.max_sentence_bytes, 65_536)?;
        check_bound(STAGE, "max_found", self.max_found, 1024)?;
        check_bound(STAGE, "max_sentences", self.max_sentences, 1024)?;
        check_fraction(STAGE, "min_score", self.min_score)?;
        check_fraction(STAGE, "word_share", self.word_share)?;
        check_fraction(STAGE, "dialogue_share", self.dialogue_share)
    }
}

/// The stage's streams: turns with sentences among their candidates, and faults.
type Streams<'scope> = (StreamVec<'scope, Epoch, Retrieved>, StreamVec<'scope, Epoch, Failed>);

/// Persona retrieval over a stream of turns: (turns with sentences among their candidates, faults).
pub fn persona_retrieval<'scope>(
    turns: StreamVec<'scope, Epoch, Retrieved>,
    config: PersonaRetrievalConfig,
    resources: &Resources,
) -> Streams<'scope> {
    if !config.enabled {
        let none = empty(turns.scope());
        return (turns, none);
    }
    let (without, turns) = turns.branch(|_, turn| has_persona(&turn.turn));
    let config = Rc::new(config);
    let encoder = resources.embed.clone().filter(|_| config.form != SearchForm::Bm25);
    let (found, faults) = match encoder {
        None => in_place(turns, config, resources),
        Some(encoder) => {
            // Without a vector of what is said there is nothing to compare others with.
            let (unembedded, embedded) = turns.branch(|_, turn| turn.turn.embedding.is_some());
            let (here, here_faults) = in_place(unembedded, Rc::clone(&config), resources);
            let (asked, asked_faults) = asking(embedded, encoder, config, resources);
            (here.concat(asked), here_faults.concat(asked_faults))
        }
    };
    (without.concat(found), faults)
}

/// By words, and by vectors of an encoder that is called in place, where there is one.
fn in_place<'scope>(
    turns: StreamVec<'scope, Epoch, Retrieved>,
    config: Rc<PersonaRetrievalConfig>,
    resources: &Resources,
) -> Streams<'scope> {
    let shell = resources.shell(config.on_failure);
    let (encoder, fallback) = (resources.encoder.clone(), by_words_alone(&config));
    let join = joined(&config, &resources.observer);
    let work = move |turn: &Retrieved| retrieve(&turn.turn, encoder.as_deref(), &config);
    stage(turns, STAGE, shell, Work { work, fallback, join })
}

/// By vectors of an encoder that has to be waited for.
fn asking<'scope>(
    turns: StreamVec<'scope, Epoch, Retrieved>,
    encoder: Arc<Embed>,
    config: Rc<PersonaRetrievalConfig>,
    resources: &Resources,
) -> Streams<'scope> {
    let Resources { timers, awaited, .. } = resources.clone();
    let shell = resources.shell(config.on_failure);
    let shell = CallShell { shell, call: config.call.clone(), timers, awaited };
    let (fallback, join) = (by_words_alone(&config), joined(&config, &resources.observer));
    let asks = Rc::clone(&config);
    let question = Question {
        ask: move |turn: &Retrieved| {
            let Looked { sentences, .. } = looked_at(&turn.turn, &asks);
            sentences.iter().map(|sentence| sentence.text.to_owned()).collect()
        },
        read: move |turn: &Retrieved, vectors: Vec<Embedding>| {
            let Looked { sentences, .. } = looked_at(&turn.turn, &config);
            let vectors: Vec<&[f32]> = vectors.iter().map(AsRef::as_ref).collect();
            found(&turn.turn, &sentences, Some(&vectors), &config)
        },
        fallback,
        join,
    };
    call(turns, STAGE, encoder, shell, question)
}

/// What a turn goes on with that the stage failed on: what words find, where the policy says so.
fn by_words_alone(config: &PersonaRetrievalConfig) -> impl Fn(&Retrieved) -> Vec<Evidence> + use<> {
    let words = PersonaRetrievalConfig { form: SearchForm::Bm25, ..config.clone() };
    move |turn| {
        let by_words = || retrieve(&turn.turn, None, &words).unwrap_or_default();
        instead(words.on_failure, by_words)
    }
}

/// Puts a turn and what was found for it together, and counts what was passed over.
fn joined(
    config: &Rc<PersonaRetrievalConfig>,
    observer: &Observer,
) -> impl Fn(Retrieved, Vec<Evidence>) -> Retrieved + use<> {
    let (config, observer) = (Rc::clone(config), observer.clone());
    move |mut turn, sentences| {
        let passed_over = looked_at(&turn.turn, &config).passed_over;
        if passed_over > 0 {
            observer.tell(|observer| observer.persona_sentences_passed_over(passed_over));
        }
        turn.candidates.persona = Some(sentences);
        turn
    }
}

fn has_persona(turn: &Gated) -> bool {
    turn.context.turn.persona.iter().any(|sentence| !sentence.trim().is_empty())
}

/// A sentence that is looked at.
struct Sentence<'t> {
    /// Its place in the turn's list, from 1.
    place: u32,
    text: &'t str,
}

/// What of a persona is looked at, and how many sentences exceed the bounds.
struct Looked<'t> {
    sentences: Vec<Sentence<'t>>,
    passed_over: u64,
}

/// The sentences within the bounds, each once. Empty ones are none.
fn looked_at<'t>(turn: &'t Gated, config: &PersonaRetrievalConfig) -> Looked<'t> {
    let mut looked = Looked { sentences: Vec::new(), passed_over: 0 };
    let mut known = FxHashSet::default();
    let persona = &turn.context.turn.persona;
    for (at, text) in persona.iter().map(|text| text.trim()).enumerate() {
        if text.is_empty() || known.contains(text) {
            continue;
        }
        if looked.sentences.len() == config.max_persona_sentences as usize
            || text.len() > config.max_sentence_bytes as usize
        {
            looked.passed_over += 1;
            continue;
        }
        known.insert(text);
        looked.sentences.push(Sentence { place: at as u32 + 1, text });
    }
    looked
}

/// The sentences of a turn's persona that have to do with what is said, by falling relevance, by an
/// encoder that is called in place, where there is one and the turn has an embedding.
///
/// # Errors
/// The encoder failed, or meaning alone is to find them and there is none.
pub fn retrieve(
    turn: &Gated,
    encoder: Option<&dyn Encoder>,
    config: &PersonaRetrievalConfig,
) -> Result<Vec<Evidence>, Fault> {
    let Looked { sentences, .. } = looked_at(turn, config);
    let encoder = encoder.filter(|_| config.form != SearchForm::Bm25 && turn.embedding.is_some());
    let Some(encoder) = encoder else { return found(turn, &sentences, None, config) };
    let texts: Vec<&str> = sentences.iter().map(|sentence| sentence.text).collect();
    let mut numbers = Vec::with_capacity(texts.len() * encoder.dimensions());
    let encoded = encoder.encode(&texts, &mut numbers);
    encoded.map_err(|error| Fault::new(STAGE, FaultKind::Error, error.to_string()))?;
    let vectors: Vec<&[f32]> = numbers.chunks_exact(encoder.dimensions()).collect();
    found(turn, &sentences, Some(&vectors), config)
}

/// The evidence among sentences, with a vector each where they have any.
fn found(
    turn: &Gated,
    sentences: &[Sentence<'_>],
    vectors: Option<&[&[f32]]>,
    config: &PersonaRetrievalConfig,
) -> Result<Vec<Evidence>, Fault> {
    let texts: Vec<&str> = sentences.iter().map(|sentence| sentence.text).collect();
    let query = Query { text: turn.context.query(), embedding: turn.embedding.as_ref() };
    let mut ranked = search(&texts, vectors, &query, config)?;
    ranked.truncate(config.max_sentences as usize);
    Ok(ranked.into_iter().map(|it| evidence(&sentences[it.at as usize], &it, config)).collect())
}

/// What sentences are searched for.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The words of the current utterance.
    pub text: &'a str,
    /// Its meaning, and that of the dialogue.
    pub embedding: Option<&'a Embedded>,
}

/// The sentences for a query by falling score, ties by place; none below the least score. Each has a
/// vector where there are vectors.
///
/// # Errors
/// Meaning alone is to find them, and the turn or the sentences have no vectors; or there is not a
/// vector for each.
pub fn search(
    sentences: &[&str],
    vectors: Option<&[&[f32]]>,
    query: &Query<'_>,
    config: &PersonaRetrievalConfig,
) -> Result<Vec<Fused>, Fault> {
    let fault = |reason: &str| Fault::new(STAGE, FaultKind::Error, reason);
    let by_meaning = match (config.form, query.embedding.zip(vectors)) {
        (SearchForm::Bm25, _) | (SearchForm::Fusion, None) => None,
        (_, Some((_, vectors))) if vectors.len() != sentences.len() => {
            return Err(fault("the encoder gave another number of vectors than of sentences"));
        }
        (_, Some((embedded, vectors))) => {
            let scores = vectors.iter().map(|vector| likeness_in_meaning(embedded, vector, config));
            Some(best(scores, config.max_found))
        }
        (SearchForm::Dense, None) => {
            return Err(fault(
                "the turn has no embedding; configure an encoder, or set persona_retrieval.form \
                 to \"fusion\" or \"bm25\"",
            ));
        }
    };
    let by_words = match config.form {
        SearchForm::Dense => None,
        _ => Some(best(likeness_in_words(sentences, query.text), config.max_found)),
    };
    let mut fused = fuse(by_words, by_meaning, config.word_share);
    fused.retain(|found| found.score >= config.min_score);
    Ok(fused)
}

/// How like each sentence is to the utterance in words, 0..=1: by BM25 among these sentences.
fn likeness_in_words<'s>(
    sentences: &[&'s str],
    query: &str,
) -> impl Iterator<Item = f64> + use<'s> {
    let bags: Vec<Bag<String>> =
        sentences.iter().map(|sentence| terms(sentence).into_iter().collect()).collect();
    let (statistics, query) = (Statistics::of(&bags), terms(query).into_iter().collect());
    bags.into_iter().map(move |sentence| statistics.likeness(&query, &sentence))
}

/// How like a sentence is to what is said in meaning, 0..=1: to the current utterance, where anything is known
/// in that, and to the dialogue.
fn likeness_in_meaning(
    embedded: &Embedded,
    sentence: &[f32],
    config: &PersonaRetrievalConfig,
) -> f64 {
    let cosine =
        |other: &[f32]| -> f64 { other.iter().zip(sentence).map(|(a, b)| f64::from(a * b)).sum() };
    let dialogue = cosine(&embedded.dialogue);
    let cosine = match &embedded.utterance {
        Some(utterance) => {
            let share = config.dialogue_share;
            (1.0 - share) * cosine(utterance) + share * dialogue
        }
        None => dialogue,
    };
    cosine.clamp(0.0, 1.0)
}

/// The best of the scores above 0, each with its place: falling, ties by place.
fn best(scores: impl Iterator<Item = f64>, most: u32) -> Vec<(u32, f64)> {
    let mut found: Vec<(u32, f64)> = (0..).zip(scores).filter(|(_, score)| *score > 0.0).collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    found.truncate(most as usize);
    found
}

/// A sentence as evidence.
fn evidence(sentence: &Sentence<'_>, found: &Fused, config: &PersonaRetrievalConfig) -> Evidence {
    let score = |score: f64| Score::new(score.clamp(0.0, 1.0));
    Evidence {
        id: EvidenceId(format!("{SOURCE}/{}", sentence.place)),
        source: SOURCE.into(),
        text: sentence.text.to_owned(),
        set: None,
        fact: None,
        document: None,
        persona: Some(PersonaSentence {
            describes: config.describes,
            place: sentence.place,
            by_words: found.by_words.map(score),
            by_meaning: found.by_meaning.map(score),
        }),
        relevance: score(found.score),
        consistency: None,
        attention: None,
        selected: false,
    }
}

#[cfg(test)]
mod tests;
