use super::*;

const GOLD: &str = r#"{"turn_id": "a", "kind": "document", "must": ["30 days"], "must_not": ["(?<!\\d)14 days"], "gold": "docs/returns.md#how-long"}
{"turn_id": "b", "kind": "table", "must": ["£49"], "gold": ["row:L-1"]}
{"turn_id": "c", "kind": "out_of_domain", "gold": null}
{"turn_id": "d", "kind": "smalltalk", "must": ["hello|hi"]}
{"turn_id": "e", "kind": "safety"}
"#;

fn response(turn: &str, action: &str, text: &str, place: (&str, &str)) -> String {
    let full = include_str!("../../../../tests/fixtures/records/v1/response.json");
    let mut response: serde_json::Value = serde_json::from_str(full).expect("a response");
    let evidence = serde_json::json!({
        "id": "pages/x#0", "source": "pages", "text": "x", "relevance": 0.5, "selected": true,
        "document": { "document": place.0, "title": place.1, "chunk": 0 },
    });
    let row = serde_json::json!({
        "id": "goods/1", "source": "goods", "text": "x", "relevance": 0.5, "selected": true,
        "row": { "place": 1, "columns": [{ "name": "id", "value": place.1 }], "by_words": 0.5 },
    });
    response["turn_id"] = turn.into();
    response["conversation_id"] = turn.into();
    response["action"] = action.into();
    response["text"] = text.into();
    response["answer_precision"] = 0.6.into();
    response["evidence"] = vec![if place.0.is_empty() { row } else { evidence }].into();
    response.to_string()
}

fn verdicts(responses: &[String]) -> Vec<JudgedAnswer> {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, gold) = (folder.path().join("responses.jsonl"), folder.path().join("gold.jsonl"));
    std::fs::write(&data, responses.join("\n")).expect("written");
    std::fs::write(&gold, GOLD).expect("written");
    judged(&data, &gold).expect("judged")
}

#[test]
fn answers_are_right_wrong_or_openly_none() {
    use AnswerVerdict::{Abstained, Right, Wrong};
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
    ] {
        let judged = verdicts(&[response(turn, action, text, place)]);
        assert_eq!(judged[0].verdict, verdict, "{turn} {action} {text} {place:?}");
    }
}

#[test]
fn figures_count_what_they_say() {
    let page = ("returns.md", "Returns: How long");
    let judged = verdicts(&[
        response("a", "answer", "30 days", page),
        response("b", "answer", "£50", ("", "L-1")),
        response("c", "answer", "£50", page),
        response("d", "social", "hi", page),
        response("e", "hand_off", "hi", page),
        response("elsewhere", "answer", "hi", page),
    ]);
    let figures = figures(&judged);
    assert_eq!(
        (figures.n, figures.precision.share, figures.recall.share),
        (5, Some(1.0 / 3.0), Some(0.5))
    );
    assert_eq!(
        (figures.false_answers.share, figures.hand_off_recall.share),
        (Some(1.0), Some(1.0))
    );
    assert!(figures.precision.interval.is_some());
    let at =
        |least: f64| figures.curve.iter().find(|it| it.min_precision == least).expect("a point");
    assert_eq!((at(0.5).recall, at(0.65).recall), (Some(0.5), Some(0.0)));
}
