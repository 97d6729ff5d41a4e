use super::*;

#[test]
fn a_fact_is_found_between_its_concepts() {
    let graph = Graph::from_facts([ImportedFact::new("coffee", "UsedFor", "wake up", 2.0)]);
    let (coffee, wake) = (graph.find("coffee").unwrap(), graph.find("wake up").unwrap());
    let facts: Vec<Fact> = graph.facts_between(coffee, wake).collect();
    assert_eq!(facts.len(), 1);
    assert_eq!(verbalise(&graph, &facts[0]), "coffee is used for waking up");
    assert_eq!(graph.facts_between(wake, coffee).count(), 0);
}
