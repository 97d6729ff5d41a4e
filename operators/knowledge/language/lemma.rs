//! Detaches endings: one step from a word towards its lemma.

use super::Lexicon;

/// The result of a step.
pub(super) enum Step {
    /// A word of the lists.
    Known(&'static str),
    /// The first bytes of the word.
    Prefix(usize),
    /// The beginning of the word with another ending.
    Made(String),
}

/// Endings of contractions and possessives.
const CLITICS: [&str; 7] = ["'s", "n't", "'ll", "'ve", "'re", "'d", "'m"];

impl Lexicon {
    /// One step towards the lemma of a lower-case word; `None` if it is a lemma.
    pub(super) fn detach(&self, word: &str) -> Option<Step> {
        if let Some(lemma) = self.irregular.get(word) {
            return Some(Step::Known(lemma));
        }
        for clitic in CLITICS {
            // A word does not end with an apostrophe: the rest of "a'n't" is "a".
            if let Some(stem) = word.strip_suffix(clitic).map(|stem| stem.trim_end_matches('\''))
                && !stem.is_empty()
            {
                return Some(Step::Prefix(stem.len()));
            }
        }
        let plain = word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_lowercase());
        if !plain || self.invariant.contains(word) || self.is_function_word(word) {
            return None;
        }
        self.verb_ending(word, "ing")
            .or_else(|| self.past(word))
            .or_else(|| self.plural(word))
            .or_else(|| self.comparison(word, "er"))
            .or_else(|| self.comparison(word, "est"))
    }

    fn known(&self, word: &str) -> Option<Step> {
        self.base_forms.get(word).map(|known| Step::Known(known))
    }

    /// The base form before an ending of a verb: "mak" is make, "runn" is run.
    fn verb_ending(&self, word: &str, ending: &str) -> Option<Step> {
        let stem = word.strip_suffix(ending).filter(|stem| stem.len() >= 2)?;
        // "thing" is neither "th" nor "the": the rest must be a content word.
        let content = |word: &str| self.known(word).filter(|_| !self.is_function_word(word));
        let silent_e = || content(&format!("{stem}e"));
        let whole = || content(stem).filter(|_| stem.bytes().any(is_vowel));
        let single = || {
            let bytes = stem.as_bytes();
            let doubled = bytes.len() > 3 && bytes[bytes.len() - 1] == bytes[bytes.len() - 2];
            if doubled { content(&stem[..stem.len() - 1]) } else { None }
        };
        if is_short(stem) {
            // English doubles the consonant if the verb has no e: "hoping" is hope.
            silent_e().or_else(whole)
        } else {
            whole().or_else(silent_e).or_else(single)
        }
    }

    fn past(&self, word: &str) -> Option<Step> {
        if let Some(stem) = word.strip_suffix("ied") {
            return self.known(&format!("{stem}y")).or_else(|| self.known(&word[..word.len() - 1]));
        }
        if word.ends_with("eed") { None } else { self.verb_ending(word, "ed") }
    }

    fn plural(&self, word: &str) -> Option<Step> {
        let stem = word.strip_suffix('s').filter(|stem| !stem.ends_with('s'))?;
        if let Some(root) = stem.strip_suffix("ie").filter(|root| root.len() > 1) {
            let known = self.known(&format!("{root}y")).or_else(|| self.known(stem));
            return known.or_else(|| self.unknown(word, Step::Made(format!("{root}y"))));
        }
        if let Some(root) = stem.strip_suffix('e')
            && root.ends_with(['s', 'x', 'z', 'h', 'o'])
        {
            let known =
                self.known(stem).filter(|_| root.ends_with("s")).or_else(|| self.known(root));
            let known = known.or_else(|| self.known(stem));
            let hisses = root.ends_with("ss")
                || root.ends_with('x')
                || root.ends_with("sh")
                || root.ends_with("ch");
            return known.or_else(|| {
                self.unknown(word, Step::Prefix(if hisses { root } else { stem }.len()))
            });
        }
        let foreign = stem.ends_with(['u', 'i', 'a', 'o']);
        let unknown = || if foreign { None } else { self.unknown(word, Step::Prefix(stem.len())) };
        self.known(stem).or_else(unknown)
    }

    /// A step for words outside the base forms.
    fn unknown(&self, word: &str, step: Step) -> Option<Step> {
        (word.len() > 3 && !self.base_forms.contains(word)).then_some(step)
    }

    /// "older" is old, "happiest" is happy, "bigger" is big.
    fn comparison(&self, word: &str, ending: &str) -> Option<Step> {
        // A word that is itself in the graph is a noun: "lighter", "stranger".
        let compared = !self.base_forms.contains(word);
        let stem = word.strip_suffix(ending).filter(|stem| compared && stem.len() >= 2)?;
        let gradable = |word: &str| self.gradable.get(word).map(|known| Step::Known(known));
        gradable(stem)
            .or_else(|| gradable(&format!("{stem}e")))
            .or_else(|| gradable(&format!("{}y", stem.strip_suffix('i')?)))
            .or_else(|| gradable(&stem[..stem.len() - 1]).filter(|_| is_doubled(stem)))
    }
}

fn is_doubled(stem: &str) -> bool {
    matches!(stem.as_bytes(), [.., a, b] if a == b)
}

/// Whether a stem is consonants, one vowel, and one consonant other than w, x, y: "hop" is, "tast"
/// is not.
fn is_short(stem: &str) -> bool {
    let [first @ .., middle, last] = stem.as_bytes() else { return false };
    is_vowel(*middle)
        && !is_vowel(*last)
        && !matches!(last, b'w' | b'x' | b'y')
        && !first.iter().copied().any(is_vowel)
}

pub(super) fn is_vowel(letter: u8) -> bool {
    matches!(letter, b'a' | b'e' | b'i' | b'o' | b'u')
}
