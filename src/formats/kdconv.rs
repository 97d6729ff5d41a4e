//! `kdconv`: Chinese talk about films, music and travel, driven by a knowledge graph (Tsinghua;
//! Apache-2.0).
//!
//! Reads one dialogue a record: `messages [{message, attrs? [{name, attrname, attrvalue}]}]`, as
//! upstream's JSON lists hold it.
//!
//! - User: the first speaker. The messages name no speaker; two people alternate.
//! - Conversation id: the dialogue's place, since it has no id. Turn ids: places.
//! - Label `need`: structured if the reply is annotated with triples, else none. Both sides are
//!   annotated, so system turns carry labels too.
//! - Label `gold`: the reply's triples, `head`, `relation` and `tail`, separated by tabs. A tail of
//!   the relation `Information` is a text of several sentences.
//! - Dropped: the name of the entity that the dialogue begins with.

use serde::Deserialize;

use super::dialogue::{Dialogue, Shape, Utterance, side_by_place};
use super::{Labels, Need};

#[derive(Deserialize)]
pub(super) struct KdconvDialogue {
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    message: String,
    #[serde(default)]
    attrs: Vec<Triple>,
}

#[derive(Deserialize)]
struct Triple {
    name: String,
    attrname: String,
    attrvalue: String,
}

impl Shape for KdconvDialogue {
    fn dialogue(self) -> Result<Dialogue, String> {
        let utterances = self.messages.into_iter().enumerate().map(|(place, message)| {
            let mut utterance = Utterance::new(side_by_place(place), message.message);
            let need = if message.attrs.is_empty() { Need::None } else { Need::Structured };
            let gold = message.attrs.iter();
            let gold =
                gold.map(|triple| [&*triple.name, &triple.attrname, &triple.attrvalue].join("\t"));
            utterance.made_with =
                Labels { need: Some(need), gold: gold.collect(), ..Labels::default() };
            utterance
        });
        let utterances = utterances.collect();
        Ok(Dialogue { id: None, language: "zh", persona: Vec::new(), utterances })
    }
}
