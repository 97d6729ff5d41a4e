//! BERT for sequence classification: the network without padding, the pooler (a dense layer and
//! tanh over the first row), and one linear layer.

use super::Logits;
use crate::ModelError;
use crate::bert::kernels::{Linear, add_bias};
use crate::bert::network::{Batch, BertNetwork, Weights};
use crate::folder::{BertShape, Folder, WEIGHTS};
use crate::tokens::TextTokens;

pub(super) struct BertLogits {
    network: BertNetwork,
    pooler: Linear,
    classifier: Linear,
}

/// Reads a folder; the inner error is about the weights.
pub(super) fn open(
    folder: &mut Folder,
    labels: usize,
) -> Result<Result<BertLogits, String>, ModelError> {
    let shape = BertShape::read(folder)?;
    let bytes = folder.read(WEIGHTS)?;
    Ok(read(&bytes, &shape, labels))
}

fn read(bytes: &[u8], shape: &BertShape, labels: usize) -> Result<BertLogits, String> {
    let mut weights = Weights::read(bytes)?;
    let network = BertNetwork::take(&mut weights, shape)?;
    let width = shape.hidden_size;
    let pooler = weights.linear(&["pooler.dense".to_owned()], width, width)?;
    let classifier = weights.linear(&["classifier".to_owned()], width, labels)?;
    Ok(BertLogits { network, pooler, classifier })
}

/// Applies the layer with its bias.
fn apply(layer: &Linear, rows: &[f32]) -> Vec<f32> {
    let mut out = Vec::new();
    layer.apply(rows, &mut out);
    add_bias(&mut out, &layer.bias);
    out
}

impl Logits for BertLogits {
    fn logits(&self, sequences: &[TextTokens]) -> Result<Vec<Vec<f32>>, String> {
        let mut batch = Batch::default();
        for tokens in sequences {
            batch.push(&tokens.ids, &tokens.types);
        }
        let rows = self.network.forward(&batch)?;
        let width = self.network.width();
        let first = batch.sequences().iter().map(|sequence| sequence.start * width);
        let first: Vec<f32> = first.flat_map(|at| &rows[at..at + width]).copied().collect();
        let mut pooled = apply(&self.pooler, &first);
        pooled.iter_mut().for_each(|x| *x = x.tanh());
        let logits = apply(&self.classifier, &pooled);
        Ok(logits.chunks_exact(self.classifier.bias.len()).map(<[f32]>::to_vec).collect())
    }
}
