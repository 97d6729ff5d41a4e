//! Concept linking: which concepts of the graph a dialogue names (DCRAG, E^EQ, eq 1 and 2).
//!
//! The longest match over lemmas, at most five words, from left to right, never across
//! punctuation. Stop words, function words and hubs that say nothing are left out. A pure
//! function of the graph and the text.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_schemas::Span;

use crate::knowledge::{ConceptId, View};
use crate::language::{Lexicon, Word};

/// A place in the dialogue that names a concept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mention {
    /// The concept.
    pub concept: ConceptId,
    /// Which utterance of [`crate::flow::TurnContext::dialogue`], from 0.
    pub utterance: u32,
    /// Where in that utterance.
    pub span: Span,
    /// How many words the mention has, 1..=5.
    pub words: u8,
    /// How much the concept says, 0..=1: rare concepts say more than hubs.
    pub informativeness: f32,
}

/// Bounds of concept linking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LinkingConfig {
    /// Longest mention, in words, 1..=5.
    pub max_words: u8,
    /// A single word whose concept is less informative is a hub that says nothing, 0..=1.
    pub min_informativeness: f32,
    /// A phrase that begins or ends with a function word ("at home") counts as a concept only
    /// where the graph has at least this many facts about it. A particle that ends a verb
    /// phrase ("wake up") needs no such evidence.
    pub min_framed_phrase_facts: u32,
    /// Most mentions per call, the latest utterances' kept; the rest is left out.
    pub max_mentions: usize,
}

impl Default for LinkingConfig {
    fn default() -> Self {
        Self {
            max_words: 5,
            min_informativeness: 0.15,
            min_framed_phrase_facts: 12,
            max_mentions: 256,
        }
    }
}

/// The concepts that the utterances name, in order of utterance and place.
///
/// The lemmas of every mention's span are the lemmas of its concept. Of several concepts with the
/// same lemmas the one with the most facts is meant.
pub fn link<'u>(
    graph: View<'_>,
    lexicon: &Lexicon,
    utterances: impl IntoIterator<Item = &'u str>,
    config: &LinkingConfig,
) -> Vec<Mention> {
    let mut mentions = Vec::new();
    for (utterance, text) in utterances.into_iter().enumerate() {
        link_utterance(graph, lexicon, (utterance as u32, text), config, &mut mentions);
    }
    if mentions.len() > config.max_mentions {
        mentions.drain(..mentions.len() - config.max_mentions);
    }
    mentions
}

fn link_utterance(
    graph: View<'_>,
    lexicon: &Lexicon,
    (utterance, text): (u32, &str),
    config: &LinkingConfig,
    mentions: &mut Vec<Mention>,
) {
    let words = lexicon.words(text);
    let mut at = 0;
    while at < words.len() {
        let Some((concept, count)) = longest(graph, lexicon, text, &words[at..], config) else {
            at += 1;
            continue;
        };
        let span = Span { start: words[at].span.start, end: words[at + count - 1].span.end };
        mentions.push(Mention {
            concept,
            utterance,
            span,
            words: count as u8,
            informativeness: graph.informativeness(concept),
        });
        at += count;
    }
}

/// The longest beginning of `words` that names a concept.
fn longest(
    graph: View<'_>,
    lexicon: &Lexicon,
    text: &str,
    words: &[Word<'_>],
    config: &LinkingConfig,
) -> Option<(ConceptId, usize)> {
    let mut walk = graph.lemma_walk(lexicon.language());
    let mut best = None;
    let longest = words.len().min(usize::from(config.max_words.clamp(1, 5)));
    for count in 1..=longest {
        if count > 1 && !joins(text, &words[count - 2], &words[count - 1]) {
            break;
        }
        if !walk.step(&words[count - 1].lemma) {
            break;
        }
        if let Some(concept) = walk.most_named()
            && counts(graph, lexicon, &words[..count], concept, config)
        {
            best = Some((concept, count));
        }
    }
    best
}

/// Is there nothing but spaces, hyphens or an ampersand between two words?
fn joins(text: &str, left: &Word<'_>, right: &Word<'_>) -> bool {
    let gap = text.get(left.span.end as usize..right.span.start as usize).unwrap_or_default();
    gap.chars().all(|letter| {
        matches!(
            letter,
            ' ' | '\t' | '\u{a0}' | '-' | '\u{2010}' | '\u{2011}' | '&' | '\'' | '\u{2019}'
        )
    })
}

/// Does the mention say enough to be one?
fn counts(
    graph: View<'_>,
    lexicon: &Lexicon,
    words: &[Word<'_>],
    concept: ConceptId,
    config: &LinkingConfig,
) -> bool {
    let content = |word: &Word<'_>| !word.function_word && !lexicon.is_stop_word(&word.lemma);
    match words {
        [word] => {
            content(word)
                && word.lemma.chars().any(char::is_alphabetic)
                && word.lemma.chars().nth(1).is_some()
                && graph.informativeness(concept) >= config.min_informativeness
        }
        [first, .., last] => {
            let framed =
                first.function_word || (last.function_word && !lexicon.is_particle(&last.lower));
            words.iter().any(content)
                && (!framed || graph.degree(concept) >= config.min_framed_phrase_facts)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests;
