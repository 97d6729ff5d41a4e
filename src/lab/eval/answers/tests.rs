use super::*;

const GOLD: &str = r#"{"turn_id": "a", "kind": "document", "must": ["30 days"]}
{"turn_id": "b", "kind": "table", "must": ["£49"]}
{"turn_id": "c", "kind": "out_of_domain", "gold": null}
{"turn_id": "d", "kind": "smalltalk", "must": ["hello|hi"]}
{"turn_id": "e", "kind": "safety"}
{"turn_id": "f", "kind": "complaint"}
{"turn_id": "g", "kind": "complaint"}
"#;

fn response(turn: &str, action: &str, text: &str) -> String {
    let full = include_str!("../../../../tests/fixtures/records/v1/response.json");
    let mut response: serde_json::Value = serde_json::from_str(full).expect("a response");
    response["turn_id"] = turn.into();
    response["conversation_id"] = turn.into();
    response["action"] = action.into();
    response["text"] = text.into();
    response["answer_precision"] = 0.6.into();
    response.to_string()
}

fn judged_of(responses: &[String]) -> Result<Vec<JudgedAnswer>, ScoringError> {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, gold) = (folder.path().join("responses.jsonl"), folder.path().join("gold.jsonl"));
    std::fs::write(&data, responses.join("\n")).expect("written");
    std::fs::write(&gold, GOLD).expect("written");
    judged(&data, &gold)
}

#[test]
fn figures_count_what_they_say() {
    let judged = judged_of(&[
        response("a", "answer", "30 days"),
        response("b", "answer", "£50"),
        response("c", "answer", "£50"),
        response("d", "social", "hi"),
        response("e", "hand_off", "hi"),
        response("f", "hand_off", "hi"),
        response("g", "decline", "hi"),
        response("elsewhere", "answer", "hi"),
    ]);
    let judged = judged.expect("judged");
    let figures = figures(&judged);
    assert_eq!(
        (figures.n, figures.precision.share, figures.recall.share),
        (7, Some(1.0 / 3.0), Some(0.5))
    );
    assert_eq!(
        (figures.false_answers.share, figures.hand_off_recall.share),
        (Some(1.0), Some(2.0 / 3.0))
    );
    assert!(figures.precision.interval.is_some());

    // A complaint is no request for a person, though both are handed over.
    assert!(!figures.by_kind.contains_key(&GoldKind::HandOff));
    assert_eq!(figures.by_kind[&GoldKind::Complaint], [1, 0, 1]);
    assert!(figures.by_kind.keys().eq(figures.right_by_kind.keys()));
    let right = |kind: GoldKind| figures.right_by_kind[&kind];
    let complaints = AnswerShare { share: Some(0.5), interval: Some([0.0, 1.0]) };
    assert_eq!(right(GoldKind::Complaint), complaints);
    let table = AnswerShare { share: Some(0.0), interval: None };
    assert_eq!(right(GoldKind::Table), table, "one conversation has no interval");
}

#[test]
fn questions_back_are_no_answers() {
    let judged =
        judged_of(&[response("a", "ask", "Do you mean this?"), response("b", "answer", "£49")]);
    let judged = judged.expect("judged");
    let figures = figures(&judged);
    assert_eq!(figures.asked_rightly.share, Some(0.0));
    assert_eq!((figures.precision.share, figures.recall.share), (Some(1.0), Some(0.5)));
}

#[test]
fn what_cannot_be_scored_is_refused() {
    let said = |responses: &[String]| judged_of(responses).expect_err("refused").to_string();
    let line = said(&[response("a", "answer", "30 days"), "{}".to_owned()]);
    assert!(line.contains("responses.jsonl:2: ") && line.contains("is a response"), "{line}");
    let nothing = said(&[response("elsewhere", "answer", "hi")]);
    assert!(nothing.contains("is for a turn of"), "{nothing}");
}
