//! `sgd`: Schema-Guided Dialogue, tasks carried out with services (Google; CC BY-SA 4.0).
//!
//! Reads one dialogue a record: `dialogue_id`, `turns [{speaker, utterance, frames [{service?,
//! service_call?}]}]`, as in upstream's `dialogues_*.json`.
//!
//! - User: `speaker` names the role (`USER`, `SYSTEM`).
//! - Conversation id: `dialogue_id`. Turn ids: places.
//! - Label `need`: structured if the system's reply makes a service call, else none. This is a
//!   proxy: it shows that the reply rests on a database, not that the user asked for a fact.
//! - Label `domain`: the first service of the user's turn, else of the reply, without its number
//!   (`Hotels` for `Hotels_3`).
//! - Dropped: actions, spans, state, and the requests and results of services.

use serde::Deserialize;
use serde::de::IgnoredAny;
use turnstream_schemas::Speaker;

use super::dialogue::{Dialogue, Shape, Utterance, side_by_role};
use super::{Labels, Need};

#[derive(Deserialize)]
pub(super) struct SgdDialogue {
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
    service: Option<String>,
    service_call: Option<IgnoredAny>,
}

impl SgdTurn {
    fn domain(&self) -> Option<String> {
        self.frames.iter().find_map(|frame| frame.service.as_deref()).map(domain)
    }
}

/// Returns the name of a service without its number.
pub fn domain(service: &str) -> String {
    match service.rsplit_once('_') {
        Some((name, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => name.to_owned(),
        _ => service.to_owned(),
    }
}

impl Shape for SgdDialogue {
    fn dialogue(self) -> Result<Dialogue, String> {
        let mut utterances = Vec::with_capacity(self.turns.len());
        let mut asked = None;
        for turn in self.turns {
            let domain = turn.domain();
            let mut utterance = Utterance::new(side_by_role(&turn.speaker)?, turn.utterance);
            if utterance.speaker == Speaker::System {
                let calls = turn.frames.iter().any(|frame| frame.service_call.is_some());
                let need = if calls { Need::Structured } else { Need::None };
                let domain = asked.take().or(domain);
                utterance.made_with = Labels { need: Some(need), domain, ..Labels::default() };
            } else {
                asked = domain;
            }
            utterances.push(utterance);
        }
        Ok(Dialogue::english(Some(self.dialogue_id), utterances))
    }
}
