//! Reads TOML into a tree of values that remembers where each value was written.
//!
//! Variables of the environment are replaced here. All later modules see final values and can ask
//! which of them came from outside the file.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};
use turnstream_ports::secret::is_secret;

use super::interpolate::{Lookup, interpolate};
use super::problem::{KeyPath, Problem};

/// The place of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Line of the key, from 1; `None` if a flag gave the value.
    pub(super) line: Option<usize>,
    /// The string as written, if it names variables of the environment.
    pub(super) raw: Option<String>,
    /// Text that must not be shown: values of the environment and of secret keys.
    pub(super) concealed: Vec<String>,
    /// Whether a problem with the value was reported, so that later checks skip it.
    pub(super) flawed: bool,
}

/// A configuration file as values with places.
#[derive(Debug)]
pub(super) struct Document {
    /// The file's name in messages.
    pub(super) file: String,
    /// The values, with variables replaced.
    pub(super) value: Value,
    /// The place of each value.
    pub(super) places: Places,
    /// Values that could not be read. Their places are marked as flawed.
    pub(super) problems: Vec<Problem>,
}

/// The places of a configuration's values.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(BTreeMap<KeyPath, Place>);

impl Places {
    pub(super) fn get(&self, path: &KeyPath) -> Option<&Place> {
        self.0.get(path)
    }

    pub(super) fn insert(&mut self, path: KeyPath, place: Place) {
        self.0.insert(path, place);
    }

    /// The line of a key, or of the nearest table around it that is in the file.
    pub(super) fn line(&self, path: &KeyPath) -> Option<usize> {
        match self.0.get(path) {
            Some(place) => place.line,
            None => path.parent().and_then(|parent| self.line(&parent)),
        }
    }

    /// Whether the path, something below it, or a list or table around it must not be shown.
    pub(super) fn is_concealed(&self, path: &KeyPath) -> bool {
        path.names().any(is_secret)
            || self.0.iter().any(|(at, place)| at.is_within(path) && !place.concealed.is_empty())
    }

    /// All text that must not be shown.
    pub(super) fn concealed(&self) -> impl Iterator<Item = &str> {
        self.0.values().flat_map(|place| place.concealed.iter().map(String::as_str))
    }
}

/// Reads TOML. Flaws of single values stay in the document. A syntax error is returned, because
/// nothing after it can be trusted.
pub(super) fn parse(file: &str, text: &str, lookup: Lookup<'_>) -> Result<Document, Problem> {
    let mut reader = Reader {
        file,
        line_starts: line_starts(text),
        lookup,
        places: Places::default(),
        problems: Vec::new(),
    };
    let root = DeTable::parse(text).map_err(|error| {
        // Only the message: the full error quotes the line, which may hold a secret.
        let line = error.span().map(|span| reader.line(&span));
        Problem {
            file: file.to_owned(),
            line,
            key: String::new(),
            message: format!("not TOML: {}", error.message()),
            remedy: String::new(),
        }
    })?;
    let value = reader.table(root.get_ref(), &KeyPath::root());
    let Reader { places, problems, .. } = reader;
    Ok(Document { file: file.to_owned(), value, places, problems })
}

struct Reader<'a> {
    file: &'a str,
    line_starts: Vec<usize>,
    lookup: Lookup<'a>,
    places: Places,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn line(&self, span: &Range<usize>) -> usize {
        self.line_starts.partition_point(|start| *start <= span.start)
    }

    fn table(&mut self, table: &DeTable<'_>, path: &KeyPath) -> Value {
        let mut read = Map::new();
        for (key, value) in table {
            let at = path.key(key.get_ref());
            let line = self.line(&key.span());
            let value = self.value(value, &at, line);
            read.insert(key.get_ref().to_string(), value);
        }
        Value::Object(read)
    }

    fn list(&mut self, list: &DeArray<'_>, path: &KeyPath) -> Value {
        let items = list.iter().enumerate();
        items
            .map(|(index, item)| {
                let line = self.line(&item.span());
                self.value(item, &path.index(index), line)
            })
            .collect()
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>, path: &KeyPath, line: usize) -> Value {
        let mut place = Place { line: Some(line), ..Place::default() };
        let read = match value.get_ref() {
            DeValue::Table(table) => self.table(table, path),
            DeValue::Array(list) => self.list(list, path),
            DeValue::Boolean(value) => Value::Bool(*value),
            DeValue::Datetime(value) => Value::String(value.to_string()),
            DeValue::String(raw) => Value::String(self.string(raw, path, &mut place)),
            DeValue::Integer(_) | DeValue::Float(_) => match number(value.get_ref()) {
                Some(number) => Value::Number(number),
                None => {
                    place.flawed = true;
                    self.problem(path, line, "expected a number that 64 bits can hold", "");
                    Value::Null
                }
            },
        };
        if let Value::String(secret) = &read
            && path.names().any(is_secret)
        {
            place.concealed.push(secret.clone());
        }
        self.places.insert(path.clone(), place);
        read
    }

    /// Replaces the variables in a string.
    fn string(&mut self, raw: &str, path: &KeyPath, place: &mut Place) -> String {
        match interpolate(raw, self.lookup) {
            Ok(done) => {
                place.raw = done.names_variables.then(|| raw.to_owned());
                place.concealed = done.values;
                done.text
            }
            Err(flaw) => {
                place.flawed = true;
                let line = place.line.unwrap_or_default();
                self.problem(path, line, &flaw.to_string(), &flaw.remedy());
                String::new()
            }
        }
    }

    fn problem(&mut self, path: &KeyPath, line: usize, message: &str, remedy: &str) {
        self.problems.push(Problem {
            file: self.file.to_owned(),
            line: Some(line),
            key: path.to_string(),
            message: message.to_owned(),
            remedy: remedy.to_owned(),
        });
    }
}

/// Converts a TOML number to JSON; `None` if it is not finite or does not fit.
fn number(value: &DeValue<'_>) -> Option<Number> {
    match value {
        DeValue::Integer(value) => {
            let signed = i64::from_str_radix(value.as_str(), value.radix()).map(Number::from);
            let unsigned = || u64::from_str_radix(value.as_str(), value.radix()).map(Number::from);
            signed.or_else(|_| unsigned()).ok()
        }
        DeValue::Float(value) => value.as_str().parse().ok().and_then(Number::from_f64),
        _ => None,
    }
}

/// The byte at which each line starts.
fn line_starts(text: &str) -> Vec<usize> {
    let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
    std::iter::once(0).chain(newlines.map(|(at, _)| at + 1)).collect()
}

#[cfg(test)]
mod tests {
    use std::env::VarError;

    use serde_json::json;

    use super::*;

    fn lookup(name: &str) -> Result<String, VarError> {
        if name == "PW" { Ok("hunter22".to_owned()) } else { Err(VarError::NotPresent) }
    }

    #[test]
    fn values_and_lines() {
        let text = "a = 1\n[b]\nc = [\n  'x',\n  '${PW}',\n]\nd.e = 0x10\n'f.g' = 1.5\n";
        let document = parse("t.toml", text, &lookup).expect("fine");
        assert_eq!(
            document.value,
            json!({"a": 1, "b": {"c": ["x", "hunter22"], "d": {"e": 16}, "f.g": 1.5}})
        );
        let b = KeyPath::root().key("b");
        for (path, line) in [
            (KeyPath::root().key("a"), Some(1)),
            (b.key("c"), Some(3)),
            (b.key("c").index(1), Some(5)),
            (b.key("d").key("e"), Some(7)),
            (b.key("f.g"), Some(8)),
            (b.key("absent").key("deeper"), Some(2)),
            (KeyPath::root().key("absent"), None),
        ] {
            assert_eq!(document.places.line(&path), line, "{path}");
        }
        assert!(document.places.is_concealed(&b));
        assert!(!document.places.is_concealed(&b.key("d")));
        assert_eq!(document.places.concealed().collect::<Vec<_>>(), ["hunter22"]);
    }

    #[test]
    fn flaws_are_reported_together() {
        let text = "a = '${X}'\nb = nan\nc = '${Y'";
        let problems = parse("t.toml", text, &lookup).expect("syntax is fine").problems;
        let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "t.toml:1: a: the environment variable X is not set; set it, or write ${X:default}",
                "t.toml:2: b: expected a number that 64 bits can hold",
                "t.toml:3: c: `${` without `}`; write ${NAME} or ${NAME:default}, and $$ for a \
                 dollar sign",
            ]
        );
    }

    #[test]
    fn syntax_errors_have_a_line_and_quote_nothing() {
        for (text, line) in [
            ("a = 1\npassword = hunter22\n", 2),
            ("[a\n", 1),
            ("a = 1\na = 2", 2),
            ("password = 'hunter22", 1),
        ] {
            let problem = parse("t.toml", text, &lookup).expect_err("refused");
            assert_eq!(problem.line, Some(line), "{problem}");
            assert!(problem.message.starts_with("not TOML: "), "{problem}");
            assert!(!problem.to_string().contains("hunter22"), "{problem}");
        }
    }
}
