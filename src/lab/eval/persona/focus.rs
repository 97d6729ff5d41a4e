//! Reads FoCus (Jang et al. 2022) as cases: every answer of the machine, with the one candidate of
//! knowledge that it rests on, and the sentences of the persona that it used, if any.
//!
//! A file is one object: `data [{persona, utterance [{dialogueN [said], persona_grounding [bool],
//! knowledge_candidates, knowledge_answer_index}]}]`. `dialogueN` holds the dialogue up to and
//! including the answer. FoCus itself was not available; the reader is tested on a file in its
//! format.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::PersonaCase;
use crate::eval::retrieval::{EvalError, record};

#[derive(Deserialize)]
struct File {
    data: Vec<Dialogue>,
}

#[derive(Deserialize)]
struct Dialogue {
    persona: Vec<String>,
    utterance: Vec<FocusTurn>,
}

#[derive(Deserialize)]
struct FocusTurn {
    persona_grounding: Vec<bool>,
    knowledge_candidates: Vec<String>,
    knowledge_answer_index: usize,
    /// `dialogue1`, `dialogue2` and so on, one in each turn.
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Reads the cases of a split.
///
/// # Errors
/// The file cannot be read, or has no answer.
pub fn read(path: &Path) -> Result<Vec<PersonaCase>, EvalError> {
    let file: File = record(path)?;
    let dialogues = file.data.into_iter().enumerate();
    let cases: Vec<PersonaCase> =
        dialogues.flat_map(|(at, dialogue)| cases(at, dialogue)).collect();
    if cases.is_empty() { Err(EvalError::Nothing { path: path.to_owned() }) } else { Ok(cases) }
}

fn cases(conversation: usize, dialogue: Dialogue) -> Vec<PersonaCase> {
    let Dialogue { persona, utterance } = dialogue;
    let case = |turn: FocusTurn| {
        let said = turn.others.iter().find(|(key, _)| key.starts_with("dialogue"))?.1.as_array()?;
        let asked = said.get(said.len().checked_sub(2)?)?.as_str()?;
        let grounds = turn.persona_grounding.iter().take(persona.len()).enumerate();
        (turn.knowledge_answer_index < turn.knowledge_candidates.len()).then(|| PersonaCase {
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
