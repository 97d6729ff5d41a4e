//! `multiwoz`: a tourist and an information desk, with several domains in one dialogue (Cambridge,
//! Amazon; MultiWOZ 2.1, Apache-2.0).
//!
//! Reads one dialogue a record: `id`, `turns [{speaker, text}]`. The names of MultiWOZ 2.2,
//! `dialogue_id` and `utterance`, are accepted too, so its JSON lines need no conversion.
//!
//! - User: `speaker` names the role (`USER`, `SYSTEM`).
//! - Conversation id: `id`. Turn ids: places.
//! - Text: unchanged; upstream separates punctuation from words.
//! - Labels: none, since the set does not say which replies needed the database.
//! - Dropped: domains, dialogue acts, states.

use serde::Deserialize;

use super::dialogue::{Dialogue, Shape, Utterance, side_by_role};

#[derive(Deserialize)]
pub(super) struct MultiwozDialogue {
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

impl Shape for MultiwozDialogue {
    fn dialogue(self) -> Result<Dialogue, String> {
        let mut utterances = Vec::with_capacity(self.turns.len());
        for turn in self.turns {
            utterances.push(Utterance::new(side_by_role(&turn.speaker)?, turn.text));
        }
        Ok(Dialogue::english(Some(self.id), utterances))
    }
}
