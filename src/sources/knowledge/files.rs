//! Reads facts from files, each with its own source name and language.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use turnstream_knowledge::{
    Collect, ExternalBuilder, Graph, ImportError, ImportOptions, ImportReport, import,
};

use super::{KnowledgeError, Progress};

/// A file to import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// The path of a plain, gzip or zstd file.
    pub path: PathBuf,
    /// How to read the file.
    pub options: ImportOptions,
}

impl SourceFile {
    /// A file with the default options.
    pub fn new(path: PathBuf) -> Self {
        Self { path, options: ImportOptions::default() }
    }
}

/// The result of importing one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReport {
    /// The file.
    pub path: PathBuf,
    /// The counts of its lines.
    pub report: ImportReport,
}

/// Reads the facts of plain, gzip or zstd files, which their first bytes distinguish.
///
/// # Errors
/// A file cannot be read, the facts cannot be kept, or no file contains a fact.
pub fn import_files(
    files: &[SourceFile],
    builder: &mut impl Collect,
    progress: Progress,
) -> Result<Vec<FileReport>, KnowledgeError> {
    let mut reports = Vec::with_capacity(files.len());
    for SourceFile { path, options } in files {
        let read = |source| KnowledgeError::Read { path: path.clone(), source };
        let file = File::open(path).map_err(read)?;
        let length = file.metadata().map_err(read)?.len();
        let task = progress.file(path, length);
        let lines = decompressed(task.wrap(file)).map_err(read)?;
        let report = import(lines, options, builder, |lines| task.lines(lines))
            .map_err(|source| KnowledgeError::Import { path: path.clone(), source })?;
        task.done(&report);
        reports.push(FileReport { path: path.clone(), report });
    }
    let sum = |of: fn(&ImportReport) -> u64| reports.iter().map(|file| of(&file.report)).sum();
    if sum(|report| report.facts) == 0 {
        let names: Vec<String> = files.iter().map(|file| file.path.display().to_string()).collect();
        return Err(KnowledgeError::NoFacts {
            files: names.join(", "),
            bad: sum(|report| report.bad),
            skipped: sum(|report| report.skipped),
        });
    }
    Ok(reports)
}

/// Compiles files into a snapshot by sorting within bounded memory, and opens it.
///
/// # Errors
/// A file cannot be read, no file contains a fact, or the snapshot's folder cannot be written to.
pub fn import_sorted(
    files: &[SourceFile],
    out: &Path,
    memory_bytes: usize,
    progress: Progress,
) -> Result<(Graph, Vec<FileReport>), KnowledgeError> {
    let sort = |source| {
        let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty());
        KnowledgeError::Sort { folder: folder.unwrap_or(Path::new(".")).to_owned(), source }
    };
    let mut builder = ExternalBuilder::new(out, memory_bytes).map_err(sort)?;
    let reports = import_files(files, &mut builder, progress).map_err(|error| match error {
        KnowledgeError::Import { source: ImportError::Storage(source), .. } => sort(source),
        error => error,
    })?;
    builder.write(|step| progress.step(step)).map_err(sort)?;
    Ok((Graph::open(out)?, reports))
}

/// Returns a reader of a file's uncompressed text, for any supported compression.
pub fn decompressed<'r>(file: impl Read + 'r) -> std::io::Result<Box<dyn BufRead + 'r>> {
    const GZIP: &[u8] = &[0x1f, 0x8b];
    const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
    let mut file = BufReader::with_capacity(1 << 16, file);
    let beginning = file.fill_buf()?;
    if beginning.starts_with(GZIP) {
        let plain = flate2::bufread::MultiGzDecoder::new(file);
        return Ok(Box::new(BufReader::with_capacity(1 << 16, plain)));
    }
    if beginning.starts_with(ZSTD) {
        let plain = zstd::Decoder::with_buffer(file)?;
        return Ok(Box::new(BufReader::with_capacity(1 << 16, plain)));
    }
    Ok(Box::new(file))
}
