use turnstream_knowledge::Graph;
use turnstream_schemas::{
    ExplicitQuery, ImplicitQuery, Queries, RevisionKind, Score, Span, Topic, Topics,
};

use super::*;
use crate::testing::{graph, run_dataflow, scene, stage_context};

const FACTS: &str = "
    coffee Causes insomnia 1
    coffee HasA caffeine 1
    coffee UsedFor wake_up 1
    coffee NotIsA tea 1
    tea HasA caffeine 1
    milk AtLocation fridge 1
    winter HasProperty quiet 1
    coffee AtLocation coffee_cup_holder 1
    unicorn HasA horn 1
";

/// A half-made demand: `explicit: coffee@t0[0..6]` names a span, the other lists only concepts.
#[derive(Default)]
struct Demanding<'d> {
    explicit: &'d [(&'d str, &'d str, &'d str)],
    implicit: &'d [&'d str],
    maintained: &'d [&'d str],
    extended: &'d [&'d str],
}

fn demanding_turn(
    lines: &[&str],
    demanding: &Demanding<'_>,
) -> (TurnInFlight, std::sync::Arc<Graph>) {
    let graph = graph(FACTS);
    let mut turn = scene(lines, &graph);
    let explicit = |(concept, at, words): &(&str, &str, &str)| {
        let said = turn.context.dialogue.iter().find(|said| said.turn_id.as_str() == *at);
        let start = said.and_then(|said| said.text.find(words)).unwrap_or(0) as u32;
        ExplicitQuery {
            concept: (*concept).to_owned(),
            turn: (*at).into(),
            span: Span { start, end: start + words.len() as u32 },
            weight: Score::new(0.5),
            via: turnstream_schemas::Via::Exact,
            similarity: None,
        }
    };
    let topic = |concept: &&str| Topic {
        concept: (*concept).to_owned(),
        weight: Score::new(0.4),
        because: Vec::new(),
    };
    let queries = Queries {
        explicit: demanding.explicit.iter().map(explicit).collect(),
        implicit: demanding
            .implicit
            .iter()
            .map(|concept| ImplicitQuery {
                concept: (*concept).to_owned(),
                because: Vec::new(),
                weight: Score::new(0.3),
                similarity: None,
            })
            .collect(),
    };
    let topics = Topics {
        maintained: demanding.maintained.iter().map(topic).collect(),
        extended: demanding.extended.iter().map(topic).collect(),
    };
    (turn.demand.queries, turn.demand.topics) = (queries, topics);
    turn.demand.thoughts.queries = "asks".to_owned();
    turn.demand.thoughts.topics = "plans".to_owned();
    (turn, graph)
}

/// Revises, and checks the four lists (`explicit / implicit / maintained / extended`) and one change
/// with words of its reason.
fn check(
    lines: &[&str],
    demanding: &Demanding<'_>,
    lists: [&[&str]; 4],
    change: (RevisionKind, &str, &str),
) -> Demand {
    let (turn, graph) = demanding_turn(lines, demanding);
    let config = CrossRevisionConfig::default();
    let demand = revise(&turn, graph.view(), &config);
    let names = |list: Vec<&String>| list.into_iter().cloned().collect::<Vec<_>>();
    let found = [
        names(demand.queries.explicit.iter().map(|query| &query.concept).collect()),
        names(demand.queries.implicit.iter().map(|query| &query.concept).collect()),
        names(demand.topics.maintained.iter().map(|topic| &topic.concept).collect()),
        names(demand.topics.extended.iter().map(|topic| &topic.concept).collect()),
    ];
    assert_eq!(found, lists.map(|list| list.iter().map(|c| (*c).to_owned()).collect::<Vec<_>>()));
    let (kind, what, why) = change;
    let told = demand.revisions.iter().any(|revision| {
        revision.kind == kind && revision.what == what && revision.why.contains(why)
    });
    assert!(told, "{kind:?} {what} ({why}) is not among {:#?}", demand.revisions);
    demand
}

const COFFEE: (&str, &str, &str) = ("coffee", "t0", "coffee");

#[test]
fn an_explicit_query_that_is_not_in_the_history_is_dropped() {
    let demanding =
        Demanding { explicit: &[COFFEE, ("milk", "t0", "coffee")], ..Default::default() };
    let change = (RevisionKind::Drop, "explicit: milk", "does not name");
    check(&["u: I drink coffee"], &demanding, [&["coffee"], &[], &[], &[]], change);
}

#[test]
fn an_explicit_query_that_the_history_only_leads_to_becomes_implicit() {
    let demanding =
        Demanding { explicit: &[COFFEE, ("insomnia", "t0", "coffee")], ..Default::default() };
    let change = (RevisionKind::Move, "explicit: insomnia", "implicit");
    let demand =
        check(&["u: I drink coffee"], &demanding, [&["coffee"], &["insomnia"], &[], &[]], change);
    assert_eq!(demand.queries.implicit[0].because, ["coffee"]);
}

#[test]
fn an_explicit_query_with_a_wrong_span_gets_the_right_one() {
    let demanding = Demanding { explicit: &[("milk", "t0", "coffee")], ..Default::default() };
    let change = (RevisionKind::Move, "explicit: milk", "another place");
    let demand = check(&["u: coffee with Milk"], &demanding, [&["milk"], &[], &[], &[]], change);
    assert_eq!(demand.queries.explicit[0].span.of("coffee with Milk"), Some("Milk"));
}

#[test]
fn an_implicit_query_that_is_in_the_history_becomes_explicit_or_goes() {
    let demanding = Demanding { implicit: &["coffee"], ..Default::default() };
    let change = (RevisionKind::Move, "implicit: coffee", "explicit");
    let demand = check(&["u: my coffees"], &demanding, [&["coffee"], &[], &[], &[]], change);
    assert_eq!(demand.queries.explicit[0].span.of("my coffees"), Some("coffees"));

    let demanding = Demanding { explicit: &[COFFEE], implicit: &["coffee"], ..Default::default() };
    let change = (RevisionKind::Drop, "implicit: coffee", "already");
    check(&["u: coffee"], &demanding, [&["coffee"], &[], &[], &[]], change);
}

#[test]
fn a_maintained_topic_that_is_finished_goes() {
    let lines = ["u: milk?", "s: Yes.", "u: Good.", "s: And?", "u: Well.", "u: coffee"];
    let demanding = Demanding { maintained: &["milk", "coffee"], ..Default::default() };
    let change = (RevisionKind::Drop, "maintained: milk", "finished");
    check(&lines, &demanding, [&[], &[], &["coffee"], &[]], change);
}

#[test]
fn topics_in_the_wrong_list_move() {
    let demanding = Demanding { maintained: &["coffee", "caffeine"], ..Default::default() };
    let change = (RevisionKind::Move, "maintained: caffeine", "extended");
    check(&["u: coffee"], &demanding, [&[], &[], &["coffee"], &["caffeine"]], change);

    let demanding = Demanding { extended: &["coffee"], ..Default::default() };
    let change = (RevisionKind::Move, "extended: coffee", "maintained");
    check(&["u: coffee"], &demanding, [&[], &[], &["coffee"], &[]], change);
}

#[test]
fn an_extended_topic_that_rewords_the_history_goes() {
    let demanding = Demanding {
        maintained: &["coffee"],
        extended: &["coffee cup holder", "caffeine"],
        ..Default::default()
    };
    let change = (RevisionKind::Drop, "extended: coffee cup holder", "rewords");
    let lines = ["u: a cup, and a holder, coffee"];
    check(&lines, &demanding, [&[], &[], &["coffee"], &["caffeine"]], change);
}

#[test]
fn an_extended_topic_that_leaves_the_subject_goes() {
    let demanding =
        Demanding { maintained: &["coffee"], extended: &["horn"], ..Default::default() };
    let change = (RevisionKind::Drop, "extended: horn", "no fact joins");
    check(&["u: coffee"], &demanding, [&[], &[], &["coffee"], &[]], change);
    // A denied fact does not join anything.
    let demanding = Demanding { maintained: &["coffee"], extended: &["tea"], ..Default::default() };
    let change = (RevisionKind::Drop, "extended: tea", "no fact joins");
    check(&["u: coffee"], &demanding, [&[], &[], &["coffee"], &[]], change);
}

#[test]
fn what_the_graph_does_not_know_goes() {
    let demanding = Demanding { explicit: &[("zeppelin", "t0", "zeppelin")], ..Default::default() };
    let change = (RevisionKind::Drop, "explicit: zeppelin", "no fact about it");
    check(&["u: a zeppelin"], &demanding, [&[], &[], &[], &[]], change);
}

#[test]
fn a_concept_stands_once_in_a_list() {
    let demanding = Demanding { explicit: &[COFFEE, COFFEE], ..Default::default() };
    let change = (RevisionKind::Drop, "explicit: coffee", "already");
    check(&["u: coffee"], &demanding, [&["coffee"], &[], &[], &[]], change);
}

#[test]
fn a_query_that_meets_a_topic_goes_first() {
    let demanding = Demanding {
        explicit: &[("fridge", "t0", "fridge"), ("winter", "t0", "winter")],
        maintained: &["fridge", "quiet"],
        ..Default::default()
    };
    let lines = ["u: the fridge is quiet in winter"];
    let change = (RevisionKind::Prefer, "explicit: winter", "meets quiet in a fact (HasProperty)");
    let lists: [&[&str]; 4] = [&["winter", "fridge"], &[], &["quiet", "fridge"], &[]];
    let demand = check(&lines, &demanding, lists, change);
    let weights: Vec<f64> = demand.queries.explicit.iter().map(|q| q.weight.get()).collect();
    assert_eq!(weights, [0.75, 0.5], "half of what is missing is added");
}

#[test]
fn a_full_list_loses_its_lightest() {
    let (turn, graph) = demanding_turn(
        &["u: coffee, milk, tea"],
        &Demanding { maintained: &["coffee", "milk", "tea"], ..Default::default() },
    );
    let config = CrossRevisionConfig { max_per_list: 2, ..Default::default() };
    let demand = revise(&turn, graph.view(), &config);
    assert_eq!(demand.topics.maintained.len(), 2);
    assert!(demand.revisions.iter().any(|revision| revision.why.contains("full")));
}

#[test]
fn a_right_demand_is_left_alone() {
    let (turn, graph) = demanding_turn(
        &["u: coffee"],
        &Demanding { explicit: &[COFFEE], maintained: &["coffee"], ..Default::default() },
    );
    let demand = revise(&turn, graph.view(), &CrossRevisionConfig::default());
    assert_eq!(demand.revisions, []);
    assert_eq!(demand.queries, turn.demand.queries);
    assert_eq!(demand.thoughts.queries, "asks");
    assert_eq!(demand.thoughts.topics, "plans");
}

#[test]
fn the_two_stages_and_the_revision_run_as_one_flow() {
    use crate::query_production::{QueryProductionConfig, query_production};
    use crate::topic_planning::{TopicPlanningConfig, topic_planning};

    let graph = graph(FACTS);
    let turns = vec![scene(&["u: Does coffee keep me awake?"], &graph)];
    let (demanded, failed): (Vec<TurnInFlight>, _) = run_dataflow(turns, move |turns| {
        let means = stage_context(&graph);
        let queried = query_production(turns.clone(), QueryProductionConfig::default(), &means);
        let planned = topic_planning(turns, TopicPlanningConfig::default(), &means);
        cross_revision(queried, planned, CrossRevisionConfig::default(), &means)
    });
    assert!(failed.is_empty());
    let concepts: Vec<&str> = demanded[0].demand.topic_concepts().collect();
    assert_eq!(concepts, ["coffee", "caffeine", "coffee cup holder", "insomnia", "wake up"]);
}

#[test]
fn what_was_found_by_meaning_is_the_subject_where_nothing_is_named() {
    let kept = |lines: &[&str], explicit: &'static [(&str, &str, &str)], similarity| {
        let demanding = Demanding { explicit, implicit: &["unicorn"], ..Default::default() };
        let (mut turn, graph) = demanding_turn(lines, &demanding);
        turn.demand.queries.implicit[0].similarity = similarity;
        let demand = revise(&turn, graph.view(), &CrossRevisionConfig::default());
        demand.queries.implicit.len() == 1
    };
    let by_meaning = Some(Score::new(0.7));
    assert!(kept(&["u: What is it, in fairy tales?"], &[], by_meaning));
    assert!(!kept(&["u: What is it, in fairy tales?"], &[], None), "nothing joins it to the rest");
    assert!(!kept(&["u: I drink coffee"], &[COFFEE], by_meaning), "coffee is the subject");
}
