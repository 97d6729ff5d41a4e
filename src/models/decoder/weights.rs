//! A decoder's weights under their GGUF names, read from a GGUF file or from safetensors.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

use candle_core::quantized::gguf_file::Content;
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use serde::{Deserialize, Serialize};

use super::adapter::LowRankAdapter;
use super::products::held;
use super::shape::Family;

/// How weights in safetensors are held in memory. Those of a GGUF file stay as they are.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Quantize {
    /// As f32: exact, four bytes each, slow.
    #[default]
    None,
    /// As `Q8_0`: about one byte each, about three times as fast, nearly the same numbers. For
    /// sizes that are no multiple of 32, as f32.
    #[serde(rename = "q8_0")]
    Q8Zero,
}

/// Tensors by GGUF name.
pub(super) struct DecoderWeights(HashMap<String, QTensor>);

impl DecoderWeights {
    /// Reads all tensors of a GGUF file.
    pub(super) fn of_gguf(
        content: &Content,
        file: &mut (impl Read + Seek),
    ) -> Result<Self, String> {
        let mut tensors = HashMap::new();
        for name in content.tensor_infos.keys() {
            let tensor = content.tensor(file, name, &Device::Cpu).and_then(held);
            let tensor = tensor.map_err(|error| format!("tensor {name:?}: {error}"))?;
            tensors.insert(name.clone(), tensor);
        }
        Ok(Self(tensors))
    }

    /// Holds no tensors.
    pub(super) fn none() -> Self {
        Self(HashMap::new())
    }

    /// Adds the tensors of a safetensors file in memory, changed by an adapter if there is one.
    pub(super) fn add_safetensors(
        &mut self,
        bytes: &[u8],
        family: Family,
        quantize: Quantize,
        mut adapter: Option<&mut LowRankAdapter>,
    ) -> Result<(), String> {
        let tensors = candle_core::safetensors::load_buffer(bytes, &Device::Cpu);
        for (theirs, tensor) in tensors.map_err(|error| error.to_string())? {
            // Old files store these computed numbers.
            if theirs.ends_with("rotary_emb.inv_freq") {
                continue;
            }
            let ours = gguf_name(&theirs, family);
            let ours = ours.ok_or_else(|| format!("tensor {theirs:?} is not known"))?;
            let tensor = match &mut adapter {
                Some(adapter) => adapter.apply(&theirs, tensor)?,
                None => tensor,
            };
            let tensor = hold(&tensor, &ours, family, quantize);
            let tensor = tensor.map_err(|error| format!("tensor {theirs:?}: {error}"))?;
            self.0.insert(ours, tensor);
        }
        Ok(())
    }

    /// Takes a tensor, if it exists.
    pub(super) fn find(&mut self, name: &str) -> Option<QTensor> {
        self.0.remove(name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Takes a matrix with the given rows and columns.
    pub(super) fn matrix(
        &mut self,
        name: &str,
        (rows, columns): (usize, usize),
    ) -> Result<QTensor, String> {
        let matrix = self.find(name).ok_or_else(|| format!("there is no tensor {name:?}"))?;
        match matrix.shape().dims() {
            [r, c] if (*r, *c) == (rows, columns) => Ok(matrix),
            dims => Err(format!("tensor {name:?} is {dims:?}, not [{rows}, {columns}]")),
        }
    }

    /// Takes a vector of the given length.
    pub(super) fn vector(&mut self, name: &str, length: usize) -> Result<Vec<f32>, String> {
        let vector = self.find(name).ok_or_else(|| format!("there is no tensor {name:?}"))?;
        let vector = numbers(&vector).map_err(|error| format!("tensor {name:?}: {error}"))?;
        match vector.len() {
            given if given == length => Ok(vector),
            given => Err(format!("tensor {name:?} has {given} numbers, not {length}")),
        }
    }

    /// Refuses leftover tensors: the network should have used them.
    pub(super) fn finish(self) -> Result<(), String> {
        let mut left: Vec<String> = self.0.into_keys().collect();
        left.sort();
        match left.first() {
            None => Ok(()),
            Some(first) => Err(format!(
                "{} tensors are not known for this architecture, {first:?} among them",
                left.len()
            )),
        }
    }
}

/// Converts a tensor to f32.
pub(super) fn numbers(tensor: &QTensor) -> candle_core::Result<Vec<f32>> {
    tensor.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1()
}

/// Translates a tensor's name from transformers to GGUF.
pub(super) fn gguf_name(theirs: &str, family: Family) -> Option<String> {
    match theirs {
        "model.embed_tokens.weight" => return Some("token_embd.weight".to_owned()),
        "model.norm.weight" => return Some("output_norm.weight".to_owned()),
        "lm_head.weight" => return Some("output.weight".to_owned()),
        _ => {}
    }
    let (layer, part) = theirs.strip_prefix("model.layers.")?.split_once('.')?;
    let (part, kind) = part.rsplit_once('.')?;
    let ours = match part {
        "input_layernorm" => "attn_norm",
        "post_attention_layernorm" if family.norms_after() => "post_attention_norm",
        "post_attention_layernorm" | "pre_feedforward_layernorm" => "ffn_norm",
        "post_feedforward_layernorm" => "post_ffw_norm",
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.o_proj" => "attn_output",
        "self_attn.qkv_proj" => "attn_qkv",
        "self_attn.q_norm" => "attn_q_norm",
        "self_attn.k_norm" => "attn_k_norm",
        "mlp.gate_proj" => "ffn_gate",
        // Phi's gate and up are one tensor, in this order, under this name.
        "mlp.up_proj" | "mlp.gate_up_proj" => "ffn_up",
        "mlp.down_proj" => "ffn_down",
        _ => return None,
    };
    Some(format!("blk.{layer}.{ours}.{kind}"))
}

/// Converts a safetensors tensor to its form in memory: matrices as configured, norms as in GGUF.
fn hold(
    tensor: &Tensor,
    ours: &str,
    family: Family,
    quantize: Quantize,
) -> candle_core::Result<QTensor> {
    let mut tensor = tensor.to_dtype(DType::F32)?;
    // Gemma's norms multiply by 1 + w; GGUF stores the sum.
    if family.is_gemma() && ours.ends_with("norm.weight") {
        tensor = (tensor + 1.0)?;
    }
    let fits = tensor.dims().len() == 2 && tensor.dims()[1].is_multiple_of(32);
    match quantize {
        Quantize::Q8Zero if fits => QTensor::quantize(&tensor, GgmlDType::Q8_0),
        _ => QTensor::quantize(&tensor, GgmlDType::F32),
    }
}

/// Opens a file with buffered reading.
pub(super) fn open(path: &Path) -> std::io::Result<BufReader<File>> {
    File::open(path).map(BufReader::new)
}
