//! Tests `turnstream gateway` between clients that speak HTTP and an engine that reads Kafka.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::broker::Broker;
use crate::kafka::engine::Engine;
use crate::kafka::kcat::read_all;

const PATIENCE: Duration = Duration::from_secs(60);

/// A gateway, with its port.
pub(crate) struct Door {
    process: Engine,
    pub(crate) port: u16,
}

impl Door {
    pub(crate) fn open(config: &Path, log: &Path) -> Self {
        let mut process = Engine::start_command("gateway", config, log);
        let since = Instant::now();
        let port = loop {
            process.assert_running();
            assert!(since.elapsed() < PATIENCE, "it does not listen\n{}", process.log_end());
            let log = process.log();
            let port = log.split("127.0.0.1:").skip(1).find_map(|rest| {
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                digits.parse().ok().filter(|_| log.contains("serving"))
            });
            if let Some(port) = port.filter(|port| *port != 0) {
                break port;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        Self { process, port }
    }

    /// Returns status and body of a request; `headers` are whole lines.
    fn ask(&self, method: &str, path: &str, headers: &[&str], body: &str) -> (u16, String) {
        let mut answer = String::new();
        let mut stream = self.request(method, path, headers, body);
        stream.read_to_string(&mut answer).expect("an answer in UTF-8");
        let (head, body) = answer.split_once("\r\n\r\n").expect("head and body");
        let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
        (status, body.to_owned())
    }

    fn request(&self, method: &str, path: &str, headers: &[&str], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut head = format!("{method} {path} HTTP/1.0\r\nhost: localhost\r\n");
        for header in headers {
            head += &format!("{header}\r\n");
        }
        head += &format!("content-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(head.as_bytes()).expect("sent");
        stream
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, body) = self.ask("POST", path, &[], &body.to_string());
        (status, serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {body}")))
    }

    pub(crate) fn say(&self, conversation: &str, id: &str, text: &str) -> (u16, Value) {
        let path = format!("/v1/conversations/{conversation}/turns");
        self.post(&path, &json!({ "turn_id": id, "text": text }))
    }
}

fn write_config(broker: &Broker, folder: &Path, name: &str, gateway: &str) -> PathBuf {
    let path = folder.join(format!("{name}.toml"));
    let text = format!(
        "[log.kafka]\nbootstrap_servers = \"{}\"\n[gateway]\naddress = \"127.0.0.1:0\"\n{gateway}",
        broker.bootstrap()
    );
    std::fs::write(&path, text).expect("written");
    path
}

#[test]
fn front_ends_and_desks_speak_http_and_the_log_has_it() {
    let test = "front_ends_and_desks_speak_http_and_the_log_has_it";
    let Some(broker) = Broker::start_or_skip(test) else { return };
    broker.create_topics("", 2);
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let config = write_config(&broker, folder, "open", "");
    let engine = Engine::start(&config, &folder.join("run.log"));
    let door = Door::open(&config, &folder.join("gateway.log"));

    let (status, description) = door.ask("GET", "/openapi.json", &[], "");
    assert!(status == 200 && description.contains("\"openapi\": \"3.1.0\""));
    a_turn_is_answered_once(&broker, &door);
    what_cannot_be_served_says_why(&door);
    chat_completions_are_answers(&door);
    a_desk_hears_and_takes_over(&door);
    engine.kill();
    let door = nothing_is_lost_while_the_engine_is_away(&broker, (door, &config), folder);
    door.process.stop();
    tokens_tell_who_may_what(&broker, folder);
}

fn a_turn_is_answered_once(broker: &Broker, door: &Door) {
    let (status, first) = door.say("c%2F1%20", "t1", "What is a violin?");
    assert_eq!(status, 200, "{first}");
    assert_eq!((&first["outcome"], &first["turn_id"]), (&"response".into(), &"t1".into()));
    assert_eq!(first["conversation_id"], "c/1 ", "escapes of a path are read");
    assert!(first["text"].as_str().is_some_and(|text| text.contains("violin")), "{first}");
    assert_eq!(door.say("c%2F1%20", "t1", "What is a violin?"), (200, first.clone()), "sent again");
    let (status, asked) = door.ask("GET", "/v1/conversations/c%2F1%20/turns/t1", &[], "");
    assert_eq!((status, serde_json::from_str(&asked).ok()), (200, Some(first)));
    assert_eq!(read_all(broker, "turns").len(), 1, "and written once");
    assert_eq!(door.ask("GET", "/v1/conversations/c%2F1%20/turns/t2", &[], "").0, 404);
}

fn what_cannot_be_served_says_why(door: &Door) {
    let (status, letter) = door.say("letters", "l1", " ");
    assert_eq!((status, &letter["outcome"]), (422, &"dead_letter".into()), "{letter}");
    assert!(letter["reason"].as_str().is_some_and(|why| why.contains("`text` is empty")));
    let (status, mended) = door.say("letters", "l1", "hello");
    assert_eq!((status, &mended["outcome"]), (200, &"response".into()), "under the same id");
    for (path, body, expected) in [
        ("/v1/conversations/c/turns", "[1]", "must be a JSON object"),
        ("/v1/conversations/c/turns", "{\"text\":7}", "invalid type"),
        ("/v1/chat/completions", "{}", "missing field `messages`"),
    ] {
        let (status, said) = door.ask("POST", path, &[], body);
        assert!(status == 400 && said.contains(expected), "{status} {said}");
    }
    let large = format!("{{\"text\":\"{}\"}}", "x".repeat(300_000));
    assert_eq!(door.ask("POST", "/v1/conversations/c/turns", &[], &large).0, 413);
}

fn chat_completions_are_answers(door: &Door) {
    let messages = json!([
        { "role": "user", "content": "hello" },
        { "role": "assistant", "content": "Hello!" },
        { "role": "user", "content": "What is a violin?" },
    ]);
    let path = "/v1/chat/completions";
    let mut asked = json!({ "model": "turnstream", "user": "ann", "messages": messages });
    let (status, completion) = door.post(path, &asked);
    assert_eq!((status, &completion["object"]), (200, &"chat.completion".into()), "{completion}");
    let choice = &completion["choices"][0];
    let words = choice["message"]["content"].as_str().expect("text");
    assert!(words.contains("violin") && choice["finish_reason"] == "stop", "{completion}");
    asked["stream"] = true.into();
    let (status, streamed) = door.ask("POST", path, &[], &asked.to_string());
    assert_eq!(status, 200);
    let data: Vec<&str> = streamed.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(data.last(), Some(&"[DONE]"));
    let chunks = data[..data.len() - 1].iter();
    let chunks: Vec<Value> = chunks.map(|it| serde_json::from_str(it).expect("JSON")).collect();
    let said: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(said, words, "the same messages are the same turn");
    let last = chunks.last().expect("chunks");
    assert_eq!(last["turnstream"]["response_id"], completion["turnstream"]["response_id"]);
}

fn a_desk_hears_and_takes_over(door: &Door) {
    let events = door.request("GET", "/v1/conversations/desk/events", &[], "");
    let mut lines = BufReader::new(events).lines().map(|line| line.expect("a line"));
    lines.find(String::is_empty).expect("the head ends");
    let desks = door.request("GET", "/v1/waiting/events", &[], "");
    let mut desks = BufReader::new(desks).lines().map(|line| line.expect("a line"));
    desks.find(String::is_empty).expect("the head ends");
    let asks = door.say("desk", "u0", "Can I talk to someone, please?").1;
    assert_eq!(asks["action"], "hand_off", "{asks}");
    let came = desks.find_map(|line| line.strip_prefix("data: ").map(str::to_owned));
    assert!(came.as_ref().is_some_and(|came| came.contains("\"waiting\"")), "{came:?}");
    let waiting = || door.ask("GET", "/v1/waiting", &[], "").1;
    assert!(waiting().contains("\"conversation_id\":\"desk\""), "{}", waiting());
    let (status, taken) = door.post("/v1/conversations/desk/takeover", &json!({ "turn_id": "d1" }));
    assert_eq!((status, &taken["reason"]), (200, &"takeover".into()), "{taken}");
    assert_eq!(door.say("desk", "u1", "Anybody there?").1["reason"], "held");
    assert_eq!(waiting(), "{\"waiting\":[]}");
    let agent = json!({ "turn_id": "d2", "speaker": "system", "text": "Yes, Marta here." });
    assert_eq!(door.post("/v1/conversations/desk/turns", &agent).1["reason"], "system");
    let (_, released) = door.ask("POST", "/v1/conversations/desk/release", &[], "");
    assert!(released.contains("\"release\""), "{released}");
    assert_eq!(door.say("desk", "u2", "Thanks!").1["outcome"], "response");
    let mut heard = Vec::new();
    let mut id = String::new();
    while heard.last().is_none_or(|last: &String| !last.contains("u2")) {
        let line = lines.next().expect("more events");
        if let Some(of) = line.strip_prefix("id: ") {
            id = of.to_owned();
        }
        heard.extend(line.strip_prefix("data: ").map(str::to_owned));
    }
    let count = |what: &str| heard.iter().filter(|event| event.contains(what)).count();
    assert_eq!((count("\"holder\":\"agent\""), count("\"holder\":\"bot\"")), (1, 1), "{heard:?}");
    assert_eq!((count("\"held\""), count("\"outcome\":\"response\"")), (1, 2), "{heard:?}");
    // A client that was cut off resumes after the last event that it saw.
    assert_eq!(door.say("desk", "u3", "Bye!").1["outcome"], "response");
    let after = format!("last-event-id: {id}");
    let events = door.request("GET", "/v1/conversations/desk/events", &[&after], "");
    let mut data = BufReader::new(events).lines().map(|line| line.expect("a line"));
    let next = data.find_map(|line| line.strip_prefix("data: ").map(str::to_owned));
    assert!(next.as_ref().is_some_and(|next| next.contains("\"u3\"")), "{next:?}");
}

/// Checks that turns sent while no engine runs are answered once one does, though by another
/// gateway.
fn nothing_is_lost_while_the_engine_is_away(
    broker: &Broker,
    (door, config): (Door, &Path),
    folder: &Path,
) -> Door {
    let hasty = write_config(broker, folder, "hasty", "wait_ms = 200\n");
    let second = Door::open(&hasty, &folder.join("hasty.log"));
    let (status, place) = second.say("away", "a1", "What is a violin?");
    assert_eq!((status, &place["turn_id"]), (202, &"a1".into()), "{place}");
    let (status, said) = second.ask(
        "POST",
        "/v1/chat/completions",
        &["x-conversation-id: away", "idempotency-key: a2"],
        r#"{"messages":[{"role":"user","content":"hello"}]}"#,
    );
    assert!(status == 504 && said.contains("ask again"), "{status} {said}");
    second.process.kill();
    door.process.kill();
    let engine = Engine::start(config, &folder.join("run-2.log"));
    let door = Door::open(config, &folder.join("gateway-2.log"));
    let (status, answer) = door.say("away", "a1", "What is a violin?");
    assert_eq!((status, &answer["outcome"]), (200, &"response".into()), "{answer}");
    assert_eq!(door.say("away", "a2", "hello").1["outcome"], "response");
    let of_it = |topic: &str| {
        let all = read_all(broker, topic).into_iter();
        all.filter(|read| read.key.as_deref() == Some(b"away")).count()
    };
    assert_eq!(of_it("responses"), 2, "each once, however often they were sent");
    engine.stop();
    door
}

fn tokens_tell_who_may_what(broker: &Broker, folder: &Path) {
    let tenants = "[gateway.tenants.shop]\ntoken = \"front\"\nagent_token = \"desk\"\n\
                   [gateway.tenants.other]\ntoken = \"theirs\"\n";
    let config = write_config(broker, folder, "tenants", tenants);
    let engine = Engine::start(&config, &folder.join("run-3.log"));
    let door = Door::open(&config, &folder.join("gateway-3.log"));
    let path = "/v1/conversations/c/turns";
    let said = r#"{"turn_id":"s1","text":"hello"}"#;
    let ask = |token: &str, body: &str| {
        door.ask("POST", path, &[&format!("authorization: Bearer {token}")], body)
    };
    assert_eq!(door.ask("POST", path, &[], said).0, 401);
    assert_eq!(ask("nobody", said).0, 401);
    let (status, answer) = ask("front", said);
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!((status, &answer["tenant_id"]), (200, &"shop".into()), "{answer}");
    let agent = r#"{"speaker":"system","text":"Marta here"}"#;
    assert_eq!((ask("front", agent).0, ask("desk", agent).0), (403, 200));
    // The conversation of the same name of another tenant is another.
    let turn = "/v1/conversations/c/turns/s1";
    assert_eq!(door.ask("GET", turn, &["authorization: Bearer theirs"], "").0, 404);
    assert_eq!(door.ask("GET", turn, &["authorization: Bearer front"], "").0, 200);
    let waits = |token: &str| {
        door.ask("GET", "/v1/waiting", &[&format!("authorization: Bearer {token}")], "").0
    };
    assert_eq!((waits("front"), waits("desk")), (403, 200));
    let (_, held) = ask("front", r#"{"text":"hello?"}"#);
    assert!(held.contains("\"held\""), "{held}");
    let (_, answer) = ask("theirs", r#"{"text":"hello?"}"#);
    assert!(answer.contains("\"outcome\":\"response\""), "{answer}");
    engine.stop();
    door.process.stop();
}
