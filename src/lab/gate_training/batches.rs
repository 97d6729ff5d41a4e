//! Draws the steps of a pass: batches of turns of similar length, in random order.

/// Batches that are sorted by length together: lengths are similar within them, and the order
/// between them stays random.
const SORTED_TOGETHER: usize = 50;

/// A data set has at least this part of the most turns that one may have in a pass.
const LEAST_PART: usize = 4;

/// Draws the turns that a data set of `count` has in a pass, by their indexes: at most `most` (0 for
/// all) and, by repetition, at least a quarter of that.
pub(super) fn turns(count: usize, most: usize, random: &mut fastrand::Rng) -> Vec<usize> {
    let mut turns: Vec<usize> = (0..count).collect();
    if most == 0 {
        return turns;
    }
    random.shuffle(&mut turns);
    let wanted = count.clamp(most.div_ceil(LEAST_PART), most);
    turns.iter().copied().cycle().take(wanted).collect()
}

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
    fn a_large_set_is_cut_and_a_small_one_repeated() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut drawn = |count, most| {
            let mut turns = turns(count, most, &mut random);
            turns.sort_unstable();
            (turns.len(), turns.chunk_by(|a, b| a == b).map(<[_]>::len).collect::<Vec<_>>())
        };
        assert_eq!(drawn(100, 40), (40, vec![1; 40]), "none twice");
        assert_eq!(drawn(30, 40), (30, vec![1; 30]));
        let (count, often) = drawn(4, 40);
        assert_eq!((count, often.len(), often.iter().max()), (10, 4, Some(&3)));
        assert_eq!(drawn(4, 0).0, 4, "all");
        assert_eq!(drawn(0, 40).0, 0);
    }

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
