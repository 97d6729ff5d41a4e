//! Reads a decoder's shape from the metadata of a GGUF file.

use std::collections::HashMap;

use candle_core::quantized::gguf_file::Value;

use super::{DecoderShape, Family, LayerShape};
use crate::decoder::rope::{Pairs, Rope, Scaling};

/// The metadata of a file; keys of its architecture have short names.
pub(in crate::decoder) struct Metadata<'a> {
    values: &'a HashMap<String, Value>,
    architecture: &'a str,
}

impl<'a> Metadata<'a> {
    /// Wraps the metadata.
    ///
    /// # Errors
    /// The file names no architecture.
    pub(in crate::decoder) fn new(values: &'a HashMap<String, Value>) -> Result<Self, String> {
        match values.get("general.architecture") {
            Some(Value::String(architecture)) => Ok(Self { values, architecture }),
            _ => Err("general.architecture is missing".to_owned()),
        }
    }

    fn find(&self, key: &str) -> Option<&'a Value> {
        self.values.get(&format!("{}.{key}", self.architecture))
    }

    fn whole(&self, key: &str) -> Result<Option<usize>, String> {
        let Some(value) = self.find(key) else { return Ok(None) };
        let number = match value {
            Value::I32(number) => u64::try_from(*number).ok(),
            Value::I64(number) => u64::try_from(*number).ok(),
            value => value.to_u64().ok(),
        };
        let number = number.and_then(|number| usize::try_from(number).ok());
        let refused = || format!("{}.{key} is {value:?}, not a size", self.architecture);
        number.map(Some).ok_or_else(refused)
    }

    fn size(&self, key: &str) -> Result<usize, String> {
        self.whole(key)?.ok_or_else(|| format!("{}.{key} is missing", self.architecture))
    }

    fn number(&self, key: &str) -> Option<f64> {
        match self.find(key)? {
            Value::F32(number) => Some(f64::from(*number)),
            Value::F64(number) => Some(*number),
            _ => None,
        }
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        match self.find(key)? {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// Converts the metadata to a shape. `factors` are the numbers of the tensor
    /// `rope_freqs.weight`, if the file has it.
    ///
    /// # Errors
    /// A missing or unsupported value; the message names its key.
    pub(in crate::decoder) fn shape(
        &self,
        factors: Option<&[f32]>,
    ) -> Result<DecoderShape, String> {
        let family = Family::of_gguf(self.architecture)?;
        if self.whole("expert_count")?.unwrap_or(0) > 0 {
            return Err("it is a mixture of experts, which is not supported".to_owned());
        }
        let (width, heads) =
            (self.size("embedding_length")?, self.size("attention.head_count")?.max(1));
        let head = self.whole("attention.key_length")?.unwrap_or(width / heads);
        let count = self.size("block_count")?;
        let epsilon = "attention.layer_norm_rms_epsilon";
        let shape = DecoderShape {
            family,
            width,
            heads,
            key_heads: self.whole("attention.head_count_kv")?.unwrap_or(heads),
            head,
            wide: self.size("feed_forward_length")?,
            positions: self.size("context_length")?,
            epsilon: self.number(epsilon).ok_or_else(|| format!("{epsilon} is missing"))? as f32,
            score_factor: (scored_columns(family, width, heads, head, count) as f32).powf(-0.5),
            score_cap: self.number("attn_logit_softcapping").map(|cap| cap as f32),
            logit_cap: self.number("final_logit_softcapping").map(|cap| cap as f32),
            layers: self.layers(family, count)?,
            ropes: self.ropes(family, head, factors)?,
        };
        shape.checked()
    }

    fn layers(&self, family: Family, count: usize) -> Result<Vec<LayerShape>, String> {
        let window = self.whole("attention.sliding_window")?.filter(|window| *window > 0);
        // One layer in each period attends to all tokens.
        let period = match family {
            Family::Gemma2 => 2,
            Family::Gemma3 => 6,
            _ => usize::MAX,
        };
        let layer = |at: usize| {
            let sees_all = (at + 1).is_multiple_of(period);
            let rope = usize::from(family == Family::Gemma3 && !sees_all);
            LayerShape { window: window.filter(|_| !sees_all), rope }
        };
        Ok((0..count).map(layer).collect())
    }

    fn ropes(
        &self,
        family: Family,
        head: usize,
        factors: Option<&[f32]>,
    ) -> Result<Vec<Rope>, String> {
        let columns = self.whole("rope.dimension_count")?.unwrap_or(head);
        let pairs = if family == Family::Llama { Pairs::Neighbours } else { Pairs::Halves };
        let scaling = match self.text("rope.scaling.type") {
            None | Some("none") => None,
            Some("linear") => self.number("rope.scaling.factor").map(Scaling::Linear),
            Some(other) => {
                return Err(format!(
                    "rope.scaling.type is {other:?}; known are none and linear, and the factors \
                     of a tensor rope_freqs.weight"
                ));
            }
        };
        let theta = self.number("rope.freq_base").unwrap_or(10_000.0);
        let mut rope = Rope::new(columns, theta, scaling, pairs);
        if let Some(factors) = factors {
            if factors.len() != rope.frequencies.len() {
                return Err(format!("rope_freqs.weight has {} factors", factors.len()));
            }
            rope.frequencies.iter_mut().zip(factors).for_each(|(of, factor)| *of /= factor);
        }
        let near = (family == Family::Gemma3).then(|| {
            let theta = self.number("rope.local.freq_base");
            let theta = theta.or_else(|| self.number("rope.freq_base_swa")).unwrap_or(10_000.0);
            Rope::new(columns, theta, None, pairs)
        });
        Ok(std::iter::once(rope).chain(near).collect())
    }
}

/// Columns whose square root divides the scores: a head's, except for the largest Gemma models.
fn scored_columns(family: Family, width: usize, heads: usize, head: usize, layers: usize) -> usize {
    match (family, layers) {
        (Family::Gemma2, 46) | (Family::Gemma3, 62) => width / heads,
        _ => head,
    }
}
