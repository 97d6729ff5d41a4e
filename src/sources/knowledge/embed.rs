//! Embeds a graph: writes the vector of every fact once, for ranking.

use std::fs::File;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use turnstream_knowledge::{
    FactVectors, Graph, VectorsError, VectorsHeader, VectorsWriter, verbalise,
};
use turnstream_ports::model::encoder::{EncodeError, Encoder, encode_all};

use super::Progress;

/// Facts whose vectors are written together: the most work that an interruption loses.
const FACTS_AT_ONCE: usize = 8192;

/// Why facts cannot be embedded.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// The encoder failed.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The file of vectors cannot be used.
    #[error(transparent)]
    Vectors(#[from] VectorsError),
}

/// The default path of an encoder's vectors, beside the snapshot: `facts.snapshot` gives
/// `facts.snapshot.minilm.vectors`.
pub fn vectors_beside(snapshot: &Path, encoder: &str) -> PathBuf {
    let mut name = snapshot.as_os_str().to_owned();
    name.push(format!(".{encoder}.vectors"));
    PathBuf::from(name)
}

/// Encodes every fact of a graph as [`verbalise`] words it, and writes the vectors. Resumes an
/// interrupted run, and returns the number of facts that were already done.
///
/// # Errors
/// The encoder fails, or the file cannot be written.
pub fn embed_facts(
    graph: &Graph,
    encoder: &dyn Encoder,
    path: &Path,
    threads: usize,
    progress: Progress,
) -> Result<u64, EmbedError> {
    let header =
        VectorsHeader::new(graph, encoder.name(), encoder.fingerprint(), encoder.dimensions());
    let facts = header.facts;
    let mut writer = VectorsWriter::resume(path, header)?;
    let before = writer.written();
    let task = progress.items(path, facts);
    let mut rest = graph.facts().skip(before as usize);
    loop {
        let next = rest.by_ref().take(FACTS_AT_ONCE);
        let texts: Vec<String> = next.map(|fact| verbalise(graph.view(), &fact)).collect();
        if texts.is_empty() {
            break;
        }
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        writer.append(&encode_all(encoder, &texts, threads, &|_| ())?)?;
        task.items(writer.written());
    }
    writer.finish()?;
    task.finish();
    Ok(before)
}

/// Opens the vectors of the shipped graph for an encoder that takes microseconds, and makes them
/// first if they are missing. Of several processes that start at once, one makes them and the
/// others wait.
///
/// # Errors
/// The encoder fails, or the file cannot be written.
pub fn embed_pack(
    graph: &Graph,
    encoder: &dyn Encoder,
    path: &Path,
    threads: usize,
) -> Result<FactVectors, EmbedError> {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    let lock = PathBuf::from(lock);
    let failed = |source| VectorsError::File { path: lock.clone(), source };
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).map_err(failed)?;
    // Closing the file releases the lock.
    let locked = File::create(&lock).map_err(failed)?;
    locked.lock().map_err(failed)?;
    if let Ok(Some(vectors)) = open_vectors(path, graph, encoder.fingerprint()) {
        return Ok(vectors);
    }
    tracing::info!(path = %path.display(), "embedding the shipped knowledge, once");
    let progress = if std::io::stderr().is_terminal() { Progress::Bar } else { Progress::Silent };
    embed_facts(graph, encoder, path, threads, progress)?;
    Ok(FactVectors::open(path, graph)?)
}

/// Opens an encoder's vectors of a graph, if the file exists.
///
/// # Errors
/// The file cannot be used for this graph.
pub fn open_vectors(
    path: &Path,
    graph: &Graph,
    fingerprint: u64,
) -> Result<Option<FactVectors>, VectorsError> {
    match FactVectors::open(path, graph) {
        Ok(vectors) => Ok(Some(vectors).filter(|vectors| vectors.header().is_by(fingerprint))),
        Err(VectorsError::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
