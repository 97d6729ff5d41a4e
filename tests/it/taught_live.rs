//! Phrasings taught to a running service: written to the topic of knowledge, seen by the turns after
//! them, withdrawn again.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnstream_schemas::{Action, Response};

use crate::broker::{Broker, said};
use crate::kafka::engine::Engine;
use crate::kafka::kcat::{KEY_END, read_all, send_lines};
use crate::turnstream;

/// How long a response may take before the test gives up.
const PATIENCE: Duration = Duration::from_secs(90);

/// What no page of the company answers by itself.
const QUESTION: &str = "who painted the mona lisa";

/// A company of `turnstream new`, with this added to its configuration.
struct Company {
    folder: tempfile::TempDir,
}

impl Company {
    fn new(more: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let company = Self { folder };
        let made = turnstream(&["new"]).arg(company.path("")).output().expect("it starts");
        said(&made, "turnstream new");
        let config = company.config();
        let text = std::fs::read_to_string(&config).expect("a configuration");
        std::fs::write(&config, format!("{text}\n{more}")).expect("written");
        let line = json!({ "text": QUESTION, "gold": "house.md#tastings" });
        std::fs::write(company.path("taught.jsonl"), format!("{line}\n")).expect("written");
        company
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("company").join(name)
    }

    fn config(&self) -> PathBuf {
        self.path("turnstream.toml")
    }

    /// Runs `teach put` or `delete` on the file, and returns what it says as JSON.
    fn teach(&self, what: &str, more: &[&Path]) -> Value {
        let mut command = turnstream(&["teach", what, "--json", "--config"]);
        command.arg(self.config()).arg(self.path("taught.jsonl"));
        let done = command.args(more).output().expect("it starts");
        serde_json::from_str(said(&done, what).trim()).expect("JSON")
    }
}

#[test]
fn what_is_taught_is_tried_then_learned_before_the_first_turn() {
    let company = Company::new("");
    let (config, log) = (company.config(), company.path("log"));
    let text = std::fs::read_to_string(&config).expect("a configuration");
    let log = format!("[log]\nkind = \"embedded\"\ndirectory = {log:?}\n");
    std::fs::write(&config, format!("{text}\n{log}")).expect("written");
    let ask = |conversation: &str| {
        let turn = json!({ "conversation_id": conversation, "speaker": "user", "text": QUESTION });
        let file = company.path("turns");
        std::fs::write(&file, format!("{turn}\n")).expect("written");
        let mut run = turnstream(&["run", "--config"]);
        run.arg(&config).stdin(std::fs::File::open(file).expect("turns"));
        let out = said(&run.output().expect("it starts"), "turnstream run");
        serde_json::from_str::<Response>(out.trim()).expect("one response")
    };
    assert_eq!(ask("before").action, Some(Action::Decline));

    let [questions, gold] = ["questions.jsonl", "gold.jsonl"].map(|name| company.path(name));
    let flags = ["--dry-run", "--gold"].map(Path::new);
    let tried = || company.teach("put", &[flags[0], &questions, flags[1], &gold]);
    let compared = tried();
    assert_eq!((&compared["compared"], &compared["only_b"]), (&json!(10), &json!(0)));
    let turned = json!({ "name": "decline → answer", "count": 1 });
    let actions = compared["actions"].as_array().expect("actions");
    assert!(actions.contains(&turned), "{compared}");
    let judged = &compared["gold"];
    assert_eq!((&judged["judged"], &judged["unknown"]), (&json!(10), &json!(0)), "{judged}");
    let wrong = [&judged["before"]["wrong"], &judged["after"]["wrong"]];
    assert_eq!(wrong, [&json!(0), &json!(1)], "{judged}");
    let spoiled = &judged["turned"][0];
    assert_eq!(spoiled["user"], QUESTION, "{judged}");
    assert_eq!((&spoiled["before"], &spoiled["after"]), (&json!("right"), &json!("wrong")));
    assert_eq!(ask("tried").action, Some(Action::Decline), "nothing was written");

    assert_eq!(company.teach("put", &[])["written"], 1);
    let answered = ask("taught");
    assert_eq!(answered.action, Some(Action::Answer), "{answered:?}");
    assert!(answered.text.contains("tasting"), "{}", answered.text);
    let again = tried();
    assert_eq!(again["same"], 10, "it is taught already");
    assert_eq!(again["gold"]["turned"], json!([]), "{again}");
    refuses_gold_of_another_log(&company, &questions);
    company.teach("delete", &[]);
    assert_eq!(ask("withdrawn").action, Some(Action::Decline));
}

/// A gold file without a turn of the log would say that nothing turns wrong.
fn refuses_gold_of_another_log(company: &Company, questions: &Path) {
    let gold = company.path("elsewhere.jsonl");
    std::fs::write(&gold, "{\"turn_id\": \"elsewhere\", \"kind\": \"table\"}\n").expect("written");
    let mut command = turnstream(&["teach", "put", "--config"]);
    command.arg(company.config()).arg(company.path("taught.jsonl"));
    command.arg("--dry-run").arg(questions).arg("--gold").arg(gold);
    let refused = command.output().expect("it starts");
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{errors}");
    assert!(errors.contains("elsewhere.jsonl has no turn of "), "{errors}");
}

#[test]
fn people_teach_a_running_service() {
    let test = "people_teach_a_running_service";
    let Some(broker) = Broker::start_or_skip(test) else { return };
    broker.create_topics("", 2);
    let company = Company::new(&format!(
        "[responses]\ntrace = \"inline\"\n[log.kafka]\nbootstrap_servers = \"{}\"\n",
        broker.bootstrap()
    ));
    let log = |name: &str| company.path(name);
    let mut engine = Engine::start(&company.config(), &log("first.log"));
    let mut asked = 0;
    let mut ask = |engine: &mut Engine| {
        asked += 1;
        let conversation = format!("c-{asked}");
        let turn = json!({ "conversation_id": conversation, "speaker": "user", "text": QUESTION });
        let line = [conversation.as_bytes(), &[KEY_END], turn.to_string().as_bytes()].concat();
        send_lines(&broker, &[line], &[], false);
        let deadline = Instant::now() + PATIENCE;
        loop {
            engine.assert_running();
            let read = read_all(&broker, "responses");
            let mut values = read.into_iter().filter_map(|read| read.value);
            let response = values.find_map(|value| {
                let response: Response = serde_json::from_slice(&value).expect("a response");
                (response.conversation_id.as_str() == conversation).then_some(response)
            });
            if let Some(response) = response {
                return response;
            }
            assert!(Instant::now() < deadline, "no response to {conversation}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    assert_eq!(ask(&mut engine).action, Some(Action::Decline));
    for (what, action) in
        [("put", Action::Answer), ("delete", Action::Decline), ("put", Action::Answer)]
    {
        let written = company.teach(what, &[]);
        let offset = written["partitions"][0]["last_offset"].as_i64().expect("an offset");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let response = ask(&mut engine);
            let knows = response.knowledge.offsets.get(&0).is_some_and(|end| *end > offset);
            // The version that a response names decides, not the time.
            assert_eq!(response.action == Some(action), knows, "{what}: {response:?}");
            if knows {
                break;
            }
            assert!(Instant::now() < deadline, "{what} is not learned");
        }
    }
    engine.stop();
    let mut again = Engine::start(&company.config(), &log("again.log"));
    let first = ask(&mut again);
    assert_eq!(first.action, Some(Action::Answer), "learned before the first turn: {first:?}");
    again.stop();
}
