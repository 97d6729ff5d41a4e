//! Facts that can be said: in words that the realiser makes, or by a sentence that their source
//! brings.

use turnstream_knowledge::language::has_han;
use turnstream_schemas::{Evidence, FactStatement};

/// How facts are said in a language.
pub(super) struct Saying<'s> {
    /// Whether a fact answers the question.
    pub(super) answers: &'s dyn Fn(&FactStatement) -> bool,
    /// A fact as a clause, where it can be said well.
    pub(super) clause: &'s dyn Fn(&FactStatement) -> Option<String>,
    /// Whether a fact that answers may be said again.
    pub(super) repeats_answers: bool,
}

/// A fact that can be said, as a clause, or by its own sentence.
pub(super) struct Sayable<'a> {
    pub(super) evidence: &'a Evidence,
    pub(super) fact: &'a FactStatement,
    pub(super) clause: String,
    /// Whether the clause is the fact's own sentence.
    pub(super) is_own: bool,
}

impl Sayable<'_> {
    /// Returns the fact's own sentence after a greeting, if it has one: as it is, with `stop` at
    /// its end if it has no end.
    pub(super) fn own_sentence(&self, greeting: &str, stop: char) -> Option<String> {
        self.is_own.then(|| format!("{greeting}{}", ended(&self.clause, stop)))
    }

    /// Whether the words of the fact contain a concept.
    pub(super) fn mentions(&self, concept: &str) -> bool {
        self.clause.to_lowercase().contains(concept)
    }
}

/// Takes `most` facts: the first, then those of other relations where there are any, since two sentences
/// of one form sound like a list.
pub(super) fn varied(sayable: Vec<Sayable<'_>>, most: usize) -> Vec<Sayable<'_>> {
    let (mut said, mut alike) = (Vec::<Sayable<'_>>::new(), Vec::new());
    for fact in sayable {
        if said.iter().any(|other| other.fact.relation == fact.fact.relation) {
            alike.push(fact);
        } else {
            said.push(fact);
        }
    }
    said.extend(alike);
    said.truncate(most);
    said
}

/// Returns the own sentence of a fact, if it is in the language of the turn.
pub(super) fn own_sentence(fact: &FactStatement, is_chinese: bool) -> Option<&str> {
    fact.sentence.as_deref().filter(|sentence| has_han(sentence) == is_chinese)
}

/// Returns a sentence with `stop` at its end, unless it has an end.
fn ended(sentence: &str, stop: char) -> String {
    let words = sentence.trim_end_matches(['"', '\'', '”', '’', '」', '』', ')', '）']);
    let is_ended = words.ends_with(['.', '!', '?', '…', '。', '！', '？']);
    if is_ended { sentence.to_owned() } else { format!("{sentence}{stop}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_own_sentence_is_ended_once_and_said_in_its_language() {
        for (sentence, said) in [
            ("The Bergen costs €300", "The Bergen costs €300."),
            ("The Bergen costs €300.", "The Bergen costs €300."),
            ("Who made it? (“We did!”)", "Who made it? (“We did!”)"),
        ] {
            assert_eq!(ended(sentence, '.'), said);
        }
        assert_eq!(ended("卑尔根沙发三百欧元", '。'), "卑尔根沙发三百欧元。");
        let of = |sentence: Option<&str>| FactStatement {
            sentence: sentence.map(str::to_owned),
            ..FactStatement::default()
        };
        let english = of(Some("It is soft."));
        assert_eq!(own_sentence(&english, false), Some("It is soft."));
        assert_eq!(own_sentence(&english, true), None);
        assert_eq!(own_sentence(&of(Some("它很软")), true), Some("它很软"));
        assert_eq!(own_sentence(&of(None), false), None);
    }
}
