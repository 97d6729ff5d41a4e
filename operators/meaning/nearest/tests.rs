use super::*;
use crate::meaning::FactMeaning;
use crate::testing::{directed, graph, scene};

const FACTS: &str = "
    candle AtLocation shelf 1
    kitten CapableOf purr 3
    kitten Desires milk 2
    kitten IsA pet 1
    kitten NotDesires bath 1
    parrot CapableOf talk 1
    tea UsedFor rest 1
";

/// The direction of a fact: the closer its tail is to pets, the more to the right.
fn direction(tail: &str) -> [f32; 2] {
    match tail {
        "purr" | "bath" => [1.0, 0.0],
        "milk" => [0.8, 0.6],
        "pet" | "talk" => [0.6, 0.8],
        "rest" => [-1.0, 0.0],
        _ => [0.0, 1.0],
    }
}

fn meaning(graph: &Graph) -> FactMeaning {
    crate::testing::meaning(graph, direction)
}

/// The tails of the facts nearest to the right, with their cosines.
fn nearest(meaning: &FactMeaning, graph: &Graph, limit: usize, least: f64) -> Vec<(f64, String)> {
    let turn = directed(scene(&["u: What purrs?"], graph), [1.0, 0.0]);
    let dialogue = meaning.of(&turn, graph.view()).unwrap();
    let found = dialogue.nearest(limit, least).into_iter();
    let rounded = |cosine: f64| (cosine * 10.0).round() / 10.0;
    found.map(|(cosine, fact)| (rounded(cosine), graph.concept(fact.tail).to_owned())).collect()
}

fn told(expected: &[(f64, &str)]) -> Vec<(f64, String)> {
    expected.iter().map(|(cosine, tail)| (*cosine, (*tail).to_owned())).collect()
}

#[test]
fn facts_come_by_falling_cosine_without_denied_ones() {
    let graph = graph(FACTS);
    let all = meaning(&graph).with_searched(Searched::strongest(&graph, 1_000));
    let expected = told(&[(1.0, "purr"), (0.8, "milk"), (0.6, "pet"), (0.6, "talk")]);
    // A fact at a right angle or behind is not near, however many are wanted.
    assert_eq!(nearest(&all, &graph, 100, 0.0), expected);
    assert_eq!(nearest(&all, &graph, 3, 0.0), expected[..3], "of equals the first stays");
    assert_eq!(nearest(&all, &graph, 100, 0.7), expected[..2]);
    assert_eq!(nearest(&all, &graph, 0, 0.0), []);
    assert_eq!(nearest(&meaning(&graph), &graph, 100, 0.0), [], "nothing is searched");
}

#[test]
fn of_a_large_graph_only_the_strongest_facts_are_searched() {
    let graph = graph(FACTS);
    let all = graph.facts().len();
    // Heads: a hub with 300 facts, the kitten with four, three with one fact each.
    let count = |most| Searched::strongest(&graph, most).count(&graph);
    assert_eq!((count(all), count(all + 1)), (all, all));
    // One of each are 5, two of each 7, three of each 9.
    assert_eq!([5, 6, 7, 8, 9].map(count), [5, 5, 7, 7, 9]);
    let found = |most| {
        let some = meaning(&graph).with_searched(Searched::strongest(&graph, most));
        nearest(&some, &graph, 100, 0.0)
    };
    assert_eq!(found(5), told(&[(1.0, "purr"), (0.6, "talk")]));
    assert_eq!(found(7), told(&[(1.0, "purr"), (0.8, "milk"), (0.6, "talk")]));
    // Where one of each does not fit, concepts with most facts go first, ties by text.
    assert_eq!((count(3), found(3)), (3, told(&[(1.0, "purr")])));
    assert_eq!((count(0), found(0)), (0, told(&[])));
}
