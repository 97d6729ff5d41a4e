use std::sync::{Arc, Mutex};
use std::time::Duration;

use turnstream_ports::model::{
    Asked, CallError, Generate, GenerateRequest, Generated, Listener, reply,
};
use turnstream_schemas::Stage;

use crate::metrics::RemoteFault;
use serde_json::Value;

use super::*;

mod answers;
mod bounds;
mod embeddings;
mod failures;
mod faulty;

use faulty::{Act, Faulty, Then, completion, last_pieces, piece, wait_until};

/// The servers' key is in a variable that cargo sets for every test, since tests cannot set
/// variables.
const KEY_VARIABLE: &str = "CARGO_PKG_DESCRIPTION";
const KEY: &str = env!("CARGO_PKG_DESCRIPTION");

fn request() -> GenerateRequest {
    GenerateRequest {
        stage: Stage::Gate,
        system: "Decide.".to_owned(),
        prompt: "Tea?".to_owned(),
        max_tokens: 20,
        temperature: 0.7,
        schema: None,
        seed: (1 << 40) + 5,
        listener: None,
        origin: None,
    }
}

const SCHEMA: &str = r#"{"type":"object","properties":{"use":{"type":"boolean"}},"required":["use"],"additionalProperties":false}"#;

fn with_schema() -> GenerateRequest {
    GenerateRequest { schema: Some(SCHEMA.into()), ..request() }
}

/// A request with a listener, and the pieces that it received.
fn listened() -> (GenerateRequest, Arc<Mutex<Vec<String>>>) {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&heard);
    let listener = Listener(Arc::new(move |text: &str| told.lock().unwrap().push(text.into())));
    (GenerateRequest { listener: Some(listener), ..request() }, heard)
}

/// A configuration with short retries.
fn config(server: &Faulty) -> RemoteConfig {
    RemoteConfig {
        base_url: format!("http://{}/v1", server.address),
        model: "small".to_owned(),
        backoff_ms: 1,
        backoff_max_ms: 2_000,
        ..RemoteConfig::default()
    }
}

fn ask(model: &Generate, request: GenerateRequest) -> Option<Asked<Generated>> {
    let (reply, asked) = reply();
    model.ask(request, reply).is_ok().then_some(asked)
}

fn answer(model: &Generate, request: GenerateRequest) -> Result<Generated, String> {
    ask(model, request).expect("there is room").wait().map_err(|error| match error {
        CallError::Model(reason) | CallError::Empty(reason) => reason,
        other => panic!("{other:?}"),
    })
}

/// Sends one request under a configuration, and returns the answer with the metrics.
fn ask_once(
    config: &RemoteConfig,
    request: GenerateRequest,
) -> (Result<Generated, String>, RemoteMetrics) {
    let metrics = RemoteMetrics::unread();
    let model = start("ours", config, metrics.clone()).expect("starts");
    (answer(&*model, request), metrics)
}
