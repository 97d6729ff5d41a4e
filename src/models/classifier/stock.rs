//! Sequence classification with candle's own networks: DeBERTa-v2, ModernBERT and XLM-RoBERTa.
//! Sequences of one length go through the network together, which avoids padding.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Module, Tensor};
use candle_nn::{LayerNorm, Linear, VarBuilder, layer_norm_no_bias, linear, linear_no_bias};
use candle_transformers::models::debertav2::{
    Config as DebertaShape, DebertaV2SeqClassificationModel,
};
use candle_transformers::models::modernbert::{Config as ModernShape, ModernBert};
use candle_transformers::models::xlm_roberta::{
    Config as RobertaShape, XLMRobertaForSequenceClassification,
};
use serde_json::{Map, Value, json};

use super::Logits;
use crate::ModelError;
use crate::folder::{CONFIG, Folder, WEIGHTS};
use crate::tokens::TextTokens;

/// The most tokens that go through the network at once, except for a single longer pair.
const TOKENS_AT_ONCE: usize = 1_024;

pub(super) enum Stock {
    Deberta(Box<DebertaV2SeqClassificationModel>),
    Modern(Modern),
    Roberta(XLMRobertaForSequenceClassification),
}

/// ModernBERT with our own head: candle's head ends in a softmax, which turns any single logit into
/// 1.
pub(super) struct Modern {
    network: ModernBert,
    dense: Linear,
    norm: LayerNorm,
    classifier: Linear,
    /// Whether the head reads the mean of the rows instead of the first row.
    mean: bool,
}

/// Reads a folder; the inner error is about the weights or the network's construction.
pub(super) fn open(
    folder: &mut Folder,
    family: &str,
    labels: usize,
) -> Result<Result<Stock, String>, ModelError> {
    let mut shape: Map<String, Value> = folder.json(CONFIG)?;
    complete(&mut shape);
    let bytes = folder.read(WEIGHTS)?;
    // candle would spread each product over all cores; parallel calls use the cores better.
    gemm::set_threading_threshold(usize::MAX);
    let weights = VarBuilder::from_buffered_safetensors(bytes, DType::F32, &Device::Cpu);
    let stock = weights.and_then(|weights| read(weights, family, Value::Object(shape), labels));
    Ok(stock.map_err(|error| error.to_string()))
}

/// Adds fields that candle requires and files omit: defaults, and fields that newer files keep
/// elsewhere.
fn complete(shape: &mut Map<String, Value>) {
    let theta = |kind: &str| {
        let parameters = shape.get("rope_parameters").and_then(|ropes| ropes.get(kind));
        parameters.and_then(|rope| rope.get("rope_theta")).cloned()
    };
    let defaults = [
        ("position_embedding_type", json!("absolute")),
        ("layer_norm_eps", shape.get("norm_eps").cloned().unwrap_or_else(|| json!(1e-5))),
        ("global_rope_theta", theta("full_attention").unwrap_or_else(|| json!(160_000.0))),
        ("local_rope_theta", theta("sliding_attention").unwrap_or_else(|| json!(10_000.0))),
    ];
    for (key, value) in defaults {
        shape.entry(key).or_insert(value);
    }
}

fn read(
    weights: VarBuilder,
    family: &str,
    shape: Value,
    labels: usize,
) -> candle_core::Result<Stock> {
    let refused = |error: serde_json::Error| candle_core::Error::Msg(format!("{CONFIG}: {error}"));
    Ok(match family {
        "deberta-v2" => {
            let shape: DebertaShape = serde_json::from_value(shape).map_err(refused)?;
            let weights = weights.pp("deberta");
            Stock::Deberta(Box::new(DebertaV2SeqClassificationModel::load(weights, &shape, None)?))
        }
        "modernbert" => {
            let mean = shape.get("classifier_pooling").is_some_and(|pooling| pooling == "mean");
            let shape: ModernShape = serde_json::from_value(shape).map_err(refused)?;
            let (width, epsilon) = (shape.hidden_size, shape.layer_norm_eps);
            Stock::Modern(Modern {
                network: ModernBert::load(weights.clone(), &shape)?,
                dense: linear_no_bias(width, width, weights.pp("head.dense"))?,
                norm: layer_norm_no_bias(width, epsilon, weights.pp("head.norm"))?,
                classifier: linear(width, labels, weights.pp("classifier"))?,
                mean,
            })
        }
        _ => {
            let shape: RobertaShape = serde_json::from_value(shape).map_err(refused)?;
            Stock::Roberta(XLMRobertaForSequenceClassification::new(labels, &shape, weights)?)
        }
    })
}

impl Stock {
    /// Runs sequences of one length, without padding.
    fn forward(&self, sequences: &[&TextTokens]) -> candle_core::Result<Vec<Vec<f32>>> {
        let shape = (sequences.len(), sequences[0].ids.len());
        let matrix = |of: fn(&TextTokens) -> &[u32]| {
            let numbers: Vec<u32> =
                sequences.iter().flat_map(|tokens| of(tokens)).copied().collect();
            Tensor::from_vec(numbers, shape, &Device::Cpu)
        };
        let (ids, types) = (matrix(|tokens| &tokens.ids)?, matrix(|tokens| &tokens.types)?);
        let mask = ids.ones_like()?;
        let logits = match self {
            Self::Deberta(network) => network.forward(&ids, Some(types), Some(mask))?,
            Self::Modern(modern) => modern.forward(&ids, &mask)?,
            Self::Roberta(network) => network.forward(&ids, &mask, &types)?,
        };
        logits.to_vec2()
    }
}

impl Modern {
    fn forward(&self, ids: &Tensor, mask: &Tensor) -> candle_core::Result<Tensor> {
        let rows = self.network.forward(ids, mask)?;
        let pooled = if self.mean { rows.mean(1)? } else { rows.narrow(1, 0, 1)?.squeeze(1)? };
        let headed = self.dense.forward(&pooled.contiguous()?)?.gelu_erf()?;
        self.classifier.forward(&self.norm.forward(&headed)?)
    }
}

impl Logits for Stock {
    fn logits(&self, sequences: &[TextTokens]) -> Result<Vec<Vec<f32>>, String> {
        let mut by_length: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, tokens) in sequences.iter().enumerate() {
            by_length.entry(tokens.ids.len()).or_default().push(at);
        }
        let mut logits = vec![Vec::new(); sequences.len()];
        for (length, places) in by_length {
            for places in places.chunks((TOKENS_AT_ONCE / length.max(1)).max(1)) {
                let together: Vec<&TextTokens> = places.iter().map(|at| &sequences[*at]).collect();
                let made = self.forward(&together).map_err(|error| error.to_string())?;
                for (at, made) in places.iter().zip(made) {
                    logits[*at] = made;
                }
            }
        }
        Ok(logits)
    }
}
