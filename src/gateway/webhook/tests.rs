use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};

use super::*;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A receiver that keeps what it was sent. It answers with the statuses for each turn, one after
/// the other; then with 204.
#[derive(Default)]
struct Receiver {
    calls: Mutex<Vec<(HeaderMap, String)>>,
    answers: Mutex<BTreeMap<String, VecDeque<u16>>>,
}

impl Receiver {
    /// The turns of a conversation, as often as they came.
    fn turns(&self, conversation: &str) -> Vec<String> {
        let calls = self.calls.lock().unwrap();
        let data = calls.iter().map(|(_, body)| {
            let body: Value = serde_json::from_str(body).expect("JSON");
            body["data"].clone()
        });
        let of_it = data.filter(|data| data["conversation_id"] == conversation);
        of_it.map(|data| data["turn_id"].as_str().expect("an id").to_owned()).collect()
    }
}

async fn called(
    State(receiver): State<Arc<Receiver>>,
    headers: HeaderMap,
    body: String,
) -> Response {
    let said: Value = serde_json::from_str(&body).expect("JSON");
    let turn = said["data"]["turn_id"].as_str().unwrap_or_default().to_owned();
    receiver.calls.lock().unwrap().push((headers, body));
    let status = receiver.answers.lock().unwrap().get_mut(&turn).and_then(VecDeque::pop_front);
    StatusCode::from_u16(status.unwrap_or(204)).expect("a status").into_response()
}

/// Starts a receiver. Returns its address.
fn listen(receiver: &Arc<Receiver>) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("set");
    let address = listener.local_addr().expect("an address");
    let receiver = Arc::clone(receiver);
    std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let router = Router::new().route("/events", post(called)).with_state(receiver);
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            axum::serve(listener, router).await.expect("it serves");
        });
    });
    format!("http://{address}/events")
}

fn webhook(url: String) -> Webhook {
    let config =
        WebhookConfig { url: Some(url), secret: SECRET.to_owned(), ..WebhookConfig::default() };
    Webhook::new(&config).expect("it fits").expect("somebody is called")
}

/// Returns its records once, and then stops the reader.
struct Records {
    records: Vec<(Topic, Record)>,
    stop: Arc<AtomicBool>,
    delivered: Arc<Mutex<usize>>,
}

impl Delivery for Records {
    fn poll(&mut self, _: Duration) -> Result<Vec<(Topic, Record)>, LogError> {
        if self.records.is_empty() {
            self.stop.store(true, Ordering::Relaxed);
        }
        Ok(std::mem::take(&mut self.records))
    }

    fn hold(&mut self, wait: Duration) -> Result<(), LogError> {
        std::thread::sleep(wait);
        Ok(())
    }

    fn delivered(&mut self) -> Result<(), LogError> {
        *self.delivered.lock().unwrap() += 1;
        Ok(())
    }
}

fn responses(turns: &[(&str, &str)]) -> Vec<(Topic, Record)> {
    let record = |(offset, (conversation, turn)): (usize, &(&str, &str))| {
        let value =
            json!({ "conversation_id": conversation, "turn_id": turn, "text": "Hello \"you\"" });
        let record = Record {
            offset: offset as i64,
            value: Some(value.to_string().into_bytes()),
            ..Record::default()
        };
        (Topic::Responses, record)
    };
    turns.iter().enumerate().map(record).collect()
}

#[test]
fn events_are_signed_as_standard_webhooks_has_it() {
    let key = STANDARD.decode(SECRET.trim_start_matches("whsec_")).unwrap();
    let signed =
        signature(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, "{\"test\": 2432232314}");
    assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

#[test]
fn a_conversation_waits_for_its_receiver_and_others_do_not() {
    let receiver = Arc::<Receiver>::default();
    let mut answers = receiver.answers.lock().unwrap();
    answers.insert("a1".to_owned(), [503, 429].into());
    answers.insert("b1".to_owned(), [400].into());
    drop(answers);
    let webhook = webhook(listen(&receiver));
    let (stop, delivered) = (Arc::<AtomicBool>::default(), Arc::<Mutex<usize>>::default());
    let records = responses(&[("a", "a1"), ("b", "b1"), ("a", "a2"), ("b", "b2"), ("", "none")]);
    let source = Records { records, stop: Arc::clone(&stop), delivered: Arc::clone(&delivered) };
    webhook.run(Box::new(source), &stop).expect("it ends");
    assert_eq!(receiver.turns("a"), ["a1", "a1", "a1", "a2"]);
    assert_eq!(receiver.turns("b"), ["b1", "b2"], "what it refuses is left");
    assert_eq!(*delivered.lock().unwrap(), 1, "once all is out");
    let calls = receiver.calls.lock().unwrap();
    let order: Vec<&str> =
        calls.iter().map(|(headers, _)| headers["webhook-id"].to_str().unwrap()).collect();
    let at = |id: &str| order.iter().position(|it| *it == id).expect(id);
    assert!(at("responses-0-3") < at("responses-0-2"), "b does not wait for a: {order:?}");
    let (headers, body) = &calls[0];
    let seconds = headers["webhook-timestamp"].to_str().unwrap().parse().expect("seconds");
    let id = headers["webhook-id"].to_str().unwrap();
    assert_eq!(headers["webhook-signature"], signature(&webhook.key, id, seconds, body));
    let body: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!((&body["id"], &body["type"]), (&json!(id), &json!("response")));
    assert_eq!(body["data"]["text"], "Hello \"you\"");
}

#[test]
fn undelivered_events_are_not_committed_at_a_stop() {
    // Nothing listens there.
    let webhook = webhook("http://127.0.0.1:9/events".to_owned());
    let (stop, delivered) = (Arc::<AtomicBool>::default(), Arc::<Mutex<usize>>::default());
    let records = responses(&[("a", "a1")]);
    let source = Records { records, stop: Arc::clone(&stop), delivered: Arc::clone(&delivered) };
    let stopping = Arc::clone(&stop);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        stopping.store(true, Ordering::Relaxed);
    });
    webhook.run(Box::new(source), &stop).expect("it ends");
    assert_eq!(*delivered.lock().unwrap(), 0);
}
