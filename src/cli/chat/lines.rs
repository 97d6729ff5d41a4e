//! Typed lines: edited on a terminal, read as they are elsewhere.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::Context;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::view::View;

/// The prompt before a typed line.
const PROMPT: &str = "you> ";

/// The output of `/help`.
pub(super) const HELP: &str = "\
/explain  how the last response came about
/prompts  the same, and what the language models were asked
/help     this
/quit     ends the chat, as Ctrl-D does
Ctrl-C while a response is written ends its writing. A turn that begins with a slash is typed with
two of them.
";

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A turn.
    Words(String),
    Command(SlashCommand),
    /// Ctrl-C in place of a line.
    Interrupted,
    /// The end of input.
    End,
}

/// A command: a line that begins with a slash.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SlashCommand {
    Explain,
    Prompts,
    Help,
    Quit,
    Unknown(String),
}

impl Line {
    /// Parses a line; `None` if it is empty.
    fn read(line: &str) -> Option<Self> {
        let line = line.trim();
        let Some(command) = line.strip_prefix('/') else {
            return (!line.is_empty()).then(|| Self::Words(line.to_owned()));
        };
        if command.starts_with('/') {
            return Some(Self::Words(command.to_owned()));
        }
        Some(Self::Command(match command {
            "explain" => SlashCommand::Explain,
            "prompts" => SlashCommand::Prompts,
            "help" => SlashCommand::Help,
            "quit" | "exit" => SlashCommand::Quit,
            _ => SlashCommand::Unknown(line.to_owned()),
        }))
    }
}

/// The source of lines.
pub(super) enum Lines {
    /// A terminal, where lines are edited.
    Edited(Box<DefaultEditor>),
    /// Plain standard input, with a prompt if it is a terminal.
    Plain { prompt: bool },
}

impl Lines {
    /// Opens an editor if a person types and sees the output.
    pub(super) fn open(json: bool, colour: bool) -> anyhow::Result<Self> {
        let typed = std::io::stdin().is_terminal();
        if !typed || json || !std::io::stdout().is_terminal() {
            return Ok(Self::Plain { prompt: typed });
        }
        let mode =
            if colour { rustyline::ColorMode::Enabled } else { rustyline::ColorMode::Disabled };
        let config = rustyline::Config::builder().auto_add_history(true).color_mode(mode).build();
        let editor = DefaultEditor::with_config(config).context("the terminal")?;
        Ok(Self::Edited(Box::new(editor)))
    }

    /// The next line that is not empty.
    pub(super) fn next(&mut self, view: &mut View<'_>) -> anyhow::Result<Line> {
        loop {
            let line = match self {
                Self::Edited(editor) => match editor.readline(PROMPT) {
                    Ok(line) => line,
                    Err(ReadlineError::Eof) => return Ok(Line::End),
                    Err(ReadlineError::Interrupted) => return Ok(Line::Interrupted),
                    Err(error) => return Err(error).context("the terminal"),
                },
                Self::Plain { prompt } => {
                    if *prompt {
                        write!(std::io::stderr(), "{PROMPT}")?;
                    }
                    match plain()? {
                        Some(line) => line,
                        None => return Ok(Line::End),
                    }
                }
            };
            if let Some(line) = Line::read(&line) {
                view.begin()?;
                return Ok(line);
            }
        }
    }
}

/// A line of standard input; `None` at its end.
fn plain() -> anyhow::Result<Option<String>> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_until(b'\n', &mut bytes).context("standard input")?;
    Ok((!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_begins_a_command_and_two_a_turn() {
        let words = |text: &str| Some(Line::Words(text.to_owned()));
        assert_eq!(Line::read("  hello /quit \n"), words("hello /quit"));
        assert_eq!(Line::read("//quit"), words("/quit"));
        assert_eq!(Line::read(" \n"), None);
        assert_eq!(Line::read("/exit"), Some(Line::Command(SlashCommand::Quit)));
        let unknown = SlashCommand::Unknown("/explian".to_owned());
        assert_eq!(Line::read("/explian"), Some(Line::Command(unknown)));
        for command in ["/explain", "/prompts", "/help", "/quit"] {
            assert!(HELP.contains(&format!("\n{command} ")) || HELP.starts_with(command));
            let read = Line::read(command);
            assert!(!matches!(read, Some(Line::Command(SlashCommand::Unknown(_)))), "{command}");
        }
    }
}
