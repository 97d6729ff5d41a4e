//! Which utterances ask for a row operation, what is said of the rows, and which ask for none.

use serde_json::{Value, json};
use turnstream_knowledge::language::Lexicon;
use turnstream_schemas::TableRow;

use super::super::{Row, Table, said_of_all};

fn table() -> Table {
    let row = |values: Value| Row::of(values.as_object().expect("an object"));
    let rows = [
        json!({"id": "1", "name": "Oslo floor lamp", "category": "lamp", "price_eur": 89.9, "weight_g": 2100, "dimmable": true}),
        json!({"id": "2", "name": "Bergen", "category": "lamp", "price_eur": 49, "weight_g": 900, "dimmable": false}),
        json!({"id": "3", "name": "Alta", "category": "folding chair", "price_eur": 35, "weight_g": 3900, "deposit_eur": 5, "dimmable": null}),
        json!({"id": "4", "name": "Voss", "category": "folding chair", "price_eur": 49, "weight_g": 3100, "deposit_eur": 12}),
        json!({"id": "5", "name": "Voss plus", "category": "lamp", "price_eur": 120, "weight_g": 900, "dimmable": true}),
    ];
    Table::new(rows.map(row).into())
}

fn chinese_table() -> Table {
    let row = |values: Value| Row::of(values.as_object().expect("an object"));
    let rows = [
        json!({"编号": "P1", "名称": "青山帐篷", "类别": "帐篷", "价格_元": 399, "重量_公斤": 2.4, "押金_元": 100, "可租": true, "防水": true}),
        json!({"编号": "P2", "名称": "流云帐篷", "类别": "帐篷", "价格_元": 850, "重量_公斤": 1.6, "押金_元": 200, "可租": true, "防水": true}),
        json!({"编号": "P3", "名称": "松针睡袋", "类别": "睡袋", "价格_元": 120, "重量_公斤": 1.6, "押金_元": 50, "可租": false, "防水": false}),
        json!({"编号": "P4", "名称": "石板炉", "类别": "炉具", "价格_元": 99, "重量_公斤": 3, "押金_元": 50, "可租": true, "防水": false}),
    ];
    Table::new(rows.map(row).into())
}

fn said(utterance: &str) -> Option<String> {
    said_of(&table(), utterance, Lexicon::english())
}

fn said_of(table: &Table, utterance: &str, lexicon: &Lexicon) -> Option<String> {
    let (places, asked) = table.asked(utterance)?;
    let row = |at: &u32| TableRow {
        place: at + 1,
        columns: table.row(*at).expect("a row").columns.clone(),
        by_words: turnstream_schemas::Score::new(0.0),
        by_meaning: None,
        asked: Some(asked.clone()),
        cells: None,
    };
    let rows: Vec<TableRow> = places.iter().map(row).collect();
    said_of_all(&rows.iter().collect::<Vec<_>>(), &asked, lexicon)
}

#[test]
fn a_table_may_have_no_row_as_the_user_asks() {
    let tables = |table: Table| crate::tables::Tables::from([("goods".into(), table.into())]);
    let english = tables(table());
    for (utterance, is_none) in [
        ("which lamps are under 20 euros?", true),
        ("how many are under 20 euros?", true),
        ("which lamps are under 60 euros?", false),
        ("which lamps with a plug are under 20 euros?", false),
    ] {
        assert_eq!(crate::tables::none_fits(&english, utterance), is_none, "{utterance}");
    }
    assert!(crate::tables::none_fits(&tables(chinese_table()), "五十块以内的有哪些"));
}

#[test]
fn rows_are_chosen_and_counted_in_chinese() {
    for (utterance, answer) in [
        ("你们最便宜的是哪个？", "石板炉：价格是99元。"),
        ("最貴的帳篷是哪款", "流云帐篷：价格是850元。"),
        ("最轻的有哪些", "流云帐篷：重量是1.6公斤。松针睡袋：重量是1.6公斤。"),
        ("押金最高的是哪个", "流云帐篷：押金是200元。"),
        ("一百二十块以内的有哪些", "石板炉：价格是99元。松针睡袋：价格是120元。"),
        ("两公斤以上的帐篷", "青山帐篷：重量是2.4公斤。"),
        ("2000克以上的帐篷", "青山帐篷：重量是2.4公斤。"),
        ("四斤以内的帐篷", "流云帐篷：重量是1.6公斤。"),
        ("价格不超过100元的", "石板炉：价格是99元。"),
        ("防水的有哪些", "青山帐篷、流云帐篷。"),
        ("能租的帐篷有哪些", "青山帐篷、流云帐篷。"),
        ("可租的都有哪些", "青山帐篷、流云帐篷、石板炉。"),
        ("帐篷都有哪些", "青山帐篷、流云帐篷。"),
        ("你们有几款帐篷", "2个：青山帐篷、流云帐篷。"),
    ] {
        let said = said_of(&chinese_table(), utterance, Lexicon::chinese());
        assert_eq!(said.unwrap_or_default(), answer, "{utterance}");
    }
    for utterance in [
        "给爸妈买最便宜的是哪个",
        "最便宜的快递",
        "里头哪个最便宜",
        "帐篷多少钱",
        "青山帐篷最重多少",
    ] {
        assert_eq!(said_of(&chinese_table(), utterance, Lexicon::chinese()), None, "{utterance}");
    }
}

#[test]
fn rows_that_are_named_together_are_compared_in_chinese() {
    let both = "流云帐篷：价格是850元。青山帐篷：价格是399元。";
    for (utterance, answer) in [
        ("青山帐篷和流云帐篷哪个贵", both),
        ("流云和青山哪款更贵一点？", both),
        ("流云比青山帐篷贵多少", both),
        ("青山跟松针睡袋哪个轻些", "松针睡袋：重量是1.6公斤。青山帐篷：重量是2.4公斤。"),
        ("石板炉和流云帐篷哪个押金高", "流云帐篷：押金是200元。石板炉：押金是50元。"),
        ("石板炉和青山帐篷各多少钱", "石板炉：价格是99元。青山帐篷：价格是399元。"),
        (
            "流云、青山、松针睡袋分别多重",
            "流云帐篷：重量是1.6公斤。青山帐篷：重量是2.4公斤。松针睡袋：重量是1.6公斤。",
        ),
        ("松针睡袋和青山帐篷防水吗", "松针睡袋：不防水。青山帐篷：防水。"),
    ] {
        let said = said_of(&chinese_table(), utterance, Lexicon::chinese());
        assert_eq!(said.unwrap_or_default(), answer, "{utterance}");
    }
    for utterance in [
        "青山帐篷贵吗",
        "青山帐篷和别家的哪个贵",
        "青山和流云哪个适合冬天",
        "青山和流云哪个好",
        "青山和流云哪个不贵",
        "青山帐篷和石板炉的学生价多少",
        "帐篷和睡袋哪个贵",
        "买了青山帐篷和石板炉，运费多少钱",
    ] {
        assert_eq!(said_of(&chinese_table(), utterance, Lexicon::chinese()), None, "{utterance}");
    }
}

#[test]
fn rows_that_cannot_be_told_apart_or_lack_the_column_are_not_compared() {
    let row = |values: Value| Row::of(values.as_object().expect("an object"));
    let rows = [
        json!({"编号": "P1", "名称": "松针睡袋", "价格_元": 120, "押金_元": 50}),
        json!({"编号": "P2", "名称": "松针睡袋", "价格_元": 150, "押金_元": 60}),
        json!({"编号": "P3", "名称": "石板炉", "价格_元": 99}),
        json!({"编号": "P4", "名称": "青山灯", "价格_元": 30, "押金_元": 10}),
        json!({"编号": "P5", "名称": "山水灯", "价格_元": 40}),
        json!({"编号": "P6", "名称": "水间灯", "价格_元": 50}),
    ];
    let table = Table::new(rows.map(row).into());
    let said = |utterance| said_of(&table, utterance, Lexicon::chinese());
    assert!(said("石板炉和青山灯哪个贵").is_some());
    assert_eq!(said("松针睡袋和石板炉哪个贵"), None);
    assert_eq!(said("山水间灯和石板炉哪个贵"), None);
    assert_eq!(said("青山灯和石板炉押金各多少"), None);
    assert_eq!(
        said("青山灯和石板炉各多少钱").as_deref(),
        Some("青山灯：价格是30元。石板炉：价格是99元。")
    );
}

#[test]
fn rows_are_compared_chosen_and_counted() {
    for (utterance, answer) in [
        ("whats the cheapest thing you sell", "For Alta: price is 35 EUR."),
        ("Cheapest lamp?", "For Bergen: price is 49 EUR."),
        ("the most expensive folding chairs", "For Voss: price is 49 EUR."),
        ("least expensive of your lamps pls", "For Bergen: price is 49 EUR."),
        ("which one has the highest deposit", "For Voss: deposit is 12 EUR."),
        ("lightest lamp", "For Bergen: weight is 900 g. For Voss plus: weight is 900 g."),
        (
            "what's heavier, alta or oslo?",
            "For Alta: weight is 3900 g. For Oslo floor lamp: weight is 2100 g.",
        ),
        (
            "alta vs oslo, which is lighter",
            "For Oslo floor lamp: weight is 2100 g. For Alta: weight is 3900 g.",
        ),
        (
            "what lamps have you got under 100 euros",
            "For Bergen: price is 49 EUR. For Oslo floor lamp: price is 89.9 EUR.",
        ),
        ("anything up to €35", "For Alta: price is 35 EUR."),
        ("lamps over 1,5 kg", "For Oslo floor lamp: weight is 2100 g."),
        ("lamps over 1,5 l", ""),
        ("which lamps are dimmable", "Oslo floor lamp and Voss plus."),
        ("what folding chairs do you have", "Alta and Voss."),
        ("your lightest chair?", "For Voss: weight is 3100 g."),
        ("how many lamps do you have?", "3: Oslo floor lamp, Bergen and Voss plus."),
        (
            "which of your machines is the lightest of all?",
            "For Bergen: weight is 900 g. For Voss plus: weight is 900 g.",
        ),
        ("what's the least i can spend on a lamp", "For Bergen: price is 49 EUR."),
        ("which chair costs most", "For Voss: price is 49 EUR."),
        // What is only told chooses nothing.
        ("cheapest lamp please, i read a lot", "For Bergen: price is 49 EUR."),
        ("just curious. whats your priciest", "For Voss plus: price is 120 EUR."),
        ("which lamps are not dimmable", "Bergen."),
        ("how many lamps can be dimmed", ""),
        ("how many lamps under 100 euros", "2: Bergen and Oslo floor lamp."),
        ("how many lamps are dimmable", "2: Oslo floor lamp and Voss plus."),
    ] {
        assert_eq!(said(utterance).unwrap_or_default(), answer, "{utterance}");
    }
}

#[test]
fn rows_with_a_no_or_nothing_are_asked_for() {
    let row = |values: Value| Row::of(values.as_object().expect("an object"));
    let rows = [
        json!({"id": "1", "name": "Day hut", "days_ahead": 2, "price_eur_night": 90, "price_eur_week": 500, "dogs_allowed": true, "in_stock_pcs": 3, "nut_free": true}),
        json!({"id": "2", "name": "Day barn unit", "price_eur_night": 80, "price_eur_week": 560, "dogs_allowed": false, "in_stock_pcs": 0, "nut_free": false}),
        json!({"id": "3", "name": "Loft unit", "price_eur_night": 99, "price_eur_week": 600, "dogs_allowed": true, "in_stock_pcs": 0, "nut_free": true}),
    ];
    let table = Table::new(rows.map(row).into());
    let said = |utterance| said_of(&table, utterance, Lexicon::english()).unwrap_or_default();
    for (utterance, answer) in [
        ("which ones could we take the dog to", "Day hut and Loft unit."),
        ("which ones can't i take a dog to", "Day barn unit."),
        ("what's sold out at the moment", "Day barn unit and Loft unit."),
        ("which are without nuts", "Day hut and Loft unit."),
        ("which have nuts", "Day barn unit."),
        ("do you have it in stock", ""),
        // By the night and by the week another one is the cheapest.
        ("which is the cheapest", ""),
        ("which is the cheapest per week", "For Day hut: price is 500 EUR per week."),
        ("how many days is that", ""),
        ("and how many in the hut", ""),
        // A unit may be one of them or all.
        ("which is your dearest unit", ""),
        ("which is your dearest room", "For Loft unit: price is 99 EUR per night."),
        ("which is the dearest", "For Loft unit: price is 99 EUR per night."),
    ] {
        assert_eq!(said(utterance), answer, "{utterance}");
    }
}

#[test]
fn rows_that_are_named_together_are_asked_for_one_cell_each() {
    for (utterance, answer) in [
        (
            "how much are the oslo and the bergen",
            "For Oslo floor lamp: price is 89.9 EUR. For Bergen: price is 49 EUR.",
        ),
        (
            "bergen, oslo & alta - how heavy",
            "For Bergen: weight is 900 g. For Oslo floor lamp: weight is 2100 g. For Alta: weight is 3900 g.",
        ),
        (
            "are the bergen and the oslo dimmable",
            "For Bergen: dimmable is no. For Oslo floor lamp: dimmable is yes.",
        ),
        (
            "difference in price between alta and bergen",
            "For Alta: price is 35 EUR. For Bergen: price is 49 EUR.",
        ),
        ("how much deposit for the alta and the oslo", ""),
        ("bergen and oslo", ""),
        ("how much is a bergen with an oslo shade", ""),
        ("how much are the bergen, the oslo and the lyra", ""),
        ("how much are the bergen, the oslo and the voss", ""),
    ] {
        assert_eq!(said(utterance).unwrap_or_default(), answer, "{utterance}");
    }
}

#[test]
fn of_many_rows_some_are_named_in_chinese() {
    let row = |at| {
        Row::of(
            json!({"名称": format!("{at}号灯"), "类别": "灯具"}).as_object().expect("an object"),
        )
    };
    let table = Table::new((1..=10).map(row).collect());
    let said = said_of(&table, "灯具有哪些", Lexicon::chinese());
    let expected = "1号灯、2号灯、3号灯、4号灯、5号灯、6号灯、7号灯、8号灯等10个。";
    assert_eq!(said.as_deref(), Some(expected));
}

#[test]
fn what_else_is_asked_is_left_open() {
    let rest = |table: Table, utterance| {
        table.asked(utterance).map(|(rows, asked)| (rows[0], asked.rest.unwrap_or_default()))
    };
    for (utterance, row, left) in [
        (
            "what's your cheapest lamp and how long does delivery take?",
            1,
            "how long does delivery take?",
        ),
        ("do you deliver to spain? and what is the lightest lamp", 1, "do you deliver to spain?"),
    ] {
        assert_eq!(rest(table(), utterance), Some((row, left.to_owned())), "{utterance}");
    }
    for (utterance, row, left) in [
        ("最便宜的帐篷是哪款，包邮吗？", 0, "包邮吗？"),
        ("能开发票吗，最贵的帐篷是哪款", 1, "能开发票吗，"),
    ] {
        assert_eq!(rest(chinese_table(), utterance), Some((row, left.to_owned())), "{utterance}");
    }
    // What is told may be a condition.
    assert_eq!(rest(chinese_table(), "我带着狗，最便宜的帐篷是哪款"), None);
    assert_eq!(rest(table(), "my room is dark, not lit. which is the cheapest lamp"), None);
    assert_eq!(rest(table(), "there are two of us, which is the cheapest lamp"), None);
}

#[test]
fn what_is_not_certain_is_no_operation() {
    for utterance in [
        "cheapest way to send it back",
        "cheapest lamp for the garden",
        "how much is the bergen",
        "is the oslo lamp dimmable",
        "how many lamps fit in a box",
        "which is lighter",
        "what is a dimmable lamp",
        "how many grams is a lamp",
        "cheapest delivery?",
        "your cheapest plus",
        "the bergen with the oslo, how much",
        "how heavy is the lightest box you ship",
        "expensive lamp!",
        "",
    ] {
        assert_eq!(said(utterance), None, "{utterance}");
    }
}
