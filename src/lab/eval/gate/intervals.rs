//! Computes confidence intervals of a gate's figures, and of the differences between two gates on
//! the same turns, by the bootstrap over whole conversations. Scores are sorted once; a resample is
//! one pass, with each turn weighted by how often its conversation was drawn.

use std::collections::BTreeMap;

use serde::Serialize;

use super::figures::{ClassFigures, Scored, figures_of};
use crate::eval::bootstrap::{Conversations, percentiles};

/// A turn in sorted order.
struct ScoredTurn {
    conversation: usize,
    positive: bool,
    predicted: bool,
    /// Whether the next turn has another score.
    last_of_tied: bool,
}

/// Turns by falling score.
struct Sorted(Vec<ScoredTurn>);

impl Sorted {
    fn new(scored: &Scored, conversations: &Conversations) -> Self {
        let mut order: Vec<usize> = (0..scored.scores.len()).collect();
        order.sort_by(|one, other| scored.scores[*other].total_cmp(&scored.scores[*one]));
        let rows = order.iter().enumerate().map(|(place, at)| ScoredTurn {
            conversation: conversations.of()[*at],
            positive: scored.positive[*at],
            predicted: scored.predicted[*at],
            last_of_tied: order
                .get(place + 1)
                .is_none_or(|next| scored.scores[*next] != scored.scores[*at]),
        });
        Self(rows.collect())
    }

    fn figures(&self, drawn: &[u32]) -> ClassFigures {
        let (mut tp, mut fp, mut missed) = (0.0, 0.0, 0.0);
        let (mut positives, mut negatives, mut pairs) = (0.0, 0.0, 0.0);
        let (mut tied_positive, mut tied_negative) = (0.0, 0.0);
        for row in &self.0 {
            let weight = f64::from(drawn[row.conversation]);
            match (row.positive, row.predicted) {
                (true, true) => tp += weight,
                (false, true) => fp += weight,
                (true, false) => missed += weight,
                (false, false) => {}
            }
            *(if row.positive { &mut tied_positive } else { &mut tied_negative }) += weight;
            if row.last_of_tied {
                pairs += tied_negative * (positives + 0.5 * tied_positive);
                positives += tied_positive;
                negatives += tied_negative;
                (tied_positive, tied_negative) = (0.0, 0.0);
            }
        }
        let all = positives * negatives;
        figures_of((tp, fp, missed), (all > 0.0).then(|| pairs / all))
    }
}

/// The 95 % interval of each defined figure.
pub type FigureIntervals = BTreeMap<&'static str, [f64; 2]>;

/// Returns the intervals of a gate's figures; `conversations` has the turns in the order of
/// `scored`.
pub fn intervals(scored: &Scored, conversations: &Conversations) -> FigureIntervals {
    let sorted = Sorted::new(scored, conversations);
    by_name(&conversations.resamples(|drawn| sorted.figures(drawn).named()))
}

/// The difference between two gates in one figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FigureDifference {
    /// The first gate's figure minus the second's.
    pub by: f64,
    /// The 95 % interval of the difference.
    pub interval: [f64; 2],
}

/// Returns the differences of `one` over `other` on the same turns, by figure. The resamples are
/// paired, so that conversations that are hard for both gates do not widen the interval.
pub fn differences(
    one: &Scored,
    other: &Scored,
    conversations: &Conversations,
) -> BTreeMap<&'static str, FigureDifference> {
    let pair = (Sorted::new(one, conversations), Sorted::new(other, conversations));
    let drawn =
        conversations.resamples(|drawn| minus(&pair.0.figures(drawn), &pair.1.figures(drawn)));
    let intervals = by_name(&drawn);
    minus(&one.figures(), &other.figures())
        .into_iter()
        .filter_map(|(name, by)| {
            Some((name, FigureDifference { by: by?, interval: *intervals.get(name)? }))
        })
        .collect()
}

type NamedFigures = [(&'static str, Option<f64>); 5];

fn minus(one: &ClassFigures, other: &ClassFigures) -> NamedFigures {
    let (mut one, other) = (one.named(), other.named());
    for ((_, one), (_, other)) in one.iter_mut().zip(other) {
        *one = one.zip(other).map(|(one, other)| one - other);
    }
    one
}

fn by_name(resamples: &[NamedFigures]) -> FigureIntervals {
    let names = resamples.first().into_iter().flatten().map(|(name, _)| *name);
    let interval = |(at, name): (usize, &'static str)| {
        let values: Vec<f64> = resamples.iter().filter_map(|figures| figures[at].1).collect();
        percentiles(values).map(|interval| (name, interval))
    };
    names.enumerate().filter_map(interval).collect()
}
