//! Low-rank adapters (LoRA, Hu et al. 2022) in the layout of peft, added to a decoder's weights while
//! these are loaded: W + scale · B · A, with scale = α / r, or α / √r if the adapter is
//! rank-stabilised. After that the network runs as without an adapter.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use serde::Deserialize;
use serde_json::Value;

/// The name of an adapter's settings in its folder.
pub(super) const ADAPTER_CONFIG: &str = "adapter_config.json";
/// The name of an adapter's weights in its folder.
pub(crate) const ADAPTER_WEIGHTS: &str = "adapter_model.safetensors";

/// What peft puts before the names of transformers.
const PREFIX: &str = "base_model.model.";

/// The settings of an adapter, as peft writes them, as far as they change the sum.
#[derive(Deserialize)]
struct AdapterSettings {
    peft_type: String,
    r: u32,
    lora_alpha: f64,
    #[serde(default)]
    use_rslora: bool,
    #[serde(default)]
    use_dora: bool,
    #[serde(default)]
    fan_in_fan_out: bool,
    #[serde(default)]
    bias: Option<String>,
    #[serde(default)]
    rank_pattern: HashMap<String, Value>,
    #[serde(default)]
    alpha_pattern: HashMap<String, Value>,
}

/// An adapter: pairs of matrices by the name of the weight that they change.
pub(super) struct LowRankAdapter {
    scale: f64,
    /// By transformers' name of the weight: A with r rows, and B with r columns.
    pairs: HashMap<String, (Option<Tensor>, Option<Tensor>)>,
}

impl LowRankAdapter {
    /// Reads the adapter of a folder.
    ///
    /// # Errors
    /// A file cannot be read, or the adapter has parts that are not supported.
    pub(super) fn read(folder: &Path) -> Result<Self, String> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        Self::of_bytes(&read(ADAPTER_CONFIG)?, &read(ADAPTER_WEIGHTS)?)
    }

    fn of_bytes(settings: &[u8], weights: &[u8]) -> Result<Self, String> {
        let settings: AdapterSettings = serde_json::from_slice(settings)
            .map_err(|error| format!("{ADAPTER_CONFIG}: {error}"))?;
        let scale = settings.scale()?;
        let tensors = candle_core::safetensors::load_buffer(weights, &Device::Cpu);
        let mut pairs = HashMap::<_, (Option<Tensor>, Option<Tensor>)>::new();
        for (name, tensor) in tensors.map_err(|error| format!("{ADAPTER_WEIGHTS}: {error}"))? {
            let unknown = || format!("tensor {name:?} of the adapter is not supported");
            let (of, side) = name
                .strip_prefix(PREFIX)
                .and_then(|name| name.strip_suffix(".weight"))
                .and_then(|name| name.rsplit_once('.'))
                .ok_or_else(unknown)?;
            let tensor = tensor.to_dtype(DType::F32).map_err(|error| error.to_string())?;
            let pair = pairs.entry(format!("{of}.weight")).or_default();
            match side {
                "lora_A" => pair.0 = Some(tensor),
                "lora_B" => pair.1 = Some(tensor),
                _ => return Err(unknown()),
            }
        }
        if pairs.is_empty() {
            return Err(format!("{ADAPTER_WEIGHTS} has no tensors"));
        }
        Ok(Self { scale, pairs })
    }

    /// Adds the adapter's part to a weight, by transformers' name, if it has one.
    ///
    /// # Errors
    /// Half of the pair is missing, or the sizes do not fit.
    pub(super) fn apply(&mut self, name: &str, weight: Tensor) -> Result<Tensor, String> {
        let (a, b) = match self.pairs.remove(name) {
            None => return Ok(weight),
            Some((Some(a), Some(b))) => (a, b),
            Some(_) => return Err(format!("the adapter has half of a pair for {name:?}")),
        };
        let sum = weight.to_dtype(DType::F32).and_then(|weight| {
            let change = (b.matmul(&a)? * self.scale)?;
            &weight + &change
        });
        sum.map_err(|error| format!("the adapter does not fit {name:?}: {error}"))
    }

    /// Refuses an adapter with parts for weights that the model does not have.
    ///
    /// # Errors
    /// The name of one of them.
    pub(super) fn finish(self) -> Result<(), String> {
        match self.pairs.keys().min() {
            None => Ok(()),
            Some(name) => Err(format!(
                "the adapter changes {name:?}, which the model does not have; name the model that \
                 it was trained on"
            )),
        }
    }
}

impl AdapterSettings {
    fn scale(&self) -> Result<f64, String> {
        let refused = |what: &str| Err(format!("{ADAPTER_CONFIG}: {what}"));
        if self.peft_type != "LORA" {
            return refused(&format!("peft_type is {}; LORA is supported", self.peft_type));
        }
        if self.use_dora || self.fan_in_fan_out {
            return refused("use_dora and fan_in_fan_out are not supported; merge it with peft");
        }
        if self.bias.as_deref().is_some_and(|bias| bias != "none") {
            return refused("trained biases are not supported; merge it with peft");
        }
        if !self.rank_pattern.is_empty() || !self.alpha_pattern.is_empty() {
            return refused("patterns of ranks are not supported; merge it with peft");
        }
        if self.r == 0 {
            return refused("r is 0");
        }
        let rank = f64::from(self.r);
        Ok(self.lora_alpha / if self.use_rslora { rank.sqrt() } else { rank })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "model.layers.0.self_attn.q_proj.weight";

    fn settings(more: &str) -> String {
        format!(r#"{{"peft_type":"LORA","r":1,"lora_alpha":2,"bias":"none"{more}}}"#)
    }

    fn weights(parts: &[(&str, &[f32], (usize, usize))]) -> Vec<u8> {
        let tensors = parts.iter().map(|(side, numbers, shape)| {
            let name = format!("base_model.model.{}", NAME.replace(".weight", side));
            (name, Tensor::from_slice(numbers, *shape, &Device::Cpu).expect("a tensor"))
        });
        let tensors: HashMap<String, Tensor> = tensors.collect();
        let file = tempfile::NamedTempFile::new().expect("a file");
        candle_core::safetensors::save(&tensors, file.path()).expect("saved");
        std::fs::read(file.path()).expect("read")
    }

    fn pair() -> Vec<u8> {
        weights(&[
            (".lora_A.weight", &[1.0, 10.0], (1, 2)),
            (".lora_B.weight", &[3.0, 0.5], (2, 1)),
        ])
    }

    #[test]
    fn the_product_is_added_once() {
        let read = |more: &str| LowRankAdapter::of_bytes(settings(more).as_bytes(), &pair());
        let mut adapter = read("").expect("an adapter");
        let weight = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0], (2, 2), &Device::Cpu);
        let weight = weight.expect("a weight");
        let other = adapter.apply("model.norm.weight", weight.clone()).expect("as it was");
        let numbers = |of: &Tensor| of.flatten_all().and_then(|of| of.to_vec1::<f32>());
        assert_eq!(numbers(&other).expect("numbers"), [1.0, 2.0, 3.0, 4.0]);
        let changed = adapter.apply(NAME, weight.clone()).expect("changed");
        assert_eq!(numbers(&changed).expect("numbers"), [7.0, 62.0, 4.0, 14.0]);
        adapter.finish().expect("all of it was used");
        let four = settings(r#","use_rslora":true"#).replace(r#""r":1"#, r#""r":4"#);
        let mut stabilised =
            LowRankAdapter::of_bytes(four.as_bytes(), &pair()).expect("an adapter");
        let changed = stabilised.apply(NAME, weight).expect("changed");
        assert_eq!(numbers(&changed).expect("numbers")[0], 4.0, "α / √4 is 1");
        let unused = read("").expect("an adapter").finish().expect_err("it is not used");
        assert!(unused.contains("q_proj"), "{unused}");
    }

    #[test]
    fn what_is_not_supported_is_refused() {
        for (settings, weights, says) in [
            (settings(r#","use_dora":true"#), pair(), "use_dora"),
            (settings(r#","bias":"all""#).replace(r#""bias":"none","#, ""), pair(), "biases"),
            (settings(r#","rank_pattern":{"q_proj":4}"#), pair(), "patterns"),
            (settings("").replace("LORA", "IA3"), pair(), "LORA is supported"),
            (settings(""), weights(&[(".magnitude.weight", &[1.0], (1, 1))]), "magnitude"),
            (settings(""), Vec::new(), ADAPTER_WEIGHTS),
            ("{}".to_owned(), pair(), ADAPTER_CONFIG),
        ] {
            let refused = LowRankAdapter::of_bytes(settings.as_bytes(), &weights);
            let refused = refused.err().expect(says);
            assert!(refused.contains(says), "{refused}");
        }
        let half = weights(&[(".lora_A.weight", &[1.0], (1, 1))]);
        let mut half = LowRankAdapter::of_bytes(settings("").as_bytes(), &half).expect("read");
        let weight = Tensor::zeros((1, 1), DType::F32, &Device::Cpu).expect("a weight");
        assert!(half.apply(NAME, weight).expect_err("half").contains("half of a pair"));
        let mut wide = LowRankAdapter::of_bytes(settings("").as_bytes(), &pair()).expect("read");
        let weight = Tensor::zeros((3, 3), DType::F32, &Device::Cpu).expect("a weight");
        assert!(wide.apply(NAME, weight).expect_err("sizes").contains("does not fit"));
    }
}
