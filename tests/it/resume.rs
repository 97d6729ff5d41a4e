//! Tests `turnstream replay --resume`: a replay that was cut short goes on to the same bytes, and
//! one that cannot go on is refused before a file is touched.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::scripted_server::{Script, ScriptedServer};
use crate::turnstream;

/// The lines that a replay has when it is cut short. It reads 500 inputs at once, and waits for
/// more.
const BEFORE: usize = 560;
/// The fewest inputs that it has written everything about by then.
const WRITTEN: i64 = 120;

/// How long it may take to get there on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

const SAID: [&str; 9] = [
    "What do I need to bake bread?",
    "My dog barks at the umbrella whenever it rains.",
    "And what else does it need?",
    "Is a warm bed good for sleep?",
    "How do I clean a coffee machine?",
    "I would rather stay at the hotel by the sea.",
    "thank you",
    "Where can I read a book in the garden?",
    "Does the cat like that as well?",
];

/// Returns interleaved conversations, of users and agents, with turns that come twice, a demand to
/// forget, and lines that are no turns.
fn turns(count: usize) -> Vec<String> {
    let line = |at: usize| {
        let conversation = format!("c{}", at * at % 11);
        match at {
            _ if at % 97 == 5 => format!("line {at} is no turn"),
            _ if at % 211 == 3 => {
                json!({ "kind": "forget", "conversation_id": conversation, "turn_id": at.to_string() })
                    .to_string()
            }
            _ => {
                let speaker = if at % 5 == 2 { "system" } else { "user" };
                let id = if at % 53 == 20 { at - 11 } else { at }.to_string();
                json!({ "conversation_id": conversation, "turn_id": id, "speaker": speaker,
                        "text": SAID[at * 7 % SAID.len()] })
                .to_string()
            }
        }
    };
    (0..count).map(line).collect()
}

/// Returns the fixture of a public format, repeated: its conversation ids are made unique.
fn dialogues(count: usize) -> Vec<String> {
    let fixture = include_str!("../fixtures/formats/dailydialog.jsonl");
    fixture.lines().map(str::to_owned).cycle().take(count).collect()
}

/// A log that is fed to `turnstream replay`, and the flags that it is replayed with.
struct Replay<'a> {
    lines: Vec<String>,
    flags: &'a [&'a str],
    /// The outputs besides the responses.
    outputs: &'a [&'a str],
}

impl Replay<'_> {
    fn start(&self, folder: &Path, more: &[&str]) -> Child {
        let mut command = turnstream(&["replay", "-", "--json"]);
        for output in ["out"].iter().chain(self.outputs) {
            let file = folder.join(format!("{output}.jsonl"));
            command.arg(format!("--{output}")).arg(file);
        }
        command.args(self.flags).args(more).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started")
    }

    /// Replays all of it.
    fn run(&self, folder: &Path, more: &[&str]) -> Output {
        let mut child = self.start(folder, more);
        let mut stdin = child.stdin.take().expect("a pipe");
        let text: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        // A replay that is refused does not read it.
        let feeding = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
        let output = child.wait_with_output().expect("ended");
        let _ = feeding.join().expect("no panic");
        output
    }

    fn counts(&self, folder: &Path, more: &[&str]) -> Value {
        let output = self.run(folder, more);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}\n{errors}", output.status);
        let printed = String::from_utf8(output.stdout).expect("UTF-8");
        serde_json::from_str(printed.lines().last().expect("a line")).expect("JSON")
    }

    /// Replays some of it, until this signal cuts it short; returns its output.
    fn cut(&self, folder: &Path, signal: &str, more: &[&str]) -> Output {
        let mut child = self.start(folder, more);
        let mut stdin = child.stdin.take().expect("a pipe");
        let text: String = self.lines.iter().take(BEFORE).map(|line| format!("{line}\n")).collect();
        stdin.write_all(text.as_bytes()).expect("it reads");
        let checkpoint = folder.join("out.jsonl.checkpoint");
        let written = || {
            let text = std::fs::read(&checkpoint).ok()?;
            serde_json::from_slice::<Value>(&text).expect("replaced whole")["offset"].as_i64()
        };
        let begun = Instant::now();
        while written().is_none_or(|offset| offset < WRITTEN) {
            assert!(child.try_wait().expect("a child").is_none(), "it ended by itself");
            if begun.elapsed() > PATIENCE {
                child.kill().expect("killed");
                panic!("it does not say how far it got");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(sent.expect("kill").success());
        drop(stdin);
        child.wait_with_output().expect("ended")
    }
}

/// Returns the contents of the files in a folder.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("one").path());
    let read = paths.map(|path| {
        let name = path.strip_prefix(folder).expect("in it").to_owned();
        (name, std::fs::read(path).expect("read"))
    });
    read.collect()
}

fn append(path: &Path, bytes: &[u8]) {
    let mut file = std::fs::File::options().append(true).open(path).expect("there");
    file.write_all(bytes).expect("written");
}

fn assert_same(whole: &Path, cut: &Path) {
    let (whole, cut) = (files(whole), files(cut));
    assert_eq!(whole.keys().collect::<Vec<_>>(), cut.keys().collect::<Vec<_>>());
    for (name, bytes) in &whole {
        assert!(*bytes == cut[name], "{} is another file", name.display());
    }
}

/// Cuts a replay short by this signal, and resumes it.
fn goes_on(replay: &Replay<'_>, signal: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let [whole, cut] = ["whole", "cut"].map(|name| folder.path().join(name));
    for folder in [&whole, &cut] {
        std::fs::create_dir(folder).expect("made");
    }
    let all = replay.counts(&whole, &[]);
    let stopped = replay.cut(&cut, signal, &[]);
    if signal == "-TERM" {
        let said = String::from_utf8_lossy(&stopped.stderr);
        assert_eq!(stopped.status.code(), Some(1), "{said}");
        assert!(said.contains("continue with --resume"), "{said}");
    } else {
        // A partial line, as a kill in the middle of a write leaves it.
        append(&cut.join("out.jsonl"), br#"{"schema_version":1,"resp"#);
    }
    let rest = replay.counts(&cut, &["--resume"]);
    let number = |counts: &Value, name: &str| counts[name].as_i64().expect("a count");
    let from = number(&rest, "resumed_from");
    assert!(from >= WRITTEN, "{rest}");
    assert_eq!(from + number(&rest, "inputs"), number(&all, "inputs"), "{rest}");
    assert_same(&whole, &cut);
    let again = replay.run(&cut, &["--resume"]);
    assert_eq!(again.status.code(), Some(2), "there is nothing left to go on with");
    assert_same(&whole, &cut);
}

#[test]
fn a_log_of_turns_goes_on_where_it_was_cut_short() {
    goes_on(&Replay { lines: turns(700), flags: &[], outputs: &[] }, "-KILL");
}

#[test]
fn every_output_goes_on_where_it_was_cut_short() {
    let outputs = ["out-history", "out-recorded", "out-dead-letters"];
    let flags = ["--history", "generated", "--workers", "2"];
    goes_on(&Replay { lines: turns(700), flags: &flags, outputs: &outputs }, "-TERM");
}

#[test]
fn a_data_set_goes_on_where_it_was_cut_short() {
    let flags = ["--format", "dailydialog"];
    goes_on(&Replay { lines: dialogues(700), flags: &flags, outputs: &["out-recorded"] }, "-KILL");
}

#[test]
fn recorded_answers_go_on_with_their_replay() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let server = ScriptedServer::start(Script::Good);
    let config = format!("{}[generation]\nform = \"prompted\"\n", server.config());
    std::fs::write(file("prompted.toml"), config).expect("written");
    let config = file("prompted.toml");
    let replay = Replay { lines: turns(620), flags: &["--config", &config], outputs: &[] };
    let [whole, cut, read] = ["whole", "cut", "read"].map(|name| folder.path().join(name));
    for folder in [&whole, &cut, &read] {
        std::fs::create_dir(folder).expect("made");
    }
    replay.counts(&whole, &["--record-answers", &file("whole.jsonl")]);
    let record = ["--record-answers", &file("cut.jsonl")];
    replay.cut(&cut, "-KILL", &record);
    append(Path::new(&file("cut.jsonl")), br#"{"asked":"def"#);
    replay.counts(&cut, &[&record[..], &["--resume"]].concat());
    assert_same(&whole, &cut);
    let sorted = |name: &str| {
        let lines = BufReader::new(std::fs::File::open(file(name)).expect("there")).lines();
        let mut lines: Vec<String> = lines.map(|line| line.expect("UTF-8")).collect();
        lines.sort();
        lines
    };
    let recorded = sorted("whole.jsonl");
    assert!(recorded.len() > BEFORE / 2, "most turns are answered: {}", recorded.len());
    assert!(sorted("cut.jsonl") == recorded, "each answer once, as if it had not been cut short");

    let answers = ["--answers", &file("whole.jsonl")];
    replay.cut(&read, "-KILL", &answers);
    let asked = server.seen().len();
    std::fs::write(file("cut.jsonl"), recorded[1..].join("\n")).expect("written");
    let other = replay.run(&read, &["--answers", &file("cut.jsonl"), "--resume"]);
    let said = String::from_utf8_lossy(&other.stderr);
    assert_eq!(other.status.code(), Some(2), "{said}");
    assert!(said.contains("--answers is `checksum"), "{said}");
    replay.counts(&read, &[&answers[..], &["--resume"]].concat());
    assert_same(&whole, &read);
    assert_eq!(server.seen().len(), asked, "nobody was asked");
}

#[test]
fn what_cannot_be_resumed_is_refused_before_a_file_is_touched() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |replay: &Replay<'_>, more: &[&str], says: &str| {
        let before = files(folder.path());
        let output = replay.run(folder.path(), more);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(says), "`{says}` is missing in\n{said}");
        assert!(files(folder.path()) == before, "{more:?}: a file was touched");
    };
    let (lines, outputs) = (turns(700), ["out-recorded"]);
    let replay = Replay { lines: lines.clone(), flags: &[], outputs: &outputs };
    // A replay that came to its end. In issue 28, its 1,000 lines became 4.
    replay.counts(folder.path(), &[]);
    refused(&replay, &["--resume"], "out.jsonl.checkpoint: there is no such checkpoint");

    replay.cut(folder.path(), "-KILL", &[]);
    let other = Replay { lines: dialogues(700), flags: &[], outputs: &outputs };
    refused(&other, &["--resume"], "inputs are not those that were replayed: some of them differ");
    let fewer = Replay { lines: lines[..99].to_vec(), flags: &[], outputs: &outputs };
    refused(&fewer, &["--resume"], "inputs are not those that were replayed: the log has 99");
    refused(&replay, &["--resume", "--format", "sgd"], "--format is `sgd`");
    refused(&replay, &["--resume", "--history", "generated"], "began with `recorded`");
    let config = folder.path().join("other.toml");
    std::fs::write(&config, "[gate]\nthreshold = 0.25\n").expect("written");
    let config = config.display().to_string();
    refused(
        &replay,
        &["--resume", "--config", &config],
        "[gate] of the configuration is `checksum",
    );
    let history = folder.path().join("another.jsonl");
    std::fs::write(&history, "somebody's\n").expect("written");
    let history = history.display().to_string();
    refused(&replay, &["--resume", "--out-history", &history], "--out-history is `");
    refused(&replay, &["--resume", "--out-dead-letters", "x.gz"], "x.gz: only a plain file can");

    let out = folder.path().join("out.jsonl");
    let mut bytes = std::fs::read(&out).expect("read");
    bytes[9] ^= 1;
    std::fs::write(&out, bytes).expect("written");
    refused(&replay, &["--resume"], "out.jsonl: not the file that the replay wrote");
}

#[test]
fn responses_go_to_standard_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log.jsonl");
    let text: String = turns(40).iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(&log, text).expect("written");
    let replay = |flags: &[&str]| {
        let mut command = turnstream(&["replay"]);
        command.arg(&log).args(flags).current_dir(folder.path());
        command
    };
    let run = |flags: &[&str]| replay(flags).output().expect("started");
    assert!(run(&["--out", "out.jsonl"]).status.success());
    // What is not a file has no checkpoint beside it.
    let nowhere = run(&["--out", "/dev/null", "--json"]);
    assert!(nowhere.status.success(), "{}", String::from_utf8_lossy(&nowhere.stderr));
    let responses = std::fs::read(folder.path().join("out.jsonl")).expect("there");
    let streamed = run(&["--out", "-"]);
    assert!(streamed.stdout == responses, "nothing but the responses");
    assert!(String::from_utf8_lossy(&streamed.stderr).contains("40 inputs = "));
    let counted = run(&["--out", "-", "--json"]).stdout;
    let last = counted.strip_prefix(&*responses).expect("the responses first");
    assert_eq!(serde_json::from_slice::<Value>(last).expect("JSON")["inputs"], json!(40));
    let names: Vec<PathBuf> = files(folder.path()).into_keys().collect();
    assert_eq!(names, ["log.jsonl", "out.jsonl"].map(PathBuf::from), "no file is called -");

    for (flags, says) in [
        (["--out", "-", "--resume"].as_slice(), "can be neither resumed nor read again"),
        (&["--out-recorded", "-"], "only responses can go to standard output"),
    ] {
        let refused = run(flags);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains(says), "{said}");
    }
    // Does what `turnstream replay … --out - | head -n 1` does.
    let mut child = replay(&["--out", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut first = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut first).expect("read");
    assert!(responses.starts_with(first.as_bytes()) && first.ends_with('\n'));
    let ended = child.wait_with_output().expect("ended");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && !said.contains("error"), "{said}");
}
