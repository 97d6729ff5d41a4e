//! The key-value cache of a sequence. With it, the next token costs one row instead of all. Our
//! own, because candle's caches cannot be cut at an arbitrary token.

/// Keys and values of a sequence, for each layer. A row per token holds all heads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeyValues {
    layers: Vec<LayerCache>,
    width: usize,
    tokens: usize,
}

#[derive(Clone, Debug, PartialEq)]
struct LayerCache {
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl KeyValues {
    /// An empty cache with `width` numbers per token in each layer.
    pub(crate) fn new(layers: usize, width: usize) -> Self {
        let layer = LayerCache { keys: Vec::new(), values: Vec::new() };
        Self { layers: vec![layer; layers], width, tokens: 0 }
    }

    /// The number of cached tokens.
    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }

    /// The size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        Self::bytes_per_token(self.layers.len(), self.width) * self.tokens
    }

    /// Bytes per token.
    pub(crate) fn bytes_per_token(layers: usize, width: usize) -> usize {
        2 * layers * width * size_of::<f32>()
    }

    /// Copies the keys and values of at most the first `tokens` tokens.
    pub(crate) fn prefix(&self, tokens: usize) -> Self {
        let tokens = tokens.min(self.tokens);
        let of = |numbers: &[f32]| numbers[..tokens * self.width].to_vec();
        let layers = self.layers.iter();
        let layers = layers.map(|at| LayerCache { keys: of(&at.keys), values: of(&at.values) });
        Self { layers: layers.collect(), width: self.width, tokens }
    }

    /// Adds a token's keys and values to a layer. [`Self::grow`] makes the token count.
    pub(crate) fn push(&mut self, layer: usize, keys: &[f32], values: &[f32]) {
        debug_assert_eq!((keys.len(), values.len()), (self.width, self.width));
        let layer = &mut self.layers[layer];
        layer.keys.extend_from_slice(keys);
        layer.values.extend_from_slice(values);
    }

    /// Counts `tokens` tokens that were added to every layer.
    pub(crate) fn grow(&mut self, tokens: usize) {
        self.tokens += tokens;
        debug_assert!(self.layers.iter().all(|at| at.keys.len() == self.tokens * self.width));
    }

    /// Appends the keys and values of another sequence, from its token `from` on.
    pub(crate) fn append(&mut self, other: &Self, from: usize) {
        let from = from.min(other.tokens);
        for (layer, of_other) in self.layers.iter_mut().zip(&other.layers) {
            layer.keys.extend_from_slice(&of_other.keys[from * self.width..]);
            layer.values.extend_from_slice(&of_other.values[from * self.width..]);
        }
        self.grow(other.tokens - from);
    }

    /// Returns a layer's keys and values, including tokens that are being added.
    pub(crate) fn layer(&self, layer: usize) -> (&[f32], &[f32]) {
        let layer = &self.layers[layer];
        (&layer.keys, &layer.values)
    }

    /// Numbers per token.
    pub(crate) fn width(&self) -> usize {
        self.width
    }
}
