use std::sync::Arc;

use timely::dataflow::operators::Concat;
use timely::dataflow::operators::vec::Map;

use super::*;
use crate::cross_revision::{CrossRevisionConfig, cross_revision};
use crate::fact_retrieval::{FactRetrievalConfig, fact_retrieval};
use crate::fact_selection::{FactSelectionConfig, fact_selection};
use crate::flow::{Grounded, Retrieved};
use crate::query_production::{QueryProductionConfig, query_production};
use crate::testing::{graph, resources, run_dataflow, scene};
use crate::topic_planning::{TopicPlanningConfig, topic_planning};

const FACTS: &str = "
    coffee UsedFor wake_up 2
    espresso UsedFor wake_up 2
    coffee AtLocation kitchen 1
    coffee Causes insomnia 1
    espresso AtLocation kitchen 1
    kitchen HasA stove 1
    coffee RelatedTo kitchen 1
";

/// The forms of query production, topic planning, cross revision, retrieval and selection; what
/// the turn is grounded in by them.
fn grounded(forms: [Form; 5]) -> Grounded {
    let graph = graph(FACTS);
    let turn = scene(&["u: Is coffee or espresso better?"], &graph);
    let (grounded, failed) = run_dataflow(vec![turn], move |turns| {
        let [queries, topics, revision, retrieval, selection] = forms;
        let means = resources(&graph);
        let config = QueryProductionConfig { form: queries, ..Default::default() };
        let queried = query_production(turns.clone(), config, &means);
        let config = TopicPlanningConfig { form: topics, ..Default::default() };
        let planned = topic_planning(turns, config, &means);
        let config = CrossRevisionConfig { form: revision, ..Default::default() };
        let (demanded, demand_faults) = cross_revision(queried, planned, config, &means);
        let config = FactRetrievalConfig { form: retrieval, ..Default::default() };
        let (retrieved, retrieval_faults) =
            fact_retrieval(demanded.map(Retrieved::from), config, &means);
        let config = FactSelectionConfig { form: selection, ..Default::default() };
        let (selected, selection_faults) = fact_selection(retrieved, config, &means);
        (selected, demand_faults.concat(retrieval_faults).concat(selection_faults))
    });
    assert!(failed.is_empty());
    let [grounded] = <[Grounded; 1]>::try_from(grounded).expect("one turn");
    assert!(grounded.turn.progress.degraded.is_empty(), "what is off did not fail");
    grounded
}

fn selected(grounded: &Grounded) -> Vec<&str> {
    let selected = grounded.evidence.iter().filter(|evidence| evidence.selected);
    selected.map(|evidence| evidence.text.as_str()).collect()
}

#[test]
fn each_stage_can_be_off() {
    use Form::{Lexical, Off};
    let all = grounded([Lexical; 5]);
    let (queries, topics) = (&all.demand.queries, &all.demand.topics);
    assert!(!queries.explicit.is_empty() && !topics.maintained.is_empty());
    assert!(!selected(&all).is_empty());

    let without = grounded([Off, Lexical, Lexical, Lexical, Lexical]);
    assert_eq!(without.demand.queries, Default::default());
    assert!(!without.demand.topics.maintained.is_empty());
    assert!(without.demand.thoughts.queries.is_empty());

    let without = grounded([Lexical, Off, Off, Lexical, Lexical]);
    assert_eq!(without.demand.topics, Default::default());
    assert!(!without.demand.queries.explicit.is_empty());

    let unrevised = grounded([Lexical, Lexical, Off, Lexical, Lexical]);
    assert!(unrevised.demand.revisions.is_empty());
    assert_ne!(unrevised.demand, all.demand, "the revision lifts what meets in a fact");
    assert!(!unrevised.demand.queries.explicit.is_empty());

    let without = grounded([Lexical, Lexical, Lexical, Off, Lexical]);
    assert!(without.evidence.is_empty() && !without.demand.queries.explicit.is_empty());

    // Without selection, the most relevant are taken as they stand.
    let without = grounded([Lexical, Lexical, Lexical, Lexical, Off]);
    assert!(without.evidence.len() > selected(&all).len() && !selected(&without).is_empty());
    assert!(selected(&without).len() > selected(&all).len(), "nothing is passed over");
}

#[test]
fn a_gate_can_be_held_open_and_shut() {
    use crate::gate::{GateConfig, gate};
    let run = |form| {
        let graph = graph(FACTS);
        let lines = [&["u: Is coffee or espresso better?"], &["u: Hello!"]];
        let turns = lines.map(|lines| Arc::new(crate::testing::context(lines))).to_vec();
        let (passed, _) = run_dataflow(turns, move |turns| {
            gate(turns, GateConfig { form, ..Default::default() }, &resources(&graph))
        });
        passed.iter().map(|turn: &crate::flow::Gated| turn.gate.retrieve).collect::<Vec<_>>()
    };
    assert_eq!(run(Form::Lexical), [true, false]);
    assert_eq!(run(Form::Always), [true, true]);
    assert_eq!(run(Form::Never), [false, false]);
}

#[test]
fn a_stage_says_which_forms_it_has() {
    let off = QueryProductionConfig { form: Form::Off, ..Default::default() };
    assert!(off.check().is_ok());
    let never = QueryProductionConfig { form: Form::Never, ..Default::default() };
    let message = never.check().unwrap_err().to_string();
    assert!(message.contains("query_production has no never form"), "{message}");
    let gate = crate::gate::GateConfig { form: Form::Off, ..Default::default() };
    assert!(gate.check().is_err());
}
