//! The evidence of the sources: facts of the graph, sentences of personas, passages of documents
//! and rows of tables, selected or not.

use std::collections::BTreeMap;

use turnstream_schemas::{Evidence, EvidenceSet, ModelUsed, Score, Speaker, Stage};

use super::super::page::{Ink, Text};
use super::super::tree::Tree;
use super::decided;

/// Makes the tree of the evidence; `None` if there is none.
pub(super) fn tree(
    evidence: &[Evidence],
    not_selected: Option<usize>,
    models: &BTreeMap<Stage, ModelUsed>,
) -> Option<Tree> {
    if evidence.is_empty() {
        return None;
    }
    let (selected, passed): (Vec<&Evidence>, Vec<&Evidence>) =
        evidence.iter().partition(|evidence| evidence.selected);
    let of = |set| evidence.iter().filter(|evidence| evidence.set == Some(set)).count();
    let persona = evidence.iter().filter(|evidence| evidence.persona.is_some()).count();
    let rows = evidence.iter().filter(|evidence| evidence.row.is_some()).count();
    let documents = evidence.iter().filter(|evidence| evidence.document.is_some()).count();
    let counts = format!(
        "{} of {} selected{}",
        selected.len(),
        evidence.len(),
        decided(models, Stage::FactSelection)
    );
    let sets = [
        (of(EvidenceSet::Foreseen), "foreseen"),
        (of(EvidenceSet::Unforeseen), "unforeseen"),
        (persona, "of the persona"),
        (documents, "of documents"),
        (rows, "of tables"),
    ];
    let sets: Vec<String> = sets
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let head = Text::new(Ink::Label, "evidence ").and(Ink::Plain, counts).and(
        Ink::Quiet,
        if sets.is_empty() { String::new() } else { format!("; {}", sets.join(", ")) },
    );
    let shown = not_selected.unwrap_or(usize::MAX);
    let more = passed.len().saturating_sub(shown);
    let more = (more > 0).then(|| {
        Tree::leaf(Text::new(Ink::Quiet, format!("and {more} more that were not selected")))
    });
    let below = selected.into_iter().chain(passed.into_iter().take(shown)).map(piece);
    Some(Tree::leaf(head).with(below).with(more))
}

fn piece(evidence: &Evidence) -> Tree {
    let (ink, mark) = match evidence.selected {
        true => (Ink::Good, "selected"),
        false => (Ink::Quiet, "passed over"),
    };
    let set = match evidence.set {
        Some(EvidenceSet::Foreseen) => ", foreseen",
        Some(EvidenceSet::Unforeseen) => ", unforeseen",
        None => "",
    };
    let consistency = evidence.consistency;
    let consistency = consistency.map(|it| format!(", consistency {:.2}", it.get()));
    let scores = format!(
        "{set}, relevance {:.2}{} ",
        evidence.relevance.get(),
        consistency.unwrap_or_default()
    );
    let text = Text::new(ink, mark)
        .and(Ink::Quiet, scores)
        .and(Ink::Plain, &*evidence.text)
        .and(Ink::Quiet, format!(" {}{}", evidence.source, of_source(evidence)));
    Tree::leaf(text)
}

/// Where the evidence is in its source, and what found it.
fn of_source(evidence: &Evidence) -> String {
    if let Some(passage) = &evidence.document {
        let title = if passage.title.is_empty() { &passage.document } else { &passage.title };
        let by = found_by(passage.by_words, passage.by_meaning);
        return format!(", \"{title}\", passage {}{by}", passage.chunk);
    }
    if let Some(row) = &evidence.row {
        return format!(", row {}{}", row.place, found_by(Some(row.by_words), None));
    }
    let Some(sentence) = &evidence.persona else { return String::new() };
    let who = match sentence.describes {
        Speaker::User => "the user",
        Speaker::System => "who answers",
    };
    let by = found_by(sentence.by_words, sentence.by_meaning);
    let given = sentence.given.as_ref().map(|knowledge| format!(", given {}", knowledge.0));
    format!(", sentence {} about {who}{by}{}", sentence.place, given.unwrap_or_default())
}

fn found_by(words: Option<Score>, meaning: Option<Score>) -> String {
    let by = |name, score: Option<Score>| {
        score.map(|score| format!(", by {name} {:.2}", score.get())).unwrap_or_default()
    };
    format!("{}{}", by("words", words), by("meaning", meaning))
}
