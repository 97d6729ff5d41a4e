//! Tests that a language model that fails says why, in every place where people look, and that its
//! output that is not prose reaches nobody. Everything goes through the client that serves, against
//! a server of the tests' own.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use turnstream_schemas::text::is_steering;
use turnstream_schemas::{FaultKind, Response, Stage};

use crate::scripted_server::{Script, ScriptedServer};
use crate::{invariants, turnstream};

const KEY_VARIABLE: &str = "TURNSTREAM_TEST_KEY";
const KEY: &str = "sk-hush-4711-hush";

/// Writes a log of `turns` turns, and a configuration whose generation asks this server.
fn prepare(folder: &Path, server: &ScriptedServer, turns: usize, model: &str, stage: &str) {
    let turn = |at| {
        let text = format!("Which tea is the calmest, and is number {at} any good?");
        let turn = json!({ "conversation_id": format!("c{at}"), "speaker": "user", "text": text });
        format!("{turn}\n")
    };
    std::fs::write(folder.join("log.jsonl"), (0..turns).map(turn).collect::<String>())
        .expect("a log");
    let config = format!("{}{model}\n[generation]\nform = \"prompted\"\n{stage}", server.config());
    std::fs::write(folder.join("prompted.toml"), config).expect("a configuration");
}

fn run(folder: &Path, args: &[&str]) -> Output {
    let ended = turnstream(args).current_dir(folder).env(KEY_VARIABLE, KEY).output();
    ended.expect("started")
}

/// Replays the log; returns its counts, its responses, and its log lines.
fn replay(folder: &Path, more: &[&str]) -> (Value, Vec<Response>, Vec<Value>) {
    let args = ["replay", "log.jsonl", "--config", "prompted.toml", "--out", "out.jsonl"];
    let ended = run(folder, &[&args[..], &["--json", "--log-format", "json"], more].concat());
    let said = String::from_utf8(ended.stderr).expect("UTF-8");
    assert!(ended.status.success(), "{said}");
    let printed = String::from_utf8(ended.stdout).expect("UTF-8");
    let counts = serde_json::from_str(printed.lines().last().expect("a line")).expect("counts");
    let read = |text: &str| -> Vec<Value> {
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let responses = std::fs::read_to_string(folder.join("out.jsonl")).expect("responses");
    invariants::responses_keep_the_schema(&read(&responses));
    let responses = read(&responses).into_iter();
    let responses = responses.map(|one| serde_json::from_value(one).expect("a response"));
    (counts, responses.collect(), read(&said))
}

/// Returns the one line of a log whose message begins with `message`.
fn line<'a>(lines: &'a [Value], message: &str) -> &'a Value {
    let is = |line: &&Value| line["message"].as_str().is_some_and(|it| it.starts_with(message));
    let found: Vec<&Value> = lines.iter().filter(is).collect();
    let [line] = found[..] else { panic!("{message}: {found:?} in {lines:#?}") };
    line
}

/// Checks that all reports of a server that answers so have these words, and not the key.
fn says_why(status: u16, body: &'static str, says: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let server = ScriptedServer::start(Script::Says(status, body));
    let key = format!("api_key_env = {KEY_VARIABLE:?}");
    prepare(folder.path(), &server, 5, &key, "on_failure = \"lexical\"\n");
    let recording = ["--record-answers", "answers.jsonl"];
    let (counts, responses, lines) = replay(folder.path(), &recording);
    assert_eq!((&counts["responses"], &counts["degraded"]), (&json!(5), &json!({"generation": 5})));
    let is_told = |text: &str| {
        for words in says {
            assert!(text.contains(words), "{words:?} is not in {text:?}");
        }
        assert!(!text.contains(KEY) && !text.contains(is_steering), "{text:?}");
        assert!(text.chars().count() < 1_200, "{text:?}");
    };
    for response in &responses {
        let [degraded] = &response.degraded[..] else { panic!("{:?}", response.degraded) };
        let fault = degraded.fault().expect("a reason");
        assert_eq!((fault.stage, fault.kind), (Stage::Generation, FaultKind::Error));
        is_told(&fault.reason);
    }

    // Reported before the first turn, then at the first of the kind, and no more within a minute.
    let probed = line(&lines, "the language model does not answer");
    let failed = line(&lines, "a model gave no usable answer");
    for said in [probed, failed] {
        assert_eq!((&said["level"], &said["model"]), (&json!("WARN"), &json!("default")));
        is_told(said["reason"].as_str().expect("a reason"));
    }
    assert_eq!((&failed["failures"], &failed["kind"]), (&json!(1), &json!("error")));
    assert_eq!(failed["stage"], json!("generation"));
    let place = |one: &Value| lines.iter().position(|line| line == one);
    assert!(place(probed) < place(failed));
    assert!(!lines.iter().any(|line| line.to_string().contains(KEY)), "{lines:#?}");

    let explained = run(folder.path(), &["explain", "out.jsonl"]);
    let tree = String::from_utf8(explained.stdout).expect("UTF-8");
    let bare = tree.replace(['│', '├', '└', '─'], " ");
    let bare = bare.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(bare.contains("degraded generation: failed, and the turn went on without"), "{tree}");
    is_told(bare.split_once("generation error: ").expect("a reason").1);

    let checked = run(folder.path(), &["models", "check", "--config", "prompted.toml", "--json"]);
    let printed: Value = serde_json::from_slice(&checked.stdout).expect("an object");
    assert_eq!(checked.status.code(), Some(1), "{printed}");
    assert_eq!(printed["language_models"][0]["answers"], json!(false));
    is_told(printed["language_models"][0]["reason"].as_str().expect("a reason"));

    // For a replay of recorded answers, the reason is the model's answer.
    drop(server);
    let (_, again, lines) = replay(folder.path(), &["--answers", "answers.jsonl"]);
    assert_eq!(again, responses);
    assert!(!lines.iter().any(|line| line["message"].to_string().contains("does not answer")));
}

#[test]
fn a_refused_key_is_logged_with_the_servers_message() {
    let body = "{\"error\":{\"message\":\"invalid api key: sk-hush-4711-hush \\u001b[2J\\u202e\"}}";
    says_why(401, body, &["401", "invalid api key: ********", "api_key_env"]);
}

#[test]
fn a_missing_path_is_logged_with_the_servers_message() {
    says_why(404, "{\"detail\":\"Not Found\"}", &["404", "Not Found", "base_url"]);
}

#[test]
fn an_html_page_is_logged_with_its_beginning() {
    let page = "<html>\r\n<title>Welcome to the intranet, sk-hush-4711-hush</title>";
    says_why(200, page, &["not an answer of a model", "Welcome to the intranet, ********"]);
}

#[test]
fn a_model_that_answers_is_logged_before_the_first_turn() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = ScriptedServer::start(Script::Writes(&[GOOD]));
    prepare(folder.path(), &server, 1, "", "");
    let (_, responses, lines) = replay(folder.path(), &[]);
    assert_eq!(line(&lines, "the language model answers")["model"], json!("default"));
    assert_eq!(responses[0].text, GOOD);
    for name in [&["default"][..], &[]] {
        let args = [&["models", "check", "--config", "prompted.toml"][..], name].concat();
        let checked = run(folder.path(), &args);
        let printed = String::from_utf8(checked.stdout).expect("UTF-8");
        assert!(checked.status.success() && printed.starts_with("default: answers"), "{printed}");
    }
    let nobody = run(folder.path(), &["models", "check"]);
    assert_eq!(nobody.status.code(), Some(2), "nothing is named, and nothing configured");
}

/// A text that a customer may read.
const GOOD: &str = "Chamomile tea is said to be the calmest.";

/// Checks that rubbish is asked for once more and the next answer is used; if that is rubbish too,
/// the policy decides.
fn is_not_said(rubbish: &'static str, says: &str) {
    let texts: &'static [&'static str] = Vec::leak(vec![rubbish, GOOD]);
    let always: &'static [&'static str] = Vec::leak(vec![rubbish]);
    // Pieces of a stream, and one attempt: asking once more does not count as an attempt.
    let model = "stream = \"always\"";
    let stage = "on_failure = \"lexical\"\n[generation.prompted.call]\nattempts = 1\n";
    for texts in [texts, always] {
        let folder = tempfile::tempdir().expect("a folder");
        let server = ScriptedServer::start(Script::Writes(texts));
        prepare(folder.path(), &server, 1, model, stage);
        let (_, responses, lines) = replay(folder.path(), &["--record-answers", "answers.jsonl"]);
        let [response] = &responses[..] else { panic!("{responses:?}") };
        assert_eq!(server.seen().len(), 2, "once more, and no more: {:?}", server.seen());
        if texts.len() == 2 {
            assert_eq!((&*response.text, response.degraded.len()), (GOOD, 0));
        } else {
            assert!(!response.text.is_empty() && response.text != rubbish.trim());
            assert!(!response.text.contains(is_steering), "{response:?}");
            let fault = response.degraded[0].fault().expect("a reason");
            assert_eq!((fault.stage, fault.kind), (Stage::Generation, FaultKind::Unfit));
            assert!(fault.reason.contains(says), "{}", fault.reason);
            assert_eq!(line(&lines, "a model gave no usable answer")["kind"], json!("unfit"));
        }
        let (_, again, _) = replay(folder.path(), &["--answers", "answers.jsonl"]);
        assert_eq!(again, responses, "without a model as well");
    }
}

#[test]
fn an_answer_without_words_is_not_sent() {
    is_not_said("", "wrote nothing");
    is_not_said(" \n ", "says nothing");
}

#[test]
fn a_fragment_of_json_is_not_said() {
    is_not_said("Sure: {\"answer\": \"Chamomile te", "JSON");
}

#[test]
fn a_value_of_a_program_is_not_said() {
    is_not_said("true", "not a sentence");
    is_not_said("null", "not a sentence");
}

#[test]
fn control_characters_are_not_said() {
    is_not_said("Chamomile \u{1b}[8mtea\u{7}.", "U+001B");
}

#[test]
fn what_turns_the_direction_of_writing_is_not_said() {
    is_not_said("Pay at \u{202e}moc.live//:sptth.", "U+202E");
}

#[test]
fn two_attempts_at_one_answer_are_not_said() {
    is_not_said(
        "Chamomile tea is said to be thChamomile tea is said to be the calmest.",
        "starts again",
    );
}
