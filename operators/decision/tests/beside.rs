//! What a turn asks beside a row that it names.

use turnstream_schemas::Column;

use super::*;

#[test]
fn what_a_turn_asks_beside_cells_is_read_in_pages() {
    let lines = ["u: the desk's price, and can I return it?"];
    let desk =
        || [pages(), vec![named(row("Desk", "£80"), 0.9, Some("can I return it?"))]].concat();
    let given = |precision| reading(&[&[-2.0], &[3.0, 0.0, -1.0]], precision);
    let (turn, asked) = decided_with(&DecisionConfig::default(), &lines, desk(), given(0.8));
    let said = "For Desk: price is £80. You have 14 days.";
    assert_eq!(of(&turn), (Action::Answer, None, said));
    let ids: Vec<&str> = turn.evidence[..2].iter().map(|it| &*it.id.0).collect();
    assert_eq!(
        (ids, turn.decision.as_ref().map(|it| it.pieces)),
        (vec!["Desk", "returns"], Some(2))
    );
    let [whole, ReadRequest { question, sections }, of_row] = &asked[..] else {
        panic!("{asked:?}")
    };
    assert_eq!((&of_row.question, of_row.sections.len()), (question, 1), "the row");
    assert_eq!(whole.question.utterance, "the desk's price, and can I return it?");
    assert_eq!((&*question.utterance, sections.len()), ("can I return it?", 2));
    assert_eq!(question.user_before.as_deref(), Some("the desk's price, and "));
    let (turn, _) = decided_with(&DecisionConfig::default(), &lines, desk(), given(0.3));
    assert_eq!(of(&turn).2, said, "half as sure suffices beside a cell");
    let (turn, _) = decided_with(&DecisionConfig::default(), &lines, desk(), given(0.29));
    let said = format!("For Desk: price is £80. {}", DecisionTexts::default().en.rest);
    assert_eq!(of(&turn), (Action::Answer, None, &*said), "nothing answers the rest");
}

#[test]
fn what_a_turn_asks_beside_rows_is_read_in_pages() {
    let lines = ["u: your cheapest, and can I return it?"];
    let stool =
        || [pages(), vec![cheapest(row("Stool", "£20"), Some("can I return it?"))]].concat();
    let given = |precision| reading(&[&[-2.0], &[3.0, 0.0, -1.0]], precision);
    let (turn, asked) = decided_with(&DecisionConfig::default(), &lines, stool(), given(0.8));
    let said = "For Stool: price is £20. You have 14 days.";
    assert_eq!(of(&turn), (Action::Answer, None, said));
    let [_, ReadRequest { question, .. }] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(&*question.utterance, "can I return it?");
    let (turn, _) = decided_with(&DecisionConfig::default(), &lines, stool(), given(0.2));
    let said = format!("For Stool: price is £20. {}", DecisionTexts::default().en.rest);
    assert_eq!(of(&turn), (Action::Answer, None, &*said), "nothing answers the rest");
}

#[test]
fn a_chinese_answer_has_no_space_before_the_rest() {
    let rest = Some("能退吗");
    let named = named(row("木凳", "20元"), 0.9, rest);
    let turn = decided(&["u: 木凳多少钱，能退吗"], vec![named], reading(&[], 0.1));
    let said = format!("木凳：price是20元。{}", DecisionTexts::default().zh.rest);
    assert_eq!(of(&turn), (Action::Answer, None, &*said));
}

/// Decides about a turn that asks for a row, which only the reader can tell, and for something else: the
/// best logit of a cell, and how sure the reader is of the rest and of the whole.
fn perhaps(cell: f32, rest: f32, whole: f32) -> (TurnInFlight, Vec<ReadRequest>) {
    let lines = ["u: the desk, what do you want for it, and can I return it?"];
    let mut desk = named(row("Desk", "£80"), 0.0, Some("can I return it?"));
    let cells = desk.row.as_mut().and_then(|row| row.cells.as_mut()).expect("cells");
    cells.by_meaning = [0.1, 0.1, 0.6].map(Score::new).into();
    let turn = scene(&lines, &graph("sea HasA fish 1"));
    let turn = TurnInFlight { evidence: [pages(), vec![desk]].concat(), ..turn };
    decided_turn(&DecisionConfig::default(), turn, move |request| {
        match &*request.question.utterance {
            "can I return it?" => reading(&[&[-2.0], &[3.0, 0.0, -1.0]], rest),
            of if of.starts_with("the desk") && of.ends_with("and ") => {
                reading(&[&[-5.0, -5.0, cell]], 0.1)
            }
            _ => reading(&[&[3.0], &[-2.0, -2.0, -2.0], &[-5.0, -5.0, -5.0]], whole),
        }
    })
}

/// A desk with its weight.
pub(super) fn heavy_desk() -> Evidence {
    let mut desk = row("Desk", "£80");
    let columns = &mut desk.row.as_mut().expect("a row").columns;
    columns.push(Column { name: "weight".into(), value: "30 kg".into() });
    desk
}

#[test]
fn the_rest_may_ask_for_another_cell_of_the_row() {
    let decided = |cell: f32, names: f64| {
        let lines = ["u: the desk's price, and can two of us lift it?"];
        let mut desk = named(heavy_desk(), names, Some("can two of us lift it?"));
        let cells = desk.row.as_mut().and_then(|row| row.cells.as_mut()).expect("cells");
        cells.by_meaning = [0.1, 0.1, 0.8, 0.6].map(Score::new).into();
        let turn = scene(&lines, &graph("sea HasA fish 1"));
        let turn = TurnInFlight { evidence: [pages(), vec![desk]].concat(), ..turn };
        let (turn, _) = decided_turn(&DecisionConfig::default(), turn, move |request| {
            let is_row = request.sections.len() == 1;
            match (&*request.question.utterance, is_row) {
                ("can two of us lift it?", true) => reading(&[&[-5.0, -5.0, 3.0, cell]], 0.1),
                ("can two of us lift it?", false) => reading(&[&[-2.0], &[3.0, 0.0, -1.0]], 0.9),
                (_, true) => reading(&[&[-5.0, -5.0, 3.0, -5.0]], 0.1),
                _ => reading(&[&[-2.0], &[-2.0, -2.0, -2.0], &[-5.0; 4]], 0.1),
            }
        });
        of(&turn).2.to_owned()
    };
    // The price is told by its name, and then by the reader.
    for names in [0.9, 0.0] {
        assert_eq!(decided(2.0, names), "For Desk: price is £80 and weight is 30 kg.", "{names}");
        assert_eq!(decided(-5.0, names), "For Desk: price is £80. You have 14 days.", "{names}");
    }
}

#[test]
fn the_row_and_the_page_are_read_each_by_itself() {
    let (turn, asked) = perhaps(0.9, 0.3, 0.1);
    let said = "For Desk: price is £80. You have 14 days.";
    assert_eq!(of(&turn), (Action::Answer, None, said));
    let read: Vec<usize> = asked.iter().map(|it| it.sections.len()).collect();
    assert_eq!(read, [3, 1, 2, 1], "all, the row, the pages and the row for the rest");
    assert_eq!(asked[1].question.user_before, None);
    let rest = DecisionTexts::default().en.rest;
    assert_eq!(of(&perhaps(0.9, 0.2, 0.1).0).2, format!("For Desk: price is £80. {rest}"));
    // Without the row, the page has to be sure.
    assert_eq!(of(&perhaps(-5.0, 0.7, 0.1).0).2, format!("You have 14 days. {rest}"));
    assert_eq!(of(&perhaps(-5.0, 0.5, 0.1).0).0, Action::Decline);
    assert_eq!(of(&perhaps(-5.0, 0.5, 0.9).0).2, "We open at nine.", "the whole has an answer");
}

#[test]
fn a_question_beside_another_gets_one_cell_of_a_row() {
    let lines = ["u: the desk, what do you want for it, and can I return it?"];
    let mut desk = named(heavy_desk(), 0.0, Some("can I return it?"));
    let cells = desk.row.as_mut().and_then(|row| row.cells.as_mut()).expect("cells");
    cells.by_meaning = [0.1, 0.1, 0.2, 0.1].map(Score::new).into();
    let turn = scene(&lines, &graph("sea HasA fish 1"));
    let turn = TurnInFlight { evidence: [pages(), vec![desk]].concat(), ..turn };
    let (turn, _) = decided_turn(&DecisionConfig::default(), turn, |request| {
        match (&*request.question.utterance, request.sections.len()) {
            ("can I return it?", 2) => reading(&[&[-2.0], &[3.0, 0.0, -1.0]], 0.7),
            // The reader alone would say the weight, and the price beside it.
            (_, 1) => reading(&[&[-5.0, -5.0, 0.9, 1.0]], 0.4),
            _ => reading(&[&[-2.0], &[-5.0; 4], &[-2.0, -2.0, -2.0]], 0.1),
        }
    });
    assert_eq!(of(&turn).2, "For Desk: price is £80. You have 14 days.");
}
