//! Tests what programs read of the logs: JSON from the first line to the last, one type for a key
//! in all lines, and few lines about a broker that is away.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::broker::{Afterwards, Broker};

/// How long a test waits without any progress before it gives up.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running `turnstream run` with its log in JSON.
struct Logging {
    process: Child,
    log: PathBuf,
    _kills: Afterwards,
}

impl Logging {
    fn start(folder: &Path, name: &str, config: &str) -> Self {
        let (toml, log) = (folder.join(name).with_extension("toml"), folder.join(name));
        std::fs::write(&toml, config).expect("written");
        let file = File::create(&log).expect("a file for the log");
        let mut run = crate::turnstream(&["run", "--log-format", "json", "--config"]);
        run.arg(&toml).stdout(file.try_clone().expect("a second handle")).stderr(file);
        let process = run.spawn().expect("the program starts");
        let mut kill = Command::new("kill");
        kill.args(["-KILL", &process.id().to_string()]);
        Self { process, log, _kills: Afterwards::run(&kill) }
    }

    /// Returns every line so far, each of which is JSON.
    fn lines(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(&self.log).expect("the log");
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        let lines = whole.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect()
    }

    fn count(&self, message: &str) -> usize {
        self.lines().iter().filter(|line| line["message"] == message).count()
    }

    fn wait_for(&self, message: &str, times: usize) {
        let started = Instant::now();
        while self.count(message) < times {
            assert!(started.elapsed() < PATIENCE, "{message:?}: {:#?}", self.lines());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn ends(mut self) -> (Option<i32>, Vec<Value>) {
        let code = self.process.wait().expect("it ends").code();
        (code, self.lines())
    }
}

/// Checks that each key has one JSON type in all lines.
fn check_types(lines: &[Value]) {
    let mut types: BTreeMap<&str, (&str, &Value)> = BTreeMap::new();
    for line in lines {
        for (key, value) in line.as_object().expect("an object") {
            let kind = match value {
                Value::Null => "null",
                Value::Bool(_) => "bool",
                Value::Number(_) => "number",
                Value::String(text) => {
                    assert!(!text.starts_with("Some(") && text != "None", "{key}: {line}");
                    "string"
                }
                Value::Array(_) => "array",
                Value::Object(_) => "object",
            };
            let (first, seen) = types.entry(key).or_insert((kind, line));
            assert_eq!(kind, *first, "`{key}` in\n{line}\nand in\n{seen}");
        }
    }
}

#[test]
fn an_unreachable_broker_is_logged_in_few_lines_of_json() {
    let test = "an_unreachable_broker_is_logged_in_few_lines_of_json";
    let Some(broker) = Broker::start_or_skip(test) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    broker.create_topics("", 2);
    let config = |group: &str, more: &str| {
        format!(
            "[models]\nembedder = \"none\"\n[log.kafka]\nbootstrap_servers = \"{}\"\n\
             group_id = \"{group}\"\ntransactional_id = \"{group}\"\n{more}",
            broker.bootstrap()
        )
    };
    let refused = config("refused", "[log.kafka.topics]\nturns = \"nowhere\"\n");
    let (code, lines) = Logging::start(folder.path(), "refused", &refused).ends();
    check_types(&lines);
    let last = lines.last().expect("a last line");
    assert_eq!((code, &last["exit_code"], &last["level"]), (Some(6), &6.into(), &"ERROR".into()));
    assert!(last["error"].as_str().is_some_and(|it| it.contains("topic `nowhere`")), "{last}");

    let mut serving = Logging::start(folder.path(), "serving", &config("serving", ""));
    serving.wait_for("assigned", 2);
    let began = Instant::now();
    broker.stop();
    serving.wait_for("Kafka fails; retrying", 1);
    // Long enough for all its clients to report it again and again.
    std::thread::sleep(Duration::from_secs(12));
    broker.start_again();
    serving.wait_for("Kafka has recovered", 1);
    let minutes = began.elapsed().as_secs() as usize / 60;
    let mut interrupt = Command::new("kill");
    assert!(interrupt.arg(serving.process.id().to_string()).status().expect("kill").success());
    let code = serving.process.wait().expect("it ends").code();
    let lines = serving.lines();
    check_types(&lines);
    assert_eq!(code, Some(0), "{lines:#?}");
    assert_eq!(serving.count("Kafka fails; retrying"), 1, "{lines:#?}");
    assert_eq!(serving.count("Kafka has recovered"), 1, "{lines:#?}");
    assert!(serving.count("Kafka still fails") <= minutes, "{lines:#?}");
    let address = broker.bootstrap();
    let about = lines.iter().filter(|line| line.to_string().contains(address));
    assert!(about.count() <= 2 + minutes, "each of them names the broker: {lines:#?}");
}

/// A key that is displayed (`%`, `?`) in one place and not in another is a string here and may be
/// a number there.
#[test]
fn a_key_of_a_log_line_is_a_string_everywhere_or_nowhere() {
    let mut displayed: BTreeMap<String, (bool, String)> = BTreeMap::new();
    let mut calls = 0;
    for file in sources(Path::new(env!("CARGO_MANIFEST_DIR"))) {
        let text = std::fs::read_to_string(&file).expect("a source file");
        let starts = text.match_indices("tracing::").filter_map(|(at, _)| {
            let (level, _) = text[at + 9..].split_once("!(")?;
            ["error", "warn", "info", "debug", "trace"].contains(&level).then_some(at)
        });
        for at in starts {
            calls += 1;
            let open = at + text[at..].find('(').expect("a call") + 1;
            for field in fields(&text[open..]) {
                let (key, value) = match field.split_once(" = ") {
                    Some((key, value)) => (key, value),
                    None => (field.trim_start_matches(['%', '?']), field),
                };
                let key = key.rsplit('.').next().unwrap_or(key);
                let is_displayed = value.starts_with(['%', '?']);
                let place = format!("{}: {field}", file.display());
                let (first, seen) =
                    displayed.entry(key.to_owned()).or_insert((is_displayed, place.clone()));
                assert_eq!(is_displayed, *first, "`{key}`: {place}, and {seen}");
            }
        }
    }
    assert!(calls > 50 && displayed.len() > 30, "{calls} calls, {displayed:?}");
}

/// Returns all Rust files of the engine.
fn sources(root: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = ["src", "operators"].map(|name| root.join(name)).into();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.extension() {
                None if path.is_dir() => folders.push(path),
                Some(extension) if extension == "rs" => files.push(path),
                _ => {}
            }
        }
    }
    files
}

/// Returns the fields of a call, up to its message.
fn fields(call: &str) -> Vec<&str> {
    let (mut fields, mut from, mut depth) = (Vec::new(), 0, 0);
    for (at, character) in call.char_indices() {
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth > 0 => depth -= 1,
            ',' if depth == 0 => {
                let field = call[from..at].trim();
                from = at + 1;
                fields.push(field);
            }
            '"' | ')' => break,
            _ => {}
        }
    }
    fields
}
