//! `ketod`: Knowledge-Enriched Task-Oriented Dialogue, SGD with some replies enriched by facts
//! from Wikipedia (Facebook; MIT, on SGD's CC BY-SA 4.0).
//!
//! Reads one dialogue a record: `dialogue_id`,
//! `services? [name]`, `turns [{speaker, utterance, enrich, kg_snippets? [index]}]`, as in
//! upstream's generated files. Those are JSON lists that also hold all retrieved passages, which
//! are ignored.
//!
//! - User: `speaker` names the role (`USER`, `SYSTEM`).
//! - Conversation id: `dialogue_id`. Turn ids: places.
//! - Text: `utterance`, the words of SGD. The enriched wording is a solution of the task, and would
//!   reveal to later turns the answer of their gate.
//! - Label `need`: unstructured if the system's reply is enriched (`enrich`), else none. The reply
//!   *gains* from knowledge, which does not mean that the user asked for it.
//! - Label `gold`: the indices of the snippets that the enriched reply used.
//! - Label `domain`: the dialogue's service without its number, if the dialogue has only one.
//! - Dropped: `enriched_utter`, entity queries, passages, and SGD's annotation.

use serde::Deserialize;
use serde_json::Value;
use turnstream_schemas::Speaker;

use super::dialogue::{Dialogue, Shape, Utterance, id_text, side_by_role};
use super::{Labels, Need, sgd};

#[derive(Deserialize)]
pub(super) struct KetodDialogue {
    dialogue_id: String,
    #[serde(default)]
    services: Vec<String>,
    turns: Vec<KetodTurn>,
}

#[derive(Deserialize)]
struct KetodTurn {
    speaker: String,
    utterance: String,
    enrich: bool,
    #[serde(default)]
    kg_snippets: Vec<Value>,
}

impl Shape for KetodDialogue {
    fn dialogue(self) -> Result<Dialogue, String> {
        let domain = match &self.services[..] {
            [service] => Some(sgd::domain(service)),
            _ => None,
        };
        let mut utterances = Vec::with_capacity(self.turns.len());
        for turn in self.turns {
            let mut utterance = Utterance::new(side_by_role(&turn.speaker)?, turn.utterance);
            if utterance.speaker == Speaker::System {
                let need = if turn.enrich { Need::Unstructured } else { Need::None };
                let gold = turn.kg_snippets.iter().map(id_text).collect();
                utterance.made_with =
                    Labels { need: Some(need), gold, domain: domain.clone(), ..Labels::default() };
            }
            utterances.push(utterance);
        }
        Ok(Dialogue::english(Some(self.dialogue_id), utterances))
    }
}
