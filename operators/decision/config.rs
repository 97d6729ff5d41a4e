//! The configuration of the decision.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_ports::refused::Refused;

use super::DecisionTexts;
use crate::prompted::PromptedConfig;
use crate::stage::{CallConfig, OnFailure};
use crate::stage_config::StageConfig;

/// The ways in which the stage can decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecisionForm {
    /// By the reader, where there are documents or tables.
    Learned,
    /// By the relevance of the evidence and the words of the utterance.
    Lexical,
    /// By a language model, which also words the response: one call for each turn.
    Prompted,
    /// Not at all: generation words the selected evidence.
    Off,
}

/// How the stage decides what a response does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DecisionConfig {
    /// How the stage decides: by the reader where there are documents or tables, and by rules in
    /// languages that it does not know (`learned`); by rules (`lexical`); by a language model that
    /// words the response in the same call (`prompted`), where all numbers, addresses and names
    /// must come from the evidence or the dialogue; or not at all (`off`).
    pub form: DecisionForm,
    /// How the language model of the prompted form is asked.
    pub prompted: PromptedConfig,
    /// What happens to a turn on which the stage fails.
    pub on_failure: OnFailure,
    /// The least share of answers that must be right, 0..=1: the response answers where at least
    /// this share of the answers with such a score was right on development data. The higher, the
    /// fewer answers.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_precision: f64,
    /// The least relevance of a passage or row that the lexical form answers from; 0..=1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_relevance: f64,
    /// The most passages and rows that the reader reads, the most relevant ones; 1..=64. Each takes
    /// some thirty milliseconds of one core. Twice as many are read for each of several questions.
    #[schemars(range(min = 1, max = 64))]
    pub max_read: u32,
    /// The most sentences of an answer; 1..=8.
    #[schemars(range(min = 1, max = 8))]
    pub max_sentences: u32,
    /// Whether an answer ends with the titles of the passages and the names of the tables that it
    /// is made from (`texts.*.source`). A table has the name of its source, with spaces for `_`
    /// and `-`.
    pub names_sources: bool,
    /// The least cosine of a turn and a phrasing that leads to an action at which the response
    /// takes that action; 0..=1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_taught_likeness: f64,
    /// When a conversation is handed over to a person.
    pub hand_off: HandOffConfig,
    /// The words of responses that answer nothing, by language.
    pub texts: DecisionTexts,
    /// How long to wait for the reader.
    pub call: CallConfig,
}

/// When a conversation is handed over to a person. The response then has the action `hand_off` and the
/// reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HandOffConfig {
    /// Whether to hand over when the user asks for a person.
    pub asked: bool,
    /// Whether to hand over when the user complains of repeated trouble, or is angry.
    pub complaint: bool,
    /// Whether to hand over when the user speaks of danger to people.
    pub safety: bool,
    /// The number of turns in a row for which nothing was found, after which to hand over; 0 for
    /// never, at most 64. They are counted in the window of the dialogue: of 8 utterances
    /// (`history.window_utterances`) no more than 5.
    #[schemars(range(max = 64))]
    pub nothing_found_turns: u32,
}

impl Default for HandOffConfig {
    fn default() -> Self {
        Self { asked: true, complaint: true, safety: true, nothing_found_turns: 3 }
    }
}

impl Default for DecisionConfig {
    fn default() -> Self {
        Self {
            form: DecisionForm::Learned,
            prompted: PromptedConfig::default(),
            on_failure: OnFailure::Lexical,
            min_precision: 0.6,
            min_relevance: 0.25,
            max_read: 4,
            max_sentences: 3,
            names_sources: false,
            min_taught_likeness: 0.85,
            hand_off: HandOffConfig::default(),
            texts: DecisionTexts::default(),
            // With a full queue of turns the reader is busy for that long.
            call: CallConfig { timeout_ms: 60_000, ..CallConfig::default() },
        }
    }
}

impl StageConfig for DecisionConfig {
    fn check(&self) -> Result<(), Refused> {
        self.texts.check()
    }

    fn prompted(&self) -> Option<&PromptedConfig> {
        Some(&self.prompted).filter(|_| self.form == DecisionForm::Prompted)
    }
}
