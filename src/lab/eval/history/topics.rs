//! Measures recall on turns with a topic: the share of the first recalled entries with the turn's
//! topic. The topic of an entry is the topic of the answer to its query.
//!
//! The figures cover all turns; those whose topic occurred before; and returns, whose topic
//! occurred before while the preceding turn has another.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::evidence::Measure;
use super::held::Held;
use super::material::{Conversation, Gold, Step};
use crate::eval::bootstrap::{Conversations, Mean};

/// The numbers of first entries that are compared.
pub const DEPTHS: [usize; 2] = [1, 3];

/// The result of one turn.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicOutcome {
    /// The number of the conversation, from 0.
    pub conversation: usize,
    /// At each of [`DEPTHS`], the share of entries with the turn's topic.
    pub precision: [f64; 2],
    /// Whether the topic occurred before.
    pub seen: bool,
    /// Whether the topic occurred before and the preceding turn has another.
    pub returns: bool,
}

/// Means over turns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TopicFigures {
    /// Turns.
    pub n: usize,
    /// The share by depth.
    #[serde(flatten)]
    pub precision: BTreeMap<usize, f64>,
    /// 95 % intervals by resampling conversations.
    pub intervals: BTreeMap<usize, [f64; 2]>,
}

/// The result printed with `--json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredTopics {
    /// Turns.
    pub n: usize,
    /// All turns.
    pub topic_precision: TopicFigures,
    /// Turns whose topic occurred before.
    pub on_seen: TopicFigures,
    /// Turns that return to a topic.
    pub on_return: TopicFigures,
}

/// Feeds conversations to a history, and compares the entries recalled for their turns. `progress`
/// is called once per turn.
pub fn ask(
    measure: &Measure,
    conversations: &[Conversation],
    progress: &dyn Fn(),
) -> Vec<TopicOutcome> {
    let mut outcomes = Vec::new();
    for (number, conversation) in conversations.iter().enumerate() {
        let keeping = measure.keeping(conversation);
        let mut held = Held::new(&keeping);
        let (mut topics, mut seen) = (BTreeMap::new(), BTreeSet::new());
        let mut latest: Option<&str> = None;
        for step in &conversation.steps {
            match step {
                Step::Said(said) => {
                    held.hear(said);
                    if let Some(topic) = said.topic.as_deref() {
                        topics.insert(&said.id, topic);
                        seen.insert(topic);
                        latest = Some(topic);
                    }
                }
                Step::Asked(question) => {
                    let Gold::Topic(topic) = &question.gold else { continue };
                    let ranked = held.ask();
                    let order = ranked.recall(&question.text);
                    let same = |place: &usize| {
                        let entry = ranked.entries()[*place];
                        topics.get(&entry.turn_id).is_some_and(|of| of == topic)
                    };
                    let precision = DEPTHS.map(|depth| {
                        order.iter().take(depth).filter(|it| same(it)).count() as f64 / depth as f64
                    });
                    let seen = seen.contains(topic.as_str());
                    let returns = seen && latest != Some(topic);
                    outcomes.push(TopicOutcome { conversation: number, precision, seen, returns });
                    progress();
                }
            }
        }
    }
    outcomes
}

/// Computes the figures of turns.
pub fn measured(outcomes: &[TopicOutcome]) -> MeasuredTopics {
    MeasuredTopics {
        n: outcomes.len(),
        topic_precision: figures(outcomes, |_| true),
        on_seen: figures(outcomes, |outcome| outcome.seen),
        on_return: figures(outcomes, |outcome| outcome.returns),
    }
}

fn figures(outcomes: &[TopicOutcome], counts: impl Fn(&TopicOutcome) -> bool) -> TopicFigures {
    let drawn = drawn(outcomes);
    let n = outcomes.iter().filter(|outcome| counts(outcome)).count();
    let mut figures = TopicFigures { n, precision: BTreeMap::new(), intervals: BTreeMap::new() };
    for (at, depth) in DEPTHS.into_iter().enumerate() {
        let part =
            |outcome: &TopicOutcome| counts(outcome).then(|| Mean::from(outcome.precision[at]));
        let parts: Vec<_> = outcomes.iter().map(part).collect();
        let (value, interval) = drawn.figure(&parts, Mean::value);
        figures.precision.insert(depth, value.unwrap_or(0.0));
        figures.intervals.extend(interval.map(|interval| (depth, interval)));
    }
    figures
}

/// Returns the units of the bootstrap: conversations.
pub fn drawn(outcomes: &[TopicOutcome]) -> Conversations {
    Conversations::new(outcomes.iter().map(|outcome| outcome.conversation))
}
