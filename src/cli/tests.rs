//! The command line as a whole.

use clap::CommandFactory;

use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    // Spaces within double quotes do not part words.
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

/// Calls `visit` for every command that does something, with its path.
fn walk(command: &clap::Command, path: &str, visit: &mut dyn FnMut(&str, &mut clap::Command)) {
    let path = format!("{path} {}", command.get_name()).trim().to_owned();
    visit(&path, &mut command.clone());
    for below in command.get_subcommands() {
        walk(below, &path, visit);
    }
}

#[test]
fn every_help_has_examples_that_parse() {
    let mut seen = 0;
    walk(&Cli::command(), "", &mut |path, command| {
        let help = command.render_long_help().to_string();
        let (_, examples) = help.split_once("Examples:\n").unwrap_or_else(|| {
            panic!("`{path} --help` has no examples:\n{help}");
        });
        let examples: Vec<&str> = examples.lines().take_while(|it| !it.is_empty()).collect();
        assert!(!examples.is_empty(), "{path}");
        for example in examples {
            // Without variables before it, redirections and remarks after it.
            let line = example.trim();
            let line = line.find("turnstream ").map_or(line, |at| &line[at..]);
            let line = line.split(['>', '|', '<']).next();
            let line = line.unwrap_or_default().split("  ").next().unwrap_or_default().trim();
            assert!(line.starts_with(path), "`{path} --help` shows `{line}`");
            assert!(parse(line).is_ok(), "`{path} --help` shows `{line}`, which is refused");
            seen += 1;
        }
        assert!(command.get_about().is_some(), "{path}");
    });
    assert!(seen >= 10, "{seen}");
}

#[test]
fn every_argument_is_documented() {
    walk(&Cli::command(), "", &mut |path, command| {
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{path} {}", argument.get_id());
        }
    });
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
    assert_eq!((cli.log_format, cli.log_level.as_deref()), (LogFormat::Json, Some("warn")));
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
        "turnstream demo --json --pause",
        "turnstream completions cmd",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn usage_errors_are_json_where_json_was_asked_for() {
    let error = parse("turnstream validate --json --confg x").expect_err("refused");
    let mut out = Vec::new();
    assert_eq!(usage(&error, true, &mut out), Exit::Usage);
    let json: serde_json::Value = serde_json::from_slice(&out).expect("one JSON object");
    assert_eq!(json["exit_code"], 2);
    assert!(json["error"].as_str().is_some_and(|it| it.contains("--confg")), "{json}");
    let mut out = Vec::new();
    let help = parse("turnstream --help").expect_err("help");
    assert_eq!((usage(&help, true, &mut out), out.len()), (Exit::Success, 0));
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in clap::ValueEnum::value_variants() {
        let mut out = Vec::new();
        completions::execute(&completions::Args { shell: *shell }, &mut out).expect("made");
        let script = String::from_utf8(out).expect("text");
        assert!(script.contains("turnstream") && script.contains("replay"), "{shell}");
    }
}
