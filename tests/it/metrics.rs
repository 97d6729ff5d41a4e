//! Tests metrics and health as a scraper and an orchestrator see them, over HTTP and a loopback
//! address: they agree with the engine's own reports, with the documents, and with what is going
//! on.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnstream_engine::config::Config;
use turnstream_engine::dependencies::Dependencies;
use turnstream_engine::digests::Digests;
use turnstream_engine::metrics::server::{Observed as _, Server};
use turnstream_engine::metrics::{Metrics, MetricsConfig};
use turnstream_engine::serve::{Summary, serve};
use turnstream_engine::views::metrics::ViewsMetrics;
use turnstream_engine::views::{Publishing, ViewsConfig};
use turnstream_log::embedded::{EmbeddedConfig, EmbeddedLog, Message};
use turnstream_log::{Ends, Topic};
use turnstream_operators::generation::GenerationForm;
use turnstream_operators::prompted::Prompts;
use turnstream_ports::model::scripted::{Act, Line, Scripted};
use turnstream_ports::model::{Generate, GenerateRequest, Generated};

use crate::scraping::{find_sum, get, probe, samples, sum};
use crate::turnstream;

const ANY_PORT: &str = "127.0.0.1:0";
const PATIENCE: Duration = Duration::from_secs(120);

/// Asks until the answer is as wanted.
fn wait_for<T: PartialEq + std::fmt::Debug>(wanted: &T, mut ask: impl FnMut() -> T) {
    let started = Instant::now();
    loop {
        let got = ask();
        if got == *wanted {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{got:?}, never {wanted:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// An engine over a log in memory, with its metrics served.
struct ServedMetrics {
    log: EmbeddedLog,
    server: Server,
    metrics: Metrics,
    engine: JoinHandle<Summary>,
}

impl ServedMetrics {
    fn start(config: &Config, generate: Option<Arc<Generate>>) -> Self {
        let log = EmbeddedConfig { partitions: 2, ..EmbeddedConfig::default() };
        let log = EmbeddedLog::in_memory(&log).expect("a log");
        let consumer = log.consumer("test", Topic::Turns).expect("a consumer");
        let producer = log.producer(&consumer, "test").expect("a producer");
        let knowledge = Box::new(log.follower(Topic::Knowledge));
        let ends = Ends { knowledge: Some(knowledge), ..Ends::new(consumer, producer) };
        let metrics = Metrics::new(&config.metrics);
        let server = Server::start(ANY_PORT.parse().expect("an address"), metrics.clone());
        let server = server.expect("a free port");
        assert_eq!(probe(server.address(), "/live"), (200, vec![]), "starting");
        let (status, failing) = probe(server.address(), "/ready");
        assert_eq!((status, failing), (503, vec!["serving".to_owned(), "assigned".to_owned()]));
        let language_models =
            generate.map(|model| ("default".to_owned(), model)).into_iter().collect();
        let dependencies = Dependencies {
            metrics: metrics.clone(),
            language_models,
            ..Dependencies::new(config).expect("a pack")
        };
        let engine = std::thread::spawn(move || {
            serve(ends, &dependencies, 2, &AtomicBool::new(false)).expect("the log ends")
        });
        Self { log, server, metrics, engine }
    }

    fn append(&self, key: &str, values: impl IntoIterator<Item = String>) {
        let message =
            |value: String| Message { value: Some(value.into_bytes()), ..Message::default() };
        let messages = values.into_iter().map(message);
        self.log.append_together(Topic::Turns, key.as_bytes(), messages).expect("appended");
    }

    fn scrape(&self) -> BTreeMap<String, f64> {
        let (status, text) = get(self.server.address(), "/metrics");
        assert_eq!(status, 200);
        samples(&text)
    }
}

fn turn(conversation: &str, text: &str) -> String {
    json!({"conversation_id": conversation, "speaker": "user", "text": text}).to_string()
}

/// Serves all conversations of the demo to the end.
fn demo_served() -> (Summary, Metrics, Server) {
    let served = ServedMetrics::start(&Config::default(), None);
    for (key, file) in [
        ("parcel", include_str!("../../src/cli/demo/conversations/parcel.jsonl")),
        ("chatty", include_str!("../../src/cli/demo/conversations/chatty.jsonl")),
        ("returning", include_str!("../../src/cli/demo/conversations/returning.jsonl")),
    ] {
        served.append(key, file.lines().map(str::to_owned));
    }
    // Wait until everything is read, by the lag of the log itself.
    wait_for(&Some(0), || find_sum(&served.scrape(), "turnstream_partition_lag"));
    wait_for(&(200, vec![]), || probe(served.server.address(), "/ready"));
    served.log.seal(Topic::Turns);
    let ServedMetrics { engine, metrics, server, .. } = served;
    (engine.join().expect("the engine ends"), metrics, server)
}

#[test]
fn what_is_counted_is_what_the_engine_says() {
    let (summary, _metrics, server) = demo_served();
    let (_, text) = get(server.address(), "/metrics");
    let samples = samples(&text);
    let total = |metric: &str| sum(&samples, &format!("turnstream_{metric}_total"));
    let tally = &summary.tally;
    assert!(tally.responses > 20 && tally.recorded > 3 && tally.dead_letters > 0, "{tally:?}");
    assert_eq!(total("inputs"), tally.inputs);
    assert_eq!(total("responses"), tally.responses);
    assert_eq!(total("recorded"), tally.recorded);
    assert_eq!(total("dead_letters"), tally.dead_letters);
    assert_eq!(total("inputs"), total("responses") + total("recorded") + total("dead_letters"));
    for (metric, expected) in [
        ("inputs_given_back", 0),
        ("inputs_skipped", summary.skipped),
        ("late_answers", summary.late_answers),
        ("stale_outcomes", summary.stale),
        ("stage_errors", 0),
    ] {
        assert_eq!(total(metric), expected, "{metric}");
    }
    for (reason, count) in &tally.recorded_by_reason {
        let name = format!("turnstream_recorded_total{{reason=\"{reason}\"}}");
        assert_eq!(samples[&name] as u64, *count, "{name}");
    }
    let refused = "turnstream_dead_letters_total{stage=\"ingest\",kind=\"invalid\"}";
    assert_eq!(samples[refused] as u64, tally.dead_letters);
    for (decision, count) in [("retrieve", tally.gate.retrieve), ("skip", tally.gate.skip)] {
        let name = format!("turnstream_gate_decisions_total{{decision=\"{decision}\"}}");
        assert_eq!(samples[&name] as u64, count, "{name}");
    }
    assert_eq!(sum(&samples, "turnstream_commit_outcomes_sum"), tally.inputs);
    assert_eq!(
        sum(&samples, "turnstream_commit_duration_seconds_count"),
        sum(&samples, "turnstream_commit_outcomes_count"),
    );
    assert_eq!(sum(&samples, "turnstream_inputs_in_flight"), 0);
    assert_eq!(samples["turnstream_partition_events_total{event=\"assigned\"}"], 2.0);
    assert_eq!(sum(&samples, "turnstream_restore_duration_seconds_count"), 2);

    let passed = |stage: &str| {
        let turns = samples[&format!("turnstream_stage_turns_total{{stage=\"{stage}\"}}")];
        let timed = format!("turnstream_stage_duration_seconds_count{{stage=\"{stage}\"}}");
        assert_eq!(turns, samples[&timed], "{stage}: every passage is timed");
        let inside = format!("turnstream_stage_in_progress{{stage=\"{stage}\"}}");
        assert_eq!(samples[&inside], 0.0, "{stage}: nobody is left inside");
        turns as u64
    };
    // A turn that was superseded while it was answered went through the stages, too.
    assert_eq!(passed("gate"), tally.responses + summary.late_answers);
    assert_eq!(passed("generation"), passed("gate"));
    let retrieving = passed("embedding");
    assert!((tally.gate.retrieve..=passed("gate")).contains(&retrieving));
    assert_eq!(passed("source_planning"), retrieving);
    // The other turns ask for nothing that the graph could answer.
    let asking = passed("query_production");
    assert!((1..retrieving).contains(&asking), "{asking} of {retrieving}");
    for stage in ["topic_planning", "cross_revision", "fact_retrieval", "fact_selection"] {
        assert_eq!(passed(stage), asking, "{stage}");
    }
}

#[test]
fn an_engine_that_ended_is_not_ready_and_lives() {
    let (_summary, metrics, server) = demo_served();
    assert_eq!(probe(server.address(), "/live"), (200, vec![]));
    assert_eq!(probe(server.address(), "/ready"), (503, vec!["serving".to_owned()]));
    assert_eq!(get(server.address(), "/nothing").0, 404);
    let address = server.address();
    drop(server);
    assert!(TcpStream::connect(address).is_err(), "nobody listens");
    assert!(metrics.scrape().is_ok());
}

/// The model answers when the test says so. Nothing restarts the process meanwhile: `/live` holds.
#[test]
fn a_stalled_model_makes_the_process_not_ready_and_no_more() {
    let mut config = Config::default();
    config.generation.form = GenerationForm::Prompted;
    config.generation.prompted.call.timeout_ms = 3_600_000;
    config.metrics.ready_stall_seconds = 1;
    config.turns.max_in_flight_per_partition = 4;
    let script = |_: &GenerateRequest, _| {
        let answer = Generated { text: "Well.".to_owned(), ..Generated::default() };
        Line { after_ms: 1, act: Act::Answer(answer) }
    };
    let model = Arc::new(Scripted::new("scripted", 64, script));
    let served = ServedMetrics::start(&config, Some(Arc::clone(&model) as Arc<Generate>));
    let address = served.server.address();
    wait_for(&(200, vec![]), || probe(address, "/ready"));

    served.append("c", (0..9).map(|at| turn("c", &format!("turn {at}, please"))));
    let stalled = vec!["progress".to_owned(), "partitions".to_owned()];
    wait_for(&(503, stalled), || probe(address, "/ready"));
    assert_eq!(probe(address, "/live"), (200, vec![]));
    // The partition is paused: later turns are not read.
    served.append("c", (9..12).map(|at| turn("c", &format!("turn {at}, please"))));
    wait_for(&Some(3), || find_sum(&served.scrape(), "turnstream_partition_lag"));
    // A turn that was read and has no outcome counts as behind as well.
    assert_eq!(sum(&served.scrape(), "turnstream_partition_committed_lag"), 12);
    let samples = served.scrape();
    assert_eq!(samples["turnstream_ready"], 0.0);
    assert_eq!(samples["turnstream_stage_in_progress{stage=\"generation\"}"], 1.0);
    assert_eq!(samples["turnstream_partitions_held"], 2.0);
    assert_eq!(samples["turnstream_partitions_paused"], 1.0);
    assert_eq!(samples["turnstream_scopes_open"], 1.0);
    assert_eq!(sum(&samples, "turnstream_inputs_in_flight"), 9);
    assert_eq!(sum(&samples, "turnstream_partition_in_flight"), 9);

    let mut now_ms = 0;
    wait_for(&12, || {
        now_ms += 1;
        model.advance(now_ms);
        sum(&served.scrape(), "turnstream_responses_total")
    });
    wait_for(&Some(0), || find_sum(&served.scrape(), "turnstream_partition_committed_lag"));
    assert_eq!(probe(address, "/ready"), (200, vec![]));
    served.log.seal(Topic::Turns);
    assert!(served.engine.join().expect("the engine ends").tally.is_conserved());
}

/// Returns the rows of the document's table: name as in samples, type and labels.
fn documented() -> BTreeSet<(String, String, BTreeSet<String>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
    let text = std::fs::read_to_string(path).expect("docs/metrics.md");
    let rows = text
        .lines()
        .filter(|line| line.starts_with("| `turnstream_") || line.starts_with("| `process_"));
    let rows = rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 7, "name, type, labels, meaning, alert: {row}");
        assert!(cells[4].len() > 10, "it says what it means: {row}");
        let labels = cells[3].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (cells[1].trim_matches('`').to_owned(), cells[2].to_owned(), labels)
    });
    rows.collect()
}

#[test]
fn every_metric_is_documented_and_every_documented_one_is_there() {
    let (_summary, metrics, _server) = demo_served();
    // A language model has samples only once it is configured, and none is.
    metrics.models().remote("named");
    metrics.models().decoder("named");
    let made_by = Digests::new(&Config::default(), &Prompts::default(), "none");
    metrics.vitals().made_by(&made_by.fingerprint);
    let mut served = typed(&metrics.scrape().expect("text"));
    served.extend(typed(&views_served().scrape().expect("text")));
    assert!(served.len() > 40, "{served:?}");
    let documented = documented();
    let missing: Vec<_> = served.difference(&documented).collect();
    let gone: Vec<_> = documented.difference(&served).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "not in docs: {missing:?}\nnot served: {gone:?}"
    );
}

/// Returns the metrics of views over one response.
fn views_served() -> ViewsMetrics {
    let metrics = ViewsMetrics::default();
    let log = EmbeddedLog::in_memory(&EmbeddedConfig::default()).expect("a log");
    let response = include_bytes!("../fixtures/records/v1/response.json").to_vec();
    let message = Message { value: Some(response), ..Message::default() };
    log.append(Topic::Responses, 0, message).expect("appended");
    let ends = turnstream_engine::views::Ends {
        writer: Box::new(log.writer(Topic::Views)),
        published: None,
        responses: Box::new(log.follower(Topic::Responses)),
        traces: None,
        knowledge: Some(Box::new(log.follower(Topic::Knowledge))),
        histories: Some(Box::new(log.follower(Topic::History))),
    };
    let mut views = Publishing::new(ends, &ViewsConfig::default(), &metrics);
    views.run(true, &AtomicBool::new(false)).expect("counted");
    let server = Server::start(ANY_PORT.parse().expect("an address"), metrics.clone());
    let server = server.expect("a free port");
    assert_eq!(probe(server.address(), "/live"), (200, vec![]));
    assert_eq!(probe(server.address(), "/ready"), (200, vec![]));
    let (_, text) = get(server.address(), "/metrics");
    assert_eq!(samples(&text)["turnstream_views_counted_records_total{topic=\"responses\"}"], 1.0);
    metrics
}

/// Returns each metric of a scraped text: its name as in samples, its type and its labels.
fn typed(text: &str) -> BTreeSet<(String, String, BTreeSet<String>)> {
    let sampled = samples(text);
    let mut served = BTreeSet::new();
    for line in text.lines() {
        let Some(typed) = line.strip_prefix("# TYPE ") else { continue };
        let (name, kind) = typed.split_once(' ').expect("a type");
        let help = format!("# HELP {name} ");
        assert!(text.contains(&help), "{name} has no help");
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            "histogram" => "_count",
            _ => "",
        };
        let sample = format!("{name}{suffix}");
        let of_it = sampled.keys().filter(|key| key.split('{').next() == Some(&sample));
        let labels = of_it.flat_map(|key| {
            let labels = key.split_once('{').map_or("", |(_, labels)| labels);
            labels.split("=\"").map(|part| part.rsplit(['{', ',']).next().unwrap_or_default())
        });
        let labels = labels.filter(|label| !label.is_empty() && !label.ends_with("\"}"));
        let labels: BTreeSet<String> = labels.map(str::to_owned).collect();
        let name = if kind == "histogram" { name.to_owned() } else { sample };
        served.insert((name, kind.to_owned(), labels));
    }
    served
}

#[test]
fn an_address_that_is_taken_is_named_with_its_key() {
    let taken = TcpListener::bind(ANY_PORT).expect("a free port");
    let address = taken.local_addr().expect("an address");
    let error = Server::start(address, Metrics::default()).expect_err("it is taken").to_string();
    assert!(error.contains("metrics.address") && error.contains(&address.to_string()), "{error}");

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("turnstream.toml");
    let run = |metrics: &str| {
        let toml = format!(
            "log.kind = \"embedded\"\nlog.directory = {:?}\n[metrics]\n{metrics}\n",
            folder.path().join("log")
        );
        std::fs::write(&file, toml).expect("written");
        let output = turnstream(&["run", "--config"]).arg(&file).output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, errors) = run(&format!("address = \"{address}\""));
    assert!(errors.contains("metrics.address") && errors.contains("leave"), "{errors}");
    assert_eq!(code, Some(1));
    for (wrong, key) in [
        ("address = \"localhost\"", "metrics.address"),
        ("address = \"127.0.0.1\"", "metrics.address"),
        ("live_stall_seconds = 9", "metrics.live_stall_seconds"),
        ("ready_stall_seconds = 0", "metrics.ready_stall_seconds"),
    ] {
        let (code, errors) = run(wrong);
        assert!(errors.contains(key), "{wrong}: {errors}");
        assert_eq!(code, Some(2), "{wrong}");
    }
}

/// A running `turnstream run` on an embedded log, on a system that gives it few file descriptors.
struct Program {
    child: Child,
    address: SocketAddr,
    log: JoinHandle<usize>,
    _folder: tempfile::TempDir,
}

impl Program {
    const DESCRIPTORS: usize = 256;

    /// Starts it, and waits until it is ready.
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("turnstream.toml");
        let log = folder.path().join("log");
        let toml = format!(
            "[log]\nkind = \"embedded\"\ndirectory = {log:?}\n[metrics]\naddress = \"{ANY_PORT}\"\n"
        );
        std::fs::write(&file, toml).expect("written");
        let program = turnstream(&["run", "--log-format", "json", "--config"]);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {} && exec \"$@\"", Self::DESCRIPTORS), "sh"]);
        command.arg(program.get_program()).args(program.get_args()).arg(&file);
        command.envs(program.get_envs().filter_map(|(key, value)| Some((key, value?))));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut log = BufReader::new(child.stderr.take().expect("piped")).lines();
        let address = log.by_ref().find_map(|line| {
            let line: Value = serde_json::from_str(&line.expect("UTF-8")).expect("JSON");
            let said = line["message"] == "serving metrics";
            said.then(|| line["address"].as_str().expect("an address").parse().expect("an address"))
        });
        let address = address.expect("it says where");
        // Read on, so that further output does not block the process.
        let log = std::thread::spawn(move || log.count());
        wait_for(&(200, vec![]), || probe(address, "/ready"));
        Self { child, address, log, _folder: folder }
    }

    /// Sends a turn, and waits until `responses` turns are answered in all.
    fn answers(&mut self, responses: u64) {
        let stdin = self.child.stdin.as_mut().expect("piped");
        writeln!(stdin, "{}", turn("c", "How do I bake bread?")).expect("written");
        wait_for(&responses, || {
            let (_, text) = get(self.address, "/metrics");
            sum(&samples(&text), "turnstream_responses_total")
        });
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("it ends").success());
        self.log.join().expect("read");
    }
}

#[test]
fn the_program_serves_where_the_configuration_says() {
    let mut program = Program::start();
    program.answers(1);
    program.end();
}

/// Such connections once took every descriptor: the port refused, and the process ended when it
/// needed one.
#[test]
fn idle_connections_exhaust_neither_the_port_nor_the_log() {
    let mut program = Program::start();
    let connect = |at| {
        let mut connection = TcpStream::connect(program.address).expect("the server listens");
        if at % 2 == 0 {
            // Ignore the error: the server may have closed the connection already.
            let _ = connection.write_all(b"GET /metrics HTTP/1.1\r\nhost: ");
        }
        connection
    };
    let idle: Vec<TcpStream> = (0..Program::DESCRIPTORS + 50).map(connect).collect();
    assert_eq!(probe(program.address, "/live"), (200, vec![]));
    program.answers(1);
    drop(idle);
    program.answers(2);
    program.end();
}

#[test]
fn nothing_is_served_by_default() {
    assert_eq!(MetricsConfig::default().socket_address(), None);
}
