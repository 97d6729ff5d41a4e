//! Reads a data set's questions about whole dialogues, each with the turns that answer it, for
//! measuring recall from history. Only LoCoMo has them.
//!
//! A question is not a turn and never enters a dialogue, so no loader reads it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::source::Source;
use super::{Format, FormatError};

/// A question about a dialogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its words.
    pub text: String,
    /// The ids of the turns that answer it, in the data set's form. Some may match no turn.
    pub evidence: Vec<String>,
    /// The data set's name for the kind of question, if it has one.
    pub category: Option<String>,
}

#[derive(Deserialize)]
struct LocomoQuestions {
    #[serde(default)]
    qa: Vec<Asked>,
}

#[derive(Deserialize)]
struct Asked {
    question: String,
    #[serde(default)]
    evidence: Vec<Value>,
    category: Option<Value>,
}

impl From<Asked> for Question {
    fn from(asked: Asked) -> Self {
        let text = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        Self {
            text: asked.question,
            evidence: asked.evidence.into_iter().map(text).collect(),
            category: asked.category.map(text),
        }
    }
}

/// Returns the questions of a file, by the line where their dialogue begins (as in
/// [`LoggedTurn::line`](super::LoggedTurn::line)); empty for a data set without questions.
///
/// # Errors
/// The file or the questions of a dialogue cannot be read.
pub fn questions(format: Format, path: &Path) -> Result<BTreeMap<u64, Vec<Question>>, FormatError> {
    let mut found = BTreeMap::new();
    if format != Format::Locomo {
        return Ok(found);
    }
    let mut source = Source::open(path, Arc::default())?;
    let layout = source.layout()?;
    let mut record = Vec::new();
    while let Some(line) = source.next(layout, &mut record)? {
        let read = serde_json::from_slice::<LocomoQuestions>(&record);
        let LocomoQuestions { qa } = read.map_err(|error| {
            source.unreadable(line, format!("its questions cannot be read: {error}"))
        })?;
        found.insert(line, qa.into_iter().map(Question::from).collect());
    }
    Ok(found)
}
