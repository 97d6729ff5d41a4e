use turnstream_ports::model::Generated;
use turnstream_schemas::Plan;

use super::*;
use crate::stage::CallConfig;
use crate::testing::{Answering, asking, document, graph, run_dataflow, scene, stage_context};

/// Passages and a row that retrieval scored.
fn candidates() -> Candidates {
    Candidates {
        passages: vec![
            document("documents", "dear", "Lamps are dear.", 0.9),
            document("documents", "old", "The house is old.", 0.5),
            document("documents", "weak", "Weak.", 0.01),
        ],
        rows: vec![document("goods", "row", "item = lamp", 0.2)],
        ..Candidates::default()
    }
}

fn turn(candidates: Candidates) -> TurnInFlight {
    let mut turn = scene(&["u: Hello", "s: Good day", "u: A lamp?"], &graph(""));
    turn.plan = Plan(vec!["goods".into(), "documents".into()]);
    TurnInFlight { candidates, ..turn }
}

/// The result of the stage for a turn: its evidence with relevance, by source, and the stages that degraded.
fn judged(
    config: &RelevanceConfig,
    candidates: Candidates,
    means: impl Fn(StageContext) -> StageContext + Send + Sync + 'static,
) -> (Vec<(String, f64)>, Vec<Stage>) {
    let config = config.clone();
    let (out, faults) = run_dataflow(vec![turn(candidates)], move |turns| {
        relevance(turns, config.clone(), &means(stage_context(&graph(""))))
    });
    assert!(faults.is_empty(), "{faults:?}");
    let TurnInFlight { progress, candidates, .. } = &out[0];
    let told = candidates.iter().map(|piece| (piece.id.0.clone(), piece.relevance.get()));
    (told.collect(), progress.without())
}

fn told(found: &[(&str, f64)]) -> Vec<(String, f64)> {
    found.iter().map(|(id, relevance)| ((*id).to_owned(), *relevance)).collect()
}

fn config(form: RelevanceForm) -> RelevanceConfig {
    let call = CallConfig { attempts: 1, ..CallConfig::default() };
    let prompted = PromptedConfig { call: call.clone(), ..PromptedConfig::default() };
    RelevanceConfig { form, max_judged: 3, call, prompted, ..RelevanceConfig::default() }
}

#[test]
fn the_unified_model_judges_each_piece_by_itself() {
    let of = |request: &UnifiedRequest| {
        let Task::Relevance { evidence, .. } = &request.task else { panic!("{request:?}") };
        UnifiedAnswer::Relevance(if evidence.text.contains("old") { 1.0 } else { 0.25 })
    };
    let model = Answering::new(of);
    let unified = Arc::clone(&model);
    let (found, degraded) = judged(&config(RelevanceForm::Learned), candidates(), move |means| {
        let means = asking(means, |_| Generated::default());
        StageContext { unified: Some(Arc::clone(&unified) as _), ..means }
    });
    assert_eq!(found, told(&[("old", 1.0), ("dear", 0.25), ("row", 0.25)]), "the weak one is out");
    assert!(degraded.is_empty());
    let asked = model.asked();
    assert_eq!(asked.len(), 3);
    for request in asked.iter() {
        let said: Vec<&str> = request.dialogue.iter().map(|exchange| &*exchange.user).collect();
        assert_eq!(said, ["Hello", "A lamp?"]);
        let Task::Relevance { plan, evidence } = &request.task else { panic!("{request:?}") };
        assert_eq!((&plan[..], evidence.kind), (&[SourceKind::Documents][..], evidence.kind));
        assert_eq!(evidence.kind == SourceKind::Documents, !evidence.text.contains("item"));
    }
}

#[test]
fn an_encoder_is_calibrated() {
    let of = |(query, text): &(String, String)| {
        assert_eq!(query, "A lamp?");
        if text.contains("dear") { 0.5 } else { 0.731_058_6 }
    };
    for (slope, offset, sure, unsure) in
        [(1.0, 0.0, 0.731_058_6, 0.5), (2.0, -1.0, 0.731_058_6, 0.268_941_4)]
    {
        let config = RelevanceConfig {
            calibration_slope: slope,
            calibration_offset: offset,
            max_judged: 2,
            ..config(RelevanceForm::Encoder)
        };
        let (found, _) = judged(&config, candidates(), move |means| {
            let means = asking(means, |_| Generated::default());
            StageContext { score: Some(Answering::new(of)), ..means }
        });
        for ((id, relevance), (expected, by_hand)) in
            found.iter().zip([("old", sure), ("dear", unsure)])
        {
            assert_eq!(id, expected);
            assert!((relevance - by_hand).abs() < 1e-5, "{id}: {relevance} is not {by_hand}");
        }
        assert_eq!(found.len(), 2);
    }
}

/// The result of the stage with a language model that gives this answer.
fn prompted_with(answer: &'static str) -> (Vec<(String, f64)>, Vec<Stage>) {
    judged(&config(RelevanceForm::Prompted), candidates(), move |means| {
        asking(means, move |request| {
            let prompt = &request.prompt;
            assert!(
                prompt.contains("- 1. Lamps are dear.\n- 2. The house is old.\n- 3. item"),
                "{prompt}"
            );
            Generated { text: answer.to_owned(), ..Generated::default() }
        })
    })
}

#[test]
fn a_language_model_judges_by_number() {
    let (found, degraded) = prompted_with(r#"{"relevance": [2, 7, 10]}"#);
    assert_eq!(found, told(&[("old", 0.7), ("dear", 0.2), ("row", 1.0)]));
    assert!(degraded.is_empty());
    // The model gives too few scores: the evidence keeps the relevance from retrieval.
    let (found, degraded) = prompted_with(r#"{"relevance": [2]}"#);
    assert_eq!(found, told(&[("dear", 0.9), ("old", 0.5), ("weak", 0.01), ("row", 0.2)]));
    assert_eq!(degraded, [Stage::Relevance]);
}

#[test]
fn everything_stays_when_off_or_with_nothing_to_judge() {
    let (found, _) = judged(&RelevanceConfig::default(), candidates(), |means| means);
    assert_eq!(found.len(), 4);
    let (found, degraded) =
        judged(&config(RelevanceForm::Prompted), Candidates::default(), |means| {
            asking(means, |_| panic!("nobody is asked"))
        });
    assert!(found.is_empty() && degraded.is_empty());
}
