use turnstream_operators::sources::{SourceConfig, SourceKind};

use super::*;

/// A table of these lines, read; and the folder that they are in.
fn read(lines: &str) -> (Result<Tables, TableError>, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("goods.jsonl");
    std::fs::write(&file, lines).expect("written");
    let table = SourceConfig { file: Some(file), ..SourceConfig::of(SourceKind::Table) };
    (open(&[("goods".to_owned(), table)].into()), folder)
}

#[test]
fn a_table_is_read_line_by_line() {
    let (tables, _folder) = read("{\"item\": \"lamp\", \"price\": 49}\n\n{\"item\": \"chair\"}\n");
    let tables = tables.expect("tables");
    let table = &tables[&"goods".into()];
    assert_eq!(table.len(), 2);
    assert_eq!(table.row(0).expect("a row").text, "item = lamp, price = 49");
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
    let missing = SourceConfig {
        file: Some(PathBuf::from("nowhere/goods.jsonl")),
        ..SourceConfig::of(SourceKind::Table)
    };
    let error = open(&[("goods".to_owned(), missing)].into()).unwrap_err().to_string();
    assert!(error.starts_with("sources.goods.file: nowhere/goods.jsonl cannot be read"), "{error}");
}
