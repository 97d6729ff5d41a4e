use turnstream_schemas::{
    ConversationId, Fault, FaultKind, InputId, Recorded, RecordedReason, Stage,
};

use super::*;

/// Records the output in the pieces in which it became visible.
#[derive(Default)]
struct Seen {
    flushed: Vec<String>,
    written: Vec<u8>,
}

impl Write for Seen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = String::from_utf8(std::mem::take(&mut self.written)).expect("UTF-8");
        self.flushed.push(written);
        Ok(())
    }
}

fn input() -> InputId {
    InputId { topic: "turns".to_owned(), partition: 0, offset: 3 }
}

fn response(text: &str) -> Outcome {
    let json = serde_json::json!({
        "schema_version": 1, "response_id": "turns-0-3", "input": input(), "conversation_id": "c",
        "turn_id": "0-3", "text": text, "gate": { "retrieve": false, "score": 0.2 },
        "demand": { "queries": { "explicit": [], "implicit": [] },
                    "topics": { "maintained": [], "extended": [] } },
        "plan": [], "evidence": [], "history": [], "evicted": [],
        "knowledge": { "snapshot": "s" }, "model": { "name": "m" }, "degraded": []
    });
    Outcome::Response(serde_json::from_value(json).expect("a response"))
}

fn seen(colour: bool, show: impl Fn(&mut View<'_>) -> io::Result<()>) -> Vec<String> {
    seen_on(None, colour, show)
}

fn seen_on(
    columns: Option<fn() -> usize>,
    colour: bool,
    show: impl Fn(&mut View<'_>) -> io::Result<()>,
) -> Vec<String> {
    let mut seen = Seen::default();
    let mut view = View::new(&mut seen, colour, columns);
    view.begin().expect("written");
    show(&mut view).expect("written");
    seen.flush().expect("written");
    seen.flushed.into_iter().filter(|it| !it.is_empty()).collect()
}

fn end(view: &mut View<'_>, text: &str) -> io::Result<()> {
    view.outcome(&response(text), &Spoken::default())
}

#[test]
fn a_response_is_seen_as_it_is_written_and_not_twice() {
    let shown = seen(false, |view| {
        for end in [2, 6, 6, 8, 15, 17, 18] {
            view.written(&"\n Tea is calmer.\n\n"[..end])?;
        }
        end(view, "Tea is calmer.")
    });
    assert_eq!(shown, ["Tea", " is", " calmer", ".", "\n"]);
    assert_eq!(seen(false, |view| end(view, "Whole.")).concat(), "Whole.\n");
}

#[test]
fn a_terminal_has_lines_that_break_at_words() {
    let columns: Option<fn() -> usize> = Some(|| 20);
    let shown = seen_on(columns, false, |view| {
        for end in [10, 22, 25, 27, 43] {
            view.written(&"Tea is calmer than coffee.\nTry it at night."[..end])?;
        }
        end(view, "Tea is calmer than coffee.\nTry it at night.")
    });
    let expected = "Tea is calmer than\ncoffee.\nTry it at night.\n";
    assert_eq!(shown.concat(), expected);
    assert_eq!(shown[0], "Tea is", "a word is shown once it is whole");
    let whole = |text: &'static str| seen_on(columns, false, move |view| end(view, text)).concat();
    assert_eq!(whole("Tea is calmer than coffee."), "Tea is calmer than\ncoffee.\n");
    assert_eq!(whole("茶比咖啡更平静，晚上喝茶。"), "茶比咖啡更平静，晚上\n喝茶。\n");
    let note = seen_on(columns, false, |view| view.note("there is no response yet")).concat();
    assert_eq!(note, "(there is no\nresponse yet)\n");
}

#[test]
fn discarded_text_is_told_apart_from_the_response() {
    let begun_anew = seen(false, |view| {
        view.written("Cof")?;
        view.written("Tea.")?;
        end(view, "Tea.")
    });
    assert_eq!(begun_anew.concat(), "Cof\n(the model starts again)\nTea.\n");
    let replaced = seen(false, |view| {
        view.written("Cof")?;
        end(view, "Tea.")
    });
    let expected = "Cof\n(the text above was discarded; the response is:)\nTea.\n";
    assert_eq!(replaced.concat(), expected);
    let interrupted = seen(false, |view| {
        view.written("Cof")?;
        view.interrupted()?;
        end(view, "Tea.")
    });
    let expected = "Cof\n(interrupted; the turn goes on without its model)\nTea.\n";
    assert_eq!(interrupted.concat(), expected);
}

#[test]
fn a_turn_without_a_response_says_why() {
    let recorded = Recorded {
        schema_version: 1,
        input: input(),
        tenant_id: None,
        conversation_id: Some(ConversationId("c".to_owned())),
        user_id: None,
        turn_id: "0-3".into(),
        reason: RecordedReason::DuplicateOf("t1".into()),
        evicted: Vec::new(),
        metadata: serde_json::Map::new(),
        extra: serde_json::Map::new(),
    };
    let recorded = Outcome::Recorded(Box::new(recorded));
    let shown = seen(false, |view| view.outcome(&recorded, &Spoken::default())).concat();
    assert!(shown.starts_with("(recorded and not answered: it repeats t1"), "{shown}");
    let letter = turnstream_schemas::DeadLetter {
        schema_version: 1,
        input: input(),
        value: None,
        key: None,
        headers: Vec::new(),
        // As in a record that was written before reasons were cleaned.
        fault: Fault {
            reason: "nobody\u{1b}[2J \u{202e}home".to_owned(),
            ..Fault::new(Stage::Generation, FaultKind::Error, "")
        },
        time: 0,
    };
    let letter = Outcome::DeadLetter(Box::new(letter));
    let shown = seen(false, |view| view.outcome(&letter, &Spoken::default())).concat();
    let expected =
        "(a dead letter, since generation could not serve it: nobody\u{fffd}[2J \u{fffd}home)\n";
    assert_eq!(shown, expected);
    assert!(seen(true, |view| view.note("quiet")).concat().starts_with("\u{1b}["));
}
