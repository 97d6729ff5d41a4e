//! A problem of a configuration: the key, the place, the expectation and the remedy.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// A place in the tree of keys, from the root: `log.kafka.topics`, `stages[2]`.
///
/// Keys that TOML must quote are shown quoted, so that they can be typed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyPath(Vec<PathSegment>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum PathSegment {
    Key(String),
    Index(usize),
}

impl KeyPath {
    /// The root of the tree.
    pub fn root() -> Self {
        Self::default()
    }

    /// The key `name` below this place.
    pub fn key(&self, name: &str) -> Self {
        self.with(PathSegment::Key(name.to_owned()))
    }

    /// The element `index`, from 0, of the list at this place.
    pub fn index(&self, index: usize) -> Self {
        self.with(PathSegment::Index(index))
    }

    fn with(&self, step: PathSegment) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    /// The place around this one; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let (_, above) = self.0.split_last()?;
        Some(Self(above.to_vec()))
    }

    /// Whether this place is `other` or below it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    /// The names of the keys from the root, without indexes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|step| match step {
            PathSegment::Key(name) => Some(name.as_str()),
            PathSegment::Index(_) => None,
        })
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                PathSegment::Index(index) => write!(out, "[{index}]")?,
                PathSegment::Key(name) => {
                    let dot = if at == 0 { "" } else { "." };
                    write!(out, "{dot}{}", Bare(name))?;
                }
            }
        }
        Ok(())
    }
}

/// A key as TOML writes it, quoted if necessary.
pub(super) struct Bare<'a>(pub(super) &'a str);

impl fmt::Display for Bare<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if !self.0.is_empty() && self.0.bytes().all(bare) {
            out.write_str(self.0)
        } else {
            write!(out, "{:?}", self.0)
        }
    }
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file, or `defaults` without a file.
    pub file: String,
    /// The line, from 1; `None` if the key is not in the file.
    pub line: Option<usize>,
    /// The key, from the root. Empty if the problem is of the file as a whole.
    pub key: String,
    /// The problem. Never contains a secret or a value of the environment.
    pub message: String,
    /// The remedy. May be empty.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(out, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(out, ": {}", self.key)?;
        }
        write!(out, ": {}", self.message)?;
        if !self.remedy.is_empty() {
            write!(out, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: cannot read the configuration: {source}; check --config", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file has these problems: at least one, in the order of lines.
    #[error("{}", lines(.0))]
    Invalid(Vec<Problem>),
}

impl ConfigError {
    /// All problems, for either kind of error.
    pub fn problems(&self) -> Vec<Problem> {
        match self {
            Self::Invalid(problems) => problems.clone(),
            Self::Read { path, source } => vec![Problem {
                file: shown(path),
                line: None,
                key: String::new(),
                message: format!("cannot read the configuration: {source}"),
                remedy: "check --config".to_owned(),
            }],
        }
    }
}

/// A file's name in messages.
pub(super) fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
