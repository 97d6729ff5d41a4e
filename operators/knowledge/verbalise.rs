//! Words a fact, for ranking, for prompts and for the realiser.

use super::chinese::chinese_clause;
use super::relation::Form;
use super::{Fact, View, Wording};
use crate::language::Lexicon;

/// Words a fact as a plain English clause: "coffee is used for waking up". A negated fact contains
/// the negation: "person does not want to pay". The graph's texts are lemmas, so there are no
/// articles. A verb at the beginning of an end of the fact is inflected as the relation requires.
/// Chinese facts are worded in Chinese ([`chinese_clause`]).
pub fn verbalise(graph: View<'_>, fact: &Fact) -> String {
    clause(graph, fact, &Wording::default())
}

/// Words a fact as it is said: by its own sentence, if it has one, or else as [`verbalise`] does,
/// with the names of its ends.
pub fn worded(graph: View<'_>, fact: &Fact, wording: &Wording) -> String {
    wording.sentence.clone().unwrap_or_else(|| clause(graph, fact, wording))
}

fn clause(graph: View<'_>, fact: &Fact, names: &Wording) -> String {
    let relation = graph.relation(fact.relation);
    let link = if fact.negated { relation.denies } else { relation.affirms };
    // Names are not inflected.
    let (head, head_form) = match &names.head {
        Some(name) => (name.as_str(), Form::Plain),
        None => (graph.concept(fact.head), relation.head),
    };
    let (tail, tail_form) = match &names.tail {
        Some(name) => (name.as_str(), Form::Plain),
        None => (graph.concept(fact.tail), relation.tail),
    };
    if let Some(clause) = chinese_clause(head, relation.name, tail, fact.negated) {
        return clause;
    }
    let mut text = String::with_capacity(head.len() + link.len() + tail.len() + 8);
    inflect(head, head_form, &mut text);
    text.push(' ');
    text.push_str(link);
    text.push(' ');
    inflect(tail, tail_form, &mut text);
    text
}

/// Appends a concept in the given form.
fn inflect(concept: &str, form: Form, text: &mut String) {
    let lexicon = Lexicon::english();
    let first = concept.split(' ').next().unwrap_or_default();
    let rest = &concept[first.len()..];
    let verb = matches!(first, "be" | "have" | "do") || lexicon.is_verb(first);
    let second = rest.split(' ').nth(1);
    match form {
        Form::Participle => text.push_str(&lexicon.participle(first)),
        Form::ParticiplePhrase
            if verb && second.is_some_and(|word| lexicon.is_function_word(word)) =>
        {
            text.push_str(&lexicon.participle(first));
        }
        Form::Gerund if verb => text.push_str(&lexicon.gerund(first)),
        Form::GerundPhrase if verb && second.is_some() => text.push_str(&lexicon.gerund(first)),
        Form::Infinitive if verb => {
            text.push_str("to ");
            text.push_str(first);
        }
        _ => text.push_str(first),
    }
    text.push_str(rest);
}
