//! Whole-graph search: finds concepts for words that linking could not link.
//!
//! The gate searches when the current utterance names no concept. The search first looks variants
//! of the words up in the lemma index (a phrase without its function words, a compound joined or
//! split), then similarly spelt words in the n-gram index. The order is that of [`Via`], where
//! search by meaning will come last. A demand without a fact names the words that no search finds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_schemas::{Span, Via};

use crate::language::{Lexicon, Word};
use crate::linking::Mention;
use crate::small_talk::{small_talk_in, spoken_words};
use crate::{ConceptId, View, likeness_of_phrases};

/// Bounds of the search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SearchConfig {
    /// Whether to search. If not, words that linking does not find are missing.
    pub enabled: bool,
    /// Least likeness of a similarly spelt concept: Dice's coefficient over character n-grams; above
    /// 0, up to 1.
    #[schemars(extend("exclusiveMinimum" = 0.0), range(max = 1.0))]
    pub min_similarity: f64,
    /// Shortest word that is compared by n-grams, in characters; 1..=20. Most short words resemble
    /// others by chance. A language without spaces needs half as many.
    #[schemars(range(min = 1, max = 20))]
    pub min_characters: u32,
    /// Least number of facts of a concept that the search may find; 1..=1024. In a large graph a
    /// concept with fewer facts is often a typing error itself.
    #[schemars(range(min = 1, max = 1024))]
    pub min_facts: u32,
    /// Most words or phrases to search for in an utterance, from the first; 1..=64.
    #[schemars(range(min = 1, max = 64))]
    pub max_phrases: u32,
    /// Most concepts found for an utterance; 1..=64.
    #[schemars(range(min = 1, max = 64))]
    pub max_concepts: u32,
    /// Most entries of the n-gram index to read for a word; 1..=1048576.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub max_postings: u32,
    /// Most missing words to report for a turn, from the first; 0..=64. With 0, responses record no
    /// words of the user that the graph does not know.
    #[schemars(range(max = 64))]
    pub max_missing: u32,
}

impl Default for SearchConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            min_similarity: 0.7,
            min_characters: 5,
            min_facts: 2,
            max_phrases: 16,
            max_concepts: 4,
            max_postings: 16_384,
            max_missing: 8,
        }
    }
}

/// Longest missing word, in bytes of UTF-8.
pub const MAX_MISSING_BYTES: usize = 48;
/// Most words of a phrase.
const MAX_PHRASE_WORDS: usize = 5;

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// The concepts found, in order of place.
    pub mentions: Vec<Mention>,
    /// Content words that neither linking nor the search found, normalised, each once, in order of
    /// place.
    pub missing: Vec<String>,
}

/// Searches for the words of an utterance beside its `linked` mentions. Searches for concepts only
/// if there are no linked mentions. `min_informativeness` is that of linking.
pub fn search(
    view: View<'_>,
    (utterance, lexicon, text): (u32, &'static Lexicon, &str),
    linked: &[Mention],
    min_informativeness: f32,
    config: &SearchConfig,
) -> Found {
    if small_talk_in(text, &spoken_words(text)).share >= 1.0 {
        return Found::default();
    }
    let words = lexicon.words(text);
    let searcher = Searcher { view, lexicon, text, words: &words, min_informativeness, config };
    let mut found = Found::default();
    let (mut at, mut asked) = (0, 0);
    while at < words.len() {
        let unlinked = !linked.iter().any(|mention| overlap(mention.span, words[at].span));
        let searched = linked.is_empty()
            && config.enabled
            && asked < config.max_phrases
            && found.mentions.len() < config.max_concepts as usize;
        if !unlinked || !searcher.is_content(&words[at]) {
            at += 1;
            continue;
        }
        asked += u32::from(searched);
        match searched.then(|| searcher.find(at)).flatten() {
            Some(hit) => {
                found.mentions.push(Mention {
                    concept: hit.concept,
                    utterance,
                    span: Span {
                        start: words[at].span.start,
                        end: words[at + hit.words - 1].span.end,
                    },
                    words: hit.words as u8,
                    informativeness: view.informativeness(hit.concept) * hit.similarity as f32,
                    via: hit.via,
                    similarity: hit.similarity as f32,
                });
                at += hit.words;
            }
            None => {
                let (count, key) = searcher.phrase(at);
                if searcher.is_missing(&key) && !found.missing.contains(&key) {
                    found.missing.push(key);
                }
                at += count;
            }
        }
    }
    found.missing.truncate(config.max_missing as usize);
    found
}

fn overlap(one: Span, other: Span) -> bool {
    one.start < other.end && other.start < one.end
}

/// A concept and how it was found.
struct Hit {
    concept: ConceptId,
    via: Via,
    similarity: f64,
    words: usize,
}

/// Searches in one utterance.
struct Searcher<'a> {
    view: View<'a>,
    lexicon: &'static Lexicon,
    text: &'a str,
    words: &'a [Word<'a>],
    min_informativeness: f32,
    config: &'a SearchConfig,
}

impl Searcher<'_> {
    /// Whether a word may name something: it is not grammar, small talk or a number.
    fn is_content(&self, word: &Word<'_>) -> bool {
        !word.function_word
            && !self.lexicon.is_stop_word(&word.lemma)
            && word.lemma.chars().any(char::is_alphabetic)
            && !word.lemma.chars().any(char::is_numeric)
            && small_talk_in(&word.lower, &spoken_words(&word.lower)).share < 1.0
    }

    fn is_known(&self, key: &str) -> bool {
        !self.view.concepts_with_lemmas(self.lexicon.language(), key).is_empty()
    }

    /// Returns the words to search for from `at` on: one word, or, in a language without spaces,
    /// the run of content words, since a name that the dictionary does not know is cut into pieces.
    fn phrase(&self, at: usize) -> (usize, String) {
        let mut count = 1;
        if self.lexicon.is_chinese() {
            while at + count < self.words.len()
                && self.words[at + count - 1].span.end == self.words[at + count].span.start
                && self.is_content(&self.words[at + count])
            {
                count += 1;
            }
        }
        let lemmas: Vec<&str> =
            self.words[at..at + count].iter().map(|word| &*word.lemma).collect();
        (count, lemmas.concat())
    }

    /// Whether the graph has no concept with this key, and the word may be reported: it is neither
    /// too long nor a fragment.
    fn is_missing(&self, key: &str) -> bool {
        let least = if self.lexicon.is_chinese() { 2 } else { 3 };
        key.chars().nth(least - 1).is_some()
            && key.len() <= MAX_MISSING_BYTES
            && !self.is_known(key)
    }

    fn find(&self, at: usize) -> Option<Hit> {
        self.by_lemmas(at).or_else(|| self.by_grams(at))
    }

    /// Looks up phrases from here without their function words, longest first, with and without
    /// spaces; then the word split in two.
    fn by_lemmas(&self, at: usize) -> Option<Hit> {
        for count in (2..=MAX_PHRASE_WORDS.min(self.words.len() - at)).rev() {
            let phrase = &self.words[at..at + count];
            if !self.is_joined(phrase) || phrase.last().is_some_and(|word| word.function_word) {
                continue;
            }
            let content: Vec<&str> =
                phrase.iter().filter(|word| !word.function_word).map(|word| &*word.lemma).collect();
            if content.len() < 2 || self.is_spelled_out(&content) {
                continue;
            }
            let said = content.join(self.lexicon.joint());
            for key in [said.clone(), content.concat()] {
                if let Some(concept) = self.best_of(&key) {
                    return Some(self.varied(concept, &said, &key, count));
                }
            }
        }
        let word = &*self.words[at].lemma;
        if self.lexicon.is_chinese() || self.is_known(word) {
            return None;
        }
        let splits = word.char_indices().map(|(split, _)| word.split_at(split));
        let known = splits
            .filter(|(first, second)| first.len() > 1 && second.len() > 1)
            .map(|(first, second)| [first, second].join(self.lexicon.joint()))
            .filter_map(|key| Some((self.best_of(&key)?, key)));
        // Of equally well known concepts the first split wins.
        let (concept, key) =
            known.min_by_key(|(concept, _)| std::cmp::Reverse(self.view.degree(*concept)))?;
        Some(self.varied(concept, word, &key, 1))
    }

    fn varied(&self, concept: ConceptId, said: &str, key: &str, words: usize) -> Hit {
        let similarity = likeness_of_phrases(self.lexicon, said, key);
        Hit { concept, via: Via::Lemmas, similarity, words }
    }

    /// The concept with these lemmas and the most facts, if it may be returned.
    fn best_of(&self, key: &str) -> Option<ConceptId> {
        let concepts = self.view.concepts_with_lemmas(self.lexicon.language(), key);
        concepts.into_iter().find(|concept| self.may_give(*concept))
    }

    fn may_give(&self, concept: ConceptId) -> bool {
        let key = self.lexicon.key(self.view.concept(concept));
        self.view.degree(concept) >= self.config.min_facts
            && self.view.informativeness(concept) >= self.min_informativeness
            && !self.lexicon.is_stop_word(&key)
            && !(self.lexicon.is_seldom_meant(&key) && self.view.is_common_knowledge(concept))
            && !self.lexicon.is_function_word(&key)
    }

    /// Looks up the most similarly spelt concept.
    fn by_grams(&self, at: usize) -> Option<Hit> {
        let (words, key) = self.phrase(at);
        let chinese = self.lexicon.is_chinese();
        let least = if chinese {
            self.config.min_characters.div_ceil(2)
        } else {
            self.config.min_characters
        };
        if key.chars().count() < least as usize || self.is_known(&key) {
            return None;
        }
        let most = self.config.max_postings as usize;
        let alike = self.view.alike(self.lexicon, &key, self.config.min_similarity, most);
        let fits = |concept: ConceptId| {
            let other = self.lexicon.key(self.view.concept(concept));
            self.may_be_a_slip(&key, &other) && self.may_give(concept)
        };
        let (concept, similarity) = alike.into_iter().find(|(concept, _)| fits(*concept))?;
        Some(Hit { concept, via: Via::Ngrams, similarity, words })
    }

    /// Whether `said` may be a typing error of `concept`. A typing error keeps the number of words
    /// ("coffee" is not "coffee shop") and the first letter: a difference there is another word or
    /// a name ("necessary" for "unnecessary", "malice" for "Alice"). Searched words contain no
    /// digits, so a concept with digits is another address or price.
    fn may_be_a_slip(&self, said: &str, concept: &str) -> bool {
        if concept.chars().any(char::is_numeric) {
            return false;
        }
        let spaces = |key: &str| key.matches(' ').count();
        self.lexicon.is_chinese()
            || (spaces(said) == spaces(concept) && said.chars().next() == concept.chars().next())
    }

    /// Single letters ("R-Y-E") are not words. Chinese characters are.
    fn is_spelled_out(&self, content: &[&str]) -> bool {
        !self.lexicon.is_chinese() && content.iter().all(|lemma| lemma.chars().nth(1).is_none())
    }

    /// Whether only spaces and hyphens separate the words.
    fn is_joined(&self, words: &[Word<'_>]) -> bool {
        words.windows(2).all(|pair| {
            let gap = self.text.get(pair[0].span.end as usize..pair[1].span.start as usize);
            gap.is_some_and(|gap| {
                gap.chars().all(|letter| matches!(letter, ' ' | '-' | '\'' | '’'))
            })
        })
    }
}

#[cfg(test)]
mod tests;
