//! Generation: the words of the response. (DCRAG eq 8.)
//!
//! The lexical form has two generators that need no model. The *realiser* says, in one to three
//! sentences, what the selected facts, passages and the history give (where a passage leads the
//! selected evidence, its best sentence in its own words; else facts): it is the fallback where no language
//! model is configured, and what load is measured with. *None* says nothing, to measure the
//! engine alone. The learned form has the unified model word rows of tables, checks what it says, and leaves
//! the rest to the realiser. The prompted form asks a language model, through [`mod@crate::call`]. `model.name` in the
//! response tells which it was.
//!
//! The turn's persona speaks to the prompted form alone. The realiser reads none of it aloud: a
//! sentence of a persona is what somebody said of somebody, and no fact of the world, and words
//! that the user is known by already answer nothing. So none of it is selected in a response that the realiser wrote.
//!
//! Key: none. State: none. A turn without words is no response, so a failure makes a dead letter
//! unless the configuration says otherwise; then a fixed sentence admits it. The realiser never
//! says a denied fact as one that holds, never speaks for the user, and gives the same words for
//! the same turn, history and facts.

mod chinese;
pub mod faithful;
mod grammar;
pub mod grounded;
mod learned;
mod passage;
mod prompted;
mod prose;
mod realiser;
mod row;
mod templates;

pub use prose::is_prose;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use turnstream_knowledge::View;
use turnstream_knowledge::language::Lexicon;
use turnstream_ports::form::{Form, Refused, check_bound};
use turnstream_schemas::{Confidence, ConfidenceKind, ModelUsed, Stage};

use crate::call::CallConfig;
use crate::flow::{Draft, Drafted, Epoch, Failed, Grounded};
use crate::prompted::PromptedConfig;
use crate::resources::Resources;
use crate::stage::{OnFailure, Work, stage};

/// A generator's streams: turns with their response, and faults.
type Streams<'scope> = (StreamVec<'scope, Epoch, Drafted>, StreamVec<'scope, Epoch, Failed>);

/// What writes the responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Generator {
    /// Sentences made from the selected facts and the history by rules.
    #[default]
    Realiser,
    /// No words at all.
    None,
}

impl Generator {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Realiser => "realiser",
            Self::None => "none",
        }
    }
}

/// How responses are generated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GenerationConfig {
    /// How words are found: `lexical`, by rules; `learned`, by the unified model (`models.unified`) where a row of
    /// a table leads the evidence and the model says no more than the row does, else by rules; `prompted`, by a
    /// language model.
    pub form: Form,
    /// What becomes of a turn that the stage fails on. Where the unified model of the learned form fails, the
    /// rules word the response, whatever stands here.
    pub on_failure: OnFailure,
    /// Which generator of the lexical form writes.
    pub generator: Generator,
    /// Most facts that the realiser says in one response; 1..=3.
    pub max_facts_said: u32,
    /// Longest piece of an earlier response that the realiser repeats, in bytes of UTF-8;
    /// 1..=4096. What is longer is cut after its first sentence, or not repeated.
    pub max_repeated_bytes: u32,
    /// Longest sentence of a document that the realiser quotes, in bytes of UTF-8; 1..=4096. A
    /// longer one is not said.
    pub max_quoted_bytes: u32,
    /// How the language model of the prompted form is asked.
    pub prompted: PromptedConfig,
    /// How the unified model of the learned form is asked.
    pub learned: LearnedGenerationConfig,
}

/// How the unified model is asked for a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LearnedGenerationConfig {
    /// Tokens that a response has at most; a longer one is not said. 1..=512.
    pub max_tokens: u32,
    /// How often a response is worded; the first draft that is faithful to its evidence is said. The first
    /// is the most probable, the others are drawn. 1..=16.
    pub drafts: u32,
    /// How long to wait for it.
    pub call: CallConfig,
}

impl Default for LearnedGenerationConfig {
    fn default() -> Self {
        // With its queue full of turns it is busy for that long.
        let call = CallConfig { timeout_ms: 60_000, ..CallConfig::default() };
        Self { max_tokens: 96, drafts: 4, call }
    }
}

impl Default for GenerationConfig {
    fn default() -> Self {
        Self {
            form: Form::Learned,
            on_failure: OnFailure::DeadLetter,
            generator: Generator::Realiser,
            max_facts_said: 2,
            max_repeated_bytes: 200,
            max_quoted_bytes: 400,
            prompted: PromptedConfig::default(),
            learned: LearnedGenerationConfig::default(),
        }
    }
}

impl GenerationConfig {
    /// Checks the form and the ranges.
    ///
    /// # Errors
    /// [`Refused`] by key.
    pub fn check(&self) -> Result<(), Refused> {
        self.form.is_one_of(&[Form::Lexical, Form::Learned, Form::Prompted], Stage::Generation)?;
        check_bound(Stage::Generation, "learned.max_tokens", self.learned.max_tokens, 512)?;
        check_bound(Stage::Generation, "learned.drafts", self.learned.drafts, 16)?;
        self.prompted.check(Stage::Generation)?;
        check_bound(Stage::Generation, "max_facts_said", self.max_facts_said, 3)?;
        check_bound(Stage::Generation, "max_repeated_bytes", self.max_repeated_bytes, 4096)?;
        check_bound(Stage::Generation, "max_quoted_bytes", self.max_quoted_bytes, 4096)
    }
}

/// Generation over a stream of turns: (turns with their response, faults).
pub fn generation<'scope>(
    turns: StreamVec<'scope, Epoch, Grounded>,
    config: GenerationConfig,
    resources: &Resources,
) -> Streams<'scope> {
    const STAGE: Stage = Stage::Generation;
    if let Some(model) = resources.unified.clone().filter(|_| config.form == Form::Learned) {
        return learned::generation(turns, model, config, resources);
    }
    match resources.asking(STAGE, config.form, &config.prompted, config.on_failure) {
        Some(asking) => {
            let lexical = prompted::Lexical { knowledge: resources.knowledge.clone(), config };
            prompted::generation(turns, asking, lexical, resources.listener.clone())
        }
        None => lexical(turns, config, resources),
    }
}

fn lexical<'scope>(
    turns: StreamVec<'scope, Epoch, Grounded>,
    config: GenerationConfig,
    resources: &Resources,
) -> Streams<'scope> {
    let knowledge = resources.knowledge.clone();
    let shell = resources.shell(config.on_failure);
    let generator = config.generator;
    let work = Work {
        work: move |turn: &Grounded| {
            Ok(knowledge.at(&turn.turn.knowledge, |view| generate(turn, view, &config)))
        },
        fallback: move |turn: &Grounded| admitted(turn, generator.name()),
        join: |grounded, draft| Drafted { grounded: without_persona(grounded), draft },
    };
    stage(turns, Stage::Generation, shell, work)
}

/// The turn with no sentence of its persona selected: what wrote the response was shown none.
fn without_persona(mut grounded: Grounded) -> Grounded {
    let persona = grounded.evidence.iter_mut().filter(|evidence| evidence.persona.is_some());
    persona.for_each(|sentence| sentence.selected = false);
    grounded
}

/// The response of a stage that failed and may degrade.
fn admitted(turn: &Grounded, by: &str) -> Draft {
    let text = if turn.turn.context.lexicon().language() == Lexicon::chinese().language() {
        "抱歉，出了点问题，我没法回答。"
    } else {
        "I am sorry, something went wrong and I cannot answer that."
    };
    Draft { text: text.to_owned(), confidence: None, model: model_of(by) }
}

fn model_of(name: &str) -> ModelUsed {
    ModelUsed { name: name.to_owned(), prompt_hash: None }
}

/// The response to a turn.
pub fn generate(turn: &Grounded, graph: View<'_>, config: &GenerationConfig) -> Draft {
    let model = model_of(config.generator.name());
    match config.generator {
        Generator::None => Draft { text: String::new(), confidence: None, model },
        Generator::Realiser => {
            let realised = realiser::realise(turn, graph, config);
            let confidence = realised
                .mean_relevance
                .map(|value| Confidence { kind: ConfidenceKind::MeanRelevance, value });
            Draft { text: realised.text, confidence, model }
        }
    }
}

#[cfg(test)]
mod tests;
