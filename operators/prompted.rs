//! The prompted form of a stage: a language model is given the turn in a prompt, and answers with
//! JSON that follows the stage's schema.
//!
//! One mechanism for all stages: a [`Template`] with the turn's slots filled, each behind a
//! [`fence`]; the model asked through [`mod@call`](mod@crate::call), once or, where it is to think
//! first, twice; the answer read, and asked for once more where it cannot be. What a stage does
//! with an answer is its own.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use timely::dataflow::operators::Concat;
use timely::dataflow::operators::generic::operator::empty;
use timely::dataflow::operators::vec::Map;
use turnstream_knowledge::language::Lexicon;
use turnstream_ports::form::{Refused, check_bound};
use turnstream_ports::model::{Generate, GenerateRequest, Generated, Origin, Step};
use turnstream_schemas::{Fault, FaultKind, ModelUsed, Stage};

use crate::call::{CallConfig, CallShell, Mend, Question, call, call_mending};
use crate::flow::{Epoch, Failed, InFlight, Progress, TurnContext};

mod answer;
pub mod fence;
pub mod material;
mod prompts;
pub mod template;

pub(crate) use answer::Answer;
pub use prompts::{PromptError, Prompts, SHIPPED, table_of};
pub use template::{Slot, Template};

/// When a model is asked to think. (DCRAG: think, then generate.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Think {
    /// In the answer itself, before the rest of it: one call.
    #[default]
    Together,
    /// In a call of its own, before the one for the answer. Generation, whose answer is text, has
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
    /// The prompt: a name that ships (`turnstream prompts list`), or the path of a file. Where it
    /// is not set, the stage's own.
    pub prompt: Option<String>,
    /// When the model is asked to think, where the prompt says how.
    pub think: Think,
    /// Tokens of an answer at most; from 1.
    #[schemars(range(min = 1))]
    pub max_tokens: u32,
    /// The sampling temperature, from 0 (always the likeliest token) to 2.
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: f32,
    /// Seeds the sampling.
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

impl PromptedConfig {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`Refused`] by key.
    pub fn check(&self, stage: Stage) -> Result<(), Refused> {
        check_bound(stage, "prompted.max_tokens", self.max_tokens, u32::MAX)?;
        let value = f64::from(self.temperature);
        if (0.0..=2.0).contains(&value) {
            return Ok(());
        }
        let (key, range) = ("prompted.temperature", "a number from 0 to 2");
        Err(Refused::Range { stage, key, value, range })
    }
}

/// A stage's means to ask: its model, its prompts, and how it is run.
#[derive(Clone)]
pub struct Asking {
    /// Who is asked.
    pub model: Arc<Generate>,
    /// By which prompts.
    pub prompts: Arc<StagePrompts>,
    /// How.
    pub config: PromptedConfig,
    /// How the calls are run.
    pub shell: CallShell,
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
    /// Whether they say how to think.
    fn think(&self) -> bool {
        self.english.think().is_some() && self.chinese.think().is_some()
    }

    fn of(&self, context: &TurnContext) -> (&Template, &'static Wording) {
        if context.lexicon().language() == Lexicon::chinese().language() {
            (&self.chinese, &CHINESE)
        } else {
            (&self.english, &ENGLISH)
        }
    }
}

/// What is said around a prompt, in one language.
struct Wording {
    fences: &'static str,
    /// Where the thought stands in the answer.
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

/// What a stage adds: what fills its slots, and what it makes of an answer.
pub(crate) struct Reading<Fill, Read, Fallback, Join> {
    /// What of a turn fills a slot; nothing where there is nothing.
    pub fill: Fill,
    /// What the stage makes of an answer and of the thought before it.
    pub read: Read,
    /// The decision of a failed stage whose policy is to degrade.
    pub fallback: Fallback,
    /// The turn with the decision.
    pub join: Join,
}

/// A turn and what the model thought of it in a call of its own; empty where there was none.
pub(crate) struct Thinking<I> {
    pub turn: I,
    pub thought: String,
}

impl<I> Thinking<I> {
    /// A turn that nothing was thought of.
    pub(crate) fn without(turn: I) -> Self {
        Self { turn, thought: String::new() }
    }

    /// The thought behind its fence, where there is one.
    fn fenced(&self) -> Option<Cow<'static, str>> {
        let thought = Some(&self.thought).filter(|thought| !thought.is_empty())?;
        Some(Cow::from(fence::fenced("thought", [thought])))
    }
}

impl<I: InFlight> InFlight for Thinking<I> {
    fn context(&self) -> &Arc<TurnContext> {
        self.turn.context()
    }

    fn progress(&mut self) -> &mut Progress {
        self.turn.progress()
    }

    fn round(&self) -> u32 {
        self.turn.round()
    }

    fn for_gate(&self) -> bool {
        self.turn.for_gate()
    }
}

/// Asks the model of a stage about every turn: turns in, (turns with the stage's decision, faults)
/// out.
pub(crate) fn prompted<'scope, I, O, T, A, FF, FR, FB, FJ>(
    turns: StreamVec<'scope, Epoch, I>,
    stage: Stage,
    asking: Asking,
    reading: Reading<FF, FR, FB, FJ>,
) -> (StreamVec<'scope, Epoch, O>, StreamVec<'scope, Epoch, Failed>)
where
    I: InFlight,
    O: InFlight,
    T: 'static,
    A: Answer,
    FF: Fn(&I, Slot) -> String + 'static,
    FR: Fn(&I, A, String) -> Result<T, Fault> + 'static,
    FB: Fn(&I) -> T + 'static,
    FJ: Fn(I, T) -> O + 'static,
{
    let Asking { model, prompts, config, shell } = asking;
    let Reading { fill, read, fallback, join } = reading;
    let prompter = Rc::new(Prompter { stage, prompts, config, fill, thought: A::THOUGHT });

    let (thinking, thinking_faults) = think_first(turns, &prompter, &model, &shell);
    let schema: Arc<str> = A::schema(prompter.thinks_in_the_answer()).into();
    let (asks, mends, hashes) = (Rc::clone(&prompter), Rc::clone(&prompter), prompter);
    let again = Arc::clone(&schema);
    let mend: Mend<Thinking<I>, GenerateRequest, Generated> =
        Box::new(move |thinking, answer, fault| {
            let request = mends.answer(thinking, Arc::clone(&again));
            mends.again(&thinking.turn, request, answer, fault)
        });
    let question = Question {
        ask: move |thinking: &Thinking<I>| asks.answer(thinking, Arc::clone(&schema)),
        read: move |thinking: &Thinking<I>, generated: Generated| {
            let answer = A::read(&generated.text)
                .map_err(|reason| Fault::new(stage, FaultKind::Unfit, reason))?;
            let thought = if thinking.thought.is_empty() {
                one_line(answer.thought())
            } else {
                thinking.thought.clone()
            };
            let decided = read(&thinking.turn, answer, thought)?;
            let prompt_hash = Some(hashes.hash(&thinking.turn).to_owned());
            Ok((decided, Some(ModelUsed { prompt_hash, ..generated.model })))
        },
        fallback: move |thinking: &Thinking<I>| (fallback(&thinking.turn), None),
        join: move |thinking: Thinking<I>, (decided, used)| {
            let Thinking { mut turn, .. } = thinking;
            if let Some(used) = used {
                turn.progress().models.insert(stage, used);
            }
            join(turn, decided)
        },
    };
    let (decided, faults) = call_mending(thinking, stage, model, shell, question, Some(mend));
    (decided, faults.concat(thinking_faults))
}

/// Asks for a thought in a call of its own, where the stage is to think first and its prompts say
/// how: (turns with their thought, faults).
pub(crate) fn think_first<'scope, I, Fill>(
    turns: StreamVec<'scope, Epoch, I>,
    prompter: &Rc<Prompter<Fill>>,
    model: &Arc<Generate>,
    shell: &CallShell,
) -> (StreamVec<'scope, Epoch, Thinking<I>>, StreamVec<'scope, Epoch, Failed>)
where
    I: InFlight,
    Fill: Fn(&I, Slot) -> String + 'static,
{
    if prompter.config.think != Think::First || !prompter.prompts.think() {
        let none = empty(turns.scope());
        return (turns.map(|turn| Thinking { turn, thought: String::new() }), none);
    }
    let asks = Rc::clone(prompter);
    let question = Question {
        ask: move |turn: &I| asks.think(turn),
        read: |_: &I, answer: Generated| Ok(one_line(&answer.text)),
        fallback: |_: &I| String::new(),
        join: |turn, thought| Thinking { turn, thought },
    };
    call(turns, prompter.stage, Arc::clone(model), shell.clone(), question)
}

/// Makes the requests of a stage.
pub(crate) struct Prompter<Fill> {
    pub stage: Stage,
    pub prompts: Arc<StagePrompts>,
    pub config: PromptedConfig,
    pub fill: Fill,
    /// The name of the thought in an answer, where the stage thinks.
    pub thought: Option<&'static str>,
}

impl<Fill> Prompter<Fill> {
    fn thinks_in_the_answer(&self) -> bool {
        self.config.think == Think::Together && self.thought.is_some()
    }

    /// What is asked for an answer in words.
    pub(crate) fn ask<I: InFlight>(&self, thinking: &Thinking<I>) -> GenerateRequest
    where
        Fill: Fn(&I, Slot) -> String,
    {
        let answer = self.prompts.of(thinking.turn.context()).0.answer();
        let parts = thinking.fenced().into_iter().chain([Cow::from(answer)]);
        self.request(&thinking.turn, Step::Answer, parts, None)
    }

    /// Which prompt a turn is asked by.
    pub(crate) fn hash<I: InFlight>(&self, turn: &I) -> &str {
        self.prompts.of(turn.context()).0.hash()
    }

    /// Whether the turn's prompt shows what fills a slot.
    pub(crate) fn shows<I: InFlight>(&self, turn: &I, slot: Slot) -> bool {
        self.prompts.of(turn.context()).0.shows(slot)
    }

    /// What is asked first, where the model thinks in a call of its own.
    fn think<I: InFlight>(&self, turn: &I) -> GenerateRequest
    where
        Fill: Fn(&I, Slot) -> String,
    {
        let think = self.prompts.of(turn.context()).0.think();
        self.request(turn, Step::Think, think.map(Cow::from).into_iter(), None)
    }

    /// What is asked for the answer.
    fn answer<I: InFlight>(&self, thinking: &Thinking<I>, schema: Arc<str>) -> GenerateRequest
    where
        Fill: Fn(&I, Slot) -> String,
    {
        let (template, wording) = self.prompts.of(thinking.turn.context());
        let think = template.think().filter(|_| self.thinks_in_the_answer());
        let parts = think
            .zip(self.thought)
            .map(|(think, name)| Cow::from(format!("{think} {}", (wording.first_in)(name))))
            .into_iter()
            .chain(thinking.fenced())
            .chain([Cow::from(template.answer())]);
        self.request(&thinking.turn, Step::Answer, parts, Some(schema))
    }

    /// What is asked where the answer to a request could not be used.
    pub(crate) fn again<I: InFlight>(
        &self,
        turn: &I,
        mut request: GenerateRequest,
        answer: &Generated,
        fault: &Fault,
    ) -> GenerateRequest {
        let (_, wording) = self.prompts.of(turn.context());
        if let Some(origin) = &mut request.origin {
            origin.step = Step::Again;
        }
        request.prompt.push_str("\n\n");
        request.prompt.push_str(&fence::fenced("answer", [&answer.text]));
        request.prompt.push('\n');
        request.prompt.push_str(&(wording.unusable)(&one_line(&fault.reason)));
        request
    }

    /// A request with the turn's material and these parts behind it.
    fn request<'p, I: InFlight>(
        &self,
        turn: &I,
        step: Step,
        parts: impl Iterator<Item = Cow<'p, str>>,
        schema: Option<Arc<str>>,
    ) -> GenerateRequest
    where
        Fill: Fn(&I, Slot) -> String,
    {
        let (template, wording) = self.prompts.of(turn.context());
        let material = template.material(|slot| (self.fill)(turn, slot));
        let prompt = parts.fold(material.trim_end().to_owned(), |mut prompt, part| {
            prompt.push_str("\n\n");
            prompt.push_str(&part);
            prompt
        });
        GenerateRequest {
            stage: self.stage,
            system: format!("{}\n\n{}", template.task(), wording.fences),
            prompt,
            max_tokens: self.config.max_tokens,
            temperature: self.config.temperature,
            schema,
            seed: self.config.seed,
            listener: None,
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

/// A text without line ends.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The language models of a process by their names in the configuration.
pub type LanguageModels = BTreeMap<String, Arc<Generate>>;

#[cfg(test)]
mod tests;
