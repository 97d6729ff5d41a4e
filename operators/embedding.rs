//! Embedding encodes the dialogue as a vector. Facts are ranked by their cosine to it, documents by
//! their cosine to the current utterance alone.
//!
//! The stage encodes the latest utterances one by one and adds them up, each weighted by recency,
//! so that an utterance that was encoded for the previous turn need not be encoded again. It calls
//! an encoder that takes microseconds in place, and asks any other as a model. Where documents or
//! tables have vectors by the reader, it also asks the reader for the vector of the question: that
//! of the utterance, with a share of the two turns before it. A response that neither answers nor asks
//! anything has no share, nor has small talk just before.
//!
//! Key: none. State: none. If it fails and may degrade, the turn goes on without a vector, and
//! evidence is ranked by words alone. It sees strictly earlier utterances and the turn's own.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use turnstream_knowledge::phrasings::NearestPhrasings;
use turnstream_ports::model::encoder::Encoder;
use turnstream_ports::model::{Embed, Embedding};
use turnstream_schemas::{Fault, Stage};

use crate::dialogue_vector::{LatestUtterances, embed, embedded, of_question};
use crate::flow::{Embedded, Epoch, TurnInFlight};
use crate::response_texts::ResponseTexts;
use crate::salience::Recency;
use crate::stage::{
    Answer, Asked, Call, CallConfig, Decide, OnFailure, Step, Streams, Without, run,
};
use crate::stage_config::StageConfig;
use crate::stage_context::StageContext;

/// How the dialogue is embedded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EmbeddingConfig {
    /// What happens to a turn on which the stage fails.
    pub on_failure: OnFailure,
    /// How many of the latest utterances count, including the current one; 1..=64.
    #[schemars(range(min = 1, max = 64))]
    pub utterances: u32,
    /// How the weight of earlier utterances fades.
    pub recency: Recency,
    /// How long to wait for the encoder if it is not called in place.
    pub call: CallConfig,
}

impl Default for EmbeddingConfig {
    fn default() -> Self {
        Self {
            on_failure: OnFailure::Degrade,
            utterances: 4,
            recency: Recency::default(),
            // With a full queue of turns, the models of a process are busy for that long.
            call: CallConfig { timeout_ms: 60_000, ..CallConfig::default() },
        }
    }
}

impl StageConfig for EmbeddingConfig {}

impl EmbeddingConfig {
    /// Returns the utterances that count.
    pub fn latest(&self) -> LatestUtterances {
        LatestUtterances { count: self.utterances, recency: self.recency }
    }
}

/// Runs embedding over a stream of turns. Returns (turns with their vectors, faults). Without an
/// encoder, turns pass unchanged.
pub fn embedding<'scope>(
    turns: StreamVec<'scope, Epoch, TurnInFlight>,
    config: EmbeddingConfig,
    context: &StageContext,
) -> Streams<'scope, TurnInFlight> {
    let StageContext { embed, encoder, questions, response_texts, .. } = context.clone();
    let stage = DialogueEmbedding { config, embed, encoder, questions, response_texts };
    run(turns, stage, &context.runner)
}

/// The stage.
struct DialogueEmbedding {
    config: EmbeddingConfig,
    /// The encoder that the stage asks as a model, if there is one.
    embed: Option<Arc<Embed>>,
    /// The encoder that the stage calls in place, if there is one.
    encoder: Option<Arc<dyn Encoder>>,
    /// The reader's vectors, if there are documents or tables to search by them. There is none beside
    /// `embed`.
    questions: Option<Arc<Embed>>,
    response_texts: Arc<ResponseTexts>,
}

/// The vectors of a turn.
#[derive(Clone, Debug, Default, PartialEq)]
struct TurnVectors {
    embedded: Option<Embedded>,
    question: Option<Embedding>,
    utterance: Option<Embedding>,
    taught: Arc<NearestPhrasings>,
}

impl Decide for DialogueEmbedding {
    type Turn = TurnInFlight;
    type Decision = TurnVectors;

    const STAGE: Stage = Stage::Embedding;

    fn on_failure(&self, _: &TurnInFlight) -> OnFailure {
        self.config.on_failure
    }

    fn call(&self) -> Option<Call> {
        let model = self.embed.clone().or_else(|| self.questions.clone());
        model.map(|model| Call::new(model, &self.config.call))
    }

    fn begin(&self, turn: &TurnInFlight) -> Result<Step<TurnVectors>, Fault> {
        if self.embed.is_some() {
            let texts = self.config.latest().of(&turn.context).map(|(_, text)| text.to_owned());
            return Ok(Step::ask(texts.collect::<Vec<_>>()));
        }
        if self.questions.is_some() {
            let question = turn.context.question(&self.response_texts);
            let texts = std::iter::once(&question.utterance).chain(question.before());
            return Ok(Step::ask(texts.cloned().collect::<Vec<_>>()));
        }
        let embedded = self.in_place(turn)?;
        Ok(Step::decided(TurnVectors { embedded, ..TurnVectors::default() }))
    }

    fn read(
        &self,
        turn: &TurnInFlight,
        _: &Asked,
        answer: Answer,
    ) -> Result<Step<TurnVectors>, Fault> {
        let vectors: Vec<Embedding> = answer.of(Self::STAGE)?;
        if self.embed.is_none() {
            let embedded = self.in_place(turn)?;
            let question = of_question(&vectors);
            let phrasings = turn.knowledge.phrasings();
            let nearest = question.as_deref().map(|question| phrasings.nearest(question));
            let taught = Arc::new(nearest.unwrap_or_default());
            let utterance = question.as_ref().and(vectors.into_iter().next());
            return Ok(Step::decided(TurnVectors { embedded, question, utterance, taught }));
        }
        let weights = self.config.latest().of(&turn.context).map(|(weight, _)| weight);
        Ok(Step::decided(TurnVectors {
            embedded: embedded(&vectors, weights),
            ..TurnVectors::default()
        }))
    }

    fn without(&self, _: &TurnInFlight, _: Without<'_>) -> TurnVectors {
        TurnVectors::default()
    }

    fn write(&self, turn: &mut TurnInFlight, vectors: TurnVectors) {
        turn.embedding = vectors.embedded;
        turn.question = vectors.question;
        turn.utterance = vectors.utterance;
        turn.taught = vectors.taught;
    }
}

impl DialogueEmbedding {
    /// Returns the vectors of the encoder that is called in place, if there is one.
    fn in_place(&self, turn: &TurnInFlight) -> Result<Option<Embedded>, Fault> {
        let embed = |encoder| embed(&turn.context, encoder, self.config.latest());
        self.encoder.as_deref().map_or(Ok(None), embed)
    }
}

#[cfg(test)]
mod tests;
