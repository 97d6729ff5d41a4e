//! Tests `turnstream chat` as a script runs it: one turn per line.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use turnstream_schemas::{Response, Stage};

use crate::scripted_server::{Script, ScriptedServer};
use crate::{invariants, turnstream};

/// Runs a chat on the typed lines, and returns its output.
pub(crate) fn chat(args: &[&str], typed: &str) -> Output {
    let mut command = turnstream(&[&["chat", "--log-level", "off"], args].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("started");
    child.stdin.take().expect("a pipe").write_all(typed.as_bytes()).expect("read");
    child.wait_with_output().expect("ended")
}

/// Returns the responses and the counts of a chat with `--json`, and what it showed to a person.
pub(crate) fn printed(output: &Output) -> (Vec<Response>, Value, String) {
    let seen = String::from_utf8(output.stderr.clone()).expect("UTF-8");
    assert!(output.status.success(), "{}\n{seen}", output.status);
    let printed = std::str::from_utf8(&output.stdout).expect("UTF-8");
    let mut records: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let counts = records.pop().expect("counts");
    invariants::responses_keep_the_schema(&records);
    let responses = records.into_iter().map(|record| serde_json::from_value(record).expect("one"));
    (responses.collect(), counts, seen)
}

/// Returns a model that writes prose, and a configuration whose generation asks it.
pub(crate) fn prompted_generation(folder: &Path) -> (ScriptedServer, String) {
    let server = ScriptedServer::start(Script::Writes(&[
        "Chamomile tea is calmer than black tea, and a warm room helps as well: try both tonight.",
    ]));
    let config = format!(
        "{}[fact_selection]\nmax_selected = 3\n[generation]\nform = \"prompted\"\n\
         [generation.prompted.call]\ntimeout_ms = 600000\nattempts = 1\n",
        server.config()
    );
    let path = folder.join("prompted.toml");
    std::fs::write(&path, config).expect("a configuration");
    (server, path.display().to_string())
}

#[test]
fn a_pipe_is_answered_line_by_line_with_the_defaults() {
    let typed = "What is bread made of?\n\nthank you\n/explain\n/prompts\n/nothing\n";
    let output = chat(&["--persona", "I live by the sea."], typed);
    let shown = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(!shown.contains('\u{1b}'), "escape codes in a pipe: {shown:?}");
    let first = shown.lines().next().expect("a response");
    assert!(first.to_lowercase().contains("bread"), "{first}");
    // The path of the thank-you turn, with the words of the turns and the gate's threshold.
    for part in ["─ gate no retrieval: score 0.", "threshold 0.50", "─ turn thank you"] {
        assert!(shown.contains(part), "`{part}` is missing in\n{shown}");
    }
    assert!(shown.contains("\"What is bread made of?\""), "it is recalled: {shown}");
    assert!(shown.contains("(no language model was asked"), "{shown}");
    assert!(shown.contains("(unknown command /nothing"), "{shown}");

    let (responses, counts, _) = printed(&chat(&["--json"], "How do I clean a coffee machine?\n"));
    assert_eq!((responses.len(), invariants::counts_are_conserved(&counts)), (1, 1));
    assert!(responses[0].gate.retrieve && !responses[0].timings_us.is_empty());
    assert_eq!(responses[0].conversation_id.as_str(), "chat");
}

#[test]
fn a_chat_goes_on_where_it_was_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data").display().to_string();
    let say = |conversation: &str, typed: &str| {
        let args = ["--json", "--data", &data, "--conversation", conversation];
        printed(&chat(&args, typed)).0
    };
    let first = say("monday", "What do I need to bake bread?\n");
    let other = say("tuesday", "Is it going to rain?\n");
    assert!(other[0].history.is_empty(), "another conversation");
    let second = say("monday", "/explain\nWhat else does bread need?\n");
    let recalled: Vec<&str> = second[0].history.iter().map(|turn| turn.turn_id.as_str()).collect();
    assert_eq!(recalled, [first[0].turn_id.as_str()], "the chat of before is its history");
    assert_ne!(second[0].turn_id, first[0].turn_id);

    let explained = turnstream(&["explain", "--data", &data, "--turn"])
        .arg(format!("monday/{}", second[0].turn_id))
        .output()
        .expect("started");
    let tree = String::from_utf8(explained.stdout).expect("UTF-8");
    assert!(tree.contains(second[0].response_id.as_str()), "{tree}");
    assert!(tree.contains("\"What do I need to bake bread?\""), "its words are on the log: {tree}");
}

#[test]
fn an_unanswered_user_hears_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("short.toml");
    std::fs::write(&config, "[turns]\nmax_text_bytes = 10\n").expect("written");
    let config = config.display().to_string();
    let output = chat(&["--json", "--config", &config], "This is far too long.\nhello\n");
    let (responses, counts, seen) = printed(&output);
    assert_eq!((responses.len(), &counts["dead_letters"]), (1, &json!(1)));
    assert!(seen.contains("(a dead letter, since ingest could not serve it: "), "{seen}");
    assert!(seen.contains("max_text_bytes"), "{seen}");
}

#[test]
fn a_response_is_shown_while_a_model_writes_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_server, config) = prompted_generation(folder.path());
    let mut command = turnstream(&["chat", "--log-level", "off", "--json", "--config", &config]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("started");
    child.stdin.take().expect("a pipe").write_all(b"Which tea is calmer?\n").expect("read");
    let mut stderr = child.stderr.take().expect("a pipe");
    let (mut streamed, mut pieces, mut buffer) = (Vec::new(), Vec::new(), [0; 4096]);
    loop {
        let read = stderr.read(&mut buffer).expect("read");
        if read == 0 {
            break;
        }
        pieces.push(read);
        streamed.extend_from_slice(&buffer[..read]);
    }
    let mut output = child.wait_with_output().expect("ended");
    output.stderr = streamed;
    let (responses, _, seen) = printed(&output);
    let [response] = responses.as_slice() else { panic!("{responses:?}") };
    assert_eq!((&*response.model.name, response.degraded.is_empty()), ("default", true));
    assert_eq!(seen, format!("{}\n", response.text), "piece by piece the same text");
    // If the text were printed whole, the first piece would be all of it.
    assert!(pieces[0] < response.text.len(), "pieces of {pieces:?} bytes");
}

#[test]
fn prompts_of_a_chat_are_those_that_its_response_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_server, config) = prompted_generation(folder.path());
    let output = chat(&["--json", "--config", &config], "Which tea is calmer?\n/prompts\n");
    let (responses, _, seen) = printed(&output);
    let hash = responses[0].model.prompt_hash.as_deref().expect("a prompt");
    let head = format!("─ {} model default, prompt {hash}: this response's", Stage::Generation);
    assert!(seen.contains(&head), "`{head}` in\n{seen}");
    assert!(seen.contains("Which tea is calmer?") && seen.contains("<<dialogue "), "{seen}");
}
