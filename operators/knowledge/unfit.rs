//! Recognises unfit facts: crowd-sourced ones about sex, drugs and violence, slurs, and judgements
//! of whole peoples and faiths. Such facts must not reach users.
//!
//! An import leaves them out, and the pack was built without them, so neither ranking nor a prompt
//! ever has one. The realiser refuses their words again, because a live change may add one.
//! Reviewed lists (`unfit.txt`) define them, word by word in every form that the lexicon knows. The
//! turns of people, and the documents and tables of a company, are not checked.

use std::sync::LazyLock;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::language::Lexicon;

/// The lists. The head of the file describes its classes.
const LISTS: &str = include_str!("unfit.txt");

/// Heads of phrases that name people: "jewish person" names the same group as "jewish".
const PEOPLE: [&str; 6] = ["person", "people", "man", "woman", "guy", "folk"];

static ENGLISH: LazyLock<Unfit> = LazyLock::new(|| Unfit::parse(LISTS));

/// The lists of one language.
#[derive(Debug, Default)]
pub struct Unfit {
    words: FxHashSet<&'static str>,
    phrases: Phrases,
    /// Phrases that are fit, although one of their words is not.
    fine: Phrases,
    /// Whole concepts that name a group of people.
    groups: FxHashSet<String>,
    /// Relations that judge a group of people.
    judging: FxHashSet<&'static str>,
    /// Pairs of concepts that are unfit together.
    pairs: FxHashSet<(String, String)>,
}

/// Phrases of lemmas, by their first lemma.
#[derive(Debug, Default)]
struct Phrases(FxHashMap<&'static str, Vec<Vec<&'static str>>>);

impl Phrases {
    fn add(&mut self, phrase: Vec<&'static str>) {
        self.0.entry(phrase[0]).or_default().push(phrase);
    }

    /// The number of words of the phrase at the beginning of `words`.
    fn length_at(&self, words: &[LemmatisedWord<'_>]) -> Option<usize> {
        let begins = |phrase: &&Vec<&str>| {
            phrase.len() <= words.len() && phrase.iter().zip(words).all(|(one, word)| word.is(one))
        };
        let of_first = |first: &str| self.0.get(first)?.iter().find(begins).map(Vec::len);
        let first = words.first()?;
        of_first(&first.lemma).or_else(|| of_first(first.form))
    }
}

/// A word in lower case, and its lemma.
struct LemmatisedWord<'a> {
    form: &'a str,
    lemma: std::borrow::Cow<'a, str>,
}

impl LemmatisedWord<'_> {
    fn is(&self, listed: &str) -> bool {
        self.lemma == listed || self.form == listed
    }
}

impl Unfit {
    /// The English lists.
    pub fn english() -> &'static Self {
        &ENGLISH
    }

    fn parse(lists: &'static str) -> Self {
        let mut unfit = Self::default();
        for line in lists.lines().filter(|line| !line.starts_with('#')) {
            let Some((class, entries)) = line.split_once(':') else { continue };
            for entry in entries.split_whitespace() {
                let phrase: Vec<&str> = entry.split('_').collect();
                match class {
                    "fine" => unfit.fine.add(phrase),
                    "group" => drop(unfit.groups.insert(key(entry))),
                    "judging" => drop(unfit.judging.insert(entry)),
                    "pair" => {
                        let (head, tail) = entry.split_once('=').unwrap_or((entry, ""));
                        unfit.pairs.insert((key(head), key(tail)));
                    }
                    _ if phrase.len() == 1 => drop(unfit.words.insert(entry)),
                    _ => unfit.phrases.add(phrase),
                }
            }
        }
        unfit
    }

    /// Whether a concept, in lower case, contains an unfit word or phrase.
    pub fn is_in(&self, concept: &str) -> bool {
        self.is_in_words(&words(concept))
    }

    fn is_in_words(&self, words: &[LemmatisedWord<'_>]) -> bool {
        let mut at = 0;
        while let Some(word) = words.get(at) {
            let rest = &words[at..];
            if let Some(length) = self.fine.length_at(rest) {
                at += length;
                continue;
            }
            let listed = self.words.contains(&*word.lemma) || self.words.contains(word.form);
            if listed || self.phrases.length_at(rest).is_some() {
                return true;
            }
            at += 1;
        }
        false
    }

    /// Whether a fact is unfit, given its concepts in lower case: by one of their words, by its
    /// judgement of a group of people, or by both its ends together.
    pub fn is_fact(&self, head: &str, relation: &str, tail: &str) -> bool {
        let (head, tail) = (words(head), words(tail));
        if self.is_in_words(&head) || self.is_in_words(&tail) {
            return true;
        }
        let judges = self.judging.contains(relation);
        let (head, tail) = (joined(&head), joined(&tail));
        judges && (self.is_group(&head) || self.is_group(&tail))
            || self.pairs.contains(&(head, tail))
    }

    /// Whether a concept, given as lemmas, names a group of people.
    fn is_group(&self, concept: &str) -> bool {
        let bare = concept.rsplit_once(' ').filter(|(_, head)| PEOPLE.contains(head));
        let bare = bare.map_or(concept, |(bare, _)| bare);
        self.groups.contains(bare) || self.groups.contains(concept)
    }
}

/// The words of a concept, without a leading article.
fn words(concept: &str) -> Vec<LemmatisedWord<'_>> {
    let lexicon = Lexicon::english();
    let forms = concept.split(|letter: char| !letter.is_alphanumeric() && letter != '\'');
    let words = forms.filter(|form| !form.is_empty()).enumerate();
    words
        .filter(|(nth, form)| *nth > 0 || !matches!(*form, "a" | "an" | "the"))
        .map(|(_, form)| LemmatisedWord { form, lemma: lexicon.lemma(form) })
        .collect()
}

/// A concept of the lists, in the form of [`joined`].
fn key(listed: &str) -> String {
    joined(&words(&listed.replace('_', " ")))
}

fn joined(words: &[LemmatisedWord<'_>]) -> String {
    let lemmas: Vec<&str> = words.iter().map(|word| &*word.lemma).collect();
    lemmas.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_unfit_in_every_form_and_in_any_place() {
        let unfit = Unfit::english();
        for concept in
            ["pornstars", "find a pornstar", "murdering", "he was murdered", "gun-kill person"]
        {
            assert!(unfit.is_in(concept), "{concept}");
        }
        for concept in ["punch someone", "punched someone hard", "smoking pot", "hot babes"] {
            assert!(unfit.is_in(concept), "{concept}: a phrase");
        }
        for concept in [
            "",
            "dog",
            "punch",
            "someone",
            "drug store",
            "killing time",
            "chicken breast",
            "sperm whale",
        ] {
            assert!(!unfit.is_in(concept), "{concept}");
        }
        assert!(unfit.is_in("drug store robbed by murderers"), "what is fit excuses itself alone");
    }

    #[test]
    fn what_is_said_of_people_as_such_is_unfit_and_what_is_theirs_is_not() {
        let unfit = Unfit::english();
        for (head, relation, tail) in [
            ("american", "HasProperty", "loud"),
            ("an american person", "CapableOf", "overeat"),
            ("greedy", "SymbolOf", "mexicans"),
            ("iron", "UsedFor", "woman"),
        ] {
            assert!(unfit.is_fact(head, relation, tail), "{head} {relation} {tail}");
        }
        for (head, relation, tail) in [
            ("american flag", "HasProperty", "red"),
            ("french fries", "AtLocation", "french restaurant"),
            ("french", "RelatedTo", "language"),
            ("iron", "UsedFor", "shirt"),
        ] {
            assert!(!unfit.is_fact(head, relation, tail), "{head} {relation} {tail}");
        }
    }
}
