//! Searches the whole graph for the facts nearest to a dialogue in meaning, if the dialogue names
//! no concept of the graph.
//!
//! The search is an exact scan over the rows of the facts. Few turns need it (on DailyDialog's validation
//! split 7 of 2,235 that retrieve), so its milliseconds do not matter; trees take a tenth of the time, but
//! missed three of ten nearest on vectors of this kind (`benches/README.md`).

use std::sync::Arc;

use turnstream_knowledge::{Fact, Graph};

use super::Dialogue;

/// The facts of a snapshot that are searched by meaning.
#[derive(Clone, Debug)]
pub struct Searched(Which);

#[derive(Clone, Debug)]
enum Which {
    All,
    /// The facts at these places of [`Graph::facts`], rising.
    Places(Arc<[u32]>),
}

impl Searched {
    /// Takes at most `most` facts: all of them if they fit, else the strongest of each concept
    /// ([`Graph::facts_from`]), as many of each as fit. If one of each does not fit, it takes one
    /// of each of the concepts with most facts, ties by text.
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

    /// Returns the number of facts that are searched.
    pub fn count(&self, graph: &Graph) -> usize {
        match &self.0 {
            Which::All => graph.facts().len(),
            Which::Places(places) => places.len(),
        }
    }
}

impl Dialogue<'_> {
    /// Returns up to `limit` facts whose cosine to the dialogue is above 0 and at least `least`, by
    /// falling cosine, ties in the order of the facts. The search skips denied facts and those that
    /// were taken back. It leaves out facts beyond the snapshot: a user who means a fact that was
    /// added on purpose names it.
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

/// The best facts so far, by falling cosine.
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

    /// Inserts a fact that [`Self::wants`] accepts, behind its equals.
    fn put(&mut self, cosine: f32, fact: Fact) {
        let at = self.found.partition_point(|(other, _)| *other >= cosine);
        self.found.truncate(self.limit - 1);
        self.found.insert(at, (cosine, fact));
    }
}

#[cfg(test)]
mod tests;
