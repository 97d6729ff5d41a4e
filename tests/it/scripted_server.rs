//! Runs a server with OpenAI's chat interface whose model follows a script: it names words of the
//! last utterance, and sometimes does what real servers do badly, always for the same requests. It
//! streams where a stream is asked for.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{StreamExt, iter};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, oneshot};

/// The behaviour of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    /// It answers the question.
    Good,
    /// Of a hundred questions it answers some with a server error, some with unreadable text, once
    /// or twice, and some never.
    Faulty,
    /// It answers BANANA to everything.
    Obeys,
    /// It writes these texts one after the other, and repeats the last.
    Writes(&'static [&'static str]),
    /// It says which question it was asked, by a number.
    Counts,
    /// It writes this text, but not its end until it is [released](ScriptedServer::go_on).
    Holds(&'static str),
    /// It answers everything with this status and body.
    Says(u16, &'static str),
}

/// A request as it came: the system prompt, and the user's.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) system: String,
    pub(crate) prompt: String,
}

type Shared = Arc<(Script, Mutex<Vec<Seen>>, Semaphore)>;

/// The server. It ends when this is dropped.
pub(crate) struct ScriptedServer {
    pub(crate) address: SocketAddr,
    shared: Shared,
    _stop: oneshot::Sender<()>,
}

impl ScriptedServer {
    pub(crate) fn start(script: Script) -> Self {
        let shared: Shared = Arc::new((script, Mutex::default(), Semaphore::new(0)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel::<()>();
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = axum::serve(listener, router) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, shared, _stop: stop }
    }

    /// Returns the configuration that reaches it.
    pub(crate) fn config(&self) -> String {
        format!(
            "[language_models.default]\nkind = \"remote\"\nbase_url = \"http://{}/v1\"\n\
             model = \"scripted\"\nmax_concurrent = 64\nattempts = 1\nbackoff_ms = 1\nbreaker_failures = 1000000\n",
            self.address
        )
    }

    /// Releases the end of one held text.
    pub(crate) fn go_on(&self) {
        self.shared.2.add_permits(1);
    }

    /// Returns all requests of stages so far. The probe at the start is not one: it has no system
    /// prompt.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.1.lock().expect("not poisoned").clone()
    }
}

async fn answer(State(shared): State<Shared>, body: String) -> Response {
    let body: Value = serde_json::from_str(&body).unwrap_or_default();
    let content = |role: &str| {
        let messages = body["messages"].as_array().into_iter().flatten();
        let of_role = messages.filter(|message| message["role"] == role);
        of_role.filter_map(|message| message["content"].as_str()).collect::<Vec<_>>().join("\n")
    };
    let seen = Seen { system: content("system"), prompt: content("user") };
    let schema = &body["response_format"]["json_schema"]["schema"]["properties"];
    let is_probe = seen.system.is_empty();
    let number = {
        let mut all = shared.1.lock().expect("not poisoned");
        all.extend((!is_probe).then(|| seen.clone()));
        all.len().saturating_sub(1)
    };
    let streams = body["stream"] == true;
    let held = Arc::clone(&shared);
    let say = |text: &str| if streams { in_pieces(text, None) } else { say(text) };
    let chance = crc32fast::hash(seen.prompt.as_bytes()) % 100;
    // A repeated question quotes the unreadable answer.
    let is_again = seen.prompt.contains("<<answer ");
    match (shared.0, chance) {
        (Script::Says(status, text), _) => {
            (StatusCode::from_u16(status).expect("a status"), text).into_response()
        }
        _ if is_probe => say("Yes."),
        (Script::Writes(texts), _) => say(texts[number.min(texts.len() - 1)]),
        (Script::Holds(text), _) if streams => in_pieces(text, Some(held)),
        (Script::Holds(text), _) => say(text),
        (Script::Obeys, _) => say("BANANA"),
        (Script::Counts, _) => {
            let question = crc32fast::hash(format!("{}\n{}", seen.system, seen.prompt).as_bytes());
            say(&format!("That was question {question}."))
        }
        (Script::Faulty, 0..=3) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        (Script::Faulty, 4..=9) if !is_again => say("I should think that it rains."),
        (Script::Faulty, 4..=49) if is_again => say("As I said, it rains."),
        (Script::Faulty, 10) => std::future::pending().await,
        _ => say(&scripted(schema, &seen.prompt)),
    }
}

fn say(text: &str) -> Response {
    let message = json!({ "role": "assistant", "content": text });
    let choice = json!({ "message": message, "finish_reason": "stop" });
    let usage = json!({ "prompt_tokens": 100, "completion_tokens": 10 });
    json!({ "choices": [choice], "usage": usage }).to_string().into_response()
}

/// Letters of a piece of a streamed answer.
const PIECE: usize = 8;

fn in_pieces(text: &str, held: Option<Shared>) -> Response {
    let letters: Vec<char> = text.chars().collect();
    let pieces = letters.chunks(PIECE).map(|piece| {
        let content: String = piece.iter().collect();
        json!({ "choices": [{ "delta": { "content": content } }] }).to_string()
    });
    let last = json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }] }).to_string();
    let events: Vec<String> = pieces.chain([last, "[DONE]".to_owned()]).collect();
    let last_piece = events.len().saturating_sub(3);
    // Each event comes later than the one before, as from a model that is writing.
    let events = iter(events.into_iter().enumerate()).then(move |(at, event)| {
        let held = held.clone().filter(|_| at == last_piece);
        async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if let Some(held) = held {
                held.2.acquire().await.expect("never closed").forget();
            }
            Ok::<_, std::convert::Infallible>(Bytes::from(format!("data: {event}\n\n")))
        }
    });
    ([("content-type", "text/event-stream")], Body::from_stream(events)).into_response()
}

/// Returns the model's words: for each property of the schema its content, otherwise a sentence.
fn scripted(schema: &Value, prompt: &str) -> String {
    let dialogue = prompt.lines().filter(|line| line.starts_with("- "));
    let said: Vec<&str> = dialogue.clone().filter(|line| line.starts_with("- user: ")).collect();
    let words: Vec<String> = said
        .last()
        .into_iter()
        .flat_map(|line| line.split(|letter: char| !letter.is_alphabetic()))
        .filter(|word| word.chars().count() > 3)
        .map(str::to_lowercase)
        .collect();
    let numbered =
        dialogue.filter(|line| line[2..].starts_with(|first: char| first.is_ascii_digit()));
    let facts = numbered.count();
    let Some(properties) = schema.as_object() else {
        return format!("You speak of {}.", words.join(" and "));
    };
    let answer = properties.keys().map(|property| {
        let value = match property.as_str() {
            "needs_knowledge" => json!(words.len() > 1),
            "explicit" | "maintained" => json!(words.iter().skip(1).take(3).collect::<Vec<_>>()),
            "sources" => json!(["graph"]),
            "implicit" => json!(["rest"]),
            "extended" => json!(["food", "home"]),
            // Different scores in each round of self-refinement.
            "consistency" => {
                let hash = crc32fast::hash(prompt.as_bytes()) as usize;
                json!((0..facts).map(|at| (hash >> at) % 11).collect::<Vec<_>>())
            }
            "selected" => json!((1..=facts.min(5)).collect::<Vec<_>>()),
            _ => json!("The user wants to know more."),
        };
        (property.clone(), value)
    });
    Value::Object(answer.collect()).to_string()
}
