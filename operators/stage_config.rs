//! Defines the interface that the configuration sections of all stages share.

use turnstream_ports::refused::Refused;

use crate::prompted::PromptedConfig;

/// A stage's section of the configuration.
pub trait StageConfig {
    /// Checks the keys that need others. The schema of a section has the range of each number.
    ///
    /// # Errors
    /// [`Refused`], naming the key.
    fn check(&self) -> Result<(), Refused> {
        Ok(())
    }

    /// Returns how the stage asks a language model; `None` unless its form is `prompted`.
    fn prompted(&self) -> Option<&PromptedConfig> {
        None
    }
}
