use std::collections::BTreeSet;

use proptest::prelude::*;
use turnstream_knowledge::{Graph, ImportedFact};
use turnstream_schemas::{ExplicitQuery, ImplicitQuery, Span, Topic};

use super::*;

use crate::meaning::FactMeaning;
use crate::testing::{directed, graph, meaning, run_dataflow, scene, stage_context};

const FACTS: &str = "
    coffee Causes insomnia 1
    coffee Causes insomnia 1
    insomnia Causes tiredness 1
    coffee NotCauses insomnia 1
    tea Causes insomnia -1
    coffee AtLocation coffee_shop 1
    sugar AtLocation coffee 1
    sugar AtLocation jar 1
";

fn demand(queries: &[&str], topics: &[&str]) -> Demand {
    let mut demand = Demand::default();
    for concept in queries {
        demand.queries.explicit.push(ExplicitQuery {
            concept: (*concept).to_owned(),
            turn: "t0".into(),
            span: Span { start: 0, end: 0 },
            weight: Score::new(0.5),
            via: turnstream_schemas::Via::Exact,
            similarity: None,
        });
    }
    for concept in topics {
        let concept = (*concept).to_owned();
        demand.topics.maintained.push(Topic { concept, weight: Score::new(0.5), because: vec![] });
    }
    demand
}

fn check(queries: &[&str], topics: &[&str], foreseen: &[&str], unforeseen: &[&str]) {
    let graph = graph(FACTS);
    let turn = scene(&["u: coffee and insomnia"], &graph);
    let config = FactRetrievalConfig::default();
    let candidates = retrieve(
        &demand(queries, topics),
        &Likeness::read(&turn, graph.view(), None, &config.recency),
        &config,
    );
    let names = |evidence: &[Evidence], set| {
        assert!(evidence.iter().all(|evidence| evidence.set == Some(set)));
        let names = evidence.iter().map(|evidence| evidence.id.as_str().to_owned());
        let names: BTreeSet<String> = names.collect();
        assert_eq!(names.len(), evidence.len(), "each fact once");
        names
    };
    let expected = |ids: &[&str]| ids.iter().map(|id| format!("unnamed/{id}")).collect();
    let expected: [BTreeSet<String>; 2] = [expected(foreseen), expected(unforeseen)];
    assert_eq!(names(&candidates.foreseen, EvidenceSet::Foreseen), expected[0]);
    assert_eq!(names(&candidates.unforeseen, EvidenceSet::Unforeseen), expected[1]);
}

#[test]
fn the_sets_are_those_of_the_paper() {
    check(&[], &[], &[], &[]);
    check(&["zeppelin"], &["unknown"], &[], &[]);
    check(
        &["coffee"],
        &["insomnia"],
        &["Causes/coffee/insomnia", "NotCauses/coffee/insomnia"],
        &[
            "AtLocation/coffee/coffee shop",
            "AtLocation/sugar/coffee",
            "Causes/insomnia/tiredness",
            "Causes/tea/insomnia",
        ],
    );
    // The other direction is foreseen as well.
    check(&["jar"], &["sugar"], &["AtLocation/sugar/jar"], &["AtLocation/sugar/coffee"]);
}

#[test]
fn a_denied_fact_keeps_its_mark() {
    let graph = graph(FACTS);
    let turn = scene(&["u: coffee"], &graph);
    let demand = demand(&["tea", "coffee"], &["insomnia"]);
    let config = FactRetrievalConfig::default();
    let candidates =
        retrieve(&demand, &Likeness::read(&turn, graph.view(), None, &config.recency), &config);
    for evidence in &candidates.foreseen {
        let fact = evidence.fact.as_ref().unwrap();
        assert_eq!(fact.negated, fact.head == "tea" || fact.relation == "NotCauses", "{fact:?}");
        assert!(fact.weight > 0.0);
        assert_eq!(evidence.text.contains("not"), fact.negated, "{}", evidence.text);
    }
    assert_eq!(candidates.foreseen.len(), 3);
}

#[test]
fn what_is_like_the_dialogue_comes_first() {
    let graph = graph("dog AtLocation kennel 1\n dog AtLocation park 1\n dog HasA tail 1");
    let turn = scene(&["u: My dog runs in the park"], &graph);
    let config = FactRetrievalConfig::default();
    let candidates = retrieve(
        &demand(&["dog"], &["cat"]),
        &Likeness::read(&turn, graph.view(), None, &config.recency),
        &config,
    );
    assert_eq!(candidates.unforeseen[0].fact.as_ref().unwrap().tail, "park");
    assert!(candidates.unforeseen.is_sorted_by(|a, b| a.relevance >= b.relevance));
    assert!(candidates.unforeseen.iter().all(|e| (0.0..=1.0).contains(&e.relevance.get())));
}

#[test]
fn own_words_are_of_the_evidence_and_not_of_its_id() {
    let fact = ImportedFact {
        sentence: Some("The Bergen is soft.".to_owned()),
        ..ImportedFact::new("Contoso Bergen", "IsA", "sofa", 1.0)
    };
    let graph = Graph::from_facts([fact]);
    let turn = scene(&["u: contoso bergen"], &graph);
    let config = FactRetrievalConfig::default();
    let candidates = retrieve(
        &demand(&["contoso bergen"], &[]),
        &Likeness::read(&turn, graph.view(), None, &config.recency),
        &config,
    );
    let [evidence] = &candidates.unforeseen[..] else { panic!("{candidates:?}") };
    assert_eq!(evidence.id.as_str(), "unnamed/IsA/contoso bergen/sofa");
    assert_eq!(evidence.text, "The Bergen is soft.");
    let fact = evidence.fact.as_ref().unwrap();
    assert_eq!((&*fact.head, fact.names()), ("contoso bergen", ["Contoso Bergen", "sofa"]));
    assert_eq!(fact.sentence.as_deref(), Some("The Bergen is soft."));
    let json = serde_json::to_value(fact).unwrap();
    assert_eq!(json.get("tail_name"), None, "a field without a value is not written");
}

#[test]
fn a_hub_gives_its_strongest_only_but_is_foreseen_whole() {
    let spokes: String = (0..500)
        .map(|at| format!("wheel HasA spoke{at} {}\n", 1.0 + f64::from(at) / 100.0))
        .collect();
    let graph = graph(&spokes);
    let turn = scene(&["u: wheel"], &graph);
    let demanded = DemandedConcepts::find(&demand(&["wheel"], &["spoke3"]), graph.view());
    let (foreseen, unforeseen) = retrieval_sets(&demanded, graph.view(), 64);
    assert_eq!((foreseen.len(), unforeseen.len()), (1, 64));
    assert!(unforeseen.iter().all(|fact| fact.weight > 5.3), "the strongest");
    let config = FactRetrievalConfig { max_unforeseen: 7, ..Default::default() };
    let demand = demand(&["wheel"], &["spoke3"]);
    let candidates =
        retrieve(&demand, &Likeness::read(&turn, graph.view(), None, &config.recency), &config);
    assert_eq!((candidates.foreseen.len(), candidates.unforeseen.len()), (1, 7));
}

#[test]
fn a_demand_without_a_fact_is_missing() {
    let graph = graph(FACTS);
    let long = "x".repeat(MAX_MISSING_BYTES + 1);
    let wanted = demand(&["coffee", "zeppelin", &long], &["unknown", "jar", "zeppelin"]);
    let missing = without_facts(&wanted, graph.view());
    assert_eq!(missing, ["zeppelin", "unknown", "zeppelin"], "queries first");
    let turn = scene(&["u: coffee and insomnia"], &graph);
    let told = Demand { missing: vec!["unknown".to_owned()], ..wanted };
    let (found, failed) = run_dataflow(vec![TurnInFlight { demand: told, ..turn }], move |turns| {
        fact_retrieval(turns, FactRetrievalConfig::default(), &stage_context(&graph))
    });
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(found[0].demand.missing, ["unknown", "zeppelin"], "each once");
}

#[test]
fn the_stage_finds_facts_for_every_turn() {
    let graph = graph(FACTS);
    let turn = scene(&["u: coffee"], &graph);
    let turns = vec![TurnInFlight { demand: demand(&["coffee"], &["insomnia"]), ..turn }];
    let (retrieved, failed): (Vec<TurnInFlight>, _) = run_dataflow(turns, move |turns| {
        fact_retrieval(turns, FactRetrievalConfig::default(), &stage_context(&graph))
    });
    assert!(failed.is_empty());
    assert_eq!(retrieved[0].candidates.foreseen.len(), 2);
}

/// A fact by its names, as the oracle states it.
type ToldFact = (String, String, String);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The sets equal those that a scan of all facts finds by the paper's definition, compared by names.
    #[test]
    fn the_sets_equal_a_scan_of_all_facts(
        facts in prop::collection::btree_set((0_u8..9, 0_u8..3, 0_u8..9), 0..60),
        explicit in prop::collection::btree_set(0_u8..10, 0..5),
        implicit in prop::collection::btree_set(0_u8..10, 0..3),
        topics in prop::collection::btree_set(0_u8..10, 0..5),
    ) {
        let concept = |at: &u8| format!("node{at}");
        let relations = ["UsedFor", "NotUsedFor", "IsA"];
        let told: BTreeSet<ToldFact> = facts
            .iter()
            .map(|(head, relation, tail)| {
                (concept(head), relations[usize::from(*relation)].to_owned(), concept(tail))
            })
            .collect();
        let lines: String =
            told.iter().map(|(head, relation, tail)| format!("{head} {relation} {tail} 1\n")).collect();
        let graph = graph(&lines);
        let names = |set: &BTreeSet<u8>| set.iter().map(concept).collect::<Vec<String>>();
        let (queries, extended) = (names(&explicit), names(&topics));
        let mut demand = demand(
            &queries.iter().map(String::as_str).collect::<Vec<_>>(),
            &extended.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        demand.queries.implicit = names(&implicit)
            .into_iter()
            .map(|concept| ImplicitQuery { concept, because: vec![], weight: Score::new(0.1), similarity: None })
            .collect();

        let in_queries = |name: &String| queries.contains(name) || names(&implicit).contains(name);
        let in_topics = |name: &String| extended.contains(name);
        let mut expected = (BTreeSet::new(), BTreeSet::new());
        for (head, relation, tail) in &told {
            let k = (head.clone(), relation.clone(), tail.clone());
            if in_queries(head) && in_topics(tail) || in_topics(head) && in_queries(tail) {
                expected.0.insert(k);
            } else if [head, tail].into_iter().any(|end| in_queries(end) || in_topics(end)) {
                expected.1.insert(k);
            }
        }

        let demanded = DemandedConcepts::find(&demand, graph.view());
        let (foreseen, unforeseen) = retrieval_sets(&demanded, graph.view(), 100_000);
        let told = |facts: &[Fact]| {
            let name = |fact: &Fact| (
                graph.concept(fact.head).to_owned(),
                graph.relation(fact.relation).name.to_owned(),
                graph.concept(fact.tail).to_owned(),
            );
            let names: BTreeSet<ToldFact> = facts.iter().map(name).collect();
            assert_eq!(names.len(), facts.len(), "no fact twice");
            names
        };
        prop_assert_eq!(told(&foreseen), expected.0);
        prop_assert_eq!(told(&unforeseen), expected.1);
    }
}

/// The dialogue is about cats in its meaning, but not in its words.
#[test]
fn what_is_like_the_dialogue_in_meaning_comes_first() {
    let facts = "pet IsA dog 3\n pet IsA kitten 1\n pet IsA parrot 2";
    let graph = graph(facts);
    let meaning = meaning(&graph, |tail| if tail == "kitten" { [1.0, 0.0] } else { [0.0, 1.0] });

    let turn = directed(scene(&["u: My pet purrs"], &graph), [0.9, 0.1]);
    let (demand, config) = (demand(&["pet"], &[]), FactRetrievalConfig::default());
    let tails = |meaning: Option<&FactMeaning>, config: &FactRetrievalConfig| {
        let dialogue = meaning.and_then(|meaning| meaning.of(&turn, graph.view()));
        let likeness = Likeness::read(&turn, graph.view(), dialogue, &config.recency);
        let found = retrieve(&demand, &likeness, config).unforeseen;
        let tail = |evidence: &Evidence| evidence.fact.as_ref().unwrap().tail.clone();
        found.iter().map(tail).collect::<Vec<_>>()
    };
    assert_eq!(tails(None, &config), ["dog", "parrot", "kitten"]);
    assert_eq!(tails(Some(&meaning), &config), ["kitten", "dog", "parrot"]);
    // Facts that rank low by words are not compared in meaning.
    let narrow = |max_unforeseen| FactRetrievalConfig {
        max_by_meaning: 1,
        max_foreseen: 1,
        max_unforeseen,
        ..config.clone()
    };
    assert_eq!(tails(Some(&meaning), &narrow(2)), ["dog", "parrot"]);
    assert_eq!(tails(Some(&meaning), &narrow(3)), ["kitten", "dog", "parrot"]);
}
