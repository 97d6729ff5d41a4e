//! FoCus (Jang et al. 2022) as cases: every answer of the machine, which rests on one of the candidates
//! of knowledge and on some sentences of a persona, or none.
//!
//! Reads the one object of its files: `data [{persona, utterance [{dialogueN [said], persona_grounding
//! [bool], knowledge_candidates, knowledge_answer_index}]}]`; `dialogueN` is what was said up to the answer,
//! which is its last. FoCus itself is not at hand: a file in its shape is what this was tested on.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Case;
use crate::eval::retrieval::{EvalError, record};

#[derive(Deserialize)]
struct File {
    data: Vec<Dialogue>,
}

#[derive(Deserialize)]
struct Dialogue {
    persona: Vec<String>,
    utterance: Vec<Turn>,
}

#[derive(Deserialize)]
struct Turn {
    persona_grounding: Vec<bool>,
    knowledge_candidates: Vec<String>,
    knowledge_answer_index: usize,
    /// `dialogue1`, `dialogue2` and so on, one of them in each turn.
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// The cases of a split.
///
/// # Errors
/// The file cannot be read, or has no answer.
pub fn read(path: &Path) -> Result<Vec<Case>, EvalError> {
    let file: File = record(path)?;
    let dialogues = file.data.into_iter().enumerate();
    let cases: Vec<Case> = dialogues.flat_map(|(at, dialogue)| cases(at, dialogue)).collect();
    if cases.is_empty() { Err(EvalError::Nothing { path: path.to_owned() }) } else { Ok(cases) }
}

fn cases(conversation: usize, dialogue: Dialogue) -> Vec<Case> {
    let Dialogue { persona, utterance } = dialogue;
    let case = |turn: Turn| {
        let said = turn.others.iter().find(|(key, _)| key.starts_with("dialogue"))?.1.as_array()?;
        let asked = said.get(said.len().checked_sub(2)?)?.as_str()?;
        let grounds = turn.persona_grounding.iter().take(persona.len()).enumerate();
        (turn.knowledge_answer_index < turn.knowledge_candidates.len()).then(|| Case {
            conversation,
            dialogue: asked.to_owned(),
            persona: persona.clone(),
            gold_persona: grounds.filter(|(_, used)| **used).map(|(at, _)| at).collect(),
            gold_knowledge: vec![turn.knowledge_answer_index],
            knowledge: turn.knowledge_candidates,
        })
    };
    utterance.into_iter().filter_map(case).collect()
}
