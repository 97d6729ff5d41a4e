//! Generation words the response. (DCRAG eq 8.)
//!
//! The lexical form has two generators that need no model. The *realiser* makes one to three
//! sentences from the selected facts, passages and the history: the best sentence of a passage, in
//! the passage's words, where a passage leads the selected evidence; else facts. It is the default
//! where no language model is configured, and the generator of load measurements. *None* says
//! nothing, to measure the engine alone. The learned form has the unified model word rows of
//! tables, checks its words, and leaves the rest to the realiser. The prompted form asks a language
//! model. `model.name` in the response says which of them wrote it.
//!
//! Where the decision gives the words (sentences of the evidence, or a text of the configuration),
//! they are the response in every form, except that a language model words an answer itself.
//!
//! Only the prompted form uses the turn's persona. The realiser does not: a sentence of a persona
//! is a claim about a person, not a fact of the world, and repeating to users what is known about
//! them answers nothing. So no persona sentence is selected in a response that the realiser wrote.
//!
//! Key: none. State: none. There is no response without words, so a failure makes a dead letter unless the
//! configuration says otherwise; then a fixed sentence admits the failure. The realiser never says a denied
//! fact as one that holds, never speaks for the user, and gives the same words for the same turn, history
//! and facts.

mod chinese;
mod grammar;
pub mod grounded;
mod learned;
mod passage;
mod prompted;
mod prose;
mod realiser;
mod row;
mod sayable;
mod templates;

pub(crate) use chinese::answers as answers_in_chinese;
pub use prose::is_prose;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use turnstream_knowledge::{Knowledge, View};
use turnstream_ports::model::unified::Unified;
use turnstream_schemas::{
    Action, Confidence, ConfidenceKind, Fault, FaultKind, ModelUsed, Score, Stage,
};

use crate::flow::{ActionDecision, Draft, Epoch, TurnInFlight};
use crate::prompted::{Answered, Prompt, Prompted, PromptedConfig, Slot, Words};
use crate::stage::{
    Answer, Asked, Call, CallConfig, Decide, OnFailure, Step, Streams, Without, run,
};
use crate::stage_config::StageConfig;
use crate::stage_context::StageContext;

const STAGE: Stage = Stage::Generation;

/// The name in `model` of a response whose words the decision gave.
const DECISION: &str = "decision";

/// The generator of the lexical form.
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
    /// Returns the name of the generator in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Realiser => "realiser",
            Self::None => "none",
        }
    }
}

/// The ways in which responses can be worded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GenerationForm {
    /// Rules, without a model.
    Lexical,
    /// The unified model where it can word the response; else rules.
    Learned,
    /// A language model.
    Prompted,
}

/// How responses are generated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GenerationConfig {
    /// What words the response: rules (`lexical`); the unified model (`learned`, `models.unified`) where a
    /// row of a table leads the evidence and the model says no more than the row does, else rules; or a
    /// language model (`prompted`).
    pub form: GenerationForm,
    /// What happens to a turn where the stage fails. Where the unified model of the learned form fails, rules
    /// word the response, whatever this setting says.
    pub on_failure: OnFailure,
    /// Which generator of the lexical form writes.
    pub generator: Generator,
    /// The most facts that the realiser says in one response; 1..=3.
    #[schemars(range(min = 1, max = 3))]
    pub max_facts_said: u32,
    /// The longest piece of an earlier response that the realiser repeats, in bytes of UTF-8;
    /// 1..=4096. A longer one is cut after its first sentence, or not repeated.
    #[schemars(range(min = 1, max = 4096))]
    pub max_repeated_bytes: u32,
    /// The longest sentence of a document that the realiser quotes, in bytes of UTF-8; 1..=4096. It
    /// does not quote longer ones.
    #[schemars(range(min = 1, max = 4096))]
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
    /// The most tokens of a response; a longer draft is not used. 1..=512.
    #[schemars(range(min = 1, max = 512))]
    pub max_tokens: u32,
    /// How many drafts the model makes; the first that is faithful to its evidence is the response. The
    /// first draft is the most probable one, the others are sampled. 1..=16.
    #[schemars(range(min = 1, max = 16))]
    pub drafts: u32,
    /// How long to wait for the model.
    pub call: CallConfig,
}

impl Default for LearnedGenerationConfig {
    fn default() -> Self {
        // With a full queue of turns the model is busy for that long.
        let call = CallConfig { timeout_ms: 60_000, ..CallConfig::default() };
        Self { max_tokens: 96, drafts: 4, call }
    }
}

impl Default for GenerationConfig {
    fn default() -> Self {
        Self {
            form: GenerationForm::Learned,
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

impl StageConfig for GenerationConfig {
    fn prompted(&self) -> Option<&PromptedConfig> {
        Some(&self.prompted).filter(|_| self.form == GenerationForm::Prompted)
    }
}

/// Runs generation over a stream of turns. Returns (turns with their response, faults).
pub fn generation<'scope>(
    turns: StreamVec<'scope, Epoch, TurnInFlight>,
    config: GenerationConfig,
    context: &StageContext,
) -> Streams<'scope, TurnInFlight> {
    run(turns, Generation::new(config, context), &context.runner)
}

/// The stage.
struct Generation {
    config: GenerationConfig,
    knowledge: Knowledge,
    unified: Option<Arc<Unified>>,
    prompt: Option<Prompt>,
}

/// A response, and what the stage writes beside it.
struct Worded {
    draft: Draft,
    /// The thought of a language model, where one was asked.
    thought: Option<String>,
    /// Whether the model that wrote it saw the turn's persona.
    is_persona_shown: bool,
    /// Whether the decision gave its words.
    is_given: bool,
}

impl Worded {
    fn by_rules(draft: Draft) -> Self {
        Self { draft, thought: None, is_persona_shown: false, is_given: false }
    }
}

impl Generation {
    fn new(config: GenerationConfig, context: &StageContext) -> Self {
        let is_learned = config.form == GenerationForm::Learned;
        let unified = context.unified.clone().filter(|_| is_learned);
        let prompt = context.prompting.prompt::<Words>(STAGE, config.prompted());
        let prompt = prompt.map(|prompt| prompt.heard_by(context.read_along.clone()));
        Self { config, knowledge: context.knowledge.clone(), unified, prompt }
    }

    /// Makes the response of the lexical form.
    fn by_rules(&self, turn: &TurnInFlight) -> Draft {
        self.knowledge.at(&turn.knowledge, |view| generate(turn, view, &self.config))
    }

    /// Returns the unified model, if it can word the turn.
    fn unified(&self, turn: &TurnInFlight) -> Option<&Arc<Unified>> {
        let unified = self.unified.as_ref().filter(|_| self.decided(turn).is_none());
        unified.filter(|_| learned::leading_row(turn).is_some())
    }

    /// Returns the response whose words the decision gives, if it gives any. A language model words
    /// an answer itself.
    fn decided(&self, turn: &TurnInFlight) -> Option<Draft> {
        if self.config.generator == Generator::None {
            return None;
        }
        let ActionDecision { action, said, precision, pieces, .. } = turn.decision.as_ref()?;
        let text = said.clone()?;
        if *action == Action::Answer && self.prompt.is_some() {
            return None;
        }
        let precision = precision.filter(|_| *action == Action::Answer);
        let of = |it: Score| Confidence { kind: ConfidenceKind::AnswerPrecision, value: it.get() };
        let evidence = turn.evidence.iter().take(*pieces);
        Some(Draft {
            text,
            confidence: precision.map(of),
            model: model_of(DECISION),
            citations: evidence.map(Into::into).collect(),
        })
    }
}

impl Decide for Generation {
    type Turn = TurnInFlight;
    type Decision = Worded;

    const STAGE: Stage = STAGE;

    fn on_failure(&self, turn: &TurnInFlight) -> OnFailure {
        match self.unified(turn) {
            // Where the unified model fails, the realiser makes the response.
            Some(_) => OnFailure::Lexical,
            None => self.config.on_failure,
        }
    }

    fn call(&self) -> Option<Call> {
        let learned = &self.config.learned;
        let unified = self.unified.clone().map(|model| Call::new(model, &learned.call));
        unified.or_else(|| self.prompt.as_ref().map(Prompt::call))
    }

    fn begin(&self, turn: &TurnInFlight) -> Result<Step<Worded>, Fault> {
        if let Some(said) = self.decided(turn) {
            return Ok(Step::decided(Worded { is_given: true, ..Worded::by_rules(said) }));
        }
        if let Some(prompt) = &self.prompt {
            return Ok(prompt.begin(self, turn));
        }
        Ok(match self.unified(turn) {
            Some(_) => Step::ask(vec![learned::request(turn, &self.config.learned)]),
            None => Step::decided(Worded::by_rules(self.by_rules(turn))),
        })
    }

    fn read(
        &self,
        turn: &TurnInFlight,
        asked: &Asked,
        answer: Answer,
    ) -> Result<Step<Worded>, Fault> {
        let Some(model) = self.unified(turn) else {
            return Prompt::read_by(self.prompt.as_ref(), self, turn, asked, answer);
        };
        let worded = learned::read(turn, answer, model.name())?;
        let draft = worded.unwrap_or_else(|| self.by_rules(turn));
        Ok(Step::decided(Worded::by_rules(draft)))
    }

    fn without(&self, turn: &TurnInFlight, why: Without<'_>) -> Worded {
        let by = self.prompt.as_ref().map_or(self.config.generator.name(), Prompt::model);
        let draft = match why {
            Without::ByRules(_) => self.by_rules(turn),
            _ => admitted(turn, by),
        };
        let thought = self.prompt.as_ref().map(|_| why.thought().to_owned());
        Worded { thought, ..Worded::by_rules(draft) }
    }

    fn write(&self, turn: &mut TurnInFlight, worded: Worded) {
        let Worded { draft, thought, is_persona_shown, is_given } = worded;
        if is_given {
            // The words come from the first pieces of evidence.
            let pieces = turn.decision.as_ref().map_or(0, |it| it.pieces);
            let others = turn.evidence.iter_mut().skip(pieces);
            others.for_each(|evidence| evidence.selected = false);
        }
        if let Some(thought) = thought {
            turn.demand.thoughts.generation = thought;
        } else if draft.citations.is_empty()
            && self.config.generator != Generator::None
            && let Some(decision) = turn.decision.as_mut().filter(|it| it.needs_words())
        {
            // Evidence that cannot be worded answers nothing: the response asks back.
            *decision = ActionDecision::to(Action::Ask);
            turn.evidence.iter_mut().for_each(|evidence| evidence.selected = false);
        }
        if !is_persona_shown {
            // The response was written without the persona.
            let persona = turn.evidence.iter_mut().filter(|evidence| evidence.persona.is_some());
            persona.for_each(|sentence| sentence.selected = false);
        }
        turn.draft = draft;
    }
}

impl Prompted for Generation {
    type Answer = Words;

    const NAMES_ITS_MODEL: bool = true;

    fn fill(&self, turn: &TurnInFlight, slot: Slot) -> String {
        prompted::fill(turn, slot)
    }

    fn understand(&self, turn: &TurnInFlight, said: Answered<Words>) -> Result<Worded, Fault> {
        let Answered { answer: Words(text), thought, confidence, model } = said;
        let unfit = |unfit: prose::NotProse| Fault::new(STAGE, FaultKind::Unfit, unfit.to_string());
        let text = prose::read(&text).map_err(unfit)?.to_owned();
        let shows = |prompt: &Prompt| prompt.shows(turn, Slot::Persona);
        let is_persona_shown = self.prompt.as_ref().is_some_and(shows);
        let seen = turn.evidence.iter().filter(|evidence| evidence.selected);
        let seen = seen.filter(|evidence| is_persona_shown || evidence.persona.is_none());
        let draft = Draft { text, confidence, model, citations: seen.map(Into::into).collect() };
        Ok(Worded { draft, thought: Some(thought), is_persona_shown, is_given: false })
    }
}

/// Makes the response where the stage failed and may degrade.
fn admitted(turn: &TurnInFlight, by: &str) -> Draft {
    let text = if turn.context.lexicon().is_chinese() {
        "抱歉，出了点问题，我没法回答。"
    } else {
        "I am sorry, something went wrong and I cannot answer that."
    };
    Draft { text: text.to_owned(), model: model_of(by), ..Draft::default() }
}

fn model_of(name: &str) -> ModelUsed {
    ModelUsed { name: name.to_owned(), prompt_hash: None }
}

/// Makes the response to a turn by the configured generator.
pub fn generate(turn: &TurnInFlight, graph: View<'_>, config: &GenerationConfig) -> Draft {
    let model = model_of(config.generator.name());
    match config.generator {
        Generator::None => Draft { model, ..Draft::default() },
        Generator::Realiser => {
            let realiser::Realised { text, evidence } = realiser::realise(turn, graph, config);
            let relevance: f64 = evidence.iter().map(|it| it.relevance.get()).sum();
            let confidence = (!evidence.is_empty()).then(|| Confidence {
                kind: ConfidenceKind::MeanRelevance,
                value: relevance / evidence.len() as f64,
            });
            let citations = evidence.into_iter().map(Into::into).collect();
            Draft { text, confidence, model, citations }
        }
    }
}

#[cfg(test)]
mod tests;
