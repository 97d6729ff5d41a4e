//! Requirements on the help of a program, shared by the programs' tests.

use clap::Command;

/// Calls `visit` for every command that does something, with its path.
fn walk(command: &Command, path: &str, visit: &mut dyn FnMut(&str, &mut Command)) {
    let path = format!("{path} {}", command.get_name()).trim().to_owned();
    // Another program tests its own commands.
    if command.is_disable_help_flag_set() {
        return;
    }
    visit(&path, &mut command.clone());
    for below in command.get_subcommands() {
        walk(below, &path, visit);
    }
}

/// The line up to the first of these characters outside of quotes.
fn unquoted(line: &str, ends: [char; 3]) -> &str {
    let mut quoted = false;
    let end = line.find(|at: char| {
        quoted ^= at == '"';
        !quoted && ends.contains(&at)
    });
    &line[..end.unwrap_or(line.len())]
}

/// Checks that every command below `path` has examples in its help, which `parses` accepts. Returns
/// their number.
pub(crate) fn examples_parse(
    command: &Command,
    path: &str,
    parses: &dyn Fn(&str) -> bool,
) -> usize {
    let mut seen = 0;
    walk(command, path, &mut |path, command| {
        let help = command.render_long_help().to_string();
        let (_, examples) = help.split_once("Examples:\n").unwrap_or_else(|| {
            panic!("`{path} --help` has no examples:\n{help}");
        });
        let examples: Vec<&str> = examples.lines().take_while(|it| !it.is_empty()).collect();
        assert!(!examples.is_empty(), "{path}");
        for example in examples {
            // Removes variables before the command, and redirections and remarks after it.
            let line = example.trim();
            let line = line.find("turnstream ").map_or(line, |at| &line[at..]);
            let line = unquoted(line, ['>', '|', '<']);
            let line = line.split("  ").next().unwrap_or_default().trim();
            assert!(line.starts_with(path), "`{path} --help` shows `{line}`");
            assert!(parses(line), "`{path} --help` shows `{line}`, which is refused");
            seen += 1;
        }
        assert!(command.get_about().is_some(), "{path}");
    });
    seen
}

/// Checks that every argument has a help text.
pub(crate) fn arguments_are_documented(command: &Command) {
    walk(command, "", &mut |path, command| {
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{path} {}", argument.get_id());
        }
    });
}
