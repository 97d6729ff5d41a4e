//! What the response before has said is not said again.

use turnstream_schemas::Column;

use super::*;

const RETURNS: &str =
    "You have 14 days. Sale items have 7 days. Bring the receipt. Boots are checked for wear.";

/// What the response says to the last of these lines, where the reader gives the sentences of a page
/// about returns these logits.
fn said(lines: &[&str], logits: &[f32]) -> String {
    let page = document("pages", "returns", RETURNS, 0.5);
    of(&decided(lines, vec![page], reading(&[logits], 0.8))).2.to_owned()
}

#[test]
fn a_sentence_that_was_just_said_is_left_out() {
    let logits = &[3.0, 2.5, -4.0, -4.0];
    let lines = ["u: how long do I have?", "s: You have 14 days.", "u: and a cheap lamp?"];
    assert_eq!(said(&lines, logits), "Sale items have 7 days.");
    assert_eq!(said(&lines[..1], logits), "You have 14 days. Sale items have 7 days.");
}

#[test]
fn the_best_of_the_rest_is_said_if_it_answers_by_itself() {
    let lines = ["u: how long do I have?", "s: You have 14 days.", "u: and a cheap lamp?"];
    assert_eq!(
        said(&lines, &[5.0, 2.0, -4.0, 1.9]),
        "Sale items have 7 days. Boots are checked for wear."
    );
    let nothing = &DecisionConfig::default().texts.en.decline;
    assert_eq!(said(&lines, &[5.0, 0.9, -4.0, 0.9]), *nothing);
}

#[test]
fn a_sentence_is_said_again_to_who_comes_back_to_it() {
    for again in [
        "u: 14 days?",
        "u: how long?",
        "u: what was that again, i closed the window",
        "u: how long is it?",
    ] {
        let lines = ["u: how long do I have?", "s: You have 14 days.", again];
        assert_eq!(said(&lines, &[5.0, -4.0, -4.0, -4.0]), "You have 14 days.", "{again}");
    }
    let lines =
        ["u: how long do I have?", "s: You have 14 days.", "u: is it new again after repairs?"];
    assert_ne!(said(&lines, &[5.0, -4.0, -4.0, -4.0]), "You have 14 days.");
}

#[test]
fn a_cell_that_was_just_said_is_left_out() {
    let desk = || {
        let cells = [("name", "Desk"), ("price", "£80"), ("weight", "20 kg"), ("colour", "oak")];
        let row = Some(table_row(&cells));
        Evidence { document: None, row, ..document("goods", "Desk", "", 0.5) }
    };
    let given = || reading(&[&[-5.0, 4.0, -5.0, 1.5]], 0.8);
    let lines =
        ["u: what does the desk cost?", "s: The Desk is £80.", "u: and what does it look like?"];
    assert_eq!(of(&decided(&lines, vec![desk()], given())).2, "For Desk: colour is oak.");
    let other = ["u: what does the lamp cost?", "s: The Lamp is £80.", "u: and the bigger thing?"];
    assert_eq!(
        of(&decided(&other, vec![desk()], given())).2,
        "For Desk: price is £80.",
        "another row's"
    );
}

#[test]
fn a_cell_that_measures_something_else_than_was_asked_for_is_not_said() {
    let desk = || {
        let row = table_row(&[("name", "Desk"), ("weight", "20 kg"), ("volume litres", "90")]);
        Evidence { document: None, row: Some(row), ..document("goods", "Desk", "", 0.5) }
    };
    let said = |utterance: &str, volume: f32| {
        let given = reading(&[&[-5.0, 4.0, volume]], 0.8);
        let turn = decided(&[utterance], vec![desk()], given);
        (of(&turn).0, of(&turn).2.to_owned())
    };
    let weight = (Action::Answer, "For Desk: weight is 20 kg.".to_owned());
    assert_eq!(said("u: how many grams is the desk?", -5.0), weight);
    assert_ne!(said("u: how many watts is the desk?", -5.0).0, Action::Answer);
    let volume = "For Desk: volume is 90 litres.".to_owned();
    assert_eq!(said("u: how many litres is the desk?", 2.0), (Action::Answer, volume));
}

#[test]
fn rows_that_fit_equally_well_are_asked_about_though_one_was_just_said() {
    let rows = || vec![row("Adult ticket", "£9"), row("Child ticket", "£5")];
    let lines =
        ["u: what does the adult ticket cost?", "s: The Adult ticket is £9.", "u: and for kids?"];
    let given = |precision| reading(&[&[-5.0, -5.0, 2.6], &[-5.0, -5.0, 2.2]], precision);
    assert_eq!(of(&decided(&lines, rows(), given(0.9))).2, "For Child ticket: price is £5.");
    assert_eq!(of(&decided(&lines, rows(), given(0.1))).0, Action::Ask);
}

#[test]
fn of_a_row_that_is_named_less_certainly_another_cell_is_said() {
    let mut desk = named(row("Desk", "£80"), 0.0, None);
    let of_row = desk.row.as_mut().expect("a row");
    of_row.columns.push(Column { name: "colour".into(), ..of_row.columns[2].clone() });
    of_row.columns[3].value = "oak".into();
    let cells = of_row.cells.as_mut().expect("cells");
    cells.columns.clear();
    cells.by_meaning = [0.1, 0.1, 0.6, 0.5].map(Score::new).into();
    let lines =
        ["u: what does the desk cost?", "s: The Desk is £80.", "u: and how does the desk look?"];
    let given = reading(&[&[-5.0, -5.0, 4.0, 2.5]], 0.1);
    assert_eq!(of(&decided(&lines, vec![desk], given)).2, "For Desk: colour is oak.");
}

#[test]
fn a_part_of_a_turn_is_not_answered_by_what_was_just_said_either() {
    let lines = |turn| ["u: how long do I have?", "s: You have 14 days.", turn];
    let several = lines("u: what about a cheap lamp? and do you want a slip with that?");
    let answer = said(&several, &[5.0, 2.0, 1.9, -4.0]);
    assert_eq!(answer, "Sale items have 7 days. Bring the receipt.");

    let desk = named(row("Desk", "£80"), 0.9, Some("may I bring it used?"));
    let page = document("pages", "returns", RETURNS, 0.5);
    let beside = lines("u: what is the desk, and may I bring it used?");
    let given = reading(&[&[5.0, -4.0, -4.0, -4.0]], 0.8);
    let turn = decided(&beside, vec![desk, page], given);
    let rest = &DecisionTexts::default().en.rest;
    assert_eq!(of(&turn).2, format!("For Desk: price is £80. {rest}"));
}
