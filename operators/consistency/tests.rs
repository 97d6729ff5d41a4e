use turnstream_ports::model::Generated;
use turnstream_schemas::Plan;

use super::*;
use crate::flow::{Draft, TurnInFlight};
use crate::stage::CallConfig;
use crate::testing::{asking, document, graph, run_dataflow, scene, stage_context};

fn passage(id: &str, text: &str, selected: bool) -> Evidence {
    Evidence { selected, ..document("documents", id, text, 0.5) }
}

/// A response that was made from two of three passages.
fn drafted(text: &str) -> TurnInFlight {
    let mut turn = scene(&["u: Hello", "s: Good day", "u: A room?"], &graph(""));
    turn.plan = Plan(vec!["documents".into()]);
    let evidence = vec![
        passage("free", "The room is free.", true),
        passage("old", "The house is old.", true),
        passage("far", "The lake is far.", false),
    ];
    let draft = Draft { text: text.to_owned(), ..Draft::default() };
    TurnInFlight { evidence, draft, ..turn }
}

/// The result of the stage for a turn: the consistency of each piece, and the stages that degraded.
fn judged(
    config: &ConsistencyConfig,
    turn: TurnInFlight,
    means: impl Fn(StageContext) -> StageContext + Send + Sync + 'static,
) -> (Vec<Option<f64>>, Vec<Stage>) {
    let config = config.clone();
    let (out, faults) = run_dataflow(vec![turn], move |turns| {
        consistency(turns, config.clone(), &means(stage_context(&graph(""))))
    });
    assert!(faults.is_empty(), "{faults:?}");
    let scores = out[0].evidence.iter().map(|it| it.consistency.map(Score::get));
    (scores.collect(), out[0].progress.without())
}

fn config(form: ConsistencyForm, on_failure: OnFailure) -> ConsistencyConfig {
    let call = CallConfig { attempts: 1, ..CallConfig::default() };
    let prompted = PromptedConfig { call, ..PromptedConfig::default() };
    ConsistencyConfig { form, on_failure, prompted, ..ConsistencyConfig::default() }
}

const TEXT: &str = "The room is free.";

#[test]
fn selected_evidence_is_held_against_the_response() {
    let lexical = config(ConsistencyForm::Lexical, OnFailure::Degrade);
    let (found, degraded) = judged(&lexical, drafted(TEXT), |means| means);
    assert_eq!((found, degraded), (vec![Some(1.0), Some(0.0), None], Vec::new()));
    let first = ConsistencyConfig { max_judged: 1, ..lexical };
    let (found, _) = judged(&first, drafted(TEXT), |means| means);
    assert_eq!(found, [Some(1.0), None, None]);
}

/// The result of the stage with a language model that gives this answer.
fn prompted_with(answer: &'static str, on_failure: OnFailure) -> (Vec<Option<f64>>, Vec<Stage>) {
    judged(&config(ConsistencyForm::Prompted, on_failure), drafted(TEXT), move |means| {
        asking(means, move |request| {
            let prompt = &request.prompt;
            assert!(prompt.contains("- 1. The room is free.\n- 2. The house is old."), "{prompt}");
            let response = prompt.split("<<response ").nth(1).expect("a fence");
            assert_eq!(response.lines().nth(1), Some("- The room is free."));
            assert!(!prompt.contains("lake"), "what is not selected is not shown");
            Generated { text: answer.to_owned(), ..Generated::default() }
        })
    })
}

#[test]
fn a_language_model_judges_by_number() {
    let (found, degraded) = prompted_with(r#"{"consistency": [9, 2]}"#, OnFailure::Degrade);
    assert_eq!((found, degraded), (vec![Some(0.9), Some(0.2), None], Vec::new()));
    // The model gives too few scores: there is no consistency, or the lexical form decides.
    for (on_failure, expected) in [
        (OnFailure::Degrade, [None, None, None]),
        (OnFailure::Lexical, [Some(1.0), Some(0.0), None]),
    ] {
        let (found, degraded) = prompted_with(r#"{"consistency": [9]}"#, on_failure);
        assert_eq!((found, degraded), (expected.to_vec(), vec![Stage::Consistency]));
    }
}

#[test]
fn no_model_is_asked_when_off_or_with_nothing_to_judge() {
    let nobody = |means| asking(means, |_| panic!("nobody is asked"));
    let (found, _) = judged(&ConsistencyConfig::default(), drafted(TEXT), nobody);
    assert_eq!(found, [None; 3]);
    let mut null = drafted(TEXT);
    null.evidence.clear();
    let mut failed = drafted(TEXT);
    let fault = Fault::new(Stage::Generation, FaultKind::Error, "told to");
    failed.progress.degraded.push(fault);
    for turn in [null, failed, drafted(" ")] {
        let config = config(ConsistencyForm::Prompted, OnFailure::Degrade);
        let (found, degraded) = judged(&config, turn, nobody);
        assert!(found.iter().all(Option::is_none));
        assert!(!degraded.contains(&Stage::Consistency), "{degraded:?}");
    }
}
