//! Tests `turnstream eval generation` on the output of a replay: every figure by hand, and a judge
//! whose answers are recorded and read again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::turnstream;

/// The keys that are printed as JSON without a judge.
const KEYS: [&str; 20] = [
    "format",
    "n",
    "references",
    "tokenisation",
    "distinct_2",
    "distinct_2_of_300",
    "cdp",
    "cdf",
    "reference_facts",
    "bleu_1",
    "bleu_4",
    "rouge_1",
    "rouge_2",
    "rouge_l",
    "f1",
    "grounded_words",
    "grounded_responses",
    "evidence_words",
    "confidence",
    "intervals",
];

/// The keys that a judge adds.
const JUDGED: [&str; 9] = [
    "meep",
    "informativeness",
    "overall",
    "geo_mean",
    "context_relevance",
    "faithfulness",
    "answer_relevance",
    "ragas_geo_mean",
    "judge",
];

struct JudgedFolder(tempfile::TempDir);

impl JudgedFolder {
    /// Replays a log of ours with a graph that knows two facts.
    fn replayed() -> Self {
        let folder = Self(tempfile::tempdir().expect("a folder"));
        let said = [
            ("one", "user", "I drank coffee in the evening."),
            ("one", "system", "Tea would be calmer."),
            ("one", "user", "Which tea?"),
            ("one", "system", "Camomile tea."),
            ("two", "user", "My dog barks."),
        ];
        let lines = said.map(|(conversation, speaker, text)| {
            json!({ "conversation_id": conversation, "speaker": speaker, "text": text })
        });
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(folder.file("log.jsonl"), lines).expect("a log");
        let facts = "RelatedTo\ttea\tcoffee\t1.0\nIsA\tcamomile\ttea\t1.0\n";
        std::fs::write(folder.file("facts.tsv"), facts).expect("facts");
        let [facts, snapshot] = ["facts.tsv", "own.snapshot"].map(|name| folder.text(name));
        run(&["knowledge", "import", &facts, "--source", "own", "--out", &snapshot]);
        let config = format!("[knowledge]\nsnapshot = {snapshot:?}\n");
        std::fs::write(folder.file("config.toml"), config).expect("a configuration");
        let [log, out, config] =
            ["log.jsonl", "out.jsonl", "config.toml"].map(|name| folder.text(name));
        run(&["replay", &log, "--out", &out, "--config", &config]);
        folder
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    /// Writes the replay's responses with other words, evidence and confidences.
    fn rewrite(&self, name: &str, with: &[Value]) {
        let written = std::fs::read_to_string(self.file("out.jsonl")).expect("responses");
        assert_eq!(written.lines().count(), with.len());
        let lines = written.lines().zip(with).map(|(line, with)| {
            let mut response: Value = serde_json::from_str(line).expect("a response");
            for (key, value) in with.as_object().expect("an object") {
                response[key] = value.clone();
            }
            format!("{response}\n")
        });
        std::fs::write(self.file(name), lines.collect::<String>()).expect("written");
    }

    /// Measures responses, beside the log.
    fn measure(&self, responses: &str, arguments: &[&str]) -> Value {
        let [data, log, config] =
            [responses, "log.jsonl", "config.toml"].map(|name| self.text(name));
        let base = ["eval", "generation", "--data", &data, "--references", &log];
        let printed = run(&[&base[..], &["--config", &config, "--json"], arguments].concat());
        let last = printed.lines().last().expect("a line");
        serde_json::from_str(last).expect("a JSON object")
    }
}

fn run(arguments: &[&str]) -> String {
    let ended = turnstream(arguments).output().expect("started");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{arguments:?}: {said}");
    String::from_utf8(ended.stdout).expect("UTF-8")
}

fn evidence(text: &str, selected: bool) -> Value {
    json!({ "id": text, "source": "own", "text": text, "relevance": 0.5, "selected": selected })
}

fn keys(measured: &Value) -> BTreeSet<&str> {
    measured.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn figures_of_a_replay_are_those_computed_by_hand() {
    let folder = JudgedFolder::replayed();
    let own = folder.measure("out.jsonl", &[]);
    assert_eq!(keys(&own), BTreeSet::from(KEYS));
    assert_eq!((&own["n"], &own["references"]), (&json!(3), &json!(2)));
    assert_eq!(own["format"], "turns");

    let confidence = |kind: &str, value: f64| json!({ "kind": kind, "value": value });
    folder.rewrite(
        "by-hand.jsonl",
        &[
            json!({ "text": "Tea is calmer.", "confidence": confidence("mean_relevance", 0.25),
                    "evidence": [evidence("tea is warm", true), evidence("calm seas", false)] }),
            json!({ "text": "Camomile tea.", "confidence": confidence("mean_relevance", 0.75),
                    "evidence": [evidence("camomile is a plant", true)] }),
            json!({ "text": "", "confidence": confidence("lowest_logit", 7.5), "evidence": [] }),
        ],
    );
    let measured = folder.measure("by-hand.jsonl", &[]);
    let is = |name: &str, by_hand: f64| {
        let figure = measured[name].as_f64().unwrap_or_else(|| panic!("{name}: {measured}"));
        assert!((figure - by_hand).abs() < 1e-9, "{name} is {figure}, by hand {by_hand}");
    };
    // tea is calmer . / camomile tea . — seven tokens, five bigrams, no two alike.
    is("distinct_2", 5.0 / 7.0);
    assert_eq!(measured["distinct_2_of_300"], Value::Null, "there are three");
    // The first response joins coffee to tea, the second does so too and joins tea to camomile, the
    // third says nothing. Of five turns one names coffee, one camomile and three tea.
    is("cdp", 2.0 / 3.0);
    let of_one = (f64::ln(6.0 / 2.0) + f64::ln(6.0 / 4.0)) / 2.0;
    is("cdf", 3.0 * of_one / 3.0);
    // Against "Tea would be calmer ." and "Camomile tea .": of 7, 5, 3 and 1 n-grams 6, 3, 1 and 0
    // match; there are 7 tokens against 8.
    let brevity = f64::exp(1.0 - 8.0 / 7.0);
    is("bleu_1", brevity * 100.0 * 6.0 / 7.0);
    let precisions: f64 = (6.0 / 7.0) * (3.0 / 5.0) * (1.0 / 3.0) * 0.5;
    is("bleu_4", brevity * 100.0 * precisions.powf(0.25));
    // Two of three words against two of four, and all of them.
    is("rouge_1", (4.0 / 7.0 + 1.0) / 2.0);
    is("rouge_2", (0.0 + 1.0) / 2.0);
    is("rouge_l", (4.0 / 7.0 + 1.0) / 2.0);
    is("f1", (4.0 / 7.0 + 1.0) / 2.0);
    // Tea of "tea, calm"; tea and camomile, one from the history; nothing of the empty one.
    is("grounded_words", (0.5 + 1.0) / 2.0);
    is("grounded_responses", 0.5);
    is("evidence_words", 0.5);
    let kinds = json!({
        "lowest_logit": { "mean": 7.5, "n": 1 },
        "mean_relevance": { "mean": 0.5, "n": 2 },
    });
    assert_eq!(measured["confidence"], kinds);
    assert_eq!(measured["intervals"]["cdp"], json!([0.0, 1.0]), "of two conversations");

    // Without the log, the figures that need none are the same.
    let data = folder.text("by-hand.jsonl");
    let printed = run(&["eval", "generation", "--data", &data, "--json"]);
    let alone: Value = serde_json::from_str(&printed).expect("a JSON object");
    assert_eq!(keys(&alone), BTreeSet::from(KEYS));
    assert_eq!(alone["distinct_2"], measured["distinct_2"]);
    assert_eq!(alone["evidence_words"], measured["evidence_words"]);
    assert!(
        ["cdp", "bleu_1", "grounded_words"].iter().all(|name| alone[name].is_null()),
        "{alone}"
    );
    let said = run(&["eval", "generation", "--data", &data]);
    assert!(said.contains("distinct_2") && said.contains("lowest_logit: 7.5000"), "{said}");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let folder = JudgedFolder::replayed();
    let [data, facts] = ["out.jsonl", "facts.tsv"].map(|name| folder.text(name));
    std::fs::write(folder.file("other.jsonl"), "").expect("written");
    let other = folder.text("other.jsonl");
    for (arguments, code, says) in [
        (vec!["--data", &facts], 3, "facts.tsv:1: "),
        (vec!["--data", &other], 3, "has no response"),
        (vec!["--data", &data, "--references", &other], 3, "give --references the log"),
        (vec!["--data", &data, "--references", &data, "--judge", "nobody"], 3, "no user turn"),
        (vec!["--data", &data, "--answers", &other], 2, "name the judge"),
        (vec!["--data", &data, "--judge", "nobody"], 2, "--references"),
    ] {
        let arguments = [vec!["eval", "generation"], arguments].concat();
        let ended = turnstream(&arguments).output().expect("started");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
    let log = folder.text("log.jsonl");
    let unknown =
        ["eval", "generation", "--data", &data, "--references", &log, "--judge", "nobody"];
    let ended = turnstream(&unknown).output().expect("started");
    assert_eq!(ended.status.code(), Some(2));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("[language_models.nobody]"), "{said}");
}

#[test]
fn a_judge_of_this_process_judges_and_its_recorded_answers_judge_the_same() {
    let folder = JudgedFolder::replayed();
    let writer = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/language-model/tiny_model.py");
    let model = folder.text("tiny.gguf");
    let written = Command::new("python3").arg(writer).args([&model, "--whole"]).output();
    let Ok(written) = written else {
        assert!(std::env::var_os("CI").is_none(), "there is no python3");
        eprintln!("SKIPPED: a tiny model cannot be written without python3");
        return;
    };
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let mut config = std::fs::read_to_string(folder.file("config.toml")).expect("written");
    config.push_str(&format!("[language_models.tiny]\nkind = \"local\"\npath = {model:?}\n"));
    std::fs::write(folder.file("config.toml"), config).expect("a configuration");
    let helped = |text: &str| json!({ "text": text, "evidence": [evidence("tea is warm", true)] });
    let spoken = ["Camomile is calm.", "Tea.", "Dogs bark."].map(helped);
    folder.rewrite("judged.jsonl", &spoken);

    let answers = folder.text("answers.jsonl");
    let judge = ["--judge", "tiny", "--judged", "1"];
    let recorded = [&judge[..], &["--record-answers", &answers]].concat();
    let judged = folder.measure("judged.jsonl", &recorded);
    assert_eq!(keys(&judged), KEYS.into_iter().chain(JUDGED).collect());
    let by = &judged["judge"];
    assert_eq!((&by["name"], &by["n"]), (&json!("tiny"), &json!(1)));
    assert_eq!(by["prompts"].as_object().map(serde_json::Map::len), Some(6));
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("no number in {by}"));
    let lost = number(&by["unreadable"]) + number(&by["failed"]);
    assert!(number(&by["asked"]) >= 5 && lost < number(&by["asked"]), "{by}");
    // Constrained by the schema, even random weights write two numbers within their bounds.
    assert_eq!(by["n_of"]["overall"], json!(1), "{by}");
    assert!((0.0..=100.0).contains(&judged["overall"].as_f64().expect("judged")));

    std::fs::remove_file(&model).expect("removed");
    let read = [&judge[..], &["--answers", &answers]].concat();
    assert_eq!(folder.measure("judged.jsonl", &read), judged, "the same without the model");
    // Answers about other words do not apply to these.
    folder.rewrite("other.jsonl", &["Coffee.", "Cats.", "Rain."].map(helped));
    let data = folder.text("other.jsonl");
    let [log, config] = ["log.jsonl", "config.toml"].map(|name| folder.text(name));
    let base = ["eval", "generation", "--data", &data, "--references", &log, "--config", &config];
    let ended = turnstream(&[&base[..], &read].concat()).output().expect("started");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_ne!(ended.status.code(), Some(0), "{said}");
    assert!(said.contains("no answer to this question is recorded"), "{said}");
}
