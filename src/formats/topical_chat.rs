//! `topical-chat`: two people talk about what each was given to read (Amazon;
//! CDLA-Sharing-1.0).
//!
//! Reads one conversation a record: `id`, `turns [{agent, text, knowledge_source [name]}]`.
//! Upstream is one JSON object by conversation id, with other names; this makes it so:
//!
//! ```text
//! jq -c 'to_entries[] | {id: .key, turns: [.value.content[] | {agent, text: .message,
//!   knowledge_source}]}' conversations/train.json > train.jsonl
//! ```
//!
//! - User: whoever speaks first; the two are equals.
//! - Conversation id: `id`. Turn ids: places.
//! - Label `need`: none where the reply rests on `Personal Knowledge` alone, else unstructured.
//!   Both sides are labelled, so that system turns carry labels too; what the first turn of a
//!   conversation was made with is dropped, for it answers nothing.
//! - Label `gold`: the reply's sources but `Personal Knowledge`: `FS1` to `FS3`, sections of the
//!   speaker's own reading set, and `AS1` to `AS4`, paragraphs of the article that both read.
//! - Dropped: reading sets, article, sentiment, ratings.

use serde::Deserialize;

use super::dialogue::{Dialogue, Shape, Utterance, side_by_order};
use super::{Labels, Need};

const PERSONAL: &str = "Personal Knowledge";

#[derive(Deserialize)]
pub(super) struct Record {
    id: String,
    turns: Vec<ChatTurn>,
}

#[derive(Deserialize)]
struct ChatTurn {
    agent: String,
    text: String,
    #[serde(default)]
    knowledge_source: Vec<String>,
}

impl Shape for Record {
    fn dialogue(self) -> Result<Dialogue, String> {
        let first = self.turns.first().map_or_else(String::new, |turn| turn.agent.clone());
        let utterances = self.turns.into_iter().map(|turn| {
            let mut utterance = Utterance::new(side_by_order(&turn.agent, &first), turn.text);
            let said = !turn.knowledge_source.is_empty();
            let mut gold = turn.knowledge_source;
            gold.retain(|source| source != PERSONAL);
            let need = if gold.is_empty() { Need::None } else { Need::Unstructured };
            utterance.made_with = Labels { need: said.then_some(need), gold, ..Labels::default() };
            utterance
        });
        Ok(Dialogue::english(Some(self.id), utterances.collect()))
    }
}
