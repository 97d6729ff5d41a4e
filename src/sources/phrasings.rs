//! Reads the phrasings that a company's staff taught, one JSON object a line, when the process starts.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_knowledge::phrasings::Taught;
use turnstream_schemas::Action;

/// The file of what a company's staff taught.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TeachingConfig {
    /// Phrasings of customers, a JSON object a line: `{"text", "gold", "action"}`. `gold` is the
    /// section (`page.md#heading`) or the row (`row:ID`) that answers, or null; `action` is that of
    /// the response (`answer` if left out). Relative paths start at the working directory.
    pub phrasings: Option<PathBuf>,
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhrasingLine {
    /// The id, for the people who keep the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// How a customer asks.
    pub text: String,
    /// The section or row that answers.
    #[serde(default)]
    pub gold: Option<String>,
    /// The action of the response.
    #[serde(default = "answer")]
    pub action: Action,
}

fn answer() -> Action {
    Action::Answer
}

/// Why phrasings cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PhrasingsError {
    /// The file cannot be read.
    #[error("{file} cannot be read: {source}", file = file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A line is not a phrasing.
    #[error(
        "{file}:{line}: {reason}; a phrasing is {{\"text\": …, \"gold\": \"page.md#heading\" or \
         \"row:ID\" or null, \"action\": …}}, on one line",
        file = file.display()
    )]
    Line {
        /// The file.
        file: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// Reads the phrasings of a file, each with what it leads to; skips empty lines.
///
/// # Errors
/// The file cannot be read, or a line is not a phrasing.
pub fn phrasings(file: &Path) -> Result<Vec<(PhrasingLine, Taught)>, PhrasingsError> {
    let text = std::fs::read_to_string(file)
        .map_err(|source| PhrasingsError::Read { file: file.to_owned(), source })?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let read = |(at, line): (usize, &str)| {
        let wrong =
            |reason: String| PhrasingsError::Line { file: file.to_owned(), line: at + 1, reason };
        let read: PhrasingLine =
            serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
        if read.text.trim().is_empty() {
            return Err(wrong("`text` is empty".to_owned()));
        }
        let taught = Taught::new(read.gold.clone(), read.action).map_err(wrong)?;
        Ok((read, taught))
    };
    lines.map(read).collect()
}

/// The part of a place that names a heading: lower case, spaces as hyphens, without other signs.
pub fn slug(heading: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || "_- ".contains(*letter);
    let kept: String = heading.to_lowercase().chars().filter(kept).collect();
    kept.split_whitespace().collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_phrasing_is_refused_by_its_number() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("phrasings.jsonl");
        let read = |lines: &str| {
            std::fs::write(&file, lines).expect("written");
            phrasings(&file).map_err(|error| error.to_string())
        };
        let good = "{\"text\": \"too small\", \"gold\": \"a.md#b\"}\n\n\
                    {\"id\": \"p2\", \"text\": \"a human!\", \"gold\": null, \"action\": \"hand_off\"}\n";
        let found = read(good).expect("phrasings");
        assert_eq!(found[0].1, Taught::Place("a.md#b".to_owned()));
        assert_eq!(found[1].1, Taught::Action(Action::HandOff));
        for (line, says) in [
            ("{\"text\": \"x\"}", "needs `gold`"),
            ("{\"text\": \" \", \"gold\": \"a\"}", "`text` is empty"),
            (
                "{\"text\": \"x\", \"gold\": \"a\", \"action\": \"decline\"}",
                "decline has no `gold`",
            ),
            ("{\"text\": \"x\", \"golf\": \"a\"}", "golf"),
            ("[]", "a phrasing is"),
        ] {
            let error = read(&format!("{good}{line}\n")).expect_err(line);
            assert!(error.contains(":4: ") && error.contains(says), "{error}");
        }
        assert!(phrasings(folder.path()).is_err());
    }

    #[test]
    fn headings_are_named_as_links_name_them() {
        assert_eq!(slug("How long you have?"), "how-long-you-have");
        assert_eq!(slug("Returns: 14 days (EU)"), "returns-14-days-eu");
        assert_eq!(slug("多久 能到？"), "多久-能到");
    }
}
