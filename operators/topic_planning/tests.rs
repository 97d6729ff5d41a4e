use super::*;
use crate::testing::{graph, scene};

const FACTS: &str = "
    tea HasProperty warm_inside 1
    coffee HasProperty warm_inside 1
    coffee HasA caffeine 1
    coffee Causes coffee_break 1
    coffee NotCapableOf swim 1
    coffee IsA hubword 5
    football UsedFor play_outside 1
";

fn check(lines: &[&str], maintained: &[&str], extended: &[&str]) -> Topics {
    let graph = graph(FACTS);
    let turn = scene(lines, &graph);
    let config = TopicPlanningConfig { reword_share: 0.5, ..Default::default() };
    let (topics, thought) = plan(&turn, graph.view(), &config);
    let names =
        |found: &[Topic]| found.iter().map(|topic| topic.concept.clone()).collect::<Vec<_>>();
    assert_eq!(names(&topics.maintained), maintained, "{lines:?}");
    assert_eq!(names(&topics.extended), extended, "{lines:?}");
    for concept in maintained.iter().chain(extended) {
        assert!(thought.contains(concept), "{thought}");
    }
    topics
}

#[test]
fn topics_stay_or_are_reached() {
    check(&["u: Hello"], &[], &[]);
    // A hub, a denied fact and a rewording of the dialogue are no extended topics.
    check(&["u: I like coffee"], &["coffee"], &["warm inside", "caffeine"]);
    // A concept reached from two topics comes before the neighbour of one.
    let both = check(&["u: tea or coffee?"], &["tea", "coffee"], &["warm inside", "caffeine"]);
    assert_eq!(both.extended[0].because.len(), 2);
}

#[test]
fn a_topic_that_was_left_is_not_maintained() {
    check(
        &["u: Do you watch football?", "s: Yes.", "u: OK.", "s: So?", "u: I like tea", "s: Good."],
        &["tea"],
        &["warm inside"],
    );
}

#[test]
fn what_is_said_often_is_more_salient() {
    let topics = check(
        &["u: coffee and tea", "s: Well.", "u: coffee"],
        &["coffee", "tea"],
        &["warm inside", "caffeine"],
    );
    assert!(topics.maintained[0].weight > topics.maintained[1].weight);
}
