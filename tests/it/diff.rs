//! Tests the comparison of two replays: it reports nothing where nothing changed, and otherwise
//! exactly the turns that an independent look at the responses finds.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::fronts::is_there;
use crate::turnstream;

/// The words of users, each in a conversation of its own.
const SAID: [&str; 7] = [
    "What is a violin?",
    "Can a dog fly?",
    "what time does the bakery open?",
    "I want to speak to a human",
    "thanks a lot",
    "My parcel is late.",
    "Where are books kept?",
];

fn run(args: &[&str]) -> (Option<i32>, String) {
    let output = turnstream(args).output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    let out = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.code().is_some_and(|code| code < 2), "{args:?}: {errors}");
    (output.status.code(), out)
}

/// Replays the turns, and returns the file of the responses.
fn replayed(folder: &Path, name: &str, config: &str) -> String {
    let path = |name: String| folder.join(name).display().to_string();
    let (log, out) = (path("log.jsonl".to_owned()), path(format!("{name}.jsonl")));
    let turn = |(at, text): (usize, &&str)| {
        let turn = json!({"conversation_id": format!("c{at}"), "turn_id": "t", "tenant_id": "shop",
                          "speaker": "user", "text": text});
        format!("{turn}\n")
    };
    std::fs::write(&log, SAID.iter().enumerate().map(turn).collect::<String>()).expect("written");
    let file = path(format!("{name}.toml"));
    std::fs::write(&file, config).expect("written");
    run(&["replay", &log, "--config", &file, "--out", &out]);
    out
}

fn responses(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(file).expect("responses");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn compared(args: &[&str]) -> (Option<i32>, Value) {
    let (code, out) = run(&[&["diff"], args, &["--json"]].concat());
    (code, serde_json::from_str(out.lines().last().expect("a line")).expect("JSON"))
}

fn counts(report: &Value, of: &str) -> Vec<(String, u64)> {
    let rows = report[of].as_array().expect("counts").iter();
    let row = |row: &Value| {
        (row["name"].as_str().expect("a name").to_owned(), row["count"].as_u64().expect("a count"))
    };
    rows.map(row).collect()
}

#[test]
fn the_same_configuration_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let a = replayed(folder.path(), "a", "");
    let b = replayed(folder.path(), "b", "");
    let (code, report) = compared(&[&a, &b, "--fail-over", "any->any > 0"]);
    assert_eq!((code, &report["compared"], &report["same"]), (Some(0), &7.into(), &7.into()));
    // A different score is no different answer; a missing turn is reported.
    let mut other = responses(&b);
    other[0]["gate"]["score"] = json!(0.123);
    other.pop();
    let lines: String = other.iter().map(|response| format!("{response}\n")).collect();
    std::fs::write(&b, lines).expect("written");
    let (_, report) = compared(&[&a, &b]);
    let figures = ["same", "numbers", "changed", "only_a", "only_b"].map(|of| &report[of]);
    assert_eq!(figures, [5, 1, 0, 1, 0].map(Value::from).each_ref(), "{report}");
}

#[test]
fn what_changed_is_found_with_the_stage_and_the_limits_hold() {
    let folder = tempfile::tempdir().expect("a folder");
    let a = replayed(folder.path(), "a", "");
    let path = |name: &str| folder.path().join(name).display().to_string();

    let b = replayed(folder.path(), "b", "[decision.hand_off]\nasked = false\n");
    let limits = ["--fail-over", "hand_off->any > 10%", "--fail-over", "answer->any > 0"];
    let (code, report) = compared(&[&[&*a, &*b], &limits[..]].concat());
    assert_eq!((code, report["exceeded"].clone()), (Some(1), json!(["hand_off->any > 10%"])));
    assert_eq!(counts(&report, "stages"), [("decision".to_owned(), 1)]);
    assert_eq!(counts(&report, "actions"), [("hand_off → ask".to_owned(), 1)]);
    assert_eq!(counts(&report, "tenants"), [("shop".to_owned(), 1)]);

    // With every fact spoken, the turns that differ are those with other words.
    let speak = "[sources.graph]\nkind = \"graph\"\nspeak = true\n";
    let b = replayed(folder.path(), "c", speak);
    let (changed, page, log) = (path("changed.jsonl"), path("page.html"), path("log.jsonl"));
    let (code, out) =
        run(&["diff", &a, &b, "--log", &log, "--out", &changed, "--report", &page, "--show", "1"]);
    assert_eq!(code, Some(0), "{out}");
    let of = |response: &Value| (response["action"].clone(), response["text"].clone());
    let pairs = responses(&a).into_iter().zip(responses(&b));
    let expected: BTreeSet<String> = pairs
        .filter(|(a, b)| of(a) != of(b))
        .map(|(a, _)| format!("{}/t", a["conversation_id"].as_str().expect("an id")))
        .collect();
    let found: Vec<Value> = responses(&changed);
    let turns = found.iter().map(|it| it["turn"].as_str().expect("a turn").to_owned());
    assert_eq!(turns.collect::<BTreeSet<_>>(), expected);
    assert!(expected.contains("c2/t") && !expected.contains("c3/t"), "{expected:?}");
    let opening = found.iter().find(|it| it["turn"] == "c2/t").expect("it changed");
    assert_eq!((&opening["stage"], &opening["user"]), (&json!("source_planning"), &json!(SAID[2])));
    assert_eq!(
        (&opening["a"]["action"], &opening["b"]["action"]),
        (&json!("ask"), &json!("answer"))
    );
    let text = std::fs::read_to_string(&page).expect("a page");
    assert!(text.contains(SAID[2]) && text.contains("ask → answer"), "{text}");
    let paths = found.len() * 2;
    assert_eq!(text.matches("<pre>response ").count(), paths, "how each response came about");
    a_browser_shows(&page, &compared(&[&a, &b]).1);
    assert_eq!(out.matches("  user  ").count(), 1, "{out}");
    assert!(out.contains("ask → answer"), "{out}");
}

/// Checks that the page shows, in a browser, the counts of `--json`.
fn a_browser_shows(page: &str, report: &Value) {
    let test = "what_changed_is_found_with_the_stage_and_the_limits_hold";
    let folder = tempfile::tempdir().expect("a folder");
    let profile = format!("--user-data-dir={}", folder.path().display());
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", &profile, page]);
    let Some(shown) = is_there(test, &mut browser) else { return };
    let shown = String::from_utf8(shown.stdout).expect("UTF-8");
    // The browser closes what the page leaves open.
    let cells = shown.split("<td").filter_map(|cell| cell.split_once('>')?.1.split('<').next());
    let cells: Vec<&str> = cells.map(str::trim).collect();
    for of in ["stages", "actions", "sources", "tenants"] {
        for (name, count) in counts(report, of) {
            let count = count.to_string();
            assert!(
                cells.windows(2).any(|row| row == [&name, &count]),
                "{name} {count} in {shown}"
            );
        }
    }
}

#[test]
fn an_invalid_limit_is_refused() {
    for limit in ["answer", "answer->reply > 1%", "answer->ask > x", "answer->ask > -1%"] {
        let output =
            turnstream(&["diff", "a", "b", "--fail-over", limit]).output().expect("starts");
        assert_eq!(output.status.code(), Some(2), "{limit}");
    }
}
