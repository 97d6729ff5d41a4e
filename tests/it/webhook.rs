//! Tests that a webhook is called with what is committed: all of it, in the order of each
//! conversation, also after the gateway was away, or the receiver.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::broker::Broker;
use crate::kafka::engine::Engine;
use crate::kafka::kcat::{KEY_END, read_all, send_lines};

const PATIENCE: Duration = Duration::from_secs(90);

/// The received calls, in the order in which they came.
type Calls = Arc<Mutex<Vec<Value>>>;

/// Starts a receiver that answers every third call with 503.
fn receive() -> (String, Calls) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let calls = Calls::default();
    let noted = Arc::clone(&calls);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let stream = stream.expect("a caller");
            let call = read_call(&stream);
            let fails = number % 3 == 2;
            if !fails {
                noted.lock().expect("whole").push(call);
            }
            let status = if fails { "503 Service Unavailable" } else { "204 No Content" };
            let answer =
                format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            (&stream).write_all(answer.as_bytes()).expect("answered");
        }
    });
    (format!("http://{address}/events"), calls)
}

fn read_call(stream: &TcpStream) -> Value {
    let mut reader = BufReader::new(stream);
    let (mut length, mut signed) = (0, false);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a head");
        let line = line.trim().to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(bytes) = line.strip_prefix("content-length: ") {
            length = bytes.parse().expect("a number");
        }
        signed |= line.starts_with("webhook-signature: v1,");
    }
    assert!(signed, "every call is signed");
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    serde_json::from_slice(&body).expect("JSON")
}

#[test]
fn a_webhook_hears_what_is_committed_on_a_real_broker() {
    let test = "a_webhook_hears_what_is_committed_on_a_real_broker";
    let Some(broker) = Broker::start_or_skip(test) else { return };
    broker.create_topics("", 2);
    let folder = tempfile::tempdir().expect("a folder");
    let (url, calls) = receive();
    let config = folder.path().join("turnstream.toml");
    let text = format!(
        "[log.kafka]\nbootstrap_servers = \"{}\"\n[gateway]\naddress = \"127.0.0.1:0\"\n\
         [gateway.webhook]\nurl = {url:?}\nsecret = \"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n",
        broker.bootstrap()
    );
    std::fs::write(&config, text).expect("written");
    let mut engine = Engine::start(&config, &folder.path().join("run.log"));
    let say = |from: usize, to: usize| {
        let line = |number: usize| {
            let conversation = format!("c-{}", number % 5);
            let turn = json!({
                "conversation_id": conversation, "turn_id": format!("t-{number:03}"),
                "speaker": "user", "text": "What is a violin?",
            });
            [conversation.as_bytes(), &[KEY_END], turn.to_string().as_bytes()].concat()
        };
        send_lines(&broker, &(from..to).map(line).collect::<Vec<_>>(), &[], false);
    };
    let mut wait = |what: &str, so: &dyn Fn() -> bool| {
        let deadline = Instant::now() + PATIENCE;
        while !so() {
            engine.assert_running();
            assert!(Instant::now() < deadline, "{what}: {:?}", calls.lock());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    // The turns of each conversation, in the order of the calls, each once.
    let heard = || {
        let mut heard = vec![Vec::new(); 5];
        for call in calls.lock().expect("whole").iter() {
            let (of, turn) = (&call["data"]["conversation_id"], &call["data"]["turn_id"]);
            let Some(turn) = turn.as_str().filter(|_| call["type"] == "response") else { continue };
            let at = of.as_str().and_then(|of| of[2..].parse::<usize>().ok()).expect("a number");
            if heard[at].last() != Some(&turn.to_owned()) {
                heard[at].push(turn.to_owned());
            }
        }
        heard
    };
    let count = || heard().iter().map(Vec::len).sum::<usize>();

    // Answers from before the gateway started are not sent.
    say(0, 20);
    wait("the first answers", &|| read_all(&broker, "responses").len() == 20);
    let gateway = Engine::start_command("gateway", &config, &folder.path().join("one.log"));
    wait("the gateway", &|| gateway.log().contains("serving"));
    say(20, 50);
    wait("thirty calls", &|| count() == 30);
    say(50, 80);
    gateway.kill();
    wait("all answers", &|| read_all(&broker, "responses").len() == 80);
    let gateway = Engine::start_command("gateway", &config, &folder.path().join("two.log"));
    wait("sixty calls", &|| count() >= 60);
    for (conversation, turns) in heard().iter().enumerate() {
        let mut expected: Vec<String> = (20..80)
            .filter(|number| number % 5 == conversation)
            .map(|number| format!("t-{number:03}"))
            .collect();
        let mut told = turns.clone();
        // After a kill the last ones may be sent again, in their order.
        let again = told.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!(again <= 1, "{turns:?}");
        told.sort();
        told.dedup();
        expected.sort();
        assert_eq!(told, expected);
    }

    // A request for a person is a handover, and the receiver hears of that too.
    let asked =
        json!({ "conversation_id": "p", "speaker": "user", "text": "I want to speak to a human" });
    send_lines(
        &broker,
        &[[b"p", &[KEY_END][..], asked.to_string().as_bytes()].concat()],
        &[],
        false,
    );
    let waits =
        |call: &Value| call["type"] == "conversation" && call["data"]["holder"] == "waiting";
    wait("the change of hands", &|| calls.lock().expect("whole").iter().any(waits));
    gateway.stop();
    engine.stop();
}
