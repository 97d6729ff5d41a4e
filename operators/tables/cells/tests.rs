//! Which utterances ask for cells, by what they name and by what came before.

use serde_json::{Value, json};

use super::super::{Row, Table};

fn table() -> Table {
    let row = |values: Value| Row::of(values.as_object().expect("an object"));
    let rows = [
        json!({"id": "L-1", "name": "Oslo floor lamp", "category": "lamp", "price_eur": 89.9, "weight_g": 2100, "dimmable": true, "tall_shade_eur": 9}),
        json!({"id": "L-2", "name": "Bergen lamp", "category": "lamp", "price_eur": 49, "weight_g": 900, "dimmable": false}),
        json!({"id": "C-1", "name": "Alta 2", "category": "folding chair", "price_eur": 35, "weight_g": 3900, "rent_eur_day": 2}),
        json!({"id": "C-2", "name": "Alta 2 plus", "category": "folding chair", "price_eur": 49, "weight_g": 3100}),
        json!({"id": "L-3", "name": "Hammerfest bedside lamp", "category": "lamp", "price_eur": 29, "weight_g": 400, "dimmable": true}),
    ];
    Table::new(rows.map(row).into())
}

fn chinese_table() -> Table {
    let row = |values: Value| Row::of(values.as_object().expect("an object"));
    let rows = [
        json!({"编号": "F01", "名称": "湖景双人房", "房价_元": 388, "面积_平方米": 24, "可住人数": 2, "最晚入住": "22:00", "可带宠物": false}),
        json!({"编号": "F02", "名称": "湖景家庭房", "房价_元": 588, "面积_平方米": 40, "可住人数": 4, "最晚入住": "22:00", "可带宠物": true, "库存_间": 3}),
        json!({"编号": "F03", "名称": "湖景阁楼房3人", "房价_元": 456, "面积_平方米": 30, "可住人数": 3, "最晚入住": "21:00"}),
        json!({"编号": "Y01", "名称": "脚踏船一小时", "房价_元": 60, "时长_分钟": 60}),
        json!({"编号": "Y02", "名称": "脚踏船环湖", "房价_元": 150, "时长_分钟": 200}),
    ];
    Table::new(rows.map(row).into())
}

/// The row's id with the columns, and the rest.
fn asked(utterance: &str, earlier: &[&str]) -> Option<(String, Option<String>)> {
    asked_of(&table(), utterance, earlier)
}

fn asked_of(table: &Table, utterance: &str, earlier: &[&str]) -> Option<(String, Option<String>)> {
    let (row, cells) = table.cells(utterance, earlier)?;
    if cells.precision.get() == 0.0 {
        return None;
    }
    let id = &table.row(row)?.columns[0].value;
    Some((format!("{id}: {}", cells.columns.join(", ")), cells.rest))
}

/// The id of the row that is left to the reader, with the columns.
fn perhaps(table: &Table, utterance: &str, earlier: &[&str]) -> Option<(String, String)> {
    let (row, cells) = table.cells(utterance, earlier)?;
    let id = table.row(row)?.columns[0].value.clone();
    (cells.precision.get() == 0.0).then(|| (id, cells.columns.join(", ")))
}

#[test]
fn a_row_and_a_column_are_named() {
    for (utterance, cells) in [
        ("whats the price of the bergen", "L-2: price eur"),
        ("oslo floor lamp - how heavy is it?", "L-1: weight g"),
        ("what does l-3 cost", "L-3: price eur"),
        ("alta 2 how much", "C-1: price eur"),
        ("alta two plus: weight please", "C-2: weight g"),
        ("do you rent the alta 2 by the day", "C-1: rent eur day"),
        ("is the hamerfest dimmable", "L-3: dimmable"),
        ("bed side lamp price?", "L-3: price eur"),
        ("Is the Oslo dimmable? Our walls are dark.", "L-1: dimmable"),
        ("our walls are dark, is the oslo floor lamp dimmable", "L-1: dimmable"),
        ("bergen: how much and how heavy", "L-2: price eur, weight g"),
        ("how much does the bergen weigh", "L-2: weight g"),
        ("what does the bergen come to", "L-2: price eur"),
    ] {
        let found = asked(utterance, &[]).unwrap_or_default();
        assert_eq!(found, (cells.to_owned(), None), "{utterance}");
    }
}

#[test]
fn a_column_is_named_by_words_of_its_values() {
    let row = |values: Value| Row::of(values.as_object().expect("an object"));
    let rows = [
        json!({"id": "R1", "name": "Osprey", "floor": "loft", "keys": "none", "remark": "a quiet one"}),
        json!({"id": "R2", "name": "Kestrel", "floor": "loft", "keys": "upright piano", "remark": "new carpet"}),
        json!({"id": "R3", "name": "Merlin", "floor": "cellar", "keys": "none", "remark": "near the lift"}),
        json!({"id": "R4", "name": "Magpie", "floor": "cellar", "keys": "digital piano", "remark": "low beam"}),
        json!({"id": "R5", "name": "Swift", "floor": "cellar", "keys": "digital piano", "remark": "two doors"}),
        json!({"id": "R6", "name": "Curlew", "floor": "loft", "keys": "none", "remark": "by the yard"}),
    ];
    let table = Table::new(rows.map(row).into());
    for (utterance, cells) in [
        ("is there a piano in the osprey", "R1: keys"),
        ("the merlin, is it in the loft?", "R3: floor"),
        ("is the merlin in the cellar?", "R3: floor"),
    ] {
        let found = asked_of(&table, utterance, &[]).unwrap_or_default();
        assert_eq!(found.0, cells, "{utterance}");
    }
    let before = ["is the merlin in the cellar?"];
    let found = asked_of(&table, "has it a piano?", &before).unwrap_or_default();
    assert_eq!(found.0, "R3: keys");
    for utterance in [
        // Its own value, and what stands beside its name, describe the row.
        "that one with the piano, the kestrel",
        "the merlin loft",
        // Each row has a remark of its own.
        "is there a carpet in the merlin",
        "cheapest piano like the merlin",
        "merlin then, piano or loft",
    ] {
        let found = perhaps(&table, utterance, &[]).map(|(_, columns)| columns);
        assert_eq!(found.unwrap_or_default(), "", "{utterance}");
        assert_eq!(asked_of(&table, utterance, &[]), None, "{utterance}");
    }
}

#[test]
fn a_column_is_named_by_a_value_in_chinese() {
    let row = |values: Value| Row::of(values.as_object().expect("an object"));
    let rows = [
        json!({"编号": "K1", "名称": "光谷整屋仓", "门锁": "挂锁", "楼层": "负一层", "空余_间": 2}),
        json!({"编号": "K2", "名称": "徐东衣柜仓", "门锁": "蓝牙锁", "楼层": "负一层", "空余_间": 6}),
        json!({"编号": "K3", "名称": "后湖书房仓", "门锁": "挂锁", "楼层": "二层", "空余_间": 0}),
        json!({"编号": "K4", "名称": "王家湾相册仓", "门锁": "蓝牙锁", "楼层": "二层", "空余_间": 1}),
    ];
    let table = Table::new(rows.map(row).into());
    for (utterance, cells) in [
        ("光谷整屋仓用的是蓝牙锁吗", "K1: 门锁"),
        ("徐东衣柜仓 到底是挂锁还是蓝牙锁", "K2: 门锁"),
        ("徐东衣柜仓在几楼", "K2: 楼层"),
        ("王家湾的相册仓现在有空的没", "K4: 空余 间"),
    ] {
        let found = asked_of(&table, utterance, &[]).unwrap_or_default();
        assert_eq!(found.0, cells, "{utterance}");
    }
    assert_eq!(asked_of(&table, "我要那个挂锁的，光谷整屋仓", &[]), None, "it describes the row");
}

#[test]
fn cells_that_are_asked_together_are_said_together() {
    let before = ["have you got the bergen lamp"];
    for (utterance, earlier, cells) in [
        ("price + weight of the bergen?", &[][..], "L-2: price eur, weight g"),
        ("bergen price, is it dimmable n how heavy", &[], "L-2: price eur, dimmable, weight g"),
        ("dimmable and weight please", &before, "L-2: dimmable, weight g"),
        // One wobbly word, and the same cell twice.
        ("wobbly bergen lamp: price and weight", &[], "L-2: price eur, weight g"),
        ("bergen lamp price, how much is it", &[], "L-2: price eur"),
    ] {
        let found = asked(utterance, earlier).unwrap_or_default();
        assert_eq!(found, (cells.to_owned(), None), "{utterance}");
    }
    let (table, before) = (chinese_table(), ["有没有双人房"]);
    for (utterance, earlier, cells) in [
        ("家庭房多少钱，面积多大", &[][..], "F02: 房价 元, 面积 平方米"),
        ("麻烦问下家庭房的房价和面积各是多少", &[], "F02: 房价 元, 面积 平方米"),
        ("多少钱 能住几个人", &before, "F01: 房价 元, 可住人数"),
        ("家庭房多少钱，一晚什么价", &[], "F02: 房价 元"),
    ] {
        let found = asked_of(&table, utterance, earlier).unwrap_or_default();
        assert_eq!(found, (cells.to_owned(), None), "{utterance}");
    }
    // What the table lacks is no second cell.
    let rest = asked_of(&table, "家庭房多少钱，有几扇窗", &[]).and_then(|(_, rest)| rest);
    assert_eq!(rest.as_deref(), Some("有几扇窗"));
}

#[test]
fn what_is_left_out_comes_from_before() {
    let before = ["For Bergen lamp: price is 49 EUR.", "how much is the bergen lamp?"];
    for (utterance, cells) in [
        ("and the hammerfest?", "L-3: price eur"),
        ("is it dimmable?", "L-2: dimmable"),
        ("how much does it weigh", "L-2: weight g"),
    ] {
        let found = asked(utterance, &before).unwrap_or_default();
        assert_eq!(found, (cells.to_owned(), None), "{utterance}");
        assert_eq!(asked(utterance, &[]), None, "{utterance}");
    }
    assert_eq!(asked("do you deliver?", &before), None);
}

#[test]
fn what_else_is_asked_is_left_open() {
    let rest = |utterance| asked(utterance, &[]).and_then(|(_, rest)| rest);
    let returned = rest("price of the bergen lamp, and can i bring it back if it flickers?");
    assert_eq!(returned.as_deref(), Some("can i bring it back if it flickers?"));
    assert_eq!(rest("price of the bergen lamp. my room is small"), None);
}

#[test]
fn what_is_asked_beside_a_row_is_found_where_words_are_left_unexplained() {
    let table = table();
    let long = "we are doing up our hallway, which is rather narrow and dark, and my wife likes the \
        bergen lamp, how much is it, and could your driver carry it up four flights of stairs for us";
    for (utterance, cells, rest) in [
        ("is the bergen lamp any good and can i bring it home on a bike", "L-2: ", true),
        (
            "bergen wobbly crooked lamp price, my cat jumps a lot is that fine",
            "L-2: price eur",
            true,
        ),
        (
            "i wonder if the oslo is dimmable and whether you deliver on sundays",
            "L-1: dimmable",
            true,
        ),
        ("oslo floor lamp price n can i bring it back", "L-1: price eur", true),
        ("how bright is it, and do i have to climb a ladder for that", "C-2: ", true),
        (long, "L-2: price eur", true),
        // The second question is for the row too.
        ("how heavy is it, and what does it cost?", "C-2: weight g, price eur", false),
        // Another row, what asks for nothing, and a part of a name, which the reader judges with the whole.
        ("is the bergen any good, and what about the oslo then", "", false),
        ("will the bergen lamp do for a study, it is rather dark", "L-2: ", false),
        ("is the bergen lamp any good, so i know how it looks", "L-2: ", false),
        ("is the bedside one any good and can i bring it home on a bike", "L-3: ", false),
        // The column of before is not asked for where the rest is about the row.
        ("the bedside one, my old flickering thing died, how heavy", "L-3: weight g", false),
    ] {
        let found = table.cells(utterance, &["how much is the alta 2 plus"]);
        let of_row = |row| Some(table.row(row)?.columns[0].value.clone());
        let cells_of = found
            .as_ref()
            .and_then(|(row, it)| Some(format!("{}: {}", of_row(*row)?, it.columns.join(", "))));
        assert_eq!(cells_of.unwrap_or_default(), cells, "{utterance}");
        let has_rest = found.is_some_and(|(_, it)| it.rest.is_some_and(|it| it.len() > 10));
        assert_eq!(has_rest, rest, "{utterance}");
    }
}

#[test]
fn what_is_not_certain_is_no_cell() {
    for utterance in [
        "how much does delivery of a lamp cost",
        "how much oil does the oslo need",
        "the bergen or the oslo, how much",
        "how much is in the bergen",
        "alta price",
        "bergen",
        "is the oslo good for reading when guests stay over for dinner and games",
        "the colour of the bergen lamp",
        // Neither a column for tall shades nor a price per day.
        "how tall is the oslo floor lamp",
        "how many days can i have the alta 2",
        "",
    ] {
        assert_eq!(asked(utterance, &[]), None, "{utterance}");
    }
}

#[test]
fn the_more_words_nothing_explains_the_less_certain_it_is() {
    let table = table();
    let precision = |text| table.cells(text, &[]).map(|(_, cells)| cells.precision.get());
    let plain = precision("bergen lamp price").expect("a cell");
    let odd = precision("bergen wobbly lamp price").expect("a cell");
    assert!(plain > odd, "{plain} {odd}");
    assert_eq!(precision("bergen wobbly crooked lamp price"), Some(0.0));
}

#[test]
fn a_row_that_is_named_is_left_to_the_reader_where_names_are_not_certain() {
    let table = table();
    for (utterance, found) in [
        ("bergen wobbly crooked lamp price", Some(("L-2", "price eur"))),
        ("is the oslo floor lamp good for reading at night", Some(("L-1", ""))),
        ("how much oil does the oslo need", Some(("L-1", "price eur"))),
        // Part of a name, with a column and without.
        ("the bedside one, my old flickering thing died, how heavy", Some(("L-3", "weight g"))),
        ("is the bedside one any good", None),
        ("would the bedside one suit my grumpy old uncle", Some(("L-3", ""))),
        ("the bergen or the oslo", None),
        ("do you deliver", Some(("C-2", ""))),
        ("will it be much lighter once folded, i mean how heavy", None),
        ("what does the next one weigh when folded up", None),
        ("what does it weigh when folded up", Some(("C-2", "weight g"))),
    ] {
        let expected = found.map(|(row, column)| (row.to_owned(), column.to_owned()));
        assert_eq!(
            perhaps(&table, utterance, &["how much is the alta 2 plus"]),
            expected,
            "{utterance}"
        );
    }
}

#[test]
fn a_row_and_a_column_are_named_in_chinese() {
    let table = chinese_table();
    for (utterance, cells) in [
        ("湖景双人房多少钱一晚", "F01: 房价 元"),
        // The pair that no other name has.
        ("家庭房能住几个人？", "F02: 可住人数"),
        ("家庭房最晚幾點能入住", "F02: 最晚入住"),
        ("f03面积多大", "F03: 面积 平方米"),
        ("阁楼房三人的那间什么价", "F03: 房价 元"),
        ("脚踏船1小时贵不贵", "Y01: 房价 元"),
        ("家庭房还有吗", "F02: 库存 间"),
        // By the unit of one column, and by a word of its name.
        ("家庭房还有几间", "F02: 库存 间"),
        ("家庭房宠不宠", "F02: 可带宠物"),
        ("我们一家从外地来，双人房有多大", "F01: 面积 平方米"),
    ] {
        let found = asked_of(&table, utterance, &[]).unwrap_or_default();
        assert_eq!(found, (cells.to_owned(), None), "{utterance}");
    }
    let rest = asked_of(&table, "家庭房多少钱，早餐另外算吗", &[]);
    assert_eq!(rest, Some(("F02: 房价 元".to_owned(), Some("早餐另外算吗".to_owned()))));
}

#[test]
fn what_is_asked_beside_a_row_is_found_in_chinese() {
    let (table, before) = (chinese_table(), ["有，湖景双人房还有。", "有没有靠湖的"]);
    for (utterance, cells, rest) in [
        ("双人房能不能看日出，早饭几点开始", "F01: ", "早饭几点开始"),
        ("双人房一晚到底得掏多少毫升，能刷卡不", "F01: ", "能刷卡不"),
        ("这个多少钱，晚到了给留吗", "F01: 房价 元", "晚到了给留吗"),
        ("想要家庭房，能加床吗", "F02: ", ""),
        ("要能住四个人的，哪间最便宜", "", ""),
    ] {
        let found = table.cells(utterance, &before);
        let of_row = |row| Some(table.row(row)?.columns[0].value.clone());
        let cells_of = found
            .as_ref()
            .and_then(|(row, it)| Some(format!("{}: {}", of_row(*row)?, it.columns.join(", "))));
        assert_eq!(cells_of.unwrap_or_default(), cells, "{utterance}");
        let found = found.and_then(|(_, it)| it.rest).unwrap_or_default();
        assert_eq!(found, rest, "{utterance}");
    }
    // Not for the column of before.
    let found = table.cells("家庭房能不能看日出，早饭几点开始", &["湖景双人房多少钱"]);
    let columns = found.map(|(_, it)| (it.columns, it.rest.unwrap_or_default()));
    assert_eq!(columns, Some((Vec::new(), "早饭几点开始".to_owned())));
}

#[test]
fn what_is_left_out_in_chinese_comes_from_before() {
    let (table, before) = (chinese_table(), ["湖景双人房：房价是388元。", "湖景双人房多少钱"]);
    for (utterance, cells) in [("家庭房呢", "F02: 房价 元"), ("那能住几个人", "F01: 可住人数")]
    {
        let found = asked_of(&table, utterance, &before).unwrap_or_default();
        assert_eq!(found, (cells.to_owned(), None), "{utterance}");
        assert_eq!(asked_of(&table, utterance, &[]), None, "{utterance}");
    }
    // Its name is whole without what many names share.
    let people = asked_of(&table, "那能住几个人", &["双人房多少钱"]);
    assert_eq!(people, Some(("F01: 可住人数".to_owned(), None)));
}

#[test]
fn a_row_that_is_named_in_chinese_is_left_to_the_reader_where_words_are_not_certain() {
    let (table, before) = (chinese_table(), ["湖景双人房：房价是388元。", "湖景双人房多少钱"]);
    for (utterance, earlier, found) in [
        ("家庭房的卫生间是不是公用的呀", &[][..], Some(("F02", ""))),
        ("那屋里能不能自己做饭", &before, Some(("F01", ""))),
        ("那屋里能不能自己做饭", &[], None),
        // Which of all is no question for the row of before.
        ("要靠湖的，最安静的是哪间", &before, None),
    ] {
        let expected = found.map(|(row, column)| (row.to_owned(), column.to_owned()));
        assert_eq!(perhaps(&table, utterance, earlier), expected, "{utterance}");
    }
}

#[test]
fn characters_that_mean_nothing_name_no_row_in_chinese() {
    let row = |name: &str| Row::of(json!({"名称": name}).as_object().expect("an object"));
    let table = Table::new(vec![row("一个人的南方"), row("大宋器物图鉴")]);
    let named = |utterance| table.cells(utterance, &[]).map(|(row, _)| row);
    assert_eq!(named("那本南方，有没有插图"), Some(0));
    assert_eq!(named("是哪位诗人的，有没有插图"), None, "人的 is in one name alone");
}

#[test]
fn what_is_not_certain_is_no_cell_in_chinese() {
    let table = chinese_table();
    for utterance in [
        "湖景房多少钱",
        "双人房和家庭房哪个大",
        "家庭房加床要加多少钱",
        "双人房多少毫升",
        "双人房运费多少",
        "一个人脚踏船多少钱",
        "最便宜的双人房多少钱",
        "退房最晚几点",
        "家庭房",
        "",
    ] {
        assert_eq!(asked_of(&table, utterance, &[]), None, "{utterance}");
    }
}
