//! Tests the learned gate from end to end: trained by the command, measured by the command, and
//! used in a replay; and the shipped one beside the rules.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::turnstream;

struct GateFolder(tempfile::TempDir);

impl GateFolder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.file(name), text).expect("written");
    }

    /// Writes instances of DSTC's shape in our own words: a guest asks about a thing, or does not.
    fn instances(&self, name: &str, places: std::ops::Range<usize>) {
        let things = ["pool", "garden", "sauna", "terrace", "library"];
        let asks = ["Is the {} of house H crowded?", "What do guests say about the {} of house H?"];
        let tells = ["Please book house H for us.", "Thank you, house H, that is all."];
        let lines = places.map(|at| {
            let needs = at.is_multiple_of(2);
            let asked = match needs {
                true => asks[at / 2 % 2].replace("{}", things[at % 5]),
                false => tells[at / 2 % 2].to_owned(),
            };
            let asked = asked.replace('H', &at.to_string());
            let turns = json!([{ "speaker": "U", "text": asked }]);
            format!("{}\n", json!({ "target": needs, "turns": turns }))
        });
        self.write(name, &lines.collect::<String>());
    }

    /// Writes the same turns in KBP's shape: who asks gets a reply that uses the persona.
    fn exchanges(&self, name: &str, places: std::ops::Range<usize>) {
        let lines = places.map(|at| {
            let asked =
                if at % 2 == 0 { "Is the pool crowded?" } else { "Thank you, that is all." };
            let used = if at % 2 == 0 { json!([["B0"]]) } else { json!([]) };
            let exchange = json!({ "U": asked, "S": "It is.", "P-K": used });
            let persona = json!({ "B0": "I like to swim." });
            format!("{}\n", json!({ "persona": persona, "conversation": [exchange] }))
        });
        self.write(name, &lines.collect::<String>());
    }

    /// Returns the responses of a replay of three turns with this configuration of the gate, and what it
    /// says on standard error.
    fn replay(&self, gate: &str) -> (Vec<Value>, String) {
        let said = ["Is the hotel quiet, and do guests like the pool?", "Thank you, bye.", "你好"];
        let lines = said.iter().enumerate().map(|(at, text)| {
            let turn =
                json!({ "conversation_id": at.to_string(), "speaker": "user", "text": text });
            format!("{turn}\n")
        });
        self.write("log.jsonl", &lines.collect::<String>());
        self.write("facts.tsv", "RelatedTo\tpool\twater\t1.0\n");
        let [facts, snapshot] = ["facts.tsv", "own.snapshot"].map(|name| self.text(name));
        run(&["knowledge", "import", &facts, "--source", "own", "--out", &snapshot]);
        self.write("config.toml", &format!("[knowledge]\nsnapshot = {snapshot:?}\n{gate}"));
        let [log, out, config] =
            ["log.jsonl", "out.jsonl", "config.toml"].map(|name| self.text(name));
        let [_, errors] = ran(&["replay", &log, "--out", &out, "--config", &config]);
        let written = std::fs::read_to_string(out).expect("responses");
        let responses = written.lines();
        (responses.map(|line| serde_json::from_str(line).expect("a response")).collect(), errors)
    }
}

/// Runs a command that must succeed; returns its output.
fn run(args: &[&str]) -> String {
    let [out, _] = ran(args);
    out
}

/// Runs a command that must succeed; returns its output, and what it says on standard error.
fn ran(args: &[&str]) -> [String; 2] {
    let done = turnstream(args).output().expect("it starts");
    let [out, errors] =
        [done.stdout, done.stderr].map(|said| String::from_utf8(said).expect("UTF-8"));
    assert!(done.status.success(), "{args:?}: {errors}");
    [out, errors]
}

fn last_line(printed: &str) -> Value {
    serde_json::from_str(printed.lines().last().expect("a line")).expect("a JSON object")
}

#[test]
fn a_gate_is_trained_measured_and_at_work() {
    let folder = GateFolder::new();
    folder.instances("train.jsonl", 0..240);
    folder.instances("dev.jsonl", 240..300);
    let data = format!("{},format=dstc11", folder.text("train.jsonl"));
    let gate = folder.text("own.zst");
    let shape =
        ["--width", "16", "--heads", "2", "--layers", "1", "--epochs", "12", "--batch", "8"];
    let train = ["train", "gate", "--data", &data, "--out", &gate, "--tokens", "words", "--json"];
    let shape = [&shape[..], &["--rate", "0.003", "--no-noise"]].concat();
    let made = last_line(&run(&[&train[..], &shape].concat()));
    assert_eq!(made["definitions"][0]["name"], "dstc11");
    assert_eq!(made["definitions"][0]["developed_on"]["turns"], 24);
    // A training that ends removes its state file.
    assert!(!folder.file("own.zst.training").exists());

    let dev = folder.text("dev.jsonl");
    let eval = ["eval", "gate", "--format", "dstc11", "--data", &dev, "--json", "--model", &gate];
    let measured = last_line(&run(&eval));
    assert_eq!((&measured["n"], &measured["positives"]), (&json!(60), &json!(30)));
    assert!(measured["auc"].as_f64().unwrap() > 0.95, "{measured}");
    // On another data set it is measured by the definitions that it has, with a warning unless a
    // threshold was chosen there.
    folder.exchanges("other.jsonl", 0..20);
    folder.exchanges("other-train.jsonl", 20..60);
    let [other, train] = ["other.jsonl", "other-train.jsonl"].map(|name| folder.text(name));
    let elsewhere =
        ["eval", "gate", "--format", "kbp", "--data", &other, "--json", "--model", &gate];
    let measured = last_line(&run(&elsewhere));
    assert!(measured["warning"].as_str().unwrap().contains("trained on dstc11"), "{measured}");
    assert_eq!(measured["threshold"], 0.5);
    let chosen = last_line(&run(&[&elsewhere[..], &["--threshold-from", &train]].concat()));
    assert!(chosen.get("warning").is_none() && chosen["threshold"] != 0.5, "{chosen}");
    assert_eq!(chosen["auc"], measured["auc"]);
    let own = [&elsewhere[..], &["--threshold-from", &other]].concat();
    assert!(!turnstream(&own).output().expect("it starts").status.success());

    let learned = format!("[gate]\nform = \"learned\"\n[gate.learned]\nmodel = {gate:?}\n");
    let (responses, errors) = folder.replay(&learned);
    assert!(errors.contains("eval gate --threshold-from"), "{errors}");
    let gates: Vec<&Value> = responses.iter().map(|response| &response["gate"]).collect();
    for gate in &gates[..2] {
        assert_eq!(gate["features"]["dstc11"], gate["score"], "{gate}");
    }
    // The gate has no Chinese: the rules decide, and say so.
    assert!(gates[2]["features"].get("dstc11").is_none(), "{}", gates[2]);
}

#[test]
fn by_source_the_shipped_gate_decides_where_rows_can_be_asked() {
    let folder = GateFolder::new();
    folder.write("trains.jsonl", "{\"from\":\"Ulm\",\"to\":\"Bern\",\"price\":\"$40\"}\n");
    let table = format!(
        "[gate]\nform = \"by_source\"\n[sources.trains]\nkind = \"table\"\nfile = {:?}\n",
        folder.text("trains.jsonl")
    );
    let (responses, _) = folder.replay(&table);
    let gates: Vec<&Value> = responses.iter().map(|response| &response["gate"]).collect();
    assert_eq!(gates[0]["features"]["sgd"], gates[0]["score"], "{}", gates[0]);
    assert_eq!(responses[0]["models"]["gate"]["name"], "gate-en", "{}", responses[0]);
    // By default every turn may ask for rows.
    let default = table.replace("by_source", "auto");
    let (responses_by_default, errors) = folder.replay(&default);
    assert!(!errors.contains("eval gate --threshold-from"), "{errors}");
    assert!(responses_by_default.iter().all(|it| it["gate"]["retrieve"] == true));
    // With the graph alone, which is asked if no source is named, the rules decide.
    let (responses, _) = folder.replay("");
    assert!(responses[0]["gate"]["features"].get("question").is_some(), "{}", responses[0]);
    assert!(responses[0]["models"].get("gate").is_none(), "{}", responses[0]);
}

#[test]
fn a_definition_that_the_gate_does_not_know_is_refused_by_name() {
    let folder = GateFolder::new();
    let gate = "[gate]\nform = \"learned\"\n[gate.learned]\ndefinitions = [\"multiwoz\"]\n";
    folder.write("config.toml", gate);
    folder.write("log.jsonl", "");
    let [log, config] = ["log.jsonl", "config.toml"].map(|name| folder.text(name));
    let done = turnstream(&["replay", &log, "--config", &config]).output().expect("it starts");
    let errors = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{errors}");
    assert!(errors.contains("multiwoz") && errors.contains("dstc11"), "{errors}");
}

#[test]
fn the_gate_that_ships_decides_by_the_definitions_asked_for_and_says_its_scores() {
    let learned = "[gate]\nform = \"learned\"\n";
    let (responses, _) = GateFolder::new().replay(learned);
    for response in &responses[..2] {
        let gate = &response["gate"];
        let scores = gate["features"].as_object().expect("scores");
        let names: Vec<&str> = scores.keys().map(String::as_str).collect();
        assert_eq!(names, ["dstc11", "sgd", "topical-chat"], "{gate}");
        let most = scores.values().filter_map(Value::as_f64).fold(0.0, f64::max);
        assert_eq!(gate["score"].as_f64(), Some(most));
        assert_eq!(gate["retrieve"], json!(most >= 0.5));
    }
    let asked = format!("{learned}[gate.learned]\ndefinitions = [\"dstc11\"]\n");
    let (responses, _) = GateFolder::new().replay(&asked);
    assert_eq!(responses[0]["gate"]["retrieve"], true);
    assert_eq!(responses[1]["gate"]["retrieve"], false);
    assert_eq!(responses[0]["models"]["gate"]["name"], "gate-en");
    assert_eq!(responses[0]["gate"]["threshold"], 0.5);
}

/// A small model of random weights in the layout of a released one, with an adapter.
fn instructed() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/models/gate/fixtures/instructed")
}

#[test]
fn a_language_model_with_an_adapter_decides() {
    let folder = GateFolder::new();
    let base = instructed().join("base");
    let gate = |adapter: &str, threshold: f64| {
        format!(
            "[gate]\nform = \"adapter\"\nthreshold = {threshold}\n[gate.adapter]\n\
             model = {base:?}\ndirectory = {adapter:?}\n"
        )
    };
    let adapter = instructed().join("adapter").display().to_string();
    let (responses, errors) = folder.replay(&gate(&adapter, 0.4));
    assert!(!errors.contains("--threshold-from"), "{errors}");
    for response in &responses[..2] {
        let gate = &response["gate"];
        assert_eq!(gate["features"]["dstc11"], gate["score"], "{gate}");
        assert_eq!(gate["retrieve"], gate["score"].as_f64().unwrap() >= 0.4, "{gate}");
        assert_eq!(response["models"]["gate"]["name"], "adapter", "{response}");
    }
    // The adapter has no Chinese: the rules decide, and say so.
    assert!(responses[2]["gate"]["features"].get("dstc11").is_none(), "{}", responses[2]);

    // An adapter that reads a reply cannot decide before there is one.
    let card = std::fs::read_to_string(instructed().join("adapter/gate.json")).expect("a card");
    std::fs::create_dir(folder.file("later")).expect("made");
    folder.write("later/gate.json", &card.replace("\"contx\"", "\"contx-resp-ner\""));
    folder.write("config.toml", &gate(&folder.text("later"), 0.5));
    let validate = ["validate", "--config", &folder.text("config.toml")];
    let refused = turnstream(&validate).output().expect("it starts");
    let said = [refused.stdout, refused.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(!refused.status.success() && said.contains("train one with contx"), "{said}");
}
