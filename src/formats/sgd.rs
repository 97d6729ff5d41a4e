//! `sgd`: Schema-Guided Dialogue, tasks carried out with services (Google; CC BY-SA 4.0).
//!
//! Reads one dialogue a record: `dialogue_id`, `turns [{speaker, utterance, frames [{service_call?}]}]`,
//! as upstream's `dialogues_*.json` hold it.
//!
//! - User: `speaker` says (`USER`, `SYSTEM`).
//! - Conversation id: `dialogue_id`. Turn ids: places.
//! - Label `need`: structured where the system's reply makes a service call, else none. This is
//!   a proxy: it says that the reply rests on a database, not that the user asked for a fact.
//! - Dropped: actions, spans, state, and what a service was asked and gave.

use serde::Deserialize;
use serde::de::IgnoredAny;
use turnstream_schemas::Speaker;

use super::dialogue::{Dialogue, Shape, Utterance, side_by_role};
use super::{Labels, Need};

#[derive(Deserialize)]
pub(super) struct Record {
    dialogue_id: String,
    turns: Vec<SgdTurn>,
}

#[derive(Deserialize)]
struct SgdTurn {
    speaker: String,
    utterance: String,
    #[serde(default)]
    frames: Vec<Frame>,
}

#[derive(Deserialize)]
struct Frame {
    service_call: Option<IgnoredAny>,
}

impl Shape for Record {
    fn dialogue(self) -> Result<Dialogue, String> {
        let mut utterances = Vec::with_capacity(self.turns.len());
        for turn in self.turns {
            let mut utterance = Utterance::new(side_by_role(&turn.speaker)?, turn.utterance);
            if utterance.speaker == Speaker::System {
                let calls = turn.frames.iter().any(|frame| frame.service_call.is_some());
                let need = if calls { Need::Structured } else { Need::None };
                utterance.made_with = Labels { need: Some(need), ..Labels::default() };
            }
            utterances.push(utterance);
        }
        Ok(Dialogue::english(Some(self.dialogue_id), utterances))
    }
}
