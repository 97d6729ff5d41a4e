//! Defines the stage that decides by rules or by a prompt, or is off: DCRAG's stages of demand and its fact
//! selection.
//!
//! Such a stage implements `DecideInForm`: both ways to decide, and what stands in for a decision.
//! `InForm` runs it in the configured [`StageForm`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_schemas::{Fault, Stage};

use crate::flow::TurnInFlight;
use crate::prompted::{Answered, Prompt, PromptAnswer, Prompted, PromptedConfig, Slot};
use crate::stage::{Answer, Asked, Call, Decide, OnFailure, Step, Without};
use crate::stage_context::StageContext;

/// The way in which a stage with rules and a prompt decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StageForm {
    /// By documented rules over words and the graph; needs no model.
    Lexical,
    /// By a prompt to a language model.
    Prompted,
    /// Not at all.
    Off,
}

/// A stage that decides by rules or by a prompt.
pub(crate) trait DecideInForm: 'static {
    /// What the stage decides about a turn.
    type Decision: 'static;
    /// The type of the model's answer.
    type Answer: PromptAnswer;

    /// The stage's name in records, configuration and metrics.
    const STAGE: Stage;

    /// Returns how the stage asks a language model; `None` unless its form is `prompted`.
    fn prompted(&self) -> Option<&PromptedConfig>;

    /// Decides by rules.
    fn by_rules(&self, turn: &TurnInFlight) -> Self::Decision;

    /// Whether rules decide about the turn in every form, since there is nothing to ask a model.
    fn is_for_rules(&self, _turn: &TurnInFlight) -> bool {
        false
    }

    /// Returns the text of a turn that fills a slot of the prompt; empty where the turn has none.
    fn fill(&self, turn: &TurnInFlight, slot: Slot) -> String;

    /// Makes a decision from a model's answer.
    fn understand(&self, turn: &TurnInFlight, said: Answered<Self::Answer>) -> Self::Decision;

    /// Returns a substitute for the decision if the stage is off, or failed and its rules are not to decide.
    fn without(&self, turn: &TurnInFlight) -> Self::Decision;

    /// Writes the decision into the turn.
    fn write(&self, turn: &mut TurnInFlight, decision: Self::Decision);
}

/// A stage in its configured form.
pub(crate) struct InForm<S> {
    stage: S,
    form: StageForm,
    on_failure: OnFailure,
    prompt: Option<Prompt>,
}

impl<S: DecideInForm> InForm<S> {
    pub(crate) fn new(
        stage: S,
        form: StageForm,
        on_failure: OnFailure,
        context: &StageContext,
    ) -> Self {
        let prompt = context.prompting.prompt::<S::Answer>(S::STAGE, stage.prompted());
        Self { stage, form, on_failure, prompt }
    }
}

impl<S: DecideInForm> Decide for InForm<S> {
    type Turn = TurnInFlight;
    type Decision = S::Decision;

    const STAGE: Stage = S::STAGE;

    fn on_failure(&self, _: &TurnInFlight) -> OnFailure {
        self.on_failure
    }

    fn call(&self) -> Option<Call> {
        self.prompt.as_ref().map(Prompt::call)
    }

    fn begin(&self, turn: &TurnInFlight) -> Result<Step<S::Decision>, Fault> {
        Ok(match (&self.prompt, self.form) {
            _ if self.stage.is_for_rules(turn) => Step::decided(self.stage.by_rules(turn)),
            (Some(prompt), _) => prompt.begin(self, turn),
            (None, StageForm::Off) => Step::decided(self.stage.without(turn)),
            (None, _) => Step::decided(self.stage.by_rules(turn)),
        })
    }

    fn read(
        &self,
        turn: &TurnInFlight,
        asked: &Asked,
        answer: Answer,
    ) -> Result<Step<S::Decision>, Fault> {
        Prompt::read_by(self.prompt.as_ref(), self, turn, asked, answer)
    }

    fn without(&self, turn: &TurnInFlight, why: Without<'_>) -> S::Decision {
        match why {
            Without::ByRules(_) => self.stage.by_rules(turn),
            _ => self.stage.without(turn),
        }
    }

    fn write(&self, turn: &mut TurnInFlight, decision: S::Decision) {
        self.stage.write(turn, decision);
    }
}

impl<S: DecideInForm> Prompted for InForm<S> {
    type Answer = S::Answer;

    fn fill(&self, turn: &TurnInFlight, slot: Slot) -> String {
        self.stage.fill(turn, slot)
    }

    fn understand(
        &self,
        turn: &TurnInFlight,
        said: Answered<S::Answer>,
    ) -> Result<S::Decision, Fault> {
        Ok(self.stage.understand(turn, said))
    }
}
