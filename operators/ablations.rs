//! Tests stages that are off, and gates that are always open or always shut (DCRAG's ablations,
//! RAGate's controls).

use std::sync::Arc;

use timely::dataflow::operators::Concat;
use turnstream_schemas::Stage;

use crate::cross_revision::{CrossRevisionConfig, cross_revision};
use crate::fact_retrieval::{FactRetrievalConfig, FactRetrievalForm, fact_retrieval};
use crate::fact_selection::{FactSelectionConfig, fact_selection};
use crate::flow::TurnInFlight;
use crate::gate::{GateConfig, GateForm, gate};
use crate::query_production::{QueryProductionConfig, query_production};
use crate::stage_form::StageForm;
use crate::testing::{graph, run_dataflow, scene, stage_context};
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

/// Returns a turn with its evidence; these stages are off and the others lexical.
fn grounded(off: &'static [Stage]) -> TurnInFlight {
    let graph = graph(FACTS);
    let turn = scene(&["u: Is coffee or espresso better?"], &graph);
    let (grounded, failed) = run_dataflow(vec![turn], move |turns| {
        let context = stage_context(&graph);
        let mut queries = QueryProductionConfig::default();
        let mut topics = TopicPlanningConfig::default();
        let mut revision = CrossRevisionConfig::default();
        let mut retrieval = FactRetrievalConfig::default();
        let mut selection = FactSelectionConfig::default();
        for stage in off {
            match stage {
                Stage::QueryProduction => queries.form = StageForm::Off,
                Stage::TopicPlanning => topics.form = StageForm::Off,
                Stage::CrossRevision => revision.form = StageForm::Off,
                Stage::FactRetrieval => retrieval.form = FactRetrievalForm::Off,
                Stage::FactSelection => selection.form = StageForm::Off,
                other => panic!("{other} cannot be off"),
            }
        }
        let queried = query_production(turns.clone(), queries, &context);
        let planned = topic_planning(turns, topics, &context);
        let (demanded, demand_faults) = cross_revision(queried, planned, revision, &context);
        let (retrieved, retrieval_faults) = fact_retrieval(demanded, retrieval, &context);
        let (selected, selection_faults) = fact_selection(retrieved, selection, &context);
        (selected, demand_faults.concat(retrieval_faults).concat(selection_faults))
    });
    assert!(failed.is_empty());
    let [grounded] = <[TurnInFlight; 1]>::try_from(grounded).expect("one turn");
    assert!(grounded.progress.degraded.is_empty(), "what is off did not fail");
    grounded
}

fn selected(grounded: &TurnInFlight) -> Vec<&str> {
    let selected = grounded.evidence.iter().filter(|evidence| evidence.selected);
    selected.map(|evidence| evidence.text.as_str()).collect()
}

#[test]
fn each_stage_can_be_off() {
    let all = grounded(&[]);
    let (queries, topics) = (&all.demand.queries, &all.demand.topics);
    assert!(!queries.explicit.is_empty() && !topics.maintained.is_empty());
    assert!(!selected(&all).is_empty());

    let without = grounded(&[Stage::QueryProduction]);
    assert_eq!(without.demand.queries, Default::default());
    assert!(!without.demand.topics.maintained.is_empty());
    assert!(without.demand.thoughts.queries.is_empty());

    let without = grounded(&[Stage::TopicPlanning, Stage::CrossRevision]);
    assert_eq!(without.demand.topics, Default::default());
    assert!(!without.demand.queries.explicit.is_empty());

    let unrevised = grounded(&[Stage::CrossRevision]);
    assert!(unrevised.demand.revisions.is_empty());
    assert_ne!(unrevised.demand, all.demand, "the revision lifts what meets in a fact");
    assert!(!unrevised.demand.queries.explicit.is_empty());

    let without = grounded(&[Stage::FactRetrieval]);
    assert!(without.evidence.is_empty() && !without.demand.queries.explicit.is_empty());

    // Without selection, the most relevant facts are taken.
    let without = grounded(&[Stage::FactSelection]);
    assert!(without.evidence.len() > selected(&all).len() && !selected(&without).is_empty());
    assert!(selected(&without).len() > selected(&all).len(), "nothing is passed over");
}

#[test]
fn a_gate_can_be_held_open_and_shut() {
    let run = |form| {
        let graph = graph(FACTS);
        let lines = [&["u: Is coffee or espresso better?"], &["u: Hello!"]];
        let turns = lines.map(|lines| Arc::new(crate::testing::context(lines))).to_vec();
        let (passed, _) = run_dataflow(turns, move |turns| {
            gate(turns, GateConfig { form, ..Default::default() }, &stage_context(&graph))
        });
        passed.iter().map(|turn: &TurnInFlight| turn.gate.retrieve).collect::<Vec<_>>()
    };
    assert_eq!(run(GateForm::Lexical), [true, false]);
    assert_eq!(run(GateForm::Always), [true, true]);
    assert_eq!(run(GateForm::Never), [false, false]);
}
