//! What was said in a conversation so far, by the turn that said it: records name turns by id,
//! and a person wants to see the words.

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
    /// Notes what was answered.
    pub fn note_response(&mut self, response: &Response) {
        let label = format!("re:{}", response.turn_id);
        let said = Utterance { label, words: response.text.clone() };
        self.by_id.insert(response.response_id.to_string(), said);
    }

    /// Notes what a turn said.
    pub fn note_turn(&mut self, turn: &Turn) {
        if let Some(id) = &turn.turn_id {
            let said = Utterance { label: id.to_string(), words: turn.text.clone() };
            self.by_id.entry(id.to_string()).or_insert(said);
        }
    }

    /// What a turn is called: its id, and `re:` with the turn it answers for an answer of ours.
    pub fn label<'a>(&'a self, turn: &'a TurnId) -> &'a str {
        self.by_id.get(turn.as_str()).map_or(turn.as_str(), |said| &said.label)
    }

    /// What a turn said; empty where that is not known.
    pub fn words(&self, turn: &TurnId) -> &str {
        self.by_id.get(turn.as_str()).map_or("", |said| &said.words)
    }

    /// The words of a turn that a span covers; empty where they are not known.
    pub fn span(&self, turn: &TurnId, span: Span) -> &str {
        span.of(self.words(turn)).unwrap_or_default()
    }
}
