//! Chinese: words by jieba's dictionary, lemmas as simplified half-width text.
//!
//! A lemma is made character by character, always the same way: compatibility forms (full-width
//! letters and digits among them) become ordinary ones, traditional characters their simplified
//! forms, letters lower case; punctuation inside a word goes. So the key of a text does not depend
//! on where its words end, and a key is its own key. What that gives away: a character with two
//! simplified forms always takes the same (乾 is 干 in 乾隆 too), on both sides of a match alike.
//! Texts that are shown or cut into words are simplified phrase by phrase instead.
//!
//! Words are cut without jieba's hidden Markov model: what the dictionary does not know falls into
//! single characters instead of into invented words. A name that the graph knows and the dictionary
//! does not can then always be put together from whole words, which a wrong guess at its neighbour
//! would prevent; and the same characters are cut alike whatever model ships.

use std::borrow::Cow;
use std::sync::LazyLock;

use ferrous_opencc::OpenCC;
use ferrous_opencc::config::BuiltinConfig;
use jieba_rs::Jieba;
use rustc_hash::FxHashMap;
use turnstream_schemas::Span;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;
use unicode_segmentation::UnicodeSegmentation;

use super::script::is_han;
use super::{Lexicon, Word};

/// Version of the rules by which lemmas are made: raise it when they change, so that the lemma
/// indexes built with the old ones are refused.
const RULES_VERSION: u32 = 1;

/// The dictionary of words: about 350,000, loaded when the first Chinese word is met.
static SEGMENTER: LazyLock<Jieba> = LazyLock::new(Jieba::new);

/// Traditional → simplified, phrase by phrase. The tables are inside the program; were they not
/// readable, texts would stay as they are, and the fingerprint would say so.
static CONVERTER: LazyLock<Option<OpenCC>> =
    LazyLock::new(|| OpenCC::from_config(BuiltinConfig::T2s).ok());

/// Traditional → simplified, where they differ.
static SIMPLIFIED: LazyLock<FxHashMap<char, char>> = LazyLock::new(simplified_forms);

/// The blocks that traditional characters lie in.
const BLOCKS: [std::ops::RangeInclusive<u32>; 3] =
    [0x3400..=0x9fff, 0xf900..=0xfaff, 0x2_0000..=0x3_23af];

fn simplified_forms() -> FxHashMap<char, char> {
    let mut forms = FxHashMap::default();
    let Some(table) = CONVERTER.as_ref() else { return forms };
    let mut buffer = [0; 4];
    for letter in BLOCKS.into_iter().flatten().filter_map(char::from_u32) {
        let simplified = table.convert(letter.encode_utf8(&mut buffer));
        let mut letters = simplified.chars();
        if let (Some(form), None) = (letters.next(), letters.next())
            && form != letter
        {
            forms.insert(letter, form);
        }
    }
    // One character's simplified form is itself simplified further.
    let further: Vec<(char, char)> =
        forms.iter().filter_map(|(from, to)| Some((*from, *forms.get(to)?))).collect();
    forms.extend(further);
    forms
}

/// Checksum of the table of characters and the version of the rules.
pub(super) fn fingerprint() -> u32 {
    let mut pairs: Vec<(char, char)> = SIMPLIFIED.iter().map(|(from, to)| (*from, *to)).collect();
    pairs.sort_unstable();
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&RULES_VERSION.to_le_bytes());
    for (from, to) in pairs {
        hasher.update(&u32::from(from).to_le_bytes());
        hasher.update(&u32::from(to).to_le_bytes());
    }
    hasher.finalize()
}

/// The simplified form of a character.
fn simplified(letter: char) -> char {
    SIMPLIFIED.get(&letter).copied().unwrap_or(letter)
}

/// Traditional characters that simplified texts use as well (乾隆).
const IN_BOTH: char = '乾';

/// A text in simplified characters, and else as it is; with regard to the words that characters
/// stand in, unlike a lemma: 乾隆 stays, 乾淨 is 干净.
pub(super) fn simplified_text(text: &str) -> Cow<'_, str> {
    let traditional = |letter: char| letter != IN_BOTH && simplified(letter) != letter;
    match CONVERTER.as_ref() {
        Some(converter) if text.chars().any(traditional) => Cow::Owned(converter.convert(text)),
        _ => Cow::Borrowed(text),
    }
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

/// Letters and digits; a mark goes, since what it stands on depends on what comes before.
fn is_kept(letter: char) -> bool {
    letter.is_alphanumeric() && !is_combining_mark(letter)
}

/// The words of a text in order: runs of Chinese characters cut by the dictionary, everything
/// else at Unicode word boundaries.
pub(super) fn words<'a>(lexicon: &Lexicon, text: &'a str) -> Vec<Word<'a>> {
    let mut words = Vec::new();
    let mut run = Run::default();
    for (start, found) in text.unicode_word_indices() {
        // A mark that stands alone takes the space before it along.
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

/// Chinese characters that stand together.
#[derive(Default)]
struct Run {
    /// The characters, compatibility forms as ordinary ones.
    text: String,
    /// Where each begins in the text.
    starts: Vec<usize>,
    /// Where the last ends.
    end: usize,
}

impl Run {
    fn push(&mut self, character: char, start: usize, end: usize) {
        let mut buffer = [0; 4];
        // A compatibility character is one ordinary character.
        let ordinary = character.encode_utf8(&mut buffer).nfkc().next().unwrap_or(character);
        self.text.push(ordinary);
        self.starts.push(start);
        self.end = end;
    }

    /// Cuts the characters into words and begins anew.
    fn cut(&mut self, lexicon: &Lexicon, words: &mut Vec<Word<'_>>) {
        let mut first = 0;
        let written = simplified_text(&self.text);
        // No phrase of the table is longer or shorter than what it stands for; were one, the
        // characters as they are would still have their places.
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
    /// A word with its lemma, unless nothing of it is left.
    fn chinese_word<'a>(&self, lemma: Cow<'a, str>, start: usize, end: usize) -> Option<Word<'a>> {
        if lemma.is_empty() {
            return None;
        }
        let function_word = self.is_function_word(&lemma);
        let span = Span { start: start as u32, end: end as u32 };
        Some(Word { span, lower: lemma.clone(), lemma, function_word })
    }
}
