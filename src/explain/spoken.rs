//! The utterances of a conversation so far, by turn: records refer to turns by id, while a person
//! wants to see the words.

use std::collections::BTreeMap;

use turnstream_schemas::{Response, Span, Turn, TurnId};

/// The utterances of one conversation.
#[derive(Clone, Debug, Default)]
pub struct Spoken {
    by_id: BTreeMap<String, Utterance>,
}

#[derive(Clone, Debug)]
struct Utterance {
    label: String,
    words: String,
}

impl Spoken {
    /// Adds a response.
    pub fn note_response(&mut self, response: &Response) {
        let label = format!("re:{}", response.turn_id);
        let said = Utterance { label, words: response.text.clone() };
        self.by_id.insert(response.response_id.to_string(), said);
    }

    /// Adds a turn.
    pub fn note_turn(&mut self, turn: &Turn) {
        if let Some(id) = &turn.turn_id {
            let said = Utterance { label: id.to_string(), words: turn.text.clone() };
            self.by_id.entry(id.to_string()).or_insert(said);
        }
    }

    /// The label of a turn: its id or, for one of our own responses, `re:` with the id of the turn
    /// that it answers.
    pub fn label<'a>(&'a self, turn: &'a TurnId) -> &'a str {
        self.by_id.get(turn.as_str()).map_or(turn.as_str(), |said| &said.label)
    }

    /// The utterance of a turn; empty if it is unknown.
    pub fn words(&self, turn: &TurnId) -> &str {
        self.by_id.get(turn.as_str()).map_or("", |said| &said.words)
    }

    /// The part of an utterance that a span covers; empty if it is unknown.
    pub fn span(&self, turn: &TurnId, span: Span) -> &str {
        span.of(self.words(turn)).unwrap_or_default()
    }
}
