//! `turnstream validate`: shows all problems of a configuration, or the effective configuration.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use turnstream_console::failure::problems_of;
use turnstream_console::{Exit, load_config, print_json};
use turnstream_engine::config::{Checks, Config, ConfigError, Loaded, LogKind, Problem};
use turnstream_engine::dependencies::{Dependencies, DependencyError, Reach};
use turnstream_engine::digests::Digests;
use turnstream_engine::metrics::Metrics;
use turnstream_log::{Topic, kafka};
use turnstream_models::language::AnswerFiles;
use turnstream_models::probe::{self, Probed};
use turnstream_ports::remedy::parted;
use turnstream_schemas::Fingerprint;

use super::opening;

/// Check a configuration: every problem, with its line, key and remedy.
///
/// Opens what lies on this machine as `turnstream run` does: tables, prompts, documents, models,
/// certificates, and the folders that are written to. Of a local language model only the
/// description is read, not its weights. Nothing is served, and no server is asked unless --connect
/// is given.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  the configuration is valid
  2  the configuration has problems

Examples:
  turnstream validate --config turnstream.toml
  turnstream validate --config turnstream.toml --connect
  turnstream validate --config turnstream.toml --print
  turnstream validate --print > turnstream.toml    (the defaults, documented)
  turnstream validate --config turnstream.toml --fingerprint
  turnstream validate --config turnstream.toml --json")]
pub struct ValidateArgs {
    /// The file; the defaults if not given.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Ask the broker for the topics, and whether they and the group may be read; ask each language
    /// model and the encoder for an answer. Nothing is created or written, and no group is joined.
    /// Whether records may be written cannot be checked.
    #[arg(long)]
    pub connect: bool,
    /// Print the effective configuration as TOML, with the meaning of every key. Secrets are
    /// masked, and variables of the environment appear by name.
    #[arg(long)]
    pub print: bool,
    /// Print the fingerprint of responses: the digest that each of them carries, the digest of each
    /// part, and those of what the parts consist of.
    #[arg(long, conflicts_with = "print")]
    pub fingerprint: bool,
    /// Print one JSON object: valid, problems and, with --print, config, or with --fingerprint, the digests.
    #[arg(long)]
    pub json: bool,
}

/// The report for programs.
#[derive(Debug, Serialize)]
struct Verdict {
    valid: bool,
    problems: Vec<Problem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<Arc<Digests>>,
}

/// Checks the file and reports the result.
///
/// # Errors
/// The [`ConfigError`], unless `--json` prints it to `out`; or `out` cannot be written to.
pub fn execute(args: &ValidateArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let (loaded, digests) = match checked(args) {
        Ok(checked) => checked,
        Err(error) if args.json => match error.downcast::<ConfigError>() {
            Ok(error) => {
                let problems = problems_of(&error);
                let (config, fingerprint) = (None, None);
                print_json(out, &Verdict { valid: false, problems, config, fingerprint })?;
                return Ok(Exit::Usage);
            }
            Err(error) => return Err(error),
        },
        Err(error) => return Err(error),
    };
    match (args.json, args.print) {
        (true, print) => {
            let config = if print { Some(loaded.to_json()?) } else { None };
            let fingerprint = digests.filter(|_| args.fingerprint);
            let problems = Vec::new();
            print_json(out, &Verdict { valid: true, problems, config, fingerprint })?;
        }
        (false, true) => out.write_all(loaded.to_toml()?.as_bytes())?,
        (false, false) if let Some(digests) = digests.filter(|_| args.fingerprint) => {
            print_digests(&digests, out)?;
        }
        (false, false) => {
            let file = args.config.as_ref().map(|path| format!("{}: ", path.display()));
            writeln!(out, "{}valid", file.unwrap_or_default())?;
        }
    }
    Ok(Exit::Success)
}

fn print_digests(digests: &Digests, out: &mut dyn Write) -> std::io::Result<()> {
    let Digests { fingerprint: Fingerprint { digest, parts }, details } = digests;
    writeln!(out, "{digest}")?;
    for (part, digest) in parts {
        writeln!(out, "  {:<16} {digest}", part.name())?;
        // A detail that is its part's digest, such as that of the version, is not repeated.
        let of_part = details.get(part).filter(|of| of.values().all(|it| it != digest));
        for (name, digest) in of_part.into_iter().flatten() {
            writeln!(out, "    {digest:<16} {name}")?;
        }
    }
    Ok(())
}

/// Returns the configuration, if it has no problems, and the digests of what makes responses.
fn checked(args: &ValidateArgs) -> anyhow::Result<(Loaded<Config>, Option<Arc<Digests>>)> {
    let loaded = load_config(args.config.as_deref())?;
    let metrics = Metrics::new(&loaded.value.metrics);
    let checks = opening::serving(&loaded.value);
    let reach = if args.connect { Reach::Servers } else { Reach::Here };
    let opened = opening::open(&loaded, checks, &metrics, (&AnswerFiles::default(), reach));
    let (mut checks, mut digests) = (Checks::default(), None);
    match opened {
        Ok((dependencies, _)) => {
            if args.connect {
                connect(&dependencies, &mut checks);
            }
            digests = dependencies.made_by;
        }
        Err(error) => match error.downcast::<DependencyError>()? {
            DependencyError::Unusable(found) => opening::unusable(&mut checks, found),
            error @ DependencyError::Answers(_) => return Err(error.into()),
        },
    }
    if checks.is_empty() { Ok((loaded, digests)) } else { Err(loaded.refused(checks).into()) }
}

/// Asks the broker and the language models.
fn connect(dependencies: &Dependencies, checks: &mut Checks) {
    for Probed { model, reason, .. } in
        probe::probe(&dependencies.language_models, probe::OF_A_CHECK)
    {
        if let Some(said) = reason {
            let (message, remedy) = parted(&said);
            checks.problem_at(["language_models", &model], message, remedy);
        }
    }
    let log = &dependencies.config.log;
    if log.kind != LogKind::Kafka {
        return;
    }
    let live = dependencies.config.knowledge.live.then_some(Topic::Knowledge);
    let topics: Vec<Topic> =
        Topic::OF_TURNS.into_iter().chain(Topic::MAY_BE_MISSING).chain(live).collect();
    if let Err(error) = kafka::ask(&log.kafka, &topics) {
        let (message, remedy) = parted(&error.to_string());
        checks.problem("log.kafka", message, remedy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> ValidateArgs {
        ValidateArgs { config: None, connect: false, print: false, fingerprint: false, json: false }
    }

    fn run(text: &str, print: bool, json: bool) -> (anyhow::Result<Exit>, String) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t.toml");
        std::fs::write(&path, text).expect("written");
        let mut out = Vec::new();
        let exit =
            execute(&ValidateArgs { config: Some(path), print, json, ..nothing() }, &mut out);
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
        assert_eq!((turnstream_console::failure::exit_of(&error), out.as_str()), (Exit::Usage, ""));
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
