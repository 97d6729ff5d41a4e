//! The forward pass of BERT (Devlin et al. 2019) over several sequences at once, without padding.
//! The tokens of all sequences are rows of one matrix; only attention needs to know where a
//! sequence ends.

use std::collections::HashMap;
use std::ops::Range;

use candle_core::{DType, Device, Tensor};

use super::kernels::{Attention, Linear, Norm, SequenceRows, add_bias, gelu};
use super::quantised::QuantisedMatrix;
use crate::folder::BertShape;

/// The weights, in the layout of the passes.
pub(crate) struct BertNetwork {
    words: Vec<f32>,
    positions: Vec<f32>,
    types: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
    width: usize,
    head: usize,
}

struct Layer {
    /// Queries, keys and values in one product.
    projection: Linear,
    output: Linear,
    output_norm: Norm,
    widening: Linear,
    narrowing: Linear,
    narrowing_norm: Norm,
}

/// Upper layers that a network can have in place of its own.
pub(crate) struct UpperLayers(Vec<Layer>);

impl UpperLayers {
    /// Takes layers under `NAME.0`, `NAME.1` and so on from a file that may hold others too.
    ///
    /// # Errors
    /// A tensor is missing or has another shape; the message names it.
    pub(crate) fn take(
        weights: &mut Weights,
        name: &str,
        shape: &BertShape,
    ) -> Result<Self, String> {
        let begins = |at: usize| format!("{name}.{at}");
        let is_there =
            |weights: &Weights, at| weights.has(&format!("{}.output.dense.weight", begins(at)));
        let mut layers = Vec::new();
        while is_there(weights, layers.len()) {
            layers.push(weights.layer(&begins(layers.len()), shape)?);
        }
        Ok(Self(layers))
    }

    /// How many there are.
    pub(crate) fn layers(&self) -> usize {
        self.0.len()
    }
}

/// The concatenated tokens of several sequences.
#[derive(Default)]
pub(crate) struct Batch {
    ids: Vec<u32>,
    types: Vec<u32>,
    sequences: Vec<SequenceRows>,
}

impl Batch {
    /// Adds a sequence.
    pub(crate) fn push(&mut self, ids: &[u32], types: &[u32]) {
        let start = self.ids.len();
        self.ids.extend_from_slice(ids);
        self.types.extend_from_slice(types);
        self.sequences.push(start..self.ids.len());
    }

    /// Tokens in all sequences.
    pub(crate) fn tokens(&self) -> usize {
        self.ids.len()
    }

    /// The rows of each sequence.
    pub(crate) fn sequences(&self) -> &[SequenceRows] {
        &self.sequences
    }

    /// Removes all sequences.
    pub(crate) fn clear(&mut self) {
        self.ids.clear();
        self.types.clear();
        self.sequences.clear();
    }
}

impl BertNetwork {
    /// Reads the weights from a safetensors file.
    ///
    /// # Errors
    /// A tensor is missing or has another shape; the message names it.
    pub(crate) fn read(bytes: &[u8], shape: &BertShape) -> Result<Self, String> {
        Self::take(&mut Weights::read(bytes)?, shape)
    }

    /// Takes the network's weights from a file that may hold others too.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub(crate) fn take(weights: &mut Weights, shape: &BertShape) -> Result<Self, String> {
        let width = shape.hidden_size;
        let epsilon = shape.layer_norm_eps;
        Ok(Self {
            words: weights.take("embeddings.word_embeddings.weight", &[shape.vocab_size, width])?,
            positions: weights.take(
                "embeddings.position_embeddings.weight",
                &[shape.max_position_embeddings, width],
            )?,
            types: weights
                .take("embeddings.token_type_embeddings.weight", &[shape.type_vocab_size, width])?,
            norm: weights.norm("embeddings.LayerNorm", width, epsilon)?,
            layers: (0..shape.num_hidden_layers)
                .map(|layer| weights.layer(&format!("encoder.layer.{layer}"), shape))
                .collect::<Result<_, _>>()?,
            width,
            head: width / shape.num_attention_heads,
        })
    }

    /// Numbers per row.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Returns the last layer's rows, one per token.
    ///
    /// # Errors
    /// A token has no embedding.
    pub(crate) fn forward(&self, batch: &Batch) -> Result<Vec<f32>, String> {
        Ok(self.through(self.embed(batch)?, &batch.sequences, &self.layers))
    }

    /// Returns what some layers make of a sequence of rows.
    pub(crate) fn through_layers(&self, rows: Vec<f32>, layers: Range<usize>) -> Vec<f32> {
        let sequence = 0..rows.len() / self.width;
        self.through(rows, &[sequence], &self.layers[layers])
    }

    /// Returns what these layers make of a sequence of rows, in place of the network's own.
    pub(crate) fn above_with(&self, rows: Vec<f32>, upper: &UpperLayers) -> Vec<f32> {
        let sequence = 0..rows.len() / self.width;
        self.through(rows, &[sequence], &upper.0)
    }

    /// How many layers the network has.
    pub(crate) fn layers(&self) -> usize {
        self.layers.len()
    }

    fn through(
        &self,
        mut rows: Vec<f32>,
        sequences: &[SequenceRows],
        layers: &[Layer],
    ) -> Vec<f32> {
        let (mut projected, mut attended, mut output, mut wide) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for layer in layers {
            layer.projection.apply(&rows, &mut projected);
            add_bias(&mut projected, &layer.projection.bias);
            let attention = Attention { projected: &projected, width: self.width, head: self.head };
            attention.apply(sequences, &mut attended);
            layer.output.apply(&attended, &mut output);
            layer.output_norm.apply_sum(&mut output, &layer.output.bias, &rows);
            layer.widening.apply(&output, &mut wide);
            gelu(&mut wide, &layer.widening.bias);
            layer.narrowing.apply(&wide, &mut rows);
            layer.narrowing_norm.apply_sum(&mut rows, &layer.narrowing.bias, &output);
        }
        rows
    }

    /// Sums and normalises the word, position and type embeddings of each token.
    ///
    /// # Errors
    /// As for [`Self::forward`].
    pub(crate) fn embed(&self, batch: &Batch) -> Result<Vec<f32>, String> {
        let mut out = Vec::with_capacity(batch.tokens() * self.width);
        for sequence in &batch.sequences {
            for (position, at) in sequence.clone().enumerate() {
                let word = self.row("word", &self.words, batch.ids[at] as usize)?;
                let kind = self.row("token type", &self.types, batch.types[at] as usize)?;
                let position = self.row("position", &self.positions, position)?;
                let sums = word.iter().zip(kind).zip(position);
                out.extend(sums.map(|((word, kind), position)| word + kind + position));
            }
        }
        self.norm.apply(&mut out);
        Ok(out)
    }

    /// A row of a table of embeddings.
    fn row<'a>(&self, table: &str, rows: &'a [f32], at: usize) -> Result<&'a [f32], String> {
        let row = rows.get(at * self.width..(at + 1) * self.width);
        row.ok_or_else(|| format!("the model has no {table} embedding {at}"))
    }
}

/// Tensors by name. Checkpoints of task models prefix the names, and old checkpoints name scale and
/// shift differently.
pub(crate) struct Weights {
    tensors: HashMap<String, Tensor>,
    /// Matrices of 8 bits.
    quantised: HashMap<String, QuantisedMatrix>,
}

impl Weights {
    /// Reads all tensors of a safetensors file.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let tensors = candle_core::safetensors::load_buffer(bytes, &Device::Cpu);
        let tensors = tensors.map_err(|error| error.to_string())?;
        let plain = |name: String| {
            let name = name.strip_prefix("bert.").unwrap_or(&name);
            name.replace("LayerNorm.gamma", "LayerNorm.weight")
                .replace("LayerNorm.beta", "LayerNorm.bias")
        };
        let tensors = tensors.into_iter().map(|(name, tensor)| (plain(name), tensor)).collect();
        Ok(Self { tensors, quantised: HashMap::new() })
    }

    /// Tensors under the names that a task model gives them.
    pub(crate) fn of(
        tensors: HashMap<String, Tensor>,
        quantised: HashMap<String, QuantisedMatrix>,
    ) -> Self {
        Self { tensors, quantised }
    }

    /// The same weights with matrices in f32, for exact products.
    #[cfg(test)]
    pub(crate) fn in_floats(mut self) -> Self {
        for (name, matrix) in std::mem::take(&mut self.quantised) {
            let shape = (matrix.scales.len(), matrix.columns());
            let tensor = Tensor::from_vec(matrix.numbers(), shape, &Device::Cpu);
            self.tensors.insert(name, tensor.expect("as many numbers as rows times columns"));
        }
        self
    }

    fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name) || self.quantised.contains_key(name)
    }

    /// Removes a tensor of this shape.
    pub(crate) fn take(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
        if let Some(matrix) = self.take_quantised(name, shape)? {
            return Ok(matrix.numbers());
        }
        let tensor =
            self.tensors.remove(name).ok_or_else(|| format!("there is no tensor `{name}`"))?;
        check_shape(name, tensor.dims(), shape)?;
        let numbers =
            tensor.to_dtype(DType::F32).and_then(|tensor| tensor.flatten_all()?.to_vec1());
        numbers.map_err(|error| format!("tensor `{name}`: {error}"))
    }

    /// Removes a matrix of 8 bits, if there is one of this name.
    fn take_quantised(
        &mut self,
        name: &str,
        shape: &[usize],
    ) -> Result<Option<QuantisedMatrix>, String> {
        let Some(matrix) = self.quantised.remove(name) else { return Ok(None) };
        check_shape(name, &[matrix.scales.len(), matrix.columns()], shape)?;
        Ok(Some(matrix))
    }

    /// Joins layers that read the same rows into one.
    pub(crate) fn linear(
        &mut self,
        names: &[String],
        inputs: usize,
        outputs: usize,
    ) -> Result<Linear, String> {
        let weight = |name: &String| format!("{name}.weight");
        let shape = [outputs, inputs];
        if names.iter().all(|name| self.quantised.contains_key(&weight(name))) {
            let mut joined = QuantisedMatrix { values: Vec::new(), scales: Vec::new() };
            for name in names {
                if let Some(matrix) = self.take_quantised(&weight(name), &shape)? {
                    joined.values.extend(matrix.values);
                    joined.scales.extend(matrix.scales);
                }
            }
            return Ok(Linear::quantised(&joined, self.biases(names, outputs)?));
        }
        let all = names.len() * outputs;
        let mut weights = vec![0.0; inputs * all];
        for (part, name) in names.iter().enumerate() {
            let rows = self.take(&weight(name), &shape)?;
            for (output, row) in rows.chunks_exact(inputs).enumerate() {
                for (input, weight) in row.iter().enumerate() {
                    weights[input * all + part * outputs + output] = *weight;
                }
            }
        }
        Ok(Linear::new(weights, self.biases(names, outputs)?))
    }

    fn biases(&mut self, names: &[String], outputs: usize) -> Result<Vec<f32>, String> {
        let mut bias = Vec::with_capacity(names.len() * outputs);
        for name in names {
            bias.extend(self.take(&format!("{name}.bias"), &[outputs])?);
        }
        Ok(bias)
    }

    fn norm(&mut self, name: &str, width: usize, epsilon: f32) -> Result<Norm, String> {
        let scale = self.take(&format!("{name}.weight"), &[width])?;
        let shift = self.take(&format!("{name}.bias"), &[width])?;
        Ok(Norm { scale, shift, epsilon })
    }

    fn layer(&mut self, at: &str, shape: &BertShape) -> Result<Layer, String> {
        let (width, wide, epsilon) =
            (shape.hidden_size, shape.intermediate_size, shape.layer_norm_eps);
        let name = |part: &str| format!("{at}.{part}");
        let projections = ["query", "key", "value"].map(|of| name(&format!("attention.self.{of}")));
        Ok(Layer {
            projection: self.linear(&projections, width, width)?,
            output: self.linear(&[name("attention.output.dense")], width, width)?,
            output_norm: self.norm(&name("attention.output.LayerNorm"), width, epsilon)?,
            widening: self.linear(&[name("intermediate.dense")], width, wide)?,
            narrowing: self.linear(&[name("output.dense")], wide, width)?,
            narrowing_norm: self.norm(&name("output.LayerNorm"), width, epsilon)?,
        })
    }
}

fn check_shape(name: &str, found: &[usize], expected: &[usize]) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    Err(format!("tensor `{name}` is {found:?}, not {expected:?}"))
}
