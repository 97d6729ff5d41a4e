//! The prompted form of a stage: a language model gets the turn in a prompt, and answers with JSON that
//! follows the stage's schema.
//!
//! All stages share one mechanism. A [`Template`]'s slots are filled from the turn, each behind a [`fence`].
//! The model is asked once or, where it thinks first, twice; and once more where its answer cannot be read.
//! A stage has a [`Prompt`] that does this, and implements `Prompted`, which says how a turn fills the slots,
//! and how an answer becomes a decision.

use std::borrow::Cow;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_ports::model::{
    Generate, GenerateRequest, Generated, LanguageModels, Listener, Origin, Step as AskedFor,
};
use turnstream_schemas::{Confidence, Fault, FaultKind, ModelUsed, Stage};

use crate::flow::{InFlight, TurnContext};
use crate::stage::{
    Answer, Asked, Call, CallConfig, Decide, Question, Request, Step, nobody_was_asked,
};

mod answer;
pub mod fence;
pub mod material;
mod prompts;
pub mod template;

pub(crate) use answer::{PromptAnswer, Words};
pub use prompts::{PromptError, Prompts, SHIPPED, table_of};
pub use template::{Slot, Template};

/// When a model is asked to think. (DCRAG: think, then generate.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Think {
    /// In the answer itself, before the rest of it: one call.
    #[default]
    Together,
    /// In a separate call, before the one for the answer. Generation, whose answer is text, has
    /// only this way, and only by a prompt that says how.
    First,
    /// Not at all (the paper's ablation −think).
    Never,
}

/// How a stage asks a language model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PromptedConfig {
    /// Which of `[language_models]` is asked, by its name there.
    pub model: String,
    /// The prompt: the name of one that ships (`turnstream prompts list`), or the path of a file. If not
    /// set, the stage's default prompt.
    pub prompt: Option<String>,
    /// When the model is asked to think, where the prompt says how.
    pub think: Think,
    /// The most tokens of an answer; from 1.
    #[schemars(range(min = 1))]
    pub max_tokens: u32,
    /// The sampling temperature, from 0 (always the likeliest token) to 2.
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: f32,
    /// The seed of the sampling.
    pub seed: u64,
    /// How long to wait for the model, and how often to ask.
    pub call: CallConfig,
}

impl Default for PromptedConfig {
    fn default() -> Self {
        Self {
            model: "default".to_owned(),
            prompt: None,
            think: Think::default(),
            max_tokens: 400,
            temperature: 0.0,
            seed: 0,
            call: CallConfig::default(),
        }
    }
}

/// The prompts of one stage, by the language of the turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagePrompts {
    /// For turns in Chinese.
    pub chinese: Template,
    /// For all others.
    pub english: Template,
}

impl StagePrompts {
    /// Whether the prompts say how to think.
    fn think(&self) -> bool {
        self.english.think().is_some() && self.chinese.think().is_some()
    }

    fn of(&self, context: &TurnContext) -> (&Template, &'static Wording) {
        if context.lexicon().is_chinese() {
            (&self.chinese, &CHINESE)
        } else {
            (&self.english, &ENGLISH)
        }
    }
}

/// The fixed sentences around a prompt, in one language.
struct Wording {
    fences: &'static str,
    /// Tells the model which property of the answer holds the thought.
    first_in: fn(&str) -> String,
    unusable: fn(&str) -> String,
}

static ENGLISH: Wording = Wording {
    fences: fence::NOTE_ENGLISH,
    first_in: |name| format!("Put that into \"{name}\", before everything else of the answer."),
    unusable: |reason| {
        format!("This was your answer, and it cannot be used: {reason}. Answer again, rightly.")
    },
};

static CHINESE: Wording = Wording {
    fences: fence::NOTE_CHINESE,
    first_in: |name| format!("把它写进回答的 \"{name}\"，放在最前面。"),
    unusable: |reason| format!("这是你的回答，但无法使用：{reason}。请重新正确地回答。"),
};

/// What a stage adds to its [`Decide`] for a prompted form.
pub(crate) trait Prompted: Decide {
    /// The type of the model's answer.
    type Answer: PromptAnswer;

    /// Whether the stage's decision names the model; if not, the turn's `models` does.
    const NAMES_ITS_MODEL: bool = false;
    /// Whether the model is asked once more where its answer is empty or cannot be used.
    const REPEATS: bool = true;

    /// Returns the text of a turn that fills a slot; empty where the turn has none.
    fn fill(&self, turn: &Self::Turn, slot: Slot) -> String;

    /// Makes a decision from an answer.
    ///
    /// # Errors
    /// If the answer cannot be used; the model is then asked once more.
    fn understand(
        &self,
        turn: &Self::Turn,
        said: Answered<Self::Answer>,
    ) -> Result<Self::Decision, Fault>;
}

/// A model's answer to a stage.
#[derive(Clone, Debug)]
pub(crate) struct Answered<A> {
    pub answer: A,
    /// The model's thought, on one line; empty where it did not think.
    pub thought: String,
    /// The model's confidence, where it gives one.
    pub confidence: Option<Confidence>,
    /// The model, and the prompt that it was asked by.
    pub model: ModelUsed,
}

/// The language models of a process and the prompts of its stages, from which prompted forms are made. Cheap
/// to clone.
#[derive(Clone, Default)]
pub struct Prompting {
    /// The language models, by their names in the configuration.
    pub language_models: LanguageModels,
    /// The prompts of the stages. A stage without one here uses its default prompt.
    pub prompts: Prompts,
}

/// Gives each turn the listener that receives its response while a model writes it.
#[derive(Clone)]
pub struct ReadAlong(pub Arc<dyn Fn(&TurnContext) -> Listener + Send + Sync>);

/// The prompted form of one stage: makes requests from turns, and reads answers.
#[derive(Clone)]
pub struct Prompt {
    stage: Stage,
    model: Arc<Generate>,
    templates: Arc<StagePrompts>,
    config: PromptedConfig,
    /// The schema of an answer; `None` where it is text.
    schema: Option<Arc<str>>,
    /// The name of the thought in an answer, where the stage thinks.
    thought: Option<&'static str>,
    read_along: Option<ReadAlong>,
}

impl Prompting {
    /// Returns the prompted form of a stage whose model answers with `A`. `None` where it is not
    /// configured, or there is no such model (which the check of the configuration refuses).
    pub(crate) fn prompt<A: PromptAnswer>(
        &self,
        stage: Stage,
        config: Option<&PromptedConfig>,
    ) -> Option<Prompt> {
        let config = config?;
        let model = Arc::clone(self.language_models.get(&config.model)?);
        let templates = self.prompts.of(stage).or_else(|| Prompts::shipped(stage))?;
        let thinks = config.think == Think::Together && A::THOUGHT.is_some();
        Some(Prompt {
            stage,
            model,
            templates,
            schema: A::schema(thinks).map(Arc::from),
            thought: A::THOUGHT.filter(|_| thinks),
            config: config.clone(),
            read_along: None,
        })
    }
}

impl Prompt {
    /// Sends answers to listeners while the model writes them.
    pub(crate) fn heard_by(self, read_along: Option<ReadAlong>) -> Self {
        Self { read_along, ..self }
    }

    /// Returns the call of the model.
    pub(crate) fn call(&self) -> Call {
        Call::new(Arc::clone(&self.model), &self.config.call)
    }

    /// Returns the name of the model.
    pub(crate) fn model(&self) -> &str {
        self.model.name()
    }

    /// Whether the turn's prompt has a slot.
    pub(crate) fn shows(&self, turn: &impl InFlight, slot: Slot) -> bool {
        self.templates.of(turn.context()).0.shows(slot)
    }

    /// Returns the first question about a turn: for a thought, where the model thinks first and the
    /// prompts say how; else for the answer.
    pub(crate) fn begin<S: Prompted>(&self, stage: &S, turn: &S::Turn) -> Step<S::Decision> {
        let answer = self.question(stage, turn, String::new());
        if self.config.think != Think::First || !self.templates.think() {
            return Step::Ask(answer);
        }
        let think = self.templates.of(turn.context()).0.think();
        let thought = self.request(stage, turn, AskedFor::Think, think.map(Cow::from).into_iter());
        // Where the thought fails, the answer is asked for without one.
        Step::Ask(Question::new(thought).or(answer))
    }

    /// Returns the step after an answer: the question for the answer after a thought, the decision,
    /// or the same question once more.
    ///
    /// # Errors
    /// If the answer cannot be used, and the question may not be repeated.
    pub(crate) fn read<S: Prompted>(
        &self,
        stage: &S,
        turn: &S::Turn,
        asked: &Asked,
        answer: Answer,
    ) -> Result<Step<S::Decision>, Fault> {
        let generated: Generated = answer.of(self.stage)?;
        if asked.is_dispensable() {
            return Ok(Step::Ask(self.question(stage, turn, one_line(&generated.text))));
        }
        match self.understood(stage, turn, asked, &generated) {
            Err(fault) if asked.may_repeat() => {
                Ok(Step::Repeat(self.again(turn, asked, &generated, &fault)))
            }
            understood => understood,
        }
    }

    /// [`Self::read`] for a stage that asks only by its prompt, if it has one.
    ///
    /// # Errors
    /// As for [`Self::read`], or if the stage has no prompt, and so cannot have asked.
    pub(crate) fn read_by<S: Prompted>(
        prompt: Option<&Self>,
        stage: &S,
        turn: &S::Turn,
        asked: &Asked,
        answer: Answer,
    ) -> Result<Step<S::Decision>, Fault> {
        match prompt {
            Some(prompt) => prompt.read(stage, turn, asked, answer),
            None => Err(nobody_was_asked(S::STAGE)),
        }
    }

    fn understood<S: Prompted>(
        &self,
        stage: &S,
        turn: &S::Turn,
        asked: &Asked,
        generated: &Generated,
    ) -> Result<Step<S::Decision>, Fault> {
        let unfit = |reason| Fault::new(self.stage, FaultKind::Unfit, reason);
        let answer = S::Answer::read(&generated.text).map_err(unfit)?;
        let thought = match asked.thought() {
            "" => one_line(answer.thought()),
            thought => thought.to_owned(),
        };
        let prompt_hash = Some(self.templates.of(turn.context()).0.hash().to_owned());
        let model = ModelUsed { prompt_hash, ..generated.model.clone() };
        let by = (!S::NAMES_ITS_MODEL).then(|| model.clone());
        let confidence = generated.confidence;
        let decision = stage.understand(turn, Answered { answer, thought, confidence, model })?;
        Ok(Step::Decided(decision, by))
    }

    /// Returns the question for the answer.
    fn question<S: Prompted>(&self, stage: &S, turn: &S::Turn, thought: String) -> Question {
        let (template, wording) = self.templates.of(turn.context());
        let fenced = (!thought.is_empty()).then(|| fence::fenced("thought", [&thought]));
        let think = template.think().zip(self.thought);
        let parts = think
            .map(|(think, name)| Cow::from(format!("{think} {}", (wording.first_in)(name))))
            .into_iter()
            .chain(fenced.map(Cow::from))
            .chain([Cow::from(template.answer())]);
        let request = self.request(stage, turn, AskedFor::Answer, parts);
        let question = Question::new(request).after(thought);
        if S::REPEATS { question.repeated() } else { question }
    }

    /// Returns the request after an answer that could not be used: the same, with that answer and
    /// the reason.
    fn again(
        &self,
        turn: &impl InFlight,
        asked: &Asked,
        answer: &Generated,
        fault: &Fault,
    ) -> Request {
        let (_, wording) = self.templates.of(turn.context());
        let mut request = asked.request().clone();
        if let Request::Text(request) = &mut request {
            if let Some(origin) = &mut request.origin {
                origin.step = AskedFor::Again;
            }
            request.prompt.push_str("\n\n");
            request.prompt.push_str(&fence::fenced("answer", [&answer.text]));
            request.prompt.push('\n');
            request.prompt.push_str(&(wording.unusable)(&one_line(&fault.reason)));
        }
        request
    }

    /// Makes a request with the turn's material, followed by these parts.
    fn request<'p, S: Prompted>(
        &self,
        stage: &S,
        turn: &S::Turn,
        step: AskedFor,
        parts: impl Iterator<Item = Cow<'p, str>>,
    ) -> GenerateRequest {
        let (template, wording) = self.templates.of(turn.context());
        let material = template.material(|slot| stage.fill(turn, slot));
        let prompt = parts.fold(material.trim_end().to_owned(), |mut prompt, part| {
            prompt.push_str("\n\n");
            prompt.push_str(&part);
            prompt
        });
        let is_answer = step == AskedFor::Answer;
        // The text that the gate reads is not for the user.
        let is_heard = is_answer && !turn.for_gate();
        GenerateRequest {
            stage: self.stage,
            system: format!("{}\n\n{}", template.task(), wording.fences),
            prompt,
            max_tokens: self.config.max_tokens,
            temperature: self.config.temperature,
            schema: self.schema.clone().filter(|_| is_answer),
            seed: self.config.seed,
            listener: self
                .read_along
                .as_ref()
                .filter(|_| is_heard)
                .map(|it| (it.0)(turn.context())),
            origin: Some(Origin {
                input: turn.context().input.clone(),
                step,
                round: turn.round(),
                for_gate: turn.for_gate(),
                prompt: template.hash().to_owned(),
            }),
        }
    }
}

/// Returns the text without line ends.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
