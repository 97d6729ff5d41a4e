//! Refuses a stage's configuration whose keys contradict each other. The range of a number is in the
//! schema of the type that has it, and a stage's own type of `form` limits its forms.

use turnstream_schemas::Stage;

/// A key of a stage's configuration needs another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{stage}.{key} needs {needs}")]
pub struct Refused {
    /// The stage.
    pub stage: Stage,
    /// The key.
    pub key: &'static str,
    /// The setting that it needs.
    pub needs: &'static str,
}
