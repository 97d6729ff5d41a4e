//! The gate decides whether a turn needs knowledge. (RAGate: f(c_t) → {0, 1}.)
//!
//! It scores the turn in 0..=1, and opens if the score reaches the threshold. The score comes from a
//! trained encoder ([`learned`]), from documented features of the turn in its context, weighted,
//! summed and put through a logistic function ([`Features`]), or from a language model. The gate also
//! links the dialogue's concepts, once, for all later stages, unless it never opens.
//!
//! Key: none. State: none. If it fails and may degrade, the turn goes on without retrieval and
//! without concepts (the NULL plan): what broke the gate would most likely break retrieval too, and
//! an answer from history alone is the cheaper mistake. It never changes the turn and never asks the
//! graph for facts.

mod by_source;
mod features;
pub mod instructed;
pub mod later;
pub mod learned;

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use timely::dataflow::operators::vec::Map;
use turnstream_knowledge::linking::{KeptLinks, LinkingConfig, Mention, link};
use turnstream_knowledge::search::{SearchConfig, search};
use turnstream_knowledge::{Knowledge, View};
use turnstream_ports::model::gate::{GateInputs, LearnedGate, NeedJudge, NeedPrompt};
use turnstream_ports::refused::Refused;
use turnstream_schemas::{
    Fault, FaultKind, GateAnswer, GateDecision, ModelUsed, Score, SourceKind, Stage,
};

use crate::flow::{Epoch, TurnContext, TurnInFlight};
use crate::prompted::{Answered, Prompt, Prompted, PromptedConfig, Slot, material};
use crate::source_planning;
use crate::sources::Sources;
use crate::stage::{Answer, Asked, Call, Decide, OnFailure, Step, Streams, Without, run};
use crate::stage_config::StageConfig;
use crate::stage_context::StageContext;

pub use by_source::Judges;
pub use features::Features;
pub use instructed::AdapterGateConfig;
pub use learned::LearnedGateConfig;

use learned::{Reads, used};

/// The ways in which the gate can decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateForm {
    /// Opens where a turn calls for documents or tables; else by rules.
    Auto,
    /// By documented rules over words and the graph; needs no model.
    Lexical,
    /// By a trained encoder.
    Learned,
    /// By a trained encoder for documents and tables, by rules for the other sources.
    BySource,
    /// By a language model with an adapter.
    Adapter,
    /// By a prompt to a language model.
    Prompted,
    /// Opens for every turn.
    Always,
    /// Opens for no turn.
    Never,
    /// Opens by chance, at the rate `random_rate`. (RAGate's control.)
    Random,
}

/// How the gate decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GateConfig {
    /// How the gate decides: `auto` opens for every turn that calls for documents or tables, since
    /// the decision judges the evidence found, and otherwise goes by rules; `lexical` by rules;
    /// `learned` by a trained encoder, and by rules in languages that it was not trained on;
    /// `by_source` by the encoder if the turn calls for documents or tables, by rules if it calls
    /// for a graph or a persona, and by the higher of both scores if it calls for both; `adapter` by
    /// a language model that was trained for it, and by rules in languages that it was not trained
    /// on; `prompted` by a language model; and for comparison, `always`, `never` and `random`.
    pub form: GateForm,
    /// The trained encoder of the forms `learned` and `by_source`.
    pub learned: LearnedGateConfig,
    /// The language model of the form `adapter`.
    pub adapter: AdapterGateConfig,
    /// Whether to decide after retrieval, by the evidence found: for an encoder trained to read
    /// knowledge. Needs the form `learned`.
    pub after_retrieval: bool,
    /// Whether to decide by a response that is drafted without knowledge; if the turn needs none,
    /// the draft becomes the response. For an encoder trained to read a response. Needs the form
    /// `learned`.
    pub after_draft: bool,
    /// How the prompted form asks its language model.
    pub prompted: PromptedConfig,
    /// The share of turns for which the form `random` opens; 0..=1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub random_rate: f64,
    /// What happens to a turn on which the gate fails.
    pub on_failure: OnFailure,
    /// The gate opens if the score reaches this; 0..=1. At 0 it always opens. The encoder's scores are
    /// scaled so that 0.5 is the threshold that its card chose.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub threshold: f64,
    /// How much each feature counts.
    pub weights: GateWeights,
    /// How the dialogue's concepts are found.
    pub linking: LinkingConfig,
    /// How concepts are searched for if the current utterance names none.
    pub search: SearchConfig,
}

impl Default for GateConfig {
    fn default() -> Self {
        Self {
            form: GateForm::Auto,
            learned: LearnedGateConfig::default(),
            adapter: AdapterGateConfig::default(),
            after_retrieval: false,
            after_draft: false,
            prompted: PromptedConfig::default(),
            random_rate: 0.5,
            on_failure: OnFailure::Degrade,
            threshold: 0.5,
            weights: GateWeights::default(),
            linking: LinkingConfig::default(),
            search: SearchConfig::default(),
        }
    }
}

impl StageConfig for GateConfig {
    fn check(&self) -> Result<(), Refused> {
        let later = [("after_retrieval", self.after_retrieval), ("after_draft", self.after_draft)];
        if let Some((key, _)) = later.iter().find(|(_, is)| *is && self.form != GateForm::Learned) {
            return Err(Refused { stage: Stage::Gate, key, needs: "form = \"learned\"" });
        }
        if self.after_retrieval && self.after_draft {
            let needs = "gate.after_draft = false";
            return Err(Refused { stage: Stage::Gate, key: "after_retrieval", needs });
        }
        let AdapterGateConfig { model, directory, .. } = &self.adapter;
        if self.form == GateForm::Adapter && (model.is_none() || directory.is_none()) {
            let needs = "gate.adapter.model and gate.adapter.directory";
            return Err(Refused { stage: Stage::Gate, key: "form", needs });
        }
        Ok(())
    }

    fn prompted(&self) -> Option<&PromptedConfig> {
        Some(&self.prompted).filter(|_| self.form == GateForm::Prompted)
    }
}

/// The weight of each feature in the sum that the logistic function turns into a score. A feature
/// lies in 0..=1, so its weight is the most by which it can move the sum.
///
/// The weights were chosen by hand so that a question or a request about one thing that the graph
/// knows passes (0.5), talk about new and rare things passes without being a question, and small talk
/// alone never passes. The balance of `question` and `request` was then adjusted once, by the
/// development parts of DSTC11 track 5 (need of unstructured knowledge; 0.73 under the ROC curve) and
/// of SGD (a service call follows; its first 300 dialogues, 0.59), each by itself. Both figures are
/// in-sample: they were measured on the rows used for the choice. The labels of both sets differ from
/// this gate's own question, which is about commonsense knowledge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GateWeights {
    /// The sum before any feature is added.
    pub bias: f64,
    /// The turn asks: it has a question mark, a question word or an inverted auxiliary.
    pub question: f64,
    /// The turn requests something: "I need", "can you", "tell me".
    pub request: f64,
    /// The turn names concepts that no earlier utterance named.
    pub new_concepts: f64,
    /// How informative the most informative concept of the turn is.
    pub informativeness: f64,
    /// A recalled exchange already answered nearly the same query; negative by default.
    pub answered: f64,
    /// The share of the turn that is small talk; negative by default.
    pub small_talk: f64,
}

impl Default for GateWeights {
    fn default() -> Self {
        Self {
            bias: -2.0,
            question: 1.6,
            request: 0.6,
            new_concepts: 1.6,
            informativeness: 1.6,
            answered: -1.5,
            small_talk: -3.0,
        }
    }
}

/// Runs the gate over a stream of turns. Returns (turns with the decision and their concepts,
/// faults).
pub fn gate<'scope>(
    turns: StreamVec<'scope, Epoch, Arc<TurnContext>>,
    config: GateConfig,
    context: &StageContext,
) -> Streams<'scope, TurnInFlight> {
    let knowledge = context.knowledge.clone();
    let turns = turns.map(move |turn| TurnInFlight::recalled(turn, knowledge.now()));
    run(turns, Gate::new(config, context), &context.runner)
}

/// The stage.
struct Gate {
    config: GateConfig,
    links: KeptLinks,
    knowledge: Knowledge,
    sources: Arc<Sources>,
    model: Option<Arc<dyn LearnedGate>>,
    judge: Option<NeedJudge>,
    prompt: Option<Prompt>,
}

impl Gate {
    fn new(config: GateConfig, context: &StageContext) -> Self {
        let StageContext { knowledge, sources, gate: model, need_judge: judge, .. } =
            context.clone();
        let prompt = context.prompting.prompt::<GateAnswer>(Stage::Gate, config.prompted());
        let links = KeptLinks::new(config.linking.clone());
        Self { config, links, knowledge, sources, model, judge, prompt }
    }

    /// Links the dialogue's concepts, and lets `decide` decide by them.
    fn linked(
        &self,
        turn: &TurnInFlight,
        decide: impl FnOnce(&[Mention]) -> GateDecision,
    ) -> Linked {
        let (mentions, missing) = self.knowledge.at(&turn.knowledge, |view| {
            let utterances = turn.context.utterances();
            let mentions = self.links.link(view, turn.knowledge.number(), utterances);
            with_searched(view, &turn.context, mentions, &self.config)
        });
        let decision = decide(&mentions);
        Linked { mentions, missing, decision }
    }

    /// Decides by rules about a turn with these concepts.
    fn by_rules(&self, turn: &TurnInFlight, mentions: &[Mention]) -> GateDecision {
        decide(&turn.context, mentions, &self.config)
    }
}

/// The concepts of a dialogue, the words of its current utterance that the graph lacks, and the
/// decision.
#[derive(Default)]
struct Linked {
    mentions: Vec<Mention>,
    missing: Vec<String>,
    decision: GateDecision,
}

impl Decide for Gate {
    type Turn = TurnInFlight;
    type Decision = Linked;

    const STAGE: Stage = Stage::Gate;

    fn on_failure(&self, _: &TurnInFlight) -> OnFailure {
        self.config.on_failure
    }

    fn call(&self) -> Option<Call> {
        let judge = self.judge.as_ref();
        let judge =
            || judge.map(|judge| Call::new(Arc::clone(&judge.model), &self.config.adapter.call));
        self.prompt.as_ref().map(Prompt::call).or_else(judge)
    }

    fn begin(&self, turn: &TurnInFlight) -> Result<Step<Linked>, Fault> {
        if let Some(prompt) = &self.prompt {
            return Ok(prompt.begin(self, turn));
        }
        let language = turn.context.lexicon().language();
        if self.judge.as_ref().is_some_and(|judge| judge.language == language) {
            let reading = learned::reading(&turn.context, Reads::default());
            let prompt = instructed::prompt(&reading, GateInputs::Contx);
            return Ok(Step::ask(vec![NeedPrompt(prompt)]));
        }
        // Without retrieval no later stage searches for concepts.
        if self.config.form == GateForm::Never {
            return Ok(Step::decided(Linked {
                decision: whatever_the_turn(false),
                ..Linked::default()
            }));
        }
        if self.config.after_retrieval || self.config.after_draft {
            return Ok(Step::decided(self.linked(turn, |_| whatever_the_turn(true))));
        }
        if self.config.form == GateForm::Auto && calls_for_texts(turn, &self.sources) {
            return Ok(Step::decided(self.linked(turn, |_| whatever_the_turn(true))));
        }
        let judges = Judges::of_turn(&self.config, turn, &self.sources);
        let is_asked = |model: &&dyn LearnedGate| {
            judges.asks_encoder() && learned::reads(*model, &turn.context)
        };
        let Some(model) = self.model.as_deref().filter(is_asked) else {
            return Ok(Step::decided(self.linked(turn, |found| self.by_rules(turn, found))));
        };
        let scores = learned::score(model, &turn.context, Reads::default())?;
        let linked = self.linked(turn, |found| {
            judges.decide(scores, || self.by_rules(turn, found), self.config.threshold)
        });
        Ok(Step::Decided(linked, Some(used(model))))
    }

    fn read(
        &self,
        turn: &TurnInFlight,
        asked: &Asked,
        answer: Answer,
    ) -> Result<Step<Linked>, Fault> {
        let Some(judge) = &self.judge else {
            return Prompt::read_by(self.prompt.as_ref(), self, turn, asked, answer);
        };
        let scores: Vec<f64> = answer.of(Self::STAGE)?;
        let unfit = || Fault::new(Self::STAGE, FaultKind::Unfit, "the model gave no score");
        let score = Score::new(*scores.first().ok_or_else(unfit)?);
        let threshold = Score::new(self.config.threshold);
        let decision = GateDecision {
            retrieve: score >= threshold,
            score,
            threshold: Some(threshold),
            features: [(judge.definition.clone(), score)].into(),
        };
        let used = ModelUsed { name: judge.model.name().to_owned(), prompt_hash: None };
        Ok(Step::Decided(self.linked(turn, |_| decision), Some(used)))
    }

    fn without(&self, turn: &TurnInFlight, why: Without<'_>) -> Linked {
        match why {
            Without::ByRules(_) => self.linked(turn, |found| self.by_rules(turn, found)),
            _ => Linked::default(),
        }
    }

    fn write(&self, turn: &mut TurnInFlight, Linked { mentions, missing, decision }: Linked) {
        (turn.mentions, turn.missing) = (mentions.into(), missing.into());
        turn.gate = decision;
    }
}

/// A language model judges whether the reply gains from knowledge. (RAGate-Prompt, zero-shot by the
/// prompt `gate`, in-context by `gate_examples`.)
impl Prompted for Gate {
    type Answer = GateAnswer;

    fn fill(&self, turn: &TurnInFlight, slot: Slot) -> String {
        material::of_context(&turn.context, slot)
    }

    /// Scores 1 or 0, because the model gives no finer answer.
    fn understand(&self, turn: &TurnInFlight, said: Answered<GateAnswer>) -> Result<Linked, Fault> {
        Ok(self.linked(turn, |_| whatever_the_turn(said.answer.needs_knowledge)))
    }
}

/// Returns the concepts that the dialogue names, including those found by search if the current
/// utterance names none, and the words of that utterance for which nothing was found.
pub fn find(
    view: View<'_>,
    context: &TurnContext,
    config: &GateConfig,
) -> (Vec<Mention>, Vec<String>) {
    let mentions = link(view, context.utterances(), &config.linking);
    with_searched(view, context, mentions, config)
}

/// Returns the mentions of the dialogue, with those found by search if the current utterance names
/// none, and the words of that utterance for which nothing was found.
fn with_searched(
    view: View<'_>,
    context: &TurnContext,
    mut mentions: Vec<Mention>,
    config: &GateConfig,
) -> (Vec<Mention>, Vec<String>) {
    let current = context.dialogue.len().saturating_sub(1) as u32;
    let linked = mentions.partition_point(|mention| mention.utterance < current);
    let said = (current, context.lexicon(), context.query());
    let least = config.linking.min_informativeness;
    let found = search(view, said, &mentions[linked..], least, &config.search);
    mentions.extend(found.mentions);
    (mentions, found.missing)
}

/// Decides about one turn by rules, given its linked concepts.
pub fn decide(context: &TurnContext, mentions: &[Mention], config: &GateConfig) -> GateDecision {
    match config.form {
        GateForm::Always => whatever_the_turn(true),
        GateForm::Never => whatever_the_turn(false),
        GateForm::Random => whatever_the_turn(drawn(context) < config.random_rate),
        _ => weigh(&Features::read(context, mentions), config),
    }
}

/// Whether a turn calls for documents or tables.
fn calls_for_texts(turn: &TurnInFlight, sources: &Sources) -> bool {
    let kinds = source_planning::kinds(turn, sources);
    kinds.iter().any(|kind| matches!(kind, SourceKind::Documents | SourceKind::Table))
}

/// Draws a number in 0..1 for a turn. It looks random between turns, but is the same whenever the turn
/// is answered. (FNV-1a of scope and turn id, mixed.)
fn drawn(context: &TurnContext) -> f64 {
    let scope = context.scope.to_string();
    let bytes = scope.bytes().chain([0]).chain(context.turn_id.as_str().bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

/// Makes a decision with the score 1 or 0 and without features.
fn whatever_the_turn(retrieve: bool) -> GateDecision {
    let score = Score::new(f64::from(u8::from(retrieve)));
    GateDecision { retrieve, score, threshold: None, features: BTreeMap::new() }
}

/// Decides by features: σ(bias + Σ weight · feature) ≥ threshold.
pub fn weigh(features: &Features, config: &GateConfig) -> GateDecision {
    let weights = &config.weights;
    let parts = [
        ("bias", weights.bias),
        ("question", weights.question * features.question),
        ("request", weights.request * features.request),
        ("new_concepts", weights.new_concepts * features.new_concepts),
        ("informativeness", weights.informativeness * features.informativeness),
        ("answered", weights.answered * features.answered),
        ("small_talk", weights.small_talk * features.small_talk),
    ];
    let sum: f64 = parts.iter().map(|(_, part)| part).sum();
    let score = 1.0 / (1.0 + (-sum).exp());
    let told = parts.into_iter().filter(|(_, part)| *part != 0.0);
    GateDecision {
        retrieve: score >= config.threshold,
        score: Score::new(score),
        threshold: Some(Score::new(config.threshold)),
        features: told
            .map(|(name, part)| (name.to_owned(), Score::new(part)))
            .collect::<BTreeMap<_, _>>(),
    }
}

#[cfg(test)]
mod tests;
