//! Reads KBP as cases: the replies that used a sentence of the persona and knowledge behind it. The
//! candidates of knowledge are all texts behind any of the persona's sentences.

use std::path::Path;

use super::PersonaCase;
use crate::eval::retrieval::kbp::Record;
use crate::eval::retrieval::{EvalError, records};

/// Reads the cases of a split.
///
/// # Errors
/// The file cannot be read, or has no such reply.
pub fn read(path: &Path) -> Result<Vec<PersonaCase>, EvalError> {
    let records = records::<Record>(path)?.into_iter().enumerate();
    let cases: Vec<PersonaCase> = records.flat_map(|(at, record)| cases(at, &record)).collect();
    if cases.is_empty() { Err(EvalError::Nothing { path: path.to_owned() }) } else { Ok(cases) }
}

fn cases(conversation: usize, record: &Record) -> Vec<PersonaCase> {
    let sentences: Vec<&String> = record.persona.keys().collect();
    let persona: Vec<String> = record.persona.values().map(|text| joined(text)).collect();
    let behind = |id: &&String| record.persona_kg.get(*id).map(|known| (id.to_string(), known));
    let behind = sentences.iter().filter_map(behind);
    let (places, knowledge): (Vec<String>, Vec<String>) = behind
        .flat_map(|(id, known)| {
            known.iter().map(move |(below, text)| (format!("{id}-{below}"), joined(text)))
        })
        .unzip();
    let case = |exchange: &crate::eval::retrieval::kbp::Exchange| {
        let used = || exchange.used.iter().flatten();
        let gold_persona: Vec<usize> =
            used().filter_map(|id| sentences.iter().position(|it| *it == id)).collect();
        let gold_knowledge: Vec<usize> =
            used().filter_map(|id| places.iter().position(|it| it == id)).collect();
        let both = !gold_persona.is_empty() && !gold_knowledge.is_empty();
        both.then(|| PersonaCase {
            conversation,
            dialogue: joined(&exchange.user),
            persona: persona.clone(),
            knowledge: knowledge.clone(),
            gold_persona,
            gold_knowledge,
        })
    };
    record.conversation.iter().filter_map(case).collect()
}

/// Removes spaces between words, which some Chinese texts of the data set have.
pub(in crate::eval) fn joined(text: &str) -> String {
    text.split_whitespace().collect()
}
