//! Tests language models on a server that is not ours: llama.cpp's, with a tiny model of random
//! weights, started by `deploy/language-model/`. What it writes makes no sense, but it is written
//! token by token, by a grammar if there is a schema, and counted.
//!
//! `TURNSTREAM_LANGUAGE_MODEL_URL` names another server to ask, and `TURNSTREAM_LANGUAGE_MODEL` the
//! model there.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use turnstream_engine::metrics::{Metrics, MetricsConfig};
use turnstream_models::metrics::{RemoteFault, RemoteMetrics};
use turnstream_models::remote::{self, Api, RemoteConfig, RemoteEmbedder, SchemaBy, Streaming};
use turnstream_ports::model::encoder::Encoder;
use turnstream_ports::model::{Asked, Generate, GenerateRequest, Generated, Listener, reply};
use turnstream_schemas::Stage;

/// A variable that cargo sets for tests, which cannot set one themselves: it holds the server's key.
const KEY_VARIABLE: &str = "CARGO_PKG_VERSION";
const KEY: &str = env!("CARGO_PKG_VERSION");

/// A server, and the configuration to reach it. It ends when it is dropped, or when the tests end.
pub(crate) struct Server {
    pub(crate) config: RemoteConfig,
    process: Option<Child>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn script(name: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/language-model").join(name))
}

/// Starts llama.cpp's server. If it is unavailable, the test says so and passes, except in CI.
pub(crate) fn server(test: &str) -> Option<Server> {
    let config = RemoteConfig { model: "random".to_owned(), ..RemoteConfig::default() };
    if let Ok(base_url) = std::env::var("TURNSTREAM_LANGUAGE_MODEL_URL") {
        let model = std::env::var("TURNSTREAM_LANGUAGE_MODEL").unwrap_or(config.model);
        return Some(Server { config: RemoteConfig { base_url, model, ..config }, process: None });
    }
    let fetched = script("fetch").stdin(Stdio::null()).output().expect("a script");
    if !fetched.status.success() {
        let said = String::from_utf8_lossy(&fetched.stderr).into_owned();
        assert!(std::env::var_os("CI").is_none(), "{test} needs llama.cpp's server: {said}");
        eprintln!("SKIPPED: {test}: llama.cpp's server cannot be had: {said}");
        return None;
    }
    let mut serve = script("serve");
    serve.args(["--attached", "--key", KEY]);
    serve.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = serve.spawn().expect("a script");
    let mut line = String::new();
    BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    let api_key_env = Some(KEY_VARIABLE.to_owned());
    let mut server =
        Server { config: RemoteConfig { api_key_env, ..config }, process: Some(process) };
    let url = line.trim().strip_prefix("url=");
    server.config.base_url = url.unwrap_or_else(|| panic!("{test}: it says {line:?}")).to_owned();
    Some(server)
}

fn request(prompt: &str, seed: u64) -> GenerateRequest {
    GenerateRequest {
        stage: Stage::Generation,
        system: "Be brief.".to_owned(),
        prompt: prompt.to_owned(),
        max_tokens: 24,
        temperature: 1.0,
        schema: None,
        seed,
        listener: None,
        origin: None,
    }
}

fn ask(model: &Generate, request: GenerateRequest) -> Asked<Generated> {
    let (reply, asked) = reply();
    assert!(model.ask(request, reply).is_ok(), "there is room");
    asked
}

fn answer(model: &Generate, request: GenerateRequest) -> Generated {
    ask(model, request).wait().expect("an answer")
}

fn start(config: &RemoteConfig) -> (Arc<Generate>, RemoteMetrics) {
    let metrics = Metrics::new(&MetricsConfig::default()).models().remote("random");
    (remote::start("random", config, metrics.clone()).expect("starts"), metrics)
}

#[test]
fn a_third_party_server_writes_and_is_counted() {
    let Some(server) = server("a_third_party_server_writes_and_is_counted") else { return };
    for api in [Api::Chat, Api::Completions] {
        let config = RemoteConfig { api, log_probabilities: true, ..server.config.clone() };
        let (model, metrics) = start(&config);
        let first = answer(&*model, request("What is tea?", 1));
        assert_eq!((first.model.name.as_str(), first.text.is_empty()), ("random", false));
        let confidence = first.confidence.expect("log-probabilities").value;
        assert!((-60.0..=0.0).contains(&confidence), "{confidence}");
        assert!(metrics.prompt_tokens.get() > 10, "{api:?}: {}", metrics.prompt_tokens.get());
        assert!((1..=24).contains(&metrics.completion_tokens.get()));
        let texts: Vec<String> =
            (1..6).map(|seed| answer(&*model, request("What is tea?", seed)).text).collect();
        assert_eq!(texts[0], first.text, "{api:?}: the same seed, the same text");
        assert!(texts[1..].iter().any(|text| *text != first.text), "{api:?}: {texts:?}");
        assert!(metrics.cached_tokens.get() > 10, "{api:?}: the prompt was there already");
        assert_eq!(metrics.retries.get(), 0);
    }
}

#[test]
fn a_third_party_server_streams() {
    let Some(server) = server("a_third_party_server_streams") else { return };
    for api in [Api::Chat, Api::Completions] {
        let config = RemoteConfig { api, log_probabilities: true, ..server.config.clone() };
        let (model, metrics) = start(&config);
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = Arc::clone(&heard);
        let tell = move |text: &str| told.lock().expect("not poisoned").push(text.to_owned());
        let listener = Some(Listener(Arc::new(tell)));
        let streamed = answer(&*model, GenerateRequest { listener, ..request("Tea?", 3) });
        let heard = heard.lock().expect("not poisoned");
        assert!(heard.len() > 3, "{api:?}: {heard:?}");
        assert_eq!(heard.last(), Some(&streamed.text));
        assert!(heard.is_sorted_by(|before, after| after.starts_with(before)), "{heard:?}");
        assert!(streamed.confidence.is_some() && metrics.completion_tokens.get() > 3, "{api:?}");
        let never = RemoteConfig { stream: Streaming::Never, ..config };
        let whole = answer(&*start(&never).0, request("Tea?", 3));
        // Random bytes seldom end with a whole letter; the stream leaves out a partial one.
        let letters = |text: &str| text.trim_end_matches(char::REPLACEMENT_CHARACTER).to_owned();
        assert_eq!(letters(&whole.text), letters(&streamed.text));
        let (whole, streamed) = (whole.confidence.expect("one"), streamed.confidence.expect("one"));
        assert!((whole.value - streamed.value).abs() < 1e-3, "{whole:?} {streamed:?}");
    }
}

#[test]
fn a_third_party_server_follows_a_schema() {
    let Some(server) = server("a_third_party_server_follows_a_schema") else { return };
    let schema = json!({
        "type": "object",
        "properties": {
            "use": { "type": "boolean" },
            "kinds": { "type": "array", "items": { "enum": ["green", "black"] }, "maxItems": 2 },
        },
        "required": ["use", "kinds"],
        "additionalProperties": false,
    });
    let follows = |text: &str| {
        let value: Value = serde_json::from_str(text).expect("JSON");
        jsonschema::is_valid(&schema, &value)
    };
    let text: Arc<str> = schema.to_string().into();
    let asked = |seed| GenerateRequest {
        schema: Some(Arc::clone(&text)),
        max_tokens: 400,
        ..request("Tea?", seed)
    };
    for api in [Api::Chat, Api::Completions] {
        let (model, metrics) = start(&RemoteConfig { api, ..server.config.clone() });
        let answers: Vec<Asked<Generated>> =
            (0..10).map(|seed| ask(&*model, asked(seed))).collect();
        for answer in answers {
            let generated = answer.wait().expect("an answer");
            assert!(follows(&generated.text), "{api:?}: {}", generated.text);
        }
        assert_eq!(metrics.repairs.get(), 0, "{api:?}: the server let it write nothing else");
    }
    // A model of random weights that is only told the schema cannot follow it: an error and no
    // panic.
    let by = SchemaBy::Prompt;
    let (model, metrics) = start(&RemoteConfig { schema_by: by, ..server.config.clone() });
    let error = ask(&*model, asked(1)).wait().expect_err("no JSON").to_string();
    assert!(error.contains("does not follow the schema"), "{error}");
    assert_eq!((metrics.repairs.get(), metrics.fault(RemoteFault::Unfit).get()), (1, 1));
}

#[test]
fn a_third_party_server_refuses_and_is_given_up() {
    let Some(server) = server("a_third_party_server_refuses_and_is_given_up") else { return };
    let (model, metrics) = start(&server.config);
    let long = request(&"tea ".repeat(5_000), 1);
    let error = ask(&*model, long).wait().expect_err("too long").to_string();
    assert!(error.contains("400") && error.contains("context size"), "{error}");
    assert_eq!(metrics.retries.get(), 0, "the same again would be as long");
    let endless = GenerateRequest { max_tokens: 4_000, ..request("Tea?", 1) };
    drop(ask(&*model, endless));
    while metrics.skipped.get() == 0 {
        std::thread::yield_now();
    }
    assert!(!answer(&*model, request("Tea?", 1)).text.is_empty());
    if server.process.is_some() {
        let other_key = Some("CARGO_PKG_NAME".to_owned());
        let (model, metrics) =
            start(&RemoteConfig { api_key_env: other_key, ..server.config.clone() });
        let error = ask(&*model, request("Tea?", 1)).wait().expect_err("not the key").to_string();
        assert!(error.contains("401") && error.contains("api_key_env"), "{error}");
        assert_eq!((metrics.retries.get(), metrics.fault(RemoteFault::Client).get()), (0, 1));
    }
}

/// Runs the engine with its encoder on that server: the shipped table ranks the facts, which have
/// no vectors by the server, and the documents' chunks get theirs from it.
#[test]
fn documents_are_embedded_and_found_by_a_third_party_server() {
    let test = "documents_are_embedded_and_found_by_a_third_party_server";
    let Some(server) = server(test) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let RemoteConfig { base_url, api_key_env, .. } = &server.config;
    let key = api_key_env.as_deref().map_or(String::new(), |it| format!("api_key_env = {it:?}\n"));
    let config = format!(
        "[models]\nembedder = \"server\"\n[models.server]\nbase_url = {base_url:?}\n\
         model = \"random\"\napi = \"embeddings\"\n{key}"
    );
    std::fs::write(file("models.toml"), &config).expect("a configuration");
    let config = format!(
        "{config}[documents]\ndirectory = {:?}\n[document_retrieval]\nform = \"dense\"\n\
         min_score = 0.0\n[gate]\nform = \"always\"\n",
        file("store")
    );
    std::fs::write(file("t.toml"), config).expect("a configuration");
    let notes = ["The kettle is under the sink.", "Guests sleep in the red room."];
    let lines = notes
        .iter()
        .enumerate()
        .map(|(at, text)| json!({ "id": format!("note-{at}"), "title": "House", "text": text }));
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    std::fs::write(file("notes.jsonl"), lines).expect("documents");
    let turn = json!({ "conversation_id": "c", "speaker": "user", "text": notes[1] });
    std::fs::write(file("log.jsonl"), format!("{turn}\n")).expect("a log");
    let run = |arguments: &[&str]| {
        let ended = crate::turnstream(arguments).output().expect("started");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success(), "{arguments:?}: {said}");
    };
    let (models, config, store) = (file("models.toml"), file("t.toml"), file("store"));
    run(&[
        "documents",
        "import",
        &file("notes.jsonl"),
        "--out",
        &store,
        "--encoder",
        "server",
        "--config",
        &models,
    ]);
    run(&["replay", &file("log.jsonl"), "--config", &config, "--out", &file("out.jsonl")]);
    let response = std::fs::read_to_string(file("out.jsonl")).expect("a response");
    let response: Value = serde_json::from_str(response.trim()).expect("JSON");
    let evidence = response["evidence"].as_array().expect("evidence").iter();
    let scores: Vec<f64> = evidence
        .filter(|evidence| evidence["source"] == "documents")
        .map(|evidence| evidence["document"]["by_meaning"].as_f64().expect("by its vector"))
        .collect();
    assert_eq!(scores.len(), 2, "{response}");
    // A chunk has its title before its text, so that even its own words are not all of it.
    assert!(scores[0] > scores[1] && scores[0] > 0.5, "{scores:?}");
    assert_eq!(response["degraded"].as_array().map_or(0, Vec::len), 0, "{response}");
}

#[test]
fn a_third_party_server_embeds() {
    let Some(server) = server("a_third_party_server_embeds") else { return };
    let config = RemoteConfig { api: Api::Embeddings, batch_texts: 2, ..server.config.clone() };
    let embedder = RemoteEmbedder::start("random", &config, RemoteMetrics::unread());
    let embedder = embedder.expect("starts");
    let mut vectors = Vec::new();
    embedder.encode(&["tea", "coffee", "tea", "wind"], &mut vectors).expect("embeds");
    let width = embedder.dimensions();
    assert_eq!(vectors.len(), 4 * width);
    let vector = |index: usize| &vectors[index * width..(index + 1) * width];
    let cosine = |a, b| -> f32 { vector(a).iter().zip(vector(b)).map(|(x, y)| x * y).sum() };
    assert!((0..4).all(|index| (cosine(index, index) - 1.0).abs() < 1e-5));
    assert!(cosine(0, 2) > 0.999 && cosine(0, 1) < 0.999, "{} {}", cosine(0, 2), cosine(0, 1));
}
