//! Tests that `validate` and `run` refuse the same: a table of everything that can be wrong on this
//! machine, each with the key that the message names; and what only a broker and a model can tell.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::broker::Broker;
use crate::scripted_server::{Script, ScriptedServer};
use crate::turnstream;

/// A fault: a configuration, in which `HERE` stands for a folder with some files; the line and key
/// in the message; and a part of the message.
struct Case {
    config: &'static str,
    place: &'static str,
    says: &'static str,
}

const fn case(config: &'static str, place: &'static str, says: &'static str) -> Case {
    Case { config, place, says }
}

/// Everything that can be wrong on this machine.
const CASES: &[Case] = &[
    case(
        "[sources.rooms]\nkind = \"table\"\nfile = \"HERE/none.jsonl\"\n",
        "3: sources.rooms.file",
        "cannot be read",
    ),
    case(
        "[sources.rooms]\nkind = \"table\"\nfile = \"HERE/rooms.csv\"\n",
        "3: sources.rooms.file",
        "rooms.csv:2: ",
    ),
    case(
        "[generation]\nform = \"prompted\"\nprompted.model = \"m\"\n[language_models.m]\n\
         kind = \"remote\"\nmodel = \"m\"\napi_key_env = \"TURNSTREAM_NO_SUCH_KEY\"\n",
        "7: language_models.m.api_key_env",
        "the environment variable TURNSTREAM_NO_SUCH_KEY",
    ),
    case(
        "[generation]\nform = \"prompted\"\nprompted.model = \"m\"\n[language_models.m]\n\
         kind = \"remote\"\nmodel = \"m\"\nbase_url = \"https://localhost:1/v1\"\n\
         ca_file = \"HERE/none.pem\"\n",
        "8: language_models.m.ca_file",
        "No such file",
    ),
    case(
        "[generation]\nform = \"prompted\"\nprompted.model = \"m\"\nprompted.prompt = \"my-prompt\"\n\
         [language_models.m]\nkind = \"remote\"\nmodel = \"m\"\n",
        "4: generation.prompted.prompt",
        "my-prompt is not a shipped prompt",
    ),
    case(
        "[history.summaries]\nform = \"prompted\"\nprompted.model = \"m\"\n\
         prompted.prompt = \"HERE/none.txt\"\n[language_models.m]\nkind = \"remote\"\nmodel = \"m\"\n",
        "4: history.summaries.prompted.prompt",
        "cannot be read",
    ),
    case(
        "[generation]\nform = \"prompted\"\nprompted.model = \"m\"\n[language_models.m]\n\
         kind = \"local\"\npath = \"HERE/none.gguf\"\n",
        "6: language_models.m.path",
        "No such file",
    ),
    case(
        "[generation]\nform = \"prompted\"\nprompted.model = \"m\"\n[language_models.m]\n\
         kind = \"local\"\npath = \"HERE/rooms.csv\"\n",
        "6: language_models.m.path",
        "it is not a readable GGUF file",
    ),
    case(
        "[models]\nembedder = \"minlm\"\n",
        "2: models.embedder",
        "static, reader, none, minilm, server",
    ),
    case(
        "[models]\nembedder = \"minilm\"\ndirectory = \"HERE/models\"\n",
        "2: models.embedder",
        "turnstream models pull minilm",
    ),
    case(
        "[models]\nembedder = \"server\"\nserver.model = \"m\"\nserver.api = \"embeddings\"\n\
         server.api_key_env = \"TURNSTREAM_NO_SUCH_KEY\"\n",
        "5: models.server.api_key_env",
        "the environment variable TURNSTREAM_NO_SUCH_KEY",
    ),
    case("[models]\nscorer = \"HERE/none\"\n", "2: models.scorer", "cannot read"),
    case(
        "[relevance]\nform = \"learned\"\n[models]\nunified = \"HERE/none.gguf\"\n",
        "4: models.unified",
        "cannot read",
    ),
    case(
        "[knowledge]\nsnapshot = \"HERE/rooms.csv\"\n",
        "2: knowledge.snapshot",
        "not a knowledge",
    ),
    case("[documents]\ndirectory = \"HERE/documents\"\n", "2: documents.directory", "documents in"),
    case(
        "[gate]\nform = \"learned\"\nlearned.model = \"HERE/none.gate\"\n",
        "3: gate.learned.model",
        "cannot read the gate",
    ),
    case(
        "[consistency]\nform = \"learned\"\ntable = \"HERE/none.table\"\n",
        "3: consistency.table",
        "none.table",
    ),
    case(
        "[integration]\nform = \"learned\"\nweights = \"HERE/rooms.csv\"\n",
        "3: integration.weights",
        "has no weights of attention",
    ),
    // Faults that concern serving alone.
    case(
        "[log.kafka.client]\n\"compresion.type\" = \"lz4\"\n",
        "2: log.kafka.client.\"compresion.type\"",
        "no setting of this name",
    ),
    case(
        "[log.kafka.client]\n\"linger.ms\" = \"soon\"\n",
        "2: log.kafka.client.\"linger.ms\"",
        "the Kafka client refuses it",
    ),
    case(
        "[log.kafka.client]\n\"message.timeout.ms\" = \"20000\"\n",
        "2: log.kafka.client.\"message.timeout.ms\"",
        "the Kafka client refuses it",
    ),
    case("[log.kafka]\nfetch_queue_kib = 0\n", "2: log.kafka.fetch_queue_kib", "outside"),
    case(
        "[log.kafka]\nbootstrap_servers = \"not a host\"\n",
        "2: log.kafka.bootstrap_servers",
        "host:port",
    ),
    case(
        "[log.kafka.topics]\nturns = \"my turns\"\n",
        "2: log.kafka.topics.turns",
        "a topic's name",
    ),
    case(
        "[turns]\nmax_record_bytes = 2000000\n[log.kafka.client]\n\"client.id\" = \"a\"\n",
        "3: log.kafka.client.\"message.max.bytes\"",
        "larger than what the Kafka client sends",
    ),
    case(
        "[run]\ncache_directory = \"HERE/rooms.csv/cache\"\n",
        "2: run.cache_directory",
        "rooms.csv is not a folder",
    ),
    case(
        "[log]\nkind = \"embedded\"\ndirectory = \"HERE/rooms.csv/log\"\n",
        "3: log.directory",
        "rooms.csv is not a folder",
    ),
    // An address that is not this machine's.
    case("[metrics]\naddress = \"192.0.2.1:9464\"\n", "2: metrics.address", "cannot be bound"),
];

/// Makes a folder with the files of the cases.
fn site() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("rooms.csv"), "room,price\nsuite\n").expect("written");
    std::fs::create_dir(folder.path().join("documents")).expect("made");
    std::fs::write(folder.path().join("documents/data.mdb"), "no store").expect("written");
    std::fs::write(folder.path().join("log.jsonl"), "").expect("written");
    folder
}

/// Runs a command on a configuration.
fn run(folder: &Path, config: &str, command: &[&str]) -> (Option<i32>, String) {
    let path = folder.join("t.toml");
    let config = config.replace("HERE", folder.to_str().expect("UTF-8"));
    std::fs::write(&path, config).expect("written");
    let mut command = turnstream(command);
    let Output { status, stderr, .. } =
        command.arg("--config").arg(&path).output().expect("it starts");
    let said = String::from_utf8(stderr).expect("UTF-8");
    (status.code(), said.replace(folder.to_str().expect("UTF-8"), ""))
}

/// Returns the lines with errors.
fn errors(said: &str) -> Vec<&str> {
    said.lines().filter(|line| line.starts_with("error: ")).collect()
}

#[test]
fn validate_and_run_refuse_the_same() {
    let folder = site();
    for Case { config, place, says } in CASES {
        let begins = format!("error: /t.toml:{place}: ");
        for command in ["validate", "run"] {
            let (code, said) = run(folder.path(), config, &[command]);
            let what = format!("{command} on\n{config}\n{said}");
            assert_eq!(code, Some(2), "{what}");
            let errors = errors(&said);
            assert_eq!(errors.len(), 1, "{what}");
            assert!(errors[0].starts_with(&begins), "{begins}: {what}");
            assert!(errors[0].contains(says), "{says}: {what}");
            let remedy = errors[0].rsplit_once("; ").map_or("", |(_, remedy)| remedy);
            assert!(!remedy.is_empty(), "no remedy: {what}");
        }
    }
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let folder = site();
    let config = "[models]\nembedder = \"minlm\"\nscorer = \"HERE/none\"\n[sources.rooms]\n\
                  kind = \"table\"\nfile = \"HERE/none.jsonl\"\n[run]\n\
                  cache_directory = \"HERE/rooms.csv\"\n";
    let (code, validated) = run(folder.path(), config, &["validate"]);
    assert_eq!((code, errors(&validated).len()), (Some(2), 4), "{validated}");
    let (code, said) = run(folder.path(), config, &["run"]);
    assert_eq!((code, errors(&said)), (Some(2), errors(&validated)));
    // A command that serves no log needs no cache of histories, but everything else; no file was
    // touched.
    let log = folder.path().join("log.jsonl");
    let out = folder.path().join("out.jsonl");
    let [log, out] = [&log, &out].map(|path| path.to_str().expect("UTF-8"));
    for command in [&["replay", log, "--out", out][..], &["chat", "--json"]] {
        let (code, said) = run(folder.path(), config, command);
        assert_eq!((code, errors(&said)), (Some(2), errors(&validated)[..3].to_vec()));
    }
    assert!(!Path::new(out).exists());
}

#[test]
fn a_model_without_an_answer_is_reported_where_it_is_asked() {
    let folder = site();
    let server = ScriptedServer::start(Script::Good);
    let config = |address: &str| {
        format!(
            "[log]\nkind = \"embedded\"\ndirectory = \"HERE/log\"\n[generation]\n\
             form = \"prompted\"\nprompted.model = \"m\"\n[language_models.m]\nkind = \"remote\"\n\
             model = \"m\"\nbase_url = \"http://{address}/v1\"\nattempts = 1\n"
        )
    };
    let there = config(&server.address.to_string());
    let (code, said) = run(folder.path(), &there, &["validate", "--connect"]);
    assert_eq!(code, Some(0), "{said}");
    // Nothing listens on the discard port.
    let nowhere = config("127.0.0.1:9");
    let (code, said) = run(folder.path(), &nowhere, &["validate"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = run(folder.path(), &nowhere, &["validate", "--connect"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("error: /t.toml:7: language_models.m: "), "{said}");
    assert!(!folder.path().join("log").exists(), "and nothing was made");
}

#[test]
fn a_broker_is_asked_and_left_as_it_was() {
    let test = "a_broker_is_asked_and_left_as_it_was";
    let Some(broker) = Broker::start_or_skip(test) else { return };
    let folder = site();
    let config =
        |more: &str| format!("[log.kafka]\nbootstrap_servers = \"{}\"\n{more}", broker.bootstrap());
    let connect = &["validate", "--connect", "--json"];
    let (code, said) = run(folder.path(), &config(""), connect);
    assert_eq!(code, Some(2), "{said}");
    // A topic that would be created is not missing, and is not created.
    for _ in 0..2 {
        let (code, said) = run(folder.path(), &config("create_topics = true\n"), connect);
        assert_eq!(code, Some(0), "{said}");
        let (code, _) = run(folder.path(), &config(""), connect);
        assert_eq!(code, Some(2));
    }
    broker.create_topics("", 2);
    let (code, said) = run(folder.path(), &config(""), connect);
    assert_eq!(code, Some(0), "{said}");
    let wrong = config("[log.kafka.topics]\nresponses = \"nowhere\"\n");
    let (code, said) = run(folder.path(), &wrong, &["validate", "--connect"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("t.toml:1: log.kafka: topic `nowhere`"), "{said}");
}

#[test]
fn a_value_from_the_environment_is_in_no_problem() {
    let folder = site();
    let config = "[sources.rooms]\nkind = \"table\"\nfile = \"HERE/${SECRET_ROOMS}\"\n";
    let path = folder.path().join("t.toml");
    let config = config.replace("HERE", folder.path().to_str().expect("UTF-8"));
    std::fs::write(&path, config).expect("written");
    let mut command = turnstream(&["validate", "--json", "--config"]);
    let output = command.arg(&path).env("SECRET_ROOMS", "hush-hush").output().expect("it starts");
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(said["problems"][0]["key"], "sources.rooms.file");
    assert_eq!(said["problems"][0]["line"], 3);
    assert!(!String::from_utf8_lossy(&output.stdout).contains("hush-hush"), "{said}");
}
