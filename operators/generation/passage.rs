//! The realiser's answers from documents and tables: the sentence of a passage that answers best, in the
//! document's own words, with the title as its source; or the columns of a row that the user asks for.

use std::collections::BTreeSet;

use turnstream_knowledge::language::has_han;
use turnstream_knowledge::terms::terms;
use turnstream_schemas::{Evidence, Speaker};
use unicode_segmentation::UnicodeSegmentation;

use super::realiser::Realised;
use super::row;
use crate::flow::TurnInFlight;

/// Quotes the first selected passage or row with something new, where a passage or row leads the selected
/// evidence; `None` where a fact leads, or no quotation fits in `most_bytes`.
pub(super) fn quote(turn: &TurnInFlight, most_bytes: u32) -> Option<Realised<'_>> {
    let selected: Vec<&Evidence> =
        turn.evidence.iter().take_while(|evidence| evidence.selected).collect();
    if selected.first().is_none_or(|first| first.document.is_none() && first.row.is_none()) {
        return None;
    }
    let asked: BTreeSet<String> = terms(turn.context.query()).into_iter().collect();
    let told: Vec<&str> = turn
        .context
        .dialogue
        .iter()
        .filter(|utterance| utterance.speaker == Speaker::System)
        .map(|utterance| &*utterance.text)
        .collect();
    selected.into_iter().find_map(|evidence| {
        if let Some(row) = &evidence.row {
            let text = row::said(row, &asked, turn.context.lexicon())
                .filter(|text| text.len() <= most_bytes as usize)?;
            return Some(Realised { text, evidence: vec![evidence] });
        }
        let passage = evidence.document.as_ref()?;
        let fits = |sentence: &&str| {
            sentence.len() <= most_bytes as usize
                && !told.iter().any(|told| told.contains(*sentence))
        };
        let sentence = best_sentence(&evidence.text, &asked, fits)?;
        let text = attributed(&passage.title, sentence, turn);
        Some(Realised { text, evidence: vec![evidence] })
    })
}

/// Returns the sentence that shares most terms with the question, the first of equals. If that is a
/// question itself, as in a list of questions and answers, returns the sentence after it.
fn best_sentence<'t>(
    text: &'t str,
    asked: &BTreeSet<String>,
    fits: impl Fn(&&str) -> bool,
) -> Option<&'t str> {
    let sentences: Vec<&str> =
        text.unicode_sentences().map(str::trim).filter(|sentence| !sentence.is_empty()).collect();
    let mut best: Option<(usize, &str)> = None;
    for (at, sentence) in sentences.iter().enumerate() {
        let said = if sentence.ends_with(['?', '？']) {
            let Some(answer) = sentences.get(at + 1) else { continue };
            answer
        } else {
            sentence
        };
        let found: BTreeSet<String> = terms(sentence).into_iter().collect();
        let shared = found.intersection(asked).count();
        if fits(said) && best.is_none_or(|(most, _)| shared > most) {
            best = Some((shared, said));
        }
    }
    best.map(|(_, sentence)| sentence)
}

/// Returns a quotation with its source, in the language of the turn.
fn attributed(title: &str, sentence: &str, turn: &TurnInFlight) -> String {
    let chinese = turn.context.lexicon().is_chinese();
    match (title.trim(), chinese || has_han(sentence)) {
        ("", true) => format!("我查到：{sentence}"),
        ("", false) => format!("I found this: {sentence}"),
        (title, true) => format!("《{title}》里说：{sentence}"),
        (title, false) => format!("From “{title}”: {sentence}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best<'t>(text: &'t str, asked: &str) -> Option<&'t str> {
        let asked = terms(asked).into_iter().collect();
        best_sentence(text, &asked, |sentence| sentence.len() <= 60)
    }

    #[test]
    fn the_sentence_that_answers_is_said() {
        let text = "We stayed two nights. The wifi was fast. Parking is free.";
        assert_eq!(best(text, "Is the wifi fast?"), Some("The wifi was fast."));
        assert_eq!(best(text, "Where can I park?"), Some("Parking is free."));
        assert_eq!(best(text, "Is there a pool?"), Some("We stayed two nights."));
        assert_eq!(best("天安门在市中心。门票是六十元。", "门票多少钱"), Some("门票是六十元。"));
    }

    #[test]
    fn a_question_is_answered_by_what_follows_it() {
        let faq = "Can I bring my dog? No, pets are not allowed.";
        assert_eq!(best(faq, "May I bring a dog?"), Some("No, pets are not allowed."));
        assert_eq!(best("Can I bring my dog?", "May I bring a dog?"), None);
    }

    #[test]
    fn what_is_too_long_is_not_said() {
        let long = format!("The wifi {} is fast.", "really ".repeat(20));
        assert_eq!(best(&long, "wifi"), None);
    }
}
