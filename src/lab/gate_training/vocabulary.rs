//! Selects the tokens that a gate's encoder learns a vector of.

use std::collections::BTreeMap;

use turnstream_models::gate::reading::{TokenKind, Vocabulary, spellings};
use turnstream_models::gate::{GateError, table_of};

use super::Lesson;

/// Selects the tokens of a training split that get a row of their own: those that occur at least
/// `least` times, and of these at most the `most` most frequent.
///
/// # Errors
/// The tokenizer fails on a text.
pub fn vocabulary(
    kind: TokenKind,
    lessons: &[Lesson],
    (least, most): (u32, usize),
) -> Result<Vocabulary, GateError> {
    let table = table_of(kind)?;
    let mut counts = BTreeMap::<String, u32>::new();
    for turn in lessons.iter().flat_map(|lesson| &lesson.train) {
        let texts = turn.knowledge.iter().map(String::as_str).chain(turn.reply.as_deref());
        for text in texts.chain([turn.last()]) {
            let spelt = spellings(kind, table.as_deref(), text);
            for token in spelt.map_err(|error| GateError::Write(error.to_string()))? {
                *counts.entry(token).or_default() += 1;
            }
        }
    }
    let mut counted: Vec<(String, u32)> =
        counts.into_iter().filter(|(_, count)| *count >= least).collect();
    // The sort is stable, so ties keep the order of their spelling.
    counted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counted.truncate(most);
    let tokens = counted.into_iter().map(|(token, _)| token).collect();
    Ok(Vocabulary { kind, tokens })
}
