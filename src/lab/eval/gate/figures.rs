//! Computes figures of a binary decision and of its score: precision, recall, F1, false discovery
//! rate, area under the ROC curve, and the curves themselves. Pure functions; undefined figures are
//! `None`.

use serde::Serialize;

/// Turns, each with its true class, the prediction, and the score of the class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scored {
    /// Whether each turn is of the class.
    pub positive: Vec<bool>,
    /// Whether the prediction is the class.
    pub predicted: Vec<bool>,
    /// The score; higher is likelier.
    pub scores: Vec<f64>,
}

/// The confusion matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Confusion {
    /// True positives.
    pub tp: u64,
    /// False positives.
    pub fp: u64,
    /// True negatives.
    pub tn: u64,
    /// False negatives.
    #[serde(rename = "fn")]
    pub missed: u64,
}

/// The figures of one class; each a fraction of 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ClassFigures {
    /// tp ÷ (tp + fp); `None` if nothing was predicted.
    pub precision: Option<f64>,
    /// tp ÷ (tp + fn); `None` if no turn has the class.
    pub recall: Option<f64>,
    /// 2 tp ÷ (2 tp + fp + fn); `None` if no turn has the class or was predicted.
    pub f1: Option<f64>,
    /// The probability that a turn of the class has a higher score than another turn, with equal
    /// scores counting half; `None` if there is no such pair.
    pub auc: Option<f64>,
    /// The false discovery rate, fp ÷ (tp + fp); `None` if nothing was predicted.
    pub fdr: Option<f64>,
}

impl ClassFigures {
    /// Returns the figures by name, in the order of the tables.
    pub fn named(&self) -> [(&'static str, Option<f64>); 5] {
        let Self { precision, recall, f1, auc, fdr } = *self;
        [("precision", precision), ("recall", recall), ("f1", f1), ("auc", auc), ("fdr", fdr)]
    }
}

fn share(part: f64, all: f64) -> Option<f64> {
    (all > 0.0).then(|| part / all)
}

/// Computes the figures from weighted counts (true positives, false positives, misses) and an area.
pub(super) fn figures_of((tp, fp, missed): (f64, f64, f64), auc: Option<f64>) -> ClassFigures {
    ClassFigures {
        precision: share(tp, tp + fp),
        recall: share(tp, tp + missed),
        f1: share(2.0 * tp, 2.0 * tp + fp + missed),
        auc,
        fdr: share(fp, tp + fp),
    }
}

impl Scored {
    /// Counts the confusion matrix.
    pub fn confusion(&self) -> Confusion {
        let mut counts = Confusion::default();
        for (positive, predicted) in self.positive.iter().zip(&self.predicted) {
            *match (positive, predicted) {
                (true, true) => &mut counts.tp,
                (false, true) => &mut counts.fp,
                (false, false) => &mut counts.tn,
                (true, false) => &mut counts.missed,
            } += 1;
        }
        counts
    }

    /// Computes all figures.
    pub fn figures(&self) -> ClassFigures {
        let Confusion { tp, fp, missed, .. } = self.confusion();
        figures_of((tp as f64, fp as f64, missed as f64), auc(&self.positive, &self.scores))
    }
}

/// Turns of equal score: the numbers with and without the class.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tied {
    score: f64,
    positive: u64,
    negative: u64,
}

/// Groups turns by falling score.
fn tied(positive: &[bool], scores: &[f64]) -> Vec<Tied> {
    let mut order: Vec<(f64, bool)> =
        scores.iter().copied().zip(positive.iter().copied()).collect();
    order.sort_by(|one, other| other.0.total_cmp(&one.0));
    let mut groups: Vec<Tied> = Vec::new();
    for (score, positive) in order {
        if groups.last().is_none_or(|group| group.score != score) {
            groups.push(Tied { score, positive: 0, negative: 0 });
        }
        if let Some(group) = groups.last_mut() {
            group.positive += u64::from(positive);
            group.negative += u64::from(!positive);
        }
    }
    groups
}

/// Returns the area under the ROC curve, by the statistic of Mann and Whitney.
pub fn auc(positive: &[bool], scores: &[f64]) -> Option<f64> {
    let (mut above, mut positives, mut pairs) = (0_u64, 0_u64, 0.0);
    for group in tied(positive, scores) {
        pairs += group.negative as f64 * (positives as f64 + 0.5 * group.positive as f64);
        positives += group.positive;
        above += group.negative;
    }
    share(pairs, positives as f64 * above as f64)
}

/// Returns the threshold with the best F1, half way between two scores; scores from the threshold
/// on are predicted. Of several, returns the lowest, which predicts the most; `None` if no turn has
/// the class. Only for training: on the turns of the choice itself, the figure is optimistic.
pub fn best_f1(positive: &[bool], scores: &[f64]) -> Option<f64> {
    let groups = tied(positive, scores);
    let all: u64 = groups.iter().map(|group| group.positive).sum();
    let (mut tp, mut fp, mut best) = (0, 0, None::<(f64, f64)>);
    for (at, group) in groups.iter().enumerate() {
        tp += group.positive;
        fp += group.negative;
        let Some(f1) = share(2.0 * tp as f64, (tp + fp + all) as f64) else { continue };
        let next = groups.get(at + 1).map_or(0.0, |next| next.score);
        if all > 0 && best.is_none_or(|(best, _)| f1 >= best) {
            best = Some((f1, (group.score + next) / 2.0));
        }
    }
    best.map(|(_, threshold)| threshold)
}

/// Returns the ROC curve: (false positive rate, true positive rate) from (0, 0) to (1, 1); empty if
/// all turns have one class.
pub fn roc(positive: &[bool], scores: &[f64]) -> Vec<(f64, f64)> {
    let groups = tied(positive, scores);
    let (positives, negatives) =
        groups.iter().fold((0, 0), |(p, n), group| (p + group.positive, n + group.negative));
    if positives == 0 || negatives == 0 {
        return Vec::new();
    }
    let (mut tp, mut fp) = (0, 0);
    let points = groups.iter().map(|group| {
        tp += group.positive;
        fp += group.negative;
        (fp as f64 / negatives as f64, tp as f64 / positives as f64)
    });
    std::iter::once((0.0, 0.0)).chain(points).collect()
}

/// Returns (recall, precision) at every score, from the highest; empty if no turn has the class.
pub fn precision_recall(positive: &[bool], scores: &[f64]) -> Vec<(f64, f64)> {
    let groups = tied(positive, scores);
    let all: u64 = groups.iter().map(|group| group.positive).sum();
    if all == 0 {
        return Vec::new();
    }
    let (mut tp, mut fp) = (0, 0);
    let points = groups.iter().map(|group| {
        tp += group.positive;
        fp += group.negative;
        (tp as f64 / all as f64, tp as f64 / (tp + fp) as f64)
    });
    points.collect()
}
