//! What compares rows, in words that are not all known.

use super::*;

/// Decides about an utterance, where the reader is sure of the first of two rows.
fn of_two_rows(utterance: &str) -> Action {
    let prices = [("Oslo lamp", "£49"), ("Oslo desk", "£80")];
    let given = prices.map(|(name, price)| row(name, price));
    let rows = given.iter().filter_map(|it| it.row.clone());
    let table =
        Table::new(rows.map(|row| Row { columns: row.columns, text: String::new() }).collect());
    let sure = || reading(&[&[-5.0, -5.0, 2.0], &[-5.0, -5.0, 0.0]], 0.9);
    let mut evidence = given.to_vec();
    for (row, place) in evidence.iter_mut().filter_map(|it| it.row.as_mut()).zip(1..) {
        row.place = place;
    }
    let graph = graph("sea HasA fish 1");
    let turn = TurnInFlight { evidence, ..scene(&[utterance], &graph) };
    let (mut values, _) = run_dataflow(vec![turn], move |turns| {
        let tables = Arc::new(Tables::from([("goods".into(), Arc::new(table.clone()))]));
        let reader = Some(Answering::new(move |_| sure()) as Arc<Read>);
        let context = StageContext { tables, reader, ..stage_context(&graph) };
        let context = asking(context, |_| unreachable!("no language model is asked"));
        decision(turns, DecisionConfig::default(), SpokenFacts::None, &context)
    });
    of(&values.pop().expect("a turn")).0
}

#[test]
fn a_row_that_contradicts_the_comparison_is_not_said() {
    for (utterance, action) in [
        ("u: whats the very cheapest way to sit in the dark", Action::Answer),
        ("u: whats the dearest way to sit in the dark", Action::Decline),
        ("u: something to sit at for under 50 euros", Action::Answer),
        ("u: something to sit at for under 40 euros", Action::Decline),
        ("u: show me everything below 1 litre", Action::Decline),
        ("u: what shines longer than 5 hours?", Action::Decline),
        ("u: 能放一升以下的有哪些", Action::Decline),
        ("u: does the lamp shine longer than 5 hours?", Action::Answer),
        ("u: what do most people put in a corner?", Action::Answer),
    ] {
        assert_eq!(of_two_rows(utterance), action, "{utterance}");
    }
}
