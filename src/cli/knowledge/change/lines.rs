//! Reads statements from a file, line by line: TSV or JSON.

use std::fs::File;
use std::io::{BufRead, Read};
use std::path::Path;

use serde::Deserialize;
use turnstream_knowledge::Change;
use turnstream_schemas::FactKey;
use turnstream_sources::knowledge::files::decompressed;

use super::{Doing, LineFormat, StatedValue};

/// Longest line, in bytes. A longer one is a bad line.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// A line: a change, `None` if it has none on purpose (empty, a heading), or why it is bad.
type ParsedLine = Result<Option<Change>, String>;

/// A statement as a line of JSON.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Statement {
    source: Option<String>,
    head: String,
    relation: String,
    tail: String,
    weight: Option<f32>,
    language: Option<String>,
    sentence: Option<String>,
    #[serde(default)]
    retracted: bool,
}

/// Reads a file of statements.
pub(super) struct StatementLines<'a> {
    input: Box<dyn BufRead + 'a>,
    format: LineFormat,
    source: Option<&'a str>,
    line: Vec<u8>,
    number: u64,
}

impl<'a> StatementLines<'a> {
    /// Opens a file, or standard input for `-`. A given source replaces the sources of the lines.
    pub(super) fn open(
        path: &Path,
        format: LineFormat,
        source: Option<&'a str>,
    ) -> std::io::Result<Self> {
        let bytes: Box<dyn Read> = match path.as_os_str() == "-" {
            true => Box::new(std::io::stdin()),
            false => Box::new(File::open(path)?),
        };
        Ok(Self { input: decompressed(bytes)?, format, source, line: Vec::new(), number: 0 })
    }

    /// The number of the last line that was read, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Parses the next line; `None` at the end.
    pub(super) fn next_change(&mut self, doing: &Doing) -> std::io::Result<Option<ParsedLine>> {
        self.line.clear();
        (&mut self.input).take(MAX_LINE_BYTES + 1).read_until(b'\n', &mut self.line)?;
        if self.line.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        if self.line.len() as u64 > MAX_LINE_BYTES && !self.line.ends_with(b"\n") {
            self.input.skip_until(b'\n')?;
            return Ok(Some(Err(format!("it is longer than {MAX_LINE_BYTES} bytes"))));
        }
        Ok(Some(self.read(doing)))
    }

    fn read(&mut self, doing: &Doing) -> ParsedLine {
        let line = std::str::from_utf8(&self.line).map_err(|_| "it is not UTF-8".to_owned())?;
        let line = line.trim_start_matches('\u{feff}').trim_end_matches(['\r', '\n']);
        if line.trim().is_empty() {
            return Ok(None);
        }
        if self.format == LineFormat::Auto {
            self.format = if line.starts_with('{') { LineFormat::Jsonl } else { LineFormat::Tsv };
        }
        match self.format {
            LineFormat::Jsonl => self.read_json(line, doing),
            LineFormat::Tsv | LineFormat::Auto => self.read_columns(line, doing),
        }
    }

    fn read_json(&self, line: &str, doing: &Doing) -> ParsedLine {
        let said: Statement = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let Statement { source, head, relation, tail, weight, language, sentence, retracted } =
            said;
        let key = FactKey { source: self.source(source)?, head, relation, tail };
        let taken_back = Doing::Delete { tombstone: false };
        let doing = if retracted { &taken_back } else { doing };
        let stated = StatedValue { weight, language, sentence };
        doing.change(key, stated).map(Some).map_err(|error| error.to_string())
    }

    fn read_columns(&self, line: &str, doing: &Doing) -> ParsedLine {
        let columns: Vec<&str> = line.split('\t').collect();
        let (&[relation, head, tail, ..], 3..=6) = (&columns[..], columns.len()) else {
            return Err(format!("it has {} tab-separated columns, not 3 to 6", columns.len()));
        };
        let column = |at: usize| columns.get(at).map(|it| it.trim()).filter(|it| !it.is_empty());
        let weight = match (doing, column(3)) {
            (Doing::Delete { .. }, _) => None,
            (Doing::Put { .. }, None) => None,
            (Doing::Put { .. }, Some(weight)) => match weight.parse() {
                Ok(weight) => Some(weight),
                Err(_) if self.is_heading(relation) => return Ok(None),
                Err(_) => return Err(format!("{weight:?} is not a weight")),
            },
        };
        if self.is_heading(relation) && weight.is_none() {
            return Ok(None);
        }
        let key = FactKey {
            source: self.source(column(4).map(str::to_owned))?,
            head: head.to_owned(),
            relation: relation.trim().trim_start_matches("/r/").to_owned(),
            tail: tail.to_owned(),
        };
        let sentence = column(5).map(str::to_owned);
        let stated = StatedValue { weight, language: None, sentence };
        doing.change(key, stated).map(Some).map_err(|error| error.to_string())
    }

    /// Whether the line is a heading: it begins with the name of the first column.
    fn is_heading(&self, relation: &str) -> bool {
        self.number == 1 && relation.trim().eq_ignore_ascii_case("relation")
    }

    fn source(&self, said: Option<String>) -> Result<String, String> {
        let source = self.source.map(str::to_owned).or(said);
        source.ok_or_else(|| "it names no source; add one, or give --source".to_owned())
    }
}
