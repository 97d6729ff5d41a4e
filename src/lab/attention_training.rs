//! Trains W (DH-RAG eq 6): for each question, the texts with its gold evidence should receive the
//! attention among all recalled texts.
//!
//! The loss of a question is −Σ log w_i / n over its n gold texts. W starts as a scaled identity
//! and decays towards it, because there are far fewer questions than numbers in W. A step uses all
//! questions at once and draws nothing, so the same questions give the same weights.

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW};
use turnstream_operators::attention::{Attention, Compared};
use turnstream_ports::model::matrix::Matrix;

/// A question with the texts recalled for it.
#[derive(Clone, Debug)]
pub struct Example {
    /// The question.
    pub query: Compared,
    /// The recalled texts in their ranked order.
    pub texts: Vec<Compared>,
    /// Whether each text holds gold evidence.
    pub gold: Vec<bool>,
}

/// The hyperparameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Training {
    /// The temperature of the initial W, as in the configuration of `integration`.
    pub temperature: f64,
    /// The share of vectors in the initial W, 0..=1.
    pub meaning_share: f64,
    /// The number of steps.
    pub steps: usize,
    /// AdamW's learning rate.
    pub rate: f64,
    /// The strength of the decay towards the initial W, 0 and above.
    pub decay: f64,
}

impl Default for Training {
    fn default() -> Self {
        Self { temperature: 0.1, meaning_share: 0.2, steps: 100, rate: 0.01, decay: 10.0 }
    }
}

/// The result of a training.
#[derive(Clone, Debug)]
pub struct Trained {
    /// The weight of lexical similarity beside vectors.
    pub words: f64,
    /// The weight of lexical similarity without vectors.
    pub words_alone: f64,
    /// The trained W.
    pub matrix: Matrix,
    /// The mean loss before the first step and after the last.
    pub loss: [f64; 2],
    /// Questions whose recalled texts included both gold and other texts.
    pub questions: usize,
}

impl Trained {
    /// Returns the attention, in the form that `integration` uses.
    pub fn attention(&self) -> Attention {
        Attention::trained(self.words, self.words_alone, self.matrix.clone())
    }
}

/// Trains W on questions whose vectors have `dimensions` numbers. Calls `progress` once a step.
///
/// # Errors
/// The arithmetic fails because a vector has another length.
pub fn train(
    examples: &[Example],
    dimensions: usize,
    training: &Training,
    progress: &dyn Fn(),
) -> Result<Trained> {
    let batch = Batch::of(examples, dimensions)?;
    let Training { temperature, meaning_share, .. } = *training;
    let scaled =
        (Tensor::eye(dimensions, DType::F32, &Device::Cpu)? * (meaning_share / temperature))?;
    let begun = Tensor::new((1.0 - meaning_share) as f32 / temperature as f32, &Device::Cpu)?;
    let matrix = Var::zeros((dimensions, dimensions), DType::F32, &Device::Cpu)?;
    let words = Var::zeros((), DType::F32, &Device::Cpu)?;
    let params =
        ParamsAdamW { lr: training.rate, weight_decay: training.decay, ..ParamsAdamW::default() };
    let mut optimiser = AdamW::new(vec![matrix.clone(), words.clone()], params)?;
    let now = || {
        Ok::<_, candle_core::Error>((
            (&scaled + matrix.as_tensor())?,
            (&begun + words.as_tensor())?,
        ))
    };
    let loss = || {
        let (matrix, words) = now()?;
        batch.loss(&matrix, &words)
    };
    let before = loss()?.to_scalar::<f32>()?;
    for _ in 0..training.steps {
        optimiser.backward_step(&loss()?)?;
        progress();
    }
    let after = loss()?.to_scalar::<f32>()?;
    let (matrix, words) = now()?;
    let numbers: Vec<f32> = matrix.flatten_all()?.to_vec1()?;
    let matrix = Matrix::new(dimensions, numbers)
        .ok_or_else(|| candle_core::Error::Msg("the matrix is not square".to_owned()))?;
    Ok(Trained {
        words: f64::from(words.to_scalar::<f32>()?),
        words_alone: 1.0 / temperature,
        matrix,
        loss: [before, after].map(f64::from),
        questions: batch.questions,
    })
}

/// All questions, padded to the longest list of texts.
struct Batch {
    questions: usize,
    /// (questions, 1, dimensions).
    queries: Tensor,
    /// (questions, dimensions, texts).
    texts: Tensor,
    /// (questions, texts): lexical similarity.
    words: Tensor,
    /// (questions, texts): 0 for a text, a large negative number for padding.
    padding: Tensor,
    /// (questions, texts): 1 ÷ n for each of n gold texts.
    gold: Tensor,
}

impl Batch {
    fn of(examples: &[Example], dimensions: usize) -> Result<Self> {
        let teaches = |example: &&Example| {
            example.gold.iter().any(|gold| *gold) && example.gold.iter().any(|gold| !gold)
        };
        let examples: Vec<&Example> = examples.iter().filter(teaches).collect();
        let most = examples.iter().map(|example| example.texts.len()).max().unwrap_or(0);
        let (mut queries, mut texts, mut words) = (Vec::new(), Vec::new(), Vec::new());
        let (mut padding, mut gold) = (Vec::new(), Vec::new());
        for example in &examples {
            queries.extend(vector(&example.query, dimensions));
            let golds = example.gold.iter().filter(|gold| **gold).count() as f32;
            let likenesses = example.query.likeness_of_words(&example.texts);
            words.extend(likenesses.into_iter().map(|likeness| likeness as f32));
            for (text, is_gold) in example.texts.iter().zip(&example.gold) {
                texts.extend(vector(text, dimensions));
                padding.push(0.0);
                gold.push(f32::from(u8::from(*is_gold)) / golds);
            }
            let missing = most - example.texts.len();
            texts.extend(std::iter::repeat_n(0.0_f32, missing * dimensions));
            words.extend(std::iter::repeat_n(0.0, missing));
            padding.extend(std::iter::repeat_n(-1e9_f32, missing));
            gold.extend(std::iter::repeat_n(0.0, missing));
        }
        let (questions, device) = (examples.len(), &Device::Cpu);
        if questions == 0 {
            let what = "no question recalled both gold evidence and other texts";
            return Err(candle_core::Error::Msg(what.to_owned()));
        }
        let shape = (questions, most);
        let texts = Tensor::from_vec(texts, (questions, most, dimensions), device)?;
        Ok(Self {
            questions,
            queries: Tensor::from_vec(queries, (questions, dimensions), device)?,
            texts: texts.transpose(1, 2)?.contiguous()?,
            words: Tensor::from_vec(words, shape, device)?,
            padding: Tensor::from_vec(padding, shape, device)?,
            gold: Tensor::from_vec(gold, shape, device)?,
        })
    }

    /// Returns the mean loss over the questions.
    fn loss(&self, matrix: &Tensor, words: &Tensor) -> Result<Tensor> {
        let asked = self.queries.matmul(matrix)?.unsqueeze(1)?;
        let meaning = asked.matmul(&self.texts)?.squeeze(1)?;
        let logits = (meaning + self.words.broadcast_mul(words)?)?;
        let log_shares = candle_nn::ops::log_softmax(&(logits + &self.padding)?, 1)?;
        let of_gold = (log_shares * &self.gold)?.sum_all()?;
        of_gold * (-1.0 / self.questions as f64)
    }
}

/// Returns a text's vector; zeros if the encoder knows no word of it.
fn vector(text: &Compared, dimensions: usize) -> Vec<f32> {
    match text.vector() {
        [] => vec![0.0; dimensions],
        vector => vector.to_vec(),
    }
}

#[cfg(test)]
mod tests;
