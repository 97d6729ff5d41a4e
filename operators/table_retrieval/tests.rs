use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::tables::{Row, Tables};
use crate::testing::{Counting, asking_source, graph, run_dataflow, scene, stage_context};

fn tables() -> Tables {
    let row = |item: &str, price| {
        let row = json!({ "item": item, "price": price });
        Row::of(row.as_object().expect("an object"))
    };
    let rows = vec![row("Oslo lamp", 49), row("Oslo chair", 90), row("Bergen lamp", 35)];
    [("goods".into(), Arc::new(Table::new(rows)))].into()
}

fn found(text: &str, source: &str, config: &TableRetrievalConfig) -> Vec<Evidence> {
    let turn = scene(&[&format!("u: {text}")], &graph(""));
    let turn = asking_source(turn, source);
    let config = config.clone();
    let (out, faults) = run_dataflow(vec![turn], move |turns| {
        let mut means = stage_context(&graph(""));
        let goods = crate::sources::SourceConfig {
            file: Some("goods.jsonl".into()),
            ..crate::sources::SourceConfig::of(turnstream_schemas::SourceKind::Table)
        };
        let sources = Sources::new(&[("goods".to_owned(), goods)].into());
        means.sources = Arc::new(sources.expect("sources"));
        means.tables = Arc::new(tables());
        table_retrieval(turns, config.clone(), &means)
    });
    assert!(faults.is_empty(), "{faults:?}");
    out[0].candidates.rows.clone()
}

#[test]
fn the_row_whose_cell_is_asked_for_comes_first() {
    let rows = found("The Bergen lamp's price?", "goods", &TableRetrievalConfig::default());
    let cells = |row: &Evidence| row.row.as_ref().and_then(|row| row.cells.clone());
    let of_bergen = cells(&rows[0]).expect("cells");
    assert_eq!((&*rows[0].id.0, rows[0].relevance), ("goods/3", Score::new(1.0)));
    assert_eq!((of_bergen.columns, of_bergen.rest), (vec!["price".to_owned()], None));
    assert!(rows.len() > 1 && rows[1..].iter().all(|row| cells(row).is_none()));
}

#[test]
fn rows_are_evidence() {
    let rows = found("Anything like the Bergen lamp?", "goods", &TableRetrievalConfig::default());
    let told: Vec<(&str, &str)> = rows.iter().map(|row| (&*row.id.0, &*row.text)).collect();
    let bergen = ("goods/3", "item = Bergen lamp, price = 35");
    assert_eq!(told[..2], [bergen, ("goods/1", "item = Oslo lamp, price = 49")]);
    let row = rows[0].row.as_ref().expect("a row");
    assert_eq!((row.place, &*row.columns[1].value, row.by_words), (3, "35", rows[0].relevance));
    assert!(!rows[0].selected && rows[0].fact.is_none());
}

#[test]
fn bounds_hold() {
    let few = TableRetrievalConfig { max_rows: 1, ..Default::default() };
    assert_eq!(found("a lamp", "goods", &few).len(), 1);
    let good = TableRetrievalConfig { min_score: 0.99, ..Default::default() };
    assert!(found("a lamp", "goods", &good).is_empty());
    assert!(found("a lamp", "elsewhere", &TableRetrievalConfig::default()).is_empty());
}

#[test]
fn rows_with_vectors_are_found_by_meaning_too() {
    let row = |item: &str| Row::of(json!({ "item": item }).as_object().expect("an object"));
    let table = Table::new(vec![row("sailing boat"), row("bread oven")]);
    let asked = |table: &Table, question: [f32; 2]| {
        let mut turn = scene(&["u: oven"], &graph(""));
        turn.question = Some(question.into());
        let rows = retrieve(&turn, &"goods".into(), &[], table, &TableRetrievalConfig::default());
        rows.into_iter().map(|row| row.row.expect("a row").place).collect::<Vec<_>>()
    };
    assert_eq!(asked(&table, [1.0, 0.0]), [2], "by its words alone");
    let table = table.with_vectors(&Counting).expect("vectors");
    assert_eq!(asked(&table, [1.0, 0.0]), [1, 2], "what is meant is more than what is said");
    assert_eq!(asked(&table, [0.0, 1.0]), [2]);
}

#[test]
fn the_columns_of_a_row_that_is_named_are_compared_with_the_utterance() {
    let row = json!({ "name": "Bergen", "oven": "yes", "sea": "no" });
    let table = Table::new(vec![Row::of(row.as_object().expect("an object"))]);
    let compared = |table: &Table| {
        let mut turn = scene(&["u: does the bergen wobble near ships"], &graph(""));
        turn.utterance = Some([1.0, 0.0].into());
        let rows = retrieve(&turn, &"goods".into(), &[], table, &TableRetrievalConfig::default());
        let cells = rows.into_iter().find_map(|it| it.row?.cells).expect("cells");
        cells.by_meaning.into_iter().map(Score::get).collect::<Vec<_>>()
    };
    assert_eq!(compared(&table), [0.0; 0], "nothing has vectors");
    let table = table.with_vectors(&Counting).expect("vectors");
    let found = compared(&table);
    assert_eq!(found, [0.0, 0.0, 1.0], "in the columns' order");
}

#[test]
fn a_choice_asks_what_its_question_asks() {
    let row = |values: serde_json::Value| Row::of(values.as_object().expect("an object"));
    let rows = [("Jackdaw", "first"), ("Osprey", "first"), ("Merlin", "loft"), ("Swift", "loft")];
    let rows = rows.map(|(name, floor)| {
        row(json!({ "id": name, "name": name, "floor": floor, "window": "yes" }))
    });
    let asks = "s: Do you mean “Jackdaw: window” or “Jackdaw: floor”?";
    let turn =
        scene(&["u: does the jackdaw get any daylight", asks, "u: the first one"], &graph(""));
    let texts = crate::decision::DecisionTexts::default().response_texts();
    let context = Arc::new(turn.context.as_ref().clone().with_choice(&texts));
    let turn = TurnInFlight { context, ..turn };
    let config = TableRetrievalConfig::default();
    let rows = retrieve(&turn, &"rooms".into(), &[], &Table::new(rows.into()), &config);
    let cells = rows.into_iter().find_map(|it| it.row?.cells).expect("cells");
    assert_eq!(cells.columns, ["window"], "it is not the first floor that is chosen");
}
