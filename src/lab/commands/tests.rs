//! Tests the command line as a whole.

use clap::CommandFactory;

use super::*;

#[path = "../../cli/tests/help.rs"]
mod help;

#[test]
fn every_help_has_examples_that_parse_and_every_argument_is_documented() {
    let command = Cli::command();
    command.clone().debug_assert();
    let parses = |line: &str| {
        // Spaces within double quotes do not separate words.
        let words = line.split('"').enumerate().flat_map(|(at, part)| match at % 2 {
            0 => part.split_whitespace().collect(),
            _ => vec![part],
        });
        Cli::try_parse_from(words).is_ok()
    };
    let mut seen = 0;
    for below in command.get_subcommands() {
        if ["eval", "train"].contains(&below.get_name()) {
            seen += help::examples_parse(below, "turnstream", &parses);
            continue;
        }
        // The other program has the rest of these commands and tests their examples.
        let path = format!("turnstream {}", below.get_name());
        for handed in below.get_subcommands() {
            seen += help::examples_parse(handed, &path, &parses);
        }
    }
    assert!(seen >= 20, "{seen}");
    help::arguments_are_documented(&command);
}
