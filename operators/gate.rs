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
mod prompted;

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use timely::dataflow::operators::vec::Map;
use turnstream_knowledge::linking::{LinkingConfig, Mention, link};
use turnstream_knowledge::search::{SearchConfig, search};
use turnstream_knowledge::{Knowledge, View};
use turnstream_ports::form::{Form, Refused, check_fraction};
use turnstream_schemas::{GateDecision, ModelUsed, Score, Stage};

use crate::flow::{Epoch, Failed, Gated, TurnContext};
use crate::prompted::PromptedConfig;
use crate::resources::Resources;
use crate::stage::{OnFailure, Work, instead, stage};

pub use by_source::Judges;
pub use features::Features;
pub use learned::LearnedGateConfig;

use learned::{LearnedGate, Reads, used};

/// How the gate decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GateConfig {
    /// How the decision is made: `lexical` by rules; `learned` by a trained encoder, and by rules in
    /// languages that it was not trained on; `by_source` by the encoder where the turn calls for documents
    /// or tables, by rules where it calls for a graph or a persona, and where for both, by whichever is
    /// surer that there is a need; `prompted`; and to compare, `always`, `never` and `random`.
    pub form: Form,
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
            form: Form::BySource,
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

impl GateConfig {
    /// Checks the form and the ranges.
    ///
    /// # Errors
    /// [`Refused`] by key.
    pub fn check(&self) -> Result<(), Refused> {
        let of_rules_and_models = [Form::Lexical, Form::Learned, Form::BySource, Form::Prompted];
        let forms = [&of_rules_and_models[..], &[Form::Always, Form::Never, Form::Random]].concat();
        self.form.is_one_of(&forms, Stage::Gate)?;
        let later = [("after_retrieval", self.after_retrieval), ("after_draft", self.after_draft)];
        if let Some((key, _)) = later.iter().find(|(_, is)| *is && self.form != Form::Learned) {
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
    resources: &Resources,
) -> (StreamVec<'scope, Epoch, Gated>, StreamVec<'scope, Epoch, Failed>) {
    let Resources { knowledge, .. } = resources.clone();
    let now = knowledge.clone();
    let asking = resources.asking(Stage::Gate, config.form, &config.prompted, config.on_failure);
    let turns = turns.map(move |context| Gated::undecided(context, now.now()));
    if let Some(asking) = asking {
        return prompted::gate(turns, config, asking, knowledge);
    }
    let shell = resources.shell(config.on_failure);
    let (model, sources) = (resources.gate.clone(), Arc::clone(&resources.sources));
    let (falls, fallen) = (knowledge.clone(), config.clone());
    let work = Work {
        work: move |turn: &Gated| {
            let context = &turn.context;
            let (mentions, missing) =
                knowledge.at(&turn.knowledge, |view| find(view, context, &config));
            if config.after_retrieval || config.after_draft {
                return Ok(((mentions, missing, whatever_the_turn(true)), None));
            }
            let judges = Judges::of_turn(&config, turn, &sources);
            let is_asked =
                |model: &&dyn LearnedGate| judges.asks_encoder() && learned::reads(*model, context);
            let by_rules = || decide(context, &mentions, &config);
            let (decision, by) = match model.as_deref().filter(is_asked) {
                Some(model) => {
                    let scores = learned::score(model, context, Reads::default())?;
                    (judges.decide(scores, by_rules, config.threshold), Some(used(model)))
                }
                None => (by_rules(), None),
            };
            Ok(((mentions, missing, decision), by))
        },
        fallback: move |turn: &Gated| {
            (instead(fallen.on_failure, || lexical(turn, &falls, &fallen)), None)
        },
        join: |turn, (decided, by): (Linked, Option<ModelUsed>)| {
            let mut turn = linked(turn, decided);
            turn.progress.models.extend(by.map(|by| (Stage::Gate, by)));
            turn
        },
    };
    stage(turns, Stage::Gate, shell, work)
}

/// What the lexical form makes of a turn.
fn lexical(turn: &Gated, knowledge: &Knowledge, config: &GateConfig) -> Linked {
    let (mentions, missing) =
        knowledge.at(&turn.knowledge, |view| find(view, &turn.context, config));
    let decision = decide(&turn.context, &mentions, config);
    (mentions, missing, decision)
}

/// The concepts of a dialogue, what of its current utterance the graph does not have, and the
/// decision.
type Linked = (Vec<Mention>, Vec<String>, GateDecision);

fn linked(turn: Gated, (mentions, missing, gate): Linked) -> Gated {
    Gated { mentions: mentions.into(), missing: missing.into(), gate, ..turn }
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
        Form::Always => whatever_the_turn(true),
        Form::Never => whatever_the_turn(false),
        Form::Random => whatever_the_turn(drawn(context) < config.random_rate),
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
