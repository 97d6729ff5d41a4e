//! Integration weighs evidence and history together, as the context that the response is made from
//! (DH-RAG eq 5–8).
//!
//! The stage runs between the decision and generation. Every piece of selected evidence, and every
//! recalled exchange that is no longer in the dialogue, gets a share of the attention,
//! w_i = softmax(q_t^T W d_i) (eq 6). The vector d_i of a text is its terms and, where there is an
//! encoder, the encoder's vector, side by side. W is the identity, scaled, unless trained weights
//! are configured. A generator reads words and cannot use the weighted sum C (eq 7), so C is the
//! weighed set itself here, in the order of its weights and cut to a budget of tokens. The
//! generator does not see the pieces that are cut, and they count as not selected.
//!
//! Key: none. State: none. Where the stage fails and may degrade, it weighs and cuts nothing. It never
//! adds evidence, and the record keeps the order of fact selection.

mod budget;

use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use turnstream_ports::model::encoder::Encoder;
use turnstream_ports::model::{Embed, Embedding};
use turnstream_ports::refused::Refused;
use turnstream_schemas::{Evidence, Fault, FaultKind, HistoryEntry, Passage, Score, Stage};

use crate::attention::{Attention, Compared};
use crate::flow::{Attended, Epoch, Recalled, TurnInFlight};
use crate::history::similarity::text_of;
use crate::stage::{
    Answer, Asked, Call, CallConfig, Decide, OnFailure, Step, Streams, Without, run,
};
use crate::stage_config::StageConfig;
use crate::stage_context::StageContext;

pub use budget::estimated_tokens;

const STAGE: Stage = Stage::Integration;

/// Which W weighs evidence and history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IntegrationForm {
    /// The identity.
    Lexical,
    /// Trained weights.
    Learned,
    /// None: the stage weighs and cuts nothing.
    Off,
}

/// How evidence and history are weighed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IntegrationConfig {
    /// Which W: the identity (`lexical`), trained weights (`learned`), or no weighing at all (`off`).
    pub form: IntegrationForm,
    /// What happens to a turn where the stage fails.
    pub on_failure: OnFailure,
    /// Trained weights, as `turnstream train integration` writes them; for `form = "learned"`.
    pub weights: Option<PathBuf>,
    /// The divisor of the likeness of query and text, 0..=1, before the softmax; 0.01..=10. The smaller it
    /// is, the more attention goes to the texts most like the query. Trained weights bring their own.
    #[schemars(range(min = 0.01, max = 10.0))]
    pub temperature: f64,
    /// The share of vectors in that likeness, where there are any, 0..=1; words have the rest. Trained
    /// weights bring their own.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub meaning_share: f64,
    /// Tokens that the weighed texts may have together, 1..=1,000,000, by an estimate: one for every
    /// Chinese character, one for every four bytes of other text. Texts with the least attention are left
    /// out first.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_tokens: u32,
    /// Whether to ask an encoder that does not answer at once for the vectors. By default only one that takes
    /// microseconds is used, and texts are weighed by words where there is none.
    pub wait_for_encoder: bool,
    /// How long to wait for the encoder.
    pub call: CallConfig,
}

impl Default for IntegrationConfig {
    fn default() -> Self {
        Self {
            form: IntegrationForm::Lexical,
            on_failure: OnFailure::Degrade,
            weights: None,
            temperature: 0.1,
            meaning_share: 0.2,
            max_tokens: 2_048,
            wait_for_encoder: false,
            call: CallConfig { timeout_ms: 2_000, ..CallConfig::default() },
        }
    }
}

impl StageConfig for IntegrationConfig {
    fn check(&self) -> Result<(), Refused> {
        if self.form == IntegrationForm::Learned && self.weights.is_none() {
            let needs = "`weights` beside form = \"learned\"";
            return Err(Refused { stage: STAGE, key: "weights", needs });
        }
        Ok(())
    }
}

impl IntegrationConfig {
    /// Returns attention with the identity for W.
    pub fn identity(&self) -> Attention {
        Attention::identity(self.temperature, self.meaning_share)
    }
}

/// Runs integration over a stream of turns. Returns (turns with their evidence and history weighed,
/// faults).
pub fn integration<'scope>(
    turns: StreamVec<'scope, Epoch, TurnInFlight>,
    config: IntegrationConfig,
    context: &StageContext,
) -> Streams<'scope, TurnInFlight> {
    run(turns, Integration::new(config, context), &context.runner)
}

/// The stage.
struct Integration {
    config: IntegrationConfig,
    attention: Attention,
    /// The encoder that does not answer at once, where it is used.
    embed: Option<Arc<Embed>>,
    /// The encoder that answers at once, where there is one.
    encoder: Option<Arc<dyn Encoder>>,
}

impl Integration {
    fn new(config: IntegrationConfig, context: &StageContext) -> Self {
        let is_learned = config.form == IntegrationForm::Learned;
        let trained = context.attention.clone().filter(|_| is_learned);
        let attention = trained.map_or_else(|| config.identity(), |trained| (*trained).clone());
        let waits = config.wait_for_encoder && config.form != IntegrationForm::Off;
        let embed = context.embed.clone().filter(|_| waits);
        Self { config, attention, embed, encoder: context.encoder.clone() }
    }

    fn weigh(&self, turn: &TurnInFlight, compared: &[Compared]) -> Step<Weighed> {
        Step::decided(weigh(turn, compared, &self.attention, self.config.max_tokens))
    }
}

impl Decide for Integration {
    type Turn = TurnInFlight;
    type Decision = Weighed;

    const STAGE: Stage = STAGE;

    fn on_failure(&self, _: &TurnInFlight) -> OnFailure {
        self.config.on_failure
    }

    fn call(&self) -> Option<Call> {
        self.embed.clone().map(|model| Call::new(model, &self.config.call))
    }

    fn begin(&self, turn: &TurnInFlight) -> Result<Step<Weighed>, Fault> {
        if self.config.form == IntegrationForm::Off {
            return Ok(Step::decided(self.without(turn, Without::Off)));
        }
        // Without items to weigh, nothing is compared and no model is asked.
        if items(turn).is_empty() {
            return Ok(Step::decided(Weighed::default()));
        }
        if self.embed.is_none() {
            let compared = compared(&texts(turn), self.encoder.as_deref())?;
            return Ok(self.weigh(turn, &compared));
        }
        Ok(Step::ask(texts(turn)))
    }

    fn read(&self, turn: &TurnInFlight, _: &Asked, answer: Answer) -> Result<Step<Weighed>, Fault> {
        let vectors: Vec<Embedding> = answer.of(STAGE)?;
        let compared = texts(turn).into_iter().zip(vectors);
        let compared = compared.map(|(text, vector)| Compared::new(&text, Some(&vector)));
        Ok(self.weigh(turn, &compared.collect::<Vec<_>>()))
    }

    fn without(&self, _: &TurnInFlight, _: Without<'_>) -> Weighed {
        Weighed::default()
    }

    /// Moves evidence that is left out behind the selected evidence.
    fn write(&self, turn: &mut TurnInFlight, weighed: Weighed) {
        for (place, attention, left_out) in weighed.evidence {
            let evidence = &mut turn.evidence[place];
            evidence.attention = Some(attention);
            evidence.selected = !left_out;
        }
        turn.evidence.sort_by_key(|evidence| !evidence.selected);
        turn.history = weighed.history;
    }
}

/// Makes texts ready to compare; by words where there is no encoder.
fn compared(texts: &[String], encoder: Option<&dyn Encoder>) -> Result<Vec<Compared>, Fault> {
    let Some(encoder) = encoder.filter(|_| texts.len() > 1) else {
        return Ok(texts.iter().map(|text| Compared::new(text, None)).collect());
    };
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut numbers = Vec::with_capacity(texts.len() * encoder.dimensions());
    let encoded = encoder.encode(&texts, &mut numbers);
    encoded.map_err(|error| Fault::new(STAGE, FaultKind::Error, error.to_string()))?;
    let vectors = numbers.chunks_exact(encoder.dimensions());
    Ok(texts.iter().zip(vectors).map(|(text, of)| Compared::new(text, Some(of))).collect())
}

/// A text to weigh.
#[derive(Clone, Copy, Debug)]
enum Item<'t> {
    /// Selected evidence, by its place.
    Evidence(usize, &'t Evidence),
    /// A recalled exchange, by its place.
    Exchange(usize, &'t Recalled),
}

impl Item<'_> {
    fn text(&self) -> String {
        match self {
            Self::Evidence(_, evidence) => evidence.text.clone(),
            Self::Exchange(_, recalled) => {
                text_of_exchange(&recalled.entry, recalled.best_passage())
            }
        }
    }
}

/// Returns the text of an exchange to compare: query, response and the passage that answers best, a
/// line each.
pub fn text_of_exchange(entry: &HistoryEntry, passage: Option<&Passage>) -> String {
    let passage = passage.map(|passage| passage.text.clone());
    text_of(entry).into_iter().chain(passage).collect::<Vec<_>>().join("\n")
}

/// Returns the selected evidence in its order, then the exchanges in the order of recall.
fn items(turn: &TurnInFlight) -> Vec<Item<'_>> {
    let evidence = turn.evidence.iter().enumerate();
    let evidence = evidence.filter(|(_, evidence)| evidence.selected);
    let evidence = evidence.map(|(place, evidence)| Item::Evidence(place, evidence));
    let exchanges = turn.context.out_of_sight();
    evidence.chain(exchanges.map(|(place, recalled)| Item::Exchange(place, recalled))).collect()
}

/// Returns the texts of the query and of each item.
fn texts(turn: &TurnInFlight) -> Vec<String> {
    let query = turn.context.query().to_owned();
    let items = items(turn);
    std::iter::once(query).chain(items.iter().map(Item::text)).collect()
}

/// The items of a turn, weighed.
#[derive(Clone, Debug, Default, PartialEq)]
struct Weighed {
    /// Weighed evidence: its place, its share, and whether it is left out.
    evidence: Vec<(usize, Score, bool)>,
    history: Vec<Attended>,
}

/// Weighs a turn's items; `compared` has the query, then each item.
fn weigh(
    turn: &TurnInFlight,
    compared: &[Compared],
    attention: &Attention,
    budget: u32,
) -> Weighed {
    let Some((query, items_compared)) = compared.split_first() else { return Weighed::default() };
    let items = items(turn);
    let shares = attention.shares(query, items_compared);
    let tokens = items.iter().map(|item| estimated_tokens(&item.text()));
    let kept = budget::kept(&shares, &tokens.collect::<Vec<_>>(), budget);
    let mut weighed = Weighed::default();
    for ((item, share), kept) in items.iter().zip(shares).zip(kept) {
        let (attention, left_out) = (Score::new(share), !kept);
        match item {
            Item::Evidence(place, _) => weighed.evidence.push((*place, attention, left_out)),
            Item::Exchange(place, _) => {
                weighed.history.push(Attended { place: *place, attention, left_out });
            }
        }
    }
    weighed
}

#[cfg(test)]
mod tests;
