//! Inflection: the forms of words in spoken facts.

use super::Lexicon;
use super::lemma::is_vowel;

impl Lexicon {
    /// The gerund of a verb's base form: "make" → "making".
    pub fn gerund(&self, verb: &str) -> String {
        match verb {
            "be" | "see" | "free" | "flee" | "agree" | "canoe" | "ski" => {
                return format!("{verb}ing");
            }
            _ => {}
        }
        if let Some(stem) = verb.strip_suffix("ie") {
            return format!("{stem}ying");
        }
        if let Some(stem) = verb.strip_suffix('e').filter(|stem| !stem.ends_with(['e', 'o', 'y'])) {
            return format!("{stem}ing");
        }
        format!("{}ing", self.doubled(verb))
    }

    /// The past participle of a verb's base form: "write" → "written", "bake" → "baked".
    pub fn participle(&self, verb: &str) -> String {
        if let Some(participle) = self.participles.get(verb) {
            return (*participle).to_owned();
        }
        match verb {
            "be" => return "been".to_owned(),
            "have" => return "had".to_owned(),
            "do" => return "done".to_owned(),
            _ => {}
        }
        let vowel_y = ["ay", "ey", "oy", "uy"].iter().any(|ending| verb.ends_with(ending));
        if let Some(stem) = verb.strip_suffix('y').filter(|_| !vowel_y) {
            return format!("{stem}ied");
        }
        if verb.ends_with('e') {
            return format!("{verb}d");
        }
        format!("{}ed", self.doubled(verb))
    }

    /// "run" → "runn", if the ending doubles the consonant.
    fn doubled(&self, verb: &str) -> String {
        let mut doubled = verb.to_owned();
        if verb.ends_with("ic") {
            doubled.push('k');
        } else if let [first @ .., middle, last] = verb.as_bytes()
            && is_vowel(*middle)
            && !is_vowel(*last)
            && !matches!(last, b'w' | b'x' | b'y')
            // The u of "quit" belongs to its consonant. Longer verbs double if the last syllable is
            // stressed.
            && (!first.iter().copied().any(is_vowel) || first == b"qu" || stressed_last(verb))
            && !first.is_empty()
        {
            doubled.push(char::from(*last));
        }
        doubled
    }
}

/// Common verbs of two syllables with the stress on the second.
fn stressed_last(verb: &str) -> bool {
    const VERBS: [&str; 19] = [
        "admit", "begin", "commit", "compel", "control", "equip", "expel", "forbid", "forget",
        "occur", "omit", "permit", "prefer", "refer", "regret", "submit", "transfer", "transmit",
        "upset",
    ];
    VERBS.contains(&verb)
}
