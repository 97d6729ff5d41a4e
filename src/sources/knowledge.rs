//! Opens graphs: the shipped English pack, a snapshot file, or imported files.
//!
//! The pack is the compact source of a snapshot (zstd over sorted TSV) inside the program. The
//! first start compiles its snapshot into the user's cache folder; from then on it is mapped into
//! memory, shared by all workers and processes. If two processes compile it at once, the last
//! rename wins, and either file is complete.

use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use turnstream_knowledge::{
    Builder, FORMAT_VERSION, Graph, ImportError, ImportOptions, SnapshotError, Wording, import,
    lexicon_fingerprint, write_whole,
};

pub mod census;
pub mod diff;
pub mod embed;
pub mod files;
pub mod lookup;
pub mod progress;

use turnstream_ports::cache_folder::{CACHE_VARIABLE, cache_folder, writable_folder};
use turnstream_weights::PACK;

use turnstream_ports::model::encoder::Encoder;

pub use files::{FileReport, SourceFile, import_files, import_sorted};
pub use progress::Progress;

/// The location that selects the shipped pack.
pub const PACK_LOCATION: &str = "pack";

/// Compression level of a pack: the strongest that readers support without a larger window.
const PACK_LEVEL: i32 = 19;

/// Why knowledge cannot be opened or imported.
#[derive(Debug, thiserror::Error)]
pub enum KnowledgeError {
    /// The snapshot cannot be used.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A file cannot be read.
    #[error("cannot read {path}: {source}; check the path and its permissions", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The import of a file was interrupted.
    #[error("{path}: {source}", path = path.display())]
    Import {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: ImportError,
    },
    /// A file cannot be written.
    #[error("cannot write {path}: {source}; choose another --out or make room", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Facts cannot be sorted.
    #[error(
        "cannot sort facts in {folder}: {source}; make room there or choose another --out",
        folder = folder.display()
    )]
    Sort {
        /// The folder of the snapshot and of the sorting files.
        folder: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The import found no facts.
    #[error(
        "no facts in {files} ({bad} bad lines, {skipped} left out); check --format and --language"
    )]
    NoFacts {
        /// The files, separated by commas.
        files: String,
        /// Lines without a valid fact.
        bad: u64,
        /// Lines that were left out.
        skipped: u64,
    },
}

/// Opens the configured graph: `pack`, or the path of a snapshot.
///
/// # Errors
/// The snapshot cannot be read or used.
pub fn open(location: &str) -> Result<Graph, KnowledgeError> {
    if location == PACK_LOCATION {
        return open_pack();
    }
    Ok(Graph::open(Path::new(location))?)
}

/// Opens the shipped pack. Its snapshot is compiled into the [`writable_folder`] if it is not there
/// yet, or in memory if there is no such folder.
///
/// # Errors
/// The pack inside the program is damaged.
pub fn open_pack() -> Result<Graph, KnowledgeError> {
    let own = cache_folder();
    if let Some(graph) = own.as_deref().and_then(compiled_in) {
        return Ok(graph);
    }
    match writable_folder() {
        Some(folder) if own.as_deref() == Some(&folder) => compile_into(&folder),
        Some(spare) => open_pack_in(&spare),
        None => Ok(read_pack()?.into_graph()),
    }
}

/// As [`open_pack`], with the given cache folder.
///
/// # Errors
/// The pack inside the program is damaged.
pub fn open_pack_in(folder: &Path) -> Result<Graph, KnowledgeError> {
    compiled_in(folder).map_or_else(|| compile_into(folder), Ok)
}

/// The pack's snapshot in a folder, if it is usable.
fn compiled_in(folder: &Path) -> Option<Graph> {
    use std::io::ErrorKind;
    match Graph::open(&folder.join(pack_snapshot_name())) {
        Ok(graph) => return Some(graph),
        Err(SnapshotError::Read { source, .. })
            if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
        Err(error) => tracing::warn!("compiling the shipped knowledge again: {error}"),
    }
    None
}

fn compile_into(folder: &Path) -> Result<Graph, KnowledgeError> {
    let path = folder.join(pack_snapshot_name());
    tracing::info!(path = %path.display(), "compiling the shipped knowledge, once");
    let written = read_pack()?.write(&path);
    let opened = match written {
        Ok(()) => Graph::open(&path).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    opened.or_else(|error| {
        tracing::warn!(
            "the compiled knowledge cannot be kept in {}: {error}; it is compiled in memory at \
             every start, unless {CACHE_VARIABLE} names a folder that can be written",
            folder.display()
        );
        Ok(read_pack()?.into_graph())
    })
}

/// The file name of the pack's snapshot, which changes with pack, format and lexicon.
fn pack_snapshot_name() -> String {
    let (pack, lexicon) = (crc32fast::hash(PACK), lexicon_fingerprint(["en"]));
    format!("conceptnet-en-{pack:08x}-{lexicon:08x}-v{FORMAT_VERSION}.snapshot")
}

/// The path of an encoder's vectors for the pack: an existing file in the cache folder, or a path
/// that can be written. `None` if neither exists.
pub fn pack_vectors_path(encoder: &dyn Encoder) -> Option<PathBuf> {
    let name = format!("{}-{:016x}", encoder.name(), encoder.fingerprint());
    let path = |folder: PathBuf| embed::vectors_beside(&folder.join(pack_snapshot_name()), &name);
    let made = cache_folder().map(path).filter(|path| path.exists());
    made.or_else(|| writable_folder().map(path))
}

/// Reads the facts of the pack.
fn read_pack() -> Result<Builder, KnowledgeError> {
    let path = || PathBuf::from("(the shipped knowledge pack)");
    let read = |source| KnowledgeError::Read { path: path(), source };
    let lines = zstd::Decoder::new(PACK).map_err(read)?;
    let mut builder = Builder::new();
    // The pack was made without unfit facts, which its test checks.
    let options = ImportOptions { keep_unfit: true, ..ImportOptions::default() };
    import(BufReader::new(lines), &options, &mut builder, |_| ())
        .map_err(|source| KnowledgeError::Import { path: path(), source })?;
    Ok(builder)
}

/// Writes a graph as a pack: its facts as TSV in the graph's order, compressed with zstd. The same
/// graph gives the same bytes, and importing them gives the same graph.
///
/// # Errors
/// The file cannot be written.
pub fn write_pack(graph: &Graph, path: &Path) -> Result<(), KnowledgeError> {
    let failed = |source| KnowledgeError::Write { path: path.to_owned(), source };
    let bytes = pack(graph).map_err(failed)?;
    write_whole(path, &bytes).map_err(failed)
}

fn pack(graph: &Graph) -> std::io::Result<Vec<u8>> {
    let mut pack = zstd::Encoder::new(Vec::new(), PACK_LEVEL)?;
    pack.include_checksum(true)?;
    write_tsv(graph, &mut pack)?;
    pack.finish()
}

/// Writes the facts of a graph in order, one a line.
fn write_tsv(graph: &Graph, out: &mut impl Write) -> std::io::Result<()> {
    for fact in graph.facts() {
        let relation = graph.relation(fact.relation);
        // A negative relation expresses denial by its name; other relations need a sign.
        let sign = if fact.negated && !relation.negative { "-" } else { "" };
        let Wording { sentence, head, tail } = graph.view().wording(&fact);
        let head = head.as_deref().unwrap_or_else(|| graph.concept(fact.head));
        let tail = tail.as_deref().unwrap_or_else(|| graph.concept(fact.tail));
        let source = graph.source(fact.source);
        write!(out, "{}\t{head}\t{tail}\t{sign}{}\t{source}", relation.name, fact.weight)?;
        match sentence {
            Some(sentence) => writeln!(out, "\t{sentence}")?,
            None => writeln!(out)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
