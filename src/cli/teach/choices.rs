//! Recognises what users choose: a response asks which place is meant, and the next response of the
//! conversation answers from the place that the user chose.

use std::collections::HashMap;

use turnstream_schemas::{Action, ConversationId, Response};

use super::place;
use crate::diff::name_of;
use crate::utterances::Utterance;

/// A turn that a response asked back about, and the place that the user then chose.
#[derive(Debug, PartialEq)]
pub(super) struct ChoiceMade<'a> {
    /// The turn, as `CONVERSATION/TURN`.
    pub(super) turn: String,
    /// Its text.
    pub(super) text: &'a str,
    /// The place, as phrasings name it.
    pub(super) place: String,
}

/// The turns that the latest response of their conversation asks back about.
pub(super) struct AwaitedChoices<'a> {
    utterances: &'a HashMap<String, Utterance>,
    /// Each turn with its text.
    asked: HashMap<ConversationId, (String, &'a str)>,
}

impl<'a> AwaitedChoices<'a> {
    /// Starts before the first response to a log with these utterances.
    pub(super) fn of(utterances: &'a HashMap<String, Utterance>) -> Self {
        Self { utterances, asked: HashMap::new() }
    }

    /// Reads the next response. Returns the choice that it answers, if it answers one.
    pub(super) fn read(&mut self, response: &Response) -> Option<ChoiceMade<'a>> {
        let asked = self.asked.remove(&response.conversation_id);
        if response.action == Some(Action::Ask) {
            let turn = name_of(response);
            if let Some(said) = self.utterances.get(&turn) {
                self.asked.insert(response.conversation_id.clone(), (turn, said.text.as_str()));
            }
        }
        let (turn, text) = asked?;
        let place = chosen_for(text, response)?;
        Some(ChoiceMade { turn, text, place })
    }
}

/// The place that a response answers from, if it answers a choice that belongs to this question.
fn chosen_for(question: &str, response: &Response) -> Option<String> {
    let completed = response.query_reconstructed.as_deref()?.strip_prefix(question)?;
    let is_answered = response.action == Some(Action::Answer) && completed.starts_with(" (");
    let evidence = response.evidence.first().filter(|it| it.selected)?;
    is_answered.then(|| place(evidence)).flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A response to `CONVERSATION/TURN`, from the section “How long?”.
    fn response(turn: &str, action: &str, completed: &str) -> Response {
        let full = include_str!("../../../tests/fixtures/records/v1/response.json");
        let place = json!({ "document": "returns.md", "title": "Returns: How long?", "chunk": 0 });
        let mut response: Value = serde_json::from_str(full).expect("a response");
        let (conversation, turn) = turn.split_once('/').expect("two ids");
        response["conversation_id"] = conversation.into();
        response["turn_id"] = turn.into();
        response["action"] = action.into();
        response["query_reconstructed"] = completed.into();
        response["evidence"] = json!([{
            "id": "pages/x#0", "source": "pages", "text": "x", "relevance": 0.5,
            "selected": true, "document": place,
        }]);
        serde_json::from_value(response).expect("a response")
    }

    #[test]
    fn a_choice_tells_the_place_of_the_question_that_it_belongs_to() {
        let chosen = |completed: &str, action: &str| {
            chosen_for("too late?", &response("a/2", action, completed))
        };
        let place = Some("returns.md#how-long".to_owned());
        assert_eq!(chosen("too late? (How long)", "answer"), place);
        assert_eq!(chosen("too late?", "decline"), None, "none of them was meant");
        assert_eq!(chosen("too late? (How long)", "decline"), None);
        assert_eq!(chosen("and for lamps? (late)", "answer"), None, "it asks something else");
    }

    #[test]
    fn a_choice_is_of_the_turn_that_the_response_before_it_asked_back_about() {
        let said =
            [("a/1", "too late?"), ("b/1", "a week?"), ("c/1", "today?")].map(|(turn, text)| {
                (
                    turn.to_owned(),
                    Utterance { text: text.to_owned(), reply: None, is_echoed: false },
                )
            });
        let utterances = HashMap::from(said);
        let mut choices = AwaitedChoices::of(&utterances);
        let mut read = |turn: &str, action: &str, completed: &str| {
            choices.read(&response(turn, action, completed))
        };
        let of = |turn: &str, text| {
            let place = "returns.md#how-long".to_owned();
            Some(ChoiceMade { turn: turn.to_owned(), text, place })
        };
        // Other conversations may come between.
        assert_eq!(read("a/1", "ask", "too late?"), None);
        assert_eq!(read("b/1", "ask", "a week?"), None);
        assert_eq!(read("a/2", "answer", "too late? (How long)"), of("a/1", "too late?"));
        assert_eq!(read("a/3", "answer", "too late? (How long)"), None, "it was chosen before");
        assert_eq!(read("b/2", "decline", "a week?"), None);
        assert_eq!(read("b/3", "answer", "a week? (How long)"), None, "a response came between");
        assert_eq!(read("c/1", "answer", "today? (How long)"), None, "nothing was asked");
        assert_eq!(read("c/2", "ask", "tomorrow?"), None);
        let unknown = read("c/3", "answer", "tomorrow? (How long)");
        assert_eq!(unknown, None, "the log does not have the turn");
    }
}
