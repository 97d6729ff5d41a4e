//! `kbp`: Knowledge Behind Persona, Chinese talk whose replies rest on a persona and on what is
//! known about it (SAFARI, UniMS-RAG; no licence stated: for measurement only).
//!
//! Reads one dialogue a record: `id?`, `persona {B0: sentence}`, `persona_kg? {B0: {K0: sentence}}`,
//! `conversation [{U, S, P-K}]`,
//! where `P-K` is `[]`, `[[persona]]` or `[[persona], [knowledge]]`.
//!
//! - User: `U`. Each exchange becomes a user turn and the system's reply.
//! - Conversation id: `id`. Turn ids: places.
//! - Persona: the sentences in the order of their names, on user turns. They describe the
//!   *answering* side. Words are separated by spaces if upstream separates them.
//! - Label `need`: none for `[]`, else persona. If the reply also uses knowledge (Both), `gold` has
//!   an id of knowledge.
//! - Label `gold`: upstream's ids, `B2` for a sentence of the persona and `B2-K0` for the knowledge
//!   behind it, persona first.
//! - Label `texts`: the sentences of those ids, in the same order.
//! - Label `available`: every sentence of the persona, each followed by the knowledge behind it.

use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;

use serde::Deserialize;
use turnstream_schemas::Speaker;

use super::dialogue::{Dialogue, Shape, Utterance};
use super::{Labels, Need};

#[derive(Deserialize)]
pub(super) struct KbpDialogue {
    id: Option<String>,
    persona: BTreeMap<String, String>,
    /// The knowledge behind each sentence of the persona.
    #[serde(default)]
    persona_kg: BTreeMap<String, BTreeMap<String, String>>,
    conversation: Vec<Exchange>,
}

impl KbpDialogue {
    /// Returns the sentence of an id such as `B2` or `B2-K0`.
    fn text(&self, id: &str) -> Option<String> {
        match id.split_once('-') {
            None => self.persona.get(id).cloned(),
            Some((sentence, knowledge)) => self.persona_kg.get(sentence)?.get(knowledge).cloned(),
        }
    }
}

#[derive(Deserialize)]
struct Exchange {
    #[serde(rename = "U")]
    user: String,
    #[serde(rename = "S")]
    system: String,
    #[serde(rename = "P-K")]
    used: Vec<Vec<String>>,
}

/// Returns sentences in the order of their names: B10 comes after B9.
fn in_order(sentences: &BTreeMap<String, String>) -> Vec<(&String, &String)> {
    let mut sentences: Vec<_> = sentences.iter().collect();
    sentences.sort_by_key(|(name, _)| (name.len(), *name));
    sentences
}

impl Shape for KbpDialogue {
    fn dialogue(self) -> Result<Dialogue, String> {
        let persona = in_order(&self.persona);
        let available: Arc<[String]> = persona
            .iter()
            .flat_map(|(name, sentence)| {
                let behind = self.persona_kg.get(*name).into_iter().flat_map(in_order);
                iter::once(*sentence).chain(behind.map(|(_, knowledge)| knowledge)).cloned()
            })
            .collect();
        let utterances = self.conversation.iter().flat_map(|exchange| {
            let need = if exchange.used.is_empty() { Need::None } else { Need::Persona };
            let gold: Vec<String> = exchange.used.iter().flatten().cloned().collect();
            let texts = gold.iter().filter_map(|id| self.text(id)).collect();
            let mut reply = Utterance::new(Speaker::System, exchange.system.clone());
            let available = Arc::clone(&available);
            reply.made_with =
                Labels { need: Some(need), gold, texts, available, ..Labels::default() };
            [Utterance::new(Speaker::User, exchange.user.clone()), reply]
        });
        let utterances = utterances.collect();
        let persona = persona.into_iter().map(|(_, sentence)| sentence.clone()).collect();
        Ok(Dialogue { id: self.id, language: "zh", utterances, persona })
    }
}
