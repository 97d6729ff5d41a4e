//! Tests tables that the program trains: `train persona` finds knowledge that shares no word with
//! the question, and `train consistency` judges responses in the flow, and those of several
//! sources.

use serde_json::{Value, json};

use crate::persona::{replayed, turn};
use crate::turnstream;

/// Dialogues in the format of KBP: a trade, a question about it, and the knowledge of it.
const TRADES: [(&str, &str, &str); 4] = [
    ("I mend clocks", "How late is it?", "Springs and wheels drive it."),
    ("I keep bees", "Is it sweet?", "Honey comes from combs."),
    ("I sail", "Is it windy?", "Ropes hold the canvas."),
    ("I bake", "Does it rise?", "Yeast needs warmth."),
];

fn dialogue(at: usize) -> Value {
    let (mine, other) = (TRADES[at % 4], TRADES[(at + 1 + at / 4 % 3) % 4]);
    let (first, second) = if at.is_multiple_of(2) { ("B0", "B1") } else { ("B1", "B0") };
    json!({
        "persona": { first: mine.0, second: other.0 },
        "persona_kg": { first: { "K0": mine.2 }, second: { "K0": other.2 } },
        "conversation": [{ "U": mine.1, "S": mine.1, "P-K": [[first], [format!("{first}-K0")]] }],
    })
}

fn lines(range: std::ops::Range<usize>) -> String {
    range.map(|at| format!("{}\n", dialogue(at))).collect()
}

/// Runs a command that must succeed; returns its JSON object.
fn run(arguments: &[&str]) -> Value {
    let ended = turnstream(arguments).output().expect("started");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    serde_json::from_slice(&ended.stdout).expect("a JSON object")
}

#[test]
fn what_belongs_together_is_learned_from_pairs() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(file("train.jsonl"), lines(0..60)).expect("written");
    std::fs::write(file("dev.jsonl"), lines(60..72)).expect("written");
    let (train, dev, table) = (file("train.jsonl"), file("dev.jsonl"), file("table.safetensors"));
    let learned = run(&[
        "train",
        "persona",
        "--format",
        "kbp",
        "--data",
        &train,
        "--out",
        &table,
        "--pieces",
        "300",
        "--dimensions",
        "16",
        "--epochs",
        "30",
        "--json",
    ]);
    assert_eq!(learned["dimensions"], 16);
    assert_eq!(learned["epochs"].as_array().expect("epochs").len(), 31);
    let kept = learned["kept"].as_u64().expect("a place") as usize;
    assert!(kept > 0, "{learned}");
    assert_eq!(learned["epochs"][kept]["held_out_right"], 1.0, "{learned}");

    let measured = |more: &[&str]| {
        let eval = ["eval", "persona", "--format", "kbp", "--data", &dev, "--json"];
        run(&[&eval[..], more].concat())
    };
    let (words, learned) = (measured(&[]), measured(&["--encoder", &table, "--word-share", "0"]));
    let right = |figures: &Value| figures["knowledge"]["both"]["value"].as_f64().expect("a share");
    assert!(right(&words) < 0.75, "words tell nothing here: {words}");
    assert!((right(&learned) - 1.0).abs() < 1e-9, "{learned}");

    let nothing = ["train", "persona", "--format", "kbp", "--data", "nowhere.jsonl", "--out", "t"];
    let refused = turnstream(&nothing).output().expect("started");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(3) && said.contains("nowhere.jsonl"), "{said}");
}

#[test]
fn a_judge_is_learned_and_judges_in_the_flow() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(file("train.jsonl"), lines(0..60)).expect("written");
    std::fs::write(file("dev.jsonl"), lines(60..72)).expect("written");
    let (train, dev, table) = (file("train.jsonl"), file("dev.jsonl"), file("judge.safetensors"));
    let data = ["--format", "kbp", "--data"];
    let learn = [&["train", "consistency"][..], &data, &[&train, "--out", &table]].concat();
    let learned = run(&[&learn[..], &["--epochs", "20", "--json"]].concat());
    assert_eq!(learned["responses"], 60);
    assert!(learned["calibration"]["slope"].as_f64().is_some_and(|slope| slope > 0.0), "{learned}");
    let measured = |more: &[&str]| {
        let eval = [&["eval", "consistency"][..], &data, &[&dev, "--json"], more].concat();
        run(&eval)
    };
    let (words, by_table) = (measured(&[]), measured(&["--table", &table, "--train", &train]));
    assert_eq!((&words["judge"], &by_table["judge"]), (&json!("lexical"), &json!("learned")));
    let auc = |figures: &Value| figures["same"]["auc"].as_f64().expect("an AUC");
    assert!(auc(&words) < 0.7 && auc(&by_table) > 0.95, "{words} {by_table}");
    // All evidence was in the training data.
    assert_eq!(by_table["unseen"]["n"], 0);

    // The table also judges responses from several sources, by the shipped model, which knows
    // nothing of this.
    let several = ["eval", "sources", "--data", &dev, "--train", &train, "--judge", &table];
    let several = |more: &[&str]| {
        run(&[&several[..], &["--model", "shipped", "--conversations", "3", "--json"], more]
            .concat())
    };
    let value = |row: &Value, of: &str| row[of]["value"].as_f64().expect("a figure");
    let table_of = several(&["--table"]);
    let rows = table_of["rows"].as_array().expect("rows");
    let row = |name: &str| rows.iter().find(|row| row["name"] == name).expect("the row");
    assert_eq!((rows.len(), &table_of["turns"]), (14, &json!(3)));
    // Every reply used a source, so that nothing is consistent if none is asked.
    assert!(value(row("no source"), "persona_consistency").abs() < 1e-9, "{table_of}");
    assert!(value(row("no source"), "knowledge_consistency").abs() < 1e-9, "{table_of}");
    let samples = file("samples.jsonl");
    let gold = several(&["--oracle", "plan,retrieval", "--samples", &samples]);
    let [alone] = &gold["rows"].as_array().expect("rows")[..] else { panic!("{gold}") };
    assert_eq!(alone["bleu_1"], row("gold plan and retrieval")["bleu_1"]);
    let samples = std::fs::read_to_string(&samples).expect("written");
    let first: Value = serde_json::from_str(samples.lines().next().expect("a line")).expect("JSON");
    assert_eq!(first["plan"], json!(["bot_persona", "documents"]), "{first}");
    assert_eq!(first["evidence"].as_array().map(Vec::len), Some(2), "{first}");
    let recall = ["eval", "retrieval", "--format", "kbp", "--data", &dev, "--retriever", "unified"];
    let recall = run(&[&recall[..], &["--model", "shipped", "--json"]].concat());
    assert_eq!((&recall["n"], &recall["model"]), (&json!(12), &json!("reader-en")), "{recall}");

    let lamps = file("lamps.jsonl");
    let rows = [json!({ "item": "Oslo lamp", "price": "$49" }), json!({ "item": "Oslo chair" })];
    std::fs::write(&lamps, rows.map(|row| format!("{row}\n")).concat()).expect("written");
    let config = format!(
        "[models]\nembedder = \"none\"\n[gate]\nform = \"always\"\n[generation]\nform = \"lexical\"\n\
         [sources.lamps]\nkind = \"table\"\nfile = {lamps:?}\n\
         [consistency]\nform = \"learned\"\ntable = {table:?}\n"
    );
    let turns = [turn(0, "What is the price of the Oslo lamp?", &[])];
    let responses = replayed(folder.path(), &turns, &config);
    let judged = responses[0].evidence.iter().filter(|it| it.selected);
    let judged: Vec<f64> = judged.filter_map(|it| it.consistency.map(|it| it.get())).collect();
    assert!(!judged.is_empty() && judged.iter().all(|of| (0.0..=1.0).contains(of)), "{judged:?}");

    // A table for something else is refused.
    let other = file("other.safetensors");
    let persona = [&["train", "persona"][..], &data, &[&train, "--out", &other, "--pieces", "300"]];
    run(&[&persona.concat()[..], &["--epochs", "1", "--json"]].concat());
    std::fs::write(file("t.toml"), config.replace(&table, &other)).expect("written");
    let refused = ["replay", &file("log.jsonl"), "--config", &file("t.toml")];
    let refused = turnstream(&refused).output().expect("started");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        refused.status.code() == Some(2) && said.contains("was not trained to judge"),
        "{said}"
    );
}
