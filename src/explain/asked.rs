//! The questions to language models behind a response, and whether they match it: the response
//! names each stage's model and the hash of its prompt.

use serde::Serialize;
use turnstream_operators::generation::is_prose;
use turnstream_ports::model::Step;
use turnstream_schemas::{ModelUsed, Response, Stage};

use super::page::{Ink, Text};
use super::tree::Tree;

/// One question to a language model, with its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Asked {
    /// The stage that asked.
    pub stage: Stage,
    /// The step of the stage.
    pub step: Step,
    /// How often self-refinement had made the response anew before the question.
    pub round: u32,
    /// Whether the question was for the draft that the gate reads.
    pub for_gate: bool,
    /// The model's name in the configuration.
    pub model: String,
    /// The hash of the prompt's template, as in responses.
    pub prompt_hash: String,
    /// The instructions: what the model is told about its task.
    pub system: String,
    /// The question, with the dialogue.
    pub prompt: String,
    /// The answer; `null` if there was none.
    pub answer: Option<String>,
    /// Why there was no answer, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// Whether a question led to a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fits {
    /// The response names this prompt for the stage and, if the stage is generation, has this
    /// answer as its text.
    Used,
    /// The response names no prompt for the stage: the answer could not be used.
    NotUsed,
    /// The response names another prompt: the question belongs to another configuration.
    OtherPrompt,
    /// The response names this prompt but has another text: the answer belongs to another run.
    OtherAnswer,
    /// Another answer replaced this one: the gate read it as a draft, self-refinement discarded it,
    /// or it was not prose.
    PutAside,
}

impl Asked {
    /// The sort key among the questions of a response: those for the gate first, then by stage,
    /// round and step.
    pub fn place(&self) -> (bool, Stage, u32, Step) {
        (!self.for_gate, self.stage, self.round, self.step)
    }

    /// Whether this question led to the response.
    pub fn fits(&self, response: &Response) -> Fits {
        let used = match self.stage {
            Stage::Generation => Some(&response.model),
            stage => response.models.get(&stage),
        };
        let Some(hash) = used.and_then(|ModelUsed { prompt_hash, .. }| prompt_hash.as_ref()) else {
            return Fits::NotUsed;
        };
        if *hash != self.prompt_hash {
            return Fits::OtherPrompt;
        }
        let said = self.answer.as_deref().unwrap_or_default().trim();
        // Drafts for the gate and of earlier rounds were replaced.
        let is_last = !self.for_gate && self.round as usize >= response.refinement.len();
        // Answers that are not prose were replaced as well.
        let is_last = is_last && is_prose(said);
        match self.stage {
            Stage::Generation if said == response.text => Fits::Used,
            Stage::Generation if is_last => Fits::OtherAnswer,
            Stage::Generation => Fits::PutAside,
            _ => Fits::Used,
        }
    }

    /// Makes a branch of the response's tree.
    pub(super) fn tree(&self, response: &Response) -> Tree {
        let step = match self.step {
            Step::Think => ", to think first",
            Step::Answer => "",
            Step::Again => ", again, because the first answer could not be read",
        };
        let fits = match self.fits(response) {
            Fits::Used => Text::new(Ink::Good, "this response's"),
            Fits::NotUsed => Text::new(Ink::Careful, "the answer was not used"),
            Fits::OtherPrompt => {
                Text::new(Ink::Careful, "NOT this response's: it names another prompt")
            }
            Fits::OtherAnswer => Text::new(Ink::Careful, "NOT this response's: the answer differs"),
            Fits::PutAside => Text::new(Ink::Quiet, "a later draft replaced the response"),
        };
        let round = match self.round {
            _ if self.for_gate => ", for the gate to read".to_owned(),
            0 => String::new(),
            round => format!(", round {round}"),
        };
        let head = Text::new(Ink::Label, self.stage.name())
            .and(Ink::Plain, round)
            .and(Ink::Plain, step)
            .and(Ink::Quiet, format!(" model {}, prompt {}: ", self.model, self.prompt_hash))
            .then(fits);
        let answer = self.answer.as_deref().or(self.failed.as_deref());
        let answer = answer.unwrap_or("no answer");
        Tree::leaf(head).with([
            lines("task", &self.system),
            lines("question", &self.prompt),
            lines("answer", answer),
        ])
    }
}

/// A text, line by line as written.
fn lines(label: &str, text: &str) -> Tree {
    text.lines().filter(|line| !line.trim().is_empty()).fold(
        Tree::leaf(Text::new(Ink::Label, label)),
        |tree, line| {
            let bare = line.trim_start();
            let indent = "\u{a0}".repeat(line.len() - bare.len());
            tree.and(format!("{indent}{bare}"))
        },
    )
}
