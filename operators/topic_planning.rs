//! Topic planning chooses what the next response will be about. (DCRAG eq 3, 4.)
//!
//! Maintained topics E^MT stay: they are salient in the latest turns (frequent, recent, informative).
//! Extended topics E^ET are new: they are not in the dialogue H and are reached from maintained ones
//! over the strongest facts, best from several. The thought is one sentence from a template.
//!
//! Key: none. State: none. If the stage fails and may degrade, the turn goes on without topics. It
//! sees nothing of query production, and follows only the strongest facts of a concept and no denied
//! ones.

pub(crate) mod prompted;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use timely::dataflow::StreamVec;
use turnstream_knowledge::{ConceptId, Knowledge, View};
use turnstream_schemas::{Score, Stage, Topic, Topics, TopicsAnswer};

use crate::flow::{Epoch, TurnInFlight};
use crate::join::{Half, halves};
use crate::prompted::material::of_context;
use crate::prompted::{Answered, PromptedConfig, Slot};
use crate::salience::{
    Named, Recency, Said, enumerate, familiarity, named_concepts, saturate, strength, word_count,
};
use crate::stage::{OnFailure, run};
use crate::stage_config::StageConfig;
use crate::stage_context::StageContext;
use crate::stage_form::{DecideInForm, InForm, StageForm};

/// How topics are planned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TopicPlanningConfig {
    /// How topics are found; `off` is for none.
    pub form: StageForm,
    /// How the prompted form asks its language model.
    pub prompted: PromptedConfig,
    /// What happens to a turn on which the stage fails.
    pub on_failure: OnFailure,
    /// The most maintained topics; 1..=64.
    #[schemars(range(min = 1, max = 64))]
    pub max_maintained: u32,
    /// The most extended topics; 1..=64.
    #[schemars(range(min = 1, max = 64))]
    pub max_extended: u32,
    /// One of this number of latest utterances must name a maintained topic; 1..=256. Four are the
    /// current turn, the response it follows, and one exchange before.
    #[schemars(range(min = 1, max = 256))]
    pub latest_utterances: u32,
    /// How many of the strongest facts of each maintained topic are followed, in each direction;
    /// 1..=4096.
    #[schemars(range(min = 1, max = 4096))]
    pub max_facts_per_concept: u32,
    /// The least informativeness of an extended topic; 0..=1. 0.25 keeps out the largest hubs.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_informativeness: f64,
    /// An extended topic counts as a rewording of the dialogue, and is left out, if the dialogue holds
    /// this share of its content lemmas or more; 0..=1. At 1, the dialogue must hold all of them.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub reword_share: f64,
    /// The longest extended topic in words; 1..=16. Longer concepts are whole sentences.
    #[schemars(range(min = 1, max = 16))]
    pub max_words: u32,
    /// How the weight of earlier utterances fades.
    pub recency: Recency,
}

impl Default for TopicPlanningConfig {
    fn default() -> Self {
        Self {
            form: StageForm::Lexical,
            prompted: PromptedConfig::default(),
            on_failure: OnFailure::Degrade,
            max_maintained: 5,
            max_extended: 5,
            latest_utterances: 4,
            max_facts_per_concept: 64,
            min_informativeness: 0.25,
            reword_share: 0.6,
            max_words: 3,
            recency: Recency::default(),
        }
    }
}

impl StageConfig for TopicPlanningConfig {
    fn prompted(&self) -> Option<&PromptedConfig> {
        Some(&self.prompted).filter(|_| self.form == StageForm::Prompted)
    }
}

/// Runs topic planning over a stream of turns. Turns on which it fails stay in the stream, as failed
/// halves: see [`crate::join`].
pub fn topic_planning<'scope>(
    turns: StreamVec<'scope, Epoch, TurnInFlight>,
    config: TopicPlanningConfig,
    context: &StageContext,
) -> StreamVec<'scope, Epoch, Half> {
    halves(run(turns, TopicPlanning::stage(config, context), &context.runner))
}

/// The stage.
struct TopicPlanning {
    config: TopicPlanningConfig,
    knowledge: Knowledge,
}

impl TopicPlanning {
    fn stage(config: TopicPlanningConfig, context: &StageContext) -> InForm<Self> {
        let (form, on_failure) = (config.form, config.on_failure);
        let stage = Self { config, knowledge: context.knowledge.clone() };
        InForm::new(stage, form, on_failure, context)
    }
}

impl DecideInForm for TopicPlanning {
    type Decision = (Topics, String);
    type Answer = TopicsAnswer;

    const STAGE: Stage = Stage::TopicPlanning;

    fn prompted(&self) -> Option<&PromptedConfig> {
        self.config.prompted()
    }

    fn by_rules(&self, turn: &TurnInFlight) -> (Topics, String) {
        self.knowledge.at(&turn.knowledge, |view| plan(turn, view, &self.config))
    }

    fn fill(&self, turn: &TurnInFlight, slot: Slot) -> String {
        of_context(&turn.context, slot)
    }

    fn understand(&self, turn: &TurnInFlight, said: Answered<TopicsAnswer>) -> (Topics, String) {
        let topics = |view: View<'_>| prompted::topics(turn, view, &said.answer, &self.config);
        (self.knowledge.at(&turn.knowledge, topics), said.thought)
    }

    fn without(&self, _: &TurnInFlight) -> (Topics, String) {
        Default::default()
    }

    fn write(&self, turn: &mut TurnInFlight, (topics, thought): (Topics, String)) {
        turn.demand.topics = topics;
        turn.demand.thoughts.topics = thought;
    }
}

/// Returns the topics of a turn and the thought behind them.
pub fn plan(
    turn: &TurnInFlight,
    graph: View<'_>,
    config: &TopicPlanningConfig,
) -> (Topics, String) {
    let stays = salient(turn, graph, config);
    let said = Said::read(&turn.context, &turn.mentions);
    let topics = Topics {
        maintained: stays.iter().map(|named| maintained_topic(named, graph)).collect(),
        extended: extended_topics(&stays, &said, graph, config),
    };
    let thought = think(&topics);
    (topics, thought)
}

/// Returns the concepts named in the latest utterances, by falling salience, ties by text.
fn salient<'m>(
    turn: &'m TurnInFlight,
    graph: View<'_>,
    config: &TopicPlanningConfig,
) -> Vec<Named<'m>> {
    let first = turn.context.dialogue.len().saturating_sub(config.latest_utterances as usize);
    let mut named = named_concepts(&turn.context, &turn.mentions, &config.recency);
    named.retain(|named| named.latest as usize >= first);
    named.sort_by(|a, b| {
        let texts = || graph.concept(a.concept()).cmp(graph.concept(b.concept()));
        b.salience.total_cmp(&a.salience).then_with(texts)
    });
    named.truncate(config.max_maintained as usize);
    named
}

fn maintained_topic(named: &Named<'_>, graph: View<'_>) -> Topic {
    Topic {
        concept: graph.concept(named.concept()).to_owned(),
        weight: Score::new(saturate(named.salience)),
        because: Vec::new(),
    }
}

/// How a concept is reached from the maintained topics.
#[derive(Default)]
struct Reached {
    /// How strongly, summed over the topics.
    pull: f64,
    /// The topics from which it is reached.
    from: Vec<ConceptId>,
}

/// Returns new concepts reached from the maintained topics, by falling weight, ties by text.
///
/// Each maintained topic adds its salience × the fact's strength × the neighbour's informativeness ×
/// its familiarity. The sum of a neighbour reached from n topics counts n times, so that a concept that
/// joins several topics wins over a neighbour of one.
fn extended_topics(
    stays: &[Named<'_>],
    said: &Said,
    graph: View<'_>,
    config: &TopicPlanningConfig,
) -> Vec<Topic> {
    let mut reached = BTreeMap::<ConceptId, Reached>::new();
    for topic in stays {
        for (neighbour, strength) in neighbours(topic.concept(), graph, config) {
            let reached = reached.entry(neighbour).or_default();
            reached.pull += saturate(topic.salience) * strength;
            reached.from.push(topic.concept());
        }
    }
    let mut ranked: Vec<(f64, &str, Reached)> = reached
        .into_iter()
        .filter_map(|(neighbour, reached)| {
            let informativeness = f64::from(graph.informativeness(neighbour));
            let text = graph.concept(neighbour);
            let fit = informativeness >= config.min_informativeness
                && word_count(text) <= config.max_words
                && !said.names(neighbour);
            let worth = informativeness * familiarity(graph, neighbour);
            let sum = reached.pull * worth * reached.from.len() as f64;
            fit.then(|| (saturate(sum), text, reached))
        })
        .collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    let new = |(_, text, _): &(f64, &str, Reached)| said.share(text) < config.reword_share;
    let topic = |(weight, text, reached): (f64, &str, Reached)| Topic {
        concept: text.to_owned(),
        weight: Score::new(weight),
        because: reached.from.iter().map(|from| graph.concept(*from).to_owned()).collect(),
    };
    ranked.into_iter().filter(new).take(config.max_extended as usize).map(topic).collect()
}

/// Returns the strongest neighbours of a concept, over facts that are not denied, each with the
/// strength of its strongest fact.
fn neighbours(
    concept: ConceptId,
    graph: View<'_>,
    config: &TopicPlanningConfig,
) -> BTreeMap<ConceptId, f64> {
    let limit = config.max_facts_per_concept as usize;
    let ahead = graph.strongest_from(concept, limit).map(|fact| (fact.tail, fact));
    let back = graph.strongest_to(concept, limit).map(|fact| (fact.head, fact));
    let mut neighbours = BTreeMap::new();
    for (neighbour, fact) in ahead.chain(back) {
        if !fact.negated && neighbour != concept {
            let known = neighbours.entry(neighbour).or_insert(0.0_f64);
            *known = known.max(strength(fact.weight));
        }
    }
    neighbours
}

/// Returns the thought: a sentence about where the conversation seems to go.
fn think(topics: &Topics) -> String {
    let stays: Vec<&str> = topics.maintained.iter().map(|topic| topic.concept.as_str()).collect();
    let new: Vec<&str> = topics.extended.iter().map(|topic| topic.concept.as_str()).collect();
    match (stays.as_slice(), new.as_slice()) {
        ([], _) => "Nothing that the graph knows is under discussion.".to_owned(),
        (stays, []) => format!("The conversation stays with {}.", enumerate(stays)),
        (stays, new) => format!(
            "The conversation stays with {} and may turn to {}.",
            enumerate(stays),
            enumerate(new)
        ),
    }
}

#[cfg(test)]
mod tests;
