//! Query reconstruction (DH-RAG, q'_t) completes a query that leaves out its topic ("and when was
//! it built?") from earlier exchanges, so that retrieval can search with it.
//!
//! Reconstruction uses words alone. It takes the missing words from the exchange before and, as long as
//! that one refers back itself, from the exchange before that in its chain. It rewords nothing: it
//! appends the missing words to the query in brackets. A query that does not refer back stays as it is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_knowledge::language::{Lexicon, Word};
use turnstream_schemas::HistoryEntry;

use super::importance::is_name;
use crate::flow::Reconstructed;

/// `[history.reconstruction]`: how queries are completed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReconstructionConfig {
    /// Words added to a query at most; 0 leaves every query as it is.
    pub max_words: u32,
    /// Exchanges to go back at most.
    pub max_exchanges: u32,
}

impl Default for ReconstructionConfig {
    fn default() -> Self {
        Self { max_words: 6, max_exchanges: 3 }
    }
}

/// Completes a query from earlier exchanges, the latest first; `None` where it does not refer back, or
/// the exchanges add no words.
pub fn reconstruct<'e>(
    query: &str,
    earlier: impl Iterator<Item = &'e HistoryEntry>,
    config: &ReconstructionConfig,
) -> Option<Reconstructed> {
    let lexicon = Lexicon::of_text(query);
    if config.max_words == 0 || !lexicon.refers_back(query) {
        return None;
    }
    let said: Vec<NamedWord> = named(query).collect();
    let says = |lemma: &str| said.iter().any(|word| word.lemma == lemma);
    let mut missing: Vec<(String, String)> = Vec::new();
    let mut from = Vec::new();
    for entry in earlier.take(config.max_exchanges as usize) {
        let before = missing.len();
        let texts = [entry.query.as_deref(), entry.response.as_deref()];
        // Of a response only the names count: its other words are often beside the topic.
        for (text, names_only) in texts.into_iter().zip([false, true]) {
            for word in text.map(named).into_iter().flatten() {
                let known = missing.iter().any(|(lemma, _)| *lemma == word.lemma);
                if (word.is_name || !names_only) && !known && !says(&word.lemma) {
                    missing.push((word.lemma, word.text));
                }
            }
        }
        if missing.len() > before {
            from.push(entry.turn_id.clone());
        }
        let query = entry.query.as_deref().unwrap_or_default();
        let stands_for_itself = !query.is_empty() && !Lexicon::of_text(query).refers_back(query);
        if missing.len() >= config.max_words as usize || stands_for_itself {
            break;
        }
    }
    missing.truncate(config.max_words as usize);
    if missing.is_empty() {
        return None;
    }
    let missing: Vec<String> = missing.into_iter().map(|(_, text)| text).collect();
    let missing = missing.join(if lexicon.is_chinese() { "、" } else { " " });
    Some(Reconstructed { query: format!("{query} ({missing})"), from })
}

/// A word that may name the topic.
struct NamedWord {
    lemma: String,
    text: String,
    is_name: bool,
}

/// Returns the content words of a text, in order, each with whether it is written like a name.
fn named(text: &str) -> impl Iterator<Item = NamedWord> {
    let lexicon = Lexicon::of_text(text);
    let says_something =
        |word: &Word<'_>| !word.function_word && !lexicon.is_stop_word(&word.lemma);
    lexicon.words(text).into_iter().filter(says_something).filter_map(move |word| {
        let written = word.span.of(text)?;
        let is_name = is_name(&word, text);
        Some(NamedWord { lemma: word.lemma.into_owned(), text: written.to_owned(), is_name })
    })
}

#[cfg(test)]
mod tests;
