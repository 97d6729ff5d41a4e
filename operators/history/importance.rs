//! Importance: what an entry is worth in itself, whatever the current topic. Not in DH-RAG: an
//! extension of its rule of eviction (`history.importance_share`).
//!
//! Relevance to the current turn says little about what users ask for much later. They then ask for facts
//! that were mentioned once: when, how many, who. The measure sees an entry's own texts alone, so it is
//! computed when entries first have to leave, and never for a conversation that fits.
//! `docs/history.md` says how it was chosen, and what it gains.

use rustc_hash::FxHashSet;
use turnstream_knowledge::language::{Lexicon, Word};
use turnstream_schemas::HistoryEntry;

use super::likeness::Terms;

/// For specifics, names and different terms: the count at which the share reaches one half, and its
/// weight in the mean.
const SHARES: [(f64, f64); 3] = [(2.0, 2.0), (2.0, 1.0), (16.0, 1.0)];

/// Returns the importance of an entry, 0..=1: the weighted mean of how specific it is, how many names it
/// has, and how much it says.
pub fn importance(entry: &HistoryEntry, terms: &Terms) -> f64 {
    let said = [entry.query.as_deref(), entry.response.as_deref()];
    let (mut specifics, mut names) = (0, FxHashSet::default());
    for text in said.into_iter().flatten() {
        let lexicon = Lexicon::of_text(text);
        for word in lexicon.words(text) {
            let digits = word.lower.contains(|letter: char| letter.is_numeric());
            specifics += u32::from(digits || lexicon.is_specific(&word.lower));
            if is_name(&word, text) {
                names.insert(word.lemma.into_owned());
            }
        }
    }
    let counts = [f64::from(specifics), names.len() as f64, terms.iter().count() as f64];
    let shares = counts.iter().zip(SHARES);
    let sum: f64 = shares.map(|(count, (half, weight))| weight * count / (count + half)).sum();
    sum / SHARES.iter().map(|(_, weight)| weight).sum::<f64>()
}

/// Whether a word is written like a name: with a capital, and not at the start of a sentence.
pub(super) fn is_name(word: &Word<'_>, text: &str) -> bool {
    let begins = text.get(..word.span.start as usize).unwrap_or_default().trim_end();
    let begins_sentence = begins.is_empty() || begins.ends_with(['.', '!', '?', ':', '"', '\n']);
    let written = word.span.of(text).unwrap_or_default();
    !word.function_word && !begins_sentence && written.starts_with(char::is_uppercase)
}

#[cfg(test)]
mod tests {
    use turnstream_schemas::{EventTime, InputId};

    use super::*;
    use crate::history::likeness::Signature;

    fn entry(query: &str, response: &str) -> HistoryEntry {
        HistoryEntry {
            schema_version: 1,
            input: InputId { topic: "turns".to_owned(), partition: 0, offset: 0 },
            query: Some(query.to_owned()),
            turn_id: "t".into(),
            user_id: None,
            passages: Vec::new(),
            response: Some(response.to_owned()),
            response_turn_id: None,
            event_time: EventTime(0),
            vector: None,
            extra: serde_json::Map::new(),
        }
    }

    fn of(query: &str, response: &str) -> f64 {
        importance(&entry(query, response), &Signature::of([query, response]).terms)
    }

    #[test]
    fn importance_is_the_one_counted_by_hand() {
        // "yesterday" and "40"; Clara and Vienna; met, clara, vienna, paid, 40, euro.
        let found = of("Yesterday I met Clara in Vienna.", "I paid 40 euros.");
        let by_hand = (2.0 * 2.0 / 4.0 + 2.0 / 4.0 + 6.0 / 22.0) / 4.0;
        assert!((found - by_hand).abs() < 1e-9, "{found}");
    }

    #[test]
    fn small_talk_is_worth_nothing() {
        assert_eq!(of("How are you?", "So am I."), 0.0);
        let question = of("What is it like there?", "It is as it was.");
        assert!(question < 0.1, "{question}");
    }
}
