//! Tests clients that are not ours through the gateway: curl, OpenAI's Python client and a browser.
//! A language model words the answers, and holds their last words until a client has seen the
//! first.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::Html;
use axum::routing::{get, post};
use serde_json::{Value, json};

use crate::broker::Broker;
use crate::gateway::Door;
use crate::kafka::engine::Engine;
use crate::kafka::kcat::read_all;
use crate::scripted_server::{Script, ScriptedServer};

const WORDS: &str = "It is an instrument that many people like to hear in the evening.";

/// How long a client may take: generous, since it bounds a hang.
const PATIENCE: Duration = Duration::from_secs(120);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fronts")
}

/// The server of the page: it releases the model, and receives what the page has seen.
struct PageServer {
    address: SocketAddr,
    seen: std::sync::mpsc::Receiver<String>,
}

impl PageServer {
    fn start(model: &Arc<ScriptedServer>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("an address");
        let page = std::fs::read_to_string(folder().join("page.html")).expect("the page");
        let (sender, seen) = std::sync::mpsc::sync_channel(1);
        let router = Router::new()
            .route("/", get(move || async { Html(page) }))
            .route(
                "/go-on",
                get(|State(model): State<Arc<ScriptedServer>>| async move { model.go_on() }),
            )
            .route(
                "/seen",
                post(move |body: String| async move { sender.send(body).is_ok().to_string() }),
            )
            .with_state(Arc::clone(model));
        std::thread::spawn(move || runtime.block_on(axum::serve(listener, router).into_future()));
        Self { address, seen }
    }
}

/// A process that ends with the test.
struct Client(Child);

impl Client {
    fn start(command: &mut Command) -> (Self, impl Iterator<Item = String>) {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        (Self(process), lines.map(|line| line.expect("UTF-8")))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the output of a program that runs. Otherwise prints so and returns `None`, except in CI.
pub(crate) fn is_there(test: &str, command: &mut Command) -> Option<Output> {
    let why = match command.stdin(Stdio::null()).output() {
        Ok(said) if said.status.success() => return Some(said),
        Ok(said) => String::from_utf8_lossy(&said.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    let what = command.get_program().to_string_lossy().into_owned();
    assert!(std::env::var_os("CI").is_none(), "{test} needs {what}: {why}");
    eprintln!("SKIPPED: {test}: {what} cannot be had: {why}");
    None
}

#[test]
fn third_party_clients_see_words_before_they_are_committed_and_after() {
    let test = "third_party_clients_see_words_before_they_are_committed_and_after";
    let fetch = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/openai-client");
    let Some(package) = is_there(test, &mut Command::new(fetch)) else { return };
    let package = String::from_utf8(package.stdout).expect("a path").trim().to_owned();
    for program in ["curl", "chromium"] {
        let Some(_) = is_there(test, Command::new(program).arg("--version")) else { return };
    }
    let Some(broker) = Broker::start_or_skip(test) else { return };
    broker.create_topics("", 2);
    let data = tempfile::tempdir().expect("a folder");
    let data = data.path();
    let model = Arc::new(ScriptedServer::start(Script::Holds(WORDS)));
    let page = PageServer::start(&model);
    let write_config = |name: &str, tenants: &str| {
        let path = data.join(name);
        let text = format!(
            "[log.kafka]\nbootstrap_servers = \"{}\"\n{}[generation]\nform = \"prompted\"\n\
             [gateway]\naddress = \"127.0.0.1:0\"\npartials = true\n\
             allowed_origins = [\"http://{}\"]\n{tenants}",
            broker.bootstrap(),
            model.config(),
            page.address,
        );
        std::fs::write(&path, text).expect("written");
        path
    };
    let open = write_config("open.toml", "");
    let guarded = write_config("guarded.toml", "[gateway.tenants.shop]\ntoken = \"front\"\n");
    let engine = Engine::start(&open, &data.join("run.log"));
    let doors = [&open, &guarded].map(|it| Door::open(it, &it.with_extension("log")));
    curl_reads_along(&doors[0], &model);
    a_browser_reads_along(&doors, &page, data);
    let engine = (engine, &*open);
    the_openai_client_streams_while_the_engine_is_killed(&doors[1], engine, &page, &package, data);
    let ids = |topic: &str| -> Vec<String> {
        let all = read_all(&broker, topic).into_iter().map(|read| read.value.expect("a value"));
        let all = all.map(|value| serde_json::from_slice::<Value>(value.as_ref()).expect("JSON"));
        let mut ids: Vec<String> = all.map(|it| it["turn_id"].to_string()).collect();
        ids.sort();
        ids
    };
    let responses = ids("responses");
    assert_eq!(responses.len(), 1 + 2 + 5);
    assert_eq!(ids("turns"), responses, "each turn was written once, and answered once");
}

fn curl_reads_along(door: &Door, model: &ScriptedServer) {
    let base = format!("http://127.0.0.1:{}/v1/conversations/c", door.port);
    let mut events = Command::new("curl");
    events.args(["-sN", "--max-time", "120", &format!("{base}/events?partials=true"), "-i"]);
    let (_curl, mut lines) = Client::start(&mut events);
    lines.find(|line| line.trim().is_empty()).expect("the head ends");
    let mut say = Command::new("curl");
    say.args(["-s", "-H", "prefer: respond-async", "-w", "%{http_code}", &format!("{base}/turns")]);
    say.args(["-d", "{\"turn_id\":\"c1\",\"text\":\"What is a violin?\"}"]);
    let said = String::from_utf8(say.output().expect("curl runs").stdout).expect("UTF-8");
    assert!(said.ends_with("202"), "{said}");
    let mut data = lines.filter_map(|line| line.strip_prefix("data: ").map(str::to_owned));
    let mut next = || serde_json::from_str::<Value>(&data.next().expect("an event")).expect("JSON");
    let first = next();
    let text = first["text"].as_str().expect("text");
    assert!(WORDS.starts_with(text) && text.len() < WORDS.len(), "{first}");
    assert_eq!((&first["turn_id"], &first["outcome"]), (&"c1".into(), &Value::Null));
    model.go_on();
    let mut before = first;
    let response = loop {
        let event = next();
        if event["outcome"] == "response" {
            break event;
        }
        let text = |of: &Value| of["text"].as_str().expect("text").to_owned();
        assert!(text(&event).starts_with(&text(&before)), "{event} after {before}");
        before = event;
    };
    assert_eq!(response["text"], WORDS);
    let mut foreign = Command::new("curl");
    foreign.args(["-s", "-H", "origin: http://elsewhere.example", "-d", "{\"text\":\"hi\"}"]);
    let said = foreign.arg(format!("{base}/turns")).output().expect("curl runs").stdout;
    assert!(String::from_utf8_lossy(&said).contains("allowed_origins"), "no page of others writes");
}

fn a_browser_reads_along(doors: &[Door; 2], page: &PageServer, data: &Path) {
    let [open, guarded] = doors.each_ref().map(|door| format!("http://127.0.0.1:{}", door.port));
    let profile = data.join("browser");
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
    browser.arg(format!("--user-data-dir={}", profile.display())).stderr(Stdio::null());
    browser.args(["--remote-debugging-port=0"]);
    browser.arg(format!("http://{}/?open={open}&guarded={guarded}", page.address));
    let (_browser, _) = Client::start(&mut browser);
    let seen = page.seen.recv_timeout(PATIENCE).expect("the page tells what it saw");
    let seen: Value = serde_json::from_str(&seen).expect("JSON");
    assert_eq!(seen["error"], Value::Null, "{seen}");
    assert_eq!((&seen["posted"], &seen["refused"]), (&WORDS.into(), &true.into()), "{seen}");
    assert_eq!(seen["protocol"], "turnstream.v1");
    for (heard, turn, taken) in [("events", "e1", 0), ("messages", "w1", 1)] {
        let mut all: Vec<&Value> = seen[heard].as_array().expect("a list").iter().collect();
        // A broker may acknowledge a turn after the engine has read it and begun to answer.
        let count = all.len();
        all.retain(|it| it["type"] != "taken");
        assert_eq!(count - all.len(), taken, "{seen}");
        let response = all.pop().expect("a response");
        assert_eq!((&response["type"], &response["text"]), (&"response".into(), &WORDS.into()));
        let is_partial = |it: &Value| {
            let text = it["text"].as_str().expect("text");
            it["type"] == "partial" && it["turn"] == turn && WORDS.starts_with(text)
        };
        assert!(!all.is_empty() && all.into_iter().all(is_partial), "{seen}");
    }
}

fn the_openai_client_streams_while_the_engine_is_killed(
    door: &Door,
    (engine, config): (Engine, &Path),
    page: &PageServer,
    package: &str,
    data: &Path,
) {
    let mut python = Command::new("python3");
    python.arg(folder().join("openai_client.py")).env("PYTHONPATH", package);
    python.arg(format!("http://127.0.0.1:{}", door.port));
    python.arg(format!("http://{}/go-on", page.address));
    let (_client, lines) = Client::start(&mut python);
    let mut engine = Some(engine);
    let mut seen: Vec<Value> = Vec::new();
    for line in lines {
        let line: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        // Killed while the turn is in flight, and started again.
        if let Some(asked) = line.get("asked").filter(|asked| *asked != "What is a drum?") {
            engine.take().expect("it runs").kill();
            let log = data.join(format!("{}.log", asked.as_str().expect("text").len()));
            engine = Some(Engine::start(config, &log));
            continue;
        }
        seen.extend(line.get("asked").is_none().then_some(line));
    }
    assert_eq!(seen[0], json!({ "refused": 401 }));
    assert_eq!(seen[1], json!({ "models": ["turnstream"] }));
    assert_eq!(seen.len(), 2 + 5, "{seen:?}");
    for answer in &seen[2..] {
        assert_eq!(answer["words"], WORDS, "{answer}");
        assert_eq!(answer["outcome"]["outcome"], "response");
    }
    let partials = seen[2]["partials"].as_array().expect("a list");
    assert!(!partials.is_empty() && partials[0] != WORDS, "{partials:?}");
    assert_eq!(seen[3]["partials"], json!([]), "they were not asked for");
}
