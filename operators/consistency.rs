//! Consistency judges how well the drafted response agrees with each piece of evidence. (UniMS-RAG,
//! algorithm 1, lines 1–5; eq 8–11 measure by the same score.)
//!
//! The stage follows generation. It gives every selected piece a score of its own, 0..=1: 1 where the
//! response says what the piece says, 0 where the response leaves it out or denies it. There are three
//! forms: *lexical*, by words, numbers and denials; *learned*, by the nearness of vectors that were trained
//! for it (`turnstream train consistency`); *prompted*, by a language model that sees all pieces in one
//! prompt and is told to judge each by itself.
//!
//! Key: none. State: none. The stage judges no response without evidence (the NULL plan), without words, or
//! from a generation that failed. Where the stage is off, or fails and may degrade, evidence has no
//! consistency. It never changes the response; [`self_refinement`](crate::self_refinement) uses its scores.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use timely::dataflow::operators::generic::operator::empty;
use turnstream_ports::refused::Refused;
use turnstream_schemas::{ConsistencyAnswer, Evidence, Fault, FaultKind, Score, Stage};

use crate::flow::{Epoch, TurnInFlight};
use crate::judge::{Judge, ResponseWords};
use crate::prompted::fence::fenced;
use crate::prompted::{Answered, Prompt, Prompted, PromptedConfig, Slot, material};
use crate::stage::{Answer, Asked, Call, Decide, OnFailure, Step, Streams, Without, run};
use crate::stage_config::StageConfig;
use crate::stage_context::StageContext;

const STAGE: Stage = Stage::Consistency;

/// Which judge compares responses with their evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConsistencyForm {
    /// None.
    Off,
    /// Rules over words, numbers and denials.
    Lexical,
    /// A table that was trained for it.
    Learned,
    /// A language model.
    Prompted,
}

/// How responses are compared with their evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConsistencyConfig {
    /// Which judge: none (`off`); rules over words, numbers and denials (`lexical`); the table that `table`
    /// names (`learned`); or a language model (`prompted`).
    pub form: ConsistencyForm,
    /// The table of the learned form, which `turnstream train consistency` wrote. Relative paths start at the
    /// working directory.
    pub table: Option<PathBuf>,
    /// How the language model of the prompted form is asked.
    pub prompted: PromptedConfig,
    /// What happens to a turn where the stage fails; `lexical`: the rules of the lexical form decide.
    pub on_failure: OnFailure,
    /// The most pieces of selected evidence that are judged, from the first; the others have no
    /// consistency. 1..=32.
    #[schemars(range(min = 1, max = 32))]
    pub max_judged: u32,
}

impl Default for ConsistencyConfig {
    fn default() -> Self {
        Self {
            form: ConsistencyForm::Off,
            table: None,
            prompted: PromptedConfig::default(),
            on_failure: OnFailure::Degrade,
            max_judged: 32,
        }
    }
}

impl StageConfig for ConsistencyConfig {
    fn check(&self) -> Result<(), Refused> {
        if self.form == ConsistencyForm::Learned && self.table.is_none() {
            let needs = "`table` beside form = \"learned\"";
            return Err(Refused { stage: STAGE, key: "table", needs });
        }
        Ok(())
    }

    fn prompted(&self) -> Option<&PromptedConfig> {
        Some(&self.prompted).filter(|_| self.form == ConsistencyForm::Prompted)
    }
}

/// Runs consistency over a stream of drafted responses. Returns (turns whose evidence was judged,
/// faults).
pub fn consistency<'scope>(
    turns: StreamVec<'scope, Epoch, TurnInFlight>,
    config: ConsistencyConfig,
    context: &StageContext,
) -> Streams<'scope, TurnInFlight> {
    if config.form == ConsistencyForm::Off {
        let none = empty(turns.scope());
        return (turns, none);
    }
    run(turns, ResponseConsistency::new(config, context), &context.runner)
}

/// The stage.
struct ResponseConsistency {
    config: ConsistencyConfig,
    judge: Option<Judge>,
    prompt: Option<Prompt>,
}

impl ResponseConsistency {
    fn new(config: ConsistencyConfig, context: &StageContext) -> Self {
        let is_learned = config.form == ConsistencyForm::Learned;
        let judge = context.consistency.clone().filter(|_| is_learned);
        let prompt = context.prompting.prompt::<ConsistencyAnswer>(STAGE, config.prompted());
        Self { config, judge, prompt }
    }

    /// Returns the pieces to judge, in their order.
    fn judged<'t>(&self, turn: &'t TurnInFlight) -> impl Iterator<Item = &'t Evidence> {
        let evidence = turn.evidence.iter();
        let selected = evidence.filter(|evidence| evidence.selected);
        selected.take(self.config.max_judged as usize)
    }

    fn by_words(&self, turn: &TurnInFlight) -> Vec<f64> {
        let response = ResponseWords::of(&turn.draft.text);
        self.judged(turn).map(|evidence| response.consistency(evidence)).collect()
    }
}

/// The scores of a judge: a consistency for each piece that it was asked about, 0..=1; `None` where it
/// failed.
type ConsistencyScores = Option<Vec<f64>>;

impl Decide for ResponseConsistency {
    type Turn = TurnInFlight;
    type Decision = ConsistencyScores;

    const STAGE: Stage = STAGE;

    fn on_failure(&self, _: &TurnInFlight) -> OnFailure {
        self.config.on_failure
    }

    fn call(&self) -> Option<Call> {
        self.prompt.as_ref().map(Prompt::call)
    }

    /// Whether the response was made from evidence and has words; else no judge is asked.
    fn concerns(&self, turn: &TurnInFlight) -> bool {
        let failed = turn.progress.is_without(Stage::Generation);
        let evidence = turn.evidence.iter().any(|evidence| evidence.selected);
        evidence && !failed && !turn.draft.text.trim().is_empty()
    }

    fn begin(&self, turn: &TurnInFlight) -> Result<Step<ConsistencyScores>, Fault> {
        if let Some(prompt) = &self.prompt {
            return Ok(prompt.begin(self, turn));
        }
        let Some(judge) = &self.judge else { return Ok(Step::decided(Some(self.by_words(turn)))) };
        let judged = judge.judge(&turn.draft.text, &self.judged(turn).collect::<Vec<_>>());
        let judged = judged.map(|scores| Step::decided(Some(scores)));
        judged.map_err(|error| Fault::new(STAGE, FaultKind::Error, error.to_string()))
    }

    fn read(
        &self,
        turn: &TurnInFlight,
        asked: &Asked,
        answer: Answer,
    ) -> Result<Step<ConsistencyScores>, Fault> {
        Prompt::read_by(self.prompt.as_ref(), self, turn, asked, answer)
    }

    fn without(&self, turn: &TurnInFlight, why: Without<'_>) -> ConsistencyScores {
        matches!(why, Without::ByRules(_)).then(|| self.by_words(turn))
    }

    fn write(&self, turn: &mut TurnInFlight, judged: ConsistencyScores) {
        let evidence = &mut turn.evidence;
        let selected = evidence.iter_mut().filter(|evidence| evidence.selected);
        for (evidence, score) in selected.zip(judged.unwrap_or_default()) {
            evidence.consistency = Some(Score::new(score.clamp(0.0, 1.0)));
        }
    }
}

impl Prompted for ResponseConsistency {
    type Answer = ConsistencyAnswer;

    fn fill(&self, turn: &TurnInFlight, slot: Slot) -> String {
        match slot {
            Slot::Response => fenced(slot.name(), [&turn.draft.text]),
            Slot::Evidence => material::numbered(slot, self.judged(turn), 1),
            slot => material::of_context(&turn.context, slot),
        }
    }

    fn understand(
        &self,
        turn: &TurnInFlight,
        said: Answered<ConsistencyAnswer>,
    ) -> Result<ConsistencyScores, Fault> {
        let (consistency, asked) = (said.answer.consistency, self.judged(turn).count());
        if consistency.len() != asked {
            let given = consistency.len();
            let reason = format!("{given} numbers for {asked} pieces of evidence");
            return Err(Fault::new(STAGE, FaultKind::Unfit, reason));
        }
        Ok(Some(consistency.iter().map(|tenths| f64::from((*tenths).min(10)) / 10.0).collect()))
    }
}

#[cfg(test)]
mod tests;
