//! `commonsense-dialogues`: short talk that follows from a described situation (Amazon; CC
//! BY-NC 4.0: for measurement only).
//!
//! Reads one dialogue a record: `id`, `turns [text]`. Upstream is one JSON object by id; this
//! makes it so:
//!
//! ```text
//! jq -c 'to_entries[] | {id: .key, turns: .value.turns}' valid.json > valid.jsonl
//! ```
//!
//! - User: the first speaker. The turns name no speaker; two people alternate.
//! - Conversation id: `id`. Turn ids: places.
//! - Labels: none.
//! - Dropped: the situation (`context`), which is not part of the talk, and the first speaker's
//!   name.

use serde::Deserialize;

use super::dialogue::{Dialogue, Shape, Utterance, side_by_place};

#[derive(Deserialize)]
pub(super) struct CommonsenseDialogue {
    id: Option<String>,
    turns: Vec<String>,
}

impl Shape for CommonsenseDialogue {
    fn dialogue(self) -> Result<Dialogue, String> {
        let utterances = self
            .turns
            .into_iter()
            .enumerate()
            .map(|(place, text)| Utterance::new(side_by_place(place), text));
        Ok(Dialogue::english(self.id, utterances.collect()))
    }
}
