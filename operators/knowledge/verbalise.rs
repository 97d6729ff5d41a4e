//! Words a fact, for ranking, for prompts and for the realiser.

use super::chinese::chinese_clause;
use super::relation::Form;
use super::{Fact, View};
use crate::language::Lexicon;

/// Words a fact as a plain English clause: "coffee is used for waking up". A negated fact contains
/// the negation: "person does not want to pay". The graph's texts are lemmas, so there are no
/// articles. A verb at the beginning of an end of the fact is inflected as the relation requires.
/// Chinese facts are worded in Chinese ([`chinese_clause`]).
pub fn verbalise(graph: View<'_>, fact: &Fact) -> String {
    let relation = graph.relation(fact.relation);
    let link = if fact.negated { relation.denies } else { relation.affirms };
    let (head, tail) = (graph.concept(fact.head), graph.concept(fact.tail));
    if let Some(clause) = chinese_clause(head, relation.name, tail, fact.negated) {
        return clause;
    }
    let mut text = String::with_capacity(head.len() + link.len() + tail.len() + 8);
    inflect(head, relation.head, &mut text);
    text.push(' ');
    text.push_str(link);
    text.push(' ');
    inflect(tail, relation.tail, &mut text);
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
