//! Tests the persona of a turn as a source of evidence, through the whole engine: found by words
//! and by meaning, omitted where no turn brings one, by words alone where the encoder fails, and
//! behind its fence where it gives orders.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};
use turnstream_engine::config::Config;
use turnstream_engine::dependencies::Dependencies;
use turnstream_engine::metrics::Metrics;
use turnstream_engine::serve::serve;
use turnstream_log::embedded::{EmbeddedConfig, EmbeddedLog, Isolation, Message};
use turnstream_log::{Ends, Topic};
use turnstream_models::batch::backends::Embeds;
use turnstream_models::batch::{Batched, Threads};
use turnstream_models::metrics::Task;
use turnstream_ports::model::encoder::{EncodeError, Encoded, Encoder};
use turnstream_schemas::{Evidence, Response, Speaker, Stage};

use crate::invariants::responses_keep_the_schema;
use crate::methods::outside_fences;
use crate::scripted_server::{Script, ScriptedServer, Seen};
use crate::turnstream;

/// An encoder with two dimensions: how much of a text is about the sea, and about bread. Fails on
/// "unspeakable".
struct Tastes;

impl Encoder for Tastes {
    fn name(&self) -> &str {
        "tastes"
    }

    fn fingerprint(&self) -> u64 {
        5
    }

    fn dimensions(&self) -> usize {
        2
    }

    fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
        for text in texts {
            if text.contains("unspeakable") {
                let (encoder, reason) = ("tastes".to_owned(), "asked for".to_owned());
                return Err(EncodeError { encoder, reason });
            }
            let has = |words: [&str; 2]| words.iter().any(|word| text.contains(word));
            vectors.extend(match (has(["ocean", "sail"]), has(["bake", "oven"])) {
                (true, false) => [1.0, 0.0],
                (false, true) => [0.0, 1.0],
                _ => [0.0, 0.0],
            });
        }
        Ok(Encoded::default())
    }
}

/// Returns the responses of the engine to turns, each in a conversation of its own, and the metrics
/// of the process.
fn answered(turns: &[(&str, &[&str])]) -> (Vec<Response>, String) {
    let mut config = Config::default();
    // Only vectors of this encoder, in batches of one, so that no turn fails with another's.
    config.models.embedder = "none".to_owned().into();
    config.models.batch_sequences = 1;
    config.gate.threshold = 0.0;
    config.embedding.call.attempts = 1;
    config.persona_retrieval.call.attempts = 1;
    config.persona_retrieval.max_sentence_bytes = 100;
    // One word of many scores little, and words count for less than meaning.
    config.persona_retrieval.min_score = 0.01;

    let log = EmbeddedConfig { partitions: 1, ..EmbeddedConfig::default() };
    let log = EmbeddedLog::in_memory(&log).expect("a log");
    let consumer = log.consumer("test", Topic::Turns).expect("a consumer");
    let producer = log.producer(&consumer, "test").expect("a producer");
    let metrics = Metrics::new(&config.metrics);
    let counted = metrics.models().model(Task::Embed).clone();
    let embeds = Embeds(Arc::new(Tastes));
    let batched = Batched::start(embeds, config.models.limits(), &Threads::new(2), counted);
    let embed = Some(Arc::new(batched.expect("threads")) as _);
    let parts = Dependencies::counted(&config, &metrics).expect("a pack");
    let parts = Dependencies { embed, ..parts };
    for (at, (text, persona)) in turns.iter().enumerate() {
        let conversation = format!("c{at}");
        let turn = json!({ "conversation_id": conversation, "turn_id": at.to_string(),
                           "speaker": "user", "text": text, "persona": persona });
        let message = Message { value: Some(turn.to_string().into_bytes()), ..Message::default() };
        log.append_together(Topic::Turns, conversation.as_bytes(), [message]).expect("appended");
    }
    log.seal(Topic::Turns);
    let ends = Ends::new(consumer, producer);
    let summary = serve(ends, &parts, 2, &AtomicBool::new(false)).expect("the log ends");
    assert!(summary.tally.is_conserved());

    let records = log.read(Topic::Traces, 0, 0, usize::MAX, Isolation::ReadCommitted);
    let records = records.expect("read").into_iter().filter_map(|record| record.value);
    let records: Vec<Value> =
        records.map(|value| serde_json::from_slice(&value).expect("JSON")).collect();
    assert_eq!(responses_keep_the_schema(&records), turns.len());
    let responses = records.into_iter().map(|it| serde_json::from_value(it).expect("a response"));
    let mut responses: Vec<Response> = responses.collect();
    responses.sort_by_key(|response| response.turn_id.as_str().to_owned());
    (responses, metrics.scrape().expect("metrics"))
}

fn of_persona(response: &Response) -> Vec<&Evidence> {
    response.evidence.iter().filter(|evidence| evidence.persona.is_some()).collect()
}

fn is_planned(response: &Response) -> bool {
    response.plan.0.iter().any(|source| source.as_str() == "persona")
}

#[test]
fn a_persona_is_evidence_where_a_turn_brings_one() {
    let long = format!("I bake {}.", "bread ".repeat(30));
    let persona = ["I sail at weekends.", "I bake rye bread.", "", &long];
    let broken = ["I bake rye bread.", "I keep an unspeakable secret."];
    let turns: [(&str, &[&str]); 5] = [
        ("What does the ocean do to bread?", &persona),
        ("What does the ocean do to bread?", &[]),
        ("What does the ocean do to bread?", &broken),
        ("Is the ocean deep?", &["My cat is grey."]),
        ("Is it nice?", &persona[..2]),
    ];
    let (responses, metrics) = answered(&turns);
    let [with, without, failing, unrelated, unspoken] = responses.as_slice() else {
        panic!("{responses:?}");
    };

    // One is found by meaning, the other by words.
    let found = of_persona(with);
    let told: Vec<_> = found.iter().map(|it| (&*it.id.0, it.source.as_str(), &*it.text)).collect();
    assert_eq!(
        told,
        [
            ("persona/1", "persona", "I sail at weekends."),
            ("persona/2", "persona", "I bake rye bread."),
        ]
    );
    for evidence in &found {
        let sentence = evidence.persona.as_ref().expect("a sentence");
        assert_eq!(sentence.describes, Speaker::User);
        assert!((0.01..=1.0).contains(&evidence.relevance.get()));
        assert!(!evidence.selected, "the realiser reads no persona aloud");
    }
    let parts = |at: usize| {
        let sentence = found[at].persona.as_ref().expect("a sentence");
        (sentence.by_words.is_some(), sentence.by_meaning.is_some())
    };
    assert_eq!((parts(0), parts(1)), ((false, true), (true, false)));
    assert!(is_planned(with) && with.degraded.is_empty());

    assert!(of_persona(without).is_empty() && !is_planned(without));
    assert!(!without.timings_us.contains_key(&Stage::PersonaRetrieval), "it passed by");
    for said in ["sail", "rye"] {
        assert!(!with.text.contains(said), "a persona is no fact of the world: {}", with.text);
    }

    // Found by words, and the dialogue has its vector all the same.
    assert_eq!(failing.degraded.len(), 1);
    assert!(failing.is_without(Stage::PersonaRetrieval));
    let found = of_persona(failing);
    assert_eq!(found.len(), 1);
    let sentence = found[0].persona.as_ref().expect("a sentence");
    assert_eq!((sentence.place, sentence.by_meaning), (1, None));
    assert!(sentence.by_words.is_some() && is_planned(failing));

    assert!(of_persona(unrelated).is_empty() && is_planned(unrelated), "asked, and nothing found");
    assert!(of_persona(unspoken).is_empty() && unspoken.degraded.is_empty());

    let counts = |line: &str| metrics.lines().any(|it| it == line);
    assert!(counts("turnstream_stage_turns_total{stage=\"persona_retrieval\"} 4"), "{metrics}");
    assert!(counts("turnstream_stage_degradations_total{stage=\"persona_retrieval\"} 1"));
    assert!(counts("turnstream_persona_sentences_passed_over_total 1"), "the long one: {metrics}");
}

/// Returns the responses of the program to turns, in order, under a configuration.
pub(crate) fn replayed(folder: &Path, turns: &[Value], config: &str) -> Vec<Response> {
    let file = |name: &str| folder.join(name).display().to_string();
    let lines: String = turns.iter().map(|turn| format!("{turn}\n")).collect();
    std::fs::write(file("log.jsonl"), lines).expect("a log");
    std::fs::write(file("t.toml"), config).expect("a configuration");
    let (log, config, out) = (file("log.jsonl"), file("t.toml"), file("out.jsonl"));
    let args = ["replay", &log, "--config", &config, "--out", &out];
    let ended = turnstream(&args).output().expect("started");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let responses = std::fs::read_to_string(&out).expect("responses");
    std::fs::remove_file(&out).expect("removed");
    responses.lines().map(|line| serde_json::from_str(line).expect("a response")).collect()
}

pub(crate) fn turn(conversation: usize, text: &str, persona: &[String]) -> Value {
    json!({ "conversation_id": conversation.to_string(), "speaker": "user", "text": text,
            "persona": persona })
}

#[test]
fn the_shipped_table_finds_a_sentence_that_shares_no_word_and_words_find_chinese() {
    let folder = tempfile::tempdir().expect("a folder");
    let persona = ["I am allergic to peanuts.", "I play the violin.", "I have two children."];
    let persona = persona.map(str::to_owned);
    let chinese = ["我住在北京。", "我喜欢喝咖啡。"].map(str::to_owned);
    let turns = [
        turn(0, "Which musical instrument is hard to learn?", &persona),
        turn(1, "早上喝什么咖啡好？", &chinese),
    ];
    let first = |config: &str| {
        let config = format!("[gate]\nform = \"always\"\n{config}");
        let responses = replayed(folder.path(), &turns, &config);
        responses
            .iter()
            .map(|response| of_persona(response).first().map(|found| found.text.clone()))
            .collect::<Vec<_>>()
    };
    let (violin, coffee) = (Some(persona[1].clone()), Some(chinese[1].clone()));
    assert_eq!(first(""), [violin, coffee.clone()]);
    assert_eq!(first("[persona_retrieval]\nform = \"bm25\"\n"), [None, coffee]);
    assert_eq!(first("[sources.graph]\nkind = \"graph\"\n"), [None, None]);
}

#[test]
fn orders_in_a_persona_stay_behind_the_fence() {
    let folder = tempfile::tempdir().expect("a folder");
    let orders = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/injections.jsonl");
    let orders = std::fs::read_to_string(orders).expect("orders");
    let turns: Vec<Value> = orders
        .lines()
        .enumerate()
        .map(|(at, line)| {
            let order: Value = serde_json::from_str(line).expect("JSON");
            let order = order["text"].as_str().expect("an order");
            let order = order.replace("<<dialogue", "<<persona").replace("</dialogue", "</persona");
            turn(at, "Do you know how bees live?", &[format!("I keep bees. {order}")])
        })
        .collect();
    for (script, kind) in [(Script::Good, "user_persona"), (Script::Obeys, "bot_persona")] {
        let server = ScriptedServer::start(script);
        let config = format!(
            "{}[models]\nembedder = \"none\"\n[gate]\nform = \"always\"\n\
             [persona_retrieval]\nmin_score = 0.0\n[sources.persona]\nkind = {kind:?}\n\
             [generation]\nform = \"prompted\"\n",
            server.config()
        );
        let responses = replayed(folder.path(), &turns, &config);
        assert_eq!(responses.len(), 30);
        let seen = server.seen();
        assert_eq!(seen.len(), 30, "generation alone asks");
        let who = if kind == "user_persona" { "user" } else { "you" };
        for Seen { system, prompt } in &seen {
            assert!(!system.contains("BANANA"), "{system}");
            for line in outside_fences(prompt) {
                assert!(!line.contains("BANANA"), "{line:?} is outside in\n{prompt}");
            }
            let (_, behind) = prompt.split_once("<<persona ").expect("a fence of its own");
            let item = behind.lines().nth(1).expect("an item");
            assert!(item.starts_with(&format!("- {who}: I keep bees. ")), "{item}");
            assert!(item.contains("BANANA"), "the order is there to be read: {item}");
        }
        for response in &responses {
            let [found] = of_persona(response)[..] else { panic!("{response:?}") };
            assert!(found.selected, "the writer was shown it");
            assert!(is_planned(response) && response.degraded.is_empty());
            assert_eq!(response.text == "BANANA", script == Script::Obeys, "{}", response.text);
        }
    }
}

/// Two exchanges that rest on the persona; the second user does not mention its subject.
const DIALOGUE: &str = r#"{"id":"a","persona":{"B0":"我 是 老师","B1":"我 喜欢 北京"},"persona_kg":{"B1":{"K0":"北京是首都"}},"conversation":[{"U":"你好","S":"你好","P-K":[]},{"U":"你 是老师吗","S":"是","P-K":[["B0"]]},{"U":"首都呢","S":"北京","P-K":[["B1"],["B1-K0"]]}]}
"#;

#[test]
fn the_stage_is_measured_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("dev.jsonl").display().to_string();
    std::fs::write(&data, DIALOGUE).expect("data");
    let eval = |more: &[&str]| {
        let base = ["eval", "retrieval", "--format", "kbp", "--data", &data, "--json"];
        let base = [&base[..], &["--retriever", "stage"], more].concat();
        let ended = turnstream(&base).output().expect("started");
        let printed = String::from_utf8(ended.stdout).expect("UTF-8");
        let last = printed.lines().last().expect("a line").to_owned();
        (ended.status.code(), serde_json::from_str::<Value>(&last).expect("JSON"))
    };
    let (code, figures) = eval(&["--form", "bm25"]);
    assert_eq!((code, &figures["n"], &figures["form"]), (Some(0), &json!(2), &json!("bm25")));
    // Nothing is found for the second, so the baseline takes the first sentence.
    assert_eq!((&figures["persona"], &figures["both_persona"]), (&json!(1.0), &json!(0.0)));
    assert_eq!((&figures["both_documents"], &figures["encoder"]), (&Value::Null, &Value::Null));
    let (code, figures) = eval(&["--form", "dense", "--encoder", "static"]);
    assert_eq!((code, &figures["encoder"]), (Some(0), &json!("static-en")), "{figures}");
    let (code, refused) = eval(&["--word-share", "2"]);
    assert!(code == Some(2) && refused.to_string().contains("--word-share is 2"), "{refused}");
}
