//! `multiwoz`: a tourist and an information desk, several domains in one dialogue (Cambridge,
//! Amazon; MultiWOZ 2.1, Apache-2.0).
//!
//! Reads one dialogue a record: `id`, `turns [{speaker, text}]`. MultiWOZ 2.2's names,
//! `dialogue_id` and `utterance`, are read as well, so that its JSON lists need no change.
//!
//! - User: `speaker` says (`USER`, `SYSTEM`).
//! - Conversation id: `id`. Turn ids: places.
//! - Text: as it is; upstream sets punctuation apart from words.
//! - Labels: none; the set does not say which replies needed the database.
//! - Dropped: domains, dialogue acts, states.

use serde::Deserialize;

use super::dialogue::{Dialogue, Shape, Utterance, side_by_role};

#[derive(Deserialize)]
pub(super) struct Record {
    #[serde(alias = "dialogue_id")]
    id: String,
    turns: Vec<WozTurn>,
}

#[derive(Deserialize)]
struct WozTurn {
    speaker: String,
    #[serde(alias = "utterance")]
    text: String,
}

impl Shape for Record {
    fn dialogue(self) -> Result<Dialogue, String> {
        let mut utterances = Vec::with_capacity(self.turns.len());
        for turn in self.turns {
            utterances.push(Utterance::new(side_by_role(&turn.speaker)?, turn.text));
        }
        Ok(Dialogue::english(Some(self.id), utterances))
    }
}
