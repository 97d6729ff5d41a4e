//! What every stage's section of the configuration can be asked.

use turnstream_ports::refused::Refused;

use crate::prompted::PromptedConfig;

/// A stage's section of the configuration.
pub trait StageConfig {
    /// Checks the ranges, and keys that ask for others.
    ///
    /// # Errors
    /// [`Refused`] by key.
    fn check(&self) -> Result<(), Refused>;

    /// How the stage asks a language model; nothing where its form is another.
    fn prompted(&self) -> Option<&PromptedConfig> {
        None
    }
}
