//! `turnstream completions`: prints a completion script for a shell, made from the command line
//! itself.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use super::Cli;

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream completions bash > ~/.local/share/bash-completion/completions/turnstream
  turnstream completions zsh > \"${fpath[1]}/_turnstream\"
  turnstream completions fish > ~/.config/fish/completions/turnstream.fish")]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Prints the script.
///
/// # Errors
/// `out` cannot be written to.
pub fn execute(args: &CompletionsArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    // Generated in memory first: clap_complete panics if its writer fails.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "turnstream", &mut script);
    out.write_all(&script)?;
    Ok(())
}
