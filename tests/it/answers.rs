//! Tests that a company's customers are answered from its pages and its table, or openly not,
//! through the whole program.

use std::path::Path;

use serde_json::{Value, json};
use turnstream_schemas::{Action, HandOffReason, Response};

use crate::turnstream;

const RETURNS: &str = "# Returns\n\n## How long you have\n\nYou can send a lamp back within **30 days** \
                       of the day it arrives. A lamp that was used goes back at half its price.\n\n\
                       ## What it costs\n\n- Post within the country: we pay.\n- From abroad: you \
                       pay.\n";
const VISITS: &str = "# Visiting us\n\n## Opening hours\n\nThe shop in Harbour Street is open from ten \
                      to six, Tuesday to Saturday.\n\n## Parking\n\nThere is a car park behind the \
                      house; the first hour is free.\n";
const CHINESE: &str = "# 退换货\n\n## 退货期限\n\n收到之日起**30天**内可以退货。用过的灯按半价退款。\n\n## \
                       到店自提\n\n港口街的门店周二至周六10点到18点营业，凭取货码领取。\n";
const ROWS: &str = r#"{"id": "L-1", "name": "Oslo", "kind": "desk lamp", "price": "£49", "colour": "blue"}
{"id": "L-2", "name": "Bergen", "kind": "floor lamp", "price": "£120", "colour": "brass"}
"#;

const PHRASINGS: &str = r#"{"text": "my uncle has a caravan, where would he leave it", "gold": "pages/visits.md#parking"}
{"text": "the brassy one my gran had", "gold": "row:L-2"}
{"text": "got a spare bulb for the boat", "gold": null, "action": "decline"}
{"text": "its about the court letter", "gold": null, "action": "hand_off"}
{"text": "is anyone in", "gold": "visits.md#a-heading-that-went"}
"#;

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Returns the responses to conversations, each of a user's turns, with `more` added to the
/// configuration, where FOLDER stands for the company's folder.
fn responses(conversations: &[&[&str]], more: &str) -> (Vec<Response>, Value) {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("pages")).expect("a folder");
    let turns = conversations.iter().enumerate().flat_map(|(at, turns)| {
        let turn = move |text: &&str| {
            json!({ "conversation_id": at.to_string(), "speaker": "user", "text": text })
        };
        turns.iter().map(turn)
    });
    let turns: String = turns.map(|turn| format!("{turn}\n")).collect();
    for (name, content) in [
        ("pages/returns.md", RETURNS),
        ("pages/visits.md", VISITS),
        ("pages/chinese.md", CHINESE),
        ("lamps.jsonl", ROWS),
        ("phrasings.jsonl", PHRASINGS),
    ] {
        std::fs::write(at(name), content).expect("written");
    }
    std::fs::write(at("turns.jsonl"), turns).expect("written");
    let (store, table) = (at("store"), at("lamps.jsonl"));
    let more = more.replace("FOLDER", text(folder.path()));
    let config = format!(
        "{more}\n[documents]\ndirectory = {store:?}\n[sources.lamps]\nkind = \"table\"\nfile = \
         {table:?}\n[sources.pages]\nkind = \"documents\"\n"
    );
    std::fs::write(at("turnstream.toml"), config).expect("written");
    let run = |args: &[&str]| {
        let output = turnstream(args).output().expect("it starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {errors}");
        let said = String::from_utf8(output.stdout).expect("UTF-8");
        serde_json::from_str::<Value>(said.lines().last().expect("a line")).expect("JSON")
    };
    run(&["documents", "import", text(&at("pages")), "--out", text(&store), "--json"]);
    let (turns, config, out) = (at("turns.jsonl"), at("turnstream.toml"), at("out.jsonl"));
    let summary = run(&[
        "replay",
        text(&turns),
        "--config",
        text(&config),
        "--history",
        "generated",
        "--out",
        text(&out),
        "--json",
    ]);
    let lines = std::fs::read_to_string(out).expect("responses");
    let responses = lines.lines().map(|line| serde_json::from_str(line).expect("a response"));
    (responses.collect(), summary)
}

#[test]
fn a_customer_is_answered_in_chinese_from_a_page_in_chinese() {
    let conversations: [&[&str]; 4] = [
        &["灯不想要了，买了多久之内可以退"],
        &["周六几点关门，我去店里拿"],
        &["我要转人工"],
        &["谁拿了1998年世界杯冠军"],
    ];
    let (responses, _) = responses(&conversations, "");
    let actions: Vec<Action> = responses.iter().filter_map(|it| it.action).collect();
    use Action::{Answer, Decline, HandOff};
    assert_eq!(actions, [Answer, Answer, HandOff, Decline], "{responses:#?}");
    assert!(responses[0].text.starts_with("收到之日起30天内可以退货。"), "{}", responses[0].text);
    assert!(responses[1].text.contains("周二至周六10点到18点营业"), "{}", responses[1].text);
    assert!(responses.iter().all(|it| it.degraded.is_empty()), "{responses:#?}");
}

#[test]
fn an_unsure_response_asks_which_place_is_meant_and_the_choice_is_answered() {
    let conversations: [&[&str]; 2] = [
        &["its been six weeks, any chance", "yes please"],
        &["its been six weeks, any chance", "no", "what does the Bergen cost?"],
    ];
    let (responses, _) = responses(&conversations, "");
    let of = |id: &str| {
        let of = responses.iter().filter(|it| it.conversation_id.as_str() == id);
        of.map(|it| (it.action.expect("an action"), &*it.text)).collect::<Vec<_>>()
    };
    use Action::{Answer, Ask, Decline};
    let ([asks, chosen], [again, neither, price]) = (&of("0")[..], &of("1")[..]) else {
        panic!("{responses:#?}")
    };
    assert_eq!(*asks, (Ask, "Do you mean “Returns: How long you have”?"));
    assert_eq!(chosen.0, Answer);
    assert!(chosen.1.starts_with("You can send a lamp back within 30 days"), "{}", chosen.1);
    assert_eq!((again, neither.0), (asks, Decline));
    assert_eq!(*price, (Answer, "For Bergen: price is £120."));
    let chosen = responses.iter().find(|it| it.query_reconstructed.is_some()).expect("a choice");
    let question = "its been six weeks, any chance (Returns: How long you have)";
    assert_eq!(chosen.query_reconstructed.as_deref(), Some(question));
}

#[test]
fn a_customer_is_answered_or_told_that_there_is_no_answer() {
    let conversations: [&[&str]; 7] = [
        &["how long do i have to send a lamp back?"],
        &["until what time is the shop in harbour street open on saturday"],
        &["what does the Bergen cost?"],
        &["hi there"],
        &["I want to talk to a real person"],
        &["i smell gas in my flat, what do i do"],
        &["who won the world cup in 1998?"],
    ];
    let (responses, summary) = responses(&conversations, "");
    let [returns, hours, price, hello, person, gas, foreign] = &responses[..] else {
        panic!("{responses:?}")
    };
    let actions: Vec<Action> = responses.iter().filter_map(|it| it.action).collect();
    use Action::{Answer, Decline, HandOff, Social};
    let expected = [Answer, Answer, Answer, Social, HandOff, HandOff, Decline];
    assert_eq!(actions, expected, "{responses:#?}");
    let begin = "You can send a lamp back within 30 days of the day it arrives.";
    assert!(returns.text.starts_with(begin), "{}", returns.text);
    assert!(hours.text.contains("from ten to six, Tuesday to Saturday"), "{}", hours.text);
    assert!(price.text.starts_with("For Bergen: ") && price.text.contains("price is £120"));
    assert!(hello.text.starts_with("Hello") || hello.text.starts_with("Hi"), "{}", hello.text);
    assert_eq!(person.hand_off, Some(HandOffReason::Asked));
    assert_eq!(gas.hand_off, Some(HandOffReason::Safety));
    for response in [hello, person, gas, foreign] {
        assert!(response.evidence.iter().all(|evidence| !evidence.selected), "{response:?}");
    }
    for response in [returns, hours, price] {
        let precision = response.answer_precision.expect("a share");
        assert!(precision.get() >= 0.5 && response.evidence[0].selected, "{response:?}");
        assert!(!response.text.contains("**") && !response.text.contains('#'));
    }
    assert_eq!(summary["actions"]["answer"], json!(3), "{summary}");
    assert_eq!(summary["hand_offs"], json!({ "asked": 1, "safety": 1 }));
}

#[test]
fn a_follow_up_is_about_what_was_said_before() {
    let (responses, _) = responses(&[&["can i send a lamp back?", "and if it was used?"]], "");
    assert!(responses[1].text.contains("half its price"), "{}", responses[1].text);
}

#[test]
fn what_is_said_without_an_answer_is_configured() {
    let more = "[decision]\nmin_precision = 1.0\n[decision.hand_off]\nnothing_found_turns = 2\n\
                [decision.texts.en]\ndecline = \"Nothing.\"\nask = \"You mean {choices}?\"\nor = \" / \"\n\
                hand_off = \"a\"\ncomplaint = \"b\"\nsafety = \"c\"\nnothing_found = \"Wait.\"\n";
    let turns: &[&str] = &["do you repair radios?", "and clocks?"];
    let (responses, _) = responses(&[turns], more);
    let said: Vec<&str> = responses.iter().map(|it| &*it.text).collect();
    assert_eq!(said, ["Nothing.", "Wait."]);
    assert_eq!(responses[1].hand_off, Some(HandOffReason::NothingFound));
}

#[test]
fn what_staff_taught_changes_what_is_said() {
    let turns: [&[&str]; 4] = [
        &["my uncle has a caravan, where would he leave it"],
        &["the brassy one my gran had"],
        &["got a spare bulb for the boat?"],
        &["it's about the court letter"],
    ];
    let (taught, _) = responses(&turns, "[teaching]\nphrasings = \"FOLDER/phrasings.jsonl\"\n");
    let [parked, brass, bulb, court] = &taught[..] else { panic!("{taught:?}") };
    assert!(parked.text.contains("car park behind the house"), "{}", parked.text);
    assert!(brass.text.starts_with("For Bergen: "), "{}", brass.text);
    assert_eq!(bulb.action, Some(Action::Decline));
    assert_eq!(court.hand_off, Some(HandOffReason::Taught));
    let (untaught, _) = responses(&turns, "");
    let share = |of: &[Response], at: usize| of[at].answer_precision.map_or(0.0, |it| it.get());
    assert!(share(&taught, 0) > share(&untaught, 0) && untaught[3].hand_off.is_none());
}

#[test]
fn a_new_company_is_answered_for_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let (dir, out) = (folder.path().join("tea \"house\""), folder.path().join("out.jsonl"));
    let made = turnstream(&["new", text(&dir)]).output().expect("it starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let again = turnstream(&["new", text(&dir)]).output().expect("it starts");
    assert_eq!(again.status.code(), Some(2), "it is not empty");
    let (config, questions) = (dir.join("turnstream.toml"), dir.join("questions.jsonl"));
    let replay = ["replay", text(&questions), "--config", text(&config), "--out", text(&out)];
    let replayed = turnstream(&[&replay[..], &["--history", "generated"]].concat());
    let replayed = { replayed }.output().expect("it starts");
    assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
    let lines = std::fs::read_to_string(&out).expect("responses");
    let responses: Vec<Response> =
        lines.lines().map(|line| serde_json::from_str(line).expect("a response")).collect();
    a_new_company_is_scored(&dir);
    what_nothing_answered_is_listed_and_taught(&questions, &out, &dir.join("phrasings.jsonl"));
    let said = |id: &str| {
        let found = responses.iter().find(|it| it.turn_id.as_str() == id).expect("a response");
        (found.action.expect("an action"), &*found.text)
    };
    assert_eq!(said("q01.1").0, Action::Social);
    for (id, words) in [
        ("q01.2", "ten to seven"),
        ("q02.1", "two working days"),
        ("q03.1", "£9.50"),
        ("q05.1", "photo"),
    ] {
        let (action, text) = said(id);
        assert!(action == Action::Answer && text.contains(words), "{id}: {action:?} {text}");
    }
    assert_eq!((said("q06.1").0, said("q07.1").0), (Action::Decline, Action::Decline));
    assert_eq!(said("q08.1").0, Action::HandOff);
}

/// Scores the company's questions against its own gold file, by the program beside the tested one.
fn a_new_company_is_scored(dir: &Path) {
    if !Path::new(env!("CARGO_BIN_EXE_turnstream")).with_file_name("turnstream-lab").is_file() {
        eprintln!("SKIPPED: scoring a company; `cargo build -p turnstream-lab` makes what scores");
        return;
    }
    let [questions, gold, config] =
        ["questions.jsonl", "gold.jsonl", "turnstream.toml"].map(|name| dir.join(name));
    let asked = ["eval", "answers", "--questions", text(&questions), "--gold", text(&gold)];
    let scored =
        turnstream(&[&asked[..], &["--config", text(&config), "--curve", "--json"]].concat());
    let scored = { scored }.output().expect("it starts");
    assert!(scored.status.success(), "{}", String::from_utf8_lossy(&scored.stderr));
    let figures = String::from_utf8(scored.stdout).expect("UTF-8");
    let figures: Value =
        serde_json::from_str(figures.lines().last().expect("a line")).expect("JSON");
    let shares = ["precision", "hand_off_recall", "small_talk"].map(|name| &figures[name]["share"]);
    assert_eq!((&figures["n"], shares), (&10.into(), [&1.0.into(); 3]), "{figures}");
    assert_eq!(figures["by_kind"]["table"], json!([1, 0, 0]), "{figures}");
    assert_eq!(figures["right_by_kind"]["table"]["share"], 1.0, "{figures}");
    assert_eq!(figures["false_answers"]["share"], 0.0, "{figures}");

    let curve = figures["curve"].as_array().expect("points");
    let configured = curve.iter().find(|it| it["min_precision"] == 0.5).expect("a point");
    assert_eq!(configured["recall"], figures["recall"], "{figures}");
    let strict = curve.last().expect("a point");
    assert!(strict["recall"]["share"].as_f64() < figures["recall"]["share"].as_f64(), "{figures}");
    let mut names = std::fs::read_dir(dir).expect("a folder").flatten().map(|it| it.file_name());
    assert!(names.all(|it| !it.to_string_lossy().starts_with('.')), "a file is left");
}

/// What the program prints where it succeeds.
fn printed(args: &[&str]) -> String {
    let ended = turnstream(args).output().expect("it starts");
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{args:?}: {errors}");
    String::from_utf8(ended.stdout).expect("UTF-8")
}

fn values(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A turn's conversation, speaker and text.
type LoggedWords = (&'static str, &'static str, &'static str);

#[test]
fn what_agents_answered_and_users_chose_suggests_phrasings() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let said: [LoggedWords; 17] = [
        ("a", "user", "my nan's lamp came with a crack and she hates it"),
        ("a", "system", "She can send it back within 30 days of the day it arrives."),
        // A second system turn in a row answers no turn.
        ("a", "system", "The shop in Harbour Street is open from ten to six."),
        ("b", "user", "and where would i leave the van"),
        ("b", "system", "There's a car park behind the house, the first hour is free."),
        ("c", "user", "is Ines in today"),
        ("c", "system", "I will go and ask her, give me a moment please."),
        ("d", "user", "cheers"),
        ("d", "system", "Parking!"),
        ("e", "user", "the brassy one my gran had"),
        ("e", "user", "the first one"),
        // A customer before has said the same.
        ("f", "user", "and where would i leave the van"),
        ("f", "user", "yes"),
        ("g", "user", "got a spare bulb for the boat"),
        ("g", "user", "neither"),
        ("h", "user", "am i out of pocket if it comes back"),
        ("h", "user", "costs"),
    ];
    let turn = |(conversation, speaker, text): LoggedWords| json!({ "conversation_id": conversation, "speaker": speaker, "text": text });
    let log: String = said.into_iter().map(|it| format!("{}\n", turn(it))).collect();
    std::fs::create_dir(at("pages")).expect("a folder");
    for (name, content) in [
        ("pages/returns.md", RETURNS),
        ("pages/visits.md", VISITS),
        ("log.jsonl", &*log),
        ("responses.jsonl", &*responses_with_choices(&said)),
    ] {
        std::fs::write(at(name), content).expect("written");
    }
    let (pages, store, taught) = (at("pages"), at("store"), at("taught.jsonl"));
    printed(&["documents", "import", text(&pages), "--out", text(&store), "--encoder", "none"]);
    let (log, store, file) = (at("log.jsonl"), text(&store), text(&taught));
    let suggest = ["teach", "suggest", text(&log), "--documents", store, "--phrasings", file];
    let found = values(&printed(&[&suggest[..], &["--json", "--add"]].concat()));
    let suggested = |line: &Value| (line["text"].clone(), line["gold"].clone());
    let expected = [
        (json!(said[0].2), json!("returns.md#how-long-you-have")),
        (json!(said[3].2), json!("visits.md#parking")),
    ];
    let (counts, found) = found.split_last().expect("counts");
    assert_eq!(found.iter().map(suggested).collect::<Vec<_>>(), expected);
    assert_eq!(counts, &json!({ "replies": 4, "suggested": 2 }));
    let known = std::fs::read_to_string(&taught).expect("phrasings");
    assert_eq!(values(&known).iter().map(suggested).collect::<Vec<_>>(), expected);
    let again = values(&printed(&[&suggest[..], &["--json"]].concat()));
    assert_eq!(again, [json!({ "replies": 4, "suggested": 0 })], "all are known");
    what_users_chose_is_suggested(&suggest, &at("responses.jsonl"), &said);
}

/// The responses to the turns of users that no agent answers: four ask which place is meant, and the user
/// chooses a place in three of these conversations.
fn responses_with_choices(said: &[LoggedWords]) -> String {
    let row = json!({ "place": 2, "columns": [{ "name": "id", "value": "L-2" }], "by_words": 0.5 });
    let row = ("row", row);
    let cost = json!({ "document": "returns.md", "title": "Returns: What it costs", "chunk": 1 });
    let cost = ("document", cost);
    let response = |at: usize, action: &str, completed: &str, (kind, place): &(&str, Value)| {
        let full = include_str!("../fixtures/records/v1/response.json");
        let mut response: Value = serde_json::from_str(full).expect("a response");
        response["conversation_id"] = said[at].0.into();
        response["turn_id"] = format!("0-{at}").into();
        response["action"] = action.into();
        response["query_reconstructed"] = completed.into();
        response["evidence"] = json!([{
            "id": "x", "source": "x", "text": "x", "relevance": 0.5, "selected": true,
        }]);
        response["evidence"][0][*kind] = place.clone();
        format!("{response}\n")
    };
    let ask = |at: usize| response(at, "ask", said[at].2, &row);
    let completed = |at: usize, name: &str| format!("{} ({name})", said[at].2);
    let responses = [
        ask(9),
        ask(11),
        ask(13),
        ask(15),
        response(16, "answer", &completed(15, "What it costs"), &cost),
        response(10, "answer", &completed(9, "Bergen"), &row),
        response(12, "answer", &completed(11, "What it costs"), &cost),
        response(14, "decline", &completed(13, "Bergen"), &row),
    ];
    responses.concat()
}

/// Suggests what users chose too, where the file of phrasings has what agents answered.
fn what_users_chose_is_suggested(suggest: &[&str], responses: &Path, said: &[LoggedWords]) {
    let chosen =
        |at: usize, place: &str| json!({ "text": said[at].2, "gold": place, "chosen": true });
    let expected = [chosen(15, "returns.md#what-it-costs"), chosen(9, "row:L-2")];
    let with_responses = [suggest, &["--responses", text(responses)]].concat();
    let shown = printed(&with_responses);
    let first =
        format!("“{}”\n    → returns.md#what-it-costs\n    the user chose it\n\n", said[15].2);
    assert!(shown.starts_with(&first), "{shown}");
    assert!(shown.contains("2 phrasings from 4 replies of agents and 3 choices.\n"), "{shown}");

    let without_file = [&suggest[..5], &["--responses", text(responses), "--json"]].concat();
    let found = values(&printed(&without_file));
    assert_eq!(found[2..4], expected, "after what agents answered");
    assert_eq!(found[4..], [json!({ "replies": 4, "choices": 3, "suggested": 4 })]);

    let add = [&with_responses[..], &["--json", "--add"]].concat();
    let counts = |suggested: usize| json!({ "replies": 4, "choices": 3, "suggested": suggested });
    let found = values(&printed(&add));
    assert_eq!((&found[..2], &found[2..]), (&expected[..], &[counts(2)][..]));
    let taught = values(&std::fs::read_to_string(suggest[6]).expect("phrasings"));
    let golds: Vec<&Value> = taught.iter().skip(2).map(|line| &line["gold"]).collect();
    assert_eq!(golds, ["returns.md#what-it-costs", "row:L-2"]);
    assert_eq!(values(&printed(&add)), [counts(0)], "all are known");

    let listed = printed(&["teach", "list", suggest[2], text(responses), "--json"]);
    let of = |turn: &str| {
        let clusters = values(&listed);
        let mut turns = clusters.iter().filter_map(|it| it["turns"].as_array()).flatten();
        turns.find(|it| it["turn"] == turn).map(|it| it["chosen"].clone())
    };
    assert_eq!(of("e/0-9"), Some(json!("row:L-2")));
    assert_eq!(of("g/0-13"), Some(Value::Null), "none of them was meant");
}

fn what_nothing_answered_is_listed_and_taught(log: &Path, responses: &Path, phrasings: &Path) {
    let run = |args: &[&str]| turnstream(&[&["teach"], args].concat()).output().expect("it starts");
    let listed = run(&["list", text(log), text(responses), "--json"]);
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let lines = String::from_utf8(listed.stdout).expect("UTF-8");
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let (counts, clusters) = lines.split_last().expect("counts");
    let of = |id: &str| clusters.iter().find(|it| it["turns"].to_string().contains(id));
    let coffee = of("q06.1").expect("what was declined is listed");
    assert!(coffee["nearest"][0].as_str().is_some_and(|it| it.contains(['#', ':'])), "{coffee}");
    assert!(of("q03.1").is_none(), "it was answered");
    assert!(of("q08.1").is_some(), "an agent has to answer it");
    assert_eq!(counts["clusters"], clusters.len());
    let corrected = log.with_extension("corrected.jsonl");
    let later = [
        r#"{"conversation_id":"q03","speaker":"system","response_id":"r","text":"By post."}"#,
        r#"{"conversation_id":"q03","speaker":"system","text":"Ann: or by courier."}"#,
    ];
    let said = std::fs::read_to_string(log).expect("the log");
    std::fs::write(&corrected, [&*said, &later.join("\n"), "\n"].concat()).expect("written");
    let listed = run(&["list", text(&corrected), text(responses), "--json"]).stdout;
    let listed = String::from_utf8(listed).expect("UTF-8");
    assert!(listed.contains("q03.1") && listed.contains("Ann: or by courier."), "{listed}");

    let before = std::fs::read_to_string(phrasings).expect("phrasings");
    let teach =
        ["set", text(log), "q07/q07.1", "house.md#tastings", "--phrasings", text(phrasings)];
    assert!(run(&teach).status.success());
    let after = std::fs::read_to_string(phrasings).expect("phrasings");
    let line = after.strip_prefix(&*before).expect("one line more");
    let line: Value = serde_json::from_str(line).expect("JSON");
    assert_eq!(line["gold"], "house.md#tastings");
    assert_eq!(line["text"], "who painted the mona lisa");
    assert_eq!(run(&teach).status.code(), Some(2), "it is there already");
    let unknown =
        ["set", text(log), "q07/q99", "--action", "decline", "--phrasings", text(phrasings)];
    assert_eq!(run(&unknown).status.code(), Some(2), "no such turn");
}
