//! Integration: evidence and history weighed together, as the context that the response is made
//! from (DH-RAG eq 5–8).
//!
//! Stands between fact selection and generation. Every piece of selected evidence, and every
//! exchange that was recalled from beyond the dialogue, has a share of the attention,
//! w_i = softmax(q_t^T W d_i) (eq 6). What the vectors d_i are: the terms of a text and, where an
//! encoder is at hand, what it makes of it, side by side; W is the identity, scaled, unless trained
//! weights are configured. The weighted sum C (eq 7) would be of no use to what reads words: C here is the
//! weighed set itself, in the order of its weights and cut to a budget of tokens. What is cut is not
//! shown to what writes the response, and counts as not selected.
//!
//! Key: none. State: none. Where it fails and may degrade, nothing is weighed and nothing cut. It never
//! adds anything, and the order of fact selection stays in the record.

mod attention;
mod budget;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use timely::dataflow::operators::Concat;
use timely::dataflow::operators::vec::Branch;
use turnstream_ports::form::{Form, Refused, check_bound, check_fraction};
use turnstream_ports::model::Embedding;
use turnstream_ports::model::encoder::Encoder;
use turnstream_schemas::{Evidence, Fault, FaultKind, HistoryEntry, Passage, Score, Stage};

use crate::call::{CallConfig, CallShell, Question, call};
use crate::flow::{Attended, Epoch, Failed, Grounded, Recalled};
use crate::history::similarity::text_of;
use crate::resources::Resources;
use crate::stage::{OnFailure, Work, stage};

pub use attention::{Attention, Compared, Matrix};
pub use budget::estimated_tokens;

const STAGE: Stage = Stage::Integration;

/// A stage's streams: turns, weighed, and faults.
type Streams<'scope> = (StreamVec<'scope, Epoch, Grounded>, StreamVec<'scope, Epoch, Failed>);

/// How evidence and history are weighed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IntegrationConfig {
    /// By which W: the identity (`lexical`), trained weights (`learned`), or no weighing at all
    /// (`off`).
    pub form: Form,
    /// What becomes of a turn that the stage fails on.
    pub on_failure: OnFailure,
    /// Trained weights, as `turnstream train integration` writes them; for `form = "learned"`.
    pub weights: Option<PathBuf>,
    /// What the likeness of a query and a text, 0..=1, is divided by before the softmax; 0.01..=10.
    /// The smaller, the more of the attention has what is most like the query. Trained weights bring
    /// their own.
    pub temperature: f64,
    /// The share of vectors in that likeness, where there are any, 0..=1; the rest is that of words.
    /// Trained weights bring their own.
    pub meaning_share: f64,
    /// Tokens that the weighed texts may have together, 1..=1,000,000, by an estimate: one for every
    /// Chinese character, one for every four bytes of other text. What has the least attention is left
    /// out first.
    pub max_tokens: u32,
    /// Whether an encoder that has to be waited for is asked for the vectors; by default only one that takes
    /// microseconds is, and texts are weighed by words where there is none.
    pub wait_for_encoder: bool,
    /// How long to wait for it.
    pub call: CallConfig,
}

impl Default for IntegrationConfig {
    fn default() -> Self {
        Self {
            form: Form::Lexical,
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

impl IntegrationConfig {
    /// Checks the form and the ranges.
    ///
    /// # Errors
    /// [`Refused`] by key.
    pub fn check(&self) -> Result<(), Refused> {
        self.form.is_one_of(&[Form::Lexical, Form::Learned, Form::Off], STAGE)?;
        if self.form == Form::Learned && self.weights.is_none() {
            let needs = "`weights` beside form = \"learned\"";
            return Err(Refused::Together { stage: STAGE, key: "weights", needs });
        }
        if !(0.01..=10.0).contains(&self.temperature) {
            let (key, value) = ("temperature", self.temperature);
            let range = "a number from 0.01 to 10";
            return Err(Refused::Range { stage: STAGE, key, value, range });
        }
        check_fraction(STAGE, "meaning_share", self.meaning_share)?;
        check_bound(STAGE, "max_tokens", self.max_tokens, 1_000_000)
    }

    /// Attention with the identity for W.
    pub fn identity(&self) -> Attention {
        Attention::identity(self.temperature, self.meaning_share)
    }
}

/// Integration over a stream of turns: (turns with their evidence and history weighed, faults).
pub fn integration<'scope>(
    turns: StreamVec<'scope, Epoch, Grounded>,
    config: IntegrationConfig,
    resources: &Resources,
) -> Streams<'scope> {
    if config.form == Form::Off {
        let work = |_: &Grounded| Ok(Weighed::default());
        return in_place(turns, config.on_failure, resources, work);
    }
    let trained = resources.attention.clone().filter(|_| config.form == Form::Learned);
    let attention = trained.map_or_else(|| config.identity(), |trained| (*trained).clone());
    let budget = config.max_tokens;
    match resources.embed.clone().filter(|_| config.wait_for_encoder) {
        Some(model) => {
            // Where there is nothing to weigh, no model is asked.
            let (nothing, turns) = turns.branch(|_, turn| !items(turn).is_empty());
            let work = |_: &Grounded| Ok(Weighed::default());
            let (nothing, no_faults) = in_place(nothing, config.on_failure, resources, work);
            let Resources { timers, awaited, .. } = resources.clone();
            let shell = resources.shell(config.on_failure);
            let shell = CallShell { shell, call: config.call, timers, awaited };
            let question = Question {
                ask: |turn: &Grounded| texts(turn),
                read: move |turn: &Grounded, vectors: Vec<Embedding>| {
                    let compared = texts(turn).into_iter().zip(vectors);
                    let compared =
                        compared.map(|(text, vector)| Compared::new(&text, Some(&vector)));
                    Ok(weigh(turn, &compared.collect::<Vec<_>>(), &attention, budget))
                },
                fallback: |_: &Grounded| Weighed::default(),
                join: weighed,
            };
            let (turns, faults) = call(turns, STAGE, model, shell, question);
            (turns.concat(nothing), faults.concat(no_faults))
        }
        None => {
            let encoder = resources.encoder.clone();
            let work = move |turn: &Grounded| {
                let compared = compared(&texts(turn), encoder.as_deref())?;
                Ok(weigh(turn, &compared, &attention, budget))
            };
            in_place(turns, config.on_failure, resources, work)
        }
    }
}

fn in_place<'scope>(
    turns: StreamVec<'scope, Epoch, Grounded>,
    on_failure: OnFailure,
    resources: &Resources,
    work: impl Fn(&Grounded) -> Result<Weighed, Fault> + 'static,
) -> Streams<'scope> {
    let fallback = |_: &Grounded| Weighed::default();
    stage(turns, STAGE, resources.shell(on_failure), Work { work, fallback, join: weighed })
}

/// What texts are compared by; by words where no encoder is at hand.
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

/// What is weighed.
#[derive(Clone, Copy, Debug)]
enum Item<'t> {
    /// Selected evidence, by its place.
    Evidence(usize, &'t Evidence),
    /// An exchange that was recalled, by its place.
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

/// What an exchange is compared by: query, response and the passage that answers best, a line each.
pub fn text_of_exchange(entry: &HistoryEntry, passage: Option<&Passage>) -> String {
    let passage = passage.map(|passage| passage.text.clone());
    text_of(entry).into_iter().chain(passage).collect::<Vec<_>>().join("\n")
}

/// Selected evidence in its order, then the exchanges as they were recalled.
fn items(turn: &Grounded) -> Vec<Item<'_>> {
    let evidence = turn.evidence.iter().enumerate();
    let evidence = evidence.filter(|(_, evidence)| evidence.selected);
    let evidence = evidence.map(|(place, evidence)| Item::Evidence(place, evidence));
    let exchanges = turn.turn.context.out_of_sight();
    evidence.chain(exchanges.map(|(place, recalled)| Item::Exchange(place, recalled))).collect()
}

/// The query, then each item in words.
fn texts(turn: &Grounded) -> Vec<String> {
    let query = turn.turn.context.query().to_owned();
    let items = items(turn);
    std::iter::once(query).chain(items.iter().map(Item::text)).collect()
}

/// What became of a turn's items.
#[derive(Clone, Debug, Default, PartialEq)]
struct Weighed {
    /// The evidence that was weighed, by place: its share, and whether there is no room for it.
    evidence: Vec<(usize, Score, bool)>,
    history: Vec<Attended>,
}

/// Weighs a turn's items; `compared` has the query, then each item.
fn weigh(turn: &Grounded, compared: &[Compared], attention: &Attention, budget: u32) -> Weighed {
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

/// The turn with its items weighed. What there is no room for goes behind what is selected.
fn weighed(mut turn: Grounded, weighed: Weighed) -> Grounded {
    for (place, attention, left_out) in weighed.evidence {
        let evidence = &mut turn.evidence[place];
        evidence.attention = Some(attention);
        evidence.selected = !left_out;
    }
    turn.evidence.sort_by_key(|evidence| !evidence.selected);
    Grounded { history: weighed.history, ..turn }
}

#[cfg(test)]
mod tests;
