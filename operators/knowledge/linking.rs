//! Concept linking finds the concepts of the graph that a dialogue names (DCRAG, E^EQ, eq 1 and 2).
//!
//! It takes the longest match over lemmas, at most five words, from left to right, never across
//! punctuation. It leaves out stop words, function words, uninformative hubs, everyday words that
//! seldom mean what common knowledge says of them, and pieces of names and hyphenated words. A
//! mention begins and ends at word boundaries, in Chinese those of the dictionary. It may join
//! several words to one concept, and never takes a part of a word. Linking is a pure function of
//! the graph and the text.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_schemas::{Span, Via};

use crate::language::{Lexicon, Word, WordCount, has_han, is_han};
use crate::{ConceptId, View};

mod kept;

pub use kept::KeptLinks;

/// A place in the dialogue that names a concept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mention {
    /// The concept.
    pub concept: ConceptId,
    /// The utterance in the dialogue, from 0.
    pub utterance: u32,
    /// The place in that utterance.
    pub span: Span,
    /// The number of words of the mention, from 1. Each character of a Chinese name that the
    /// dictionary does not know is one.
    pub words: u8,
    /// The informativeness of the concept, 0..=1: rare concepts say more than hubs. A search
    /// multiplies it by the similarity ([`crate::search`]).
    pub informativeness: f32,
    /// How the concept was found.
    pub via: Via,
    /// The similarity of the words to the concept, 0..=1; 1 if they name it.
    pub similarity: f32,
}

/// Bounds of concept linking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LinkingConfig {
    /// Longest mention, in words, 1..=5. Adjacent single Chinese characters count as one word: a name
    /// that the dictionary does not know is cut into them.
    #[schemars(range(min = 1, max = 5))]
    pub max_words: u8,
    /// Least informativeness of a concept that a single word names, 0..=1. A less informative one is a
    /// hub that says nothing.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_informativeness: f32,
    /// A phrase that begins or ends with a function word ("at home") counts as a concept only
    /// where the graph has at least this many facts about it. A particle that ends a verb
    /// phrase ("wake up") needs no such evidence.
    pub min_framed_phrase_facts: u32,
    /// A single Chinese character (吃, 猫) counts as a concept only where the graph has at least
    /// this many facts about it: most are grammar or a piece of a name.
    pub min_character_facts: u32,
    /// Most mentions per call. Those of the latest utterances are kept, the others left out.
    #[schemars(range(min = 1))]
    pub max_mentions: usize,
}

impl Default for LinkingConfig {
    fn default() -> Self {
        Self {
            max_words: 5,
            min_informativeness: 0.15,
            min_framed_phrase_facts: 12,
            min_character_facts: 12,
            max_mentions: 256,
        }
    }
}

/// The concepts that the utterances name, in order of utterance and place. Each utterance comes
/// with the lexicon of its language.
///
/// The lemmas of every mention's span are the lemmas of its concept, in the concept's language. Of
/// several concepts with the same lemmas the one with the most facts is chosen. Words in the other
/// language's script are linked in that language, if the utterance's own language left them over:
/// "coffee" in a Chinese sentence, 北京 in an English one.
pub fn link<'u>(
    knowledge: View<'_>,
    utterances: impl IntoIterator<Item = (&'static Lexicon, &'u str)>,
    config: &LinkingConfig,
) -> Vec<Mention> {
    let linked = (0..).zip(utterances).flat_map(|(at, said)| link_one(knowledge, said, config, at));
    bounded(linked.collect(), config)
}

/// Links the utterance at a place of the dialogue.
fn link_one(
    knowledge: View<'_>,
    (lexicon, text): (&'static Lexicon, &str),
    config: &LinkingConfig,
    utterance: u32,
) -> Vec<Mention> {
    let linker = Linker { knowledge, lexicon, config };
    let mut mentions = Vec::new();
    linker.link((utterance, text), 0, &mut mentions);
    linker.link_left_over((utterance, text), &mut mentions);
    mentions
}

/// Keeps the latest mentions, if there are too many.
fn bounded(mut mentions: Vec<Mention>, config: &LinkingConfig) -> Vec<Mention> {
    mentions.drain(..mentions.len().saturating_sub(config.max_mentions));
    mentions
}

/// Links in one language.
#[derive(Clone, Copy)]
struct Linker<'a> {
    knowledge: View<'a>,
    lexicon: &'a Lexicon,
    config: &'a LinkingConfig,
}

impl Linker<'_> {
    /// Links words in the other language's script between the mentions.
    fn link_left_over(self, (utterance, text): (u32, &str), mentions: &mut Vec<Mention>) {
        // Chinese is tried if the text has Chinese characters, English if it has Latin letters.
        let (other, any) = if self.lexicon.is_chinese() {
            (Lexicon::english(), text.bytes().any(|byte| byte.is_ascii_alphabetic()))
        } else {
            (Lexicon::chinese(), has_han(text))
        };
        if !any {
            return;
        }
        let spans: Vec<Span> = mentions.iter().map(|mention| mention.span).collect();
        let starts = std::iter::once(0).chain(spans.iter().map(|span| span.end));
        let ends = spans.iter().map(|span| span.start).chain([text.len() as u32]);
        let linker = Linker { lexicon: other, ..self };
        for (start, end) in starts.zip(ends) {
            let gap = text.get(start as usize..end as usize).unwrap_or_default();
            let found = mentions.len();
            linker.link((utterance, gap), start, mentions);
            // A Latin word is not a Chinese mention in an English text.
            if other.is_chinese() {
                let said = |mention: &Mention| mention.span.of(text).is_some_and(has_han);
                let kept: Vec<Mention> = mentions.drain(found..).filter(said).collect();
                mentions.extend(kept);
            }
        }
        mentions.sort_unstable_by_key(|mention| mention.span);
    }

    /// Links a piece of an utterance that begins at byte `offset`.
    fn link(self, (utterance, text): (u32, &str), offset: u32, mentions: &mut Vec<Mention>) {
        let words = self.lexicon.words(text);
        let mut at = 0;
        while at < words.len() {
            let formula = self.lexicon.formula(&words[at..]);
            let longest = self.longest(text, &words[at..]);
            let meant = |count: usize| count > formula && !self.is_piece(text, &words, at, count);
            let Some((concept, count)) = longest.filter(|(_, count)| meant(*count)) else {
                at += formula.max(1);
                continue;
            };
            let (start, end) = (words[at].span.start, words[at + count - 1].span.end);
            mentions.push(Mention {
                concept,
                utterance,
                span: Span { start: offset + start, end: offset + end },
                words: count as u8,
                informativeness: self.knowledge.informativeness(concept),
                via: Via::Exact,
                similarity: 1.0,
            });
            at += count;
        }
    }

    /// The longest beginning of `words` that names a concept.
    fn longest(self, text: &str, words: &[Word<'_>]) -> Option<(ConceptId, usize)> {
        let mut walk = self.knowledge.lemma_walk(self.lexicon.language());
        let mut best = None;
        let mut counted = WordCount::default();
        let most = u32::from(self.config.max_words.clamp(1, 5));
        for count in 1..=words.len().min(usize::from(u8::MAX)) {
            counted.add(&words[count - 1]);
            if counted.words > most
                || count > 1 && !self.joins(text, &words[count - 2], &words[count - 1])
                || !walk.step(&words[count - 1].lemma)
            {
                break;
            }
            if let Some(concept) = walk.most_named()
                && self.counts(&words[..count], concept)
            {
                best = Some((concept, count));
            }
        }
        best
    }

    /// Whether the mention is informative enough.
    fn counts(self, words: &[Word<'_>], concept: ConceptId) -> bool {
        let content = |word: &Word<'_>| {
            !word.function_word
                && !self.lexicon.is_stop_word(&word.lemma)
                && (!self.lexicon.is_chinese() || is_alphabetic(word))
        };
        match words {
            [word] => {
                content(word)
                    && is_alphabetic(word)
                    && !(self.lexicon.is_seldom_meant(&word.lemma)
                        && self.knowledge.is_common_knowledge(concept))
                    && self.is_long_enough(word, concept)
                    && self.knowledge.informativeness(concept) >= self.config.min_informativeness
            }
            [first, .., last] => {
                let frames =
                    |word: &Word<'_>| word.function_word && self.lexicon.frames(&word.lower);
                let framed =
                    frames(first) || (frames(last) && !self.lexicon.is_particle(&last.lower));
                words.iter().any(content)
                    && (!framed
                        || self.knowledge.degree(concept) >= self.config.min_framed_phrase_facts)
            }
            [] => false,
        }
    }

    /// Whether the mention is a piece of something longer: a hyphen ties it to a word beside it
    /// ("white-collar"), or it is a word of a name.
    fn is_piece(self, text: &str, words: &[Word<'_>], at: usize, count: usize) -> bool {
        let tied = |left: usize, right: usize| {
            let [left, right] = [left, right].map(|at| words[at].span);
            text.get(left.end as usize..right.start as usize) == Some("-")
        };
        let end = at + count;
        at > 0 && tied(at - 1, at)
            || end < words.len() && tied(end - 1, end)
            || count == 1 && self.is_piece_of_name(text, words, at)
    }

    /// Whether the capitalised word at `at` is a piece of a name ("Green Street", "Mr. Bush"): it
    /// comes after a title, or is beside another capitalised word that does not begin a sentence.
    /// A text without a content word in lower case says nothing by its capitals.
    fn is_piece_of_name(self, text: &str, words: &[Word<'_>], at: usize) -> bool {
        let said = |at: usize| words.get(at).and_then(|word| word.span.of(text)).unwrap_or("");
        let named = |at: usize| {
            words.get(at).is_some_and(|word| !word.function_word && is_capitalised(said(at)))
        };
        if self.lexicon.is_chinese() || !is_capitalised(said(at)) {
            return false;
        }
        let before = at.checked_sub(1);
        let titled = before.is_some_and(|before| TITLES.contains(&&*words[before].lower));
        let joined = |left: usize| self.joins(text, &words[left], &words[left + 1]);
        let begins = |at: usize| at == 0 || !joined(at - 1);
        let follows =
            before.is_some_and(|before| named(before) && joined(before) && !begins(before));
        let leads = named(at + 1) && joined(at);
        let spoken = || {
            let mut content = words.iter().filter(|word| !word.function_word);
            content.any(|word| word.span.of(text).is_some_and(|said| !is_capitalised(said)))
        };
        titled || (follows || leads) && spoken()
    }

    /// Whether only spaces, hyphens or an ampersand separate two words. A Chinese name may also
    /// contain a dot or brackets: 鸟巢（国家体育场）.
    fn joins(self, text: &str, left: &Word<'_>, right: &Word<'_>) -> bool {
        let gap = text.get(left.span.end as usize..right.span.start as usize).unwrap_or_default();
        let chinese = self.lexicon.is_chinese();
        gap.chars().all(|letter| match letter {
            ' ' | '\t' | '\u{a0}' | '-' | '\u{2010}' | '\u{2011}' | '&' | '\'' | '\u{2019}' => true,
            '·' | '（' | '）' | '(' | ')' | '\u{3000}' => chinese,
            _ => false,
        })
    }

    /// A single letter is not a mention. A single Chinese character is one if the graph has enough
    /// facts about it.
    fn is_long_enough(self, word: &Word<'_>, concept: ConceptId) -> bool {
        let mut letters = word.lemma.chars();
        match (letters.next(), letters.next()) {
            (Some(_), Some(_)) => true,
            (Some(letter), None) => {
                is_han(letter) && self.knowledge.degree(concept) >= self.config.min_character_facts
            }
            _ => false,
        }
    }
}

/// What stands before the name of a person.
const TITLES: [&str; 7] = ["mr", "mrs", "ms", "miss", "dr", "professor", "prof"];

fn is_capitalised(word: &str) -> bool {
    word.chars().next().is_some_and(char::is_uppercase)
}

fn is_alphabetic(word: &Word<'_>) -> bool {
    word.lemma.chars().any(char::is_alphabetic)
}

#[cfg(test)]
mod tests;
