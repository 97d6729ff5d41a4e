//! Tests a broker as others manage it: over TLS, with a log-in by SCRAM, topics compressed with
//! zstd. Needs a program that was built for it:
//!
//! ```sh
//! deploy/packages --sasl
//! cargo test --features sasl --test it encrypted:: -- --nocapture
//! ```

use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use crate::broker::Broker;

const TURNS: usize = 20;
/// How long the test waits without a record before it gives up.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn turns_are_served_over_tls_with_a_log_in_by_scram() {
    let test = "turns_are_served_over_tls_with_a_log_in_by_scram";
    if !cfg!(feature = "ssl") {
        eprintln!("SKIPPED: {test}: this build has no TLS; `cargo test --features ssl` has");
        return;
    }
    let options = ["--tls", "--scram", "dialogue:correct-horse-7"];
    let Some(broker) = Broker::start_with(test, &options) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let authority = broker.certificate();
    let client = [
        ("security.protocol", "sasl_ssl"),
        ("sasl.mechanism", "SCRAM-SHA-512"),
        ("sasl.username", "dialogue"),
        ("sasl.password", "correct-horse-7"),
        ("ssl.ca.location", authority.to_str().expect("text")),
        ("compression.type", "zstd"),
    ];
    let config = folder.path().join("managed.toml");
    let write = |client: &[(&str, &str)]| {
        let client: String =
            client.iter().map(|(key, value)| format!("\"{key}\" = \"{value}\"\n")).collect();
        let log = format!("bootstrap_servers = \"{}\"\ncreate_topics = true", broker.bootstrap());
        let text =
            format!("[log.kafka]\n{log}\ncreate_partitions = 2\n[log.kafka.client]\n{client}");
        std::fs::write(&config, text).expect("written");
    };
    let validated = |client: &[(&str, &str)]| {
        write(client);
        let mut validate = crate::turnstream(&["validate", "--connect", "--config"]);
        let done = validate.arg(&config).output().expect("the program runs");
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };

    // A missing file is reported before the broker is asked; the broker reports a wrong password.
    let mut wrong = client;
    wrong[4].1 = "/nowhere/ca.pem";
    let (code, said) = validated(&wrong);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("ssl.ca.location"), "{said}");
    wrong = client;
    wrong[3].1 = "wrong-horse-7";
    let (code, said) = validated(&wrong);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("sasl") && !said.contains("wrong-horse-7"), "{said}");

    let (code, said) = validated(&client);
    assert_eq!(code, Some(0), "{said}");
    let log = std::fs::File::create(folder.path().join("log")).expect("a file");
    let mut run = crate::turnstream(&["run", "--config"]);
    let mut engine = run.arg(&config).stderr(log).spawn().expect("the program starts");
    let mut settings = ClientConfig::new();
    settings.set("bootstrap.servers", broker.bootstrap());
    for (key, value) in client {
        settings.set(key, value);
    }
    let reader = read_all(&settings);
    let producer: BaseProducer = settings.create().expect("a producer");
    // The engine creates the topics.
    let deadline = Instant::now() + PATIENCE;
    let is_there = || {
        let found = producer.client().fetch_metadata(Some("turns"), PATIENCE).expect("answered");
        found.topics().iter().any(|topic| topic.error().is_none() && topic.partitions().len() == 2)
    };
    while !is_there() {
        assert!(Instant::now() < deadline, "no topics");
        std::thread::sleep(Duration::from_millis(100));
    }
    for number in 0..TURNS {
        let turn = serde_json::json!({
            "conversation_id": format!("c-{number}"), "speaker": "user",
            "text": "How do I make good coffee?",
        });
        let (key, turn) = (format!("c-{number}"), turn.to_string());
        producer.send(BaseRecord::to("turns").key(&key).payload(&turn)).expect("sent");
    }
    producer.flush(PATIENCE).expect("delivered");
    let mut responses = Vec::new();
    while responses.len() < TURNS {
        assert!(Instant::now() < deadline, "{} responses", responses.len());
        if let Some(Ok(message)) = reader.poll(Duration::from_millis(100)) {
            let text = message.payload().expect("a response").to_vec();
            let response: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
            responses.push(response["conversation_id"].as_str().expect("a name").to_owned());
        }
    }
    engine.kill().expect("it runs");
    engine.wait().expect("it ends");
    responses.sort_unstable();
    let mut expected: Vec<String> = (0..TURNS).map(|number| format!("c-{number}")).collect();
    expected.sort_unstable();
    assert_eq!(responses, expected);
}

/// Returns a reader of the responses, as they come.
fn read_all(settings: &ClientConfig) -> BaseConsumer {
    let mut settings = settings.clone();
    settings.set("group.id", "reader").set("auto.offset.reset", "earliest");
    settings.set("isolation.level", "read_committed");
    settings.set("topic.metadata.refresh.interval.ms", "200");
    let reader: BaseConsumer = settings.create().expect("a reader");
    reader.subscribe(&["responses"]).expect("a topic");
    reader
}
