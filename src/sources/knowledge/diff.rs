//! Compares two graphs: merges both in the order of their texts, so that neither is loaded into
//! memory.

use std::cmp::Ordering;

use serde::Serialize;
use turnstream_knowledge::{Fact, Graph};

/// The numbers of differing facts. Two facts are the same statement if head, relation, tail, source
/// and the languages of head and tail are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiffCounts {
    /// Facts of the first graph only.
    pub only_a: u64,
    /// Facts of the second graph only.
    pub only_b: u64,
    /// Facts of both graphs with different weights, or denied in one and affirmed in the other.
    pub changed: u64,
    /// Identical facts.
    pub same: u64,
}

/// A differing fact. A negative weight means that the fact is denied.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiffRecord {
    /// Text of the head.
    pub head: String,
    /// Name of the relation.
    pub relation: String,
    /// Text of the tail.
    pub tail: String,
    /// The fact's source.
    pub source: String,
    /// Language of head and tail.
    pub language: String,
    /// The weight in the first graph, if the fact is there.
    pub a: Option<f32>,
    /// The weight in the second graph, if the fact is there.
    pub b: Option<f32>,
}

/// The identity of a fact, in the order of a graph's facts.
fn key<'g>(graph: &'g Graph, fact: &Fact) -> [&'g str; 6] {
    [
        graph.concept(fact.head),
        graph.language(fact.head),
        graph.concept(fact.tail),
        graph.language(fact.tail),
        graph.relation(fact.relation).name,
        graph.source(fact.source),
    ]
}

fn signed(fact: &Fact) -> f32 {
    if fact.negated { -fact.weight } else { fact.weight }
}

/// Compares two graphs, and passes each differing fact to `tell` in the order of the texts.
///
/// # Errors
/// The error of `tell`.
pub fn diff<E>(
    [a, b]: [&Graph; 2],
    mut tell: impl FnMut(&DiffRecord) -> Result<(), E>,
) -> Result<DiffCounts, E> {
    let mut counts = DiffCounts::default();
    let (mut of_a, mut of_b) = (a.facts().peekable(), b.facts().peekable());
    loop {
        let order = match (of_a.peek(), of_b.peek()) {
            (None, None) => return Ok(counts),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(in_a), Some(in_b)) => key(a, in_a).cmp(&key(b, in_b)),
        };
        let in_a = of_a.next_if(|_| order.is_le());
        let in_b = of_b.next_if(|_| order.is_ge());
        let weights = [&in_a, &in_b].map(|fact| fact.as_ref().map(signed));
        let count = match weights {
            [Some(_), None] => &mut counts.only_a,
            [None, _] => &mut counts.only_b,
            [Some(in_a), Some(in_b)] if in_a == in_b => &mut counts.same,
            [Some(_), Some(_)] => &mut counts.changed,
        };
        *count += 1;
        if weights[0] == weights[1] {
            continue;
        }
        let known = in_a.map(|fact| key(a, &fact)).or(in_b.map(|fact| key(b, &fact)));
        if let Some(known) = known {
            let [head, language, tail, _, relation, source] = known.map(str::to_owned);
            let [a, b] = weights;
            tell(&DiffRecord { head, relation, tail, source, language, a, b })?;
        }
    }
}
