//! `turnstream validate`: everything that is wrong with a configuration, or what it amounts to.

use std::io::Write;
use std::path::PathBuf;

use serde::Serialize;

use super::{Exit, load_config, print_json};
use crate::config::Problem;

/// Check a configuration file: every problem, with its line, key and remedy.
///
/// Nothing is started and no broker is asked.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream validate --config turnstream.toml
  turnstream validate --config turnstream.toml --print
  turnstream validate --print > turnstream.toml    (the defaults, documented)
  turnstream validate --config turnstream.toml --json")]
pub struct Args {
    /// The file; the defaults where it is not given.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the effective configuration as TOML, with what every key means. Secrets are
    /// masked, and variables of the environment appear by name.
    #[arg(long)]
    pub print: bool,
    /// Print one JSON object: valid, problems and, with --print, config.
    #[arg(long)]
    pub json: bool,
}

/// What programs read.
#[derive(Debug, Serialize)]
struct Verdict {
    valid: bool,
    problems: Vec<Problem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<serde_json::Value>,
}

/// Checks the file and says so.
///
/// # Errors
/// The [`ConfigError`](crate::config::ConfigError), unless `--json` has it printed to `out`; and where `out` cannot be
/// written to.
pub fn execute(args: &Args, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let loaded = match load_config(args.config.as_deref()) {
        Ok(loaded) => loaded,
        Err(error) if args.json => {
            let verdict = Verdict { valid: false, problems: error.problems(), config: None };
            print_json(out, &verdict)?;
            return Ok(Exit::Usage);
        }
        Err(error) => return Err(error.into()),
    };
    match (args.json, args.print) {
        (true, print) => {
            let config = if print { Some(loaded.to_json()?) } else { None };
            print_json(out, &Verdict { valid: true, problems: Vec::new(), config })?;
        }
        (false, true) => out.write_all(loaded.to_toml()?.as_bytes())?,
        (false, false) => {
            let file = args.config.as_ref().map(|path| format!("{}: ", path.display()));
            writeln!(out, "{}valid", file.unwrap_or_default())?;
        }
    }
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str, print: bool, json: bool) -> (anyhow::Result<Exit>, String) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t.toml");
        std::fs::write(&path, text).expect("written");
        let mut out = Vec::new();
        let exit = execute(&Args { config: Some(path), print, json }, &mut out);
        let out = String::from_utf8(out).expect("text");
        (exit, out.replace(&folder.path().display().to_string(), ""))
    }

    #[test]
    fn a_valid_file_is_said_to_be() {
        let (exit, out) = run("[run]\nworkers = 2", false, false);
        assert_eq!((exit.expect("runs"), out.as_str()), (Exit::Success, "/t.toml: valid\n"));
        let (exit, out) = run("[run]\nworkers = 2", true, false);
        assert_eq!(exit.expect("runs"), Exit::Success);
        assert!(out.contains("\n[run]\n") && out.contains("\nworkers = 2\n"), "{out}");
        let (exit, out) = run("[run]\nworkers = 2", true, true);
        assert_eq!(exit.expect("runs"), Exit::Success);
        let out: serde_json::Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(out["valid"], true);
        assert_eq!(out["config"]["run"]["workers"], 2);
        assert_eq!(out["config"]["knowledge"]["snapshot"], "pack");
    }

    #[test]
    fn an_invalid_file_is_refused_with_every_problem() {
        let text = "[run]\nworker = 2\nworkers = 0\n";
        let (exit, out) = run(text, true, false);
        let error = exit.expect_err("refused");
        assert_eq!((super::super::failure::exit_of(&error), out.as_str()), (Exit::Usage, ""));
        assert_eq!(error.to_string().lines().count(), 2, "{error}");
        let (exit, out) = run(text, true, true);
        assert_eq!(exit.expect("reported"), Exit::Usage);
        let out: serde_json::Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(out["valid"], false);
        assert_eq!(out["problems"][0]["key"], "run.worker");
        assert_eq!(out["problems"][0]["line"], 2);
        assert_eq!(out["problems"][0]["remedy"], "did you mean `workers`?");
        assert_eq!(out["problems"][1]["key"], "run.workers");
    }

    #[test]
    fn a_snapshot_that_is_not_there_is_noticed() {
        let (exit, _) = run("[knowledge]\nsnapshot = '/nowhere/x.snapshot'", false, false);
        let said = exit.expect_err("refused").to_string();
        assert!(said.contains("t.toml:2: knowledge.snapshot: there is no such file"), "{said}");
    }
}
