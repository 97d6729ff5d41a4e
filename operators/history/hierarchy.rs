//! Hierarchical matching: category → summary → entry → its best passage, by a beam per level (DH-RAG
//! eq 18–21 and Algorithm 1; the equations write argmax, the algorithm keeps sets).
//!
//! A category is matched by the sum of its entries. A group is matched by its summary: the entry
//! that is most like all the others, the sum of its entries, and what a language model wrote about them
//! where one is configured. Only the entries of the best groups are compared one by one.

use std::cmp::Reverse;

use turnstream_knowledge::language::Lexicon;
use turnstream_knowledge::terms::terms;
use turnstream_schemas::HistoryEntry;

use super::clusters::{Clusters, Group};
use super::likeness::{Signature, hash_of};
use super::similarity::Similarity;

/// How many concepts a summary names at most.
const CONCEPTS: usize = 5;

/// How many categories and groups the search descends into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beam {
    /// Categories that are descended into at most.
    pub categories: usize,
    /// Groups that are descended into at most, of all those categories.
    pub groups: usize,
}

/// Returns the entries of the groups that a query matches best, oldest first. `text_of` gives the
/// signature of an entry.
pub fn descend<'e>(
    clusters: &Clusters,
    query: &Signature,
    beam: Beam,
    text_of: impl Fn(i64) -> Option<&'e Signature>,
) -> Vec<i64> {
    let categories = clusters.categories().iter();
    let categories = categories.map(|(number, of)| (of.centroid().likeness(query), *number));
    let categories = best(categories.collect(), beam.categories);
    let groups = categories.iter().filter_map(|number| clusters.categories().get(number));
    let groups = groups.flat_map(|category| category.groups());
    let groups = groups.filter_map(|number| Some((number, clusters.group(number)?)));
    let matched = groups.map(|(number, group)| (match_summary(group, query, &text_of), number));
    let groups = best(matched.collect(), beam.groups);
    let groups = groups.iter().filter_map(|number| clusters.group(*number));
    let mut entries: Vec<i64> = groups.flat_map(Group::members).collect();
    entries.sort_unstable();
    entries
}

/// Returns the numbers with the highest likeness above 0; of equals the lower ones.
fn best(mut matched: Vec<(f64, u32)>, width: usize) -> Vec<u32> {
    matched.retain(|(likeness, _)| *likeness > 0.0);
    matched.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    matched.truncate(width);
    matched.into_iter().map(|(_, number)| number).collect()
}

/// Returns how alike a query and a group's summary are: the highest likeness to its central entry,
/// to the sum of its entries, or to what a language model wrote.
fn match_summary<'e>(
    group: &Group,
    query: &Signature,
    text_of: impl Fn(i64) -> Option<&'e Signature>,
) -> f64 {
    let central = central(group, &text_of).and_then(&text_of);
    let central = central.map_or(0.0, |text| text.likeness(query));
    central.max(group.centroid().likeness(query)).max(group.likeness_of_summary(query))
}

/// Returns the entry of a group that is most like all of them; of equals the oldest.
pub fn central<'e>(group: &Group, text_of: impl Fn(i64) -> Option<&'e Signature>) -> Option<i64> {
    let members = group.members().filter_map(|at| Some((at, text_of(at)?)));
    let likenesses = members.map(|(at, text)| (at, group.centroid().likeness(text)));
    let central = likenesses.reduce(|best, next| if next.1 > best.1 { next } else { best });
    central.map(|(at, _)| at)
}

/// Returns the index of the entry's passage that is most like the query (eq 21), the first of
/// equals; `None` if the entry has no passage. This is the last level.
pub fn best_passage(
    entry: &HistoryEntry,
    query: &Signature,
    similarity: &Similarity,
) -> Option<usize> {
    let last = entry.passages.len().checked_sub(1)?;
    if last == 0 {
        return Some(0);
    }
    let likeness = |text: &str| similarity.of_query(text).likeness(query);
    let likenesses = entry.passages.iter().map(|passage| likeness(&passage.text)).enumerate();
    let best = likenesses.reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map(|(place, _)| place)
}

/// The extractive summary of a group: it contains only words of its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The query of the central entry, or its response where it has no query.
    pub text: String,
    /// The words that weigh most in the entries, heaviest first, one of each stem.
    pub concepts: Vec<String>,
}

/// Makes the extractive summary of a group from its entries, the central one first.
pub fn summarise<'e>(
    group: &Group,
    mut entries: impl Iterator<Item = &'e HistoryEntry>,
) -> Option<Summary> {
    let said = |entry: &'e HistoryEntry| [entry.query.as_deref(), entry.response.as_deref()];
    let central = entries.next()?;
    let text = said(central).into_iter().flatten().next()?.to_owned();
    let mut weighed: Vec<(Reverse<i64>, u64, &str)> = Vec::new();
    for text in std::iter::once(central).chain(entries).flat_map(said).flatten() {
        for word in Lexicon::of_text(text).words(text).iter().filter(|word| !word.function_word) {
            let written = word.span.of(text).unwrap_or_default();
            for term in terms(written) {
                let term = hash_of(&term);
                weighed.push((Reverse(group.centroid().weight(term)), term, written));
            }
        }
    }
    // The sort is stable: of words with one stem, the first in the texts stays.
    weighed.sort_by_key(|(weight, term, _)| (*weight, *term));
    weighed.dedup_by_key(|(_, term, _)| *term);
    let concepts = weighed.iter().take(CONCEPTS).map(|(.., word)| (*word).to_owned()).collect();
    Some(Summary { text, concepts })
}

#[cfg(test)]
mod tests;
