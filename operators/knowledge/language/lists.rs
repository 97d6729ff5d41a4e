//! The word lists of `en/` and `zh/`, and their parser.

use rustc_hash::{FxHashMap, FxHashSet};

/// A set of words or phrases.
pub(super) type WordSet = FxHashSet<&'static str>;

/// Version of the rules in `lemma.rs`. Raise it when they change, so that lemma indexes built with
/// the old rules are refused.
const RULES_VERSION: u32 = 2;

macro_rules! lists {
    ($($name:ident $file:literal;)*) => {
        $(pub(super) const $name: &str = include_str!(concat!("en/", $file));)*
        const ALL: &[&str] = &[$($name),*];
    };
}

lists! {
    BASE_FORMS "base_forms.txt";
    IRREGULAR_VERBS "irregular_verbs.txt";
    IRREGULAR_NOUNS "irregular_nouns.txt";
    IRREGULAR_FORMS "irregular_forms.txt";
    INVARIANT "invariant.txt";
    GRADABLE_ADJECTIVES "gradable_adjectives.txt";
    FUNCTION_WORDS "function_words.txt";
    STOP_WORDS "stop_words.txt";
    PARTICLES "particles.txt";
    GREETINGS "greetings.txt";
    ACKNOWLEDGEMENTS "acknowledgements.txt";
    VERBS "verbs.txt";
}

/// Set phrases. The lemma index does not depend on them.
pub(super) const FORMULAS: &str = include_str!("en/formulas.txt");

/// Words that alone seldom mean their concept. The lemma index does not depend on them.
pub(super) const SELDOM_MEANT: &str = include_str!("en/seldom_meant.txt");

/// Words that refer to what was said before. The lemma index does not depend on them.
pub(super) const REFERENCES: &str = include_str!("en/references.txt");

/// Words that say when, or how many. The lemma index does not depend on them.
pub(super) const SPECIFICS: &str = include_str!("en/specifics.txt");

/// The Chinese lists. The lemma index does not depend on them.
pub(super) mod zh {
    pub(in super::super) const FUNCTION_WORDS: &str = include_str!("zh/function_words.txt");
    pub(in super::super) const STOP_WORDS: &str = include_str!("zh/stop_words.txt");
    pub(in super::super) const PARTICLES: &str = include_str!("zh/particles.txt");
    pub(in super::super) const NAME_CHARACTERS: &str = include_str!("zh/name_characters.txt");
    pub(in super::super) const GREETINGS: &str = include_str!("zh/greetings.txt");
    pub(in super::super) const REFERENCES: &str = include_str!("zh/references.txt");
    pub(in super::super) const SPECIFICS: &str = include_str!("zh/specifics.txt");
    pub(in super::super) const ACKNOWLEDGEMENTS: &str = include_str!("zh/acknowledgements.txt");
}

/// Checksum of the English lists and the version of the rules.
pub(super) fn fingerprint() -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&RULES_VERSION.to_le_bytes());
    for list in ALL {
        hasher.update(list.as_bytes());
        hasher.update(&[0]);
    }
    hasher.finalize()
}

fn content(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The words of a list, several to a line.
pub(super) fn words(list: &'static str) -> WordSet {
    content(list).flat_map(str::split_whitespace).collect()
}

/// The lines of a list.
pub(super) fn lines(list: &'static str) -> WordSet {
    content(list).collect()
}

/// The lines of a list as phrases, by their first word, the longest first.
pub(super) fn phrases(list: &'static str) -> FxHashMap<&'static str, Vec<Vec<&'static str>>> {
    let mut phrases = FxHashMap::<_, Vec<Vec<_>>>::default();
    for line in content(list) {
        let words: Vec<&str> = line.split_whitespace().collect();
        phrases.entry(words[0]).or_default().push(words);
    }
    phrases.values_mut().for_each(|of| of.sort_by_key(|words| std::cmp::Reverse(words.len())));
    phrases
}

/// A list with columns.
pub(super) struct Table(Vec<Vec<&'static str>>);

impl Table {
    pub(super) fn parse(list: &'static str) -> Self {
        Self(content(list).map(|line| line.split_whitespace().collect()).collect())
    }

    pub(super) fn rows(&self) -> &[Vec<&'static str>] {
        &self.0
    }
}
