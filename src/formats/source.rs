//! Opens a log, unpacks it, and splits its bytes into records.
//!
//! A record is a line, or a JSON object of a list or of a sequence that spans lines. Records are
//! split without being parsed, so that an unreadable record affects no other.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;

/// The longest record that is read, in bytes (64 MiB). A longer one becomes an error item and is
/// skipped.
pub const MAX_RECORD_BYTES: usize = 64 << 20;

/// The most bytes inspected to recognise the layout of records.
const MAX_PREFIX_BYTES: usize = 64 << 10;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Errors of reading a log.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The file cannot be opened.
    #[error("{path}: cannot be opened: {source}; check the path and its permissions")]
    Open {
        /// The path.
        path: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Reading or unpacking failed.
    #[error(
        "{path}:{line}: cannot be read further: {source}; if it is an archive, it is damaged or cut \
         short: get it again"
    )]
    Read {
        /// The path.
        path: String,
        /// The line reached, from 1.
        line: u64,
        /// The error of the operating system or of unpacking.
        source: io::Error,
    },
    /// The file as a whole is malformed; nothing after this line can be read.
    #[error("{path}:{line}: {reason}; get the file again, or make it JSON lines")]
    Broken {
        /// The path.
        path: String,
        /// The line, from 1.
        line: u64,
        /// The problem.
        reason: String,
    },
    /// One record is not a dialogue of the format. The next one can be read.
    #[error("{path}:{line}: {reason}; correct the record, or name the right --format")]
    Unreadable {
        /// The path.
        path: String,
        /// The line, from 1.
        line: u64,
        /// The problem.
        reason: String,
    },
}

impl FormatError {
    /// Whether no item follows this error.
    pub fn ends(&self) -> bool {
        !matches!(self, Self::Unreadable { .. })
    }
}

/// The layout of records in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// One record a line.
    Lines,
    /// The members of one JSON list.
    List,
    /// Consecutive JSON objects, each over several lines.
    Objects,
}

/// The unpacked bytes of a log, with the reading position.
pub(super) struct Source {
    path: String,
    reader: Box<dyn BufRead + Send>,
    /// Line breaks so far.
    breaks: u64,
    /// Whether the position is after the list's opening bracket.
    in_list: bool,
}

impl Source {
    /// Opens a plain or gzip file, or standard input for `-`. Adds the bytes that are read, before
    /// unpacking, to `read`.
    pub(super) fn open(path: &Path, read: Arc<AtomicU64>) -> Result<Self, FormatError> {
        let (name, file): (_, Box<dyn Read + Send>) = if path.as_os_str() == "-" {
            ("standard input".to_owned(), Box::new(io::stdin()))
        } else {
            let name = path.display().to_string();
            match File::open(path) {
                Ok(file) => (name, Box::new(file)),
                Err(source) => return Err(FormatError::Open { path: name, source }),
            }
        };
        Self::new(name, BufReader::with_capacity(1 << 16, Metered { file, read }))
    }

    fn new(path: String, mut reader: impl BufRead + Send + 'static) -> Result<Self, FormatError> {
        let failed = |path: &str, source| {
            // Opening a folder succeeds, and its first read fails.
            FormatError::Open { path: path.to_owned(), source }
        };
        let start = peek(&mut reader, GZIP.len()).map_err(|error| failed(&path, error))?;
        let packed = start == GZIP;
        let reader = Cursor::new(start).chain(reader);
        let mut reader: Box<dyn BufRead + Send> = if packed {
            Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(reader)))
        } else {
            Box::new(reader)
        };
        let start = peek(&mut reader, BYTE_ORDER_MARK.len())
            .map_err(|source| FormatError::Read { path: path.clone(), line: 1, source })?;
        if start != BYTE_ORDER_MARK {
            reader = Box::new(Cursor::new(start).chain(reader));
        }
        Ok(Self { path, reader, breaks: 0, in_list: false })
    }

    /// Recognises the layout by the first characters, without consuming them.
    pub(super) fn layout(&mut self) -> Result<Layout, FormatError> {
        let mut prefix = Vec::new();
        let layout = loop {
            match peek(&mut self.reader, 1) {
                Ok(byte) if byte.is_empty() => break Layout::Lines,
                Ok(byte) => prefix.extend(byte),
                Err(source) => return Err(self.read_error(source)),
            }
            if let Some(layout) = layout_of(&prefix) {
                break layout;
            }
            if prefix.len() > MAX_PREFIX_BYTES {
                break Layout::Lines;
            }
        };
        let rest = std::mem::replace(&mut self.reader, Box::new(io::empty()));
        self.reader = Box::new(Cursor::new(prefix).chain(rest));
        Ok(layout)
    }

    /// Reads the next record into `record` and returns its first line; `None` at the end.
    pub(super) fn next(
        &mut self,
        layout: Layout,
        record: &mut Vec<u8>,
    ) -> Result<Option<u64>, FormatError> {
        match layout {
            Layout::Lines => self.next_line(record),
            Layout::List | Layout::Objects => self.next_value(layout, record),
        }
    }

    /// Reads the next non-blank line, without its line break.
    pub(super) fn next_line(&mut self, line: &mut Vec<u8>) -> Result<Option<u64>, FormatError> {
        loop {
            line.clear();
            let limit = MAX_RECORD_BYTES as u64 + 1;
            let read = (&mut self.reader).take(limit).read_until(b'\n', line);
            if let Err(source) = read {
                return Err(self.read_error(source));
            }
            let at = self.breaks + 1;
            if line.is_empty() {
                return Ok(None);
            }
            if line.last() == Some(&b'\n') {
                self.breaks += 1;
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
            } else if line.len() > MAX_RECORD_BYTES {
                self.skip_line()?;
                return Err(self.too_long(at));
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Ok(Some(at));
            }
        }
    }

    fn skip_line(&mut self) -> Result<(), FormatError> {
        match self.reader.skip_until(b'\n') {
            Ok(_) => {
                self.breaks += 1;
                Ok(())
            }
            Err(source) => Err(self.read_error(source)),
        }
    }

    /// Reads the next JSON object of a list or a sequence.
    fn next_value(
        &mut self,
        layout: Layout,
        value: &mut Vec<u8>,
    ) -> Result<Option<u64>, FormatError> {
        value.clear();
        let Some(at) = self.find_value(layout)? else { return Ok(None) };
        let mut boundary = Boundary::default();
        let mut long = false;
        loop {
            let chunk = match self.reader.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(self.read_error(source)),
            };
            if chunk.is_empty() {
                return Err(self.broken("the file ends within a dialogue"));
            }
            let end = chunk.iter().position(|byte| boundary.closes_at(*byte));
            let used = end.map_or(chunk.len(), |end| end + 1);
            let part = &chunk[..used];
            self.breaks += part.iter().filter(|byte| **byte == b'\n').count() as u64;
            long |= value.len() + used > MAX_RECORD_BYTES;
            if !long {
                value.extend_from_slice(part);
            }
            self.reader.consume(used);
            if end.is_some() {
                return if long { Err(self.too_long(at)) } else { Ok(Some(at)) };
            }
        }
    }

    /// Skips to the next object and returns its line, or `None` at the end.
    fn find_value(&mut self, layout: Layout) -> Result<Option<u64>, FormatError> {
        loop {
            let chunk = match self.reader.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(self.read_error(source)),
            };
            let first = chunk.first().copied();
            match (first, self.in_list) {
                (None, true) => return Err(self.broken("the file ends within the list")),
                (None, false) => return Ok(None),
                (Some(b'{'), in_list) if in_list || layout == Layout::Objects => {
                    return Ok(Some(self.breaks + 1));
                }
                (Some(b'['), false) if layout == Layout::List => self.in_list = true,
                (Some(b']'), true) => self.in_list = false,
                (Some(b','), true) => {}
                (Some(byte), _) if byte.is_ascii_whitespace() => {
                    self.breaks += u64::from(byte == b'\n');
                }
                (Some(byte), _) => {
                    let found = char::from(byte).escape_default();
                    return Err(self.broken(&format!("`{found}` where a dialogue should begin")));
                }
            }
            self.reader.consume(1);
        }
    }

    fn read_error(&self, source: io::Error) -> FormatError {
        FormatError::Read { path: self.path.clone(), line: self.breaks + 1, source }
    }

    fn broken(&self, reason: &str) -> FormatError {
        let reason = reason.to_owned();
        FormatError::Broken { path: self.path.clone(), line: self.breaks + 1, reason }
    }

    fn too_long(&self, line: u64) -> FormatError {
        self.unreadable(line, format!("longer than {MAX_RECORD_BYTES} bytes"))
    }

    /// Returns the error of a record that begins on this line.
    pub(super) fn unreadable(&self, line: u64, reason: String) -> FormatError {
        FormatError::Unreadable { path: self.path.clone(), line, reason }
    }
}

/// Counts the bytes that are read.
struct Metered<R> {
    file: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(bytes)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Reads exactly `bytes` bytes, or fewer at the end.
fn peek(reader: &mut impl Read, bytes: usize) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(bytes);
    reader.take(bytes as u64).read_to_end(&mut start)?;
    Ok(start)
}

/// Returns the layout of a file that begins with `prefix`; `None` if more bytes are needed.
fn layout_of(prefix: &[u8]) -> Option<Layout> {
    match prefix.trim_ascii_start() {
        [] => None,
        [b'[', ..] => Some(Layout::List),
        [b'{', rest @ ..] => {
            rest.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r')).map(|next| match next {
                b'\n' => Layout::Objects,
                _ => Layout::Lines,
            })
        }
        _ => Some(Layout::Lines),
    }
}

/// Finds the end of a JSON object by its brackets and strings only.
#[derive(Default)]
struct Boundary {
    depth: u32,
    in_string: bool,
    escaped: bool,
}

impl Boundary {
    /// Takes the next byte. Returns whether it closes the value.
    fn closes_at(&mut self, byte: u8) -> bool {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => return false,
        }
        self.depth == 0 && !self.in_string
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &[u8]) -> Vec<Result<(u64, String), String>> {
        let mut source = Source::new("log".into(), Cursor::new(text.to_vec())).unwrap();
        let layout = source.layout().unwrap();
        let (mut found, mut record) = (Vec::new(), Vec::new());
        loop {
            match source.next(layout, &mut record) {
                Ok(None) => return found,
                Ok(Some(line)) => {
                    found.push(Ok((line, String::from_utf8(record.clone()).unwrap())));
                }
                Err(error) => {
                    let ends = error.ends();
                    found.push(Err(error.to_string()));
                    if ends {
                        return found;
                    }
                }
            }
        }
    }

    fn ok(line: u64, text: &str) -> Result<(u64, String), String> {
        Ok((line, text.to_owned()))
    }

    #[test]
    fn the_same_records_come_from_every_layout() {
        let lines = records(b"\n{\"a\":1}\r\n \n{\"b\":\"}\\\"]\"}");
        assert_eq!(lines, [ok(2, "{\"a\":1}"), ok(4, "{\"b\":\"}\\\"]\"}")]);
        let list = records(b" [{\"a\":1},\n{\"b\":\"}\\\"]\"}\n]\n");
        assert_eq!(list, [ok(1, "{\"a\":1}"), ok(2, "{\"b\":\"}\\\"]\"}")]);
        let objects = records(b"{ \n\"a\":1}\n{\"b\":\"}\\\"]\"}");
        assert_eq!(objects, [ok(1, "{ \n\"a\":1}"), ok(3, "{\"b\":\"}\\\"]\"}")]);
        assert_eq!(records(b""), []);
        assert_eq!(records(b"[]"), []);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_record() {
        assert_eq!(records(b"\xef\xbb\xbf{\"a\":1}\n"), [ok(1, "{\"a\":1}")]);
        assert_eq!(records(b"\xef\xbb\xbf[{\"a\":1}]"), [ok(1, "{\"a\":1}")]);
    }

    #[test]
    fn a_list_that_is_cut_short_ends_with_an_error() {
        let cut = records(b"[{\"a\":1},\n{\"b\":");
        assert_eq!(cut[0], ok(1, "{\"a\":1}"));
        let error = cut[1].as_ref().unwrap_err();
        assert!(error.starts_with("log:2: the file ends within a dialogue"), "{error}");
        let error = records(b"[{\"a\":1},")[1].clone().unwrap_err();
        assert!(error.starts_with("log:1: the file ends within the list"), "{error}");
        let error = records(b"[3]")[0].clone().unwrap_err();
        assert!(error.contains("`3` where a dialogue should begin"), "{error}");
        let error = records(b"{\n}\n]")[1].clone().unwrap_err();
        assert!(error.starts_with("log:3: `]` where"), "{error}");
    }

    #[test]
    fn too_long_a_record_is_skipped() {
        let filler = "x".repeat(MAX_RECORD_BYTES);
        for text in [
            format!("{{\"a\":\"{filler}\"}}\n{{\"b\":1}}"),
            format!("[{{\"a\":\"{filler}\"}},\n{{\"b\":1}}]"),
        ] {
            let found = records(text.as_bytes());
            assert!(found[0].as_ref().unwrap_err().starts_with("log:1: longer than"));
            assert_eq!(found[1..], [ok(2, "{\"b\":1}")]);
        }
    }

    #[test]
    fn a_damaged_archive_is_an_error_with_its_line() {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
        io::Write::write_all(&mut packed, b"{\"a\":1}\n{\"b\":1}\n").unwrap();
        let packed = packed.finish().unwrap();
        assert_eq!(records(&packed), [ok(1, "{\"a\":1}"), ok(2, "{\"b\":1}")]);
        let twice = [packed.clone(), packed.clone()].concat();
        assert_eq!(records(&twice).len(), 4, "archives may be joined");
        let found = records(&packed[..packed.len() - 4]);
        let error = found.last().unwrap().as_ref().unwrap_err();
        assert!(error.contains("log:3: cannot be read further"), "{error}");
        assert!(error.contains("damaged or cut short"), "{error}");
    }
}
