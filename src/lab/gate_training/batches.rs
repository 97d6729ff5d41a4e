//! Draws the steps of a pass: batches of turns of similar length, in random order.

/// Batches that are sorted by length together: lengths are similar within them, and the order
/// between them stays random.
const SORTED_TOGETHER: usize = 50;

/// Batches of examples, each as (lesson, index).
pub(super) struct Batches(Vec<Vec<(usize, usize)>>);

impl Batches {
    /// Draws batches of all examples.
    pub(super) fn draw(
        mut examples: Vec<(usize, usize)>,
        size: usize,
        length: impl Fn(&(usize, usize)) -> usize,
        random: &mut fastrand::Rng,
    ) -> Self {
        let size = size.max(1);
        random.shuffle(&mut examples);
        let mut batches = Vec::new();
        for together in examples.chunks_mut(size * SORTED_TOGETHER) {
            together.sort_by_key(&length);
            batches.extend(together.chunks(size).map(<[_]>::to_vec));
        }
        random.shuffle(&mut batches);
        Self(batches)
    }

    /// Returns the number of batches.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the batches in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[(usize, usize)]> {
        self.0.iter().map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_is_in_one_batch_beside_others_of_its_length() {
        let examples: Vec<(usize, usize)> = (0..1_000).map(|place| (place % 2, place)).collect();
        let mut random = fastrand::Rng::with_seed(3);
        let length = |&(_, place): &(usize, usize)| place * 7_919 % 100;
        let batches = Batches::draw(examples.clone(), 16, length, &mut random);
        let mut all: Vec<(usize, usize)> = batches.iter().flatten().copied().collect();
        assert_ne!(all, examples);
        all.sort_unstable_by_key(|(_, place)| *place);
        assert_eq!(all, examples);
        assert_eq!(batches.count(), 63);
        let spread = |batch: &[(usize, usize)]| {
            let lengths = batch.iter().map(length);
            lengths.clone().max().unwrap() - lengths.min().unwrap()
        };
        let mean = batches.iter().map(spread).sum::<usize>() / batches.count();
        assert!(mean <= 4, "{mean}");
    }
}
