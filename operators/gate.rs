//! The gate: does this turn need knowledge? (RAGate: f(c_t) → {0, 1}.)
//!
//! A score in 0..=1 decides: the turn is retrieved for where it reaches the threshold. A trained
//! encoder gives it ([`learned`]), or documented features of the turn in its context,
//! added up with weights and put through a logistic function ([`Features`]), or a language model.
//! It also links the dialogue's concepts, once, for all later stages.
//!
//! Key: none, each turn for itself. State: none. Where it fails and may degrade, the turn goes
//! on without retrieval and without concepts (the NULL plan): what broke the gate would most
//! likely break retrieval too, and an answer from history alone is the cheaper mistake.
//! It never changes the turn and never asks the graph for facts.

mod by_source;
mod features;
pub mod later;
pub mod learned;

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use timely::dataflow::operators::vec::Map;
use turnstream_knowledge::linking::{LinkingConfig, Mention, link};
use turnstream_knowledge::search::{SearchConfig, search};
use turnstream_knowledge::{Knowledge, View};
use turnstream_ports::model::gate::LearnedGate;
use turnstream_ports::refused::{Refused, check_fraction};
use turnstream_schemas::{Fault, GateAnswer, GateDecision, Score, Stage};

use crate::flow::{Epoch, TurnContext, TurnInFlight};
use crate::prompted::{Answered, Prompt, Prompted, PromptedConfig, Slot, material};
use crate::sources::Sources;
use crate::stage::{Answer, Asked, Call, Decide, OnFailure, Step, Streams, Without, run};
use crate::stage_config::StageConfig;
use crate::stage_context::StageContext;

pub use by_source::Judges;
pub use features::Features;
pub use learned::LearnedGateConfig;

use learned::{Reads, used};

/// How the gate can decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateForm {
    /// By documented rules over words and the graph; needs no model.
    Lexical,
    /// By a trained encoder.
    Learned,
    /// By a trained encoder for documents and tables, by rules for the other sources.
    BySource,
    /// By a prompt to a language model.
    Prompted,
    /// Every turn is retrieved for.
    Always,
    /// No turn is retrieved for.
    Never,
    /// Turns are retrieved for by chance, at a rate that is given. (RAGate's
    /// control.)
    Random,
}

/// How the gate decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GateConfig {
    /// How the decision is made: `lexical` by rules; `learned` by a trained encoder, and by rules in
    /// languages that it was not trained on; `by_source` by the encoder where the turn calls for documents
    /// or tables, by rules where it calls for a graph or a persona, and where for both, by whichever is
    /// surer that there is a need; `prompted`; and to compare, `always`, `never` and `random`.
    pub form: GateForm,
    /// The trained encoder of the learned form.
    pub learned: LearnedGateConfig,
    /// Decide after retrieval, by what was found: for a gate that reads knowledge. Form `learned`.
    pub after_retrieval: bool,
    /// Decide by a response that is drafted without knowledge, which is the response where none is
    /// needed: for a gate that reads a response. Form `learned`.
    pub after_draft: bool,
    /// How the language model of the prompted form is asked.
    pub prompted: PromptedConfig,
    /// The share of turns that the form `random` retrieves for; 0..=1.
    pub random_rate: f64,
    /// What becomes of a turn that the gate fails on.
    pub on_failure: OnFailure,
    /// Retrieve where the score reaches this; 0..=1. 0 retrieves always. The learned form's scores
    /// are on the scale on which 0.5 is what its card chose.
    pub threshold: f64,
    /// How much each feature counts.
    pub weights: GateWeights,
    /// How the dialogue's concepts are found.
    pub linking: LinkingConfig,
    /// How concepts are searched for where the current utterance names none.
    pub search: SearchConfig,
}

impl Default for GateConfig {
    fn default() -> Self {
        Self {
            form: GateForm::BySource,
            learned: LearnedGateConfig::default(),
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
            return Err(Refused::Together { stage: Stage::Gate, key, needs: "form = \"learned\"" });
        }
        if self.after_retrieval && self.after_draft {
            let needs = "gate.after_draft = false";
            return Err(Refused::Together { stage: Stage::Gate, key: "after_retrieval", needs });
        }
        self.prompted.check(Stage::Gate)?;
        self.search.check()?;
        check_fraction(Stage::Gate, "random_rate", self.random_rate)?;
        check_fraction(Stage::Gate, "threshold", self.threshold)
    }

    fn prompted(&self) -> Option<&PromptedConfig> {
        Some(&self.prompted).filter(|_| self.form == GateForm::Prompted)
    }
}

/// The weight of each feature in the sum that the logistic function turns into a score. A
/// feature lies in 0..=1, so that a weight is the most it can move the sum.
///
/// Chosen by hand from what each must be able to do: a question or a request about one thing that
/// the graph knows must pass (0.5), talk about new and rare things must pass without being a
/// question, and small talk must never pass alone. The balance of `question` and `request` was
/// then moved, once, by what the development parts of DSTC11 track 5 (need of unstructured
/// knowledge; 0.73 under the ROC curve) and of SGD (a service call follows; its first 300
/// dialogues, 0.59) say, each by itself. Both figures are in-sample, on the rows the choice was
/// made by, and their labels differ from this gate's own question, commonsense knowledge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GateWeights {
    /// What every turn starts from.
    pub bias: f64,
    /// Something is asked: a question mark, a question word or an inverted auxiliary.
    pub question: f64,
    /// Something is requested: "I need", "can you", "tell me".
    pub request: f64,
    /// The turn names concepts that no earlier utterance named.
    pub new_concepts: f64,
    /// How informative the most informative concept of the turn is.
    pub informativeness: f64,
    /// A recalled exchange already answered nearly the same query; taken away.
    pub answered: f64,
    /// The share of the turn that is small talk; taken away.
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

/// The gate over a stream of turns: (turns with the decision and their concepts, faults).
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
    knowledge: Knowledge,
    sources: Arc<Sources>,
    model: Option<Arc<dyn LearnedGate>>,
    prompt: Option<Prompt>,
}

impl Gate {
    fn new(config: GateConfig, context: &StageContext) -> Self {
        let StageContext { knowledge, sources, gate: model, .. } = context.clone();
        let prompt = context.prompting.prompt::<GateAnswer>(Stage::Gate, config.prompted());
        Self { config, knowledge, sources, model, prompt }
    }

    /// The turn's concepts, what of its current utterance the graph does not have, and what follows
    /// from them.
    fn linked(
        &self,
        turn: &TurnInFlight,
        decide: impl FnOnce(&[Mention]) -> GateDecision,
    ) -> Linked {
        let (mentions, missing) =
            self.knowledge.at(&turn.knowledge, |view| find(view, &turn.context, &self.config));
        let decision = decide(&mentions);
        Linked { mentions, missing, decision }
    }

    /// What the rules decide about a turn whose concepts are these.
    fn by_rules(&self, turn: &TurnInFlight, mentions: &[Mention]) -> GateDecision {
        decide(&turn.context, mentions, &self.config)
    }
}

/// The concepts of a dialogue, what of its current utterance the graph does not have, and the
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
        self.prompt.as_ref().map(Prompt::call)
    }

    fn begin(&self, turn: &TurnInFlight) -> Result<Step<Linked>, Fault> {
        if let Some(prompt) = &self.prompt {
            return Ok(prompt.begin(self, turn));
        }
        if self.config.after_retrieval || self.config.after_draft {
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
        Prompt::read_by(self.prompt.as_ref(), self, turn, asked, answer)
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

/// A language model says whether the reply gains from knowledge. (RAGate-Prompt, zero-shot by the
/// prompt `gate`, in-context by `gate_examples`.)
impl Prompted for Gate {
    type Answer = GateAnswer;

    fn fill(&self, turn: &TurnInFlight, slot: Slot) -> String {
        material::of_context(&turn.context, slot)
    }

    /// The score is 1 or 0: the model says no more.
    fn understand(&self, turn: &TurnInFlight, said: Answered<GateAnswer>) -> Result<Linked, Fault> {
        Ok(self.linked(turn, |_| whatever_the_turn(said.answer.needs_knowledge)))
    }
}

/// The concepts that the dialogue names, and those searched for where the current utterance names
/// none; and what of it nothing finds.
pub fn find(
    view: View<'_>,
    context: &TurnContext,
    config: &GateConfig,
) -> (Vec<Mention>, Vec<String>) {
    let mut mentions = link(view, context.utterances(), &config.linking);
    let current = context.dialogue.len().saturating_sub(1) as u32;
    let linked = mentions.partition_point(|mention| mention.utterance < current);
    let said = (current, context.lexicon(), context.query());
    let least = config.linking.min_informativeness;
    let found = search(view, said, &mentions[linked..], least, &config.search);
    mentions.extend(found.mentions);
    (mentions, found.missing)
}

/// Decides about one turn whose concepts are linked.
pub fn decide(context: &TurnContext, mentions: &[Mention], config: &GateConfig) -> GateDecision {
    match config.form {
        GateForm::Always => whatever_the_turn(true),
        GateForm::Never => whatever_the_turn(false),
        GateForm::Random => whatever_the_turn(drawn(context) < config.random_rate),
        _ => weigh(&Features::read(context, mentions), config),
    }
}

/// A number of 0..1 drawn for a turn: the same whenever it is answered, and for two turns as
/// different as chance. (FNV-1a of scope and turn id, mixed.)
fn drawn(context: &TurnContext) -> f64 {
    let scope = context.scope.to_string();
    let bytes = scope.bytes().chain([0]).chain(context.turn_id.as_str().bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

/// A decision with the score 1 or 0 and no feature.
fn whatever_the_turn(retrieve: bool) -> GateDecision {
    let score = Score::new(f64::from(u8::from(retrieve)));
    GateDecision { retrieve, score, threshold: None, features: BTreeMap::new() }
}

/// The decision that features make: σ(bias + Σ weight · feature) ≥ threshold.
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
