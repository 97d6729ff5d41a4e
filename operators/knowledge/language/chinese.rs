//! Chinese: words by jieba's dictionary, lemmas as simplified half-width text.
//!
//! A lemma is made character by character, always in the same way: compatibility forms (including
//! full-width letters and digits) become ordinary ones, traditional characters their simplified
//! forms, and letters lower case; punctuation inside a word is removed. The key of a text therefore
//! does not depend on its word boundaries, and a key is its own key. The cost: a character with two
//! simplified forms always takes the same one (乾 is 干 in 乾隆 too), on both sides of a match alike.
//! Texts that are shown or cut into words are simplified phrase by phrase instead.
//!
//! Words are cut without jieba's hidden Markov model: unknown text is cut into single characters
//! instead of into invented words. A name that the graph knows and the dictionary does not can then
//! always be assembled from whole words, which a wrong guess at its neighbour would prevent. The
//! same characters are also cut alike with any model.

use std::borrow::Cow;
use std::sync::LazyLock;

use jieba_rs::Jieba;
use turnstream_ports::script::{is_han, simplified, simplified_forms, simplified_text};
use turnstream_schemas::Span;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;
use unicode_segmentation::UnicodeSegmentation;

use super::{Lexicon, Word};

/// Version of the rules for lemmas. Raise it when they change, so that lemma indexes built with the
/// old rules are refused.
const RULES_VERSION: u32 = 1;

/// The dictionary of about 350,000 words, loaded at the first Chinese word.
static SEGMENTER: LazyLock<Jieba> = LazyLock::new(Jieba::new);

/// Checksum of the table of characters and the version of the rules.
pub(super) fn fingerprint() -> u32 {
    let mut pairs: Vec<(char, char)> = simplified_forms().collect();
    pairs.sort_unstable();
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&RULES_VERSION.to_le_bytes());
    for (from, to) in pairs {
        hasher.update(&u32::from(from).to_le_bytes());
        hasher.update(&u32::from(to).to_le_bytes());
    }
    hasher.finalize()
}

/// The lemma of a word; see the head of the module.
pub(super) fn lemma(word: &str) -> Cow<'_, str> {
    let kept = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if word.bytes().all(kept) {
        return Cow::Borrowed(word);
    }
    let plain: Vec<char> = word
        .nfkc()
        .flat_map(char::to_lowercase)
        .map(|letter| if letter == 'ς' { 'σ' } else { simplified(letter) })
        .collect();
    let digit = |at: usize| plain.get(at).is_some_and(char::is_ascii_digit);
    let decimal = |at: usize| plain[at] == '.' && at > 0 && digit(at - 1) && digit(at + 1);
    let lemma =
        (0..plain.len()).filter(|at| is_kept(plain[*at]) || decimal(*at)).map(|at| plain[at]);
    Cow::Owned(lemma.collect())
}

/// Whether a lemma keeps the character: letters and digits. A combining mark is removed, since its
/// base depends on the character before it.
fn is_kept(letter: char) -> bool {
    letter.is_alphanumeric() && !is_combining_mark(letter)
}

/// The words of a text in order: the dictionary cuts runs of Chinese characters, and Unicode word
/// boundaries cut everything else.
pub(super) fn words<'a>(lexicon: &Lexicon, text: &'a str) -> Vec<Word<'a>> {
    let mut words = Vec::new();
    let mut run = HanRun::default();
    for (start, found) in text.unicode_word_indices() {
        // A combining mark alone includes the space before it.
        let word = found.trim_start();
        let start = start + found.len() - word.len();
        let end = start + word.len();
        match word.chars().next().filter(|first| is_han(*first) && is_kept(*first)) {
            Some(character) if run.end == start => run.push(character, start, end),
            Some(character) => {
                run.cut(lexicon, &mut words);
                run.push(character, start, end);
            }
            None => {
                run.cut(lexicon, &mut words);
                words.extend(Lexicon::chinese_word(lexicon, lemma(word), start, end));
            }
        }
    }
    run.cut(lexicon, &mut words);
    words
}

/// A run of Chinese characters.
#[derive(Default)]
struct HanRun {
    /// The characters, with compatibility forms replaced by ordinary ones.
    text: String,
    /// The position of each character in the text.
    starts: Vec<usize>,
    /// The end of the last character.
    end: usize,
}

impl HanRun {
    fn push(&mut self, character: char, start: usize, end: usize) {
        let mut buffer = [0; 4];
        // A compatibility character is one ordinary character.
        let ordinary = character.encode_utf8(&mut buffer).nfkc().next().unwrap_or(character);
        self.text.push(ordinary);
        self.starts.push(start);
        self.end = end;
    }

    /// Cuts the run into words and begins a new one.
    fn cut(&mut self, lexicon: &Lexicon, words: &mut Vec<Word<'_>>) {
        let mut first = 0;
        let written = simplified_text(&self.text);
        // Every phrase of the table has the length of its replacement. If one had not, the
        // unconverted characters would still have their positions.
        let count = |text: &str| text.chars().count();
        let written = if count(&written) == self.starts.len() { &*written } else { &self.text };
        let mut letters = self.text.chars().map(simplified);
        for token in SEGMENTER.cut(written, false) {
            let length = count(token.word);
            let after = first + length;
            let Some(&start) = self.starts.get(first) else { break };
            let end = self.starts.get(after).copied().unwrap_or(self.end);
            let lemma = Cow::Owned(letters.by_ref().take(length).collect());
            words.extend(Lexicon::chinese_word(lexicon, lemma, start, end));
            first = after;
        }
        *self = Self::default();
    }
}

impl Lexicon {
    /// A word with its lemma; `None` if the lemma is empty.
    fn chinese_word<'a>(&self, lemma: Cow<'a, str>, start: usize, end: usize) -> Option<Word<'a>> {
        if lemma.is_empty() {
            return None;
        }
        let function_word = self.is_function_word(&lemma);
        let span = Span { start: start as u32, end: end as u32 };
        Some(Word { span, lower: lemma.clone(), lemma, function_word })
    }
}
