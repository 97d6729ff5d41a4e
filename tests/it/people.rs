//! Tests conversations with people in them, through a real Kafka: who writes in bursts gets one
//! answer, who writes to an agent none, and who asks for a person waits for one.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use turnstream_schemas::{
    Action, ConversationRecord, HandOffReason, HandoverReason, HistoryEntry, Holder, Recorded,
    RecordedReason, Response,
};

use crate::broker::Broker;
use crate::kafka::engine::Engine;
use crate::kafka::kcat::{KEY_END, read_all, send_lines};
use crate::kafka::outcomes::parse;

const PATIENCE: Duration = Duration::from_secs(60);

/// A broker with an engine, as kcat sees it.
struct Desk<'a> {
    broker: &'a Broker,
    engine: Engine,
}

impl Desk<'_> {
    fn send(&self, conversation: &str, records: impl IntoIterator<Item = Value>) {
        let line = |mut record: Value| {
            record["conversation_id"] = json!(conversation);
            [conversation.as_bytes(), &[KEY_END], record.to_string().as_bytes()].concat()
        };
        let lines: Vec<_> = records.into_iter().map(line).collect();
        send_lines(self.broker, &lines, &[], false);
    }

    fn says(&self, conversation: &str, speaker: &str, id: &str, text: &str) {
        self.send(conversation, [json!({ "speaker": speaker, "turn_id": id, "text": text })]);
    }

    fn responses(&self, topic: &str, conversation: &str) -> Vec<Response> {
        let all = read_all(self.broker, topic).into_iter().map(|read| parse(&read));
        all.filter(|of: &Response| of.conversation_id.as_str() == conversation).collect()
    }

    /// Returns the recorded turns of a conversation: id and reason.
    fn recorded(&self, conversation: &str) -> Vec<(String, RecordedReason)> {
        let all = read_all(self.broker, "recorded").into_iter().map(|read| parse(&read));
        let of_it = all.filter(|of: &Recorded| {
            of.conversation_id.as_ref().map(|id| id.as_str()) == Some(conversation)
        });
        of_it.map(|of| (of.turn_id.0, of.reason)).collect()
    }

    /// Returns the handovers of a conversation.
    fn hands(&self, conversation: &str) -> Vec<ConversationRecord> {
        let key = format!("default/{conversation}");
        let all = read_all(self.broker, "conversations").into_iter();
        let of_it = all.filter(|read| read.key.as_deref() == Some(key.as_bytes()));
        of_it.map(|read| parse(&read)).collect()
    }

    fn wait(&mut self, what: &str, mut so: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !so(self) {
            self.engine.assert_running();
            assert!(Instant::now() < deadline, "{what} does not come\n{}", self.engine.log_end());
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn people_are_answered_once_or_by_people() {
    let Some(broker) = Broker::start_or_skip("people_are_answered_once_or_by_people") else {
        return;
    };
    broker.create_topics("", 2);
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("turnstream.toml");
    let text = format!(
        "[turns]\nburst_ms = 1500\n[handover]\nqueues = {{ asked = \"front desk\" }}\n\
         [log.kafka]\nbootstrap_servers = \"{}\"\n",
        broker.bootstrap()
    );
    std::fs::write(&config, text).expect("written");
    let engine = Engine::start(&config, &folder.path().join("run.log"));
    let mut desk = Desk { broker: &broker, engine };
    three_fragments_get_one_response(&mut desk);
    what_is_said_to_an_agent_is_held(&mut desk);
    who_asks_for_a_person_waits(&mut desk);
    desk.engine.stop();
    check_views(&config);
}

fn three_fragments_get_one_response(desk: &mut Desk<'_>) {
    // Written within two seconds, by their own times: how long kcat takes does not matter.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
    let fragments = [("f1", "hi"), ("f2", "what is"), ("f3", "a violin?")].into_iter().zip(0_u64..);
    let fragments = fragments.map(|((id, text), nth)| {
        let ms = u64::try_from(now).expect("within range") + 900 * nth;
        json!({ "speaker": "user", "turn_id": id, "text": text, "timestamp": ms })
    });
    desk.send("burst", fragments);
    desk.wait("the response", |desk| !desk.responses("responses", "burst").is_empty());
    let responses = desk.responses("responses", "burst");
    let ids: Vec<&str> = responses.iter().map(|response| response.turn_id.as_str()).collect();
    assert_eq!(ids, ["f3"], "{responses:?}");
    let merged = |id: &str| (id.to_owned(), RecordedReason::MergedInto("f3".into()));
    assert_eq!(desk.recorded("burst"), [merged("f1"), merged("f2")]);
    let entries = read_all(desk.broker, "history").into_iter();
    let entries = entries.filter_map(|read| serde_json::from_slice(&read.value?).ok());
    let queries: Vec<Option<String>> = entries
        .filter(|entry: &HistoryEntry| entry.turn_id.as_str() == "f3")
        .map(|entry| entry.query)
        .collect();
    assert_eq!(queries, [Some("hi what is a violin?".to_owned())]);
}

fn what_is_said_to_an_agent_is_held(desk: &mut Desk<'_>) {
    desk.says("agent", "system", "m1", "Hello, this is Marta.");
    desk.says("agent", "user", "u1", "The box was wet.");
    desk.says("agent", "user", "u2", "And the glass is broken.");
    desk.send("agent", [json!({ "kind": "release", "turn_id": "m2" })]);
    desk.says("agent", "user", "u3", "Thanks!");
    desk.wait("the response", |desk| !desk.responses("responses", "agent").is_empty());
    let reasons: Vec<_> = desk.recorded("agent");
    let of = |id: &str, reason| (id.to_owned(), reason);
    use RecordedReason::{Held, Release, System};
    let expected = [of("m1", System), of("u1", Held), of("u2", Held), of("m2", Release)];
    assert_eq!(reasons, expected);
    let traces = desk.responses("traces", "agent");
    assert_eq!(traces.len(), 1);
    let recalled: Vec<&str> = traces[0].history.iter().map(|of| of.turn_id.as_str()).collect();
    assert_eq!((traces[0].turn_id.as_str(), &recalled[..]), ("u3", &["u2", "u1", "m1"][..]));
    let hands = desk.hands("agent");
    let hands: Vec<_> = hands.iter().map(|of| (of.handover.holder, of.handover.reason)).collect();
    assert_eq!(
        hands,
        [(Holder::Agent, HandoverReason::AgentTurn), (Holder::Bot, HandoverReason::Release)]
    );
}

fn who_asks_for_a_person_waits(desk: &mut Desk<'_>) {
    desk.says("waiting", "user", "w1", "Can I talk to someone, please?");
    desk.wait("the response", |desk| !desk.responses("responses", "waiting").is_empty());
    assert_eq!(desk.responses("responses", "waiting")[0].action, Some(Action::HandOff));
    let hands = desk.hands("waiting");
    assert_eq!(hands.len(), 1);
    let handover = &hands[0].handover;
    assert_eq!(handover.holder, Holder::Waiting);
    assert_eq!(handover.hand_off, Some(HandOffReason::Asked));
    assert_eq!(handover.queue.as_deref(), Some("front desk"));
}

/// Checks that views count the users who wait.
fn check_views(config: &Path) {
    let mut views = crate::turnstream(&["views", "--once", "--json", "--config"]);
    let done = views.arg(config).output().expect("the program runs");
    let out = String::from_utf8(done.stdout).expect("text");
    let report: Value = serde_json::from_str(out.lines().last().unwrap_or_default())
        .unwrap_or_else(|e| panic!("{e}: {out}\n{}", String::from_utf8_lossy(&done.stderr)));
    let views = report["views"].as_array().expect("views");
    let view = |name: &str| views.iter().find(|of| of["view"] == name).expect("the view");
    let top = json!([{ "key": "waiting/asked/front desk", "count": 1 }]);
    assert_eq!(view("holders")["top"], top);
    assert_eq!(view("waiting_since")["count"], 1, "{report}");
}
