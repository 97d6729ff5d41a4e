//! The command line as a whole.

use clap::CommandFactory;

use turnstream_console::logging::LogFormat;

use super::*;

mod help;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    // Spaces between double quotes do not separate words.
    let words = line.split('"').enumerate().flat_map(|(at, part)| match at % 2 {
        0 => part.split_whitespace().collect(),
        _ => vec![part],
    });
    Cli::try_parse_from(words)
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_help_has_examples_that_parse() {
    let seen = help::examples_parse(&Cli::command(), "", &|line| parse(line).is_ok());
    assert!(seen >= 10, "{seen}");
}

#[test]
fn every_argument_is_documented() {
    help::arguments_are_documented(&Cli::command());
}

#[test]
fn exit_codes_are_documented() {
    let help = Cli::command().render_help().to_string();
    for exit in Exit::ALL {
        assert!(help.contains(&format!("\n  {}  ", exit.code())), "{exit:?} in\n{help}");
    }
}

#[test]
fn global_flags_may_follow_the_command() {
    let cli = parse("turnstream validate --log-format json --log-level warn").expect("parses");
    assert_eq!(
        (cli.logging.log_format, cli.logging.log_level.as_deref()),
        (LogFormat::Json, Some("warn"))
    );
    assert!(parse("turnstream --log-level turnstream=loud validate").is_err());
}

#[test]
fn wrong_usage_is_refused() {
    for line in [
        "turnstream nothing",
        "turnstream run --workers 0",
        "turnstream run --workers 257",
        "turnstream replay",
        "turnstream replay log.jsonl --resume",
        "turnstream demo --chat --conversation chatty",
        "turnstream teach put taught.jsonl --gold gold.jsonl",
        "turnstream demo --json --pause",
        "turnstream completions cmd",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in clap::ValueEnum::value_variants() {
        let mut out = Vec::new();
        completions::execute(&completions::CompletionsArgs { shell: *shell }, &mut out)
            .expect("made");
        let script = String::from_utf8(out).expect("text");
        assert!(script.contains("turnstream") && script.contains("replay"), "{shell}");
    }
}
