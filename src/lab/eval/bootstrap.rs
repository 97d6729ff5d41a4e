//! The uncertainty of a figure over responses or turns: 95 % intervals by the bootstrap (Efron
//! 1979), from percentiles of a thousand resamples with a fixed seed. Resampling draws whole
//! conversations, because the items of a conversation are correlated.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::AddAssign;

use serde::Serialize;

/// The number of resamples.
pub const RESAMPLES: usize = 1_000;
/// Seeds the resampling.
const SEED: u64 = 1;

/// The conversation of each response or turn.
pub struct Conversations {
    /// Conversation numbers by response.
    of: Vec<usize>,
    count: usize,
}

/// A figure with its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figure {
    /// `None` if nothing counts.
    pub value: Option<f64>,
    /// `None` for a single conversation.
    pub interval: Option<[f64; 2]>,
}

impl From<(Option<f64>, Option<[f64; 2]>)> for Figure {
    fn from((value, interval): (Option<f64>, Option<[f64; 2]>)) -> Self {
        Self { value, interval }
    }
}

/// A sum with the number of its terms.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    /// Returns the mean; `None` without terms.
    pub fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

impl AddAssign for Mean {
    fn add_assign(&mut self, other: Self) {
        self.sum += other.sum;
        self.count += other.count;
    }
}

impl From<f64> for Mean {
    fn from(value: f64) -> Self {
        Self { sum: value, count: 1 }
    }
}

impl Conversations {
    /// Takes the conversation id of each response or turn, in order.
    pub fn new<C: Hash + Eq>(of: impl IntoIterator<Item = C>) -> Self {
        let mut numbers = HashMap::new();
        let of = of
            .into_iter()
            .map(|conversation| {
                let next = numbers.len();
                *numbers.entry(conversation).or_insert(next)
            })
            .collect();
        Self { of, count: numbers.len() }
    }

    /// Returns the number of each item's conversation, from 0 in order of appearance.
    pub fn of(&self) -> &[usize] {
        &self.of
    }

    /// Returns the result of `figures` for each of [`RESAMPLES`] resamples. `figures` receives how
    /// often each conversation was drawn. All calls draw alike, so two gates can be compared
    /// resample by resample. Empty if there is only one conversation.
    pub fn resamples<T>(&self, mut figures: impl FnMut(&[u32]) -> T) -> Vec<T> {
        if self.count < 2 {
            return Vec::new();
        }
        let mut random = fastrand::Rng::with_seed(SEED);
        let mut drawn = vec![0; self.count];
        let resamples = (0..RESAMPLES).map(|_| {
            drawn.fill(0);
            (0..self.count).for_each(|_| drawn[random.usize(0..self.count)] += 1);
            figures(&drawn)
        });
        resamples.collect()
    }

    /// Returns the figure over all responses (`None` for a response that does not count), and its
    /// interval if there are two conversations or more.
    pub fn figure<S: Copy + Default + AddAssign>(
        &self,
        parts: &[Option<S>],
        figure: impl Fn(&S) -> Option<f64>,
    ) -> (Option<f64>, Option<[f64; 2]>) {
        let mut by_conversation = vec![None::<S>; self.count];
        let mut all = S::default();
        for (of, part) in self.of.iter().zip(parts) {
            if let Some(part) = part {
                *by_conversation[*of].get_or_insert_default() += *part;
                all += *part;
            }
        }
        let counted: Vec<S> = by_conversation.into_iter().flatten().collect();
        let value = figure(&all);
        let interval = (counted.len() > 1).then(|| interval(&counted, figure)).flatten();
        (value, interval)
    }
}

fn interval<S: Copy + Default + AddAssign>(
    groups: &[S],
    figure: impl Fn(&S) -> Option<f64>,
) -> Option<[f64; 2]> {
    let mut random = fastrand::Rng::with_seed(SEED);
    let figures = (0..RESAMPLES).filter_map(|_| {
        let mut sum = S::default();
        (0..groups.len()).for_each(|_| sum += groups[random.usize(0..groups.len())]);
        figure(&sum)
    });
    percentiles(figures.collect())
}

/// Returns the 2.5th and the 97.5th percentile; `None` for no figures.
pub fn percentiles(mut figures: Vec<f64>) -> Option<[f64; 2]> {
    figures.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| figures.get((share * figures.len() as f64) as usize).copied();
    Some([at(0.025)?, at(0.975)?])
}

#[cfg(test)]
mod tests {
    use turnstream_schemas::ConversationId;

    use super::*;

    fn figure(conversations: &Conversations, values: &[f64]) -> (Option<f64>, Option<[f64; 2]>) {
        let parts: Vec<_> = values.iter().map(|value| Some(Mean::from(*value))).collect();
        conversations.figure(&parts, Mean::value)
    }

    #[test]
    fn an_interval_is_as_wide_as_the_conversations_are_many() {
        let ids: Vec<ConversationId> = (0..400).map(|at: u32| at.to_string().into()).collect();
        let values: Vec<f64> = (0..400).map(|at| f64::from(at % 2)).collect();
        let (mean, interval) = figure(&Conversations::new(&ids), &values);
        assert_eq!(mean, Some(0.5));
        // ± 1.96 × 0.5 / √400.
        let [low, high] = interval.expect("many");
        assert!((low - 0.451).abs() < 0.01 && (high - 0.549).abs() < 0.01, "{low} {high}");
        assert_eq!(
            figure(&Conversations::new(&ids), &values).1,
            Some([low, high]),
            "the same seed"
        );

        // Four identical responses per conversation: only the number of conversations counts.
        let fewer: Vec<ConversationId> =
            (0..400).map(|at: u32| (at / 4).to_string().into()).collect();
        let values: Vec<f64> = (0..400).map(|at| f64::from(at / 4 % 2)).collect();
        let [low, high] = figure(&Conversations::new(&fewer), &values).1.expect("many");
        assert!((high - low - 0.196).abs() < 0.02, "{low} {high}");
    }

    #[test]
    fn every_resample_draws_as_many_conversations_as_there_are() {
        let conversations = Conversations::new(["a", "b", "a", "c"]);
        assert_eq!(conversations.of(), [0, 1, 0, 2]);
        let drawn = conversations.resamples(<[u32]>::to_vec);
        assert_eq!(drawn.len(), RESAMPLES);
        assert!(drawn.iter().all(|drawn| drawn.iter().sum::<u32>() == 3));
        assert!(drawn.iter().any(|drawn| drawn[0] == 3), "one in 27");
        assert_eq!(conversations.resamples(<[u32]>::to_vec), drawn, "the same seed");
        assert!(Conversations::new(["a", "a"]).resamples(|_| ()).is_empty());
    }

    #[test]
    fn what_does_not_count_is_left_out() {
        let ids: Vec<ConversationId> = ["a", "a", "b"].map(Into::into).to_vec();
        let conversations = Conversations::new(&ids);
        let parts = [Some(Mean::from(1.0)), None, Some(Mean::from(2.0))];
        let (mean, interval) = conversations.figure(&parts, Mean::value);
        assert_eq!((mean, interval), (Some(1.5), Some([1.0, 2.0])));
        let (mean, interval) =
            conversations.figure(&[Some(Mean::from(1.0)), None, None], Mean::value);
        assert_eq!((mean, interval), (Some(1.0), None));
        assert_eq!(conversations.figure::<Mean>(&[None; 3], Mean::value), (None, None));
    }
}
