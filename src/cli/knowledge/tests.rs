use clap::Parser;
use serde_json::{Value, json};

use super::*;

#[derive(Parser)]
struct KnowledgeProgram {
    #[command(flatten)]
    args: KnowledgeArgs,
}

fn run(line: &[&str]) -> (anyhow::Result<()>, String) {
    let mut out = Vec::new();
    let program = KnowledgeProgram::try_parse_from([&["knowledge"], line].concat()).expect("usage");
    let result = execute(&program.args, &mut out);
    (result, String::from_utf8(out).expect("text"))
}

fn json_of(line: &[&str]) -> Value {
    let (result, out) = run(line);
    result.expect("success");
    serde_json::from_str(out.lines().last().expect("a line")).expect("one JSON object")
}

#[test]
fn an_import_can_be_asked_and_looked_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (facts, snapshot) = (path("facts.tsv"), path("facts.snapshot"));
    std::fs::write(
        &facts,
        "UsedFor\tcoffee\twake up\t2\nIsA\tcoffee\tdrink\t1\nbad\nDesires\tcat\tcoffee\t-1\n",
    )
    .expect("written");
    let imported = json_of(&["import", &facts, "--out", &snapshot, "--source", "x", "--json"]);
    assert_eq!((&imported["facts"], &imported["concepts"]), (&json!(3), &json!(4)));
    assert_eq!(imported["files"][0]["bad_lines"][0]["line"], 3);

    let stats = json_of(&["stats", &snapshot, "--json"]);
    let size = std::fs::metadata(&snapshot).expect("written").len();
    assert_eq!((&stats["facts"], &stats["concepts"]), (&json!(3), &json!(4)));
    assert_eq!((&stats["languages"], &stats["snapshot_bytes"]), (&json!(["en"]), &json!(size)));
    assert_eq!(stats["by_relation"]["Desires"], json!({ "facts": 1, "negated": 1 }));
    assert_eq!(stats["by_source"], json!({ "x": 3 }));
    let (result, text) = run(&["stats", &snapshot]);
    result.expect("success");
    assert!(text.contains("1  Desires, 1 denied") && text.contains(" 100%: 2"), "{text}");
    let line = ["lookup", "--query", "coffee", "--topic", "waking up", "--snapshot", &snapshot];
    let found = json_of(&[&line[..], &["--json"]].concat());
    let denied = json!({
        "head": "cat", "relation": "Desires", "tail": "coffee", "weight": 1.0,
        "negated": true, "source": "x", "text": "cat does not want coffee",
    });
    assert_eq!(found["foreseen"].as_array().map(Vec::len), Some(1));
    assert_eq!(found["foreseen"][0]["text"], "coffee is used for waking up");
    assert!(found["unforeseen"].as_array().is_some_and(|facts| facts.contains(&denied)));
    let (result, text) = run(&line);
    result.expect("success");
    assert!(text.contains("foreseen (1)") && text.contains("unforeseen (2)"), "{text}");
}

#[test]
fn a_pack_is_made_from_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (facts, pack) = (path("facts.tsv"), path("facts.tsv.zst"));
    std::fs::write(&facts, "IsA\tdog\tpet\t1\n").expect("written");
    let made = json_of(&["pack", &facts, "--out", &pack, "--json"]);
    assert_eq!(made["pack_bytes"], std::fs::metadata(&pack).expect("written").len());
    let (result, text) = run(&["import", &pack, "--out", &path("facts.snapshot")]);
    result.expect("success");
    assert!(text.contains("facts     1"), "{text}");
}

#[test]
fn a_refused_file_is_an_error_with_its_name() {
    let (result, out) = run(&["stats", "/nowhere/at.all"]);
    let error = result.expect_err("refused").to_string();
    assert!(error.contains("/nowhere/at.all") && out.is_empty(), "{error}");
}

#[test]
fn sources_and_languages_merge_under_their_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (english, chinese) = (path("en.tsv"), path("zh.tsv"));
    std::fs::write(&english, "IsA\tdog\tpet\t1\n").expect("written");
    std::fs::write(&chinese, "狗\t是\t宠物\n猫\t是\t宠物\n狗\t是\n").expect("written");
    let snapshot = path("both.snapshot");
    let line = [
        "import",
        &format!("{english},source=a"),
        &format!("{chinese},source=b,language=zh,format=triples"),
        "--memory-mib",
        "1",
        "--out",
        &snapshot,
        "--json",
    ];
    let imported = json_of(&line);
    assert_eq!(imported["files"][1]["bad_lines"][0]["line"], 3, "{imported}");
    let stats = json_of(&["stats", &snapshot, "--json"]);
    assert_eq!(stats["by_source"], json!({ "a": 1, "b": 2 }));
    assert_eq!(stats["by_language"]["zh"], json!({ "concepts": 3, "facts": 2 }));
    assert!(cfg!(not(target_os = "linux")) || stats["resident_bytes"].as_u64() > Some(0));
}

#[test]
fn two_snapshots_are_compared() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let import = |name: &str, facts: &str| {
        let (file, snapshot) = (path(&format!("{name}.tsv")), path(name));
        std::fs::write(&file, facts).expect("written");
        json_of(&["import", &file, "--out", &snapshot, "--json"]);
        snapshot
    };
    let a = import("a", "IsA\tdog\tpet\t1\ns\tcat\tpet\t1\nIsA\tcat\tpet\t2\nIsA\tox\tpet\t1\n");
    let b = import(
        "b",
        "IsA\tdog\tpet\t1\nUsedFor\tdog\tguard\t3\nIsA\tcat\tpet\t-2\nIsA\tox\tpet\t1\n",
    );
    let (result, text) = run(&["diff", &a, &b]);
    result.expect("success");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..3],
        [
            "~ 2 -> -2         cat IsA pet  [en, tsv]",
            "- 1               cat s pet  [en, tsv]",
            "+ 3               dog UsedFor guard  [en, tsv]",
        ]
    );
    assert!(text.ends_with("changed: 1\nsame: 2\n"), "{text}");
    let (result, text) = run(&["diff", &a, &b, "--limit", "1", "--json"]);
    result.expect("success");
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!((&lines[0]["a"], &lines[0]["b"]), (&json!(2.0), &json!(-2.0)));
    assert_eq!(lines[1], json!({ "only_a": 1, "only_b": 1, "changed": 1, "same": 2 }));
    let same = json_of(&["diff", &b, &b, "--json"]);
    assert_eq!(same, json!({ "only_a": 0, "only_b": 0, "changed": 0, "same": 4 }));
}
