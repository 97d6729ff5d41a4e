//! Defines the interface that the configuration sections of all stages share.

use turnstream_ports::refused::Refused;

use crate::prompted::PromptedConfig;

/// A stage's section of the configuration.
pub trait StageConfig {
    /// Checks the ranges, and the keys that need others.
    ///
    /// # Errors
    /// [`Refused`], naming the key.
    fn check(&self) -> Result<(), Refused>;

    /// Returns how the stage asks a language model; `None` unless its form is `prompted`.
    fn prompted(&self) -> Option<&PromptedConfig> {
        None
    }
}
