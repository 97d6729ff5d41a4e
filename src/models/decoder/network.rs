//! The forward pass of decoder-only transformers over pieces of several sequences at once. The
//! tokens of all pieces are rows of one matrix, without padding, at any position of their
//! sequences. Only attention distinguishes sequences: each row attends to its own sequence's cache.

use candle_core::Device;

use super::cache::KeyValues;
use super::kernels::{GroupedQueryAttention, add, cap, gated, norm};
use super::products::{Joined, Result, Rows, WeightMatrix, each_chunk};
use super::rope::Angles;
use super::shape::DecoderShape;
use super::weights::DecoderWeights;

/// A decoder's weights and shape.
pub(crate) struct DecoderNetwork {
    shape: DecoderShape,
    embeddings: WeightMatrix,
    layers: Vec<DecoderLayer>,
    norm: Vec<f32>,
    /// The output matrix; `None` if the embeddings serve as output.
    output: Option<WeightMatrix>,
}

struct DecoderLayer {
    norm: Vec<f32>,
    /// Queries, keys and values.
    projection: Joined,
    /// Norms of the heads, for queries and for keys.
    head_norms: Option<(Vec<f32>, Vec<f32>)>,
    output: Joined,
    norm_after: Option<Vec<f32>>,
    wide_norm: Vec<f32>,
    /// Gate and up.
    widening: Joined,
    narrowing: Joined,
    wide_norm_after: Option<Vec<f32>>,
}

/// The next tokens of a sequence.
pub(crate) struct Piece<'a> {
    /// At least one.
    pub(crate) tokens: &'a [u32],
    /// The position of the first token in its sequence.
    pub(crate) position: usize,
    /// The sequence's cache, to which these tokens are added.
    pub(crate) cache: &'a mut KeyValues,
    /// Whether the caller wants the logits after the last token.
    pub(crate) wants_logits: bool,
}

impl<'a> Piece<'a> {
    /// The next tokens of a sequence whose whole past is in `cache`.
    pub(crate) fn next(tokens: &'a [u32], cache: &'a mut KeyValues, wants_logits: bool) -> Self {
        Self { tokens, position: cache.tokens(), cache, wants_logits }
    }
}

impl DecoderNetwork {
    /// Takes the weights of a decoder of this shape.
    ///
    /// # Errors
    /// A tensor is missing, has another size or is left over; the message names it.
    pub(super) fn take(
        mut weights: DecoderWeights,
        shape: DecoderShape,
    ) -> std::result::Result<Self, String> {
        let embeddings =
            weights.find("token_embd.weight").ok_or("there is no tensor \"token_embd.weight\"")?;
        let embeddings = WeightMatrix::new(embeddings).map_err(|error| error.to_string())?;
        if embeddings.inputs() != shape.width {
            return Err(format!("embeddings have {} columns", embeddings.inputs()));
        }
        let layers = (0..shape.layers.len()).map(|at| DecoderLayer::take(&mut weights, at, &shape));
        let layers = layers.collect::<std::result::Result<_, _>>()?;
        let norm = weights.vector("output_norm.weight", shape.width)?;
        let output = match weights.find("output.weight") {
            None => None,
            Some(output) => Some(WeightMatrix::new(output).map_err(|error| error.to_string())?),
        };
        if let Some(output) = &output
            && (output.inputs(), output.outputs()) != (shape.width, embeddings.outputs())
        {
            return Err(format!("output.weight has {} rows", output.outputs()));
        }
        weights.finish()?;
        Ok(Self { shape, embeddings, layers, norm, output })
    }

    /// Moves the products to a device. The embedding table stays in memory for lookups; if it is
    /// the output matrix too, the device gets a copy.
    ///
    /// # Errors
    /// The device has no room, or does not support the products.
    pub(super) fn on(self, device: &Device) -> Result<Self> {
        let output = self.output.as_ref().unwrap_or(&self.embeddings).on(device)?;
        let layers = self.layers.into_iter().map(|layer| layer.on(device));
        Ok(Self { output: Some(output), layers: layers.collect::<Result<_>>()?, ..self })
    }

    /// The number of tokens in the vocabulary.
    pub(crate) fn vocabulary(&self) -> usize {
        self.embeddings.outputs()
    }

    pub(super) fn shape(&self) -> &DecoderShape {
        &self.shape
    }

    /// The most tokens of a sequence.
    pub(crate) fn positions(&self) -> usize {
        self.shape.positions
    }

    /// An empty cache.
    pub(crate) fn empty_cache(&self) -> KeyValues {
        KeyValues::new(self.layers.len(), self.shape.key_width())
    }

    /// Runs the pieces through the network and returns the logits of those that want them, in
    /// order. After an error the caches of the pieces are invalid.
    pub(crate) fn forward(&self, pieces: &mut [Piece<'_>]) -> Result<Vec<Vec<f32>>> {
        let ids: Vec<u32> = pieces.iter().flat_map(|piece| piece.tokens).copied().collect();
        let positions: Vec<usize> =
            pieces.iter().flat_map(|piece| (piece.position..).take(piece.tokens.len())).collect();
        let mut hidden = self.embeddings.rows(&ids)?;
        let factor = self.shape.embedding_factor();
        if factor != 1.0 {
            hidden.iter_mut().for_each(|x| *x *= factor);
        }
        let angles: Vec<Angles> =
            self.shape.ropes.iter().map(|rope| rope.angles(&positions)).collect();
        for (at, layer) in self.layers.iter().enumerate() {
            self.attend(at, layer, &mut hidden, &angles, pieces)?;
            self.feed_forward(layer, &mut hidden)?;
        }
        pieces.iter_mut().for_each(|piece| piece.cache.grow(piece.tokens.len()));
        self.logits(&hidden, pieces)
    }

    /// Adds the output of a layer's attention to the rows.
    fn attend(
        &self,
        at: usize,
        layer: &DecoderLayer,
        hidden: &mut [f32],
        angles: &[Angles],
        pieces: &mut [Piece<'_>],
    ) -> Result<()> {
        let DecoderShape { width, heads, key_heads, head, epsilon, .. } = self.shape;
        let normed = self.normed(hidden, &layer.norm);
        let mut projected = layer.projection.apply(&normed)?.into_numbers();
        let (queries, keys) = (heads * head, key_heads * head);
        let row = queries + 2 * keys;
        if let Some((of_queries, of_keys)) = &layer.head_norms {
            norm(&mut projected, (row, 0..queries), of_queries, epsilon);
            norm(&mut projected, (row, queries..queries + keys), of_keys, epsilon);
        }
        let angles = &angles[self.shape.layers[at].rope];
        angles.turn(&mut projected, row, heads + key_heads, head);
        let mut rows = projected.chunks_exact(row);
        for piece in pieces.iter_mut() {
            for row in rows.by_ref().take(piece.tokens.len()) {
                piece.cache.push(at, &row[queries..queries + keys], &row[queries + keys..]);
            }
        }
        let attended = Rows::new(self.attended(at, &projected, pieces), queries);
        let mut output = layer.output.apply(&attended)?.into_numbers();
        if let Some(after) = &layer.norm_after {
            norm(&mut output, (width, 0..width), after, epsilon);
        }
        add(hidden, &output);
        Ok(())
    }

    /// Computes the attended values of each row, from a layer whose keys and values were pushed.
    fn attended(&self, at: usize, projected: &[f32], pieces: &[Piece<'_>]) -> Vec<f32> {
        let DecoderShape { heads, key_heads, head, .. } = self.shape;
        let (queries, group) = (heads * head, heads / key_heads * head);
        let row = queries + 2 * key_heads * head;
        let window = self.shape.layers[at].window.unwrap_or(usize::MAX);
        // For each row, its piece and the number of attended tokens.
        let seen: Vec<(usize, usize)> = pieces
            .iter()
            .enumerate()
            .flat_map(|(piece, of)| {
                (of.cache.tokens() + 1..).take(of.tokens.len()).map(move |end| (piece, end))
            })
            .collect();
        let operations = seen.iter().map(|(_, end)| 2 * (*end).min(window) * queries).sum();
        let mut out = vec![0.0; seen.len() * queries];
        each_chunk(&mut out, group, operations, |chunk, out| {
            let (index, key_head) = (chunk / key_heads, chunk % key_heads);
            let (piece, end) = seen[index];
            let cache = &pieces[piece].cache;
            let (keys, values) = cache.layer(at);
            let range = end.saturating_sub(window) * cache.width()..end * cache.width();
            let attention = GroupedQueryAttention {
                queries: &projected[index * row + key_head * group..][..group],
                keys: &keys[range.clone()],
                values: &values[range],
                width: cache.width(),
                at: key_head * head,
                head,
                factor: self.shape.score_factor,
                cap: self.shape.score_cap,
            };
            attention.apply(&mut Vec::new(), out);
        });
        out
    }

    /// Adds the output of a layer's feed-forward to the rows.
    fn feed_forward(&self, layer: &DecoderLayer, hidden: &mut [f32]) -> Result<()> {
        let DecoderShape { width, wide, epsilon, .. } = self.shape;
        let normed = self.normed(hidden, &layer.wide_norm);
        let widened = layer.widening.apply(&normed)?;
        let gated = gated(widened.numbers(), wide, self.shape.family.activation());
        let mut output = layer.narrowing.apply(&Rows::new(gated, wide))?.into_numbers();
        if let Some(after) = &layer.wide_norm_after {
            norm(&mut output, (width, 0..width), after, epsilon);
        }
        add(hidden, &output);
        Ok(())
    }

    /// Normalises each row.
    fn normed(&self, hidden: &[f32], scale: &[f32]) -> Rows {
        let width = self.shape.width;
        let mut normed = hidden.to_vec();
        norm(&mut normed, (width, 0..width), scale, self.shape.epsilon);
        Rows::new(normed, width)
    }

    /// Computes the logits after the last token of each piece that wants them.
    fn logits(&self, hidden: &[f32], pieces: &[Piece<'_>]) -> Result<Vec<Vec<f32>>> {
        let width = self.shape.width;
        let (mut end, mut last) = (0, Vec::new());
        for piece in pieces {
            end += piece.tokens.len();
            if piece.wants_logits {
                last.extend_from_slice(&hidden[(end - 1) * width..end * width]);
            }
        }
        if last.is_empty() {
            return Ok(Vec::new());
        }
        let normed = self.normed(&last, &self.norm);
        let mut logits =
            self.output.as_ref().unwrap_or(&self.embeddings).apply(&normed)?.into_numbers();
        if let Some(bound) = self.shape.logit_cap {
            cap(&mut logits, bound);
        }
        Ok(logits.chunks_exact(self.vocabulary()).map(<[f32]>::to_vec).collect())
    }
}

impl DecoderLayer {
    fn take(
        weights: &mut DecoderWeights,
        at: usize,
        shape: &DecoderShape,
    ) -> std::result::Result<Self, String> {
        let DecoderShape { family, width, heads, head, wide, .. } = *shape;
        let (queries, keys) = (heads * head, shape.key_width());
        let name = |part: &str| format!("blk.{at}.{part}.weight");
        let failed = |error: candle_core::Error| format!("layer {at}: {error}");
        let projection = match weights.find(&name("attn_qkv")) {
            Some(fused) if fused.shape().dims() == [queries + 2 * keys, width] => vec![fused],
            Some(fused) => return Err(format!("{:?} is {:?}", name("attn_qkv"), fused.shape())),
            None => vec![
                weights.matrix(&name("attn_q"), (queries, width))?,
                weights.matrix(&name("attn_k"), (keys, width))?,
                weights.matrix(&name("attn_v"), (keys, width))?,
            ],
        };
        let mut norm_if = |there: bool, part: &str, length: usize| match there {
            true => weights.vector(&name(part), length).map(Some),
            false => Ok(None),
        };
        let of_queries = norm_if(family.norms_heads(), "attn_q_norm", head)?;
        let of_keys = norm_if(family.norms_heads(), "attn_k_norm", head)?;
        let norm_after = norm_if(family.norms_after(), "post_attention_norm", width)?;
        let wide_norm_after = norm_if(family.norms_after(), "post_ffw_norm", width)?;
        let widening = match weights.find(&name("ffn_gate")) {
            None => vec![weights.matrix(&name("ffn_up"), (2 * wide, width))?],
            Some(gate) if gate.shape().dims() == [wide, width] => {
                vec![gate, weights.matrix(&name("ffn_up"), (wide, width))?]
            }
            Some(gate) => return Err(format!("{:?} is {:?}", name("ffn_gate"), gate.shape())),
        };
        let parts = [("attn_q", queries), ("attn_k", keys), ("attn_v", keys)];
        let bias = bias(weights, at, &parts, family == super::shape::Family::Qwen2)?;
        let output_bias = self::bias(weights, at, &[("attn_output", width)], false)?;
        let output = weights.matrix(&name("attn_output"), (width, queries))?;
        let narrowing = weights.matrix(&name("ffn_down"), (width, wide))?;
        Ok(Self {
            norm: weights.vector(&name("attn_norm"), width)?,
            projection: Joined::new(projection, bias).map_err(failed)?,
            head_norms: of_queries.zip(of_keys),
            output: Joined::new(vec![output], output_bias).map_err(failed)?,
            norm_after,
            wide_norm: weights.vector(&name("ffn_norm"), width)?,
            widening: Joined::new(widening, None).map_err(failed)?,
            narrowing: Joined::new(vec![narrowing], None).map_err(failed)?,
            wide_norm_after,
        })
    }

    /// Moves the layer's products to a device.
    fn on(self, device: &Device) -> Result<Self> {
        Ok(Self {
            projection: self.projection.on(device)?,
            output: self.output.on(device)?,
            widening: self.widening.on(device)?,
            narrowing: self.narrowing.on(device)?,
            ..self
        })
    }
}

/// Concatenates the biases of a layer's parts. If the first part has a bias, all must.
fn bias(
    weights: &mut DecoderWeights,
    at: usize,
    parts: &[(&str, usize)],
    needed: bool,
) -> std::result::Result<Option<Vec<f32>>, String> {
    let name = |part: &str| format!("blk.{at}.{part}.bias");
    if !needed && !parts.iter().any(|(part, _)| weights.has(&name(part))) {
        return Ok(None);
    }
    let parts = parts.iter().map(|(part, length)| weights.vector(&name(part), *length));
    Ok(Some(parts.collect::<std::result::Result<Vec<_>, _>>()?.concat()))
}
