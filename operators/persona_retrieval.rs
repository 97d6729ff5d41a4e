//! Persona retrieval finds the sentences of a persona that are relevant to the dialogue.
//!
//! A turn may bring sentences that describe the user (`persona`), and a source may have its own. The
//! stage searches them for the current utterance: by words (BM25 over the sentences themselves), by
//! meaning (the cosine of embeddings, also to the vector of the dialogue, because "and you?" says
//! nothing by itself), or by both, fused. Where the reader embeds the question for documents or tables,
//! it embeds the sentences too. A persona has few sentences, so the stage scores every one.
//! `docs/measurements/personas.md` has the measurements. UniMS-RAG asks the persona before the
//! documents, hence the place in the flow.
//!
//! Usually each sentence is scored against the dialogue by itself ([`search`]). If the source depends
//! on others that gave evidence, the stage follows PK-ICR: it joins each sentence with the utterance
//! and scores it against that evidence ([`pairs`]). The best sentence is the persona if it reaches the
//! threshold.
//!
//! Key: none. State: none; each turn brings the same sentences again. An encoder that takes
//! microseconds embeds them in place. Any other encoder is asked as a model; the runtime of models
//! remembers what it embedded before. If the encoder fails, words alone decide, unless the
//! configuration says otherwise. A turn without a persona passes unchanged. The stage does not decide
//! which sentences are used, nor whether they are true: the author of a persona may write anything.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use turnstream_knowledge::terms::terms;
use turnstream_ports::model::encoder::Encoder;
use turnstream_ports::model::{Embed, Embedding};
use turnstream_schemas::{
    Evidence, EvidenceId, Fault, FaultKind, PersonaSentence, Score, SourceName, Speaker, Stage,
};

use crate::bm25::{Bag, Statistics};
use crate::flow::{Embedded, Epoch, TurnInFlight};
use crate::fusion::{Fused, SearchForm, fuse};
use crate::sources::Sources;
use crate::stage::{
    Answer, Asked, Call, CallConfig, Decide, Observer, OnFailure, Step, Streams, Without, run,
};
use crate::stage_config::StageConfig;
use crate::stage_context::StageContext;

pub mod pairs;

const STAGE: Stage = Stage::PersonaRetrieval;

/// How the persona of a turn is searched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PersonaRetrievalConfig {
    /// By words, by meaning, or both.
    pub form: SearchForm,
    /// What happens to a turn on which the stage fails; `lexical` searches by words alone.
    pub on_failure: OnFailure,
    /// How many sentences of a persona are searched, from the first on; 1..=1024. Further ones are
    /// passed over, and counted in the metrics.
    #[schemars(range(min = 1, max = 1024))]
    pub max_persona_sentences: u32,
    /// The longest sentence that is searched, in bytes of UTF-8; 1..=65536. Longer ones are passed
    /// over, and counted in the metrics. They are not cut, because a cut sentence may say the
    /// opposite.
    #[schemars(range(min = 1, max = 65_536))]
    pub max_sentence_bytes: u32,
    /// The most sentences that each way of searching gives to the fusion; 1..=1024.
    #[schemars(range(min = 1, max = 1024))]
    pub max_found: u32,
    /// The most sentences that become evidence; 1..=1024.
    #[schemars(range(min = 1, max = 1024))]
    pub max_sentences: u32,
    /// The least score of a sentence that becomes evidence; 0..=1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_score: f64,
    /// The share of words in a fused score, against meaning; 0..=1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub word_share: f64,
    /// The share of the dialogue as a whole in a score by meaning, against the current utterance; 0..=1.
    /// Where the reader embeds the question, the question has a fixed share of the two turns before.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub dialogue_share: f64,
    /// PK-ICR's threshold, for a source that depends on others: the least score of a sentence joined
    /// with the utterance, against the evidence that those gave; 0..=1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_pair_score: f64,
    /// How long to wait for the encoder if it is not called in place.
    pub call: CallConfig,
}

impl Default for PersonaRetrievalConfig {
    fn default() -> Self {
        Self {
            form: SearchForm::Fusion,
            on_failure: OnFailure::Lexical,
            max_persona_sentences: 64,
            max_sentence_bytes: 1_024,
            max_found: 64,
            max_sentences: 3,
            min_score: 0.05,
            word_share: 0.3,
            dialogue_share: 0.2,
            min_pair_score: 0.5,
            // With a full queue of turns, the models of a process are busy for that long.
            call: CallConfig { timeout_ms: 60_000, ..CallConfig::default() },
        }
    }
}

impl StageConfig for PersonaRetrievalConfig {}

/// Runs persona retrieval over a stream of turns. Returns (turns with sentences among their candidates,
/// faults).
pub fn persona_retrieval<'scope>(
    turns: StreamVec<'scope, Epoch, TurnInFlight>,
    config: PersonaRetrievalConfig,
    context: &StageContext,
) -> Streams<'scope, TurnInFlight> {
    run(turns, PersonaRetrieval::new(config, context), &context.runner)
}

/// The stage.
struct PersonaRetrieval {
    config: PersonaRetrievalConfig,
    sources: Arc<Sources>,
    /// The encoder that the stage asks as a model, if there is one and the form compares vectors.
    embed: Option<Arc<Embed>>,
    /// Whether that is the reader, which embeds the turns' questions.
    by_question: bool,
    /// The encoder that the stage calls in place, if there is one.
    encoder: Option<Arc<dyn Encoder>>,
    observer: Observer,
}

impl PersonaRetrieval {
    fn new(config: PersonaRetrievalConfig, context: &StageContext) -> Self {
        let StageContext { sources, embed, encoder, questions, runner, .. } = context.clone();
        let by_question = questions.is_some();
        let embed = questions.or(embed).filter(|_| config.form != SearchForm::Bm25);
        Self { config, sources, embed, by_question, encoder, observer: runner.observer }
    }

    /// Returns the vectors of a turn by the encoder that is asked as a model. That of its question has
    /// a share of the turns before.
    fn asked_by(&self, turn: &TurnInFlight) -> Option<Embedded> {
        let question = |dialogue| Embedded { dialogue, utterance: None };
        match self.by_question {
            true => turn.question.clone().map(question),
            false => turn.embedding.clone(),
        }
    }

    /// Searches by words alone.
    fn by_words(&self, turn: &TurnInFlight) -> Option<Found> {
        let words = PersonaRetrievalConfig { form: SearchForm::Bm25, ..self.config.clone() };
        let persona = Persona::asked(turn, &self.sources)?;
        retrieve(turn, &persona, None, &words).ok()
    }
}

impl Decide for PersonaRetrieval {
    type Turn = TurnInFlight;
    type Decision = Found;

    const STAGE: Stage = STAGE;

    fn on_failure(&self, _: &TurnInFlight) -> OnFailure {
        self.config.on_failure
    }

    fn call(&self) -> Option<Call> {
        self.embed.clone().map(|model| Call::new(model, &self.config.call))
    }

    fn begin(&self, turn: &TurnInFlight) -> Result<Step<Found>, Fault> {
        let persona = Persona::asked(turn, &self.sources);
        // Without a vector of the dialogue, there is nothing to compare the vectors of sentences with.
        if self.embed.is_some() && self.asked_by(turn).is_some() {
            let texts = persona.map(|persona| persona.compared(turn, &self.config));
            return Ok(Step::ask(texts.unwrap_or_default()));
        }
        let Some(persona) = persona else { return Ok(Step::decided(Found::default())) };
        retrieve(turn, &persona, self.encoder.as_deref(), &self.config).map(Step::decided)
    }

    fn read(&self, turn: &TurnInFlight, _: &Asked, answer: Answer) -> Result<Step<Found>, Fault> {
        let vectors: Vec<Embedding> = answer.of(STAGE)?;
        let Some(persona) = Persona::asked(turn, &self.sources) else {
            return Ok(Step::decided(Found::default()));
        };
        let vectors: Vec<&[f32]> = vectors.iter().map(AsRef::as_ref).collect();
        let embedding = self.asked_by(turn);
        found(turn, &persona, embedding.as_ref(), Some(&vectors), &self.config).map(Step::decided)
    }

    fn without(&self, turn: &TurnInFlight, why: Without<'_>) -> Found {
        let by_words = matches!(why, Without::ByRules(_)).then(|| self.by_words(turn));
        by_words.flatten().unwrap_or_default()
    }

    /// Also reports to the observer how many sentences were passed over.
    fn write(&self, turn: &mut TurnInFlight, found: Found) {
        let persona = Persona::asked(turn, &self.sources);
        let passed_over = persona.map_or(0, |persona| persona.looked_at(&self.config).passed_over);
        if passed_over > 0 {
            self.observer.tell(|observer| observer.persona_sentences_passed_over(passed_over));
        }
        if let Some(knowledge) = found.knowledge {
            let passages = &mut turn.candidates.passages;
            // The knowledge of the best pair goes first, even if others are more relevant to the dialogue.
            passages.sort_by_key(|passage| passage.id != knowledge);
        }
        turn.candidates.persona.extend(found.sentences);
    }
}

/// The persona that a turn asks.
#[derive(Clone, Debug)]
pub struct Persona<'t> {
    /// The source's name.
    pub source: &'t SourceName,
    /// The party that the sentences describe.
    pub describes: Speaker,
    /// Its sentences.
    pub sentences: &'t [String],
    /// The knowledge that a sentence has to fit: the evidence from the sources that this source depends
    /// on. Empty if it depends on none, or they gave none.
    pub knowledge: Vec<&'t Evidence>,
}

impl<'t> Persona<'t> {
    /// Returns the persona that the turn asks now.
    fn asked(turn: &'t TurnInFlight, sources: &'t Sources) -> Option<Self> {
        let source = turn.source(sources)?;
        let before = source.config.depends_on.iter().filter_map(|name| sources.of_name(name));
        Some(Self {
            source: &source.name,
            describes: source.config.kind.describes()?,
            sentences: source.sentences(&turn.context.turn),
            knowledge: before.flat_map(|before| turn.candidates.of(before)).collect(),
        })
    }

    /// Returns the sentences within the bounds, each once and without empty ones.
    fn looked_at(&self, config: &PersonaRetrievalConfig) -> Looked<'t> {
        let mut looked = Looked { sentences: Vec::new(), passed_over: 0 };
        let mut known = FxHashSet::default();
        for (at, text) in self.sentences.iter().map(|text| text.trim()).enumerate() {
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

    /// Returns the texts to embed: the sentences; or, if there is knowledge, first the questions
    /// that the sentences make with the utterance, and then the knowledge.
    fn compared(&self, turn: &TurnInFlight, config: &PersonaRetrievalConfig) -> Vec<String> {
        let looked = self.looked_at(config);
        let sentences = looked.sentences.iter().map(|sentence| sentence.text);
        if self.knowledge.is_empty() {
            return sentences.map(str::to_owned).collect();
        }
        let asked = sentences.map(|text| pairs::question(text, turn.context.query()));
        asked.chain(self.knowledge.iter().map(|evidence| evidence.text.clone())).collect()
    }
}

/// A sentence that is searched.
struct Sentence<'t> {
    /// Its place in the persona, from 1.
    place: u32,
    text: &'t str,
}

/// The sentences of a persona that are searched, and the number of those that exceed the bounds.
struct Looked<'t> {
    sentences: Vec<Sentence<'t>>,
    passed_over: u64,
}

/// The evidence that a persona gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Its sentences, by falling relevance.
    pub sentences: Vec<Evidence>,
    /// The knowledge of the best pair, where sentences were paired with knowledge.
    pub knowledge: Option<EvidenceId>,
}

/// Finds the sentences of a persona that are relevant to the dialogue. If there is an encoder and the
/// turn has an embedding, calls the encoder in place.
///
/// # Errors
/// The encoder failed, or the form searches by meaning alone and there are no vectors.
pub fn retrieve(
    turn: &TurnInFlight,
    persona: &Persona<'_>,
    encoder: Option<&dyn Encoder>,
    config: &PersonaRetrievalConfig,
) -> Result<Found, Fault> {
    let encoder = encoder.filter(|_| config.form != SearchForm::Bm25 && turn.embedding.is_some());
    let Some(encoder) = encoder else { return found(turn, persona, None, None, config) };
    let texts = persona.compared(turn, config);
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut numbers = Vec::with_capacity(texts.len() * encoder.dimensions());
    let encoded = encoder.encode(&texts, &mut numbers);
    encoded.map_err(|error| Fault::new(STAGE, FaultKind::Error, error.to_string()))?;
    let vectors: Vec<&[f32]> = numbers.chunks_exact(encoder.dimensions()).collect();
    found(turn, persona, turn.embedding.as_ref(), Some(&vectors), config)
}

/// Finds sentences, given vectors of the turn and of each text of [`Persona::compared`] by one encoder,
/// if there are vectors.
fn found(
    turn: &TurnInFlight,
    persona: &Persona<'_>,
    embedding: Option<&Embedded>,
    vectors: Option<&[&[f32]]>,
    config: &PersonaRetrievalConfig,
) -> Result<Found, Fault> {
    let Looked { sentences, .. } = persona.looked_at(config);
    if !persona.knowledge.is_empty() {
        return paired(turn, persona, &sentences, vectors, config);
    }
    let texts: Vec<&str> = sentences.iter().map(|sentence| sentence.text).collect();
    let query = SentenceQuery { text: turn.context.query(), embedding };
    let mut ranked = search(&texts, vectors, &query, config)?;
    ranked.truncate(config.max_sentences as usize);
    let sentences =
        ranked.into_iter().map(|it| evidence(persona, &sentences[it.at as usize], &it)).collect();
    Ok(Found { sentences, knowledge: None })
}

/// Finds the knowledge of the best pair, and the sentence that fits it best (PK-ICR eq 1–7).
fn paired(
    turn: &TurnInFlight,
    persona: &Persona<'_>,
    sentences: &[Sentence<'_>],
    vectors: Option<&[&[f32]]>,
    config: &PersonaRetrievalConfig,
) -> Result<Found, Fault> {
    let (asked, query) = (sentences.len(), turn.context.query());
    let questions: Vec<String> =
        sentences.iter().map(|sentence| pairs::question(sentence.text, query)).collect();
    let knowledge: Vec<String> =
        persona.knowledge.iter().map(|evidence| evidence.text.clone()).collect();
    if vectors.is_some_and(|vectors| vectors.len() != asked + knowledge.len()) {
        let reason = "the encoder returned a different number of vectors than texts";
        return Err(Fault::new(STAGE, FaultKind::Error, reason));
    }
    let vectors = vectors.map(|vectors| vectors.split_at(asked));
    let vectors = vectors.map(|(questions, knowledge)| pairs::Vectors { questions, knowledge });
    let scores = pairs::Pairs::score(&questions, &knowledge, vectors, config.word_share);
    let Some(best) = scores.best_knowledge() else { return Ok(Found::default()) };
    let given = scores.given(best);
    let knowledge = &persona.knowledge[best].id;
    let accepted = pairs::accepted(&given, config.min_pair_score).map(|at| {
        let score = Fused { at: at as u32, score: given[at], by_words: None, by_meaning: None };
        let mut found = evidence(persona, &sentences[at], &score);
        if let Some(sentence) = &mut found.persona {
            sentence.given = Some(knowledge.clone());
        }
        found
    });
    Ok(Found { sentences: accepted.into_iter().collect(), knowledge: Some(knowledge.clone()) })
}

/// A query for sentences.
#[derive(Clone, Copy, Debug)]
pub struct SentenceQuery<'a> {
    /// The words of the current utterance.
    pub text: &'a str,
    /// The vectors of the current utterance and of the dialogue.
    pub embedding: Option<&'a Embedded>,
}

/// Returns the sentences for a query, by falling score, ties by place. Leaves out scores below
/// `min_score`. `vectors` has one vector for each sentence.
///
/// # Errors
/// The form searches by meaning alone, and the turn or the sentences have no vectors; or the number of
/// vectors is not that of the sentences.
pub fn search(
    sentences: &[&str],
    vectors: Option<&[&[f32]]>,
    query: &SentenceQuery<'_>,
    config: &PersonaRetrievalConfig,
) -> Result<Vec<Fused>, Fault> {
    let fault = |reason: &str| Fault::new(STAGE, FaultKind::Error, reason);
    let by_meaning = match (config.form, query.embedding.zip(vectors)) {
        (SearchForm::Bm25, _) | (SearchForm::Fusion, None) => None,
        (_, Some((_, vectors))) if vectors.len() != sentences.len() => {
            return Err(fault("the encoder returned a different number of vectors than sentences"));
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

/// Returns the likeness in words of each sentence and the utterance, 0..=1: by BM25 among these
/// sentences.
fn likeness_in_words<'s>(
    sentences: &[&'s str],
    query: &str,
) -> impl Iterator<Item = f64> + use<'s> {
    let bags: Vec<Bag<String>> =
        sentences.iter().map(|sentence| terms(sentence).into_iter().collect()).collect();
    let (statistics, query) = (Statistics::of(&bags), terms(query).into_iter().collect());
    bags.into_iter().map(move |sentence| statistics.likeness(&query, &sentence))
}

/// Returns the likeness in meaning of a sentence and the dialogue, 0..=1: a weighted mean of its
/// cosines to the current utterance and to the whole dialogue; the latter alone if the utterance
/// has no vector.
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

/// Returns the best scores above 0, each with its place, falling, ties by place.
fn best(scores: impl Iterator<Item = f64>, most: u32) -> Vec<(u32, f64)> {
    let mut found: Vec<(u32, f64)> = (0..).zip(scores).filter(|(_, score)| *score > 0.0).collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    found.truncate(most as usize);
    found
}

/// Makes a sentence into evidence.
fn evidence(persona: &Persona<'_>, sentence: &Sentence<'_>, found: &Fused) -> Evidence {
    let score = |score: f64| Score::new(score.clamp(0.0, 1.0));
    Evidence {
        id: EvidenceId(format!("{}/{}", persona.source.as_str(), sentence.place)),
        source: persona.source.clone(),
        text: sentence.text.to_owned(),
        set: None,
        fact: None,
        document: None,
        persona: Some(PersonaSentence {
            describes: persona.describes,
            place: sentence.place,
            by_words: found.by_words.map(score),
            by_meaning: found.by_meaning.map(score),
            given: None,
        }),
        row: None,
        relevance: score(found.score),
        consistency: None,
        attention: None,
        selected: false,
    }
}

#[cfg(test)]
mod tests;
