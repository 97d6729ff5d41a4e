//! How the reader's scores become logits, and a reading the share of right answers: chosen on development
//! data by `deploy/training/answers/calibration.py`, apart from the weights.

use serde::Deserialize;
use turnstream_ports::model::reader::{Question, Section};
use turnstream_ports::script::is_han;

/// The most words of an utterance that count.
const MOST_WORDS: usize = 25;

/// What is chosen on development data.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReaderCalibration {
    /// Factor of the network's score of a sentence.
    slope: f32,
    /// Added to every sentence.
    offset: f32,
    /// The least cosine at which a phrasing counts, and what each unit above it adds.
    least_taught: f32,
    taught: f32,
    confidence: Confidence,
    /// By the confidence, rising: the share of right answers.
    precision: Vec<(f32, f32)>,
}

/// A logistic regression that tells a right answer from a wrong one: the factor of each feature.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Confidence {
    bias: f32,
    /// The log-odds of the section with the best sentence, against all others and none.
    logit: f32,
    /// The cosine of that sentence and the question.
    sentence: f32,
    /// The number of the section's sentences.
    sentences: f32,
    /// The number of the utterance's words and Chinese characters, at most [`MOST_WORDS`].
    words: f32,
    /// Whether there are turns before.
    before: f32,
    /// The highest cosine of a section and the question.
    nearest: f32,
    /// The cosine of the question and the nearest phrasing for the section; 0 without one.
    taught: f32,
    /// Whether a phrasing leads to any of the sections.
    is_taught: f32,
}

/// The cosines with a question of a section and of its sentences.
pub(super) struct Cosines {
    pub(super) section: f32,
    pub(super) sentences: Vec<f32>,
}

impl ReaderCalibration {
    /// Reads a file.
    ///
    /// # Errors
    /// It is damaged.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("its calibration: {error}"))
    }

    /// Returns the logit of a sentence with this score, in a section with these phrasings.
    pub(super) fn logit(&self, score: f32, section: &Section) -> f32 {
        let taught = self.taught * (phrasing(section) - self.least_taught).max(0.0);
        self.slope * score + self.offset + taught
    }

    /// Returns the share of right answers among readings like this one, 0..=1: of the section with the
    /// best sentence.
    pub(super) fn precision(
        &self,
        question: &Question,
        sections: &[Section],
        cosines: &[Cosines],
        logits: &[Vec<f32>],
    ) -> f32 {
        let highest = |of: &[f32]| of.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let best = (0..logits.len()).max_by(|a, b| {
            // Of equals the first.
            highest(&logits[*a]).total_cmp(&highest(&logits[*b])).then(b.cmp(a))
        });
        let Some(best) = best.filter(|best| !logits[*best].is_empty()) else { return 0.0 };
        let others = logits.iter().enumerate().filter(|(at, _)| *at != best);
        let rest: Vec<f32> = others.flat_map(|(_, of)| of.iter().copied()).chain([0.0]).collect();
        let of_best = &logits[best];
        let sentence = (0..of_best.len()).max_by(|a, b| of_best[*a].total_cmp(&of_best[*b]));
        let is = |it: bool| f32::from(u8::from(it));
        let of = &self.confidence;
        let logit = of.bias
            + of.logit * (log_sum(of_best) - log_sum(&rest))
            + of.sentence * sentence.map_or(0.0, |at| cosines[best].sentences[at])
            + of.sentences * of_best.len() as f32
            + of.words * words(&question.utterance) as f32
            + of.before * is(question.before().next().is_some())
            + of.nearest * cosines.iter().map(|it| it.section).fold(f32::NEG_INFINITY, f32::max)
            + of.taught * phrasing(&sections[best])
            + of.is_taught * is(sections.iter().any(|it| it.taught > 0));
        interpolate(&self.precision, 1.0 / (1.0 + (-logit).exp()))
    }
}

/// The number of words and Chinese characters of an utterance, at most [`MOST_WORDS`].
fn words(utterance: &str) -> usize {
    let characters = utterance.chars().filter(|letter| is_han(*letter)).count();
    (utterance.split_whitespace().count() + characters).min(MOST_WORDS)
}

/// The cosine of the question and the nearest phrasing for a section, 0..=1.
fn phrasing(section: &Section) -> f32 {
    f32::from(section.taught) / 100.0
}

/// The logarithm of the sum of exponentials.
fn log_sum(logits: &[f32]) -> f32 {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    highest + logits.iter().map(|it| (it - highest).exp()).sum::<f32>().ln()
}

/// The value at `x` of a line through points of rising `x`; constant beyond them.
fn interpolate(points: &[(f32, f32)], x: f32) -> f32 {
    let after = points.partition_point(|point| point.0 < x);
    match (after.checked_sub(1).and_then(|at| points.get(at)), points.get(after)) {
        (Some(a), Some(b)) => a.1 + (b.1 - a.1) * (x - a.0) / (b.0 - a.0),
        (Some(only), None) | (None, Some(only)) => only.1,
        (None, None) => x,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_through_points() {
        let points = [(0.2, 0.0), (0.6, 0.5), (0.9, 0.9)];
        for (x, y) in [(0.0, 0.0), (0.4, 0.25), (0.6, 0.5), (0.75, 0.7), (1.0, 0.9)] {
            assert!((interpolate(&points, x) - y).abs() < 1e-6, "{x}");
        }
        assert!((interpolate(&[], 0.3) - 0.3).abs() < 1e-6);
    }

    #[test]
    fn a_chinese_character_counts_as_a_word() {
        assert_eq!(words("how long have I got"), 5);
        assert_eq!(words("iPhone 15 能退吗"), 6);
        assert_eq!(words(&"退".repeat(40)), MOST_WORDS);
    }

    /// As `answers.calibration` computes it.
    #[test]
    fn confidence_is_a_logistic_regression_over_the_reading() {
        let text = r#"{"slope": 2.0, "offset": -1.0, "least_taught": 0.6, "taught": 10.0, "precision": [],
            "confidence": {"bias": -0.5, "logit": 0.7, "sentence": 2.0, "sentences": -0.1, "words": -0.05,
            "before": -0.3, "nearest": -1.0, "taught": 1.5, "is_taught": -0.4}}"#;
        let of: ReaderCalibration = serde_json::from_str(text).expect("a calibration");
        let section = |taught| Section { taught, ..Section::default() };
        let sections = [section(0), section(80)];
        assert!((of.logit(1.5, &sections[0]) - 2.0).abs() < 1e-6);
        assert!((of.logit(1.5, &sections[1]) - 4.0).abs() < 1e-5, "a phrasing adds 10 · (.8 − .6)");
        let question = Question {
            utterance: "how long have I got".to_owned(),
            system_before: Some("Yes.".to_owned()),
            user_before: None,
        };
        let cosines = [
            Cosines { section: 0.9, sentences: vec![0.5] },
            Cosines { section: 0.6, sentences: vec![0.3, 0.7] },
        ];
        let logits = [vec![1.0], vec![0.0, 2.0]];
        let odds = ((1.0 + 2.0_f32.exp()) / (1.0_f32.exp() + 1.0)).ln();
        let logit =
            -0.5 + 0.7 * odds + 2.0 * 0.7 - 0.1 * 2.0 - 0.05 * 5.0 - 0.3 - 0.9 + 1.5 * 0.8 - 0.4;
        let expected = 1.0 / (1.0 + (-logit).exp());
        let found = of.precision(&question, &sections, &cosines, &logits);
        assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
        assert!(of.precision(&question, &[], &[], &[]) == 0.0);
        assert!(of.precision(&question, &sections[..1], &cosines[..1], &[vec![]]) == 0.0);
    }
}
