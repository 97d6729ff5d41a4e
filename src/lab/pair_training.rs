//! Trains a static table on pairs of questions and their right answers, as PK-ICR fine-tunes its
//! encoder on {P_i + D, K_j}. `turnstream train persona` makes the pairs.
//!
//! Each case scores every question against every answer; the loss is −log of each right pair's
//! share of the softmax over all pairs, of cosines over a temperature. Vectors start as those of
//! another table, or at random for pieces that are learned from the texts, in any language. Every
//! tenth conversation is held out, and the epoch is kept in which most held-out cases have a right
//! best pair. `turnstream train consistency` trains its judge in the same way: a response is the
//! question, and its evidence is the right answer.

use std::collections::BTreeSet;

use serde::Serialize;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::punctuation::Punctuation;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::whitespace::WhitespaceSplit;
use tokenizers::{
    AddedToken, DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
    Tokenizer, TokenizerBuilder,
};
use turnstream_models::static_table::StaticTable;
use turnstream_ports::model::encoder::Encoder;

use crate::piece_vectors::{PieceVectors, dot};

/// One in this many conversations is held out.
const HOLD_OUT_EVERY: usize = 10;
/// The piece for unknown text.
const UNKNOWN: &str = "[UNK]";
/// The spread of random initial vectors.
const SPREAD: f32 = 0.1;

/// A case: questions, answers, and the right pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairLesson {
    /// The number of its conversation.
    pub conversation: usize,
    /// The questions.
    pub questions: Vec<String>,
    /// The answers.
    pub answers: Vec<String>,
    /// The right pairs, as (question, answer) indexes; pairs out of range are ignored.
    pub right: BTreeSet<(usize, usize)>,
}

/// The hyperparameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairTraining {
    /// Pieces to learn from the texts, if no table is given; 256 or more.
    pub pieces: usize,
    /// Numbers per vector, if no table is given; 1 or more.
    pub dimensions: usize,
    /// Passes over all cases, 1 or more.
    pub epochs: u32,
    /// The learning rate, above 0.
    pub rate: f32,
    /// The divisor of cosines, above 0.
    pub temperature: f32,
    /// Cases per step, 1 or more.
    pub batch: usize,
    /// Seeds the vectors and the order of the cases.
    pub seed: u64,
}

impl Default for PairTraining {
    fn default() -> Self {
        let (pieces, dimensions, epochs, batch) = (8_000, 128, 8, 32);
        Self { pieces, dimensions, epochs, rate: 3e-3, temperature: 0.1, batch, seed: 1 }
    }
}

/// Why training failed.
#[derive(Debug, thiserror::Error)]
pub enum PairTrainingError {
    /// No case has both a right and a wrong pair.
    #[error("no case of these conversations has a right pair beside a wrong one")]
    Nothing,
    /// The texts cannot be tokenised.
    #[error("the texts cannot be cut into pieces: {0}")]
    Pieces(String),
}

/// The result of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Epoch {
    /// The mean loss of the training cases during the epoch.
    pub loss: f64,
    /// The share of held-out cases whose best pair is right; `None` without held-out cases.
    pub held_out_right: Option<f64>,
}

/// The parts of a trained table.
pub struct Tuned {
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    /// The vectors of the kept epoch, by piece.
    pub vectors: Vec<f32>,
    /// Numbers per vector.
    pub dimensions: usize,
    /// The state before training, then each epoch.
    pub epochs: Vec<Epoch>,
    /// The index of the kept epoch.
    pub kept: usize,
    /// The cosine of each held-out pair by the kept vectors, and whether the pair is right.
    pub held_out: Vec<(f64, bool)>,
}

/// Trains on cases, from a given table or from none; calls `done` after each epoch.
///
/// # Errors
/// No case can be trained on, or a text cannot be tokenised.
pub fn tune(
    lessons: &[PairLesson],
    from: Option<&StaticTable>,
    training: &PairTraining,
    done: &dyn Fn(),
) -> Result<Tuned, PairTrainingError> {
    let teaches = |lesson: &&PairLesson| {
        let pairs = lesson.questions.len() * lesson.answers.len();
        !lesson.right.is_empty() && lesson.right.len() < pairs
    };
    let lessons: Vec<&PairLesson> = lessons.iter().filter(teaches).collect();
    let (held_out, learned): (Vec<&PairLesson>, Vec<&PairLesson>) = lessons
        .iter()
        .partition(|lesson| lesson.conversation % HOLD_OUT_EVERY == HOLD_OUT_EVERY - 1);
    if learned.is_empty() {
        return Err(PairTrainingError::Nothing);
    }
    let mut random = fastrand::Rng::with_seed(training.seed);
    let (tokenizer, vectors, dimensions) = match from {
        Some(table) => (table.tokenizer().clone(), table.vectors(), table.dimensions()),
        None => {
            let tokenizer = pieces_of(&learned, training.pieces)?;
            let count = tokenizer.get_vocab_size(true) * training.dimensions;
            let vectors = (0..count).map(|_| (random.f32() * 2.0 - 1.0) * SPREAD).collect();
            (tokenizer, vectors, training.dimensions)
        }
    };
    let cut = |lessons: &[&PairLesson]| -> Result<Vec<TokenisedLesson>, PairTrainingError> {
        lessons.iter().map(|lesson| TokenisedLesson::of(lesson, &tokenizer)).collect()
    };
    let (learned, held_out) = (cut(&learned)?, cut(&held_out)?);

    let mut learner = Learner { vectors: PieceVectors::new(vectors, dimensions), dimensions };
    let right = |learner: &Learner| {
        let right = held_out.iter().filter(|case| learner.is_right(case)).count();
        (!held_out.is_empty()).then(|| right as f64 / held_out.len() as f64)
    };
    let loss = learned.iter().map(|case| learner.scored(case, training.temperature).loss(case));
    let loss = loss.sum::<f64>() / learned.len() as f64;
    let mut epochs = vec![Epoch { loss, held_out_right: right(&learner) }];
    let (mut kept, mut best) = (0, learner.vectors.vectors().to_vec());
    let mut order: Vec<usize> = (0..learned.len()).collect();
    for _ in 0..training.epochs {
        random.shuffle(&mut order);
        let mut loss = 0.0;
        for batch in order.chunks(training.batch.max(1)) {
            for at in batch {
                let case = &learned[*at];
                let scored = learner.scored(case, training.temperature);
                loss += scored.loss(case);
                learner.pull(case, &scored, training.temperature * batch.len() as f32);
            }
            learner.vectors.step(training.rate);
        }
        let held_out_right = right(&learner);
        epochs.push(Epoch { loss: loss / learned.len() as f64, held_out_right });
        // Without held-out cases, the last epoch is kept.
        if held_out_right >= epochs[kept].held_out_right {
            (kept, best) = (epochs.len() - 1, learner.vectors.vectors().to_vec());
        }
        done();
    }
    let learner = Learner { vectors: PieceVectors::new(best, dimensions), dimensions };
    let cosines = held_out.iter().flat_map(|case| {
        let cosines = learner.scored(case, 1.0).scores.into_iter().map(f64::from);
        cosines.zip(case.right.iter().copied()).collect::<Vec<_>>()
    });
    let held_out = cosines.collect();
    Ok(Tuned {
        tokenizer,
        vectors: learner.vectors.into_vectors(),
        dimensions,
        epochs,
        kept,
        held_out,
    })
}

/// Learns frequent pieces from the texts: joins neighbouring pairs within words and punctuation.
fn pieces_of(lessons: &[&PairLesson], pieces: usize) -> Result<Tokenizer, PairTrainingError> {
    let failed = |error: tokenizers::Error| PairTrainingError::Pieces(error.to_string());
    let model = BPE::builder().unk_token(UNKNOWN.to_owned()).build().map_err(failed)?;
    let parts: Vec<PreTokenizerWrapper> =
        vec![WhitespaceSplit.into(), Punctuation::default().into()];
    let mut tokenizer = TokenizerBuilder::<
        BPE,
        NormalizerWrapper,
        PreTokenizerWrapper,
        PostProcessorWrapper,
        DecoderWrapper,
    >::new()
    .with_model(model)
    .with_pre_tokenizer(Some(Sequence::new(parts).into()))
    .build()
    .map_err(failed)?;
    let mut trainer = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(pieces)
        .special_tokens(vec![AddedToken::from(UNKNOWN, true)])
        .build();
    let texts: BTreeSet<&str> = lessons
        .iter()
        .flat_map(|lesson| lesson.questions.iter().chain(&lesson.answers))
        .map(String::as_str)
        .collect();
    tokenizer.train(&mut trainer, texts.into_iter()).map_err(failed)?;
    Ok(tokenizer.into())
}

/// A tokenised case.
struct TokenisedLesson {
    questions: Vec<Vec<u32>>,
    answers: Vec<Vec<u32>>,
    /// Whether each pair is right, question by question.
    right: Vec<bool>,
}

impl TokenisedLesson {
    fn of(lesson: &PairLesson, tokenizer: &Tokenizer) -> Result<Self, PairTrainingError> {
        let cut = |texts: &[String]| -> Result<Vec<Vec<u32>>, PairTrainingError> {
            let cut = |text: &String| {
                let encoding = tokenizer.encode_fast(text.as_str(), false);
                encoding.map(|encoding| encoding.get_ids().to_vec())
            };
            let pieces: Result<Vec<_>, _> = texts.iter().map(cut).collect();
            pieces.map_err(|error| PairTrainingError::Pieces(error.to_string()))
        };
        let (questions, answers) = (lesson.questions.len(), lesson.answers.len());
        let pairs = (0..questions).flat_map(|i| (0..answers).map(move |j| (i, j)));
        let right = pairs.map(|pair| lesson.right.contains(&pair)).collect();
        Ok(Self { questions: cut(&lesson.questions)?, answers: cut(&lesson.answers)?, right })
    }

    /// Returns the number of right pairs; never 0 for a training case.
    fn rights(&self) -> u16 {
        let rights = self.right.iter().filter(|right| **right).count();
        u16::try_from(rights.max(1)).unwrap_or(u16::MAX)
    }
}

/// A vector normalised to length 1, and its original length.
type Directed = (Vec<f32>, f32);

/// The vectors of a case's texts, and the scores of its pairs.
struct ScoredPairs {
    questions: Vec<Directed>,
    answers: Vec<Directed>,
    /// Cosines divided by the temperature.
    scores: Vec<f32>,
}

impl ScoredPairs {
    /// Returns each pair's share of the softmax over all pairs.
    fn shares(&self) -> Vec<f32> {
        let most = self.scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let shares: Vec<f32> = self.scores.iter().map(|score| (score - most).exp()).collect();
        let all: f32 = shares.iter().sum();
        shares.into_iter().map(|share| share / all).collect()
    }

    /// Returns the mean of −log of the right pairs' shares.
    fn loss(&self, case: &TokenisedLesson) -> f64 {
        let right = self.shares().into_iter().zip(&case.right).filter(|(_, right)| **right);
        let losses = right.map(|(share, _)| -f64::from(share.max(f32::MIN_POSITIVE)).ln());
        losses.sum::<f64>() / f64::from(case.rights())
    }
}

/// The vectors in training.
struct Learner {
    vectors: PieceVectors,
    dimensions: usize,
}

impl Learner {
    fn scored(&self, case: &TokenisedLesson, temperature: f32) -> ScoredPairs {
        let direction = |pieces: &Vec<u32>| {
            let mut sum = vec![0.0; self.dimensions];
            let length = self.vectors.sum(pieces, &mut sum).max(f32::MIN_POSITIVE);
            sum.iter_mut().for_each(|number| *number /= length);
            (sum, length)
        };
        let questions: Vec<_> = case.questions.iter().map(direction).collect();
        let answers: Vec<_> = case.answers.iter().map(direction).collect();
        let score =
            |(question, answer): (&Directed, &Directed)| dot(&question.0, &answer.0) / temperature;
        let pairs = questions.iter().flat_map(|one| answers.iter().map(move |other| (one, other)));
        let scores = pairs.map(score).collect();
        ScoredPairs { questions, answers, scores }
    }

    fn is_right(&self, case: &TokenisedLesson) -> bool {
        let scores = self.scored(case, 1.0).scores;
        let best =
            (0..scores.len()).reduce(|best, at| if scores[at] > scores[best] { at } else { best });
        best.is_some_and(|best| case.right[best])
    }

    /// Adds the gradient of the loss, divided by `scale`, to the pieces' gradients.
    fn pull(&mut self, case: &TokenisedLesson, scored: &ScoredPairs, scale: f32) {
        let (shares, rights) = (scored.shares(), case.rights() as f32);
        let width = scored.answers.len();
        let slope = |i: usize, j: usize| {
            let at = i * width + j;
            (shares[at] - if case.right[at] { 1.0 / rights } else { 0.0 }) / scale
        };
        for (i, own) in scored.questions.iter().enumerate() {
            let others = scored.answers.iter().enumerate();
            let gradient = turned(own, others.map(|(j, (answer, _))| (slope(i, j), answer)));
            self.vectors.pull(&case.questions[i], &gradient);
        }
        for (j, own) in scored.answers.iter().enumerate() {
            let others = scored.questions.iter().enumerate();
            let gradient = turned(own, others.map(|(i, (question, _))| (slope(i, j), question)));
            self.vectors.pull(&case.answers[j], &gradient);
        }
    }
}

/// Returns the gradient for the sum behind a direction n of length s, from the direction's gradient
/// g = Σ slope · other: (g − (g·n) n) / s.
fn turned<'v>(
    (direction, length): &Directed,
    others: impl Iterator<Item = (f32, &'v Vec<f32>)>,
) -> Vec<f32> {
    let mut gradient = vec![0.0; direction.len()];
    for (slope, other) in others {
        gradient.iter_mut().zip(other).for_each(|(sum, number)| *sum += slope * number);
    }
    let along = dot(&gradient, direction);
    for (number, own) in gradient.iter_mut().zip(direction) {
        *number = (*number - along * own) / length;
    }
    gradient
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lesson(
        conversation: usize,
        questions: &[&str],
        answers: &[&str],
        right: (usize, usize),
    ) -> PairLesson {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let right = BTreeSet::from([right]);
        PairLesson { conversation, questions: texts(questions), answers: texts(answers), right }
    }

    /// Returns questions and answers that share no word.
    fn lessons() -> Vec<PairLesson> {
        let pairs = [("sail", "ocean"), ("bake", "oven"), ("ski", "snow"), ("paint", "brush")];
        (0..40)
            .map(|at| {
                let (asked, other) = (pairs[at % 4], pairs[(at + 1 + at / 4 % 3) % 4]);
                let (first, second) = (at % 2, 1 - at % 2);
                let (mut questions, mut answers) = (["", ""], ["", ""]);
                (questions[first], questions[second]) = (asked.0, "tea");
                (answers[second], answers[first]) = (asked.1, other.1);
                lesson(at, &questions, &answers, (first, second))
            })
            .collect()
    }

    #[test]
    fn what_belongs_together_is_learned_and_kept() {
        let training =
            PairTraining { pieces: 300, dimensions: 8, rate: 0.03, ..PairTraining::default() };
        let tuned = tune(&lessons(), None, &training, &|| ()).expect("learned");
        assert_eq!(tuned.epochs.len(), 9);
        let kept = tuned.epochs[tuned.kept];
        assert_eq!(kept.held_out_right, Some(1.0));
        assert!(tuned.epochs[8].loss < 0.5 * tuned.epochs[0].loss, "{:?}", tuned.epochs);

        // A saved table gives the same vectors, and can be trained further.
        let bytes = StaticTable::to_bytes(
            "pairs",
            &tuned.tokenizer,
            &tuned.vectors,
            tuned.dimensions,
            None,
        );
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pairs.safetensors");
        std::fs::write(&path, bytes.expect("a table")).expect("written");
        let table = StaticTable::open(&path).expect("opens");
        let training = PairTraining { epochs: 1, ..training };
        let again = tune(&lessons(), Some(&table), &training, &|| ()).expect("learned");
        assert_eq!((again.dimensions, again.epochs[0].held_out_right), (8, Some(1.0)));
        assert!((again.epochs[0].loss - kept.loss).abs() < 0.3, "{:?} {kept:?}", again.epochs);
        let same = tune(&lessons(), Some(&table), &training, &|| ()).expect("learned");
        assert_eq!(same.vectors, again.vectors);
    }

    #[test]
    fn the_gradient_is_the_slope() {
        let lesson = lesson(0, &["a b", "c"], &["d a", "e", "f"], (0, 1));
        let tokenizer = pieces_of(&[&lesson], 300).expect("pieces");
        let case = TokenisedLesson::of(&lesson, &tokenizer).expect("cut");
        let mut random = fastrand::Rng::with_seed(4);
        let count = tokenizer.get_vocab_size(true) * 3;
        let vectors: Vec<f32> = (0..count).map(|_| random.f32() - 0.5).collect();
        let of = |vectors: &[f32]| Learner {
            vectors: PieceVectors::new(vectors.to_vec(), 3),
            dimensions: 3,
        };
        let mut learner = of(&vectors);
        let scored = learner.scored(&case, 0.5);
        learner.pull(&case, &scored, 0.5);
        let loss = |vectors: &[f32]| of(vectors).scored(&case, 0.5).loss(&case);
        let touched: BTreeSet<u32> =
            case.questions.iter().chain(&case.answers).flatten().copied().collect();
        assert!(touched.len() >= 6);
        for piece in touched {
            for (at, gradient) in learner.vectors.gradient(piece).iter().enumerate() {
                let place = piece as usize * 3 + at;
                let moved = |by: f32| {
                    let mut vectors = vectors.clone();
                    vectors[place] += by;
                    loss(&vectors)
                };
                let slope = (moved(1e-3) - moved(-1e-3)) / 2e-3;
                assert!((slope - f64::from(*gradient)).abs() < 2e-3, "{place}: {slope} {gradient}");
            }
        }
    }

    #[test]
    fn cases_that_teach_nothing_are_refused() {
        let training = PairTraining::default();
        let all_right = lesson(0, &["a"], &["b"], (0, 0));
        let none = tune(&[all_right], None, &training, &|| ()).err();
        assert!(matches!(none, Some(PairTrainingError::Nothing)));
    }
}
