//! Reads a decoder's shape from the `config.json` of transformers, versions 4 and 5. Version 5
//! moved the RoPE keys into `rope_parameters`.

use serde::Deserialize;
use serde_json::Value;

use super::{DecoderShape, Family, LayerShape};
use crate::decoder::rope::{Pairs, Rope, Scaling};

/// The fields of the file that matter here.
#[derive(Deserialize)]
pub(in crate::decoder) struct ConfigJson {
    model_type: String,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    intermediate_size: usize,
    max_position_embeddings: usize,
    rms_norm_eps: f32,
    hidden_act: Option<String>,
    /// Gemma's name for `hidden_act`; it wins if both exist.
    hidden_activation: Option<String>,
    #[serde(default)]
    mlp_bias: bool,
    rope_theta: Option<f64>,
    rope_local_base_freq: Option<f64>,
    rope_scaling: Option<Value>,
    rope_parameters: Option<Value>,
    partial_rotary_factor: Option<f64>,
    sliding_window: Option<usize>,
    use_sliding_window: Option<bool>,
    max_window_layers: Option<usize>,
    sliding_window_pattern: Option<usize>,
    layer_types: Option<Vec<String>>,
    query_pre_attn_scalar: Option<f64>,
    attn_logit_softcapping: Option<f32>,
    final_logit_softcapping: Option<f32>,
}

/// transformers' name for a layer with a sliding window.
const SLIDING: &str = "sliding_attention";
/// transformers' name for a layer that attends to all tokens.
const FULL: &str = "full_attention";

impl ConfigJson {
    /// Converts the file to a shape.
    ///
    /// # Errors
    /// An unsupported value; the message names its key.
    pub(in crate::decoder) fn shape(&self) -> Result<DecoderShape, String> {
        let family = Family::of_config(&self.model_type)?;
        self.check_activation(family)?;
        if self.mlp_bias {
            return Err("mlp_bias is true; feed-forwards with a bias are not supported".to_owned());
        }
        let heads = self.num_attention_heads.max(1);
        let head = self.head_dim.unwrap_or(self.hidden_size / heads);
        let scalar = self.query_pre_attn_scalar.filter(|_| family.norms_after());
        let capped = family == Family::Gemma2;
        let shape = DecoderShape {
            family,
            width: self.hidden_size,
            heads,
            key_heads: self.num_key_value_heads.unwrap_or(heads),
            head,
            wide: self.intermediate_size,
            positions: self.max_position_embeddings,
            epsilon: self.rms_norm_eps,
            score_factor: scalar.unwrap_or(head as f64).powf(-0.5) as f32,
            score_cap: self.attn_logit_softcapping.filter(|_| capped),
            logit_cap: self.final_logit_softcapping.filter(|_| capped),
            layers: self.layers(family)?,
            ropes: self.ropes(family, head)?,
        };
        shape.checked()
    }

    fn check_activation(&self, family: Family) -> Result<(), String> {
        let known: &[&str] = match family.activation() {
            super::Activation::Silu => &["silu"],
            // Gemma 1 was released with "gelu" in its configuration, but uses the tanh
            // approximation.
            super::Activation::GeluTanh if family == Family::Gemma => {
                &["gelu_pytorch_tanh", "gelu"]
            }
            super::Activation::GeluTanh => &["gelu_pytorch_tanh"],
        };
        match self.hidden_activation.as_ref().or(self.hidden_act.as_ref()) {
            Some(given) if !known.contains(&given.as_str()) => {
                Err(format!("hidden_act is {given:?}; for {family:?} only {known:?} is known"))
            }
            _ => Ok(()),
        }
    }

    fn layers(&self, family: Family) -> Result<Vec<LayerShape>, String> {
        let window = self.sliding_window.filter(|_| self.use_sliding_window != Some(false));
        let qwen = matches!(family, Family::Qwen2 | Family::Qwen3);
        let window = window.filter(|_| !qwen || self.use_sliding_window == Some(true));
        let slides = |at: usize| match (&self.layer_types, family) {
            (Some(kinds), _) => match kinds.get(at).map(String::as_str) {
                Some(SLIDING) => Ok(true),
                Some(FULL) => Ok(false),
                other => Err(format!("layer_types says {other:?} of layer {at}")),
            },
            (None, Family::Gemma2) => Ok(at.is_multiple_of(2)),
            (None, Family::Gemma3) => {
                Ok(!(at + 1).is_multiple_of(self.sliding_window_pattern.unwrap_or(6).max(1)))
            }
            (None, _) if qwen => Ok(at >= self.max_window_layers.unwrap_or(0)),
            (None, _) => Ok(true),
        };
        let layer = |at: usize| {
            let slides = slides(at)?;
            let rope = usize::from(family == Family::Gemma3 && slides);
            Ok(LayerShape { window: window.filter(|_| slides), rope })
        };
        (0..self.num_hidden_layers).map(layer).collect()
    }

    fn ropes(&self, family: Family, head: usize) -> Result<Vec<Rope>, String> {
        let given = self.rope_parameters.as_ref().or(self.rope_scaling.as_ref());
        // Gemma 3 has parameters for each kind of layer.
        let of_kind = |kind: &str| given.map(|given| given.get(kind).unwrap_or(given));
        let everything = of_kind(FULL);
        let number = |of: Option<&Value>, key: &str| of?.get(key)?.as_f64();
        let share = number(everything, "partial_rotary_factor").or(self.partial_rotary_factor);
        let columns = (head as f64 * share.unwrap_or(1.0)) as usize;
        let base = |of: Option<&Value>, older: Option<f64>, usual: f64| {
            number(of, "rope_theta").or(older).unwrap_or(usual)
        };
        let usual = if family == Family::Gemma3 { 1_000_000.0 } else { 10_000.0 };
        let theta = base(everything, self.rope_theta, usual);
        let rope = Rope::new(columns, theta, scaling(everything)?, Pairs::Halves);
        if family != Family::Gemma3 {
            return Ok(vec![rope]);
        }
        let near = given.and_then(|given| given.get(SLIDING));
        let theta = base(near, self.rope_local_base_freq, 10_000.0);
        Ok(vec![rope, Rope::new(columns, theta, scaling(near)?, Pairs::Halves)])
    }
}

/// Reads the scaling of positions.
fn scaling(given: Option<&Value>) -> Result<Option<Scaling>, String> {
    let Some(given) = given else { return Ok(None) };
    let kind = given.get("rope_type").or_else(|| given.get("type")).and_then(Value::as_str);
    let number = |key: &str| {
        let number = given.get(key).and_then(Value::as_f64);
        number.ok_or_else(|| format!("the scaling of RoPE has no number {key:?}"))
    };
    match kind {
        None | Some("default") => Ok(None),
        Some("linear") => Ok(Some(Scaling::Linear(number("factor")?))),
        Some("llama3") => Ok(Some(Scaling::Llama3 {
            factor: number("factor")?,
            low: number("low_freq_factor")?,
            high: number("high_freq_factor")?,
            original: number("original_max_position_embeddings")?,
        })),
        Some(other) => {
            Err(format!("the scaling of RoPE is {other:?}; known are default, linear and llama3"))
        }
    }
}
