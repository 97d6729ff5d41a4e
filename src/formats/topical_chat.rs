//! `topical-chat`: two people talk about texts that each was given to read (Amazon;
//! CDLA-Sharing-1.0).
//!
//! Reads one conversation a record: `id`, `turns [{agent, text, knowledge_source [name]}]`,
//! `reading_sets? {agent: {FS1: {wiki?}}}`. Upstream is one JSON object by conversation id, with
//! other names, and has the reading sets in files of their own; this converts the turns:
//!
//! ```text
//! jq -c 'to_entries[] | {id: .key, turns: [.value.content[] | {agent, text: .message,
//!   knowledge_source}]}' conversations/train.json > train.jsonl
//! ```
//!
//! - User: the first speaker; the two are equals.
//! - Conversation id: `id`. Turn ids: places.
//! - Label `need`: none if the reply rests on `Personal Knowledge` alone, else unstructured. Both
//!   sides are labelled, so system turns carry labels too. The label of the first turn's own making
//!   is dropped, since that turn answers nothing.
//! - Label `gold`: the reply's sources except `Personal Knowledge`: `FS1` to `FS3`, sections of the
//!   speaker's own reading set, and `AS1` to `AS4`, paragraphs of the article that both read.
//! - Label `available`: the paragraphs of the replying speaker's reading set, in its order.
//! - Dropped: fun facts (the set has only their ids), article, sentiment, ratings.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::dialogue::{Dialogue, Shape, Utterance, side_by_order};
use super::{Labels, Need};

const PERSONAL: &str = "Personal Knowledge";

#[derive(Deserialize)]
pub(super) struct TopicalChatConversation {
    id: String,
    /// The sections of each speaker's reading set, by name.
    #[serde(default)]
    reading_sets: BTreeMap<String, BTreeMap<String, Section>>,
    turns: Vec<ChatTurn>,
}

#[derive(Deserialize)]
struct Section {
    wiki: Option<String>,
}

#[derive(Deserialize)]
struct ChatTurn {
    agent: String,
    text: String,
    #[serde(default)]
    knowledge_source: Vec<String>,
}

impl Shape for TopicalChatConversation {
    fn dialogue(self) -> Result<Dialogue, String> {
        let first = self.turns.first().map_or_else(String::new, |turn| turn.agent.clone());
        let paragraphs = |sections: &BTreeMap<String, Section>| {
            let texts = sections.values().filter_map(|section| section.wiki.as_deref());
            texts
                .flat_map(str::lines)
                .filter(|line| !line.trim().is_empty())
                .map(str::to_owned)
                .collect()
        };
        let reading: BTreeMap<&String, Arc<[String]>> = self
            .reading_sets
            .iter()
            .map(|(agent, sections)| (agent, paragraphs(sections)))
            .collect();
        let utterances = self.turns.into_iter().map(|turn| {
            let mut utterance = Utterance::new(side_by_order(&turn.agent, &first), turn.text);
            let said = !turn.knowledge_source.is_empty();
            let mut gold = turn.knowledge_source;
            gold.retain(|source| source != PERSONAL);
            let need = if gold.is_empty() { Need::None } else { Need::Unstructured };
            let available = reading.get(&turn.agent).cloned().unwrap_or_default();
            utterance.made_with =
                Labels { need: said.then_some(need), gold, available, ..Labels::default() };
            utterance
        });
        Ok(Dialogue::english(Some(self.id), utterances.collect()))
    }
}
