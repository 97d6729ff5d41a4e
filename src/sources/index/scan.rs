//! The exact scan: the cosine of the query with every vector. It is the fastest index for small or
//! strongly filtered sets, and the oracle of the others.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use turnstream_ports::index::{Found, Search, SearchError};

use super::is_zero;

/// Vectors in memory.
#[derive(Clone, Debug)]
pub struct Scan {
    dimensions: usize,
    /// Ascending and unique.
    items: Vec<u32>,
    /// Concatenated vectors of L2 norm 1, in the order of the items.
    vectors: Vec<f32>,
}

impl Scan {
    /// Makes an empty scan for vectors of `dimensions` numbers, at least 1.
    pub fn new(dimensions: usize) -> Self {
        Self { dimensions: dimensions.max(1), items: Vec::new(), vectors: Vec::new() }
    }

    /// Adds a vector after normalising it to L2 norm 1. Returns false and adds nothing if the item
    /// is not above all present ones, or if the vector is zero or has other dimensions.
    pub fn push(&mut self, item: u32, vector: &[f32]) -> bool {
        let rises = self.items.last().is_none_or(|last| *last < item);
        if !rises || vector.len() != self.dimensions || is_zero(vector) {
            return false;
        }
        let norm = dot(vector, vector).sqrt();
        self.items.push(item);
        self.vectors.extend(vector.iter().map(|number| number / norm));
        true
    }

    /// The number of vectors.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are no vectors.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn vector(&self, at: usize) -> &[f32] {
        &self.vectors[at * self.dimensions..(at + 1) * self.dimensions]
    }
}

impl Search for Scan {
    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn search(
        &self,
        query: &[f32],
        limit: usize,
        candidates: Option<&[u32]>,
    ) -> Result<Vec<Found>, SearchError> {
        check_dimensions(self.dimensions, query)?;
        if is_zero(query) {
            return Ok(Vec::new());
        }
        let norm = dot(query, query).sqrt();
        let mut best = Best::new(limit);
        let mut see = |at: usize| {
            let similarity = (dot(query, self.vector(at)) / norm).clamp(-1.0, 1.0);
            best.see(Found { item: self.items[at], similarity });
        };
        match candidates {
            None => (0..self.items.len()).for_each(see),
            Some(candidates) => {
                let places =
                    candidates.iter().filter_map(|item| self.items.binary_search(item).ok());
                places.for_each(&mut see);
            }
        }
        Ok(best.ranked())
    }
}

/// Refuses a query of other dimensions.
pub(super) fn check_dimensions(expected: usize, query: &[f32]) -> Result<(), SearchError> {
    let received = query.len();
    if received == expected { Ok(()) } else { Err(SearchError::Dimensions { expected, received }) }
}

/// The dot product in eight partial sums, so that the compiler can use vector instructions.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 8];
    let (a_parts, a_rest) = a.as_chunks::<8>();
    let (b_parts, b_rest) = b.as_chunks::<8>();
    for (a, b) in a_parts.iter().zip(b_parts) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

/// Keeps the best items seen.
struct Best {
    limit: usize,
    /// The worst item is on top.
    kept: BinaryHeap<Worse>,
}

impl Best {
    fn new(limit: usize) -> Self {
        Self { limit, kept: BinaryHeap::new() }
    }

    fn see(&mut self, found: Found) {
        if self.kept.len() < self.limit {
            self.kept.push(Worse(found));
        } else if let Some(mut worst) = self.kept.peek_mut()
            && Worse(found) < *worst
        {
            *worst = Worse(found);
        }
    }

    fn ranked(self) -> Vec<Found> {
        self.kept.into_sorted_vec().into_iter().map(|Worse(found)| found).collect()
    }
}

/// Orders by falling similarity, then by item: greater means worse.
struct Worse(Found);

impl Ord for Worse {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_similarity = other.0.similarity.total_cmp(&self.0.similarity);
        by_similarity.then(self.0.item.cmp(&other.0.item))
    }
}

impl PartialOrd for Worse {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Worse {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Worse {}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(vectors: &[(u32, [f32; 2])]) -> Scan {
        let mut scan = Scan::new(2);
        for (item, vector) in vectors {
            scan.push(*item, vector);
        }
        scan
    }

    fn items(found: &[Found]) -> Vec<u32> {
        found.iter().map(|found| found.item).collect()
    }

    #[test]
    fn results_come_by_cosine_and_ties_by_item() {
        let scan = scan(&[(1, [0.0, 2.0]), (4, [3.0, 0.0]), (7, [1.0, 0.0]), (9, [-1.0, 0.0])]);
        let found = scan.search(&[5.0, 0.0], 3, None).unwrap();
        assert_eq!(items(&found), [4, 7, 1]);
        assert!((found[0].similarity - 1.0).abs() < 1e-6 && found[2].similarity == 0.0);
        assert_eq!(items(&scan.search(&[5.0, 0.0], 3, Some(&[1, 2, 9])).unwrap()), [1, 9]);
    }

    #[test]
    fn what_does_not_fit_is_not_held_and_not_searched() {
        let mut scan = scan(&[(4, [3.0, 0.0])]);
        assert!(!scan.push(4, &[1.0, 0.0]), "not above the last");
        assert!(!scan.push(5, &[0.0, 0.0]), "no direction");
        assert!(!scan.push(5, &[1.0, 0.0, 0.0]), "other dimensions");
        assert!(matches!(scan.search(&[1.0], 1, None), Err(SearchError::Dimensions { .. })));
        assert!(scan.search(&[0.0, 0.0], 1, None).unwrap().is_empty());
    }
}
