//! Asks about the best places where the reader is not sure, and answers from the one that is chosen.

use super::beside::heavy_desk;
use super::*;

fn titled() -> Vec<Evidence> {
    let mut pages = pages();
    for (page, title) in pages.iter_mut().zip(["Visit: Opening hours", "Shop: Returns?"]) {
        page.document.as_mut().expect("a passage").title = title.to_owned();
    }
    pages.push(row("Oslo lamp", "£49"));
    pages
}

/// A reading of the opening hours, the row and the returns, as they are relevant: the returns read best,
/// then the row.
fn unsure(precision: f32) -> Reading {
    reading(&[&[-2.0], &[-9.0, -9.0, -1.0], &[0.5, 0.2, -3.0]], precision)
}

const ASKS: &str = "Do you mean “Returns”, “Oslo lamp” or “Visit: Opening hours”?";

#[test]
fn an_unsure_response_asks_which_place_is_meant() {
    let turn = decided(&["u: can i have it back"], titled(), unsure(0.3));
    assert_eq!(of(&turn), (Action::Ask, None, ASKS));
    assert!(turn.evidence.iter().all(|it| !it.selected), "nothing of it is said");
    let declines = |evidence, precision| {
        of(&decided(&["u: can i have it back"], evidence, unsure(precision))).0
    };
    assert_eq!(declines(titled(), 0.29), Action::Decline, "most such questions named no answer");
    let mut untitled = titled();
    untitled.truncate(2);
    untitled.iter_mut().for_each(|it| it.document.as_mut().expect("a passage").title.clear());
    let turn = decided(&["u: can i have it back"], untitled, reading(&[&[-2.0], &[0.5]], 0.4));
    assert_eq!(of(&turn).0, Action::Decline, "they have no names");
}

#[test]
fn the_question_is_answered_from_the_chosen_place() {
    let asks = format!("s: {ASKS}");
    let chosen = |choice: &str| {
        let lines = ["u: can i have it back", &asks, &format!("u: {choice}")];
        let turn = TurnInFlight { evidence: titled(), ..scene(&lines, &graph("sea HasA fish 1")) };
        let texts = DecisionTexts::default().response_texts();
        let context = Arc::new(turn.context.as_ref().clone().with_choice(&texts));
        let turn = TurnInFlight { context, ..turn };
        decided_turn(&DecisionConfig::default(), turn, |request| {
            let [section] = &request.sections[..] else { panic!("{request:?}") };
            let scores: &[f32] = match &*section.title {
                "Shop: Returns?" => &[0.5, 0.2, -3.0],
                "Oslo lamp" => &[-9.0, -9.0, -1.0],
                _ => &[-2.0],
            };
            reading(&[scores], 0.0)
        })
    };
    let (turn, asked) = chosen("yes please");
    let answer = (Action::Answer, None, "You have 14 days. Sale items have 7 days.");
    assert_eq!(of(&turn), answer);
    assert_eq!(asked[0].question.utterance, "can i have it back");
    let decided = turn.decision.expect("a decision");
    assert_eq!((decided.pieces, decided.precision), (1, None), "it was not measured");
    assert_eq!(turn.evidence[0].document.as_ref().expect("a passage").document, "returns");
    let (turn, _) = chosen("the third");
    assert_eq!(of(&turn), (Action::Answer, None, "We open at nine."));
    let (turn, _) = chosen("Oslo lamp");
    assert_eq!(of(&turn), (Action::Answer, None, "For Oslo lamp: price is £49."));
    let (turn, _) = chosen("neither");
    assert_eq!(of(&turn).0, Action::Decline);
}

/// A desk that the turn names, with cells whose names are as near to the turn.
fn named_desk(cosine: f64) -> Evidence {
    let mut desk = named(heavy_desk(), 0.0, None);
    let cells = desk.row.as_mut().and_then(|row| row.cells.as_mut()).expect("cells");
    cells.columns.clear();
    cells.by_meaning = [0.1, 0.1, cosine, cosine].map(Score::new).into();
    desk
}

#[test]
fn an_unsure_cell_of_a_row_that_the_turn_names_is_asked_about() {
    let decided = |cosine: f64, lines: &[&str]| {
        let evidence = vec![row("Oslo lamp", "£49"), named_desk(cosine)];
        decided(lines, evidence, reading(&[&[-5.0; 3], &[-5.0, -5.0, -1.5, -1.0]], 0.1))
    };
    let asks = "Do you mean “Desk: weight” or “Desk: price”?";
    let turn = decided(0.3, &["u: can i lift the desk"]);
    assert_eq!(of(&turn), (Action::Ask, None, asks));
    let precision = turn.decision.and_then(|it| it.precision).map_or(0.0, Score::get);
    assert!((0.2..0.3).contains(&precision), "{precision} is that of the best cell");
    let declined = decided(0.15, &["u: can i lift the desk"]);
    assert_eq!(of(&declined).0, Action::Decline, "most such questions named no answer");

    let lines = ["u: can i lift the desk", &format!("s: {asks}"), "u: the first one"];
    let turn = scene(&lines, &graph("sea HasA fish 1"));
    let texts = DecisionTexts::default().response_texts();
    let context = Arc::new(turn.context.as_ref().clone().with_choice(&texts));
    let reconstructed = context.reconstructed.as_ref().expect("a choice");
    assert_eq!(reconstructed.query, "can i lift the desk (Desk: weight)");
    let turn = TurnInFlight { context, evidence: vec![named_desk(0.3)], ..turn };
    let (turn, _) = decided_turn(&DecisionConfig::default(), turn, |_| reading(&[&[-5.0; 4]], 0.0));
    assert_eq!(of(&turn), (Action::Answer, None, "For Desk: weight is 30 kg."));
}

#[test]
fn rows_are_asked_about_where_no_cell_of_the_row_before_is_likely() {
    let evidence = vec![row("Oslo lamp", "£49"), row("Oslo desk", "£80"), named_desk(0.1)];
    let scores: [&[f32]; 3] = [&[-5.0, -5.0, 2.0], &[-5.0, -5.0, 1.8], &[-5.0; 4]];
    let turn = decided(&["u: the desk's lamp?"], evidence, reading(&scores, 0.3));
    assert_eq!(of(&turn), (Action::Ask, None, "Do you mean Oslo lamp or Oslo desk?"));
}

#[test]
fn a_long_title_is_asked_about_without_its_page() {
    let mut evidence = titled();
    let long = "Opening hours, getting here and house rules: Parking and unloading";
    evidence[0].document.as_mut().expect("a passage").title = long.to_owned();
    let turn = decided(&["u: can i have it back"], evidence, unsure(0.3));
    let asks = "Do you mean “Returns”, “Oslo lamp” or “Parking and unloading”?";
    assert_eq!(of(&turn), (Action::Ask, None, asks));
}

#[test]
fn who_was_asked_twice_is_handed_over() {
    let asks = format!("s: {ASKS}");
    let lines = ["u: can i have it back", &asks, "u: what if it broke", &asks, "u: my lamp broke"];
    let turn = decided(&lines, titled(), unsure(0.3));
    assert_eq!(of(&turn).1, Some(HandOffReason::NothingFound));
}
