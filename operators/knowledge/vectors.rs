//! The vectors of all facts of a snapshot, for ranking by meaning. They lie in one file, mapped
//! into memory and shared by all workers and processes.
//!
//! Rows are in the order of [`Graph::facts`], so that the facts of a head are adjacent. A row is a
//! scale and one byte per dimension: a cosine costs one pass over a few cache lines. The header
//! names the encoder and the snapshot, since vectors of another encoder or of other facts would
//! rank without sense and without an error.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use serde::{Deserialize, Serialize};

use super::{Fact, Graph};

/// The first bytes of a file.
const MAGIC: [u8; 8] = *b"TURNVECT";
/// Version of the layout.
const FORMAT_VERSION: u32 = 1;
/// Start of the rows. The header is text, padded with spaces.
const ROWS_AT: usize = 4096;
/// f32 before each row: the factor of its bytes.
const SCALE_BYTES: usize = 4;
/// Most dimensions of a vector. A dot product then fits in 32 bits.
pub const MAX_VECTOR_DIMENSIONS: usize = 4096;
/// A query is scaled to this length before it is rounded to whole numbers.
const QUERY_LENGTH: f32 = 16_384.0;

/// The encoder and the facts of a file of vectors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VectorsHeader {
    format: u32,
    /// [`Graph::version`] of the snapshot.
    pub snapshot: String,
    /// The number of its facts.
    pub facts: u64,
    /// The encoder's name.
    pub encoder: String,
    /// The encoder's fingerprint, in hexadecimal.
    pub fingerprint: String,
    /// Numbers per vector.
    pub dimensions: usize,
}

impl VectorsHeader {
    /// The header of vectors for every fact of a graph.
    pub fn new(graph: &Graph, encoder: &str, fingerprint: u64, dimensions: usize) -> Self {
        Self {
            format: FORMAT_VERSION,
            snapshot: graph.version().to_owned(),
            facts: graph.stats().facts,
            encoder: encoder.to_owned(),
            fingerprint: format!("{fingerprint:016x}"),
            dimensions,
        }
    }

    /// Whether this encoder made the vectors.
    pub fn is_by(&self, fingerprint: u64) -> bool {
        self.fingerprint == format!("{fingerprint:016x}")
    }

    fn row_bytes(&self) -> usize {
        SCALE_BYTES + self.dimensions
    }

    fn file_bytes(&self) -> Option<u64> {
        (self.row_bytes() as u64).checked_mul(self.facts)?.checked_add(ROWS_AT as u64)
    }

    /// The header as bytes of the file.
    fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = MAGIC.to_vec();
        serde_json::to_writer(&mut bytes, self)?;
        if bytes.len() >= ROWS_AT {
            return Err(io::Error::other("the encoder's name is too long"));
        }
        bytes.resize(ROWS_AT - 1, b' ');
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// Why vectors cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum VectorsError {
    /// The file cannot be read or written.
    #[error("the vectors of facts in {path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file is something else, or was truncated.
    #[error(
        "{path} does not hold vectors of facts ({what}); make them with `turnstream knowledge \
         embed`",
        path = path.display()
    )]
    NotVectors {
        /// The file.
        path: PathBuf,
        /// The problem.
        what: &'static str,
    },
    /// The vectors belong to other facts.
    #[error(
        "{path} has vectors for the facts of {found}, not of {expected}; make them again with \
         `turnstream knowledge embed`",
        path = path.display()
    )]
    OtherFacts {
        /// The file.
        path: PathBuf,
        /// The snapshot that they were made for.
        found: String,
        /// The opened snapshot.
        expected: String,
    },
}

/// The vectors of all facts of a snapshot, mapped.
pub struct FactVectors {
    header: VectorsHeader,
    map: Mmap,
}

impl std::fmt::Debug for FactVectors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FactVectors").field("header", &self.header).finish_non_exhaustive()
    }
}

impl FactVectors {
    /// Maps a file into memory.
    ///
    /// # Errors
    /// The file cannot be read, is something else, is incomplete, or belongs to another snapshot.
    pub fn open(path: &Path, graph: &Graph) -> Result<Self, VectorsError> {
        let read = |source| VectorsError::File { path: path.to_owned(), source };
        let wrong = |what| VectorsError::NotVectors { path: path.to_owned(), what };
        let mut file = File::open(path).map_err(read)?;
        let header = read_header(&mut file).map_err(read)?.ok_or_else(|| wrong("no header"))?;
        if header.snapshot != graph.version() || header.facts != graph.stats().facts {
            let (found, expected) = (header.snapshot, graph.version().to_owned());
            return Err(VectorsError::OtherFacts { path: path.to_owned(), found, expected });
        }
        // Files are replaced by renaming and never written in place, as snapshots are.
        #[expect(unsafe_code, reason = "mapping is unsafe, since another may cut the file")]
        let map = unsafe { Mmap::map(&file) }.map_err(read)?;
        if header.file_bytes() != Some(map.len() as u64) {
            return Err(wrong("its length does not match its header"));
        }
        Ok(Self { header, map })
    }

    /// The header: encoder and facts.
    pub fn header(&self) -> &VectorsHeader {
        &self.header
    }

    /// The vector of a fact. `None` if the snapshot does not have the fact with the same negation.
    pub fn of<'v>(&'v self, graph: &Graph, fact: &Fact) -> Option<Row<'v>> {
        self.at(graph.position(fact)?)
    }

    /// The vector of the fact at a position of [`Graph::facts`].
    pub fn at(&self, position: usize) -> Option<Row<'_>> {
        let begin = ROWS_AT + position * self.header.row_bytes();
        Row::read(self.map.get(begin..begin + self.header.row_bytes())?)
    }
}

/// Reads the header of a file up to its first row; `None` if there is none.
fn read_header(file: &mut File) -> io::Result<Option<VectorsHeader>> {
    let mut bytes = Vec::with_capacity(ROWS_AT);
    file.take(ROWS_AT as u64).read_to_end(&mut bytes)?;
    let Some(text) = bytes.strip_prefix(&MAGIC).filter(|_| bytes.len() == ROWS_AT) else {
        return Ok(None);
    };
    let header = serde_json::from_slice::<VectorsHeader>(text).ok();
    Ok(header.filter(|header| {
        header.format == FORMAT_VERSION && (1..=MAX_VECTOR_DIMENSIONS).contains(&header.dimensions)
    }))
}

/// A vector in bytes: its direction, to within half of one part in 127 of its largest number.
#[derive(Clone, Copy, Debug)]
pub struct Row<'v> {
    /// One over the length of the bytes as a vector; 0 for a zero vector.
    scale: f32,
    bytes: &'v [u8],
}

impl<'v> Row<'v> {
    /// Reads a row that [`quantise`] wrote; `None` if it is invalid.
    pub fn read(row: &'v [u8]) -> Option<Self> {
        let (scale, bytes) = row.split_first_chunk::<SCALE_BYTES>()?;
        let scale = f32::from_le_bytes(*scale);
        (scale.is_finite() && scale >= 0.0).then_some(Self { scale, bytes })
    }
}

/// Appends a vector as a row: scale and bytes.
pub fn quantise(vector: &[f32], row: &mut Vec<u8>) {
    let largest = vector.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
    let step = if largest > 0.0 && largest.is_finite() { 127.0 / largest } else { 0.0 };
    let at = row.len();
    row.extend_from_slice(&[0; SCALE_BYTES]);
    // Casting saturates to the range of the bytes; a NaN becomes 0.
    row.extend(vector.iter().map(|number| (number * step).round() as i8 as u8));
    let bytes = &row[at + SCALE_BYTES..];
    let squares: i64 = bytes.iter().map(|byte| i64::from(*byte as i8).pow(2)).sum();
    let scale = if squares > 0 { 1.0 / (squares as f32).sqrt() } else { 0.0 };
    row[at..at + SCALE_BYTES].copy_from_slice(&scale.to_le_bytes());
}

/// A vector to compare rows with, in whole numbers, so that the order of a sum does not change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryVector(Vec<i16>);

impl QueryVector {
    /// A vector of finite numbers; its length does not matter.
    pub fn new(vector: &[f32]) -> Self {
        let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
        let stretch = if length > 0.0 { QUERY_LENGTH / length } else { 0.0 };
        Self(vector.iter().map(|number| (number * stretch).round() as i16).collect())
    }

    /// Numbers in the vector.
    pub fn dimensions(&self) -> usize {
        self.0.len()
    }

    /// The cosine with a row of as many dimensions, −1..=1; 0 if either vector is zero.
    pub fn cosine(&self, row: Row<'_>) -> f32 {
        // By Cauchy-Schwarz no sum exceeds 32 bits: 16,384 times 127 times the root of 4,096.
        let products = self.0.iter().zip(row.bytes);
        let dot: i32 =
            products.map(|(query, byte)| i32::from(*query) * i32::from(*byte as i8)).sum();
        (dot as f32 * row.scale / QUERY_LENGTH).clamp(-1.0, 1.0)
    }
}

/// Writes vectors, row after row, into a file with another name until it is complete. Resumes a
/// file that was left before a crash.
pub struct VectorsWriter {
    path: PathBuf,
    partial: PathBuf,
    header: VectorsHeader,
    out: BufWriter<File>,
    /// Rows in the file.
    written: u64,
    row: Vec<u8>,
}

impl VectorsWriter {
    /// Begins a file, or resumes one with the same header.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn resume(path: &Path, header: VectorsHeader) -> Result<Self, VectorsError> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let failed = |source| VectorsError::File { path: partial.clone(), source };
        let (file, written) = open_partial(&partial, &header).map_err(failed)?;
        let out = BufWriter::with_capacity(1 << 20, file);
        Ok(Self { path: path.to_owned(), partial, header, out, written, row: Vec::new() })
    }

    /// The number of facts whose vectors are written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Appends vectors, one after the other, each with as many numbers as the header says.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append(&mut self, vectors: &[f32]) -> Result<(), VectorsError> {
        for vector in vectors.chunks_exact(self.header.dimensions) {
            self.row.clear();
            quantise(vector, &mut self.row);
            self.out.write_all(&self.row).map_err(|source| self.failed(source))?;
            self.written += 1;
        }
        Ok(())
    }

    /// Renames the file once every fact has its vector.
    ///
    /// # Errors
    /// The file cannot be written, or facts are missing.
    pub fn finish(mut self) -> Result<(), VectorsError> {
        if self.written != self.header.facts {
            let missing = format!("{} of {} facts", self.written, self.header.facts);
            return Err(self.failed(io::Error::other(format!("has vectors of {missing}"))));
        }
        let done = self.out.flush().and_then(|()| self.out.get_ref().sync_all());
        done.map_err(|source| self.failed(source))?;
        std::fs::rename(&self.partial, &self.path).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> VectorsError {
        VectorsError::File { path: self.partial.clone(), source }
    }
}

/// Opens the unfinished file at its end. Returns the number of its whole rows.
fn open_partial(path: &Path, header: &VectorsHeader) -> io::Result<(File, u64)> {
    std::fs::create_dir_all(super::whole::folder_of(path))?;
    let options = &mut File::options();
    let mut file = options.read(true).write(true).create(true).truncate(false).open(path)?;
    let length = file.metadata()?.len();
    if read_header(&mut file)?.as_ref() == Some(header) {
        let row_bytes = header.row_bytes() as u64;
        let rows = (length.saturating_sub(ROWS_AT as u64) / row_bytes).min(header.facts);
        file.set_len(ROWS_AT as u64 + rows * row_bytes)?;
        file.seek(SeekFrom::End(0))?;
        return Ok((file, rows));
    }
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&header.bytes()?)?;
    Ok((file, 0))
}

#[cfg(test)]
mod tests;
