//! Tests DCRAG, its baselines and its ablations as the configurations under `deploy/config/`: each
//! is valid, differs from DCRAG in what its name says, and asks a model exactly where it should;
//! the whole method on real dialogues, with a model that fails in every way; and users who give
//! orders.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use turnstream_schemas::Response;

use crate::scripted_server::{Script, ScriptedServer, Seen};
use crate::{invariants, replay, turnstream};

/// The number of dialogues of the real log.
const DIALOGUES: usize = 200;
/// Every configuration besides the defaults.
const METHODS: [&str; 13] = [
    "dcrag",
    "dcrag-without-queries",
    "dcrag-without-retrieval",
    "dcrag-without-revision",
    "dcrag-without-selection",
    "dcrag-without-thoughts",
    "dcrag-without-topics",
    "msdp",
    "qp-rag",
    "scg-qp",
    "simple",
    "t-rag",
    "vanilla",
];

fn shipped(method: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/config").join(format!("{method}.toml"))
}

fn read(method: &str) -> toml::Table {
    let text = std::fs::read_to_string(shipped(method)).expect("the configuration is there");
    text.parse().expect("TOML")
}

/// Returns every key with its value, `a.b.c = v`.
fn flat(table: &toml::Table) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let mut open: Vec<(String, toml::Value)> =
        table.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    while let Some((path, value)) = open.pop() {
        match value {
            toml::Value::Table(table) => {
                open.extend(table.into_iter().map(|(key, value)| (format!("{path}.{key}"), value)));
            }
            value => drop(keys.insert(format!("{path} = {value}"))),
        }
    }
    keys
}

#[test]
fn every_configuration_is_valid_and_here() {
    let folder = shipped("dcrag");
    let folder = folder.parent().expect("a folder");
    let mut there: Vec<String> = std::fs::read_dir(folder)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().replace(".toml", ""))
        .filter(|name| name != "turnstream")
        .collect();
    there.sort_unstable();
    assert_eq!(there, METHODS);
    for method in METHODS {
        let path = shipped(method).display().to_string();
        let output = turnstream(&["validate", "--config", &path]).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{method}: {said}");
    }
}

/// An ablation is DCRAG except for what it leaves out.
#[test]
fn an_ablation_differs_in_what_it_goes_without() {
    let whole = flat(&read("dcrag"));
    for (method, stages) in [
        ("dcrag-without-queries", &["query_production", "cross_revision"][..]),
        ("dcrag-without-retrieval", &["fact_retrieval", "fact_selection"]),
        ("dcrag-without-revision", &["cross_revision"]),
        ("dcrag-without-selection", &["fact_selection"]),
        ("dcrag-without-topics", &["topic_planning", "cross_revision"]),
    ] {
        let ablated = flat(&read(method));
        let is_of = |key: &str| stages.iter().any(|stage| key.starts_with(&format!("{stage}.")));
        let kept: BTreeSet<String> = whole.iter().filter(|key| !is_of(key)).cloned().collect();
        let off = stages.iter().map(|stage| format!("{stage}.form = \"off\""));
        assert_eq!(ablated, kept.into_iter().chain(off).collect(), "{method}");
    }
    let never: BTreeSet<String> = whole
        .iter()
        .map(|key| match key.split_once(".think = ") {
            Some((stage, _)) => format!("{stage}.think = \"never\""),
            None => key.clone(),
        })
        .collect();
    assert_eq!(flat(&read("dcrag-without-thoughts")), never);
}

/// A run of a log through a method with a scripted model: the responses, and the counts of the
/// replay.
pub(crate) struct MethodRun {
    pub(crate) responses: Vec<Value>,
    counts: Value,
    pub(crate) text: String,
}

pub(crate) fn run(config: &Path, log: &[&str], folder: &Path, flags: &[&str]) -> MethodRun {
    let out = folder.join("out.jsonl");
    let _ = std::fs::remove_file(&out);
    let output = turnstream(&["replay", "--json", "--config"])
        .arg(config)
        .args(log)
        .args(["--out".as_ref(), out.as_os_str()])
        .args(flags)
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}", config.display());
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    let counts = serde_json::from_str(printed.lines().last().expect("a line")).expect("JSON");
    let text = std::fs::read_to_string(&out).expect("responses");
    let responses = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    MethodRun { responses, counts, text }
}

/// Writes the method's configuration with this server in the place of its model, and `more` after
/// it.
fn with_server(method: &str, server: &ScriptedServer, more: &str, folder: &Path) -> PathBuf {
    let text = std::fs::read_to_string(shipped(method)).expect("the configuration is there");
    let (comments, rest) = text.split_once("[language_models.default]").expect("a model");
    let (_, stages) = rest.split_once("\n\n").expect("stages behind it");
    let path = folder.join(format!("{method}.toml"));
    let config = format!("{comments}{}{more}\n{stages}", server.config());
    std::fs::write(&path, config).expect("written");
    path
}

/// Checks in which stages each method asks its model, and from what it answers a turn about a dog
/// and an umbrella.
#[test]
fn each_method_asks_where_it_should() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log.jsonl");
    let turn = json!({
        "conversation_id": "one", "speaker": "user",
        "text": "My dog barks at the umbrella whenever rain falls.",
    });
    std::fs::write(&log, format!("{turn}\n")).expect("a log");
    let server = ScriptedServer::start(Script::Good);
    let mut asked_before = 0;
    let all = ["cross_revision", "fact_selection", "query_production", "topic_planning"];
    let unselected = ["cross_revision", "query_production", "topic_planning"];
    for (method, models, calls, has_facts) in [
        ("vanilla", &[][..], 1, false),
        ("msdp", &[], 2, false),
        ("t-rag", &[], 1, true),
        ("qp-rag", &["query_production"], 3, true),
        ("scg-qp", &["query_production"], 3, true),
        ("dcrag", &all, 7, true),
        ("dcrag-without-thoughts", &all, 5, true),
        ("dcrag-without-selection", &unselected, 6, true),
        ("dcrag-without-retrieval", &unselected, 6, false),
        (
            "dcrag-without-revision",
            &["fact_selection", "query_production", "topic_planning"],
            6,
            true,
        ),
        ("dcrag-without-queries", &["fact_selection", "topic_planning"], 4, true),
        ("dcrag-without-topics", &["fact_selection", "query_production"], 4, true),
    ] {
        let config = with_server(method, &server, "", folder.path());
        let log = [log.to_str().expect("UTF-8")];
        let run = run(&config, &log, folder.path(), &[]);
        let [response] = &run.responses[..] else { panic!("{method}: one response") };
        let response: Response = serde_json::from_value(response.clone()).expect("a response");
        assert!(response.degraded.is_empty(), "{method}: {:?}", response.degraded);
        let by_model: BTreeSet<String> =
            response.models.keys().map(|stage| stage.name().to_owned()).collect();
        let expected: BTreeSet<String> = models.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(by_model, expected, "{method}");
        // The model that wrote the response is named separately.
        assert_eq!(
            (&*response.model.name, response.model.prompt_hash.is_some()),
            ("default", true)
        );
        let selected = response.evidence.iter().filter(|evidence| evidence.selected).count();
        assert_eq!(selected > 0, has_facts, "{method}");
        assert!(selected <= 20, "{method}");
        let thoughts = &response.demand.thoughts;
        assert_eq!(!thoughts.generation.is_empty(), method == "msdp", "{method}: {thoughts:?}");
        let seen = server.seen();
        assert_eq!(seen.len() - asked_before, calls, "{method}");
        asked_before = seen.len();
    }
}

/// Sends two hundred real dialogues through DCRAG with its gate prompted too, and a model that
/// fails in every way: whatever it does, every turn is answered or accounted for, and the recorded
/// answers give the same bytes again.
#[test]
fn real_dialogues_through_every_prompted_stage_and_every_way_to_fail() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(dialogues) = replay::dialogues(folder.path(), DIALOGUES) else { return };
    let server = ScriptedServer::start(Script::Faulty);
    let config =
        with_server("dcrag", &server, "[source_planning]\nform = \"prompted\"\n", folder.path());
    let text = std::fs::read_to_string(&config).expect("written above");
    let text = text.replace("[gate]\nform = \"always\"", "[gate]\nform = \"prompted\"");
    let mut table: toml::Table = text.parse().expect("TOML");
    let planning = ["gate", "source_planning", "query_production", "topic_planning"];
    for stage in planning.into_iter().chain(["cross_revision", "fact_selection"]) {
        let section = table[stage].as_table_mut().expect("a section");
        let policy = match stage {
            "gate" | "topic_planning" => "lexical",
            "fact_selection" => "dead_letter",
            _ => "degrade",
        };
        section.insert("on_failure".to_owned(), policy.into());
        let prompted = section.entry("prompted").or_insert_with(|| toml::Table::new().into());
        let call: toml::Table = "timeout_ms = 2000\nattempts = 1".parse().expect("TOML");
        prompted.as_table_mut().expect("a section").insert("call".to_owned(), call.into());
    }
    std::fs::write(&config, table.to_string()).expect("written");

    let answers = folder.path().join("answers.jsonl");
    let answers = answers.to_str().expect("UTF-8");
    let log = ["--format", "dailydialog", dialogues.to_str().expect("UTF-8")];
    let first = run(&config, &log, folder.path(), &["--record-answers", answers]);
    invariants::counts_are_conserved(&first.counts);
    assert!(invariants::responses_keep_the_schema(&first.responses) > 400, "{}", first.counts);
    let degraded: BTreeMap<String, u64> =
        serde_json::from_value(first.counts["degraded"].clone()).expect("counts");
    for stage in planning.into_iter().chain(["cross_revision", "generation"]) {
        assert!(degraded.get(stage).is_some_and(|count| *count > 0), "{stage}: {degraded:?}");
    }
    let dead = &first.counts["dead_letters_by_stage"];
    assert!(dead["fact_selection"].as_u64().is_some_and(|count| count > 0), "{}", first.counts);
    let again = run(&config, &log, folder.path(), &["--answers", answers]);
    assert_eq!(again.counts["degraded"], first.counts["degraded"]);
    assert_eq!(again.text, first.text, "the same bytes without a model");
}

/// Returns the lines of a prompt outside of any fence. Panics if a fence is not closed by its own
/// line, or holds a line that is no item.
pub(crate) fn outside_fences(prompt: &str) -> Vec<&str> {
    let mut outside = Vec::new();
    let mut open: Option<String> = None;
    for line in prompt.lines() {
        match &open {
            Some(close) if line == close => open = None,
            Some(_) => assert!(line.starts_with("- "), "no item: {line:?} in\n{prompt}"),
            None => match line.strip_prefix("<<").and_then(|line| line.strip_suffix(">>")) {
                Some(name) => open = Some(format!("<</{name}>>")),
                None => outside.push(line),
            },
        }
    }
    assert!(open.is_none(), "a fence is open at the end of\n{prompt}");
    outside
}

/// Thirty users give orders, and write fences, ends of turns and answers. Their words stay behind
/// the fence in every prompt; a model that obeys them changes no more than a decision that the
/// policy makes instead, and its words where it writes.
#[test]
fn orders_of_users_stay_behind_the_fence() {
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/injections.jsonl");
    let log = [log.to_str().expect("UTF-8")];
    let folder = tempfile::tempdir().expect("a folder");
    for script in [Script::Good, Script::Obeys] {
        let server = ScriptedServer::start(script);
        let planned = "[source_planning]\nform = \"prompted\"\n";
        let config = with_server("dcrag", &server, planned, folder.path());
        let run = run(&config, &log, folder.path(), &[]);
        assert_eq!(run.counts["responses"], json!(30), "{}", run.counts);
        assert_eq!(invariants::responses_keep_the_schema(&run.responses), 30);
        let seen = server.seen();
        assert!(seen.len() >= 30 * 5);
        let mut behind = 0;
        for Seen { system, prompt } in &seen {
            assert!(!system.contains("BANANA"), "{system}");
            for line in outside_fences(prompt) {
                assert!(!line.contains("BANANA"), "{line:?} is outside in\n{prompt}");
            }
            behind += usize::from(prompt.contains("BANANA"));
        }
        assert_eq!(behind, seen.len(), "each order is there to be read");
        let responses = run.responses.iter().map(|response| {
            serde_json::from_value::<Response>(response.clone()).expect("a response")
        });
        for response in responses {
            let obeyed = script == Script::Obeys;
            assert_eq!(response.text == "BANANA", obeyed, "{}", response.text);
            // A word is no list of queries: the turn went on without the stage.
            assert_eq!(!response.degraded.is_empty(), obeyed, "{:?}", response.degraded);
            if obeyed {
                assert!(response.demand.queries.explicit.is_empty());
            }
        }
    }
}
