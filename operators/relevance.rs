//! Relevance judges how relevant each piece of evidence is to the dialogue. (UniMS-RAG, L_sim;
//! table 1.)
//!
//! Every source scores its evidence on a scale of its own. This stage has one judge score all of it, 0..=1,
//! so that facts, rows, sentences and passages can be compared. The judge is the unified model by its
//! evaluation tokens, which sees one piece at a time (the evidence attention mask); a model that scores
//! pairs of texts, calibrated; or a language model, which sees all pieces in one prompt and is told to
//! judge each by itself.
//!
//! Key: none. State: none. The stage judges the pieces that retrieval scored highest, and orders them by
//! falling relevance within their source; it leaves the others out. Where the stage is off, or fails and may
//! degrade, all evidence keeps the scores of retrieval. It never decides which evidence is used.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use timely::dataflow::operators::generic::operator::empty;
use turnstream_ports::model::Score as Scorer;
use turnstream_ports::model::unified::{
    Task, Unified, UnifiedAnswer, UnifiedRequest, evidence_text,
};
use turnstream_schemas::{Evidence, Fault, FaultKind, RelevanceAnswer, Score, SourceKind, Stage};

use crate::flow::{Candidates, Epoch, TurnInFlight};
use crate::prompted::{Answered, Prompt, Prompted, PromptedConfig, Slot, material};
use crate::sources::Sources;
use crate::stage::{
    Answer, Asked, Call, CallConfig, Decide, OnFailure, Step, Streams, Without, run,
};
use crate::stage_config::StageConfig;
use crate::stage_context::StageContext;
use crate::unified::exchanges;

const STAGE: Stage = Stage::Relevance;

/// Which judge scores evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RelevanceForm {
    /// None: evidence keeps the scores of retrieval.
    Off,
    /// The unified model.
    Learned,
    /// The model that scores pairs of texts.
    Encoder,
    /// A language model.
    Prompted,
}

/// How evidence is judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RelevanceConfig {
    /// Which judge scores evidence: none (`off`), the unified model (`learned`, `models.unified`), the
    /// model that scores pairs of texts (`encoder`, `models.scorer`), or a language model (`prompted`).
    pub form: RelevanceForm,
    /// How the language model of the prompted form is asked.
    pub prompted: PromptedConfig,
    /// What happens to a turn where the stage fails.
    pub on_failure: OnFailure,
    /// The most pieces of evidence that are judged, those that retrieval scored highest; the others
    /// are left out. 1..=32.
    #[schemars(range(min = 1, max = 32))]
    pub max_judged: u32,
    /// The slope that calibrates the encoder's score s, 0 to 1: relevance is σ(slope · ln(s ÷ (1 − s)) +
    /// offset). Above 0.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub calibration_slope: f64,
    /// The offset in that calibration.
    pub calibration_offset: f64,
    /// How long to wait for the unified model, or the encoder.
    pub call: CallConfig,
}

impl Default for RelevanceConfig {
    fn default() -> Self {
        Self {
            form: RelevanceForm::Off,
            prompted: PromptedConfig::default(),
            on_failure: OnFailure::Degrade,
            max_judged: 10,
            calibration_slope: 1.0,
            calibration_offset: 0.0,
            call: CallConfig { timeout_ms: 10_000, ..CallConfig::default() },
        }
    }
}

impl StageConfig for RelevanceConfig {
    fn prompted(&self) -> Option<&PromptedConfig> {
        Some(&self.prompted).filter(|_| self.form == RelevanceForm::Prompted)
    }
}

/// Runs relevance over a stream of turns. Returns (turns with judged candidates, faults).
pub fn relevance<'scope>(
    turns: StreamVec<'scope, Epoch, TurnInFlight>,
    config: RelevanceConfig,
    context: &StageContext,
) -> Streams<'scope, TurnInFlight> {
    match EvidenceRelevance::new(config, context) {
        Some(stage) => run(turns, stage, &context.runner),
        None => {
            let none = empty(turns.scope());
            (turns, none)
        }
    }
}

/// The stage.
struct EvidenceRelevance {
    config: RelevanceConfig,
    sources: Arc<Sources>,
    judge: RelevanceJudge,
}

/// The judge.
enum RelevanceJudge {
    Unified(Arc<Unified>),
    Encoder(Arc<Scorer>),
    Prompt(Prompt),
}

impl EvidenceRelevance {
    /// Makes the stage; `None` if no judge is configured.
    fn new(config: RelevanceConfig, context: &StageContext) -> Option<Self> {
        let judge = match config.form {
            RelevanceForm::Off => None,
            RelevanceForm::Learned => context.unified.clone().map(RelevanceJudge::Unified),
            RelevanceForm::Encoder => context.score.clone().map(RelevanceJudge::Encoder),
            RelevanceForm::Prompted => context
                .prompting
                .prompt::<RelevanceAnswer>(STAGE, config.prompted())
                .map(RelevanceJudge::Prompt),
        };
        Some(Self { judge: judge?, config, sources: Arc::clone(&context.sources) })
    }

    /// Returns the pieces to judge, in their order.
    fn judged<'t>(&self, turn: &'t TurnInFlight) -> impl ExactSizeIterator<Item = &'t Evidence> {
        asked_about(&turn.candidates, self.config.max_judged).into_iter().map(|(_, piece)| piece)
    }

    fn by_unified(&self, turn: &TurnInFlight) -> Vec<UnifiedRequest> {
        let (dialogue, plan) = (exchanges(&turn.context), kinds(turn, &self.sources));
        let request = |piece: &Evidence| {
            let evidence = evidence_text(piece, kind_of(piece, &self.sources));
            let task = Task::Relevance { plan: plan.clone(), evidence };
            UnifiedRequest { dialogue: dialogue.clone(), task }
        };
        self.judged(turn).map(request).collect()
    }

    fn by_encoder(&self, turn: &TurnInFlight) -> Vec<(String, String)> {
        let said = turn.context.completed_query();
        self.judged(turn).map(|piece| (said.to_owned(), piece.text.clone())).collect()
    }
}

/// The scores of a judge: a relevance for each piece that it was asked about, 0..=1; `None` where it failed.
type RelevanceScores = Option<Vec<f64>>;

impl Decide for EvidenceRelevance {
    type Turn = TurnInFlight;
    type Decision = RelevanceScores;

    const STAGE: Stage = STAGE;

    fn on_failure(&self, _: &TurnInFlight) -> OnFailure {
        self.config.on_failure
    }

    fn call(&self) -> Option<Call> {
        let config = &self.config.call;
        Some(match &self.judge {
            RelevanceJudge::Unified(model) => Call::new(Arc::clone(model), config),
            RelevanceJudge::Encoder(model) => Call::new(Arc::clone(model), config),
            RelevanceJudge::Prompt(prompt) => prompt.call(),
        })
    }

    /// Whether there is evidence; without any, no judge is asked.
    fn concerns(&self, turn: &TurnInFlight) -> bool {
        turn.candidates.iter().next().is_some()
    }

    fn begin(&self, turn: &TurnInFlight) -> Result<Step<RelevanceScores>, Fault> {
        Ok(match &self.judge {
            RelevanceJudge::Unified(_) => Step::ask(self.by_unified(turn)),
            RelevanceJudge::Encoder(_) => Step::ask(self.by_encoder(turn)),
            RelevanceJudge::Prompt(prompt) => prompt.begin(self, turn),
        })
    }

    fn read(
        &self,
        turn: &TurnInFlight,
        asked: &Asked,
        answer: Answer,
    ) -> Result<Step<RelevanceScores>, Fault> {
        let scores = match &self.judge {
            RelevanceJudge::Prompt(prompt) => return prompt.read(self, turn, asked, answer),
            RelevanceJudge::Unified(_) => {
                let relevance = |answer| match answer {
                    UnifiedAnswer::Relevance(relevance) => Some(f64::from(relevance)),
                    UnifiedAnswer::Plan { .. } | UnifiedAnswer::Response(_) => None,
                };
                let answers: Vec<UnifiedAnswer> = answer.of(STAGE)?;
                let scores: Option<Vec<f64>> = answers.into_iter().map(relevance).collect();
                scores.ok_or_else(|| unreadable("the model's answer is not a relevance"))?
            }
            RelevanceJudge::Encoder(_) => {
                let (slope, offset) =
                    (self.config.calibration_slope, self.config.calibration_offset);
                let scores: Vec<f32> = answer.of(STAGE)?;
                scores.iter().map(|score| calibrated(*score, slope, offset)).collect()
            }
        };
        Ok(Step::decided(Some(scores)))
    }

    fn without(&self, _: &TurnInFlight, _: Without<'_>) -> RelevanceScores {
        None
    }

    fn write(&self, turn: &mut TurnInFlight, judged: RelevanceScores) {
        if let Some(scores) = judged {
            turn.candidates = with_relevance(&turn.candidates, &scores, self.config.max_judged);
        }
    }
}

impl Prompted for EvidenceRelevance {
    type Answer = RelevanceAnswer;

    fn fill(&self, turn: &TurnInFlight, slot: Slot) -> String {
        match slot {
            Slot::Evidence => material::numbered(slot, self.judged(turn), 1),
            slot => material::of_context(&turn.context, slot),
        }
    }

    fn understand(
        &self,
        turn: &TurnInFlight,
        said: Answered<RelevanceAnswer>,
    ) -> Result<RelevanceScores, Fault> {
        let (relevance, asked) = (said.answer.relevance, self.judged(turn).len());
        if relevance.len() != asked {
            let given = relevance.len();
            return Err(unreadable(&format!("{given} numbers for {asked} pieces of evidence")));
        }
        Ok(Some(relevance.iter().map(|tenths| f64::from((*tenths).min(10)) / 10.0).collect()))
    }
}

fn unreadable(reason: &str) -> Fault {
    Fault::new(STAGE, FaultKind::Unfit, reason)
}

/// Returns σ(slope · logit(score) + offset).
fn calibrated(score: f32, slope: f64, offset: f64) -> f64 {
    let score = f64::from(score).clamp(1e-6, 1.0 - 1e-6);
    let logit = (score / (1.0 - score)).ln();
    1.0 / (1.0 + (-(slope * logit + offset)).exp())
}

/// Returns the kinds of sources in a turn's plan, each once, in the order of the plan.
fn kinds(turn: &TurnInFlight, sources: &Sources) -> Vec<SourceKind> {
    let planned = turn.plan.0.iter();
    let mut kinds = Vec::new();
    for source in planned.filter_map(|name| sources.of_name(name.as_str())) {
        if !kinds.contains(&source.config.kind) {
            kinds.push(source.config.kind);
        }
    }
    kinds
}

/// Returns the kind of the source that a piece of evidence is from.
fn kind_of(evidence: &Evidence, sources: &Sources) -> SourceKind {
    let source = sources.of_name(evidence.source.as_str());
    // The source of a fact is the name of its collection.
    source.map_or(SourceKind::Graph, |source| source.config.kind)
}

/// Returns the pieces to judge, each with its place among all, in that order.
fn asked_about(candidates: &Candidates, most: u32) -> Vec<(usize, &Evidence)> {
    let mut all: Vec<(usize, &Evidence)> = candidates.iter().enumerate().collect();
    all.sort_by(|(_, a), (_, b)| b.relevance.get().total_cmp(&a.relevance.get()));
    all.truncate(most as usize);
    all.sort_by_key(|(place, _)| *place);
    all
}

/// Returns the judged pieces, each list by falling relevance.
fn with_relevance(candidates: &Candidates, scores: &[f64], most: u32) -> Candidates {
    let asked = asked_about(candidates, most);
    let mut judged = asked.iter().zip(scores).peekable();
    let mut place = 0;
    let mut take = |list: &[Evidence]| {
        let end = place + list.len();
        let mut kept = Vec::new();
        while let Some(((_, piece), score)) = judged.next_if(|((at, _), _)| *at < end) {
            kept.push(Evidence {
                relevance: Score::new(score.clamp(0.0, 1.0)),
                ..(*piece).clone()
            });
        }
        place = end;
        kept.sort_by(|a, b| b.relevance.get().total_cmp(&a.relevance.get()));
        kept
    };
    // In the order of `Candidates::iter`.
    Candidates {
        foreseen: take(&candidates.foreseen),
        unforeseen: take(&candidates.unforeseen),
        persona: take(&candidates.persona),
        passages: take(&candidates.passages),
        rows: take(&candidates.rows),
    }
}

#[cfg(test)]
mod tests;
