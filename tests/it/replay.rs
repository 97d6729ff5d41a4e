//! Tests `turnstream replay` on real dialogues: the invariants of every run hold, runs repeat
//! themselves, and one that was cut short goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::read::GzDecoder;
use serde_json::Value;
use turnstream_formats::{self, Format, LoggedItem};
use turnstream_schemas::{DeadLetter, EventTime, Recorded, Response, Speaker, Turn};

use crate::{invariants, turnstream};

/// The number of dialogues that the tests replay; the whole file takes longer and shows no more.
const DIALOGUES: usize = 250;

/// Returns the data folder; `None` if there is none: then the test says so and is skipped.
fn data() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    let folder = std::env::var_os("TURNSTREAM_DATA").map_or(beside, PathBuf::from);
    let file = folder.join("dailydialog/validation.jsonl.gz");
    if !file.is_file() {
        eprintln!("SKIPPED: no real dialogues at {}; set TURNSTREAM_DATA", file.display());
        return None;
    }
    Some(file)
}

/// Writes the first dialogues of the file, not compressed.
pub(crate) fn dialogues(folder: &Path, count: usize) -> Option<PathBuf> {
    let mut text = String::new();
    let file = std::fs::File::open(data()?).expect("the file opens");
    GzDecoder::new(file).read_to_string(&mut text).expect("the file is gzip and UTF-8");
    let path = folder.join("dialogues.jsonl");
    let lines: String = text.split_inclusive('\n').take(count).collect();
    std::fs::write(&path, lines).expect("written");
    Some(path)
}

fn turns(log: &Path) -> Vec<Turn> {
    let items = turnstream_formats::open(Format::Dailydialog, log).expect("the log opens");
    let turns = items.map(|item| match item.expect("a dialogue") {
        LoggedItem::Turn(logged) => logged.turn,
        LoggedItem::Raw { .. } => unreachable!("a data set gives turns"),
    });
    turns.collect()
}

/// One run: its outputs, and the counts it printed.
struct ReplayRun {
    responses: String,
    recorded: String,
    history: String,
    counts: Value,
}

fn replay(log: &Path, folder: &Path, name: &str, flags: &[&str]) -> ReplayRun {
    replay_of(log, folder, name, &[&["--format", "dailydialog"], flags].concat())
}

fn replay_of(log: &Path, folder: &Path, name: &str, flags: &[&str]) -> ReplayRun {
    let file = |of: &str| folder.join(format!("{name}-{of}.jsonl"));
    let output = turnstream(&["replay", "--json"])
        .arg(log)
        .args(["--out".as_ref(), file("responses").as_os_str()])
        .args(["--out-recorded".as_ref(), file("recorded").as_os_str()])
        .args(["--out-history".as_ref(), file("history").as_os_str()])
        .args(flags)
        .output()
        .expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", output.status);
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    let last = printed.lines().last().expect("a last line");
    let read = |of: &str| std::fs::read_to_string(file(of)).expect("the file was written");
    ReplayRun {
        responses: read("responses"),
        recorded: read("recorded"),
        history: read("history"),
        counts: serde_json::from_str(last).expect("JSON"),
    }
}

fn parse<T: serde::de::DeserializeOwned>(lines: &str) -> Vec<T> {
    lines.lines().map(|line| serde_json::from_str(line).expect("a record")).collect()
}

#[test]
fn real_dialogues_keep_every_promise() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(log) = dialogues(folder.path(), DIALOGUES) else { return };
    // The graph says the selected facts, and does not only answer what is asked.
    let config = folder.path().join("graph.toml");
    std::fs::write(&config, "[sources.graph]\nkind = \"graph\"\nspeak = true\n").expect("written");
    let config = config.to_str().expect("text");
    let run = replay(&log, folder.path(), "one", &["--config", config]);
    let turns = turns(&log);
    let responses: Vec<Response> = parse(&run.responses);
    let recorded: Vec<Recorded> = parse(&run.recorded);

    every_input_ends_once(&run.counts, &turns, &responses, &recorded);
    history_is_causal(&turns, &responses);
    let records: Vec<Value> = parse(&run.responses);
    assert_eq!(invariants::responses_keep_the_schema(&records), responses.len());
    assert!(invariants::selected_facts_are_demanded(&responses) > 1_000);
    assert!(invariants::explicit_queries_are_their_spans(&turns, &responses) > 1_000);
    assert!(invariants::denied_facts_are_spoken_as_denied(&responses) > 0);
}

fn every_input_ends_once(
    counts: &Value,
    turns: &[Turn],
    responses: &[Response],
    recorded: &[Recorded],
) {
    assert_eq!(invariants::counts_are_conserved(counts), turns.len() as u64);
    let answered = responses.iter().map(|response| response.input.offset);
    let noted = recorded.iter().map(|recorded| recorded.input.offset);
    let mut ended: Vec<i64> = answered.chain(noted).collect();
    let rising = |offsets: &[i64]| offsets.is_sorted_by(|a, b| a < b);
    assert!(rising(&ended[..responses.len()]), "responses are written in input order");
    assert!(rising(&ended[responses.len()..]), "recorded turns are written in input order");
    ended.sort_unstable();
    let all: Vec<i64> = (0..turns.len() as i64).collect();
    assert_eq!(ended, all);
}

/// Checks that everything a response rests on was said before it, in its own conversation.
fn history_is_causal(turns: &[Turn], responses: &[Response]) {
    let mut said_at: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for (offset, turn) in (0..).zip(turns) {
        let id = turn.turn_id.as_ref().expect("the loader names every turn");
        said_at.insert((turn.conversation_id.as_str(), id.as_str()), offset);
    }
    let mut recalled = 0;
    for response in responses {
        let at = |id: &str| said_at[&(response.conversation_id.as_str(), id)];
        for entry in &response.history {
            assert!(at(entry.turn_id.as_str()) < response.input.offset, "{response:?}");
            recalled += 1;
        }
        for query in &response.demand.queries.explicit {
            assert!(at(query.turn.as_str()) <= response.input.offset, "{response:?}");
        }
    }
    assert!(recalled > responses.len(), "conversations have a past");
}

#[test]
fn replays_are_reproducible() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(log) = dialogues(folder.path(), DIALOGUES) else { return };
    let once = replay(&log, folder.path(), "once", &["--workers", "1"]);
    let again = replay(&log, folder.path(), "again", &["--workers", "1"]);
    assert!(once.responses == again.responses, "the same command twice gives the same bytes");
    assert!(once.history == again.history, "and the same history");
    let two = replay(&log, folder.path(), "two", &["--workers", "2"]);
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    assert!(lines(&once.responses) == lines(&two.responses), "two workers give what one gives");
    assert!(once.recorded == two.recorded);
}

#[test]
fn a_replay_that_was_killed_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(log) = dialogues(folder.path(), usize::MAX) else { return };
    let whole = replay(&log, folder.path(), "whole", &[]);

    let out = folder.path().join("cut-responses.jsonl");
    let mut child = turnstream(&["replay", "--format", "dailydialog"])
        .arg(&log)
        .args(["--out".as_ref(), out.as_os_str()])
        .args(["--out-recorded".as_ref(), folder.path().join("cut-recorded.jsonl").as_os_str()])
        .args(["--out-history".as_ref(), folder.path().join("cut-history.jsonl").as_os_str()])
        .spawn()
        .expect("it starts");
    let checkpoint = folder.path().join("cut-responses.jsonl.checkpoint");
    let written = || {
        let checkpoint: Value = serde_json::from_slice(&std::fs::read(&checkpoint).ok()?).ok()?;
        checkpoint["offset"].as_i64()
    };
    while written().is_none_or(|offset| offset < 500) {
        assert!(child.try_wait().expect("a child").is_none(), "it ended before it was killed");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().expect("killed");
    child.wait().expect("gone");

    let rest = replay(&log, folder.path(), "cut", &["--resume"]);
    let from = rest.counts["resumed_from"].as_u64().expect("a count");
    let inputs = rest.counts["inputs"].as_u64().expect("a count");
    assert!(from >= 500, "{}", rest.counts);
    assert_eq!(from + inputs, whole.counts["inputs"].as_u64().expect("a count"));
    assert!(rest.responses == whole.responses, "the files are those of a run in one go");
    assert!(rest.recorded == whole.recorded);
    assert!(rest.history == whole.history);
}

/// Turns of each data set that are replayed in bursts.
const BURST_TURNS: usize = 600;

/// Writes the dialogues as turns of our own, users' turns whole or in up to three fragments each.
/// In both logs the last words of a turn have its id and time.
fn logs_of_bursts(format: Format, log: &Path, folder: &Path) -> (PathBuf, PathBuf, usize) {
    let (mut whole, mut split, mut fragments) = (String::new(), String::new(), 0);
    let items = turnstream_formats::open(format, log).expect("the log opens");
    let turns = items.filter_map(|item| match item.expect("a dialogue") {
        LoggedItem::Turn(logged) => Some(logged.turn),
        LoggedItem::Raw { .. } => None,
    });
    for (at, turn) in turns.take(BURST_TURNS).enumerate() {
        let ms = 1_700_000_000_000 + at as i64 * 60_000;
        let turn = Turn { timestamp: Some(EventTime(ms)), ..turn };
        let line = |turn: &Turn| serde_json::to_string(turn).expect("JSON") + "\n";
        whole += &line(&turn);
        let words: Vec<&str> = turn.text.split(' ').collect();
        let parts = if turn.speaker == Speaker::User { words.len().min(1 + at % 3) } else { 1 };
        let size = words.len().div_ceil(parts);
        let parts: Vec<String> = words.chunks(size).map(|words| words.join(" ")).collect();
        // A fragment of blanks alone would be refused.
        let parts = match parts.iter().any(|part| part.trim().is_empty()) {
            true => vec![turn.text.clone()],
            false => parts,
        };
        for (nth, text) in parts.iter().enumerate() {
            let before = (parts.len() - 1 - nth) as i64;
            let mut part = Turn { text: text.clone(), ..turn.clone() };
            part.timestamp = Some(EventTime(ms - 700 * before));
            if before > 0 {
                part.turn_id = Some(format!("{at}.{nth}").as_str().into());
                fragments += 1;
            }
            split += &line(&part);
        }
    }
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("written");
        path
    };
    (file("whole.jsonl", &whole), file("split.jsonl", &split), fragments)
}

#[test]
fn fragments_are_answered_as_the_turn_that_they_make() {
    let Some(file) = data() else { return };
    let data = file.ancestors().nth(2).expect("the data's folder");
    for (format, file) in [
        (Format::Dailydialog, "dailydialog/validation.jsonl.gz"),
        (Format::Multiwoz, "multiwoz21/val.jsonl.gz"),
        (Format::Sgd, "sgd/dev.jsonl.gz"),
    ] {
        answered_alike(format, &data.join(file));
    }
}

fn answered_alike(format: Format, log: &Path) {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let (whole, split, fragments) = logs_of_bursts(format, log, folder);
    assert!(fragments > 150, "only {fragments} of {format}");
    let config = folder.join("bursts.toml");
    std::fs::write(&config, "[turns]\nburst_ms = 1500\n").expect("written");
    let config = config.to_str().expect("text");
    let run = |log: &Path, name: &str, workers: &str| {
        let flags = ["--format", "turns", "--config", config, "--workers", workers];
        replay_of(log, folder, name, &flags)
    };
    let (one, two) = (run(&split, "one", "1"), run(&split, "two", "2"));
    assert_eq!((&one.responses, &one.recorded), (&two.responses, &two.recorded));
    assert_eq!(one.history, two.history);
    let merged = one.counts["recorded_by_reason"]["merged_into"].as_u64();
    assert_eq!(merged, Some(fragments as u64), "each but the last of its turn");
    let said = |run: &ReplayRun| -> Vec<(String, String)> {
        let responses: Vec<Response> = parse(&run.responses);
        responses.into_iter().map(|response| (response.turn_id.0, response.text)).collect()
    };
    assert_eq!(said(&one), said(&run(&whole, "whole", "1")), "as if nobody had written in bursts");
}

#[test]
fn bad_lines_become_dead_letters_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log.jsonl");
    let mut file = std::fs::File::create(&log).expect("made");
    let lines: [&[u8]; 6] = [
        br#"{"conversation_id":"c","turn_id":"1","speaker":"user","text":"What is a dog?"}"#,
        b"\xff\xfe not text",
        b"not a turn",
        br#"{"conversation_id":"c","speaker":"user","text":""}"#,
        br#"{"conversation_id":"c","turn_id":"2","speaker":"system","text":"An animal."}"#,
        br#"{"conversation_id":"c","turn_id":"3","speaker":"user","text":"And a cat?","mood":1}"#,
    ];
    for line in lines {
        file.write_all(line).and_then(|()| file.write_all(b"\n")).expect("written");
    }
    let (out, dead) = (folder.path().join("out.jsonl"), folder.path().join("dead.jsonl"));
    let output = turnstream(&["replay", "--json"])
        .arg(&log)
        .args(["--out".as_ref(), out.as_os_str(), "--out-dead-letters".as_ref(), dead.as_os_str()])
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let counts: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(invariants::counts_are_conserved(&counts), 6);
    let letters: Vec<DeadLetter> = parse(&std::fs::read_to_string(&dead).expect("written"));
    let kept: Vec<&[u8]> =
        letters.iter().map(|letter| &*letter.value.as_ref().expect("bytes").0).collect();
    assert_eq!(kept, lines[1..4], "the bytes are those that came");
    let responses: Vec<Response> = parse(&std::fs::read_to_string(&out).expect("written"));
    assert_eq!(responses.len(), 2);
    assert_eq!(responses[1].extra["mood"], 1, "unknown fields are carried");
    assert_eq!(responses[1].history[0].turn_id.as_str(), "1");
}

#[test]
fn a_log_that_cannot_be_read_is_refused_as_a_whole() {
    let output =
        turnstream(&["replay", "no-such-log.jsonl", "--json"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(3));
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(said["error"].as_str().expect("an error").contains("no-such-log.jsonl"), "{said}");
}
