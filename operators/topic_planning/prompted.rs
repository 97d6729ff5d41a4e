//! Prompted topic planning: a language model names what the reply is about. (DCRAG eq 3, 4.) A name
//! becomes a topic if the graph has the concept; weights fall with the model's order.

use turnstream_knowledge::View;
use turnstream_schemas::{Topic, Topics, TopicsAnswer};

use super::TopicPlanningConfig;
use crate::flow::TurnInFlight;
use crate::prompted::material::concept;
use crate::query_production::prompted::{by_rank, first_of_each};

/// Returns the topics from a model's answer.
pub(super) fn topics(
    turn: &TurnInFlight,
    graph: View<'_>,
    answer: &TopicsAnswer,
    config: &TopicPlanningConfig,
) -> Topics {
    let of = |names: &[String], most: u32| {
        let concepts = names.iter().filter_map(|name| concept(graph, &turn.context, name));
        let concepts = first_of_each(concepts, most as usize);
        concepts.into_iter().map(|id| graph.concept(id).to_owned()).collect::<Vec<_>>()
    };
    let maintained = of(&answer.maintained, config.max_maintained);
    let mut extended = of(&answer.extended, config.max_extended);
    extended.retain(|concept| !maintained.contains(concept));
    let extended = in_order(extended, &maintained);
    Topics { extended, maintained: in_order(maintained, &[]) }
}

/// Makes topics in order, each with all of `because` as its reasons.
pub(crate) fn in_order(concepts: Vec<String>, because: &[String]) -> Vec<Topic> {
    let all = concepts.len();
    let topic =
        |(at, concept)| Topic { concept, weight: by_rank(at, all), because: because.to_vec() };
    concepts.into_iter().enumerate().map(topic).collect()
}
