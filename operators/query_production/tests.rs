use super::*;
use crate::testing::{directed, graph, meaning, run_dataflow, scene, stage_context};

const FACTS: &str = "
    bed UsedFor night_rest 2
    pillow UsedFor night_rest 1
    coffee Causes wakefulness 1
    pillow UsedFor pillow_fight 1
    bed NotUsedFor run 1
    pillow UsedFor run -1
    coffee HasProperty dark 1
    bed HasProperty dark 1
    bed UsedFor hubword 1
    pillow UsedFor hubword 1
";

fn check(lines: &[&str], explicit: &[&str], implicit: &[&str]) -> Queries {
    let graph = graph(FACTS);
    let turn = scene(lines, &graph);
    let config = QueryProductionConfig::default();
    let (queries, thought) = produce(&turn, graph.view(), None, &config);
    let names = |found: Vec<&String>| found.into_iter().cloned().collect::<Vec<_>>();
    assert_eq!(names(queries.explicit.iter().map(|query| &query.concept).collect()), explicit);
    assert_eq!(names(queries.implicit.iter().map(|query| &query.concept).collect()), implicit);
    for concept in explicit.iter().chain(implicit) {
        assert!(thought.contains(concept), "{thought}");
    }
    for query in &queries.explicit {
        let said = turn.context.dialogue.iter().find(|said| said.turn_id == query.turn).unwrap();
        let span = query.span.of(&said.text).unwrap();
        let lexicon = turnstream_knowledge::language::Lexicon::english();
        assert_eq!(lexicon.key(span), lexicon.key(&query.concept));
    }
    queries
}

#[test]
fn queries_are_named_or_pointed_to() {
    // Nothing is named.
    check(&["u: Hello there"], &[], &[]);
    // One concept alone makes no implicit query.
    check(&["u: I like my pillows."], &["pillow"], &[]);
    // Two concepts that serve one goal point to it. Hubs and denied facts do not count, and a shared
    // property is no goal.
    let queries = check(&["u: A bed with a pillow"], &["bed", "pillow"], &["night rest"]);
    assert_eq!(queries.implicit[0].because, ["bed", "pillow"]);
    // A concept that the dialogue names is not implicit.
    check(&["u: A bed and a pillow for a night rest"], &["night rest", "bed", "pillow"], &[]);
}

#[test]
fn recent_words_of_the_user_weigh_more() {
    let queries = check(&["u: coffee", "s: a bed", "u: no, coffee"], &["coffee", "bed"], &[]);
    assert_eq!(queries.explicit[0].turn.as_str(), "t2", "the latest mention is named");
    let early = check(&["u: pillow", "s: Yes?", "u: coffee"], &["coffee", "pillow"], &[]);
    assert!(early.explicit[0].weight > early.explicit[1].weight);
}

#[test]
fn lists_are_bounded() {
    let facts: String =
        (0..40).map(|at| format!("thingy{at} UsedFor goal{} 1\n", at / 2)).collect();
    let graph = graph(&facts);
    let words: Vec<String> = (0..40).map(|at| format!("thingy{at}")).collect();
    let turn = scene(&[&format!("u: {}", words.join(", "))], &graph);
    let config = QueryProductionConfig { max_explicit: 12, max_implicit: 3, ..Default::default() };
    let (queries, _) = produce(&turn, graph.view(), None, &config);
    assert_eq!((queries.explicit.len(), queries.implicit.len()), (12, 3));
}

/// The vector of a fact by its tail: facts about boiling point to the right, the others turn away step
/// by step.
fn towards_boiling(tail: &str) -> [f32; 2] {
    match tail {
        "boil water" => [1.0, 0.0],
        "stove" => [0.9, 0.4],
        "make a cup of tea" => [0.8, 0.6],
        "hubword" => [0.7, 0.7],
        _ => [0.0, 1.0],
    }
}

const KITCHEN: &str = "
    kettle UsedFor boil_water 1
    kettle AtLocation stove 1
    teabag UsedFor make_a_cup_of_tea 1
    teabag RelatedTo hubword 1
    candle AtLocation shelf 1
";

#[test]
fn where_nothing_is_named_queries_are_what_the_nearest_facts_are_about() {
    let graph = graph(KITCHEN);
    let all = crate::meaning::Searched::strongest(&graph, 1_000);
    let meaning = meaning(&graph, towards_boiling).with_searched(all);
    let asked = |lines: &[&str], config: &QueryProductionConfig| {
        let turn = directed(scene(lines, &graph), [1.0, 0.0]);
        let (queries, thought) = produce(&turn, graph.view(), Some(&meaning), config);
        for query in &queries.implicit {
            assert!(thought.contains(&query.concept), "{thought}");
        }
        let implicit = queries.implicit.iter();
        implicit.map(|query| (query.concept.clone(), query.similarity)).collect::<Vec<_>>()
    };
    let concepts = |lines: &[&str], config: &QueryProductionConfig| {
        asked(lines, config).into_iter().map(|(concept, _)| concept).collect::<Vec<_>>()
    };
    let config = QueryProductionConfig::default();
    // Queries are sorted by likeness, ties by text; hubs and sentences are no queries.
    let found = asked(&["u: How can I get it really hot?"], &config);
    let names: Vec<&str> = found.iter().map(|(concept, _)| concept.as_str()).collect();
    assert_eq!(names, ["boil water", "kettle", "stove", "teabag"]);
    let similarity: Vec<f64> =
        found.iter().map(|(_, it)| (it.unwrap().get() * 10.0).round() / 10.0).collect();
    assert_eq!(similarity, [1.0, 1.0, 0.9, 0.8]);
    // Only near facts give queries, and only if the dialogue names no concept.
    let near = ByMeaningConfig { min_similarity: 0.85, ..Default::default() };
    let strict = QueryProductionConfig { by_meaning: near, ..config.clone() };
    assert_eq!(concepts(&["u: How can I get it hot?"], &strict), ["boil water", "kettle", "stove"]);
    assert_eq!(concepts(&["u: Is the kettle hot?"], &config), [""; 0]);
    assert_eq!(concepts(&["u: My kettle leaks.", "s: Oh!", "u: Hot!"], &config), [""; 0]);
    assert_eq!(concepts(&["u: Hello, how are you?"], &config), [""; 0], "small talk");
    let off = ByMeaningConfig { enabled: false, ..Default::default() };
    let off = QueryProductionConfig { by_meaning: off, ..config };
    assert_eq!(concepts(&["u: How can I get it hot?"], &off), [""; 0]);
}

#[test]
fn every_turn_gives_a_half() {
    let graph = graph(FACTS);
    let turns = vec![scene(&["u: bed"], &graph), scene(&["u: hi"], &graph)];
    let (halves, _) = run_dataflow(turns, move |turns| {
        let halves =
            query_production(turns, QueryProductionConfig::default(), &stage_context(&graph));
        let none = halves.clone();
        (halves, timely::dataflow::operators::vec::Map::flat_map(none, |_| None))
    });
    assert_eq!(halves.iter().filter(|half: &&Half| half.is_ok()).count(), 2);
}
