//! Reads documents from JSON lines, Markdown, HTML and plain text.
//!
//! A JSON line is a document: `{"id", "title"?, "text", "metadata"?}`, with flat metadata. A
//! Markdown, HTML or text file is also a document. Its id is its path below the named folder, or the
//! name of a named file; its title is the first heading, or else the page's title or the file's name. Invalid documents are
//! reported with file and line, and skipped.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::html::{ConvertedPage, page};
use super::{DocumentsError, MAX_ID_BYTES};

/// The markup of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Markup {
    /// Plain text.
    #[default]
    Plain,
    /// Markdown.
    Markdown,
}

/// A document to import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// The unique id, 1 to 511 bytes.
    pub id: String,
    /// The title; may be empty.
    pub title: String,
    /// The text.
    pub text: String,
    /// Metadata by key, such as language or subject.
    pub metadata: BTreeMap<String, String>,
    /// The markup of the text.
    pub markup: Markup,
}

/// An invalid document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadLine {
    /// The file.
    pub file: String,
    /// The line, from 1; 0 for the file as a whole.
    pub line: u64,
    /// What is wrong, and the remedy.
    pub reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: Value,
    #[serde(default)]
    title: Option<String>,
    text: String,
    #[serde(default)]
    metadata: Option<BTreeMap<String, Value>>,
}

/// A file to import, with the id for a file that is one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The path.
    pub path: PathBuf,
    /// The path below the named folder, with `/`.
    pub id: String,
}

/// The files below some paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundFiles {
    /// The files to import: named files themselves, and in named folders, by name, every file that
    /// ends in `.jsonl`, `.ndjson`, `.md`, `.markdown`, `.html`, `.htm` or `.txt` (with or without
    /// `.gz`).
    pub files: Vec<Source>,
    /// Other files in named folders, such as PDF; those whose name begins with a dot are not listed.
    pub skipped: Vec<PathBuf>,
}

/// Lists the files of paths.
///
/// # Errors
/// A path cannot be read.
pub fn sources(paths: &[PathBuf]) -> Result<FoundFiles, DocumentsError> {
    let mut sources = FoundFiles::default();
    for path in paths {
        let failed = |source| DocumentsError::Read { path: path.clone(), source };
        if std::fs::metadata(path).map_err(failed)?.is_dir() {
            walk(path, path, &mut sources)?;
        } else {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            sources.files.push(Source { path: path.clone(), id: name.unwrap_or_default() });
        }
    }
    Ok(sources)
}

fn walk(root: &Path, folder: &Path, sources: &mut FoundFiles) -> Result<(), DocumentsError> {
    let failed = |source| DocumentsError::Read { path: folder.to_owned(), source };
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let mut paths =
        entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            walk(root, &path, sources)?;
        } else if Kind::of(&path) != Kind::Other {
            let below = path.strip_prefix(root).unwrap_or(&path);
            let parts = below.components().map(|part| part.as_os_str().to_string_lossy());
            let id = parts.collect::<Vec<_>>().join("/");
            sources.files.push(Source { path, id });
        } else if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
            sources.skipped.push(path);
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lines,
    Markdown,
    Html,
    Text,
    Other,
}

impl Kind {
    fn of(path: &Path) -> Self {
        let name = path.to_string_lossy().to_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("jsonl" | "ndjson") => Self::Lines,
            Some("md" | "markdown") => Self::Markdown,
            Some("html" | "htm") => Self::Html,
            Some("txt") => Self::Text,
            _ => Self::Other,
        }
    }
}

/// Reads the documents of a file in order; a document or line of more than `max_document_bytes` is
/// invalid.
///
/// # Errors
/// The file cannot be read, or the handler of a document fails.
pub fn read(
    source: &Source,
    max_document_bytes: u64,
    each: &mut dyn FnMut(Result<Document, BadLine>) -> Result<(), DocumentsError>,
) -> Result<(), DocumentsError> {
    let failed = |error| DocumentsError::Read { path: source.path.clone(), source: error };
    let file = File::open(&source.path).map_err(failed)?;
    let gzip = source.path.extension().is_some_and(|extension| extension == "gz");
    let mut reader: Box<dyn BufRead> = match gzip {
        true => Box::new(BufReader::new(MultiGzDecoder::new(file))),
        false => Box::new(BufReader::new(file)),
    };
    let bad =
        |line, reason: String| BadLine { file: source.path.display().to_string(), line, reason };
    let mut bytes = Vec::new();
    match Kind::of(&source.path) {
        Kind::Lines => {
            for line in 1.. {
                let Some(whole) =
                    next_line(&mut reader, &mut bytes, max_document_bytes).map_err(failed)?
                else {
                    return Ok(());
                };
                let document =
                    if whole { parse_line(&bytes) } else { Err(too_long(max_document_bytes)) };
                match document {
                    Ok(None) => {}
                    Ok(Some(document)) => each(Ok(document))?,
                    Err(reason) => each(Err(bad(line, reason)))?,
                }
            }
            Ok(())
        }
        kind => {
            let mut text = (&mut reader).take(max_document_bytes.saturating_add(1));
            text.read_to_end(&mut bytes).map_err(failed)?;
            let document = if bytes.len() as u64 > max_document_bytes {
                Err(too_long(max_document_bytes))
            } else {
                whole_file(source, std::mem::take(&mut bytes), kind)
            };
            each(document.map_err(|reason| bad(0, reason)))
        }
    }
}

fn too_long(most: u64) -> String {
    format!("more than {most} bytes; raise --max-document-bytes, or cut the document")
}

/// Reads the next line without its end: `None` at the end of the file, `false` for a line that was
/// too long and was cut.
fn next_line(reader: &mut dyn BufRead, line: &mut Vec<u8>, most: u64) -> io::Result<Option<bool>> {
    line.clear();
    let read = reader.take(most.saturating_add(1)).read_until(b'\n', line)?;
    if read == 0 {
        return Ok(None);
    }
    let ended = line.last() == Some(&b'\n');
    if !ended && read as u64 > most {
        reader.skip_until(b'\n')?;
        return Ok(Some(false));
    }
    Ok(Some(true))
}

/// Parses a document from a JSON line; `None` for an empty line.
fn parse_line(line: &[u8]) -> Result<Option<Document>, String> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let Line { id, title, text, metadata } = serde_json::from_slice(line).map_err(|error| {
        format!("{error}; a line is {{\"id\", \"title\"?, \"text\", \"metadata\"?}}")
    })?;
    let id = plain(&id).ok_or("the id is neither a string nor a number")?;
    let mut document =
        Document { id, title: title.unwrap_or_default(), text, ..Document::default() };
    for (key, value) in metadata.unwrap_or_default() {
        if value.is_null() {
            continue;
        }
        let value = plain(&value).ok_or_else(|| {
            format!("metadata `{key}` is neither a string, a number nor true or false")
        })?;
        document.metadata.insert(key, value);
    }
    check(document).map(Some)
}

/// Converts a scalar value to text.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(bool) => Some(bool.to_string()),
        _ => None,
    }
}

fn whole_file(source: &Source, bytes: Vec<u8>, kind: Kind) -> Result<Document, String> {
    let text = String::from_utf8(bytes).map_err(|error| {
        format!("not UTF-8: {error}; export PDF and Word files as HTML, Markdown or text")
    })?;
    let text = text.trim_start_matches('\u{feff}').to_owned();
    let (text, markup, title) = match kind {
        Kind::Html => {
            let ConvertedPage { title, markdown } = page(&text)?;
            (markdown, Markup::Markdown, Some(title).filter(|title| !title.is_empty()))
        }
        Kind::Markdown => (text, Markup::Markdown, None),
        Kind::Lines | Kind::Text | Kind::Other => (text, Markup::Plain, None),
    };
    let heading = (markup == Markup::Markdown)
        .then(|| text.lines().find_map(|line| line.trim_start().strip_prefix("# ")))
        .flatten();
    let stem = source.path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let heading = heading.map(|heading| heading.trim().to_owned());
    let title = heading.or(title).or(stem).unwrap_or_default();
    check(Document { id: source.id.clone(), title, text, metadata: BTreeMap::new(), markup })
}

/// Refuses documents that cannot be stored or found.
fn check(document: Document) -> Result<Document, String> {
    let id = document.id.len();
    if id == 0 || id > MAX_ID_BYTES {
        return Err(format!("an id of {id} bytes; give 1 to {MAX_ID_BYTES}"));
    }
    if document.text.trim().is_empty() {
        return Err("the text is empty".to_owned());
    }
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(name: &str, content: &[u8], most: u64) -> (Vec<Document>, Vec<BadLine>) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(name), content).unwrap();
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for source in sources(&[folder.path().to_owned()]).unwrap().files {
            read(&source, most, &mut |document| {
                match document {
                    Ok(document) => good.push(document),
                    Err(line) => bad.push(line),
                }
                Ok(())
            })
            .unwrap();
        }
        (good, bad)
    }

    #[test]
    fn lines_are_documents_and_bad_ones_are_told() {
        let lines = "{\"id\":7,\"text\":\"one\",\"metadata\":{\"stars\":4,\"open\":true}}\n\n{\"id\":\"b\"}\n\
                     {\"id\":\"c\",\"title\":\"T\",\"text\":\"three\"}\n{\"id\":\"d\",\"text\":\" \"}\nnonsense";
        let (good, bad) = documents("a.jsonl", lines.as_bytes(), 1000);
        let ids: Vec<&str> = good.iter().map(|document| &*document.id).collect();
        assert_eq!(ids, ["7", "c"]);
        assert_eq!(good[0].metadata["stars"], "4");
        assert_eq!(good[0].metadata["open"], "true");
        let lines: Vec<u64> = bad.iter().map(|bad| bad.line).collect();
        assert_eq!(lines, [3, 5, 6]);
        assert!(bad[0].reason.contains("text") && bad[1].reason.contains("empty"), "{bad:?}");
        assert!(bad[0].file.ends_with("a.jsonl"));
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over() {
        let lines = format!(
            "{{\"id\":1,\"text\":\"{}\"}}\n{{\"id\":2,\"text\":\"two\"}}\n",
            "x".repeat(50)
        );
        let (good, bad) = documents("a.jsonl", lines.as_bytes(), 40);
        assert_eq!((good.len(), bad.len(), bad[0].line), (1, 1, 1));
        assert!(bad[0].reason.contains("--max-document-bytes"));
    }

    #[test]
    fn files_are_documents() {
        let (good, bad) = documents("hours.md", "# When we open\n\nFrom nine.".as_bytes(), 1000);
        assert!(bad.is_empty());
        assert_eq!((good[0].id.as_str(), good[0].title.as_str()), ("hours.md", "When we open"));
        assert_eq!(good[0].markup, Markup::Markdown);
        let (good, _) = documents("notes.txt", "Plain words.".as_bytes(), 1000);
        assert_eq!((good[0].title.as_str(), good[0].markup), ("notes", Markup::Plain));
        let (good, bad) = documents("notes.txt", &[0xff, 0xfe], 1000);
        assert!(good.is_empty() && bad[0].reason.contains("UTF-8"));
        let html = "<title>Hours</title><h2>When</h2><p>From nine.";
        let (good, _) = documents("hours.html", html.as_bytes(), 1000);
        assert_eq!((good[0].title.as_str(), good[0].markup), ("Hours", Markup::Markdown));
        assert!(good[0].text.contains("## When"), "{}", good[0].text);
    }

    #[test]
    fn files_of_other_kinds_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        for name in ["a.md", "inner/b.PDF", "inner/c.HTM", "inner/.d"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let FoundFiles { files, skipped } = sources(&[folder.path().to_owned()]).unwrap();
        let ids: Vec<&str> = files.iter().map(|file| &*file.id).collect();
        assert_eq!((ids, skipped), (vec!["a.md", "inner/c.HTM"], vec![inner.join("b.PDF")]));
    }
}
