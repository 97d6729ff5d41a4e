use std::sync::{Arc, Mutex};

use turnstream_ports::model::{GenerateRequest, Generated};
use turnstream_schemas::{FactStatement, FaultKind, Plan};

use super::*;
use crate::generation::GenerationForm;
use crate::integration::IntegrationForm;
use crate::prompted::PromptedConfig;
use crate::stage::CallConfig;
use crate::testing::{asking, document, graph, run_dataflow, scene, stage_context};

/// A passage; `selected` says whether the first draft was made from it.
fn passage(id: &str, text: &str, relevance: f64, selected: bool) -> Evidence {
    Evidence { selected, ..document("documents", id, text, relevance) }
}

fn grounded(evidence: Vec<Evidence>) -> TurnInFlight {
    let mut turn = scene(&["u: Tell me of the hotel."], &graph(""));
    turn.plan = Plan(vec!["documents".into()]);
    TurnInFlight { evidence, ..turn }
}

/// A turn with two selected passages, and two unselected ones: one of another source, one of the same.
fn hotel() -> TurnInFlight {
    let other = document("manuals", "manual", "The manual is long.", 0.8);
    grounded(vec![
        passage("lake", "The lake is cold.", 0.9, true),
        passage("wifi", "The hotel has wifi.", 0.5, true),
        other,
        passage("parking", "Parking costs ten pounds.", 0.4, false),
        passage("pool", "The pool is heated.", 0.3, false),
    ])
}

fn config(steps: u32, replaced: u32) -> RefiningConfig {
    let call = CallConfig { attempts: 1, ..CallConfig::default() };
    let prompted = PromptedConfig { call, ..PromptedConfig::default() };
    RefiningConfig {
        self_refinement: SelfRefinementConfig { steps, replaced, ..Default::default() },
        is_relevance_judged: true,
        integration: IntegrationConfig { form: IntegrationForm::Off, ..Default::default() },
        generation: GenerationConfig {
            form: GenerationForm::Prompted,
            prompted,
            ..Default::default()
        },
        consistency: ConsistencyConfig { form: ConsistencyForm::Lexical, ..Default::default() },
    }
}

/// The passages that a prompt shows, in its order.
fn shown(request: &GenerateRequest) -> Vec<String> {
    let behind = request.prompt.split("<<passages ").nth(1).unwrap_or_default();
    let lines = behind.lines().skip(1).take_while(|line| !line.starts_with("<<"));
    lines.map(|line| line.trim_start_matches("- ").to_owned()).collect()
}

/// The turn after refinement, and the rounds in which the model was asked. The model says the text given
/// for a round, or else the last passage that it is shown.
fn refined(
    turn: TurnInFlight,
    config: RefiningConfig,
    instead: &'static [(u32, &'static str)],
) -> (TurnInFlight, Vec<u32>) {
    let rounds = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&rounds);
    let (mut out, faults) = run_dataflow(vec![turn], move |turns| {
        let asked = Arc::clone(&asked);
        let means = asking(stage_context(&graph("")), move |request| {
            let round = request.origin.as_ref().expect("an origin").round;
            asked.lock().unwrap().push(round);
            let said = instead.iter().find(|(at, _)| *at == round).map(|(_, said)| *said);
            let last = shown(&request).pop().unwrap_or_default();
            Generated { text: said.map_or(last, str::to_owned), ..Generated::default() }
        });
        let config = config.clone();
        let wording =
            GenerationConfig { on_failure: OnFailure::Degrade, ..config.generation.clone() };
        let (drafted, generation_faults) = generation(turns, wording, &means);
        let (judged, consistency_faults) = consistency(drafted, config.consistency.clone(), &means);
        let (refined, faults) = self_refinement(judged, config, &means);
        (refined, faults.concat(generation_faults).concat(consistency_faults))
    });
    assert!(faults.is_empty(), "{faults:?}");
    let rounds = rounds.lock().unwrap().clone();
    (out.pop().expect("a turn"), rounds)
}

fn selected(turn: &TurnInFlight) -> Vec<&str> {
    let selected = turn.evidence.iter().filter(|evidence| evidence.selected);
    selected.map(|evidence| evidence.id.0.as_str()).collect()
}

fn ids(ids: &[EvidenceId]) -> Vec<&str> {
    ids.iter().map(|id| id.0.as_str()).collect()
}

#[test]
fn the_lowest_is_replaced_by_the_next_of_its_source() {
    let (turn, asked) = refined(hotel(), config(1, 1), &[]);
    assert_eq!(asked, [0, 1], "each round is a question of its own");
    assert_eq!(
        (&*turn.draft.text, selected(&turn)),
        ("The hotel has wifi.", vec!["parking", "wifi"])
    );
    let [round] = &turn.refinement.rounds[..] else { panic!("one round") };
    assert_eq!((round.round, &*round.text), (1, "The hotel has wifi."));
    assert_eq!((ids(&round.dropped), ids(&round.added)), (vec!["lake"], vec!["parking"]));
    let scores: Vec<_> = round
        .evidence
        .iter()
        .map(|it| (&*it.id.0, it.relevance.map(Score::get), it.consistency.get(), it.score.get()))
        .collect();
    assert_eq!(scores, [("lake", Some(0.9), 0.0, 0.0), ("wifi", Some(0.5), 1.0, 0.5)]);
    // Consistency in the response is that of the last draft only.
    let judged: Vec<_> = turn.evidence.iter().map(|it| it.consistency.is_some()).collect();
    assert_eq!(judged, [true, true, false, false, false]);
    assert!(turn.refinement.before.is_none());
}

#[test]
fn where_nobody_judged_relevance_it_counts_as_one() {
    let unjudged = RefiningConfig { is_relevance_judged: false, ..config(1, 1) };
    let mut failed = hotel();
    let fault = Fault::new(Stage::Relevance, FaultKind::Error, "told to");
    failed.progress.degraded.push(fault);
    for (turn, config) in [(hotel(), unjudged), (failed, config(1, 1))] {
        let (turn, _) = refined(turn, config, &[]);
        let wifi = &turn.refinement.rounds[0].evidence[1];
        assert_eq!((wifi.relevance, wifi.score.get()), (None, 1.0));
    }
}

#[test]
fn rounds_go_on_with_what_none_has_seen_until_the_steps_are_done() {
    let mut turn = hotel();
    turn.evidence[0].relevance = Score::new(1.0);
    let (turn, asked) = refined(turn, config(5, 1), &[]);
    // Parking and pool replace lake; then no evidence is unseen, and dropped pieces are not replaced.
    let rounds = &turn.refinement.rounds;
    let told: Vec<_> = rounds.iter().map(|it| (ids(&it.dropped), ids(&it.added))).collect();
    assert_eq!(
        told,
        [
            (vec!["lake"], vec!["parking"]),
            (vec!["parking"], vec!["pool"]),
            (vec!["pool"], Vec::new()),
        ]
    );
    assert_eq!((asked, selected(&turn)), (vec![0, 1, 2, 3], vec!["wifi"]), "the last one stays");
    let (turn, asked) = refined(hotel(), config(2, 1), &[]);
    assert_eq!((asked.len(), turn.refinement.rounds.len()), (3, 2));
}

#[test]
fn as_many_are_dropped_as_are_to_be_but_never_all() {
    let (turn, _) = refined(hotel(), config(1, 2), &[(0, "Nothing of that.")]);
    let round = &turn.refinement.rounds[0];
    // Of equals the later one is dropped first, and gets the first replacement.
    assert_eq!(ids(&round.dropped), ["wifi", "lake"]);
    assert_eq!(ids(&round.added), ["parking", "pool"]);
    assert_eq!(selected(&turn), ["pool", "parking"]);

    let mut nothing_unseen = hotel();
    nothing_unseen.evidence.truncate(3);
    let (turn, _) = refined(nothing_unseen, config(1, 2), &[(0, "Nothing of that.")]);
    assert_eq!(ids(&turn.refinement.rounds[0].dropped), ["wifi"]);
    assert_eq!(selected(&turn), ["lake"]);
    let (turn, asked) =
        refined(grounded(vec![passage("lake", "The lake is cold.", 0.9, true)]), config(3, 1), &[]);
    assert_eq!((asked, turn.refinement.rounds.len()), (vec![0], 0));
}

#[test]
fn what_is_good_enough_stays() {
    let mut good = config(3, 2);
    good.self_refinement.good_enough = 0.4;
    let (turn, _) = refined(hotel(), good.clone(), &[]);
    // Lake and later its replacement are dropped, but never wifi.
    assert!(turn.refinement.rounds.iter().all(|round| round.dropped.len() == 1));
    let (turn, asked) = refined(hotel(), good, &[(0, "The lake is cold. The hotel has wifi.")]);
    assert_eq!((asked, turn.refinement.rounds.len()), (vec![0], 0), "nothing is dropped");
}

#[test]
fn a_fact_comes_in_for_a_fact_whatever_its_collection() {
    let fact = |id: &str, source: &str, selected| {
        let fact = FactStatement {
            head: id.to_owned(),
            relation: "IsA".to_owned(),
            tail: "thing".to_owned(),
            weight: 1.0,
            ..FactStatement::default()
        };
        let source = source.into();
        Evidence { fact: Some(fact), source, document: None, ..passage(id, id, 0.5, selected) }
    };
    let turn = grounded(vec![
        fact("old", "conceptnet", true),
        passage("pool", "The pool is heated.", 0.3, true),
        fact("new", "own", false),
    ]);
    assert_eq!(next_unseen(&turn, 0, &[]), Some(2));
    assert_eq!(next_unseen(&turn, 0, &[2]), None);
    assert_eq!(next_unseen(&turn, 1, &[]), None);
}

#[test]
fn a_round_that_fails_is_taken_back() {
    let (turn, asked) = refined(hotel(), config(3, 1), &[(2, "")]);
    assert_eq!(asked, [0, 1, 2, 2], "what says nothing is asked for once more");
    // The draft of the first round, with its evidence, is the response.
    assert_eq!(
        (&*turn.draft.text, selected(&turn)),
        ("The hotel has wifi.", vec!["parking", "wifi"])
    );
    assert_eq!(turn.refinement.rounds.len(), 1);
    assert_eq!(turn.progress.without(), [Stage::SelfRefinement]);
    assert!(turn.evidence[0].consistency.is_some());
}

#[test]
fn null_plans_failed_drafts_and_no_steps_are_left_alone() {
    let mut null = hotel();
    null.plan = Plan::default();
    let unjudged = RefiningConfig { consistency: ConsistencyConfig::default(), ..config(3, 1) };
    for (turn, config, instead, questions) in [
        (null, config(3, 1), &[][..], 1),
        (hotel(), config(0, 1), &[], 1),
        (hotel(), unjudged, &[], 1),
        // The model says nothing, twice: generation fails.
        (hotel(), config(3, 1), &[(0, "")], 2),
    ] {
        let (turn, asked) = refined(turn, config, instead);
        assert_eq!((asked, turn.refinement.rounds.len()), (vec![0; questions], 0));
        assert!(!turn.progress.is_without(Stage::SelfRefinement));
    }
}

#[test]
fn what_comes_in_is_weighed_and_has_to_fit() {
    let mut weighing = config(1, 1);
    weighing.integration = IntegrationConfig::default();
    let mut turn = hotel();
    turn.evidence[..2].iter_mut().for_each(|it| it.attention = Some(Score::new(0.5)));
    let (turn, _) = refined(turn, weighing.clone(), &[(0, "The hotel has wifi.")]);
    let shares: f64 = turn.evidence.iter().filter_map(|it| it.attention).map(Score::get).sum();
    assert!((shares - 1.0).abs() < 1e-6, "attention is shared by what is there now: {shares}");
    let weighed: Vec<bool> = turn.evidence.iter().map(|it| it.attention.is_some()).collect();
    assert_eq!(weighed, [true, true, false, false, false]);
    // There is room for one of them.
    weighing.integration.max_tokens = 7;
    let (turn, _) = refined(hotel(), weighing, &[(0, "The hotel has wifi.")]);
    assert_eq!(selected(&turn).len(), 1, "{:?}", selected(&turn));
}
