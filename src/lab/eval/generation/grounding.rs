//! Measures whether the words of a response occur in its evidence or the history.
//!
//! Among the distinct content words of a response (lemmas without function words and stop words),
//! it computes the share that the selected evidence or the history contains. The figures are the
//! mean over the responses with content words, and the share of responses whose content words all
//! occur there. A word is not a claim: the measure detects words without an origin, but not false
//! statements made of known words.

use std::collections::HashSet;

use turnstream_knowledge::language::Lexicon;

use super::material::{Log, Place};

/// Returns the lemmas of a text's content words.
fn content(lexicon: &Lexicon, text: &str) -> HashSet<String> {
    let words = lexicon.word_iter(text).filter(|word| {
        !word.function_word
            && !lexicon.is_stop_word(&word.lemma)
            && word.lemma.chars().any(char::is_alphanumeric)
    });
    words.map(|word| word.lemma.into_owned()).collect()
}

/// Returns the lemmas of all words of a text.
fn lemmas(lexicon: &Lexicon, text: &str) -> HashSet<String> {
    lexicon.word_iter(text).map(|word| word.lemma.into_owned()).collect()
}

/// The words of each turn of a log.
pub struct Spoken {
    /// Lemmas by conversation and turn.
    turns: Vec<Vec<HashSet<String>>>,
}

/// The shares of a response's content words that are found, 0..=1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grounding {
    /// The share in the selected evidence.
    pub in_evidence: f64,
    /// The share in the selected evidence or the history; `None` without a history.
    pub in_either: Option<f64>,
}

impl Spoken {
    /// Reads every turn of a log.
    pub fn new(log: &Log) -> Self {
        let of_conversation = |said: &Vec<super::material::ConversationTurn>| {
            said.iter().map(|said| lemmas(said.lexicon, &said.text)).collect()
        };
        Self { turns: log.conversations().iter().map(of_conversation).collect() }
    }

    fn has(&self, place: Place, word: &str) -> bool {
        self.turns[place.conversation][..=place.turn].iter().any(|words| words.contains(word))
    }
}

/// Returns the grounding of a response; `None` without content words.
pub fn grounding(
    response: &str,
    evidence: &[String],
    history: Option<(&Spoken, Place)>,
) -> Option<Grounding> {
    let lexicon = Lexicon::of_text(response);
    let words = content(lexicon, response);
    let given: HashSet<String> =
        evidence.iter().flat_map(|text| lemmas(Lexicon::of_text(text), text)).collect();
    let share = |found: &dyn Fn(&String) -> bool| {
        words.iter().filter(|word| found(word)).count() as f64 / words.len() as f64
    };
    (!words.is_empty()).then(|| Grounding {
        in_evidence: share(&|word| given.contains(word)),
        in_either: history
            .map(|(spoken, place)| share(&|word| given.contains(word) || spoken.has(place, word))),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::log;
    use super::*;

    #[test]
    fn content_words_are_looked_for_in_evidence_and_history() {
        let log = log(&[("a", "user", "My dogs bark."), ("a", "user", "At umbrellas.")]);
        let spoken = Spoken::new(&log);
        let of = |text, turn, evidence: &[&str]| {
            let evidence: Vec<String> = evidence.iter().map(|text| (*text).to_owned()).collect();
            let place = Place { conversation: 0, turn };
            grounding(text, &evidence, Some((&spoken, place)))
        };
        let found =
            |in_evidence, in_either| Some(Grounding { in_evidence, in_either: Some(in_either) });
        // The content words are dog, bark, umbrella and hedgehog.
        let text = "A dog that barks at the umbrella of a hedgehog";
        assert_eq!(of(text, 0, &["an umbrella keeps rain off"]), found(0.25, 0.75));
        assert_eq!(of(text, 0, &[]), found(0.0, 0.5), "nobody said umbrella yet");
        assert_eq!(of(text, 1, &[]), found(0.0, 0.75));
        assert_eq!(of("Dogs, dogs, dogs!", 0, &[]), found(0.0, 1.0));
        assert_eq!(of("It is what it is.", 0, &[]), None);
        assert_eq!(of("", 0, &["dog"]), None);
        let alone = grounding("The dog.", &["a dog barks".to_owned()], None);
        assert_eq!(alone, Some(Grounding { in_evidence: 1.0, in_either: None }));
    }
}
