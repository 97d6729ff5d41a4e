use serde_json::json;

use super::*;

fn row(values: &Value) -> Row {
    Row::of(values.as_object().expect("an object"))
}

#[test]
fn a_row_is_worded_as_people_write_it() {
    let of = row(&json!({
        "restaurant_name": "Sino", "time": "11:30", "date": "2019-03-01", "has_live_music": "False",
        "rating": "4.30", "openSundays": true, "number_of_seats": 2, "price": "$12.00", "closed": null,
    }));
    assert_eq!(
        of.text,
        "restaurant name = Sino, time = 11:30 am, date = March 1st, has live music = no, \
         rating = 4.3, open sundays = yes, number of seats = 2, price = $12.00"
    );
    assert_eq!(of.columns.len(), 8);
}

#[test]
fn times_stay_as_they_are_in_a_chinese_row() {
    let of = row(
        &json!({ "名称": "皮划艇", "最晚入场": "16:15", "开放": "2026-05-01", "可带宠物": true }),
    );
    assert_eq!(of.text, "名称 = 皮划艇, 最晚入场 = 16:15, 开放 = 2026-05-01, 可带宠物 = yes");
}

/// The same cases as in the training of the unified model, which words rows by the same rules.
#[test]
fn canonical_values_are_rendered() {
    for (value, expected) in [
        ("00:05", "12:05 am"),
        ("12:00", "12:00 pm"),
        ("19:55:00", "7:55 pm"),
        ("24:00", "24:00"),
        ("7:5", "7:5"),
        ("2019-03-11", "March 11th"),
        ("2019-12-22", "December 22nd"),
        ("2019-10-03", "October 3rd"),
        ("2019-13-03", "2019-13-03"),
        ("2019-03-32", "2019-03-32"),
        ("4.00", "4"),
        ("4.05", "4.05"),
        ("True", "yes"),
        ("cheap", "cheap"),
        ("1:2:3", "1:2:3"),
    ] {
        assert_eq!(surface(value), expected, "{value}");
    }
}

#[test]
fn cells_keep_what_the_table_has() {
    let row = row(
        &json!({ "item": "Oslo", "since": "2026-03-02", "price": "4.50", "size": 12.0, "new": "true" }),
    );
    let values: Vec<&str> = row.columns.iter().map(|it| &*it.value).collect();
    assert_eq!(values, ["Oslo", "2026-03-02", "4.50", "12", "yes"]);
    assert_eq!(row.text, "item = Oslo, since = March 2nd, price = 4.5, size = 12, new = yes");
}

fn table() -> Table {
    let rows = [("Oslo lamp", "blue"), ("Oslo chair", "red"), ("Bergen lamp", "red")];
    let rows = rows.map(|(item, colour)| row(&json!({ "item": item, "colour": colour })));
    Table::new(rows.into())
}

#[test]
fn rows_are_found_by_their_words() {
    let table = table();
    let found = |text| table.search(text, &[], 9).into_iter().map(|(at, _)| at).collect::<Vec<_>>();
    assert_eq!(found("the Bergen lamps"), [2, 0], "Bergen is rarer than lamp");
    assert_eq!(found("A chair?"), [1]);
    assert_eq!(found("the colour of something red")[..2], [1, 2], "then the other, by `colour`");
    assert_eq!(found("a boat"), [0; 0]);
    assert_eq!(table.search("lamp", &[], 1).len(), 1);
    let scores = table.search("lamp in blue", &[], 9);
    assert!(scores.iter().all(|(_, score)| (0.0..=1.0).contains(score)));
    assert!(scores[0].1 > scores[1].1);
}

#[test]
fn what_was_given_before_bounds_the_rows() {
    let table = table();
    let found = |text, given: &[&str]| {
        table.search(text, given, 9).into_iter().map(|(at, _)| at).collect::<Vec<_>>()
    };
    assert_eq!(found("which lamp", &["I bought the oslo LAMP."]), [0]);
    assert_eq!(found("which lamp", &["I bought a chair."]), [0, 2], "it names no row");
    assert_eq!(found("which lamp", &["I like red."]), [2]);
}

fn measured(name: &str, column: &str, values: [&str; 3]) -> Table {
    let items = ["Alta", "Voss", "Lyra"].into_iter().zip(values);
    Table::new(items.map(|(item, value)| row(&json!({ name: item, column: value }))).collect())
}

#[test]
fn amounts_in_units_of_one_dimension_are_compared() {
    let weights = measured("name", "weight", ["800 g", "1.2 kg", "2 kg"]);
    let times = measured("name", "duration", ["90 min", "1 h", "2 hrs"]);
    let lengths = measured("name", "length", ["24 cm", "0.2 m", "32 cm"]);
    let chinese = measured("名称", "重量", ["800克", "1.2公斤", "2千克"]);
    let volumes = measured("名称", "容量", ["350毫升", "1.5升", "500毫升"]);
    // In some, the unit is that of the name.
    let named = measured("名称", "重量_千克", ["0.8", "1.2", "2"]);
    let mixed = measured("name", "size", ["500 g", "250 ml", "1 kg"]);
    for (table, utterance, rows) in [
        (&weights, "which is the heaviest?", &[2][..]),
        (&weights, "which is the lightest?", &[0]),
        (&weights, "which are under 1 kg?", &[0]),
        (&weights, "which are over 900 g?", &[2, 1]),
        (&weights, "which are under 1200 g?", &[0, 1]),
        (&weights, "which are under 900g?", &[0]),
        (&weights, "which are over 1.5kg?", &[2]),
        (&weights, "which are under 2 litres?", &[]),
        (&weights, "which are heavier than 1 kg?", &[2, 1]),
        (&weights, "what weighs more than 1000g?", &[2, 1]),
        (&weights, "which weighs least?", &[0]),
        (&times, "which lasts longer than 70 min?", &[2, 0]),
        (&times, "which are cheaper than 70 euros?", &[]),
        (&times, "which is the shortest?", &[1]),
        (&times, "which are under 90 minutes?", &[1, 0]),
        (&times, "which are over 1.5 h?", &[2, 0]),
        (&lengths, "which are longer than 25 cm?", &[2]),
        (&lengths, "which are longer than 5 hours?", &[]),
        (&chinese, "最重的是哪个", &[2]),
        (&chinese, "最轻的是哪个", &[0]),
        (&chinese, "1公斤以内的有哪些", &[0]),
        (&chinese, "三斤以上的有哪些", &[2]),
        (&chinese, "有没有超过1.5公斤的", &[2]),
        (&chinese, "重于1公斤的有哪些", &[2, 1]),
        (&chinese, "不到一公斤的有哪些", &[0]),
        (&volumes, "最大的是哪个", &[1]),
        (&volumes, "400毫升以上的有哪些", &[1, 2]),
        (&volumes, "一升以内的有哪些", &[0, 2]),
        (&named, "900克以下的有哪些", &[0]),
        (&mixed, "which is the biggest?", &[]),
        (&mixed, "which are under 600 g?", &[]),
    ] {
        let found = table.asked(utterance).map(|(rows, _)| rows).unwrap_or_default();
        assert_eq!(found, rows, "{utterance}");
    }
    assert!(operations::none_fits("which are under 700 g?", &weights.columns));
    assert!(!operations::none_fits("which are under 100 g?", &mixed.columns));
}

#[test]
fn of_two_columns_in_one_dimension_the_one_that_is_said_is_bounded() {
    let sizes = [("Alta", "90 cm", "2 m"), ("Voss", "1.2 m", "80 cm")];
    let sizes = sizes
        .map(|(item, wide, high)| row(&json!({ "name": item, "width": wide, "height": high })));
    let table = Table::new(sizes.into());
    let found = |text| table.asked(text).map(|(rows, _)| rows);
    assert_eq!(found("which have a width under 1 m"), Some(vec![0]));
    assert_eq!(found("which have a height under 1 m"), Some(vec![1]));
    assert_eq!(found("which are under 1 m"), None);
}
