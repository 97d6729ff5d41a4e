//! From a file to a checked value: reads it, replaces variables, checks it against the schema,
//! deserialises it, lets flags override keys, and validates it.

use std::io::Read;
use std::path::Path;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_path_to_error::{Path as SerdePath, Segment};

use super::document::{Place, Places, parse};
use super::interpolate::Lookup;
use super::problem::{ConfigError, KeyPath, Problem, shown};
use super::schema::{alternatives, expected};
use super::shape::{check, schema_of};

/// Largest configuration file in bytes. A configuration takes a page or two; a longer file is
/// probably another file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The name of the file in problems of the defaults.
const NO_FILE: &str = "defaults";

/// Checks that need more than one key, or more than a type and a range. They run after flags have
/// overridden the file.
pub trait Validate {
    /// Reports everything that is wrong, not only the first.
    fn validate(&self, checks: &mut Checks);
}

/// Collects the problems that [`Validate::validate`] finds.
#[derive(Debug, Default)]
pub struct Checks {
    at: KeyPath,
    found: Vec<(KeyPath, String, String)>,
}

impl Checks {
    /// Runs the checks of the table `key`.
    pub fn within(&mut self, key: &str, run: impl FnOnce(&mut Self)) {
        let below = self.at.key(key);
        let above = std::mem::replace(&mut self.at, below);
        run(self);
        self.at = above;
    }

    /// Reports a problem with a key of the current table, or, with dots, of a table in it. The
    /// message must not quote the value of a key that may be secret.
    pub fn problem(&mut self, key: &str, message: impl Into<String>, remedy: impl Into<String>) {
        self.problem_at(key.split('.'), message, remedy);
    }

    /// As [`Self::problem`], with the names of the keys apart, so that they may contain dots.
    pub fn problem_at<'n>(
        &mut self,
        names: impl IntoIterator<Item = &'n str>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let path = names.into_iter().fold(self.at.clone(), |path, name| path.key(name));
        self.found.push((path, message.into(), remedy.into()));
    }

    /// Whether there are no problems.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Reports a problem unless the condition holds.
    pub fn ensure(&mut self, holds: bool, key: &str, message: &str, remedy: &str) {
        if !holds {
            self.problem(key, message, remedy);
        }
    }
}

/// A value with the places of its keys.
#[derive(Clone, Debug)]
pub struct Loaded<T> {
    /// The value.
    pub value: T,
    file: String,
    pub(super) places: Places,
}

impl<T: Default> Loaded<T> {
    /// The defaults, without a file.
    pub fn defaults() -> Self {
        Self { value: T::default(), file: NO_FILE.to_owned(), places: Places::default() }
    }
}

impl<T> Loaded<T> {
    /// Lets a flag override a key, given from the root with dots. Later problems with the key do
    /// not name a line of the file.
    pub fn override_key(&mut self, key: &str, change: impl FnOnce(&mut T)) {
        let path = key.split('.').fold(KeyPath::root(), |path, name| path.key(name));
        self.places.insert(path, Place::default());
        change(&mut self.value);
    }

    /// Values that must never be shown: those of secret keys and of the environment.
    pub fn concealed(&self) -> impl Iterator<Item = &str> {
        self.places.concealed()
    }

    /// The error of these checks, with the places of the keys, in the order of lines.
    pub fn refused(&self, checks: Checks) -> ConfigError {
        let problem = |(path, message, remedy): (KeyPath, String, String)| Problem {
            file: self.file.clone(),
            line: self.places.line(&path),
            key: path.to_string(),
            message,
            remedy,
        };
        let mut problems: Vec<Problem> = checks.found.into_iter().map(problem).collect();
        problems.sort_by_key(|problem| problem.line);
        ConfigError::Invalid(problems)
    }
}

impl<T: Validate> Loaded<T> {
    /// Runs the checks across keys.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with every problem, in the order of lines.
    pub fn validated(self) -> Result<Self, ConfigError> {
        let mut checks = Checks::default();
        self.value.validate(&mut checks);
        if checks.is_empty() { Ok(self) } else { Err(self.refused(checks)) }
    }
}

/// Reads a TOML file strictly into a type, as [`read`] does, without the places.
///
/// # Errors
/// As [`read`].
pub fn load<T: DeserializeOwned + JsonSchema>(path: &Path) -> Result<T, ConfigError> {
    read(path).map(|loaded| loaded.value)
}

/// Reads a TOML file strictly into a type. Replaces `${NAME}` and `${NAME:default}` in strings from
/// the environment. Refuses unknown keys, wrong types and values out of range, and reports all of
/// them at once.
///
/// # Errors
/// [`ConfigError`]: the file cannot be read, or it has problems, each with its line, key and
/// remedy. No message contains values of secret keys or of the environment.
pub fn read<T: DeserializeOwned + JsonSchema>(path: &Path) -> Result<Loaded<T>, ConfigError> {
    let text = read_text(path)?;
    read_str(&shown(path), &text, &|name| std::env::var(name))
}

/// [`read`] on a text, with an injected environment.
pub(super) fn read_str<T: DeserializeOwned + JsonSchema>(
    file: &str,
    text: &str,
    lookup: Lookup<'_>,
) -> Result<Loaded<T>, ConfigError> {
    let mut document =
        parse(file, text, lookup).map_err(|problem| ConfigError::Invalid(vec![problem]))?;
    let schema = schema_of::<T>();
    let problems = check(&mut document, &schema);
    if !problems.is_empty() {
        return Err(ConfigError::Invalid(problems));
    }
    let value = serde_path_to_error::deserialize(&document.value).map_err(|error| {
        let path = key_path(error.path());
        // The message of a custom type may quote its input.
        let message = if document.places.is_concealed(&path) {
            let expected = expected(&alternatives(at(&schema, &path)));
            format!("the value, which is not shown here, does not fit; expected {expected}")
        } else {
            error.inner().to_string()
        };
        ConfigError::Invalid(vec![Problem {
            file: file.to_owned(),
            line: document.places.line(&path),
            key: path.to_string(),
            message,
            remedy: String::new(),
        }])
    })?;
    Ok(Loaded { value, file: document.file, places: document.places })
}

fn read_text(path: &Path) -> Result<String, ConfigError> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    let whole = |line: Option<usize>, message: String| {
        ConfigError::Invalid(vec![Problem {
            file: shown(path),
            line,
            key: String::new(),
            message,
            remedy: "check --config".to_owned(),
        }])
    };
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(whole(None, format!("longer than {MAX_FILE_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        whole(Some(line), "not UTF-8".to_owned())
    })
}

fn key_path(path: &SerdePath) -> KeyPath {
    path.iter().fold(KeyPath::root(), |path, segment| match segment {
        Segment::Seq { index } => path.index(*index),
        Segment::Map { key } => path.key(key),
        Segment::Enum { .. } | Segment::Unknown => path,
    })
}

/// The schema of a key, as far as the first alternative has it.
fn at<'a>(schema: &'a serde_json::Value, path: &KeyPath) -> &'a serde_json::Value {
    path.names().fold(schema, |schema, name| {
        schema.get("properties").and_then(|keys| keys.get(name)).unwrap_or(&serde_json::Value::Null)
    })
}
