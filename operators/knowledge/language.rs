//! English and Chinese: words with their places in a text, lemmas, and words without content.
//!
//! Concept linking, the lemma index of the graph, recall, the gate, ranking and the wording of
//! facts use it. Its data are word lists under `language/en/` and `language/zh/`, embedded in the
//! program. Everything is a pure function of the text.
//!
//! The script of a text determines its language ([`Lexicon::of_text`]), utterance by utterance, so
//! that a conversation may change its language. A turn may name its own ([`Lexicon::of_turn`]).

mod chinese;
mod inflection;
mod lemma;
mod lists;

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::LazyLock;

use rustc_hash::FxHashMap;
use turnstream_schemas::{Span, Turn};
use unicode_segmentation::UnicodeSegmentation;

use crate::kept::KeptWords;
use lists::{Table, WordSet};
pub use turnstream_ports::script::{has_han, is_han};
use turnstream_ports::script::{is_chinese, simplified_text};

/// A word of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word<'a> {
    /// Its place in the text, in bytes.
    pub span: Span,
    /// The word in lower case, with straight apostrophes; in Chinese its lemma.
    pub lower: Cow<'a, str>,
    /// Its lemma ([`Lexicon::lemma`]).
    pub lemma: Cow<'a, str>,
    /// Whether it carries grammar rather than content: articles, pronouns, auxiliaries,
    /// prepositions.
    pub function_word: bool,
}

/// How a language is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    /// Spaces separate words, and words are inflected.
    English,
    /// Nothing separates words, and words are not inflected.
    Chinese,
}

/// The linguistic data of one language. Lists that a language does not need, such as irregular
/// forms in Chinese, are empty.
pub struct Lexicon {
    language: &'static str,
    writing: Writing,
    fingerprint: u32,
    /// Form → lemma.
    irregular: FxHashMap<&'static str, &'static str>,
    base_forms: WordSet,
    invariant: WordSet,
    gradable: WordSet,
    function_words: WordSet,
    stop_words: WordSet,
    seldom_meant: WordSet,
    particles: WordSet,
    name_characters: WordSet,
    greetings: WordSet,
    acknowledgements: WordSet,
    references: WordSet,
    specifics: WordSet,
    /// Keyed by their first word.
    formulas: FxHashMap<&'static str, Vec<Vec<&'static str>>>,
    verbs: WordSet,
    /// Base form → past participle.
    participles: FxHashMap<&'static str, &'static str>,
}

/// The lemma of a word that is in lower case.
#[derive(Clone)]
enum FoundLemma {
    /// Its first bytes.
    Prefix(usize),
    Other(Box<str>),
}

impl FoundLemma {
    fn of(lemma: &str, word: &str) -> Self {
        if word.starts_with(lemma) { Self::Prefix(lemma.len()) } else { Self::Other(lemma.into()) }
    }
}

thread_local! {
    /// Those of English words.
    static LEMMAS: RefCell<KeptWords<FoundLemma>> = RefCell::default();
}

static ENGLISH: LazyLock<Lexicon> = LazyLock::new(Lexicon::load_english);

static CHINESE: LazyLock<Lexicon> = LazyLock::new(Lexicon::load_chinese);

impl Lexicon {
    /// English.
    pub fn english() -> &'static Self {
        &ENGLISH
    }

    /// Chinese.
    pub fn chinese() -> &'static Self {
        &CHINESE
    }

    /// The lexicon of a text's language, which its script determines: Chinese if Chinese characters
    /// outnumber the words of other scripts, otherwise English.
    pub fn of_text(text: &str) -> &'static Self {
        if is_chinese(text) { Self::chinese() } else { Self::english() }
    }

    /// The lexicon of a turn's language: that of its tag (`zh-TW` is Chinese), if there is a
    /// lexicon for it, otherwise that of its text.
    pub fn of_turn(turn: &Turn) -> &'static Self {
        let tag = turn.language.as_deref();
        let primary = tag.and_then(|tag| tag.split(['-', '_']).next());
        let named = primary.and_then(|code| Self::for_language(&code.to_ascii_lowercase()));
        named.unwrap_or_else(|| Self::of_text(&turn.text))
    }

    fn load_chinese() -> Self {
        Self {
            language: "zh",
            writing: Writing::Chinese,
            fingerprint: chinese::fingerprint(),
            irregular: FxHashMap::default(),
            base_forms: WordSet::default(),
            invariant: WordSet::default(),
            gradable: WordSet::default(),
            function_words: lists::words(lists::zh::FUNCTION_WORDS),
            stop_words: lists::words(lists::zh::STOP_WORDS),
            seldom_meant: WordSet::default(),
            particles: lists::words(lists::zh::PARTICLES),
            name_characters: lists::words(lists::zh::NAME_CHARACTERS),
            greetings: lists::lines(lists::zh::GREETINGS),
            acknowledgements: lists::lines(lists::zh::ACKNOWLEDGEMENTS),
            references: lists::words(lists::zh::REFERENCES),
            specifics: lists::words(lists::zh::SPECIFICS),
            formulas: FxHashMap::default(),
            verbs: WordSet::default(),
            participles: FxHashMap::default(),
        }
    }

    fn load_english() -> Self {
        let verbs = Table::parse(lists::IRREGULAR_VERBS);
        let mut irregular = FxHashMap::default();
        let mut participles = FxHashMap::default();
        for row in verbs.rows() {
            let [base, forms @ ..] = row.as_slice() else { continue };
            for form in forms.iter().filter(|form| !form.ends_with('*') && *form != base) {
                irregular.insert(*form, *base);
            }
            if let Some(participle) = forms.last() {
                participles.insert(*base, participle.trim_end_matches('*'));
            }
        }
        for text in [lists::IRREGULAR_NOUNS, lists::IRREGULAR_FORMS] {
            for row in Table::parse(text).rows() {
                if let [form, lemma] = row[..]
                    && form != lemma
                {
                    irregular.insert(form, lemma);
                }
            }
        }
        let mut invariant = lists::words(lists::INVARIANT);
        let nouns = Table::parse(lists::IRREGULAR_NOUNS);
        invariant.extend(nouns.rows().iter().filter(|row| row[0] == row[1]).map(|row| row[0]));
        Self {
            language: "en",
            writing: Writing::English,
            fingerprint: lists::fingerprint(),
            irregular,
            base_forms: lists::words(lists::BASE_FORMS),
            invariant,
            gradable: lists::words(lists::GRADABLE_ADJECTIVES),
            function_words: lists::words(lists::FUNCTION_WORDS),
            stop_words: lists::words(lists::STOP_WORDS),
            seldom_meant: lists::words(lists::SELDOM_MEANT),
            particles: lists::words(lists::PARTICLES),
            name_characters: WordSet::default(),
            greetings: lists::lines(lists::GREETINGS),
            acknowledgements: lists::lines(lists::ACKNOWLEDGEMENTS),
            references: lists::words(lists::REFERENCES),
            specifics: lists::words(lists::SPECIFICS),
            formulas: lists::phrases(lists::FORMULAS),
            verbs: lists::words(lists::VERBS),
            participles,
        }
    }

    /// The lexicon of a language by its code, such as `en`; `None` if there is none.
    pub fn for_language(code: &str) -> Option<&'static Self> {
        match code {
            "en" => Some(Self::english()),
            "zh" => Some(Self::chinese()),
            _ => None,
        }
    }

    /// The separator of the lemmas of a [`Self::key`]: a space if the language writes one,
    /// otherwise nothing.
    pub fn joint(&self) -> &'static str {
        match self.writing {
            Writing::English => " ",
            Writing::Chinese => "",
        }
    }

    /// The language's code, such as `en`.
    pub fn language(&self) -> &'static str {
        self.language
    }

    /// Whether this is Chinese, whose words nothing separates.
    pub fn is_chinese(&self) -> bool {
        self.writing == Writing::Chinese
    }

    /// Checksum of the language data and the version of the rules. Lexicons with the same
    /// fingerprint give every word the same lemma.
    pub fn fingerprint(&self) -> u32 {
        self.fingerprint
    }

    /// The words of a text in order (Unicode word boundaries, UAX #29: a hyphen separates, an
    /// apostrophe inside a word does not; Chinese characters by jieba's dictionary).
    pub fn words<'a>(&'a self, text: &'a str) -> Vec<Word<'a>> {
        self.word_iter(text).collect()
    }

    /// Iterates over the words of a text.
    pub fn word_iter<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Word<'a>> {
        let chinese = self.writing == Writing::Chinese;
        let spaced = (!chinese).then(|| self.spaced_words(text));
        let cut = chinese.then(|| chinese::words(self, text));
        spaced.into_iter().flatten().chain(cut.into_iter().flatten())
    }

    /// The words of a text that separates words with spaces.
    fn spaced_words<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Word<'a>> {
        text.unicode_word_indices().map(|(start, found)| {
            // A combining mark alone includes the space before it.
            let word = found.trim_start();
            let start = start + found.len() - word.len();
            let lower = lower(word);
            let lemma = match &lower {
                Cow::Borrowed(lower) => self.lemma(lower),
                Cow::Owned(lower) => Cow::Owned(self.lemma(lower).into_owned()),
            };
            let function_word = self.is_function_word(&lower) || self.is_function_word(&lemma);
            let span = Span { start: start as u32, end: (start + word.len()) as u32 };
            Word { span, lower, lemma, function_word }
        })
    }

    /// The lemma of a word: its dictionary form in lower case. Irregular forms come from lists.
    /// Otherwise endings are detached if the rest is a known word (the idea of WordNet's morphy),
    /// verbs before nouns: "meeting" is "meet". Unknown words lose only a plural s.
    /// `lemma(lemma(x)) == lemma(x)`. In Chinese: simplified characters, half-width, lower case.
    pub fn lemma<'a>(&'a self, word: &'a str) -> Cow<'a, str> {
        if self.writing == Writing::Chinese {
            return chinese::lemma(word);
        }
        let word = lower(word);
        let lemma = LEMMAS.with_borrow_mut(|kept| {
            kept.get_or(&word, |word| FoundLemma::of(&self.whole_lemma(word), word))
        });
        match (lemma, word) {
            (FoundLemma::Prefix(length), Cow::Borrowed(word)) => Cow::Borrowed(&word[..length]),
            (FoundLemma::Prefix(length), Cow::Owned(mut word)) => {
                word.truncate(length);
                Cow::Owned(word)
            }
            (FoundLemma::Other(lemma), _) => Cow::Owned(lemma.into()),
        }
    }

    fn whole_lemma(&self, word: &str) -> String {
        let mut lemma = word.to_owned();
        // Each step shortens the word or leads from an irregular form to a base form, so the loop
        // ends; a test of the lists ensures that base forms do not form a cycle.
        while let Some(next) = self.detach(&lemma) {
            match next {
                lemma::Step::Known(known) => known.clone_into(&mut lemma),
                lemma::Step::Prefix(length) => lemma.truncate(length),
                lemma::Step::Made(made) => lemma = made,
            }
        }
        lemma
    }

    /// The lemmas of a text, joined by [`Self::joint`]. It is the key of a concept in the lemma
    /// index, and the normal form in which a mention equals its concept.
    pub fn key(&self, text: &str) -> String {
        let mut key = String::with_capacity(text.len());
        for word in self.word_iter(text) {
            if !key.is_empty() {
                key.push_str(self.joint());
            }
            key.push_str(&word.lemma);
        }
        key
    }

    /// A text in the language's one script: Chinese in simplified characters, any other language
    /// unchanged. Imports use it, so that 長城 and 长城 are one concept.
    pub fn in_one_script<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.writing {
            Writing::English => Cow::Borrowed(text),
            Writing::Chinese => simplified_text(text),
        }
    }

    /// The number of words of a text. Adjacent single characters in a Chinese text count as one
    /// word: a name that the dictionary does not know is cut into them.
    pub fn word_count(&self, text: &str) -> u32 {
        match self.writing {
            Writing::English => text.split(' ').count() as u32,
            Writing::Chinese => {
                let mut count = WordCount::default();
                self.word_iter(text).for_each(|word| count.add(&word));
                count.words
            }
        }
    }

    /// Whether the word, in lower case, carries grammar rather than content.
    pub fn is_function_word(&self, lower: &str) -> bool {
        self.function_words.contains(lower)
            || (self.is_chinese() && lower.is_ascii() && Self::english().is_function_word(lower))
    }

    /// Whether the lemma says too little to be looked up on its own ("thing", "make").
    pub fn is_stop_word(&self, lemma: &str) -> bool {
        self.stop_words.contains(lemma)
    }

    /// Whether the lemma alone seldom means what common knowledge says about it: it is mostly a
    /// piece of an expression, a name, or said in another sense ("form", "clear", "john").
    pub fn is_seldom_meant(&self, lemma: &str) -> bool {
        self.seldom_meant.contains(lemma)
    }

    /// The number of words at the beginning of `words` that form a set phrase, in which no word has
    /// its usual meaning ("of course"). 0 if no set phrase begins there.
    pub fn formula(&self, words: &[Word<'_>]) -> usize {
        let Some(first) = words.first().filter(|_| !self.formulas.is_empty()) else { return 0 };
        let begins = |listed: &&Vec<&str>| {
            listed.len() <= words.len()
                && words.iter().zip(*listed).all(|(word, listed)| *word.lower == **listed)
        };
        let mut listed = self.formulas.get(&*first.lower).into_iter().flatten();
        listed.find(begins).map_or(0, Vec::len)
    }

    /// Whether the word may end a verb phrase ("up" in "wake up").
    pub fn is_particle(&self, lower: &str) -> bool {
        self.particles.contains(lower)
    }

    /// Whether a function word at the beginning or end of a phrase makes it a framed one ("at
    /// home") and not a name that begins or ends so.
    pub fn frames(&self, lower: &str) -> bool {
        // The T of T恤 is not an article.
        let latin = self.writing == Writing::Chinese && lower.is_ascii();
        !latin && !self.name_characters.contains(lower)
    }

    /// Whether this is the base form of a verb.
    pub fn is_verb(&self, lemma: &str) -> bool {
        self.verbs.contains(lemma)
    }

    /// Whether the whole text is an opening or closing formula ("Good morning!").
    pub fn is_greeting(&self, text: &str) -> bool {
        self.is_formula(text, |phrase| self.greetings.contains(phrase))
    }

    /// Whether the whole text acknowledges something without asking for more ("ok, thanks").
    pub fn is_acknowledgement(&self, text: &str) -> bool {
        self.is_formula(text, |phrase| {
            self.acknowledgements.contains(phrase) || self.greetings.contains(phrase)
        })
    }

    /// Whether a word, in lower case, says when or how many.
    pub fn is_specific(&self, lower: &str) -> bool {
        self.specifics.contains(lower)
    }

    /// Whether the text refers to what was said before, by a word ("and how old is she?") or by
    /// naming nothing itself ("why?"). A formula does not, nor does a text without words.
    pub fn refers_back(&self, text: &str) -> bool {
        let (mut is_empty, mut names_nothing, mut refers) = (true, true, false);
        for word in self.word_iter(text) {
            let stem = word.lower.split('\'').next().unwrap_or_default();
            is_empty = false;
            names_nothing &= word.function_word;
            refers |= self.references.contains(stem);
        }
        !is_empty && (names_nothing || refers) && !self.is_acknowledgement(text)
    }

    /// Whether phrases of a list cover the whole text, from the left, longest first.
    fn is_formula(&self, text: &str, listed: impl Fn(&str) -> bool) -> bool {
        const LONGEST_FORMULA_WORDS: usize = 7;
        const LONGEST_TEXT_WORDS: usize = 16;
        // In Chinese the words of a formula are its characters.
        let plain = |word| match self.writing {
            Writing::English => lower(word),
            Writing::Chinese => chinese::lemma(word),
        };
        let words: Vec<Cow<'_, str>> =
            text.unicode_words().take(LONGEST_TEXT_WORDS + 1).map(plain).collect();
        if words.is_empty() || words.len() > LONGEST_TEXT_WORDS {
            return false;
        }
        let mut at = 0;
        while at < words.len() {
            let longest = (words.len() - at).min(LONGEST_FORMULA_WORDS);
            let found = (1..=longest)
                .rev()
                .find(|&count| listed(&words[at..at + count].join(self.joint())));
            let Some(count) = found else { return false };
            at += count;
        }
        true
    }
}

impl std::fmt::Debug for Lexicon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lexicon").field("language", &self.language).finish_non_exhaustive()
    }
}

/// Counts words as [`Lexicon::word_count`] does.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WordCount {
    /// The words so far.
    pub(crate) words: u32,
    /// Where the last word ended, if it was a single character.
    character_end: Option<u32>,
}

impl WordCount {
    /// Counts one more word.
    pub(crate) fn add(&mut self, word: &Word<'_>) {
        let mut letters = word.lemma.chars();
        let single = letters.next().is_some_and(is_han) && letters.next().is_none();
        let continues = single && self.character_end == Some(word.span.start);
        self.words += u32::from(!continues);
        self.character_end = single.then_some(word.span.end);
    }
}

/// Lower case with straight apostrophes. Borrows a word that already has both.
fn lower(word: &str) -> Cow<'_, str> {
    if word.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return Cow::Borrowed(word);
    }
    let lower = word.to_lowercase();
    Cow::Owned(if lower.contains('\u{2019}') { lower.replace('\u{2019}', "'") } else { lower })
}

#[cfg(test)]
pub(crate) mod tests;
