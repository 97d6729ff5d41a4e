//! The attention encoder of RAGate-MHA (METHODS section 1), defined once for training and the
//! stream: token embeddings, layers of multi-head attention and feed-forward followed by a norm
//! (post-norm, ReLU), pooling, and one linear layer for all definitions of need.
//!
//! Unlike the paper's, the batches have no padding: the turns' tokens are rows of one matrix, and
//! only attention and pooling know where a turn ends.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use candle_core::{D, Device, Result, Tensor};
use serde::{Deserialize, Serialize};
use turnstream_ports::model::encoder::Encoder;

use super::ops::{Attended, attention, linear, norm};
use super::reading::{SEGMENTS, Tokens, TurnTokens};
use crate::static_table::StaticTable;

/// The parts of a turn that the encoder reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// The dialogue up to the turn (contx).
    #[default]
    Contx,
    /// The dialogue, then what was retrieved for it (contx ⊕ know).
    ContxPlusKnow,
    /// The dialogue, attending to what was retrieved (contx × know).
    ContxTimesKnow,
    /// The dialogue, then a response (contx ⊕ resp).
    ContxPlusResp,
}

impl Variant {
    /// The name on the command line, in cards and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Contx => "contx",
            Self::ContxPlusKnow => "contx-plus-know",
            Self::ContxTimesKnow => "contx-times-know",
            Self::ContxPlusResp => "contx-plus-resp",
        }
    }

    /// Whether the variant reads retrieved knowledge.
    pub fn reads_knowledge(self) -> bool {
        matches!(self, Self::ContxPlusKnow | Self::ContxTimesKnow)
    }

    /// Whether the variant reads a response.
    pub fn reads_response(self) -> bool {
        self == Self::ContxPlusResp
    }
}

/// The shape of an encoder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkShape {
    /// The encoder's input.
    pub variant: Variant,
    /// Numbers per token, a multiple of `heads`.
    pub width: usize,
    /// Attention heads.
    pub heads: usize,
    /// The number of layers.
    pub layers: usize,
    /// Width of the feed-forward layers.
    pub feed_forward: usize,
    /// The most tokens that are read of the dialogue, of the knowledge and of the response; the
    /// dialogue keeps its latest.
    pub max_tokens: usize,
    /// The most utterances that are read, the latest; 0 for as many as fit.
    pub max_utterances: usize,
    /// Whether the current utterance is also pooled separately, and the number of utterances is an
    /// input. The paper does neither.
    pub pools_current: bool,
}

impl NetworkShape {
    /// Width of a pooled turn.
    fn pooled(&self) -> usize {
        if self.pools_current { 3 * self.width } else { self.width }
    }
}

/// A parameter's initial values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initial {
    /// Uniform between ± this number.
    Uniform(f32),
    /// One constant.
    Constant(f32),
}

/// Classes of the number of utterances; the last class takes all larger numbers.
pub const DEPTHS: usize = 12;

/// Lists every parameter: name, shape and initial value. `words` is the number of rows of the
/// trained embedding, `table` the width of a fixed table's vectors, and `outputs` the number of
/// classes of all definitions.
pub fn parameters(
    shape: &NetworkShape,
    words: usize,
    table: Option<usize>,
    outputs: usize,
) -> Vec<(String, Vec<usize>, Initial)> {
    let (width, wide) = (shape.width, shape.feed_forward);
    let mut all = Vec::new();
    let even = |inputs: usize, outputs: usize| (6.0 / (inputs + outputs) as f32).sqrt();
    // Gives rows of about length 1.
    let small = Initial::Uniform((3.0 / width as f32).sqrt());
    // Beside a table, the embedding learns a word's difference from the table's vector.
    let word = if table.is_some() { Initial::Constant(0.0) } else { small };
    all.push(("words".to_owned(), vec![words, width], word));
    all.push(("positions".to_owned(), vec![shape.max_tokens, width], Initial::Uniform(0.05)));
    all.push(("segments".to_owned(), vec![SEGMENTS, width], small));
    if let Some(table) = table {
        all.push(("table".to_owned(), vec![table, width], small));
    }
    let layer_norm = |all: &mut Vec<_>, name: &str| {
        all.push((format!("{name}.scale"), vec![width], Initial::Constant(1.0)));
        all.push((format!("{name}.shift"), vec![width], Initial::Constant(0.0)));
    };
    let dense = |all: &mut Vec<_>, name: &str, inputs, outputs| {
        let weights = Initial::Uniform(even(inputs, outputs));
        all.push((format!("{name}.weights"), vec![inputs, outputs], weights));
        all.push((format!("{name}.bias"), vec![outputs], Initial::Constant(0.0)));
    };
    layer_norm(&mut all, "norm");
    for layer in 0..shape.layers {
        dense(&mut all, &format!("{layer}.queries"), width, width);
        dense(&mut all, &format!("{layer}.keys_and_values"), width, 2 * width);
        dense(&mut all, &format!("{layer}.attended"), width, width);
        layer_norm(&mut all, &format!("{layer}.attended.norm"));
        dense(&mut all, &format!("{layer}.widening"), width, wide);
        dense(&mut all, &format!("{layer}.narrowing"), wide, width);
        layer_norm(&mut all, &format!("{layer}.narrowing.norm"));
    }
    if shape.pools_current {
        all.push(("depths".to_owned(), vec![DEPTHS, width], small));
    }
    dense(&mut all, "classes", shape.pooled(), outputs);
    all
}

/// Dropout: during training, sets random numbers to zero and scales up the others.
pub struct Dropout<'r> {
    /// The share that is dropped, 0..1.
    pub share: f32,
    /// The random generator.
    pub random: &'r mut fastrand::Rng,
}

/// The encoder: shape, parameters by name, and the fixed table of vectors.
pub struct Network {
    shape: NetworkShape,
    parameters: BTreeMap<String, Tensor>,
    table: Option<Arc<StaticTable>>,
}

impl Network {
    /// Takes parameters by the names of [`parameters`].
    pub fn new(
        shape: NetworkShape,
        parameters: BTreeMap<String, Tensor>,
        table: Option<Arc<StaticTable>>,
    ) -> Self {
        Self { shape, parameters, table }
    }

    /// The shape of the encoder.
    pub fn shape(&self) -> &NetworkShape {
        &self.shape
    }

    /// The parameters by name.
    pub fn parameters(&self) -> &BTreeMap<String, Tensor> {
        &self.parameters
    }

    fn parameter(&self, name: &str) -> Result<&Tensor> {
        let missing = || candle_core::Error::Msg(format!("there is no parameter `{name}`")).bt();
        self.parameters.get(name).ok_or_else(missing)
    }

    fn linear(&self, name: &str, rows: &Tensor) -> Result<Tensor> {
        let weights = self.parameter(&format!("{name}.weights"))?;
        linear(rows, weights, self.parameter(&format!("{name}.bias"))?)
    }

    fn norm(&self, name: &str, rows: &Tensor) -> Result<Tensor> {
        let scale = self.parameter(&format!("{name}.scale"))?;
        norm(rows, scale, self.parameter(&format!("{name}.shift"))?)
    }

    /// Computes the logits: a row per turn, a column per class of all definitions.
    ///
    /// # Errors
    /// A parameter is missing or of another shape.
    pub fn forward(
        &self,
        turns: &[&TurnTokens],
        mut dropout: Option<Dropout<'_>>,
    ) -> Result<Tensor> {
        let (mut context, mut knowledge) = (Tokens::default(), Tokens::default());
        let cross = self.shape.variant == Variant::ContxTimesKnow;
        let mut sequences: Vec<Attended> = Vec::with_capacity(turns.len());
        for turn in turns {
            let asking = context.push(&turn.context);
            let asked = if cross { knowledge.push(&turn.knowledge) } else { asking.clone() };
            sequences.push((asking, asked));
        }
        let mut x = dropped(self.embed(&context)?, &mut dropout)?;
        let known = match cross && !knowledge.words.is_empty() {
            true => Some(dropped(self.embed(&knowledge)?, &mut dropout)?),
            false => None,
        };
        for layer in 0..self.shape.layers {
            let keys = match (&known, cross) {
                (Some(known), _) => Some(known),
                (None, true) => None,
                (None, false) => Some(&x),
            };
            if let Some(keys) = keys {
                let queries = self.linear(&format!("{layer}.queries"), &x)?;
                let keys = self.linear(&format!("{layer}.keys_and_values"), keys)?;
                let heads = self.shape.heads;
                let attended = attention(&queries, &keys, heads, &sequences)?;
                let attended = self.linear(&format!("{layer}.attended"), &attended)?;
                x = (x + dropped(attended, &mut dropout)?)?;
            }
            x = self.norm(&format!("{layer}.attended.norm"), &x)?;
            let wide = self.linear(&format!("{layer}.widening"), &x)?.relu()?;
            let narrow = self.linear(&format!("{layer}.narrowing"), &wide)?;
            x = (x + dropped(narrow, &mut dropout)?)?;
            x = self.norm(&format!("{layer}.narrowing.norm"), &x)?;
        }
        self.linear("classes", &dropped(self.pool(&x, turns, &sequences)?, &mut dropout)?)
    }

    /// Sums and normalises each token's word, position and segment embeddings and its table vector.
    fn embed(&self, rows: &Tokens) -> Result<Tensor> {
        let count = rows.words.len();
        let of = |name: &str, numbers: &[u32]| {
            self.parameter(name)?.index_select(&Tensor::new(numbers, &Device::Cpu)?, 0)
        };
        let mut sum = (of("words", &rows.words)? + of("positions", &rows.positions)?)?;
        sum = (sum + of("segments", &rows.segments)?)?;
        if let Some(table) = &self.table {
            let width = table.dimensions();
            let mut vectors = vec![0.0; count * width];
            for (piece, vector) in rows.pieces.iter().zip(vectors.chunks_exact_mut(width)) {
                table.direction(*piece, vector);
            }
            let vectors = Tensor::from_vec(vectors, (count, width), &Device::Cpu)?;
            let nothing = Tensor::zeros(self.shape.width, sum.dtype(), &Device::Cpu)?;
            sum = (sum + linear(&vectors, self.parameter("table")?, &nothing)?)?;
        }
        self.norm("norm", &sum)
    }

    /// Computes the mean of each turn's rows and, if the shape pools it separately, the mean of the
    /// current utterance and the number of utterances.
    fn pool(&self, x: &Tensor, turns: &[&TurnTokens], sequences: &[Attended]) -> Result<Tensor> {
        let rows = x.dims2()?.0;
        let mean = |of: &dyn Fn(usize) -> Range<usize>| {
            let mut shares = vec![0.0_f32; turns.len() * rows];
            for turn in 0..turns.len() {
                let of = of(turn);
                let share = 1.0 / of.len().max(1) as f32;
                shares[turn * rows..][of].fill(share);
            }
            Tensor::from_vec(shares, (turns.len(), rows), &Device::Cpu)?.matmul(x)
        };
        let whole = mean(&|turn| sequences[turn].0.clone())?;
        if !self.shape.pools_current {
            return Ok(whole);
        }
        let current = mean(&|turn| {
            let (from, current) = (sequences[turn].0.start, &turns[turn].current);
            from + current.start..from + current.end
        })?;
        let depths: Vec<u32> =
            turns.iter().map(|turn| (turn.depth.clamp(1, DEPTHS) - 1) as u32).collect();
        let depths = Tensor::new(depths, &Device::Cpu)?;
        let depths = self.parameter("depths")?.index_select(&depths, 0)?;
        Tensor::cat(&[whole, current, depths], D::Minus1)
    }
}

/// Applies dropout, while training.
fn dropped(x: Tensor, dropout: &mut Option<Dropout<'_>>) -> Result<Tensor> {
    let Some(Dropout { share, random }) = dropout else { return Ok(x) };
    if *share == 0.0 {
        return Ok(x);
    }
    let kept = 1.0 / (1.0 - *share);
    let mask = (0..x.elem_count()).map(|_| if random.f32() < *share { 0.0 } else { kept });
    let mask = Tensor::from_vec(mask.collect::<Vec<f32>>(), x.shape(), x.device())?;
    x * mask
}

#[cfg(test)]
mod tests;
