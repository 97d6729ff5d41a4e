use super::*;

/// The first text among the values.
fn first(values: &Map<String, Value>) -> Option<String> {
    values.values().find_map(|value| Some(value.as_str()?.to_owned()))
}

/// Reads the given lines; also returns their folder, to keep it alive.
fn read(lines: &str) -> (Result<Vec<String>, TableError>, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("goods.jsonl");
    std::fs::write(&file, lines).expect("written");
    (rows("goods", &file, first), folder)
}

#[test]
fn a_table_is_read_line_by_line() {
    let (rows, _folder) = read("{\"item\": \"lamp\", \"price\": 49}\n\n{\"item\": \"chair\"}\n");
    let rows = rows.expect("rows");
    assert_eq!(rows, ["lamp", "chair"]);
}

#[test]
fn a_table_of_csv_has_its_columns_in_the_first_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("goods.csv");
    let read = |text: &str| {
        std::fs::write(&file, text).expect("written");
        rows("goods", &file, |values| Some(serde_json::to_string(values).expect("JSON")))
    };
    let text = "\u{feff}item,price,made of\n\"lamp, small\",4.50,\nchair, 12 ,wood\n";
    assert_eq!(
        read(text).expect("rows"),
        [
            r#"{"item":"lamp, small","price":"4.50"}"#,
            r#"{"item":"chair","price":"12","made of":"wood"}"#,
        ]
    );
    let error = read("item,price\nlamp,4\nchair\n").expect_err("too few").to_string();
    assert!(error.contains("goods.csv:3: ") && error.contains("first line names"), "{error}");
}

#[test]
fn what_is_no_row_is_told_with_its_line() {
    for (lines, says) in [
        ("{\"item\": \"lamp\"}\n[1]\n", "goods.jsonl:2: "),
        ("{\"item\": []}\n", "goods.jsonl:1: no column"),
        ("{", "goods.jsonl:1: EOF"),
    ] {
        let error = read(lines).0.expect_err(says).to_string();
        assert!(error.contains(says), "{error}");
    }
    let error = rows("goods", Path::new("nowhere/goods.jsonl"), first).unwrap_err().to_string();
    assert!(error.starts_with("sources.goods.file: nowhere/goods.jsonl cannot be read"), "{error}");
}
