//! Reads facts line by line: ConceptNet's assertions CSV and relation/head/tail/weight TSV. A bad
//! line is counted and reported by its number; it never stops the import.

mod triples;

use std::borrow::Cow;
use std::io::{BufRead, Read};

use serde::{Deserialize, Serialize};
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use crate::language::Lexicon;

use super::unfit::Unfit;
use super::{BuildError, Builder, CollectError, ExternalBuilder};

/// Longest text of a concept or relation, in bytes.
pub const MAX_CONCEPT_BYTES: usize = 1024;

/// Longest line, in bytes. A longer one is a bad line.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// Lines between two calls of `progress`.
const PROGRESS_LINES: u64 = 8192;

/// A fact from an import.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedFact {
    /// Name of the relation, such as `UsedFor`.
    pub relation: String,
    /// Text of the head; normalised when it is added, which keeps its capitals for what is said.
    pub head: String,
    /// Text of the tail, as the head.
    pub tail: String,
    /// Strength. Below 0 the statement is negated.
    pub weight: f32,
    /// The source of the fact.
    pub source: String,
    /// Language of head and tail, such as `en`.
    pub language: String,
    /// The sentence that says the fact as it is, if the source brings one.
    pub sentence: Option<String>,
}

impl ImportedFact {
    /// An English fact of an unnamed source, without a sentence.
    pub fn new(head: &str, relation: &str, tail: &str, weight: f32) -> Self {
        Self {
            relation: relation.to_owned(),
            head: head.to_owned(),
            tail: tail.to_owned(),
            weight,
            source: "unnamed".to_owned(),
            language: "en".to_owned(),
            sentence: None,
        }
    }
}

/// The format of the lines of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Decided by the first line: `/a/[…` begins ConceptNet's CSV.
    #[default]
    Auto,
    /// ConceptNet's public assertions: tab-separated uri, relation, start, end, JSON.
    ConceptNetCsv,
    /// Tab-separated relation, head, tail, weight and, optionally, source and sentence.
    Tsv,
    /// Tab-separated head, relation, tail, every weight 1; never decided by the first line.
    Triples,
}

/// The options of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportOptions {
    /// The format of the lines.
    pub format: Format,
    /// The languages to keep of a CSV; an empty list keeps all. Facts of a TSV or of triples, which
    /// name no language, get the first of these, or English.
    pub languages: Vec<String>,
    /// Source of all facts; `None` takes the sources of the lines.
    pub source: Option<String>,
    /// The most bad lines that the report lists. It counts all.
    pub bad_lines_kept: usize,
    /// Whether to keep unfit English facts ([`Unfit`]).
    pub keep_unfit: bool,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self {
            format: Format::Auto,
            languages: vec!["en".to_owned()],
            source: None,
            bad_lines_kept: 20,
            keep_unfit: false,
        }
    }
}

/// A line that is not a fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadLine {
    /// Its number, from 1.
    pub line: u64,
    /// The reason.
    pub reason: String,
}

/// The counts of an import. `lines = facts + skipped + bad`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportReport {
    /// Lines read.
    pub lines: u64,
    /// Lines that gave a fact, including repeated ones.
    pub facts: u64,
    /// Lines left out on purpose: another language, a link to another site, a header, a document,
    /// empty, unfit.
    pub skipped: u64,
    /// Skipped lines that are triples whose tail is a text of several sentences.
    #[serde(default)]
    pub documents: u64,
    /// Skipped lines that are unfit facts ([`Unfit`]).
    #[serde(default)]
    pub unfit: u64,
    /// Lines that are not facts.
    pub bad: u64,
    /// The first bad lines.
    pub bad_lines: Vec<BadLine>,
}

/// Why an import stopped.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The input cannot be read.
    #[error("cannot read line {line}: {source}")]
    Read {
        /// The line that could not be read, from 1.
        line: u64,
        /// The reason.
        source: std::io::Error,
    },
    /// The facts cannot be stored.
    #[error("cannot keep the facts that were read: {0}")]
    Storage(std::io::Error),
}

/// Takes the facts of an import.
pub trait Collect {
    /// Takes a fact.
    ///
    /// # Errors
    /// A snapshot cannot hold the fact, or it cannot be stored.
    fn collect(&mut self, fact: &ImportedFact) -> Result<(), CollectError>;
}

impl Collect for Builder {
    fn collect(&mut self, fact: &ImportedFact) -> Result<(), CollectError> {
        Ok(self.add(fact)?)
    }
}

impl Collect for ExternalBuilder {
    fn collect(&mut self, fact: &ImportedFact) -> Result<(), CollectError> {
        self.add(fact)
    }
}

/// Why a line is not a fact.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    #[error("it is longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    #[error("it is not UTF-8")]
    NotUtf8,
    #[error("it has {found} tab-separated columns, not {expected}")]
    Columns { found: usize, expected: &'static str },
    #[error("{0:?} is not a relation (/r/…)")]
    Relation(String),
    #[error("{0:?} is not a concept (/c/language/text)")]
    Concept(String),
    #[error("{0:?} is not a weight")]
    Weight(String),
    #[error("its last column is not JSON with a weight: {0}")]
    Json(serde_json::Error),
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// Normalises the text of a concept as ConceptNet does: NFC, lower case, underscores and runs of
/// white space as single spaces, none at the ends.
pub fn normalise(text: &str) -> String {
    spaced(&composed(text).to_lowercase())
}

/// The text of a concept with its capitals, otherwise [normalised](normalise); `None` if it has no
/// capitals.
pub(super) fn written(text: &str, normalised: &str) -> Option<String> {
    let has_capitals = text.contains(char::is_uppercase);
    let written = has_capitals.then(|| spaced(&composed(text)));
    written.filter(|written| written != normalised)
}

/// The text in NFC.
fn composed(text: &str) -> Cow<'_, str> {
    match is_nfc_quick(text.chars()) {
        IsNormalized::Yes => Cow::Borrowed(text),
        _ => Cow::Owned(text.nfc().collect()),
    }
}

/// The words of a text with single spaces.
fn spaced(text: &str) -> String {
    let mut spaced = String::with_capacity(text.len());
    let words = text.split(|letter: char| letter == '_' || letter.is_whitespace());
    for word in words.filter(|word| !word.is_empty()) {
        if !spaced.is_empty() {
            spaced.push(' ');
        }
        spaced.push_str(word);
    }
    spaced
}

/// Reads facts into a builder. Calls `progress` from time to time with the number of lines.
///
/// # Errors
/// The input cannot be read, or the facts cannot be stored. Bad lines are not errors: the report
/// lists them.
pub fn import(
    mut input: impl BufRead,
    options: &ImportOptions,
    builder: &mut impl Collect,
    mut progress: impl FnMut(u64),
) -> Result<ImportReport, ImportError> {
    let mut report = ImportReport::default();
    let mut format = options.format;
    let mut line = Vec::new();
    while next_line(&mut input, &mut line)
        .map_err(|source| ImportError::Read { line: report.lines + 1, source })?
    {
        report.lines += 1;
        if format == Format::Auto {
            format = if line.starts_with(b"/a/") { Format::ConceptNetCsv } else { Format::Tsv };
        }
        let parsed = parse(&line, format, options, report.lines == 1);
        let taken = parsed.and_then(|fact| {
            let Some(fact) = fact else { return Ok(Taken::Skipped) };
            if !options.keep_unfit && is_unfit(&fact) {
                return Ok(Taken::Unfit);
            }
            match builder.collect(&fact) {
                Ok(()) => Ok(Taken::Fact),
                Err(CollectError::Fact(error)) => Err(error.into()),
                Err(CollectError::Storage(error)) => Ok(Taken::Failed(error)),
            }
        });
        match taken {
            Ok(Taken::Fact) => report.facts += 1,
            Ok(Taken::Skipped) => {
                report.skipped += 1;
                let triples = format == Format::Triples;
                report.documents += u64::from(triples && triples::is_document(&line));
            }
            Ok(Taken::Unfit) => {
                report.skipped += 1;
                report.unfit += 1;
            }
            Ok(Taken::Failed(error)) => return Err(ImportError::Storage(error)),
            Err(error) => {
                report.bad += 1;
                if report.bad_lines.len() < options.bad_lines_kept {
                    report
                        .bad_lines
                        .push(BadLine { line: report.lines, reason: error.to_string() });
                }
            }
        }
        if report.lines.is_multiple_of(PROGRESS_LINES) {
            progress(report.lines);
        }
    }
    progress(report.lines);
    Ok(report)
}

/// The result of a line that is not bad.
enum Taken {
    Fact,
    Skipped,
    Unfit,
    Failed(std::io::Error),
}

fn is_unfit(fact: &ImportedFact) -> bool {
    fact.language == "en"
        && Unfit::english().is_fact(
            &normalise(&fact.head),
            fact.relation.trim_start_matches("/r/"),
            &normalise(&fact.tail),
        )
}

/// Reads one line without its end. Skips the part beyond the limit and leaves a line that is too
/// long. Returns `false` at the end of the input.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<bool> {
    line.clear();
    input.take(MAX_LINE_BYTES + 2).read_until(b'\n', line)?;
    if line.is_empty() {
        return Ok(false);
    }
    if line.len() as u64 == MAX_LINE_BYTES + 2 && !line.ends_with(b"\n") {
        input.skip_until(b'\n')?;
    }
    if line.ends_with(b"\n") {
        line.pop();
    }
    if line.ends_with(b"\r") {
        line.pop();
    }
    Ok(true)
}

/// Parses the fact of a line; `None` if it is left out on purpose.
fn parse(
    line: &[u8],
    format: Format,
    options: &ImportOptions,
    first: bool,
) -> Result<Option<ImportedFact>, LineError> {
    if line.len() as u64 > MAX_LINE_BYTES {
        return Err(LineError::TooLong);
    }
    let line = std::str::from_utf8(line).map_err(|_| LineError::NotUtf8)?;
    let line = if first { line.trim_start_matches('\u{feff}') } else { line };
    if line.trim().is_empty() {
        return Ok(None);
    }
    let fact = match format {
        Format::ConceptNetCsv => parse_conceptnet(line, options),
        Format::Triples => triples::parse(line, options),
        Format::Tsv | Format::Auto => parse_tsv(line, options, first),
    };
    Ok(fact?.map(in_one_script))
}

/// Converts the texts of a fact to the one script of its language.
fn in_one_script(fact: ImportedFact) -> ImportedFact {
    let Some(lexicon) = Lexicon::for_language(&fact.language) else { return fact };
    let one = |text: &str| lexicon.in_one_script(text).into_owned();
    let (head, tail, relation) = (one(&fact.head), one(&fact.tail), one(&fact.relation));
    ImportedFact { head, tail, relation, ..fact }
}

fn parse_tsv(
    line: &str,
    options: &ImportOptions,
    first: bool,
) -> Result<Option<ImportedFact>, LineError> {
    let columns: Vec<&str> = line.split('\t').collect();
    let (&[relation, head, tail, weight, ..], 4..=6) = (&columns[..], columns.len()) else {
        return Err(LineError::Columns { found: columns.len(), expected: "4 to 6" });
    };
    let number = weight.trim().parse();
    if first && number.is_err() && relation.trim().eq_ignore_ascii_case("relation") {
        return Ok(None);
    }
    let column = |at: usize| columns.get(at).map(|it| it.trim()).filter(|it| !it.is_empty());
    Ok(Some(ImportedFact {
        relation: relation.trim().trim_start_matches("/r/").to_owned(),
        head: head.to_owned(),
        tail: tail.to_owned(),
        weight: number.map_err(|_| LineError::Weight(weight.to_owned()))?,
        source: options.source.as_deref().or(column(4)).unwrap_or("tsv").to_owned(),
        language: options.languages.first().map_or("en", String::as_str).to_owned(),
        sentence: column(5).map(str::to_owned),
    }))
}

/// The parsed fields of the last column of ConceptNet's CSV.
#[derive(Deserialize)]
struct Info {
    weight: f32,
    dataset: Option<String>,
}

fn parse_conceptnet(
    line: &str,
    options: &ImportOptions,
) -> Result<Option<ImportedFact>, LineError> {
    let columns: Vec<&str> = line.splitn(5, '\t').collect();
    let [_, relation, head, tail, info] = columns[..] else {
        return Err(LineError::Columns { found: columns.len(), expected: "5" });
    };
    let relation_name = relation.strip_prefix("/r/").filter(|name| !name.is_empty());
    let relation_name = relation_name.ok_or_else(|| LineError::Relation(relation.to_owned()))?;
    if relation_name == "ExternalURL" {
        return Ok(None);
    }
    let (language, head) = concept(head)?;
    let (tail_language, tail) = concept(tail)?;
    let wanted =
        options.languages.is_empty() || options.languages.iter().any(|kept| kept == language);
    if !wanted || language != tail_language {
        return Ok(None);
    }
    let info: Info = serde_json::from_str(info).map_err(LineError::Json)?;
    let source = options.source.as_deref().or(info.dataset.as_deref());
    Ok(Some(ImportedFact {
        relation: relation_name.to_owned(),
        head: head.to_owned(),
        tail: tail.to_owned(),
        weight: info.weight,
        source: source.unwrap_or("conceptnet").to_owned(),
        language: language.to_owned(),
        sentence: None,
    }))
}

/// `/c/en/wake_up/v/…` → ("en", "wake_up").
fn concept(uri: &str) -> Result<(&str, &str), LineError> {
    let mut parts = uri.strip_prefix("/c/").unwrap_or_default().split('/');
    match (parts.next(), parts.next()) {
        (Some(language), Some(text)) if !language.is_empty() && !text.is_empty() => {
            Ok((language, text))
        }
        _ => Err(LineError::Concept(uri.to_owned())),
    }
}
