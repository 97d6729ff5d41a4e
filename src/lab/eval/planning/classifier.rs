//! Plans by classification, like the paper's BERT: logistic regression over TF-IDF of the last
//! utterance, one class against the others, with the n-grams of the gate's baseline. Three-fold
//! cross-validation over the conversations of the training split chooses the penalty and the class
//! weights with the best mean F1. The classifier is not saved.

use turnstream_models::gate::ngrams::{Sparse, Vectoriser};

use super::{Planned, PlannedTurn};
use crate::eval::gate::tfidf::logistic::Logistic;
use crate::eval::gate::tfidf::{LEAST_TEXTS, STRENGTHS};

const PARTS: usize = 3;
/// Candidate weights of NULL and of PERSONA; the weight of both together is 1.
const WEIGHTS: [f64; 7] = [0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0];

/// A trained classifier.
pub struct Classifier {
    vectoriser: Vectoriser,
    models: Vec<Logistic>,
    /// Weights by class.
    weights: [f64; 3],
    /// The chosen inverse strength of the penalty.
    pub strength: f64,
}

/// The probability of each class, by case.
type Likely = Vec<[f64; 3]>;

impl Classifier {
    /// Trains on a split; `progress` is called after every fit.
    pub fn train(cases: &[PlannedTurn], mut progress: impl FnMut()) -> Self {
        let vectoriser = Vectoriser::fit(cases.iter().map(PlannedTurn::last), LEAST_TEXTS);
        let rows = vectoriser.rows(cases.iter().map(PlannedTurn::last));
        let mut best = (f64::NEG_INFINITY, STRENGTHS[0], [1.0; 3]);
        for (strength, likely) in held_out(cases, &rows, &mut progress) {
            for null in WEIGHTS {
                for persona in WEIGHTS {
                    let weights = [null, persona, 1.0];
                    let mean = mean_f1(cases, &likely, &weights);
                    if mean > best.0 {
                        best = (mean, strength, weights);
                    }
                }
            }
        }
        let (_, strength, weights) = best;
        let all: Vec<usize> = (0..cases.len()).collect();
        let models = Planned::ALL.map(|class| {
            let model = Logistic::zero(rows.width()).fit(&rows, &is(cases, class), &all, strength);
            progress();
            model
        });
        Self { vectoriser, models: models.into(), weights, strength }
    }

    /// Plans each case.
    pub fn plan(&self, cases: &[PlannedTurn]) -> Vec<Planned> {
        let rows = self.vectoriser.rows(cases.iter().map(PlannedTurn::last));
        let all: Vec<usize> = (0..cases.len()).collect();
        let mut likely: Likely = vec![[0.0; 3]; cases.len()];
        for (class, model) in self.models.iter().enumerate() {
            for (of, value) in likely.iter_mut().zip(model.likely(&rows, &all)) {
                of[class] = value;
            }
        }
        likely.iter().map(|likely| chosen(likely, &self.weights)).collect()
    }
}

fn is(cases: &[PlannedTurn], class: Planned) -> Vec<bool> {
    cases.iter().map(|case| case.gold == class).collect()
}

/// Returns the probabilities of each class by strength of the penalty, from models that were not
/// trained on the case's part.
fn held_out(
    cases: &[PlannedTurn],
    rows: &Sparse,
    progress: &mut impl FnMut(),
) -> Vec<(f64, Likely)> {
    let mut found: Vec<(f64, Likely)> =
        STRENGTHS.into_iter().map(|strength| (strength, vec![[0.0; 3]; cases.len()])).collect();
    for part in 0..PARTS {
        let (out, learned): (Vec<usize>, Vec<usize>) =
            (0..cases.len()).partition(|at| cases[*at].conversation % PARTS == part);
        for (place, class) in Planned::ALL.into_iter().enumerate() {
            let positive = is(cases, class);
            // A weaker penalty starts from the solution of the stronger one.
            let mut model = Logistic::zero(rows.width());
            for (strength, likely) in &mut found {
                model = model.fit(rows, &positive, &learned, *strength);
                for (at, value) in out.iter().zip(model.likely(rows, &out)) {
                    likely[*at][place] = value;
                }
                progress();
            }
        }
    }
    found
}

/// Returns the class of the highest weighted probability, the first of equals.
fn chosen(likely: &[f64; 3], weights: &[f64; 3]) -> Planned {
    let weighted = |place: usize| likely[place] * weights[place];
    let mut best = 0;
    for place in 1..3 {
        if weighted(place) > weighted(best) {
            best = place;
        }
    }
    Planned::ALL[best]
}

fn mean_f1(cases: &[PlannedTurn], likely: &Likely, weights: &[f64; 3]) -> f64 {
    let planned: Vec<Planned> = likely.iter().map(|likely| chosen(likely, weights)).collect();
    let f1 = |class: Planned| {
        let pairs = || cases.iter().zip(&planned);
        let right = pairs().filter(|(case, plan)| case.gold == class && **plan == class).count();
        let either = pairs()
            .map(|(case, plan)| usize::from(case.gold == class) + usize::from(*plan == class));
        2.0 * right as f64 / either.sum::<usize>().max(1) as f64
    };
    Planned::ALL.into_iter().map(f1).sum::<f64>() / 3.0
}

#[cfg(test)]
mod tests {
    use turnstream_ports::model::unified::Exchange;

    use super::*;

    fn cases(conversations: std::ops::Range<usize>) -> Vec<PlannedTurn> {
        let texts = [
            ("bye now", Planned::Null),
            ("who are you", Planned::Persona),
            ("what is tea made of", Planned::Both),
        ];
        let of = |conversation: usize| {
            texts.map(|(text, gold)| {
                let user = format!("{text} {conversation}");
                PlannedTurn {
                    conversation,
                    dialogue: vec![Exchange { user, response: None }],
                    gold,
                }
            })
        };
        conversations.flat_map(of).collect()
    }

    #[test]
    fn what_can_be_learned_is_learned() {
        let mut fits = 0;
        let classifier = Classifier::train(&cases(0..30), || fits += 1);
        assert_eq!(fits, PARTS * 3 * STRENGTHS.len() + 3);
        let unseen = cases(100..110);
        let gold: Vec<Planned> = unseen.iter().map(|case| case.gold).collect();
        assert_eq!(classifier.plan(&unseen), gold);
    }

    #[test]
    fn a_class_that_counts_more_is_planned_more() {
        let likely = [0.3, 0.2, 0.5];
        assert_eq!(chosen(&likely, &[1.0; 3]), Planned::Both);
        assert_eq!(chosen(&likely, &[2.0, 1.0, 1.0]), Planned::Null);
        assert_eq!(chosen(&[0.2, 0.2, 0.1], &[1.0; 3]), Planned::Null, "the first of equals");
        let cases = cases(0..1);
        let likely = vec![[0.9, 0.1, 0.1], [0.4, 0.3, 0.1], [0.1, 0.2, 0.6]];
        // NULL: one of two plans is right, and one case exists; persona: none; both: all.
        let mean = mean_f1(&cases, &likely, &[1.0; 3]);
        assert!((mean - (2.0 / 3.0 + 0.0 + 1.0) / 3.0).abs() < 1e-12, "{mean}");
        assert!((mean_f1(&cases, &likely, &[0.5, 1.0, 1.0]) - 1.0).abs() < 1e-12);
    }
}
