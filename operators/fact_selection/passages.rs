//! Selects passages of documents and rows of tables, and gives them their place in the evidence.

use std::collections::BTreeSet;

use turnstream_knowledge::terms::terms;
use turnstream_schemas::Evidence;

use super::FactSelectionConfig;

/// Merges rows and passages by falling relevance. Each kind keeps its own order; of equals a row comes
/// first.
pub(super) fn merged(rows: &[Evidence], passages: &[Evidence]) -> Vec<Evidence> {
    let (mut rows, mut passages) = (rows.iter().peekable(), passages.iter().peekable());
    std::iter::from_fn(|| match (rows.peek(), passages.peek()) {
        (Some(row), Some(passage)) if passage.relevance.get() > row.relevance.get() => {
            passages.next()
        }
        (Some(_), _) => rows.next(),
        (None, _) => passages.next(),
    })
    .cloned()
    .collect()
}

/// Joins the facts of a turn (selected ones first) and its passages (by falling relevance). Selected
/// evidence comes first; within it, passages come before facts where the best passage is relevant enough
/// to lead.
pub(super) fn join(
    facts: Vec<Evidence>,
    passages: &[Evidence],
    config: &FactSelectionConfig,
) -> Vec<Evidence> {
    if passages.is_empty() {
        return facts;
    }
    let (chosen, rest) = choose(passages, config);
    let selected_facts = facts.iter().take_while(|fact| fact.selected).count();
    let (selected, unselected) = facts.split_at(selected_facts);
    let least = config.min_leading_passage_relevance;
    let passages_lead = chosen.iter().any(|passage| passage.relevance.get() >= least);
    let (first, second) = if passages_lead { (&*chosen, selected) } else { (selected, &*chosen) };
    [first, second, unselected, &rest].concat()
}

/// Returns the selected passages, and the best of the others.
fn choose(passages: &[Evidence], config: &FactSelectionConfig) -> (Vec<Evidence>, Vec<Evidence>) {
    let (mut chosen, mut rest) = (Vec::new(), Vec::new());
    let mut said: Vec<BTreeSet<String>> = Vec::new();
    for passage in passages {
        let words: BTreeSet<String> = terms(&passage.text).into_iter().collect();
        let wanted = chosen.len() < config.max_passages_selected as usize
            && passage.relevance.get() >= config.min_passage_relevance
            && !said.iter().any(|other| likeness(other, &words) >= config.repeat_likeness);
        if wanted {
            chosen.push(Evidence { selected: true, ..passage.clone() });
            said.push(words);
        } else if rest.len() < config.max_unselected_in_record as usize {
            rest.push(passage.clone());
        }
    }
    (chosen, rest)
}

/// Returns the likeness of two sets of terms (Jaccard), 0..=1; 1 where both are empty.
fn likeness(a: &BTreeSet<String>, b: &BTreeSet<String>) -> f64 {
    let both = a.intersection(b).count();
    let either = a.len() + b.len() - both;
    if either == 0 { 1.0 } else { both as f64 / either as f64 }
}

#[cfg(test)]
mod tests {
    use turnstream_schemas::{DocumentPassage, EvidenceId, Score};

    use super::*;

    fn evidence(id: &str, text: &str, relevance: f64, selected: bool) -> Evidence {
        Evidence {
            id: EvidenceId(id.to_owned()),
            source: "documents".into(),
            text: text.to_owned(),
            set: None,
            fact: None,
            document: Some(DocumentPassage {
                document: id.to_owned(),
                title: String::new(),
                chunk: 0,
                by_words: None,
                by_meaning: None,
            }),
            persona: None,
            row: None,
            relevance: Score::new(relevance),
            consistency: None,
            attention: None,
            selected,
        }
    }

    fn ids(evidence: &[Evidence]) -> Vec<(&str, bool)> {
        evidence.iter().map(|one| (one.id.0.as_str(), one.selected)).collect()
    }

    #[test]
    fn a_passage_that_is_relevant_enough_leads() {
        let config =
            FactSelectionConfig { min_leading_passage_relevance: 0.4, ..Default::default() };
        let facts = [evidence("f", "coffee wakes", 0.5, true), evidence("g", "tea", 0.4, false)];
        for (relevance, first) in [(0.4, "p"), (0.39, "f")] {
            let passages = [evidence("p", "free wifi", relevance, false)];
            let joined = join(facts.to_vec(), &passages, &config);
            assert_eq!(joined[0].id.0, first, "at {relevance}");
            assert_eq!(joined.len(), 3);
            assert_eq!(ids(&joined)[2], ("g", false));
        }
    }

    #[test]
    fn repeated_weak_and_surplus_passages_are_not_selected() {
        let config = FactSelectionConfig { max_passages_selected: 2, ..Default::default() };
        let passages = [
            evidence("a", "The wifi is free.", 0.9, false),
            evidence("b", "Free is the wifi!", 0.8, false),
            evidence("c", "Parking costs ten pounds.", 0.7, false),
            evidence("d", "Breakfast is served.", 0.6, false),
            evidence("e", "Dogs may stay.", 0.1, false),
        ];
        let joined = join(Vec::new(), &passages, &config);
        let expected = [("a", true), ("c", true), ("b", false), ("d", false), ("e", false)];
        assert_eq!(ids(&joined), expected);
        let strict = FactSelectionConfig { min_passage_relevance: 0.95, ..config };
        assert!(join(Vec::new(), &passages, &strict).iter().all(|passage| !passage.selected));
    }
}
