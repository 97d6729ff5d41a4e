use std::collections::BTreeSet;
use std::sync::Arc;

use turnstream_schemas::RequestId;

use super::*;
use crate::flow::Embedded;
use crate::testing::{Counting, CountingElsewhere, graph, run_dataflow, scene, stage_context};

fn config() -> EmbeddingConfig {
    let call = CallConfig { attempts: 1, ..CallConfig::default() };
    EmbeddingConfig { utterances: 2, call, ..EmbeddingConfig::default() }
}

/// The vectors that the operator makes of a dialogue: in place, and through the port.
fn embedded(lines: &[&str]) -> [TurnInFlight; 2] {
    let graph = graph("sea HasA fish 1");
    let turn = scene(lines, &graph);
    [false, true].map(|asked| {
        let (graph, turn) = (Arc::clone(&graph), turn.clone());
        let (mut values, faults): (Vec<TurnInFlight>, _) = run_dataflow(vec![turn], move |turns| {
            let encoder: Option<Arc<dyn Encoder>> = (!asked).then(|| Arc::new(Counting) as _);
            let embed = asked.then(|| Arc::new(CountingElsewhere::default()) as _);
            let context = StageContext { embed, encoder, ..stage_context(&graph) };
            // As `history` does when it sends a turn into the flow.
            context.runner.awaited.ask(RequestId { partition: 0, generation: 1, offset: 0 });
            embedding(turns, config(), &context)
        });
        assert!(faults.is_empty());
        values.pop().expect("a turn")
    })
}

#[test]
fn a_dialogue_is_the_weighted_sum_of_its_latest_utterances() {
    // The first utterance is beyond the bound; the system's utterance counts 0.8 × 0.5.
    for turn in embedded(&["u: sea sea sea", "s: bread", "u: sea"]) {
        let length = (1.0_f32 + 0.4 * 0.4).sqrt();
        let expected = [1.0 / length, 0.4 / length];
        let Embedded { dialogue: found, utterance } = turn.embedding.expect("vectors");
        assert_eq!(utterance.as_deref(), Some([1.0, 0.0].as_slice()), "the current one alone");
        assert!(
            found.iter().zip(expected).all(|(found, it)| (found - it).abs() < 1e-6),
            "{found:?}"
        );
    }
}

#[test]
fn what_says_nothing_has_no_vector() {
    for turn in embedded(&["u: hello"]) {
        assert_eq!(turn.embedding, None);
        assert!(turn.progress.degraded.is_empty());
    }
}

#[test]
fn a_turn_goes_on_without_an_encoder_that_fails() {
    for turn in embedded(&["u: an error at sea"]) {
        assert_eq!(turn.embedding, None);
        assert_eq!(turn.progress.without(), [Stage::Embedding]);
    }
}

#[test]
fn a_question_has_a_share_of_the_turns_before_it_that_say_something() {
    let graph = graph("sea HasA fish 1");
    let lines = ["u: bread", "s: the sea", "u: sea"];
    for (lines, question) in [
        (&lines[..], Some([1.5, 0.5])),
        (&["u: bread", "s: no sea", "u: sea"], Some([1.0, 0.5])),
        (&["u: sea"], Some([1.0, 0.0])),
        (&["u: hi there", "s: bread", "u: sea"], Some([1.0, 0.0])),
        (&["u: bread", "s: sea", "u: thanks a lot", "s: bread", "u: sea"], Some([1.5, 0.5])),
        // The reader knows English.
        (&["u: 海"], None),
    ] {
        let turn = scene(lines, &graph);
        let graph = Arc::clone(&graph);
        let (mut values, faults): (Vec<TurnInFlight>, _) = run_dataflow(vec![turn], move |turns| {
            let questions = Some(Arc::new(CountingElsewhere::default()) as _);
            let encoder: Option<Arc<dyn Encoder>> = Some(Arc::new(Counting));
            let empty = BTreeSet::from(["no sea".to_owned()]);
            let response_texts = Arc::new(ResponseTexts { empty, ..ResponseTexts::default() });
            let context =
                StageContext { questions, encoder, response_texts, ..stage_context(&graph) };
            context.runner.awaited.ask(RequestId { partition: 0, generation: 1, offset: 0 });
            embedding(turns, config(), &context)
        });
        assert!(faults.is_empty());
        let turn = values.pop().expect("a turn");
        let length = |it: [f32; 2]| (it[0] * it[0] + it[1] * it[1]).sqrt();
        let expected = question.map(|it| it.map(|number| number / length(it)).to_vec());
        let found = turn.question.map(|it| it.to_vec());
        let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6;
        let fits = match (&found, &expected) {
            (Some(found), Some(expected)) => found.iter().zip(expected).all(close),
            (found, expected) => found.is_none() && expected.is_none(),
        };
        assert!(fits, "{lines:?}: {found:?} is not {expected:?}");
        assert_eq!(turn.utterance.is_some(), found.is_some());
        assert!(
            turn.utterance.is_none_or(|it| it.to_vec() == [1.0, 0.0]),
            "it is of the utterance"
        );
    }
}
