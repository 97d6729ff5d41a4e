//! A test server whose behaviour a script decides for each request.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::{StreamExt, iter, once, pending, repeat};
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// The reaction to a request.
pub(super) enum Act {
    /// Send a status, headers and a body.
    Say(u16, Vec<(&'static str, String)>, String),
    /// Send a stream of events, then act on `Then`.
    Stream(Vec<String>, Then),
    /// Never answer.
    Silence,
    /// Answer after a delay.
    Late(Duration, String),
}

/// How a stream continues after its events.
#[derive(Clone, Copy)]
pub(super) enum Then {
    /// End properly.
    End,
    /// Break the connection.
    Cut,
    /// Send nothing, and stay open.
    Silence,
    /// Repeat the last event forever.
    Endless,
}

impl Act {
    /// A good answer.
    pub(super) fn good(text: &str) -> Self {
        Self::json(200, &completion(text))
    }

    pub(super) fn json(status: u16, body: &Value) -> Self {
        Self::Say(status, vec![], body.to_string())
    }

    /// An error in OpenAI's format.
    pub(super) fn error(status: u16, message: &str) -> Self {
        Self::json(status, &json!({ "error": { "message": message } }))
    }
}

/// A whole answer of the chat interface.
pub(super) fn completion(text: &str) -> Value {
    let logprobs = [-0.5, -2.25, -0.1].map(|logprob| json!({ "token": "x", "logprob": logprob }));
    json!({
        "choices": [{
            "message": { "role": "assistant", "content": text },
            "finish_reason": "stop",
            "logprobs": { "content": logprobs },
        }],
        "usage": {
            "prompt_tokens": 11, "completion_tokens": 3,
            "prompt_tokens_details": { "cached_tokens": 7 },
        },
    })
}

/// A piece of a streamed answer.
pub(super) fn piece(text: &str) -> String {
    json!({ "choices": [{ "delta": { "content": text } }] }).to_string()
}

/// The last piece of a stream, and the token counts.
pub(super) fn last_pieces() -> [String; 2] {
    let usage = json!({ "prompt_tokens": 11, "completion_tokens": 3 });
    [
        json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }] }).to_string(),
        json!({ "choices": [], "usage": usage }).to_string(),
    ]
}

/// The requests that the server received.
#[derive(Default)]
pub(super) struct Seen {
    requests: Mutex<Vec<(HeaderMap, String, Value)>>,
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
    disconnected: AtomicUsize,
}

impl Seen {
    /// The bodies of all requests.
    pub(super) fn bodies(&self) -> Vec<Value> {
        self.requests.lock().unwrap().iter().map(|(_, _, body)| body.clone()).collect()
    }

    pub(super) fn header(&self, request: usize, name: &str) -> Option<String> {
        let requests = self.requests.lock().unwrap();
        requests[request].0.get(name).map(|value| value.to_str().unwrap().to_owned())
    }

    pub(super) fn path(&self, request: usize) -> String {
        self.requests.lock().unwrap()[request].1.clone()
    }

    pub(super) fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    pub(super) fn most_under_way(&self) -> usize {
        self.most_under_way.load(SeqCst)
    }

    /// Waits for this many requests.
    pub(super) fn wait_for(&self, requests: usize) {
        wait_until(|| self.count() >= requests);
    }

    /// Waits until this many answers were cancelled.
    pub(super) fn wait_for_disconnected(&self, answers: usize) {
        wait_until(|| self.disconnected.load(SeqCst) >= answers);
    }
}

pub(super) fn wait_until(met: impl Fn() -> bool) {
    while !met() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

type Script = dyn Fn(usize, &Value) -> Act + Send + Sync;

/// The server, which stops when dropped.
pub(super) struct Faulty {
    pub(super) address: SocketAddr,
    pub(super) seen: Arc<Seen>,
    _stop: oneshot::Sender<()>,
}

impl Faulty {
    /// Starts a server; `script` decides on each request by its number and body.
    pub(super) fn start(script: impl Fn(usize, &Value) -> Act + Send + Sync + 'static) -> Self {
        let seen = Arc::new(Seen::default());
        let state: (Arc<Seen>, Arc<Script>) = (Arc::clone(&seen), Arc::new(script));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::spawn(move || {
            let router = Router::new().fallback(handle).with_state(state);
            runtime.block_on(async {
                tokio::select! {
                    _ = axum::serve(listener, router) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, seen, _stop: stop }
    }
}

/// An answer under way; dropping it unfinished counts as cancelled.
struct AnswerInFlight {
    seen: Arc<Seen>,
    ended: bool,
}

impl AnswerInFlight {
    fn begin(seen: &Arc<Seen>) -> Self {
        let now = seen.under_way.fetch_add(1, SeqCst) + 1;
        seen.most_under_way.fetch_max(now, SeqCst);
        Self { seen: Arc::clone(seen), ended: false }
    }

    fn end(mut self) {
        self.ended = true;
    }
}

impl Drop for AnswerInFlight {
    fn drop(&mut self) {
        self.seen.under_way.fetch_sub(1, SeqCst);
        if !self.ended {
            self.seen.disconnected.fetch_add(1, SeqCst);
        }
    }
}

async fn handle(
    State((seen, script)): State<(Arc<Seen>, Arc<Script>)>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let number = {
        let mut requests = seen.requests.lock().unwrap();
        requests.push((headers, uri.path().to_owned(), body.clone()));
        requests.len() - 1
    };
    let under_way = AnswerInFlight::begin(&seen);
    match script(number, &body) {
        Act::Say(status, headers, body) => {
            under_way.end();
            let status = axum::http::StatusCode::from_u16(status).unwrap();
            let mut response = (status, body).into_response();
            for (name, value) in headers {
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            response
        }
        Act::Late(time, text) => {
            tokio::time::sleep(time).await;
            under_way.end();
            completion(&text).to_string().into_response()
        }
        Act::Silence => std::future::pending().await,
        Act::Stream(events, then) => stream(&events, then, under_way),
    }
}

fn stream(events: &[String], then: Then, under_way: AnswerInFlight) -> Response {
    let event = |data: &String| Ok(Bytes::from(format!("data: {data}\n\n")));
    let last: Result<Bytes, &str> = events.last().map_or(Ok(Bytes::new()), event);
    let said: Vec<Result<Bytes, &str>> = events.iter().map(event).collect();
    let said = iter(said);
    let body = match then {
        Then::End => {
            under_way.end();
            Body::from_stream(said)
        }
        Then::Cut => {
            under_way.end();
            // Break off later, so that the earlier bytes are sent.
            let cut = async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Err("told to")
            };
            Body::from_stream(said.chain(once(cut)))
        }
        Then::Silence => {
            let held = pending().inspect(move |_: &Result<Bytes, &str>| _ = &under_way);
            Body::from_stream(said.chain(held))
        }
        Then::Endless => {
            Body::from_stream(said.chain(repeat(last)).inspect(move |_| _ = &under_way))
        }
    };
    ([("content-type", "text/event-stream")], body).into_response()
}
