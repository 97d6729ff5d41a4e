//! The learned gate: a trained encoder scores the turn. (RAGate-MHA.)
//!
//! The stage asks the encoder through its port ([`LearnedGate`]). It links concepts as in the lexical
//! form, because all later stages read them. The lexical form decides about turns in a language that
//! the encoder was not trained on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_ports::model::gate::{GateFailure, GateReading, GateScores, LearnedGate};
use turnstream_schemas::{Fault, FaultKind, ModelUsed, Stage};

use crate::flow::TurnContext;

/// The trained encoder of the forms `learned` and `by_source`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LearnedGateConfig {
    /// The encoder: `"shipped"` (English, inside the program), or the path of one that
    /// `turnstream train gate` made.
    pub model: String,
    /// The definitions of need that open the gate, by their names in the encoder's card; the highest of
    /// their scores counts. If empty: all of them in the form `learned`, and in the form `by_source`
    /// `dstc11` for documents and `sgd` for tables.
    pub definitions: Vec<String>,
}

/// The value of `gate.learned.model` that names the gate inside the program.
pub const SHIPPED: &str = "shipped";

impl Default for LearnedGateConfig {
    fn default() -> Self {
        Self { model: SHIPPED.to_owned(), definitions: Vec::new() }
    }
}

/// The texts that the encoder reads beside the dialogue.
#[derive(Default)]
pub(super) struct Reads<'a> {
    pub(super) knowledge: Vec<&'a str>,
    pub(super) response: Option<&'a str>,
}

/// Whether the model was trained on the language of the turn.
pub(super) fn reads(model: &dyn LearnedGate, context: &TurnContext) -> bool {
    context.lexicon().language() == model.language()
}

/// Returns the parts of a turn that a model reads.
pub(super) fn reading<'a>(context: &'a TurnContext, reads: Reads<'a>) -> GateReading<'a> {
    let utterances = context.dialogue.iter();
    let utterances = utterances.map(|said| (said.speaker, &*said.text)).collect();
    GateReading { utterances, knowledge: reads.knowledge, response: reads.response }
}

/// Returns the model's scores of a turn, for all its definitions of need.
///
/// # Errors
/// If the model fails on the turn.
pub(super) fn score(
    model: &dyn LearnedGate,
    context: &TurnContext,
    reads: Reads<'_>,
) -> Result<GateScores, Fault> {
    let reading = reading(context, reads);
    let failed = |GateFailure(what): GateFailure| Fault::new(Stage::Gate, FaultKind::Error, what);
    model.score(&reading).map_err(failed)
}

/// Returns the model's name, for the record.
pub(super) fn used(model: &dyn LearnedGate) -> ModelUsed {
    ModelUsed { name: model.name().to_owned(), prompt_hash: None }
}
