//! How sure a gate's figures are, and the differences between two gates' on the same turns: the
//! bootstrap over whole conversations. Scores are sorted once; a resample is one pass with the
//! turns weighted by how often their conversation was drawn.

use std::collections::BTreeMap;

use serde::Serialize;

use super::figures::{Figures, Scored, figures_of};
use crate::eval::bootstrap::{Conversations, percentiles};

/// One turn as a resample looks at it.
struct Row {
    conversation: usize,
    positive: bool,
    predicted: bool,
    /// Whether the next row has another score.
    last_of_tied: bool,
}

/// Turns by falling score.
struct Sorted(Vec<Row>);

impl Sorted {
    fn new(scored: &Scored, conversations: &Conversations) -> Self {
        let mut order: Vec<usize> = (0..scored.scores.len()).collect();
        order.sort_by(|one, other| scored.scores[*other].total_cmp(&scored.scores[*one]));
        let rows = order.iter().enumerate().map(|(place, at)| Row {
            conversation: conversations.of()[*at],
            positive: scored.positive[*at],
            predicted: scored.predicted[*at],
            last_of_tied: order
                .get(place + 1)
                .is_none_or(|next| scored.scores[*next] != scored.scores[*at]),
        });
        Self(rows.collect())
    }

    fn figures(&self, drawn: &[u32]) -> Figures {
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

/// A 95 % interval by figure, for those that are defined.
pub type Intervals = BTreeMap<&'static str, [f64; 2]>;

/// The intervals of a gate's figures. `conversations` has the turns in the order of `scored`.
pub fn intervals(scored: &Scored, conversations: &Conversations) -> Intervals {
    let sorted = Sorted::new(scored, conversations);
    by_name(&conversations.resamples(|drawn| sorted.figures(drawn).named()))
}

/// By how much one gate is above another, and between what.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The one's figure less the other's.
    pub by: f64,
    /// The 95 % interval of that.
    pub interval: [f64; 2],
}

/// By figure: how much `one` is above `other` on the same turns. Both are drawn alike, so that what
/// makes a conversation hard for both does not count.
pub fn differences(
    one: &Scored,
    other: &Scored,
    conversations: &Conversations,
) -> BTreeMap<&'static str, Difference> {
    let pair = (Sorted::new(one, conversations), Sorted::new(other, conversations));
    let drawn =
        conversations.resamples(|drawn| minus(&pair.0.figures(drawn), &pair.1.figures(drawn)));
    let intervals = by_name(&drawn);
    minus(&one.figures(), &other.figures())
        .into_iter()
        .filter_map(|(name, by)| {
            Some((name, Difference { by: by?, interval: *intervals.get(name)? }))
        })
        .collect()
}

type Named = [(&'static str, Option<f64>); 5];

fn minus(one: &Figures, other: &Figures) -> Named {
    let (mut one, other) = (one.named(), other.named());
    for ((_, one), (_, other)) in one.iter_mut().zip(other) {
        *one = one.zip(other).map(|(one, other)| one - other);
    }
    one
}

fn by_name(resamples: &[Named]) -> Intervals {
    let names = resamples.first().into_iter().flatten().map(|(name, _)| *name);
    let interval = |(at, name): (usize, &'static str)| {
        let values: Vec<f64> = resamples.iter().filter_map(|figures| figures[at].1).collect();
        percentiles(values).map(|interval| (name, interval))
    };
    names.enumerate().filter_map(interval).collect()
}
