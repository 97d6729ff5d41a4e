//! `dailydialog`: everyday talk between two people (Li et al. 2017; CC BY-NC-SA 4.0: for
//! measurement only).
//!
//! Reads one dialogue a record: `id`, `turns [{speaker, text}]`. Upstream is text with
//! `__eou__` between utterances.
//!
//! - User: the first speaker.
//! - Conversation id: `id`. Turn ids: places.
//! - Labels: none, since the set does not say which replies use knowledge.
//! - Dropped: topic, acts, emotions.

use serde::Deserialize;

use super::dialogue::{Dialogue, Shape, Utterance, side_by_order};

#[derive(Deserialize)]
pub(super) struct DailyDialogue {
    id: Option<String>,
    turns: Vec<DailyTurn>,
}

#[derive(Deserialize)]
struct DailyTurn {
    speaker: String,
    text: String,
}

impl Shape for DailyDialogue {
    fn dialogue(self) -> Result<Dialogue, String> {
        let first = self.turns.first().map_or_else(String::new, |turn| turn.speaker.clone());
        let utterances = self
            .turns
            .into_iter()
            .map(|turn| Utterance::new(side_by_order(&turn.speaker, &first), turn.text));
        Ok(Dialogue::english(self.id, utterances.collect()))
    }
}
