//! `kvret`: a driver and an assistant in a car, each dialogue with its own small database
//! (Stanford; no licence stated: for measurement only).
//!
//! Reads one dialogue a record: `id`, `turns [{speaker, text}]`. Upstream is a JSON list with other
//! names; this converts it (ids are then places):
//!
//! ```text
//! jq -c '.[] | {turns: [.dialogue[] | {speaker: (if .turn == "driver" then "user" else "system"
//!   end), text: .data.utterance}]}' kvret_train_public.json > train.jsonl
//! ```
//!
//! - User: `speaker` names the role (`user`, `system`).
//! - Conversation id: `id`. Turn ids: places.
//! - Text: unchanged; a few turns upstream are empty.
//! - Labels: none, since the set does not say which replies needed the database.
//! - Dropped: the database, domains and states.

use serde::Deserialize;

use super::dialogue::{Dialogue, Shape, Utterance, side_by_role};

#[derive(Deserialize)]
pub(super) struct KvretDialogue {
    id: Option<String>,
    turns: Vec<CarTurn>,
}

#[derive(Deserialize)]
struct CarTurn {
    speaker: String,
    text: String,
}

impl Shape for KvretDialogue {
    fn dialogue(self) -> Result<Dialogue, String> {
        let mut utterances = Vec::with_capacity(self.turns.len());
        for turn in self.turns {
            utterances.push(Utterance::new(side_by_role(&turn.speaker)?, turn.text));
        }
        Ok(Dialogue::english(self.id, utterances))
    }
}
