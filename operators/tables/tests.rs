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
