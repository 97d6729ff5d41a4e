//! The learned gate: a trained model scores the turn. (RAGate-MHA; METHODS section 1.)
//!
//! The gate is asked through its port ([`LearnedGate`]). Concepts are linked as in the lexical
//! form, since all later stages read them. A turn in a language that the model was not trained on
//! is decided by the lexical form.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_ports::model::gate::{GateFailure, GateReading, GateScores, LearnedGate};
use turnstream_schemas::{Fault, FaultKind, ModelUsed, Stage};

use crate::flow::TurnContext;

/// The trained encoder of the learned form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LearnedGateConfig {
    /// The gate: `"shipped"` (the one inside the program, English), or the path of one that
    /// `turnstream train gate` made.
    pub model: String,
    /// The definitions of need that open the gate, by the names in the gate's card. Where none is
    /// given: in the form `learned` all of them; in the form `by_source` `dstc11` where documents can
    /// be asked, and `sgd` where tables can. The score is the highest of theirs.
    pub definitions: Vec<String>,
}

/// What `gate.learned.model` calls the gate inside the program.
pub const SHIPPED: &str = "shipped";

impl Default for LearnedGateConfig {
    fn default() -> Self {
        Self { model: SHIPPED.to_owned(), definitions: Vec::new() }
    }
}

/// What is read beside the dialogue.
#[derive(Default)]
pub(super) struct Reads<'a> {
    pub(super) knowledge: Vec<&'a str>,
    pub(super) response: Option<&'a str>,
}

/// Whether the model was trained on the language of the turn.
pub(super) fn reads(model: &dyn LearnedGate, context: &TurnContext) -> bool {
    context.lexicon().language() == model.language()
}

/// A turn's scores by all that the model knows.
///
/// # Errors
/// The model fails on the turn.
pub(super) fn score(
    model: &dyn LearnedGate,
    context: &TurnContext,
    Reads { knowledge, response }: Reads<'_>,
) -> Result<GateScores, Fault> {
    let utterances = context.dialogue.iter();
    let utterances = utterances.map(|said| (said.speaker, &*said.text)).collect();
    let reading = GateReading { utterances, knowledge, response };
    let failed = |GateFailure(what): GateFailure| Fault::new(Stage::Gate, FaultKind::Error, what);
    model.score(&reading).map_err(failed)
}

/// The model's name for the record.
pub(super) fn used(model: &dyn LearnedGate) -> ModelUsed {
    ModelUsed { name: model.name().to_owned(), prompt_hash: None }
}
