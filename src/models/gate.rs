//! The learned gate: RAGate's attention encoder (METHODS section 1), and beside it, unless the gate
//! has the paper's form, a regression over the n-grams of the current utterance for each definition of
//! need ([`ngrams`]). Each is right where the other errs, the regression above all in domains that
//! training lacks, so the mean of their logits decides. `turnstream train gate` trains both, and they
//! run in the stream behind [`LearnedGate`].
//!
//! A gate is one file with weights, vocabularies and [`Card`]. [`network`] defines the encoder once,
//! for training and inference, on the arithmetic of `ops`; [`reading`] converts a turn to tokens.
//! The program contains one gate, for English.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{DType, Device, Tensor};
use safetensors::SafeTensors;
use turnstream_ports::model::gate::{GateFailure, GateReading, GateScores, LearnedGate};

pub mod card;
pub mod instructed;
pub mod network;
pub mod ngrams;
mod ops;
pub mod reading;

use card::{Card, Definition};
use network::Network;
use ngrams::{NgramRegression, Ngrams, Vectoriser};
use reading::{CutTurn, Reader, TokenKind, TurnTokens, assemble};
use turnstream_ports::model::encoder::Encoder;

use super::static_table::{StaticTable, TableError};

/// Version of the layout. The first had no regressions, and is read as well.
pub const FORMAT_VERSION: u32 = 2;

/// The card's key in the file's metadata.
const CARD: &str = "turnstream";

/// Why a gate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The file cannot be read.
    #[error("cannot read the gate {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is damaged, or is not a gate.
    #[error("{place} is not a gate ({what}); make one with `turnstream train gate`")]
    NotAGate {
        /// The file, or the program itself.
        place: String,
        /// What is wrong with it.
        what: String,
    },
    /// The gate cannot be written.
    #[error("the gate cannot be written: {0}")]
    Write(String),
    /// The gate's static table cannot be used.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// A trained gate.
pub struct Gate {
    card: Card,
    reader: Reader,
    network: Network,
    /// By definition; empty if the encoder decides alone.
    regressions: Vec<NgramRegression>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("card", &self.card).finish_non_exhaustive()
    }
}

/// Returns the static table whose pieces are the tokens of a vocabulary of this kind.
///
/// # Errors
/// The shipped table is damaged.
pub fn table_of(kind: TokenKind) -> Result<Option<Arc<StaticTable>>, TableError> {
    match kind {
        TokenKind::Pieces => StaticTable::shipped().map(Some),
        TokenKind::Words | TokenKind::Characters => Ok(None),
    }
}

impl Gate {
    /// Reads a gate: a safetensors file, or one compressed with zstd.
    ///
    /// # Errors
    /// The file cannot be read, or is not a gate.
    pub fn open(path: &Path) -> Result<Self, GateError> {
        let read = |source| GateError::Read { path: path.to_owned(), source };
        let bytes = std::fs::read(path).map_err(read)?;
        Self::from_bytes(&bytes, &path.display().to_string())
    }

    /// Returns the gate inside the program, for English. It is unpacked once and shared.
    ///
    /// # Errors
    /// The gate is damaged.
    pub fn shipped() -> Result<Arc<Self>, GateError> {
        static UNPACKED: Mutex<Option<Arc<Gate>>> = Mutex::new(None);
        let mut unpacked = UNPACKED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gate) = &*unpacked {
            return Ok(Arc::clone(gate));
        }
        let gate = Arc::new(Self::from_bytes(turnstream_weights::GATE, "(the shipped gate)")?);
        *unpacked = Some(Arc::clone(&gate));
        Ok(gate)
    }

    fn from_bytes(bytes: &[u8], place: &str) -> Result<Self, GateError> {
        let is_compressed = bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]);
        let unpacked = match is_compressed {
            true => zstd::decode_all(bytes).map_err(|error| not_a_gate(place, error))?,
            false => bytes.to_vec(),
        };
        let (_, metadata) =
            SafeTensors::read_metadata(&unpacked).map_err(|error| not_a_gate(place, error))?;
        let metadata = metadata.metadata().as_ref();
        let card = metadata.and_then(|metadata| metadata.get(CARD));
        let card = card.ok_or_else(|| not_a_gate(place, "it does not say what it is"))?;
        let card: Card = serde_json::from_str(card).map_err(|error| not_a_gate(place, error))?;
        card.check().map_err(|what| not_a_gate(place, what))?;
        let tensors = candle_core::safetensors::load_buffer(&unpacked, &Device::Cpu)
            .map_err(|error| not_a_gate(place, error))?;
        let mut parameters = BTreeMap::new();
        for (name, tensor) in tensors {
            let tensor = tensor.to_dtype(DType::F32).map_err(|error| not_a_gate(place, error))?;
            parameters.insert(name, tensor);
        }
        Self::new(card, parameters).map_err(|error| match error {
            GateError::NotAGate { what, .. } => not_a_gate(place, what),
            other => other,
        })
    }

    /// Makes a gate of trained parameters.
    ///
    /// # Errors
    /// A parameter is missing or of another shape, or the table is not the one of the training.
    pub fn new(card: Card, parameters: BTreeMap<String, Tensor>) -> Result<Self, GateError> {
        let table = table_of(card.vocabulary.kind)?;
        if table.as_ref().map(|table| table.fingerprint()) != card.table {
            let what = "it was trained on another static table than the program's";
            return Err(not_a_gate("the gate", what));
        }
        for (name, shape, _) in card.parameters(table.as_deref()) {
            let dims = parameters.get(&name).map(|tensor| tensor.dims().to_vec());
            if dims.as_ref() != Some(&shape) {
                let what = format!("its parameter `{name}` is {dims:?}, not {shape:?}");
                return Err(not_a_gate("the gate", what));
            }
        }
        let of_definition = |(definition, ngrams): (&Definition, &Ngrams)| {
            let [idf, weights, bias] = regression_names(&definition.name).map(|name| {
                let tensor = parameters.get(&name).ok_or_else(|| format!("it has no `{name}`"))?;
                tensor.to_vec1::<f32>().map_err(|error| format!("its `{name}`: {error}"))
            });
            let (idf, weights, bias) = (idf?, weights?, bias?);
            match (idf.len(), weights.len(), &*bias) {
                (columns, others, [bias]) if columns == others && columns == ngrams.len() => {
                    Ok(NgramRegression::new(Vectoriser::new(ngrams, &idf), weights, *bias))
                }
                _ => Err(format!("its regression of `{}` is incomplete", definition.name)),
            }
        };
        let regressions = card.definitions.iter().zip(&card.ngrams).map(of_definition);
        let regressions = regressions.collect::<Result<_, String>>();
        let regressions = regressions.map_err(|what| not_a_gate("the gate", what))?;
        let reader = Reader::new(&card.vocabulary, table.clone());
        let network = Network::new(card.shape.clone(), parameters, table);
        Ok(Self { network, reader, regressions, card })
    }

    /// Serialises the gate: safetensors of half precision, compressed with zstd. The same
    /// parameters give the same bytes.
    ///
    /// # Errors
    /// A parameter cannot be converted.
    pub fn to_bytes(
        card: &Card,
        parameters: &BTreeMap<String, Tensor>,
    ) -> Result<Vec<u8>, GateError> {
        let failed = |error: &dyn std::fmt::Display| GateError::Write(error.to_string());
        let halves = parameters.iter().map(|(name, tensor)| {
            let half = tensor.to_dtype(DType::F16);
            half.map(|half| (name.as_str(), half)).map_err(|error| failed(&error))
        });
        let halves = halves.collect::<Result<Vec<_>, _>>()?;
        let json = serde_json::to_string(card).map_err(|error| failed(&error))?;
        let metadata = std::collections::HashMap::from([(CARD.to_owned(), json)]);
        let bytes = safetensors::serialize(halves, Some(metadata));
        let bytes = bytes.map_err(|error| failed(&error))?;
        zstd::encode_all(&*bytes, 19).map_err(|error| failed(&error))
    }

    /// The description of its shape, data and figures.
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// Computes the need for knowledge, 0 to 1: for each turn, given with its current utterance, and
    /// each definition, in the card's order.
    ///
    /// # Errors
    /// The arithmetic fails.
    pub fn needs(&self, turns: &[(&TurnTokens, &str)]) -> candle_core::Result<Vec<Vec<f64>>> {
        let tokens: Vec<&TurnTokens> = turns.iter().map(|(tokens, _)| *tokens).collect();
        let logits = self.network.forward(&tokens, None)?.to_vec2::<f32>()?;
        let of_turn = |(row, (_, utterance)): (Vec<f32>, &(&TurnTokens, &str))| {
            let mut from = 0;
            let of_definition = |(at, definition): (usize, &Definition)| {
                let own = from..from + definition.classes.len();
                from = own.end;
                let regression = self.regressions.get(at);
                definition.need(&row[own], regression.map(|it| it.logit(utterance)))
            };
            self.card.definitions.iter().enumerate().map(of_definition).collect()
        };
        Ok(logits.into_iter().zip(turns).map(of_turn).collect())
    }

    /// The parameters by name.
    pub fn parameters(&self) -> &BTreeMap<String, Tensor> {
        self.network.parameters()
    }

    /// The reader that tokenises texts.
    pub fn reader(&self) -> &Reader {
        &self.reader
    }
}

/// Returns the parameters of a definition's regression: idf and weights by column, and the bias.
fn regression_names(definition: &str) -> [String; 3] {
    ["idf", "weights", "bias"].map(|part| format!("ngrams.{definition}.{part}"))
}

/// Returns the n-grams of a definition's regression, and its parameters by name.
///
/// # Errors
/// The parameters cannot be made into tensors.
pub fn regression_parameters(
    definition: &str,
    regression: &NgramRegression,
) -> candle_core::Result<(Ngrams, Vec<(String, Tensor)>)> {
    let (vectoriser, weights, bias) = regression.parts();
    let (ngrams, idf) = vectoriser.ngrams();
    let parts = [idf, weights.to_vec(), vec![bias]];
    let named = regression_names(definition).into_iter().zip(parts);
    let tensor = |(name, numbers)| Ok((name, Tensor::new::<Vec<f32>>(numbers, &Device::Cpu)?));
    Ok((ngrams, named.map(tensor).collect::<candle_core::Result<_>>()?))
}

impl LearnedGate for Gate {
    fn name(&self) -> &str {
        &self.card.name
    }

    fn language(&self) -> &str {
        &self.card.language
    }

    fn definitions(&self) -> Vec<&str> {
        self.card.definitions.iter().map(|definition| &*definition.name).collect()
    }

    fn score(&self, turn: &GateReading<'_>) -> Result<GateScores, GateFailure> {
        let tokens =
            |text: &str| self.reader.cut(text).map_err(|error| GateFailure(error.to_string()));
        let variant = self.card.shape.variant;
        let utterances = turn.utterances.iter();
        let utterances = utterances.map(|(speaker, text)| Ok((*speaker, tokens(text)?)));
        let knowledge = turn.knowledge.iter().filter(|_| variant.reads_knowledge());
        let response = turn.response.filter(|_| variant.reads_response());
        let cut = CutTurn {
            utterances: utterances.collect::<Result<_, _>>()?,
            knowledge: knowledge.map(|text| tokens(text)).collect::<Result<_, _>>()?,
            response: response.map(tokens).transpose()?,
            depth: turn.utterances.len(),
        };
        let tokens = assemble(&cut, &self.card.shape, None);
        let utterance = turn.utterances.last().map_or("", |(_, text)| text);
        let needs = self.needs(&[(&tokens, utterance)]);
        let needs = needs.map_err(|error| GateFailure(error.to_string()))?.pop();
        let scores = self.card.definitions.iter().zip(needs.unwrap_or_default());
        let scaled = scores.map(|(it, need)| (it.name.clone(), it.on_scale(need)));
        Ok(scaled.collect())
    }
}

fn not_a_gate(place: &str, what: impl std::fmt::Display) -> GateError {
    GateError::NotAGate { place: place.to_owned(), what: what.to_string() }
}

#[cfg(test)]
mod tests;
