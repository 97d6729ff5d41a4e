//! The facts of the whole graph that are nearest to a dialogue in meaning: what is asked where the
//! dialogue names nothing that the graph knows.
//!
//! An exact scan over the rows of the facts. Few turns need it (on DailyDialog's validation split
//! 7 of 2,235 that retrieve), so that it may take the milliseconds that it takes; and trees, which
//! take a tenth of them, missed three of ten nearest on vectors of this kind (`benches/README.md`).

use std::sync::Arc;

use turnstream_knowledge::{Fact, Graph};

use super::Dialogue;

/// Which facts of a snapshot are searched by meaning.
#[derive(Clone, Debug)]
pub struct Searched(Which);

#[derive(Clone, Debug)]
enum Which {
    All,
    /// At these places of [`Graph::facts`], rising.
    Places(Arc<[u32]>),
}

impl Searched {
    /// No more than `most`: all, where there are so few; else the strongest of each concept
    /// ([`Graph::facts_from`]), as many of each as fit. Where not even one of each does, one of
    /// those concepts that have most facts, ties by text.
    pub fn strongest(graph: &Graph, most: usize) -> Self {
        if graph.facts().len() <= most {
            return Self(Which::All);
        }
        let mut heads: Vec<_> = graph.concepts().collect();
        heads.retain(|head| graph.facts_from(*head).len() > 0);
        heads.sort_by_key(|head| std::cmp::Reverse(graph.facts_from(*head).len()));
        let with_more_than =
            |each: usize| heads.partition_point(|head| graph.facts_from(*head).len() > each);
        let (mut each, mut taken) = (0, 0);
        while with_more_than(each) > 0 && taken + with_more_than(each) <= most {
            taken += with_more_than(each);
            each += 1;
        }
        let heads = if each == 0 { &heads[..most] } else { &heads };
        let facts = heads.iter().flat_map(|head| graph.strongest_from(*head, each.max(1)));
        let places = facts.filter_map(|fact| u32::try_from(graph.position(&fact)?).ok());
        let mut places: Vec<u32> = places.collect();
        places.sort_unstable();
        Self(Which::Places(places.into()))
    }

    /// How many facts of the graph these are.
    pub fn count(&self, graph: &Graph) -> usize {
        match &self.0 {
            Which::All => graph.facts().len(),
            Which::Places(places) => places.len(),
        }
    }
}

impl Dialogue<'_> {
    /// Up to `limit` facts whose cosine to the dialogue is at least `least`, above 0, by falling
    /// cosine, ties in the order of the facts. Denied facts and those that were taken back are
    /// passed over; facts beyond the snapshot are not searched, since what was put there on purpose
    /// is named when it is meant.
    pub fn nearest(&self, limit: usize, least: f64) -> Vec<(f64, Fact)> {
        let mut nearest = Nearest { limit, least: least as f32, found: Vec::new() };
        match self.meaning.searched.as_ref().map(|searched| &searched.0) {
            Some(Which::All) => {
                let facts = self.meaning.vectors.header().facts as usize;
                (0..facts).for_each(|place| self.see(place, &mut nearest));
            }
            Some(Which::Places(places)) => {
                places.iter().for_each(|place| self.see(*place as usize, &mut nearest));
            }
            None => {}
        }
        let found = nearest.found.into_iter();
        found.map(|(cosine, fact)| (f64::from(cosine), fact)).collect()
    }

    fn see(&self, place: usize, nearest: &mut Nearest) {
        let Some(row) = self.meaning.vectors.at(place) else { return };
        let cosine = self.query.cosine(row);
        if nearest.wants(cosine)
            && let Some(fact) = self.graph.graph().fact_at(place)
            && !fact.negated
            && self.graph.has(&fact)
        {
            nearest.put(cosine, fact);
        }
    }
}

/// The best so far, by falling cosine.
struct Nearest {
    limit: usize,
    least: f32,
    found: Vec<(f32, Fact)>,
}

impl Nearest {
    fn wants(&self, cosine: f32) -> bool {
        let worst = self.found.last().filter(|_| self.found.len() == self.limit);
        cosine >= self.least && cosine > worst.map_or(0.0, |(worst, _)| *worst) && self.limit > 0
    }

    /// Puts one that is wanted behind its equals.
    fn put(&mut self, cosine: f32, fact: Fact) {
        let at = self.found.partition_point(|(other, _)| *other >= cosine);
        self.found.truncate(self.limit - 1);
        self.found.insert(at, (cosine, fact));
    }
}

#[cfg(test)]
mod tests;
