//! Reports a failure once: on standard error for people, or as the last line of a JSON log, and as
//! one JSON object for programs.
//!
//! Commands return [`anyhow::Error`]. Its chain determines the exit code: a [`Usage`] or a
//! [`ConfigError`] in it means wrong usage, an [`InputRefused`] a refused input, a [`LogError`] a
//! code of its kind (fenced, unavailable, refused), and anything else a failure while running.

use std::io::Write;

use serde::Serialize;
use turnstream_engine::commit::CommitError;
use turnstream_engine::config::{ConfigError, Problem};
use turnstream_engine::dependencies::DependencyError;
use turnstream_engine::intake::IntakeError;
use turnstream_engine::knowledge_feed::KnowledgeFeedError;
use turnstream_engine::serve::EngineError;
use turnstream_engine::views::ViewsError;
use turnstream_log::LogError;
use turnstream_log::jsonl::ResumeError;
use turnstream_models::ModelError;
use turnstream_models::answers::AnswersError;
use turnstream_models::language::LanguageModelError;
use turnstream_sources::documents::DocumentsError;
use turnstream_sources::knowledge::KnowledgeError;

use super::logging::{LogFormat, conceal};
use super::{Exit, print_json};

/// The command line or the configuration is wrong.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Usage {
    message: String,
    remedy: String,
}

/// The input as a whole cannot be read: it is missing, or not in the given format. A single bad
/// record becomes a dead letter instead.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct InputRefused {
    message: String,
    remedy: String,
    source: Option<anyhow::Error>,
}

impl Usage {
    /// Takes the problem and the remedy, which may be empty.
    pub fn new(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { message: message.into(), remedy: remedy.into() }
    }
}

impl InputRefused {
    /// Takes the problem, with the file and, if there is one, the line, and the remedy, which may
    /// be empty.
    pub fn new(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { message: message.into(), remedy: remedy.into(), source: None }
    }

    /// Adds the error that revealed the problem.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<anyhow::Error>) -> Self {
        self.source = Some(source.into());
        self
    }
}

/// An error in the form for programs.
#[derive(Debug, Serialize)]
struct Failure {
    /// The problem.
    error: String,
    /// The causes, the nearest first.
    caused_by: Vec<String>,
    /// The remedy. Empty if none is known.
    remedy: String,
    /// The exit code of the process.
    exit_code: u8,
    /// Each problem of a configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<Problem>,
}

/// The exit code of an error.
pub fn exit_of(error: &anyhow::Error) -> Exit {
    for cause in error.chain() {
        if cause.is::<Usage>() || cause.is::<ConfigError>() {
            return Exit::Usage;
        }
        if cause.is::<InputRefused>() {
            return Exit::InputRefused;
        }
        match cause.downcast_ref() {
            Some(ResumeError::Log(_)) => return Exit::InputRefused,
            Some(_) => return Exit::Usage,
            None => {}
        }
        if cause.is::<LanguageModelError>() {
            return Exit::Usage;
        }
        if cause.is::<AnswersError>() {
            return Exit::InputRefused;
        }
        match cause.downcast_ref() {
            Some(DependencyError::Answers(_)) => return Exit::InputRefused,
            Some(DependencyError::Unusable(found)) if found.iter().any(|it| it.is_lasting) => {
                return Exit::Usage;
            }
            Some(DependencyError::Unusable(_)) | None => {}
        }
        if let Some(
            KnowledgeError::Read { .. }
            | KnowledgeError::Import { .. }
            | KnowledgeError::NoFacts { .. },
        ) = cause.downcast_ref()
        {
            return Exit::InputRefused;
        }
        if let Some(
            ModelError::Missing { .. } | ModelError::NoSuchModel { .. } | ModelError::NoFolder,
        ) = cause.downcast_ref()
        {
            return Exit::Usage;
        }
        if let Some(DocumentsError::Read { .. }) = cause.downcast_ref() {
            return Exit::InputRefused;
        }
        if let Some(exit) = exit_of_log(cause) {
            return exit;
        }
    }
    Exit::Failed
}

/// The exit code of an error of the log. The engine's errors are transparent, so the chain lacks
/// the errors inside them.
fn exit_of_log(cause: &(dyn std::error::Error + 'static)) -> Option<Exit> {
    let engine = cause.downcast_ref::<EngineError>();
    let intake = match engine {
        Some(EngineError::Intake(intake)) => Some(intake),
        _ => cause.downcast_ref::<IntakeError>(),
    };
    let commit = match engine {
        Some(EngineError::Commit(commit)) => Some(commit),
        _ => cause.downcast_ref::<CommitError>(),
    };
    let feed = match engine {
        Some(EngineError::KnowledgeFeed(feed)) => Some(feed),
        _ => cause.downcast_ref::<KnowledgeFeedError>(),
    };
    let views = cause.downcast_ref::<ViewsError>();
    let log = match (intake, commit) {
        _ if matches!(views, Some(ViewsError::TooMany { .. })) => return Some(Exit::LogRefused),
        _ if let Some(ViewsError::Log(log)) = views => log,
        // A restart would find the same changes on the topic.
        _ if matches!(feed, Some(KnowledgeFeedError::TooManyLiveChanges { .. })) => {
            return Some(Exit::LogRefused);
        }
        _ if let Some(KnowledgeFeedError::Log(log)) = feed => log,
        // A restart would find the same records and metadata of the other program.
        (Some(IntakeError::Metadata { .. }), _) | (_, Some(CommitError::Metadata { .. })) => {
            return Some(Exit::LogRefused);
        }
        (Some(IntakeError::Log(log)), _) => log,
        (_, Some(CommitError::Log { source, .. })) => source,
        _ => cause.downcast_ref::<LogError>()?,
    };
    Some(match log {
        LogError::Fenced { .. } => Exit::Fenced,
        LogError::Refused(_) => Exit::LogRefused,
        error if error.is_of_settings() => Exit::Usage,
        LogError::Kafka { .. } | LogError::Unsettled { .. } | LogError::Stale { .. } => {
            Exit::Unavailable
        }
        LogError::File { .. } | LogError::Storage { .. } | LogError::Cache(_) => Exit::Failed,
    })
}

/// An error as the last line of a JSON log, in the form of the lines before it.
#[derive(Debug, Serialize)]
struct LastLine {
    timestamp: String,
    level: &'static str,
    message: &'static str,
    #[serde(flatten)]
    failure: Failure,
    target: &'static str,
}

/// Writes an error to `err` with its causes and remedy, in the format of the log. With `json`, also
/// writes it to `out`.
pub fn report(
    error: &anyhow::Error,
    (format, json): (LogFormat, bool),
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Exit {
    // If standard error or output is closed, only the exit code reports the failure.
    let _ = match format {
        LogFormat::Pretty => err.write_all(text(&Failure::of(error)).as_bytes()),
        LogFormat::Json => print_json(
            err,
            &LastLine {
                timestamp: jiff::Timestamp::now().to_string(),
                level: "ERROR",
                message: "the process ends",
                failure: Failure::of(error),
                target: module_path!(),
            },
        ),
    };
    if json {
        let _ = print(error, out);
    }
    exit_of(error)
}

fn text(failure: &Failure) -> String {
    // A configuration can have many problems, each on its own line.
    let mut text = format!("error: {}\n", failure.error.replace('\n', "\nerror: "));
    for cause in &failure.caused_by {
        text.push_str(&format!("  because: {cause}\n"));
    }
    if !failure.remedy.is_empty() {
        text.push_str(&format!("  remedy: {}\n", failure.remedy));
    }
    conceal(&text)
}

/// Writes an error as one line of JSON.
///
/// # Errors
/// `out` cannot be written to.
pub fn print(error: &anyhow::Error, out: &mut dyn Write) -> std::io::Result<()> {
    print_json(out, &Failure::of(error))
}

/// Every problem of a configuration, with secrets masked: a path may contain one.
pub fn problems_of(error: &ConfigError) -> Vec<Problem> {
    let concealed = |problem: Problem| {
        let (message, remedy) = (conceal(&problem.message), conceal(&problem.remedy));
        Problem { message, remedy, ..problem }
    };
    error.problems().into_iter().map(concealed).collect()
}

impl Failure {
    fn of(error: &anyhow::Error) -> Self {
        let mut said = error.to_string();
        let first = said.clone();
        let mut caused_by = Vec::new();
        let mut remedy = "";
        let mut problems = Vec::new();
        for (depth, cause) in error.chain().enumerate() {
            let text = cause.to_string();
            // Many messages already end with the message of their cause.
            if depth > 0 && !said.contains(&text) {
                caused_by.push(conceal(&text));
                said = text;
            }
            if let Some(usage) = cause.downcast_ref::<Usage>() {
                remedy = &usage.remedy;
            } else if let Some(refused) = cause.downcast_ref::<InputRefused>() {
                remedy = &refused.remedy;
            } else if let Some(config) = cause.downcast_ref::<ConfigError>() {
                problems = problems_of(config);
            }
        }
        Self {
            error: conceal(&first),
            caused_by,
            remedy: remedy.to_owned(),
            exit_code: exit_of(error).code(),
            problems,
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use rdkafka::error::{KafkaError, RDKafkaErrorCode};
    use serde_json::{Value, json};
    use turnstream_engine::commit::ledger::metadata::MetadataError;
    use turnstream_engine::panics::Panicked;

    use super::*;

    fn reported(error: &anyhow::Error) -> (Exit, String, Value) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let exit = report(error, (LogFormat::Pretty, true), &mut out, &mut err);
        let json = serde_json::from_slice(&out).expect("one JSON object");
        (exit, String::from_utf8(err).expect("text"), json)
    }

    #[test]
    fn the_chain_is_told_once_with_the_remedy() {
        let cause = std::io::Error::other("disk on fire");
        let refused = InputRefused::new("log.jsonl: cannot be read", "check the path");
        let error = Err::<(), _>(refused.caused_by(cause)).context("replaying log.jsonl");
        let (exit, text, json) = reported(&error.expect_err("an error"));
        assert_eq!(exit, Exit::InputRefused);
        assert_eq!(
            text,
            "error: replaying log.jsonl\n  because: log.jsonl: cannot be read\n  because: disk \
             on fire\n  remedy: check the path\n"
        );
        assert_eq!(
            json,
            json!({
                "error": "replaying log.jsonl",
                "caused_by": ["log.jsonl: cannot be read", "disk on fire"],
                "remedy": "check the path",
                "exit_code": 3,
            })
        );
    }

    #[test]
    fn a_log_in_json_ends_in_json() {
        let error = anyhow::Error::from(Usage::new("two\nproblems", "mend \"both\""));
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let exit = report(&error.context("reading"), (LogFormat::Json, false), &mut out, &mut err);
        assert_eq!((exit, out), (Exit::Usage, Vec::new()));
        let line = String::from_utf8(err).expect("text");
        assert_eq!(line.find('\n'), Some(line.len() - 1), "one line: {line}");
        let mut line: Value = serde_json::from_str(&line).expect("a JSON object");
        let timestamp = line.as_object_mut().and_then(|line| line.shift_remove("timestamp"));
        assert!(timestamp.is_some_and(|it| it.as_str().is_some_and(|it| it.ends_with('Z'))));
        assert_eq!(
            line,
            json!({
                "level": "ERROR",
                "message": "the process ends",
                "error": "reading",
                "caused_by": ["two\nproblems"],
                "remedy": "mend \"both\"",
                "exit_code": 2,
                "target": "turnstream_console::failure",
            })
        );
    }

    #[test]
    fn a_cause_that_was_told_is_not_told_again() {
        #[derive(Debug, thiserror::Error)]
        #[error("a.bin: {source}")]
        struct Outer {
            source: std::io::Error,
        }
        let outer = Outer { source: std::io::Error::other("no space") };
        let (exit, text, _) = reported(&outer.into());
        assert_eq!((exit, text.as_str()), (Exit::Failed, "error: a.bin: no space\n"));
    }

    #[test]
    fn exit_codes() {
        let config = ConfigError::Invalid(Vec::new());
        let usage = || anyhow::Error::from(Usage::new("a", "b"));
        for (error, exit) in [
            (anyhow::anyhow!("x"), Exit::Failed),
            (usage(), Exit::Usage),
            (usage().context("while"), Exit::Usage),
            (config.into(), Exit::Usage),
            (InputRefused::new("a", "b").into(), Exit::InputRefused),
        ] {
            assert_eq!(exit_of(&error), exit, "{error}");
        }
        assert_eq!(Exit::ALL.map(Exit::code), [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn errors_of_the_log_say_whether_a_restart_helps() {
        let kafka = |source, fatal| LogError::Kafka { doing: "x".to_owned(), source, fatal };
        let gone = |fatal| kafka(KafkaError::Flush(RDKafkaErrorCode::AllBrokersDown), fatal);
        let fenced = || LogError::Fenced { name: "transactional id", id: "writer-1".to_owned() };
        let refused = || LogError::Refused("no such topic".to_owned());
        let lost = |partition| IntakeError::Metadata {
            partition,
            source: MetadataError::Version { position: 3, found: 'x' },
        };
        let file = std::io::Error::other("disk on fire");
        for (error, exit) in [
            (fenced(), Exit::Fenced),
            (refused(), Exit::LogRefused),
            (gone(false), Exit::Unavailable),
            (gone(true), Exit::Unavailable),
            (LogError::Unsettled { what: "history".to_owned() }, Exit::Unavailable),
            (kafka(KafkaError::ClientCreation("no such setting".to_owned()), true), Exit::Usage),
            (LogError::File { path: "log".to_owned(), source: file }, Exit::Failed),
        ] {
            let said = error.to_string();
            assert_eq!(exit_of(&anyhow::Error::from(error).context("while")), exit, "{said}");
        }
        // As the engine returns them, with every layer between.
        let topic = "knowledge".to_owned();
        let too_many = KnowledgeFeedError::TooManyLiveChanges { topic, statements: 3, limit: 2 };
        let committing = |source| EngineError::from(CommitError::Log { attempt: 6, source });
        for (error, exit) in [
            (EngineError::from(IntakeError::from(fenced())), Exit::Fenced),
            (EngineError::from(IntakeError::from(refused())), Exit::LogRefused),
            (EngineError::from(lost(2)), Exit::LogRefused),
            (committing(fenced()), Exit::Fenced),
            (committing(gone(false)), Exit::Unavailable),
            (EngineError::from(KnowledgeFeedError::from(refused())), Exit::LogRefused),
            (EngineError::from(KnowledgeFeedError::from(gone(true))), Exit::Unavailable),
            (EngineError::from(too_many), Exit::LogRefused),
            (EngineError::from(KnowledgeFeedError::Panicked(Panicked::default())), Exit::Failed),
            (EngineError::CommitterPanicked(Panicked::default()), Exit::Failed),
        ] {
            let said = error.to_string();
            assert_eq!(exit_of(&error.into()), exit, "{said}");
        }
        let (what, key) = ("rows", "max_rows");
        let too_many = ViewsError::TooMany { what, key, held: 2, limit: 1 };
        for (error, exit) in [
            (too_many, Exit::LogRefused),
            (ViewsError::from(fenced()), Exit::Fenced),
            (ViewsError::from(gone(true)), Exit::Unavailable),
        ] {
            assert_eq!(exit_of(&error.into()), exit);
        }
    }
}
