//! What tells one decoder-only transformer from another: one network, these numbers. They come
//! from the metadata of a GGUF file or from `config.json`; what either says that is not known
//! here is refused by name, since a model that computes something else gives no error, only
//! nonsense.

use super::rope::Rope;

pub(super) mod config_json;
pub(super) mod metadata;

/// The families of decoders that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Llama 1 to 3, SmolLM and 2, Mistral.
    Llama,
    /// Qwen2 and 2.5: queries, keys and values have a bias.
    Qwen2,
    /// Qwen3: queries and keys are normed by head.
    Qwen3,
    /// Gemma 1: embeddings scaled, GELU.
    Gemma,
    /// Gemma 2: norms after each part too, capped scores, every other layer looks back a window.
    Gemma2,
    /// Gemma 3: as Gemma 2, queries and keys normed by head, two bases of RoPE.
    Gemma3,
    /// Phi-3 and Phi-4: fused projections.
    Phi3,
}

impl Family {
    /// Its name in GGUF's `general.architecture`.
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

    /// Its name in `model_type` of `config.json`.
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

    /// Whether it is a Gemma.
    pub(super) fn is_gemma(self) -> bool {
        matches!(self, Self::Gemma | Self::Gemma2 | Self::Gemma3)
    }

    /// Whether queries and keys are normed by head.
    pub(super) fn norms_heads(self) -> bool {
        matches!(self, Self::Qwen3 | Self::Gemma3)
    }

    /// Whether attention and feed-forward are followed by a norm as well as preceded.
    pub(super) fn norms_after(self) -> bool {
        matches!(self, Self::Gemma2 | Self::Gemma3)
    }

    /// The function of the feed-forward's gate.
    pub(super) fn activation(self) -> Activation {
        if self.is_gemma() { Activation::GeluTanh } else { Activation::Silu }
    }
}

/// The function of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activation {
    /// x · sigmoid(x).
    Silu,
    /// GELU by its tanh approximation.
    GeluTanh,
}

/// The numbers of a decoder.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
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
    /// Tokens that the model was trained to see at once.
    pub(super) positions: usize,
    /// Added to the mean square in norms.
    pub(super) epsilon: f32,
    /// What scores are multiplied with.
    pub(super) score_factor: f32,
    /// Scores are bounded to ± this, where it is there, by tanh.
    pub(super) score_cap: Option<f32>,
    /// Logits likewise.
    pub(super) logit_cap: Option<f32>,
    /// What differs from layer to layer.
    pub(super) layers: Vec<LayerShape>,
    /// The rotary embeddings that layers name.
    pub(super) ropes: Vec<Rope>,
}

/// What differs from layer to layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LayerShape {
    /// How many tokens a token sees, itself included; all before it where there is none.
    pub(super) window: Option<usize>,
    /// Which rotary embedding it uses.
    pub(super) rope: usize,
}

impl Shape {
    /// Refuses numbers that cannot be.
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
            return Err(format!("more columns are turned than the {head} of a head"));
        }
        Ok(self)
    }

    /// Numbers per token in the keys of a layer, and in its values.
    pub(super) fn key_width(&self) -> usize {
        self.key_heads * self.head
    }

    /// What the embedding of a token is multiplied with.
    pub(super) fn embedding_factor(&self) -> f32 {
        if self.family.is_gemma() { (self.width as f32).sqrt() } else { 1.0 }
    }
}
