//! The reader's network of one language: one BERT that converts texts to vectors, and reads a turn
//! and a section together.
//!
//! Each text goes through the lower layers alone. Its vector is the mean of the rows that the
//! network's own upper layers give for it, and so is that of a sentence within its section. To
//! read, the rows of utterance, turns before and section go together through upper layers of the
//! reader's own. A sentence's score is a sum: the mean of its rows there through one linear layer,
//! and the cosines of its vector and of its section's with the question's. A section therefore goes
//! through the lower layers once, and a turn too. Two more layers tell the intents by the means of
//! the utterance's rows at three heights of the lower layers, which know more of its tone, and by
//! its vector.
//!
//! `deploy/training/answers` trains and exports it; the file is in the safetensors format,
//! compressed with zstd: matrices as `NAME` (i8, rows × columns) with `NAME.scale` (f32, one per
//! row), other tensors in f32, and a card in the metadata with the shape and the tokenizer.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use candle_core::{Device, Tensor};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use serde::Deserialize;
use tokenizers::Tokenizer;
use turnstream_ports::model::encoder::Encoded;
use turnstream_ports::model::reader::{
    BEFORE_SHARE, Intent, Question, ReadRequest, Reading, Section,
};
use turnstream_ports::script::simplified_text;

use super::LanguageFiles;
use super::calibration::{Cosines, ReaderCalibration};
use crate::bert::kernels::{dot, gelu, softmax};
use crate::bert::network::{Batch, BertNetwork, UpperLayers, Weights};
use crate::bert::quantised::QuantisedMatrix;
use crate::folder::BertShape;
use crate::word_pieces::WordPieces;

/// The card's key in the metadata.
const CARD: &str = "turnstream";
/// The most tokens of a section, and of any text that gets a vector.
pub(super) const MAX_TEXT: usize = 160;
/// The most tokens of each turn that is read with a section: its last ones.
pub(super) const MAX_TURN: usize = 64;
/// The most bytes of the states of texts that are kept.
const MAX_KEPT: u64 = 64 << 20;
/// The expected number of texts among them.
const EXPECTED_KEPT: usize = 512;
/// Bytes per allowed token, beyond which a text is cut before it is tokenised.
const BYTES_PER_TOKEN: usize = 16;

/// Numbers between what intents are told by and their logits.
const INTENTS_HIDDEN: usize = 64;

/// The card of the file.
#[derive(Deserialize)]
struct ReaderCard {
    shape: BertShape,
    tokenizer: Tokenizer,
}

/// The network of one language.
pub(super) struct ReaderNetwork {
    pieces: WordPieces,
    begin: u32,
    end: u32,
    network: BertNetwork,
    /// The upper layers of the reader's own.
    reading: UpperLayers,
    /// Weights and bias of a sentence's score.
    score: (Vec<f32>, f32),
    /// The weights and biases of the two layers that tell intents, by [`TextStates::told_by`].
    intents: [Vec<(Vec<f32>, f32)>; 2],
    /// Factors of the cosines of a sentence and of its section with the question.
    nearness: [f32; 2],
    /// Added to the rows of each text that is read, by [`Role`].
    roles: [Vec<f32>; 4],
    calibration: ReaderCalibration,
    /// The states of recent texts.
    kept: Cache<TextTokens, Arc<TextStates>, ByBytes>,
}

/// A text for the network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TextTokens {
    ids: Vec<u32>,
    /// In a section, the rows of each sentence that found room.
    sentences: Vec<Range<usize>>,
}

/// The role of a text among those that are read together.
#[derive(Clone, Copy)]
enum Role {
    Utterance,
    UserBefore,
    SystemBefore,
    Section,
}

/// The network's results for a text alone.
struct TextStates {
    /// The rows above the lower layers, one for each token.
    lower: Vec<f32>,
    /// What intents are told by: the means of the rows above a half, three quarters and all of the
    /// lower layers, and the text's vector, each with length 1.
    told_by: Vec<f32>,
    /// The vectors of length 1 of the text and of its sentences.
    vectors: TextVectors,
}

struct TextVectors {
    whole: Vec<f32>,
    sentences: Vec<Vec<f32>>,
}

/// Weighs states by their bytes.
#[derive(Clone)]
struct ByBytes;

impl Weighter<TextTokens, Arc<TextStates>> for ByBytes {
    fn weight(&self, _: &TextTokens, states: &Arc<TextStates>) -> u64 {
        let TextStates { lower, told_by, vectors } = &**states;
        let vectors = vectors.whole.len() * (1 + vectors.sentences.len());
        let numbers = lower.len() + told_by.len() + vectors;
        (numbers * size_of::<f32>()) as u64
    }
}

impl ReaderNetwork {
    /// Unpacks a file, whose weights `weights` reads, with its calibration.
    pub(super) fn from_bytes(
        LanguageFiles { packed, calibration }: LanguageFiles,
        weights: impl FnOnce(&SafeTensors<'_>) -> Result<Weights, String>,
    ) -> Result<Self, String> {
        let bytes = zstd::decode_all(packed).map_err(|error| error.to_string())?;
        let said = |error: safetensors::SafeTensorError| error.to_string();
        let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(said)?;
        let card = metadata.metadata().as_ref().and_then(|of_file| of_file.get(CARD));
        let card = card.ok_or("it has no card")?;
        let card: ReaderCard = serde_json::from_str(card).map_err(|error| error.to_string())?;
        let mut weights = weights(&SafeTensors::deserialize(&bytes).map_err(said)?)?;
        let width = card.shape.hidden_size;
        let mut linear = |name: &str, [outputs, inputs]: [usize; 2]| {
            let rows = weights.take(&format!("{name}.weight"), &[outputs, inputs])?;
            let bias = weights.take(&format!("{name}.bias"), &[outputs])?;
            let rows = rows.chunks_exact(inputs).map(<[f32]>::to_vec);
            Ok::<Vec<(Vec<f32>, f32)>, String>(rows.zip(bias).collect())
        };
        let score = linear("score", [1, width])?.pop().ok_or("it has no score")?;
        let intents = [
            linear("intents.hidden", [INTENTS_HIDDEN, 4 * width])?,
            linear("intents.logits", [Intent::ALL.len(), INTENTS_HIDDEN])?,
        ];
        let nearness = weights.take("nearness", &[2])?;
        let roles = weights.take("roles.weight", &[4, width])?;
        let roles = std::array::from_fn(|role| roles[role * width..][..width].to_vec());
        let token = |text: &str| {
            card.tokenizer.token_to_id(text).ok_or_else(|| format!("its tokenizer has no {text}"))
        };
        Ok(Self {
            begin: token("[CLS]")?,
            end: token("[SEP]")?,
            network: BertNetwork::take(&mut weights, &card.shape)?,
            reading: UpperLayers::take(&mut weights, "reading", &card.shape)?,
            pieces: WordPieces::new(card.tokenizer),
            calibration: ReaderCalibration::read(calibration)?,
            score,
            intents,
            nearness: [nearness[0], nearness[1]],
            roles,
            kept: Cache::with_weighter(EXPECTED_KEPT, MAX_KEPT, ByBytes),
        })
    }

    /// The tokens of a text; the network knows simplified characters.
    fn tokens(&self, text: &str) -> Result<Vec<u32>, String> {
        self.pieces.of(&simplified_text(text)).map_err(|error| error.to_string())
    }

    /// The tokens that a text begins with, at most `most`.
    fn first_tokens(&self, text: &str, most: usize) -> Result<Vec<u32>, String> {
        let head = &text[..text.floor_char_boundary(most * BYTES_PER_TOKEN)];
        let mut tokens = self.tokens(head)?;
        tokens.truncate(most);
        Ok(tokens)
    }

    /// Converts a turn to tokens for the network.
    fn turn(&self, text: &str) -> Result<TextTokens, String> {
        let most = MAX_TURN - 2;
        let tail = text.len().saturating_sub(most * BYTES_PER_TOKEN);
        let tokens = self.tokens(&text[text.ceil_char_boundary(tail)..])?;
        Ok(self.whole(&tokens[tokens.len().saturating_sub(most)..]))
    }

    /// Puts tokens between those of a begin and an end.
    fn whole(&self, tokens: &[u32]) -> TextTokens {
        let ids = std::iter::once(self.begin).chain(tokens.iter().copied()).chain([self.end]);
        TextTokens { ids: ids.collect(), sentences: Vec::new() }
    }

    /// Converts a section to tokens for the network.
    fn section(&self, section: &Section) -> Result<TextTokens, String> {
        let (mut ids, mut sentences) = (vec![self.begin], Vec::new());
        ids.extend(self.first_tokens(&section.title, MAX_TEXT)?);
        for sentence in &section.sentences {
            let start = ids.len();
            ids.extend(self.first_tokens(sentence, MAX_TEXT)?);
            ids.truncate(MAX_TEXT - 1);
            if start >= ids.len() {
                break;
            }
            sentences.push(start..ids.len());
        }
        ids.truncate(MAX_TEXT - 1);
        ids.push(self.end);
        Ok(TextTokens { ids, sentences })
    }

    /// Returns the states of a text, kept or new.
    fn states(&self, text: TextTokens, tokens: &mut u64) -> Result<Arc<TextStates>, String> {
        if let Some(states) = self.kept.get(&text) {
            return Ok(states);
        }
        *tokens += text.ids.len() as u64;
        let mut batch = Batch::default();
        batch.push(&text.ids, &vec![0; text.ids.len()]);
        let (width, all) = (self.network.width(), 0..text.ids.len());
        let lower_layers = self.network.layers().saturating_sub(self.reading.layers());
        let (mut lower, mut told_by, mut done) = (self.network.embed(&batch)?, Vec::new(), 0);
        for layers in [lower_layers / 2, lower_layers * 3 / 4, lower_layers] {
            lower = self.network.through_layers(lower, done..layers);
            told_by.extend(unit(mean(&lower, all.clone(), width)));
            done = layers;
        }
        let rows = self.network.through_layers(lower.clone(), done..self.network.layers());
        let of = |at: Range<usize>| unit(mean(&rows, at, width));
        let sentences = text.sentences.iter().cloned().map(of).collect();
        let vectors = TextVectors { whole: of(all), sentences };
        if vectors.whole.iter().any(|x| !x.is_finite()) {
            return Err("the network gave numbers that are not finite".to_owned());
        }
        told_by.extend(&vectors.whole);
        let states = Arc::new(TextStates { lower, told_by, vectors });
        self.kept.insert(text, Arc::clone(&states));
        Ok(states)
    }

    /// Numbers per vector.
    pub(super) fn width(&self) -> usize {
        self.network.width()
    }

    /// Appends the vector of length 1 of a text.
    pub(super) fn vector(
        &self,
        text: &str,
        vectors: &mut Vec<f32>,
        encoded: &mut Encoded,
    ) -> Result<(), String> {
        let text = self.whole(&self.first_tokens(text, MAX_TEXT - 2)?);
        encoded.cut += u64::from(text.ids.len() == MAX_TEXT);
        vectors.extend(&self.states(text, &mut encoded.tokens)?.vectors.whole);
        Ok(())
    }

    /// Appends the rows of a text to those that it is read with.
    fn join(&self, rows: &mut Vec<f32>, states: &TextStates, role: Role) {
        let role = &self.roles[role as usize];
        for row in states.lower.chunks_exact(role.len()) {
            rows.extend(row.iter().zip(role).map(|(x, role)| x + role));
        }
    }

    /// Reads a question with each of its sections.
    pub(super) fn read(&self, request: &ReadRequest, tokens: &mut u64) -> Result<Reading, String> {
        let width = self.network.width();
        let Question { utterance, user_before, system_before } = &request.question;
        let utterance = self.states(self.turn(utterance)?, tokens)?;
        let (mut turn, mut asked) = (Vec::new(), utterance.vectors.whole.clone());
        self.join(&mut turn, &utterance, Role::Utterance);
        for (text, role) in [(user_before, Role::UserBefore), (system_before, Role::SystemBefore)] {
            let Some(text) = text else { continue };
            let before = self.states(self.turn(text)?, tokens)?;
            self.join(&mut turn, &before, role);
            let vector = &before.vectors.whole;
            asked.iter_mut().zip(vector).for_each(|(sum, x)| *sum += BEFORE_SHARE * x);
        }
        let (asked, begin) = (unit(asked), turn.len() / width);
        let (mut scores, mut cosines) = (Vec::with_capacity(request.sections.len()), Vec::new());
        for section in &request.sections {
            let text = self.section(section)?;
            let sentences = text.sentences.clone();
            let states = self.states(text, tokens)?;
            let mut rows = turn.clone();
            self.join(&mut rows, &states, Role::Section);
            *tokens += (rows.len() / width) as u64;
            let rows = self.network.above_with(rows, &self.reading);
            let cosine = |vector: &Vec<f32>| dot(vector, &asked);
            let near = Cosines {
                section: cosine(&states.vectors.whole),
                sentences: states.vectors.sentences.iter().map(cosine).collect(),
            };
            let score = |(at, cosine): (Range<usize>, &f32)| {
                let rows = mean(&rows, begin + at.start..begin + at.end, width);
                let near = self.nearness[0] * cosine + self.nearness[1] * near.section;
                self.calibration.logit(apply(&self.score, &rows) + near, section)
            };
            scores.push(sentences.into_iter().zip(&near.sentences).map(score).collect());
            cosines.push(near);
        }
        let [hidden, logits] = &self.intents;
        let mut found: Vec<f32> =
            hidden.iter().map(|layer| apply(layer, &utterance.told_by)).collect();
        gelu(&mut found, &[0.0; INTENTS_HIDDEN]);
        let mut intents = [0.0; Intent::ALL.len()];
        intents.iter_mut().zip(logits).for_each(|(to, layer)| *to = apply(layer, &found));
        softmax(&mut intents);
        let ReadRequest { question, sections } = request;
        let precision = self.calibration.precision(question, sections, &cosines, &scores);
        Ok(Reading { scores, intents, precision })
    }
}

/// The mean of some rows of a matrix.
fn mean(rows: &[f32], at: Range<usize>, width: usize) -> Vec<f32> {
    let mut sum = vec![0.0; width];
    let count = at.len() as f32;
    for row in at {
        let row = &rows[row * width..(row + 1) * width];
        sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x / count);
    }
    sum
}

/// The vector with length 1.
fn unit(mut vector: Vec<f32>) -> Vec<f32> {
    let norm = dot(&vector, &vector).sqrt().max(f32::MIN_POSITIVE);
    vector.iter_mut().for_each(|x| *x /= norm);
    vector
}

fn apply((weights, bias): &(Vec<f32>, f32), vector: &[f32]) -> f32 {
    dot(weights, vector) + bias
}

/// The weights of a file.
pub(super) fn weights(file: &SafeTensors<'_>) -> Result<Weights, String> {
    let numbers = |bytes: &[u8]| -> Vec<f32> {
        bytes.chunks_exact(4).map(|it| f32::from_le_bytes([it[0], it[1], it[2], it[3]])).collect()
    };
    let (mut tensors, mut quantised) = (HashMap::new(), HashMap::new());
    for (name, view) in file.tensors() {
        match view.dtype() {
            Dtype::F32 => {
                let tensor = Tensor::from_vec(numbers(view.data()), view.shape(), &Device::Cpu);
                tensors.insert(name, tensor.map_err(|error| error.to_string())?);
            }
            Dtype::I8 => {
                let scales = file.tensor(&format!("{name}.scale")).map_err(|it| it.to_string())?;
                let values = view.data().iter().map(|byte| byte.cast_signed()).collect();
                let matrix = QuantisedMatrix { values, scales: numbers(scales.data()) };
                if view.shape() != [matrix.scales.len(), matrix.columns()] {
                    return Err(format!("tensor `{name}` has not one scale for each row"));
                }
                quantised.insert(name, matrix);
            }
            other => return Err(format!("tensor `{name}` is of type {other:?}")),
        }
    }
    Ok(Weights::of(tensors, quantised))
}
