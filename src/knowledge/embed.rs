//! Embedding a graph: the vector of every fact, written once, ranked by ever after.

use std::fs::File;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use turnstream_knowledge::{
    FactVectors, Graph, VectorsError, VectorsHeader, VectorsWriter, verbalise,
};

use super::Progress;
use crate::model::encoder::{EncodeError, Encoder, encode_all};

/// Facts whose vectors are written together: what is lost when it is stopped.
const FACTS_AT_ONCE: usize = 8192;

/// Why facts cannot be embedded.
#[derive(Debug, thiserror::Error)]
pub enum EmbedError {
    /// The encoder failed.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The file of the vectors.
    #[error(transparent)]
    Vectors(#[from] VectorsError),
}

/// Where the vectors lie that an encoder makes for a snapshot, unless somebody says otherwise:
/// beside it, `facts.snapshot` giving `facts.snapshot.minilm.vectors`.
pub fn vectors_beside(snapshot: &Path, encoder: &str) -> PathBuf {
    let mut name = snapshot.as_os_str().to_owned();
    name.push(format!(".{encoder}.vectors"));
    PathBuf::from(name)
}

/// Encodes every fact of a graph as [`verbalise`] says it, and writes the vectors. Goes on where
/// the same work was broken off; gives how many facts had been done before.
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

/// The vectors of the shipped knowledge by an encoder that takes microseconds, made where they are
/// missing. Of several processes that start at once, one makes them and the others wait.
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
    // Released when it is closed.
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

/// Opens the vectors of a graph by an encoder, where there are such at the path.
///
/// # Errors
/// There is a file that cannot be used for this graph.
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
