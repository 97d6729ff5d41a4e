//! Reads what users said in a log, to show it beside the responses.

use std::collections::HashMap;
use std::path::Path;

use turnstream_console::InputRefused;
use turnstream_formats::{Format, LoggedItem};
use turnstream_schemas::{ConversationId, InputId, Speaker, Turn};

/// What was said.
#[derive(Clone)]
pub(crate) struct Utterance {
    pub(crate) text: String,
    /// What the log has the company reply before the user speaks again, as an agent did. The
    /// engine's own words, repeated by a front end (an echo), are no reply.
    pub(crate) reply: Option<String>,
    /// Whether such an echo follows, so that a reply beside it is an agent's.
    pub(crate) is_echoed: bool,
}

/// The utterances of a log, by `CONVERSATION/TURN`.
///
/// # Errors
/// The log cannot be read.
pub(crate) fn utterances(log: &Path, format: Format) -> anyhow::Result<HashMap<String, Utterance>> {
    let refused = |error: turnstream_formats::FormatError| {
        InputRefused::new(error.to_string(), "").caused_by(error)
    };
    let items = turnstream_formats::open(format, log).map_err(refused)?;
    let mut found: HashMap<String, Utterance> = HashMap::new();
    let mut latest: HashMap<ConversationId, String> = HashMap::new();
    for (item, offset) in items.zip(0..) {
        let turn = match item.map_err(refused)? {
            LoggedItem::Turn(logged) => Some(logged.turn),
            // An item that is not a turn was a dead letter.
            LoggedItem::Raw { bytes, .. } => serde_json::from_slice::<Turn>(&bytes).ok(),
        };
        let Some(turn) = turn else { continue };
        // A turn without an id is named by its coordinates.
        let place = || InputId { topic: String::new(), partition: 0, offset }.turn_id();
        let id = turn.turn_id.unwrap_or_else(place);
        let place = format!("{}/{id}", turn.conversation_id);
        if turn.speaker == Speaker::System {
            let asked = latest.get(&turn.conversation_id).and_then(|asked| found.get_mut(asked));
            match asked {
                Some(asked) if turn.response_id.is_some() => asked.is_echoed = true,
                Some(asked) => {
                    asked.reply = Some(turn.text.clone());
                    latest.remove(&turn.conversation_id);
                }
                None => {}
            }
        } else {
            latest.insert(turn.conversation_id.clone(), place.clone());
        }
        found.insert(place, Utterance { text: turn.text, reply: None, is_echoed: false });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_of_the_turn_before_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log.jsonl");
        let lines = [
            r#"{"conversation_id": "a", "turn_id": "1", "speaker": "user", "text": "hello"}"#,
            r#"{"conversation_id": "a", "turn_id": "2", "speaker": "user", "text": "one more?"}"#,
            r#"{"conversation_id": "b", "turn_id": "1", "speaker": "user", "text": "other"}"#,
            r#"{"conversation_id": "a", "turn_id": "3", "speaker": "system", "text": "Ann: yes."}"#,
            r#"{"conversation_id": "a", "turn_id": "4", "speaker": "system", "text": "Bye."}"#,
        ];
        std::fs::write(&log, lines.join("\n")).expect("written");
        let said = utterances(&log, Format::default()).expect("a log");
        assert_eq!(said["a/2"].reply.as_deref(), Some("Ann: yes."));
        for unanswered in ["a/1", "b/1"] {
            assert!(said[unanswered].reply.is_none(), "{unanswered}");
        }
    }
    #[test]
    fn an_echo_is_no_reply() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log.jsonl");
        let lines = [
            r#"{"conversation_id": "a", "turn_id": "1", "speaker": "user", "text": "till when?"}"#,
            r#"{"conversation_id": "a", "speaker": "system", "response_id": "r", "text": "Till six."}"#,
            r#"{"conversation_id": "a", "speaker": "system", "text": "Ann: till eight today."}"#,
        ];
        std::fs::write(&log, lines.join("\n")).expect("written");
        let said = utterances(&log, Format::default()).expect("a log");
        assert_eq!(said["a/1"].reply.as_deref(), Some("Ann: till eight today."));
        assert!(said["a/1"].is_echoed);
    }
}
