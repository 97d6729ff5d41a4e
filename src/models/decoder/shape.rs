//! The shape of a decoder-only transformer: one network implements all families by these
//! parameters. They come from the metadata of a GGUF file or from `config.json`. Unknown keys that
//! change the computation are refused by name, since a wrong computation gives no error, only
//! nonsense.

use super::rope::Rope;

pub(super) mod config_json;
pub(super) mod metadata;

/// The supported families of decoders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Llama 1 to 3, SmolLM and SmolLM2, Mistral.
    Llama,
    /// Qwen2 and 2.5: queries, keys and values have a bias.
    Qwen2,
    /// Qwen3: a norm on each head of queries and keys.
    Qwen3,
    /// Gemma 1: embeddings scaled, GELU.
    Gemma,
    /// Gemma 2: a norm after each part too, capped scores, and a sliding window in every other
    /// layer.
    Gemma2,
    /// Gemma 3: as Gemma 2, with norms on each head of queries and keys, and two bases of RoPE.
    Gemma3,
    /// Phi-3 and Phi-4: fused projections.
    Phi3,
}

impl Family {
    /// Finds the family by GGUF's `general.architecture`.
    pub(super) fn of_gguf(architecture: &str) -> Result<Self, String> {
        Ok(match architecture {
            "llama" => Self::Llama,
            "qwen2" => Self::Qwen2,
            "qwen3" => Self::Qwen3,
            "gemma" => Self::Gemma,
            "gemma2" => Self::Gemma2,
            "gemma3" => Self::Gemma3,
            "phi3" => Self::Phi3,
            other => {
                return Err(format!(
                    "general.architecture is {other:?}; known are llama, qwen2, qwen3, gemma, \
                     gemma2, gemma3 and phi3"
                ));
            }
        })
    }

    /// Finds the family by `model_type` of `config.json`.
    pub(super) fn of_config(model_type: &str) -> Result<Self, String> {
        Ok(match model_type {
            "llama" | "mistral" => Self::Llama,
            "qwen2" => Self::Qwen2,
            "qwen3" => Self::Qwen3,
            "gemma" => Self::Gemma,
            "gemma2" => Self::Gemma2,
            "gemma3_text" => Self::Gemma3,
            "phi3" => Self::Phi3,
            other => {
                return Err(format!(
                    "model_type is {other:?}; known are llama, mistral, qwen2, qwen3, gemma, \
                     gemma2, gemma3_text and phi3"
                ));
            }
        })
    }

    pub(super) fn is_gemma(self) -> bool {
        matches!(self, Self::Gemma | Self::Gemma2 | Self::Gemma3)
    }

    /// Whether each head of queries and keys has a norm.
    pub(super) fn norms_heads(self) -> bool {
        matches!(self, Self::Qwen3 | Self::Gemma3)
    }

    /// Whether a norm follows attention and feed-forward, besides the one before.
    pub(super) fn norms_after(self) -> bool {
        matches!(self, Self::Gemma2 | Self::Gemma3)
    }

    /// The activation of the feed-forward gate.
    pub(super) fn activation(self) -> Activation {
        if self.is_gemma() { Activation::GeluTanh } else { Activation::Silu }
    }
}

/// The activation of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activation {
    /// x · sigmoid(x).
    Silu,
    /// GELU in its tanh approximation.
    GeluTanh,
}

/// The parameters of a decoder.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DecoderShape {
    pub(super) family: Family,
    /// Numbers per token between layers.
    pub(super) width: usize,
    /// Query heads.
    pub(super) heads: usize,
    /// Key and value heads; each serves `heads / key_heads` query heads.
    pub(super) key_heads: usize,
    /// Numbers per head.
    pub(super) head: usize,
    /// Numbers per token inside the feed-forward.
    pub(super) wide: usize,
    /// The training length, in tokens.
    pub(super) positions: usize,
    /// Added to the mean square in norms.
    pub(super) epsilon: f32,
    /// Factor of the scores.
    pub(super) score_factor: f32,
    /// Bounds scores to ± this number by tanh.
    pub(super) score_cap: Option<f32>,
    /// Bounds logits to ± this number by tanh.
    pub(super) logit_cap: Option<f32>,
    /// The parameters of each layer.
    pub(super) layers: Vec<LayerShape>,
    /// The rotary embeddings; layers refer to them by index.
    pub(super) ropes: Vec<Rope>,
}

/// The parameters of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LayerShape {
    /// How many tokens a token attends to, itself included; `None` for all before it.
    pub(super) window: Option<usize>,
    /// The index of the layer's rotary embedding.
    pub(super) rope: usize,
}

impl DecoderShape {
    /// Refuses impossible parameters.
    pub(super) fn checked(self) -> Result<Self, String> {
        let Self { width, heads, key_heads, head, wide, .. } = self;
        if [width, heads, key_heads, head, wide, self.layers.len(), self.positions].contains(&0) {
            return Err(format!(
                "a size is 0: width {width}, heads {heads}, key heads {key_heads}, head {head}, \
                 feed-forward {wide}, layers {}, positions {}",
                self.layers.len(),
                self.positions
            ));
        }
        if !heads.is_multiple_of(key_heads) {
            return Err(format!("{heads} heads are not a multiple of {key_heads} key heads"));
        }
        if self.ropes.iter().any(|rope| 2 * rope.frequencies.len() > head) {
            return Err(format!("RoPE rotates more columns than the {head} of a head"));
        }
        Ok(self)
    }

    /// Numbers per token in a layer's keys, and in its values.
    pub(super) fn key_width(&self) -> usize {
        self.key_heads * self.head
    }

    /// The factor of token embeddings.
    pub(super) fn embedding_factor(&self) -> f32 {
        if self.family.is_gemma() { (self.width as f32).sqrt() } else { 1.0 }
    }
}
