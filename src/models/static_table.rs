//! The static encoder: a vector per word piece, distilled from a sentence encoder by
//! `turnstream-lab`. The vector of a text is the sum of its pieces' vectors, normalised to length
//! 1. Encoding takes microseconds, little more than tokenising the text.
//!
//! The length of a piece's vector is the piece's weight. The file is in the safetensors format:
//! `rows` (i8, pieces × dimensions), `scales` (f32, one per piece), and a card in the metadata with
//! the tokenizer, since a table is useless under another tokenizer.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensorError, SafeTensors};
use serde::{Deserialize, Serialize};
use tokenizers::Tokenizer;
use turnstream_ports::model::calibration::Calibration;
use turnstream_weights::STATIC_TABLE;

use turnstream_ports::model::encoder::{EncodeError, Encoded, Encoder};

use super::word_pieces::WordPieces;

/// Version of the layout.
const FORMAT_VERSION: u32 = 1;

/// The card's key in the metadata. There is one key, because several would have no fixed order.
const CARD: &str = "turnstream";

/// Describes a table.
#[derive(Serialize, Deserialize)]
struct TableCard {
    format: u32,
    name: String,
    tokenizer: Tokenizer,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    calibration: Option<Calibration>,
}

/// The most pieces of a text; later pieces are cut.
pub const MAX_PIECES: usize = 512;

/// Why a table cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file cannot be read.
    #[error("cannot read the static table {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is not a static table.
    #[error("{place} is not a static table ({what}); make one with `turnstream models distil`")]
    NotATable {
        /// The file, or the program itself.
        place: String,
        /// What is wrong with it.
        what: String,
    },
    /// The parts of a table do not fit.
    #[error("the static table cannot be written: {0}")]
    Write(String),
}

/// A vector per word piece.
pub struct StaticTable {
    name: String,
    fingerprint: u64,
    dimensions: usize,
    rows: Box<[i8]>,
    scales: Box<[f32]>,
    pieces: WordPieces,
    calibration: Option<Calibration>,
}

impl std::fmt::Debug for StaticTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, pieces) = (&self.name, self.scales.len());
        f.debug_struct("StaticTable")
            .field("name", name)
            .field("pieces", &pieces)
            .field("dimensions", &self.dimensions)
            .finish_non_exhaustive()
    }
}

impl StaticTable {
    /// Reads a table: a safetensors file, or one compressed with zstd.
    ///
    /// # Errors
    /// The file cannot be read, or is not a table.
    pub fn open(path: &Path) -> Result<Self, TableError> {
        let read = |source| TableError::Read { path: path.to_owned(), source };
        let bytes = std::fs::read(path).map_err(read)?;
        let is_compressed = bytes.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]);
        let bytes = if is_compressed { zstd::decode_all(&*bytes).map_err(read)? } else { bytes };
        Self::from_bytes(&bytes, &path.display().to_string())
    }

    /// Returns the table inside the program, for English. It is unpacked once and shared.
    ///
    /// # Errors
    /// The table is damaged.
    pub fn shipped() -> Result<Arc<Self>, TableError> {
        static UNPACKED: Mutex<Option<Arc<StaticTable>>> = Mutex::new(None);
        let mut unpacked = UNPACKED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = &*unpacked {
            return Ok(Arc::clone(table));
        }
        let place = "(the shipped static table)";
        let bytes = zstd::decode_all(STATIC_TABLE).map_err(|error| not_a_table(place, error))?;
        let table = Arc::new(Self::from_bytes(&bytes, place)?);
        *unpacked = Some(Arc::clone(&table));
        Ok(table)
    }

    fn from_bytes(bytes: &[u8], place: &str) -> Result<Self, TableError> {
        let damaged = |error: SafeTensorError| not_a_table(place, error);
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
        let metadata = metadata.metadata().as_ref();
        let card = metadata.and_then(|metadata| metadata.get(CARD));
        let card = card.ok_or_else(|| not_a_table(place, "it does not say what it is"))?;
        let card =
            serde_json::from_str::<TableCard>(card).map_err(|error| not_a_table(place, error))?;
        let TableCard { format, name, tokenizer, calibration } = card;
        if format != FORMAT_VERSION {
            return Err(not_a_table(place, format!("its format is {format}")));
        }

        let tensors = SafeTensors::deserialize(bytes).map_err(damaged)?;
        let (rows, scales) = (tensors.tensor("rows"), tensors.tensor("scales"));
        let (rows, scales) = (rows.map_err(damaged)?, scales.map_err(damaged)?);
        let &[pieces, dimensions] = rows.shape() else {
            return Err(not_a_table(place, "its rows are not a matrix"));
        };
        let fits = rows.dtype() == Dtype::I8
            && scales.dtype() == Dtype::F32
            && scales.shape() == [pieces]
            && dimensions > 0
            && pieces >= tokenizer.get_vocab_size(true);
        if !fits {
            return Err(not_a_table(place, "rows, scales and pieces do not fit each other"));
        }
        let scales: Box<[f32]> = scales.data().chunks_exact(4).map(float).collect();
        if !scales.iter().all(|scale| scale.is_finite()) {
            return Err(not_a_table(place, "a scale is not finite"));
        }
        Ok(Self {
            name,
            fingerprint: u64::from(crc32fast::hash(bytes)) | (bytes.len() as u64) << 32,
            dimensions,
            rows: rows.data().iter().map(|byte| *byte as i8).collect(),
            scales,
            pieces: WordPieces::new(tokenizer),
            calibration,
        })
    }

    /// Converts cosines to scores, if the table was trained to judge consistency.
    pub fn calibration(&self) -> Option<Calibration> {
        self.calibration
    }

    /// Serialises a table: `vectors` holds one vector per piece of the tokenizer, by the piece's
    /// number. The same parts give the same bytes.
    ///
    /// # Errors
    /// The parts do not fit.
    pub fn to_bytes(
        name: &str,
        tokenizer: &Tokenizer,
        vectors: &[f32],
        dimensions: usize,
        calibration: Option<Calibration>,
    ) -> Result<Vec<u8>, TableError> {
        let failed = |error: &dyn std::fmt::Display| TableError::Write(error.to_string());
        let mut rows = Vec::with_capacity(vectors.len());
        let mut scales = Vec::new();
        for vector in vectors.chunks_exact(dimensions) {
            let largest = vector.iter().fold(0.0_f32, |most, number| most.max(number.abs()));
            let step = if largest > 0.0 { 127.0 / largest } else { 0.0 };
            rows.extend(vector.iter().map(|number| (number * step).round() as i8 as u8));
            scales.extend_from_slice(&(largest / 127.0).to_le_bytes());
        }
        let pieces = scales.len() / 4;
        let view = |dtype, shape, data| TensorView::new(dtype, shape, data).map_err(|e| failed(&e));
        let tensors = [
            ("rows", view(Dtype::I8, vec![pieces, dimensions], &rows)?),
            ("scales", view(Dtype::F32, vec![pieces], &scales)?),
        ];
        let (name, tokenizer) = (name.to_owned(), tokenizer.clone());
        let card = TableCard { format: FORMAT_VERSION, name, tokenizer, calibration };
        let card = serde_json::to_string(&card).map_err(|error| failed(&error))?;
        let metadata = HashMap::from([(CARD.to_owned(), card)]);
        safetensors::serialize(tensors, Some(metadata)).map_err(|error| failed(&error))
    }

    /// Tokenises a text to piece numbers; also returns whether the text was cut.
    fn pieces(&self, text: &str) -> Result<(Vec<u32>, bool), EncodeError> {
        let mut pieces = self.pieces.of(text).map_err(|error| EncodeError {
            encoder: self.name.clone(),
            reason: format!("a text cannot be cut into pieces: {error}"),
        })?;
        let is_cut = pieces.len() > MAX_PIECES;
        pieces.truncate(MAX_PIECES);
        Ok((pieces, is_cut))
    }

    /// Tokenises a text to at most [`MAX_PIECES`] piece numbers.
    ///
    /// # Errors
    /// The tokenizer fails on the text.
    pub fn cut(&self, text: &str) -> Result<Vec<u32>, EncodeError> {
        Ok(self.pieces(text)?.0)
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        self.pieces.tokenizer()
    }

    /// The vectors of all pieces, by number, concatenated.
    pub fn vectors(&self) -> Vec<f32> {
        let rows = self.rows.chunks_exact(self.dimensions).zip(&self.scales);
        rows.flat_map(|(row, scale)| row.iter().map(move |byte| scale * f32::from(*byte))).collect()
    }

    /// A piece's text; a continuation keeps its mark.
    pub fn piece(&self, number: u32) -> Option<String> {
        self.tokenizer().id_to_token(number)
    }

    /// Writes a piece's vector, normalised to length 1, to `vector`; zeros for an unknown piece.
    ///
    /// # Panics
    /// If `vector` is not as wide as the table.
    pub fn direction(&self, piece: u32, vector: &mut [f32]) {
        assert_eq!(vector.len(), self.dimensions, "a vector as wide as the table");
        vector.fill(0.0);
        self.sum(&[piece], vector);
    }

    /// Sums the vectors of pieces and normalises the sum to length 1.
    fn sum(&self, pieces: &[u32], vector: &mut [f32]) {
        for &piece in pieces {
            let Some(&scale) = self.scales.get(piece as usize) else { continue };
            let row = &self.rows[piece as usize * self.dimensions..][..self.dimensions];
            for (number, byte) in vector.iter_mut().zip(row) {
                *number += scale * f32::from(*byte);
            }
        }
        let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
        if length > 0.0 {
            vector.iter_mut().for_each(|number| *number /= length);
        }
    }
}

impl Encoder for StaticTable {
    fn name(&self) -> &str {
        &self.name
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
        let begun = vectors.len();
        let mut done = Encoded::default();
        vectors.resize(begun + texts.len() * self.dimensions, 0.0);
        for (at, text) in texts.iter().enumerate() {
            let (pieces, cut) = self.pieces(text).inspect_err(|_| vectors.truncate(begun))?;
            done.tokens += pieces.len() as u64;
            done.cut += u64::from(cut);
            self.sum(&pieces, &mut vectors[begun + at * self.dimensions..][..self.dimensions]);
        }
        Ok(done)
    }
}

fn float(bytes: &[u8]) -> f32 {
    bytes.first_chunk().map_or(f32::NAN, |bytes| f32::from_le_bytes(*bytes))
}

fn not_a_table(place: &str, what: impl std::fmt::Display) -> TableError {
    TableError::NotATable { place: place.to_owned(), what: what.to_string() }
}
