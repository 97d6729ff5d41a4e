//! `turns`: our own record, one JSON object a line.
//!
//! This module parses nothing. It passes on every non-blank line unchanged, so that a line that is
//! no turn becomes a dead letter with its bytes, as it would on a log. It does not know which turn
//! is the last of its conversation.

use super::source::Source;
use super::{FormatError, LoggedItem};

/// The lines of a log.
pub(super) struct Lines {
    source: Source,
    ended: bool,
}

impl Lines {
    /// Reads the lines of this log.
    pub(super) fn new(source: Source) -> Self {
        Self { source, ended: false }
    }
}

impl Iterator for Lines {
    type Item = Result<LoggedItem, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let mut bytes = Vec::new();
        let line = self.source.next_line(&mut bytes).transpose();
        self.ended = line.as_ref().is_none_or(|line| line.as_ref().is_err_and(FormatError::ends));
        Some(line?.map(|line| LoggedItem::Raw { line, bytes }))
    }
}
