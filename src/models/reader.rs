//! The reader behind its port: one BERT that turns texts into vectors and reads a turn and a section
//! together.
//!
//! To read, the network has upper layers of its own, on top of words and lower layers that it shares with the
//! vectors. A pass reads `[CLS] utterance [SEP] before … [SEP] title sentence sentence … [SEP]`, and the mean of
//! a sentence's rows is scored by one linear layer. The intents are a linear layer over the utterance's
//! vector. `deploy/training/answers` trains and exports it; the file is in the safetensors format,
//! compressed with zstd: matrices as `NAME` (i8, rows × columns) with `NAME.scale` (f32, one per row),
//! other tensors in f32, and a card in the metadata with the shape and the tokenizer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{Device, Tensor};
use rustc_hash::FxHasher;
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use serde::Deserialize;
use std::hash::Hasher;
use tokenizers::Tokenizer;
use turnstream_ports::model::encoder::{EncodeError, Encoded, Encoder};
use turnstream_ports::model::reader::{Question, READER, ReadRequest, Reading, Section};

use super::ModelError;
use super::batch::Backend;
use super::bert::network::{Batch, BertNetwork, UpperLayers, Weights};
use super::folder::BertShape;

/// The card's key in the metadata.
const CARD: &str = "turnstream";
/// The most tokens of a text to encode.
const MAX_TEXT: usize = 160;
/// The most tokens of a turn in a pass.
const MAX_TURN: usize = 64;
/// The most tokens of a pass.
const MAX_PASS: usize = 192;
/// Bytes per allowed token, beyond which a text is cut before it is tokenised.
const BYTES_PER_TOKEN: usize = 16;

/// What the file says about itself.
#[derive(Deserialize)]
struct ReaderCard {
    shape: BertShape,
    tokenizer: Tokenizer,
    #[serde(default)]
    calibration: ReaderCalibration,
}

/// How a sentence's score becomes a logit, and a probability a share of right answers. Chosen on
/// development data.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReaderCalibration {
    /// What the network's score is multiplied by.
    slope: f32,
    /// What is added for the cosine of question and section, and to every sentence.
    nearness: f32,
    offset: f32,
    /// The least cosine at which a phrasing counts, and what each unit above it adds.
    least_taught: f32,
    taught: f32,
    /// By the probability of the best section, rising: the share of right answers.
    precision: Vec<(f32, f32)>,
}

impl Default for ReaderCalibration {
    fn default() -> Self {
        let (slope, precision) = (1.0, Vec::new());
        Self { slope, nearness: 0.0, offset: 0.0, least_taught: 1.0, taught: 0.0, precision }
    }
}

/// The reader.
pub struct AnswerReader {
    fingerprint: u64,
    tokenizer: Tokenizer,
    begin: u32,
    end: u32,
    network: BertNetwork,
    /// The upper layers with which it reads.
    reading: UpperLayers,
    /// Weights and bias of a sentence's score.
    score: (Vec<f32>, f32),
    /// Weights and bias of each intent's logit.
    intents: Vec<(Vec<f32>, f32)>,
    calibration: ReaderCalibration,
}

/// A section's pass, with the rows of each sentence that found room.
struct Pass {
    ids: Vec<u32>,
    types: Vec<u32>,
    sentences: Vec<std::ops::Range<usize>>,
}

impl AnswerReader {
    /// Returns the reader inside the program, for English. It is unpacked once and shared.
    ///
    /// # Errors
    /// The weights are damaged.
    pub fn shipped() -> Result<Arc<Self>, ModelError> {
        static UNPACKED: Mutex<Option<Arc<AnswerReader>>> = Mutex::new(None);
        let mut unpacked = UNPACKED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = &*unpacked {
            return Ok(Arc::clone(reader));
        }
        let refused = |reason| ModelError::Refused { path: "(the shipped reader)".into(), reason };
        let reader = Self::from_bytes(turnstream_weights::READER).map_err(refused)?;
        let reader = Arc::new(reader);
        *unpacked = Some(Arc::clone(&reader));
        Ok(reader)
    }

    fn from_bytes(packed: &[u8]) -> Result<Self, String> {
        let bytes = zstd::decode_all(packed).map_err(|error| error.to_string())?;
        let said = |error: safetensors::SafeTensorError| error.to_string();
        let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(said)?;
        let card = metadata.metadata().as_ref().and_then(|of_file| of_file.get(CARD));
        let card = card.ok_or("it has no card")?;
        let card: ReaderCard = serde_json::from_str(card).map_err(|error| error.to_string())?;
        let mut weights = Weights::of(tensors(&SafeTensors::deserialize(&bytes).map_err(said)?)?);
        let width = card.shape.hidden_size;
        let mut row = |name: &str, count: usize| -> Result<Vec<(Vec<f32>, f32)>, String> {
            let rows = weights.take(&format!("{name}.weight"), &[count, width])?;
            let bias = weights.take(&format!("{name}.bias"), &[count])?;
            Ok(rows.chunks_exact(width).map(<[f32]>::to_vec).zip(bias).collect())
        };
        let score = row("score", 1)?.pop().ok_or("it has no score")?;
        let intents = row("intents", 5)?;
        let token = |text: &str| {
            card.tokenizer.token_to_id(text).ok_or_else(|| format!("its tokenizer has no {text}"))
        };
        let mut hasher = FxHasher::default();
        hasher.write(packed);
        Ok(Self {
            fingerprint: hasher.finish(),
            begin: token("[CLS]")?,
            end: token("[SEP]")?,
            network: BertNetwork::take(&mut weights, &card.shape)?,
            reading: UpperLayers::take(&mut weights, "reading", &card.shape)?,
            tokenizer: card.tokenizer,
            calibration: card.calibration,
            score,
            intents,
        })
    }

    /// The tokens of a text, at most `most`.
    fn tokens(&self, text: &str, most: usize) -> Result<Vec<u32>, String> {
        let head = &text[..text.floor_char_boundary(most * BYTES_PER_TOKEN)];
        let encoding = self.tokenizer.encode_fast(head, false);
        let encoding = encoding.map_err(|error| error.to_string())?;
        Ok(encoding.get_ids().iter().copied().take(most).collect())
    }

    /// The rows of a turn: the utterance, and behind it as much of what was said before as there is
    /// room for.
    fn turn(&self, question: &Question) -> Result<Vec<u32>, String> {
        let mut ids = vec![self.begin];
        ids.extend(self.tokens(&question.utterance, MAX_TURN - 3)?);
        for text in &question.before {
            ids.push(self.end);
            ids.extend(self.tokens(text, MAX_TURN)?);
        }
        ids.truncate(MAX_TURN - 1);
        ids.push(self.end);
        Ok(ids)
    }

    fn pass(&self, turn: &[u32], section: &Section) -> Result<Pass, String> {
        let (mut ids, mut sentences) = (turn.to_vec(), Vec::new());
        ids.extend(self.tokens(&section.title, MAX_TURN)?);
        for sentence in &section.sentences {
            let start = ids.len();
            ids.extend(self.tokens(sentence, MAX_PASS)?);
            ids.truncate(MAX_PASS - 1);
            if start >= ids.len() {
                break;
            }
            sentences.push(start..ids.len());
        }
        ids.push(self.end);
        let types = (0..ids.len()).map(|at| u32::from(at >= turn.len())).collect();
        Ok(Pass { ids, types, sentences })
    }

    /// The vector of length 1 of each text.
    fn vectors(&self, texts: &[&str]) -> Result<(Vec<f32>, Encoded), String> {
        let (mut vectors, mut encoded) = (Vec::new(), Encoded::default());
        for text in texts {
            let mut ids = vec![self.begin];
            ids.extend(self.tokens(text, MAX_TEXT - 2)?);
            ids.push(self.end);
            encoded.tokens += ids.len() as u64;
            encoded.cut += u64::from(ids.len() == MAX_TEXT);
            let mut batch = Batch::default();
            batch.push(&ids, &vec![0; ids.len()]);
            let rows = self.network.forward(&batch)?;
            let vector = mean(&rows, 0..ids.len(), self.network.width());
            let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
            if !norm.is_finite() {
                return Err("the network gave numbers that are not finite".to_owned());
            }
            vectors.extend(vector.iter().map(|x| x / norm.max(f32::MIN_POSITIVE)));
        }
        Ok((vectors, encoded))
    }

    fn read(&self, request: &ReadRequest, tokens: &mut u64) -> Result<Reading, String> {
        let (vector, encoded) = self.vectors(&[&request.question.utterance])?;
        *tokens += encoded.tokens;
        let turn = self.turn(&request.question)?;
        let mut scores = Vec::with_capacity(request.sections.len());
        for section in &request.sections {
            let pass = self.pass(&turn, section)?;
            *tokens += pass.ids.len() as u64;
            let mut batch = Batch::default();
            batch.push(&pass.ids, &pass.types);
            let rows = self.network.forward_with(&batch, &self.reading)?;
            let beside = self.beside(section);
            let score = |at: std::ops::Range<usize>| {
                let score = apply(&self.score, &mean(&rows, at, self.network.width()));
                self.calibration.slope * score + beside
            };
            scores.push(pass.sentences.into_iter().map(score).collect());
        }
        let logits: Vec<f32> = self.intents.iter().map(|layer| apply(layer, &vector)).collect();
        let mut intents = [0.0; 5];
        intents.iter_mut().zip(super::gate::softmax(&logits)).for_each(|(to, it)| *to = it);
        let precision = self.precision(&scores);
        Ok(Reading { scores, intents, precision })
    }

    /// What is added to the logits of a section's sentences for what was known before reading.
    fn beside(&self, section: &Section) -> f32 {
        let ReaderCalibration { nearness, offset, least_taught, taught, .. } = &self.calibration;
        let [near, phrasing] =
            [section.nearness, section.taught].map(|hundredths| f32::from(hundredths) / 100.0);
        offset + nearness * near + taught * (phrasing - least_taught).max(0.0)
    }

    /// The share of right answers for the probability of the best section: of the section with the best
    /// sentence, among all sentences and none.
    fn precision(&self, scores: &[Vec<f32>]) -> f32 {
        let best = |of: &Vec<f32>| of.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let highest = scores.iter().map(best).fold(0.0, f32::max);
        let mass = |of: &Vec<f32>| of.iter().map(|score| (score - highest).exp()).sum::<f32>();
        let total = (-highest).exp() + scores.iter().map(mass).sum::<f32>();
        let section = scores.iter().max_by(|a, b| best(a).total_cmp(&best(b)));
        let probability = section.map_or(0.0, |section| mass(section) / total);
        interpolate(&self.calibration.precision, probability)
    }
}

/// The value at `x` of a line through points of rising `x`; constant beyond them.
fn interpolate(points: &[(f32, f32)], x: f32) -> f32 {
    let after = points.partition_point(|point| point.0 < x);
    match (after.checked_sub(1).and_then(|at| points.get(at)), points.get(after)) {
        (Some(a), Some(b)) => a.1 + (b.1 - a.1) * (x - a.0) / (b.0 - a.0),
        (Some(only), None) | (None, Some(only)) => only.1,
        (None, None) => x,
    }
}

/// The mean of some rows of a matrix.
fn mean(rows: &[f32], at: std::ops::Range<usize>, width: usize) -> Vec<f32> {
    let mut sum = vec![0.0; width];
    let count = at.len() as f32;
    for row in at {
        let row = &rows[row * width..(row + 1) * width];
        sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x / count);
    }
    sum
}

fn apply((weights, bias): &(Vec<f32>, f32), vector: &[f32]) -> f32 {
    weights.iter().zip(vector).map(|(weight, x)| weight * x).sum::<f32>() + bias
}

/// The tensors of a file, in f32.
fn tensors(file: &SafeTensors<'_>) -> Result<HashMap<String, Tensor>, String> {
    let numbers = |bytes: &[u8]| -> Vec<f32> {
        bytes.chunks_exact(4).map(|it| f32::from_le_bytes([it[0], it[1], it[2], it[3]])).collect()
    };
    let mut found = HashMap::new();
    for (name, view) in file.tensors() {
        let values = match view.dtype() {
            Dtype::F32 => numbers(view.data()),
            Dtype::I8 => {
                let scales = file.tensor(&format!("{name}.scale")).map_err(|it| it.to_string())?;
                let columns = view.shape().last().copied().unwrap_or(1).max(1);
                let rows = view.data().chunks_exact(columns).zip(numbers(scales.data()));
                rows.flat_map(|(row, scale)| {
                    row.iter().map(move |it| f32::from(it.cast_signed()) * scale)
                })
                .collect()
            }
            other => return Err(format!("tensor `{name}` is of type {other:?}")),
        };
        let tensor = Tensor::from_vec(values, view.shape(), &Device::Cpu);
        found.insert(name, tensor.map_err(|error| error.to_string())?);
    }
    Ok(found)
}

impl Encoder for AnswerReader {
    fn name(&self) -> &str {
        READER
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn dimensions(&self) -> usize {
        self.network.width()
    }

    fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
        let failed = |reason| EncodeError { encoder: READER.to_owned(), reason };
        let (made, encoded) = self.vectors(texts).map_err(failed)?;
        vectors.extend(made);
        Ok(encoded)
    }
}

/// The reader behind the port `Read`.
pub struct ReaderBackend(pub Arc<AnswerReader>);

impl Backend for ReaderBackend {
    type Item = ReadRequest;
    type Output = Reading;

    fn name(&self) -> &str {
        READER
    }

    fn tokens(&self, request: &ReadRequest) -> usize {
        let Question { utterance, before } = &request.question;
        let turn = utterance.len() + before.iter().map(String::len).sum::<usize>();
        let of = |section: &Section| {
            section.title.len() + section.sentences.iter().map(String::len).sum::<usize>()
        };
        (turn + request.sections.iter().map(|it| (turn + of(it)).min(MAX_PASS * 4)).sum::<usize>())
            / 4
    }

    fn run(&self, requests: &[ReadRequest]) -> Result<(Vec<Reading>, Encoded), String> {
        let mut encoded = Encoded::default();
        let read = requests.iter().map(|request| self.0.read(request, &mut encoded.tokens));
        let readings = read.collect::<Result<Vec<_>, _>>()?;
        Ok((readings, encoded))
    }
}

#[cfg(test)]
mod tests;
