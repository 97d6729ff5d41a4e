use serde_json::{Value, json};

use super::*;

const GOLD: &str = r#"{"turn_id": "a", "kind": "document", "must": ["30 days"], "must_not": ["(?<!\\d)14 days"], "gold": "docs/returns.md#how-long"}
{"turn_id": "b", "kind": "table", "must": ["£49"], "gold": ["row:L-1"]}
{"turn_id": "c", "kind": "out_of_domain", "gold": null}
{"turn_id": "d", "kind": "smalltalk", "must": ["hello|hi"]}
{"turn_id": "e", "kind": "safety"}
{"turn_id": "f", "kind": "complaint"}
"#;

fn response(turn: &str, action: &str, text: &str, place: (&str, &str)) -> Response {
    let full = include_str!("../../../tests/fixtures/records/v1/response.json");
    let mut response: Value = serde_json::from_str(full).expect("a response");
    let evidence = json!({
        "id": "pages/x#0", "source": "pages", "text": "x", "relevance": 0.5, "selected": true,
        "document": { "document": place.0, "title": place.1, "chunk": 0 },
    });
    let row = json!({
        "id": "goods/1", "source": "goods", "text": "x", "relevance": 0.5, "selected": true,
        "row": { "place": 1, "columns": [{ "name": "id", "value": place.1 }], "by_words": 0.5 },
    });
    response["turn_id"] = turn.into();
    response["action"] = action.into();
    response["text"] = text.into();
    response["evidence"] = vec![if place.0.is_empty() { row } else { evidence }].into();
    serde_json::from_value(response).expect("a response")
}

fn read(lines: &str) -> Result<GoldFile, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("gold.jsonl");
    std::fs::write(&file, lines).expect("written");
    GoldFile::read(&file).map_err(|error| error.to_string())
}

#[test]
fn answers_are_right_wrong_or_openly_none() {
    use AnswerVerdict::{Abstained, Right, Wrong};
    let gold = read(GOLD).expect("gold");
    let returns = ("returns.md", "Returns: How long");
    for (turn, action, text, place, verdict) in [
        ("a", "answer", "You have 30 days.", returns, Right),
        ("a", "answer", "You have 14 days, or 30 days.", returns, Wrong),
        ("a", "answer", "You have 30 days.", ("returns.md", "Returns: Costs"), Wrong),
        ("a", "decline", "Sorry, 30 days.", returns, Abstained),
        ("b", "answer", "price is £49", ("", "L-1"), Right),
        ("b", "answer", "price is £49", ("", "L-2"), Wrong),
        ("c", "decline", "I do not know.", returns, Right),
        ("c", "answer", "Rain can be wet.", returns, Wrong),
        ("d", "social", "Hello!", returns, Right),
        ("d", "social", "Goodbye.", returns, Abstained),
        ("e", "hand_off", "A colleague comes.", returns, Right),
        ("e", "decline", "I do not know.", returns, Abstained),
        ("f", "hand_off", "A colleague comes.", returns, Right),
        ("f", "answer", "You have 30 days.", returns, Wrong),
    ] {
        let response = response(turn, action, text, place);
        let judged = gold.turn(&response).expect("a turn of the file").judge(&response);
        assert_eq!(judged, verdict, "{turn} {action} {text} {place:?}");
    }
    assert!(gold.turn(&response("elsewhere", "answer", "hi", returns)).is_none());
}

#[test]
fn a_line_that_is_no_turn_is_refused_by_its_number() {
    for (line, says) in [
        (r#"{"turn_id": "x"}"#, "kind"),
        (r#"{"turn_id": "x", "kind": "documents"}"#, "documents"),
        (r#"{"turn_id": "x", "kind": "document", "must": ["(30"]}"#, "; a line is a turn"),
    ] {
        let error = read(&format!("{GOLD}\n{line}\n")).expect_err(line);
        assert!(error.contains("gold.jsonl:8: ") && error.contains(says), "{error}");
    }
    assert!(GoldFile::read(Path::new("/nowhere/gold.jsonl")).is_err());
}

#[test]
fn names_are_those_of_the_records() {
    for kind in GoldKind::ALL {
        assert_eq!(json!(kind), json!(kind.name()));
        assert_eq!(serde_json::from_value::<GoldKind>(json!(kind.name())).ok(), Some(kind));
    }
    for verdict in AnswerVerdict::ALL {
        assert_eq!(json!(verdict), json!(verdict.name()));
    }
    for (name, kind) in [("handoff", GoldKind::HandOff), ("smalltalk", GoldKind::SmallTalk)] {
        assert_eq!(serde_json::from_value::<GoldKind>(json!(name)).ok(), Some(kind));
    }
}

#[test]
fn a_question_back_names_a_place_that_answers_or_not() {
    let gold = read(GOLD).expect("gold");
    let returns = ("returns.md", "Returns: How long?");
    for (turn, action, text, place, is_named) in [
        ("a", "ask", "Do you mean “How long” or “Costs”?", returns, true),
        ("a", "answer", "Do you mean “How long” or “Costs”?", returns, false),
        ("a", "ask", "Do you mean “Costs”?", ("returns.md", "Returns: Costs"), false),
        ("a", "ask", "Do you mean “Costs”?", returns, false),
        ("b", "ask", "Do you mean L-1 or L-2?", ("", "L-1"), true),
        ("c", "ask", "Do you mean “How long”?", returns, false),
    ] {
        let response = response(turn, action, text, place);
        let found = gold.turn(&response).expect("a turn of the file").is_asked_about(&response);
        assert_eq!(found, is_named, "{turn}: {text}");
    }
}
