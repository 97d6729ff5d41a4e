//! Tests `turnstream demo` as a person or a program runs it: its output keeps the promises of the
//! engine and of the demo.

use std::io::Write;
use std::process::{Output, Stdio};
use std::sync::LazyLock;

use serde_json::Value;
use turnstream_schemas::{Action, RecalledVia, Response, Turn};

use crate::{invariants, turnstream};

fn succeeded(output: &Output) -> &str {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", output.status);
    std::str::from_utf8(&output.stdout).expect("UTF-8")
}

/// The output of one run with `--json`.
struct PrintedDemo {
    records: Vec<Value>,
    responses: Vec<Response>,
    counts: Value,
}

impl PrintedDemo {
    fn read(output: &Output) -> Self {
        let lines = succeeded(output).lines();
        let mut records: Vec<Value> =
            lines.map(|line| serde_json::from_str(line).expect("a JSON line")).collect();
        let counts = records.pop().expect("a last line");
        let responses = records
            .iter()
            .map(|record| serde_json::from_value(record.clone()).expect("a response"));
        Self { responses: responses.collect(), records, counts }
    }

    fn of(&self, conversation: &str) -> Vec<&Response> {
        let of = |response: &&Response| response.conversation_id.as_str() == conversation;
        self.responses.iter().filter(of).collect()
    }
}

static WHOLE: LazyLock<PrintedDemo> = LazyLock::new(|| {
    PrintedDemo::read(&turnstream(&["demo", "--all", "--json"]).output().expect("it starts"))
});

/// Returns the turns of the conversations without echoes, whose words are our own.
fn turns() -> Vec<Turn> {
    let files = [
        include_str!("../../src/cli/demo/conversations/teahouse.jsonl"),
        include_str!("../../src/cli/demo/conversations/taught.jsonl"),
        include_str!("../../src/cli/demo/conversations/parcel.jsonl"),
        include_str!("../../src/cli/demo/conversations/chatty.jsonl"),
        include_str!("../../src/cli/demo/conversations/returning.jsonl"),
        include_str!("../../src/cli/demo/conversations/hotel.jsonl"),
    ];
    let turns = files.iter().flat_map(|file| file.lines());
    let turns = turns.filter_map(|line| serde_json::from_str::<Turn>(line).ok());
    turns.filter(|turn| turn.response_id.is_none()).collect()
}

#[test]
fn every_input_ends_once_and_every_kind_of_end_occurs() {
    let counts = &WHOLE.counts;
    let lines: usize = 8 + 1 + 17 + 13 + 14 + 8;
    assert_eq!(invariants::counts_are_conserved(counts), lines as u64);
    assert_eq!(counts["responses"], WHOLE.responses.len());
    assert_eq!(counts["dead_letters_by_stage"]["ingest"], 1, "{counts}");
    for (reason, count) in [
        ("system", 2),
        ("echo", 1),
        ("superseded_by", 1),
        ("held", 3),
        ("release", 1),
        ("duplicate_of", 1),
    ] {
        assert_eq!(counts["recorded_by_reason"][reason], count, "{reason}: {counts}");
    }
    for key in ["retrieve", "skip"] {
        assert!(counts["gate"][key].as_u64() > Some(4), "{key}: {counts}");
    }
    assert!(counts["foreseen_hits"].as_u64() > Some(8), "{counts}");
    assert!(counts["turns_per_second"].as_f64() > Some(0.0), "{counts}");
    assert_eq!(counts["degraded"], serde_json::json!({}), "no stage failed");
}

#[test]
fn responses_keep_the_invariants() {
    assert!(invariants::responses_keep_the_schema(&WHOLE.records) > 20);
    assert!(invariants::selected_facts_are_demanded(&WHOLE.responses) > 100);
    assert!(invariants::explicit_queries_are_their_spans(&turns(), &WHOLE.responses) > 50);
    invariants::denied_facts_are_spoken_as_denied(&WHOLE.responses);
}

#[test]
fn a_gate_that_says_no_retrieves_nothing() {
    for response in WHOLE.responses.iter().filter(|response| !response.gate.retrieve) {
        assert_eq!(response.plan.0, Vec::new(), "{}", response.turn_id);
        assert!(response.evidence.is_empty() && response.demand.query_concepts().next().is_none());
    }
    let skipped = |id: &str| {
        let turn = WHOLE.responses.iter().find(|response| response.turn_id.as_str() == id);
        !turn.unwrap_or_else(|| panic!("{id} was not answered")).gate.retrieve
    };
    for small_talk in ["p1", "p12", "c1", "c4", "c8", "c13", "r14"] {
        assert!(skipped(small_talk), "{small_talk} is small talk");
    }
    for question in ["c3", "c9", "c10", "c11", "r2", "r6", "p10"] {
        assert!(!skipped(question), "{question} asks for knowledge");
    }
}

#[test]
fn rows_are_asked_for_and_said_where_the_words_call_for_them() {
    let hotel = WHOLE.of("hotel");
    let turn = |id: &str| {
        let found = hotel.iter().find(|response| response.turn_id.as_str() == id);
        *found.unwrap_or_else(|| panic!("{id} was not answered"))
    };
    for (id, value) in [("h2", "$120"), ("h3", "the old town"), ("h5", "16:00")] {
        let response = turn(id);
        assert!(response.text.contains(value), "{id}: {}", response.text);
        assert!(response.evidence[0].row.is_some(), "{id}");
        assert!(response.gate.retrieve && response.gate.features.is_empty(), "{id}");
        assert_eq!(response.action, Some(Action::Answer), "{id}");
    }
    // This turn asks for no room.
    let swim = turn("h7");
    assert!(swim.gate.retrieve && swim.gate.features.contains_key("question"), "{:?}", swim.gate);
    assert!(swim.evidence.iter().all(|evidence| evidence.row.is_none()), "{}", swim.text);
    for small_talk in ["h1", "h8"] {
        assert!(!turn(small_talk).gate.retrieve, "{small_talk}");
    }
}

#[test]
fn what_returns_is_recalled_and_what_does_not_is_evicted() {
    let returning = WHOLE.of("returning");
    let turn = |id: &str| {
        let found = returning.iter().find(|response| response.turn_id.as_str() == id);
        *found.unwrap_or_else(|| panic!("{id} was not answered"))
    };
    let recalled = |id: &str, recent: bool| -> Vec<&str> {
        let is = move |via| (via == RecalledVia::Recent) == recent;
        let history = turn(id).history.iter().filter(move |recalled| is(recalled.via));
        history.map(|recalled| recalled.turn_id.as_str()).collect()
    };
    let evicted = |id: &str| -> Vec<&str> {
        turn(id).evicted.iter().map(|evicted| evicted.turn_id.as_str()).collect()
    };
    // Back to the guitar after three turns about the garden.
    assert_eq!(recalled("r7", true), ["r6", "r5", "r4"]);
    assert!(recalled("r7", false).contains(&"r1"));
    // The history holds six entries: the first to go is about the garden, though the guitar is
    // older.
    assert_eq!(evicted("r6"), [""; 0]);
    assert!(["r4", "r5", "r6"].contains(&evicted("r7")[0]), "{:?}", evicted("r7"));
    // The train to the beach was another subject three turns before.
    assert!(recalled("r13", false).contains(&"r9"));
    for response in &returning {
        for gone in &response.evicted {
            assert_eq!(gone.rank, 7, "{}: one in, one out", response.turn_id);
            let weight = 0.5 * gone.relevance.get() + 0.5 * gone.recency.get();
            assert!((gone.weight.get() - weight).abs() < 1e-9);
        }
    }
    let gone: usize = returning.iter().map(|response| response.evicted.len()).sum();
    assert_eq!(gone, returning.len() - 6, "every turn after the sixth pushes one out");
}

#[test]
fn one_conversation_can_be_shown_alone() {
    let output = turnstream(&["demo", "--json", "--conversation", "chatty"]).output().unwrap();
    let chatty = PrintedDemo::read(&output);
    let texts = |responses: &[&Response]| -> Vec<String> {
        responses.iter().map(|response| response.text.clone()).collect()
    };
    let alone: Vec<&Response> = chatty.responses.iter().collect();
    assert_eq!(texts(&alone), texts(&WHOLE.of("chatty")), "nobody hears the others");
    invariants::counts_are_conserved(&chatty.counts);

    let unknown = turnstream(&["demo", "--conversation", "silent"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&unknown.stderr);
    assert!(errors.contains("silent") && errors.contains("returning"), "{errors}");
}

#[test]
fn the_company_answers_or_says_that_it_does_not() {
    let response = |turn: &str| {
        let found = WHOLE.responses.iter().find(|it| it.turn_id.as_str() == turn);
        found.unwrap_or_else(|| panic!("no response to {turn}"))
    };
    for (turn, action, words) in [
        ("t1", Action::Social, ""),
        ("t2", Action::Answer, "two working days"),
        ("t3", Action::Answer, "abroad five to eight"),
        ("t4", Action::Answer, "£9.50"),
        ("t5", Action::Answer, "For Evening Tide: price is £6.10."),
        ("t6", Action::Decline, ""),
        ("t7", Action::Decline, ""),
        ("t8", Action::HandOff, ""),
        ("a1", Action::Answer, "book one by telephone"),
    ] {
        let response = response(turn);
        assert_eq!(response.action, Some(action), "{turn}: {}", response.text);
        assert!(response.text.contains(words), "{turn}: {}", response.text);
    }
    let shown = turnstream(&["demo"]).output().unwrap();
    let shown = succeeded(&shown);
    for part in ["teahouse", "Lighthouse Green", "Orders: Delivery", "taught", "demo --all"] {
        assert!(shown.contains(part), "`{part}` is missing: {shown}");
    }
    assert!(!shown.contains("ConceptNet"), "a screenful, not the whole");
    let lines = shown.lines().count();
    assert!(lines <= 75, "{lines} lines are more than a screenful");
}

#[test]
fn the_explanation_has_every_section_and_fits_the_page() {
    let output = turnstream(&["demo", "--all"]).output().unwrap();
    let shown = succeeded(&output);
    for section in [
        "flow",
        "gate",
        "explicit",
        "implicit",
        "maintained",
        "extended",
        "thought",
        "revised",
        "foreseen",
        "unforeseen",
        "recent",
        "relevant",
        "evicted",
        "answer",
        "confidence",
        "time",
        "recorded",
        "superseded",
        "echo",
        "duplicate",
        "dead letter",
        "law",
        "demo --chat",
    ] {
        assert!(shown.contains(section), "`{section}` is missing");
    }
    for turn in turns() {
        let words: Vec<&str> = turn.text.split_whitespace().collect();
        let unwrapped = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(unwrapped.contains(&words.join(" ")), "{} is not shown", turn.text);
    }
    for line in shown.lines() {
        assert!(line.chars().count() <= 100, "too wide: {line}");
        assert!(!line.contains('\u{1b}'), "colours in a pipe: {line:?}");
        assert_eq!(line, line.trim_end(), "spaces at the end");
    }
}

#[test]
fn a_chat_serves_what_is_typed_until_an_empty_line() {
    let chat = |args: &[&str]| {
        let mut command = turnstream(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let typed = "What do I need to bake bread?\nthank you\n\nis this read?\n";
        child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let printed = PrintedDemo::read(&chat(&["demo", "--chat", "--json"]));
    let retrieved: Vec<bool> =
        printed.responses.iter().map(|response| response.gate.retrieve).collect();
    assert_eq!(retrieved, [true, false]);
    assert!(printed.responses[0].text.to_lowercase().contains("bread"));
    assert_eq!(invariants::counts_are_conserved(&printed.counts), 2);

    let shown = chat(&["demo", "--chat"]);
    let shown = succeeded(&shown);
    assert!(shown.contains("bake bread") && shown.contains("2 inputs = 2 responses"), "{shown}");
    assert!(!shown.contains("is this read?"));
}

#[test]
fn a_reader_who_stops_reading_ends_the_demo_quietly() {
    let mut command = turnstream(&["demo"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
