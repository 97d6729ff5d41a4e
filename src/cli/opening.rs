//! Checks the configuration against this machine before anything is served. `validate`, `run`,
//! `replay` and `chat` use it, so that they report the same problem in the same words, with the
//! file, the line, the key and the remedy.

use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use turnstream_engine::cache::DiskCache;
use turnstream_engine::config::{Checks, Config, Loaded, LogKind};
use turnstream_engine::dependencies::{Dependencies, DependencyError, Reach, Unusable};
use turnstream_engine::metrics::Metrics;
use turnstream_models::answers::Recording;
use turnstream_models::language::AnswerFiles;

/// Opens what the configuration names.
///
/// # Errors
/// A [`ConfigError`](turnstream_engine::config::ConfigError) with the problems of `checks` and
/// everything that cannot be used. A [`DependencyError`] if only a server, the system or a file of
/// answers failed.
pub(super) fn open(
    loaded: &Loaded<Config>,
    mut checks: Checks,
    metrics: &Metrics,
    (files, reach): (&AnswerFiles, Reach),
) -> anyhow::Result<(Dependencies, Option<Recording>)> {
    // If this machine has a problem, no server is asked.
    let reach = if checks.is_empty() { reach } else { Reach::Here };
    match Dependencies::open(&loaded.value, metrics, files, reach) {
        Ok(opened) if checks.is_empty() => Ok(opened),
        Ok(_) => Err(loaded.refused(checks).into()),
        Err(DependencyError::Unusable(found))
            if !checks.is_empty() || found.iter().any(|it| it.is_lasting) =>
        {
            unusable(&mut checks, found);
            Err(loaded.refused(checks).into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Reports the dependencies that cannot be used.
pub(super) fn unusable(checks: &mut Checks, found: Vec<Unusable>) {
    for Unusable { keys, message, remedy, .. } in found {
        checks.problem_at(keys.iter().map(String::as_str), message, remedy);
    }
}

/// Finds the problems on this machine for `turnstream run`, beside the dependencies: the Kafka
/// client, its room for outcomes, folders that cannot be written, and an address of another
/// machine.
pub(super) fn serving(config: &Config) -> Checks {
    let mut checks = Checks::default();
    match (config.log.kind, &config.log.directory) {
        (LogKind::Kafka, _) => checks.within("log", |checks| {
            checks.within("kafka", |checks| {
                if let Some(problem) = config.log.kafka.unusable_client() {
                    let keys = problem.keys.iter().map(String::as_str);
                    checks.problem_at(keys, problem.message, problem.remedy);
                }
                room(checks, config);
            });
        }),
        (LogKind::Embedded, Some(folder)) => writable(&mut checks, "log.directory", folder),
        (LogKind::Embedded, None) => {}
    }
    writable(&mut checks, "run.cache_directory", &DiskCache::parent(&config.run));
    if let Some(address) = config.metrics.socket_address() {
        // Port 0, because a process that serves this configuration now may hold the port.
        let bound = TcpListener::bind(SocketAddr::new(address.ip(), 0)).map(drop);
        let remedy = "name an address of this machine, or leave it out";
        ensure(&mut checks, "metrics.address", "it cannot be bound", bound, remedy);
    }
    checks
}

fn ensure(
    checks: &mut Checks,
    key: &str,
    what: &str,
    tried: Result<(), impl Display>,
    remedy: &str,
) {
    if let Err(error) = tried {
        checks.problem(key, format!("{what}: {error}"), remedy);
    }
}

/// Reports a folder that cannot be written or created.
fn writable(checks: &mut Checks, key: &str, folder: &Path) {
    let what = format!("{} cannot be written", folder.display());
    let remedy = "name a writable folder on a local disk";
    ensure(checks, key, &what, try_writing(folder), remedy);
}

/// Writes an unnamed file into the folder, or into its nearest existing ancestor, in which it would
/// be created. Leaves nothing behind.
fn try_writing(folder: &Path) -> io::Result<()> {
    let folder = folder.ancestors().find(|it| it.exists()).filter(|it| !it.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let said = format!("{} is not a folder", folder.display());
        return Err(io::Error::new(io::ErrorKind::NotADirectory, said));
    }
    tempfile::tempfile_in(folder).map(drop)
}

/// The largest size of the facts, concepts, evicted entries, reasons and headers of a response, in
/// bytes. Generous, since their texts have no bounds of their own.
const RESPONSE_ROOM_BYTES: usize = 256 * 1024;

/// A bound on the largest outcome: it contains what came with the turn and what was recalled. Text
/// at most doubles in JSON.
fn largest_outcome_bytes(config: &Config) -> usize {
    let (turns, history) = (&config.turns, &config.history);
    let exchange = turns.max_text_bytes.saturating_mul(4);
    turns
        .max_record_bytes
        .saturating_add(history.window_bytes.saturating_mul(2))
        .saturating_add(history.recall.max_entries.saturating_add(1).saturating_mul(exchange))
        .saturating_add(RESPONSE_ROOM_BYTES)
}

/// Reports bounds under which an outcome could be too large for the client. The topics' limits are
/// checked once the broker is asked.
fn room(checks: &mut Checks, config: &Config) {
    let needed = largest_outcome_bytes(config);
    if needed > config.log.kafka.sent_bytes() {
        checks.problem_at(
            ["client", "message.max.bytes"],
            "the largest outcome that turns.max_record_bytes, turns.max_text_bytes, \
             history.window_bytes and history.recall.max_entries allow is larger than what the Kafka \
             client sends",
            format!(
                "lower them, or set log.kafka.client.\"message.max.bytes\" to {needed} and \
                 max.message.bytes of the topics to no less"
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_that_allow_too_large_an_outcome_are_refused() {
        let mut config = Config::default();
        let said = |config: &Config| {
            let mut checks = Checks::default();
            room(&mut checks, config);
            if checks.is_empty() {
                String::new()
            } else {
                Loaded::<Config>::defaults().refused(checks).to_string()
            }
        };
        assert_eq!(said(&config), "");
        config.turns.max_record_bytes = 700_000;
        let needed = largest_outcome_bytes(&config);
        assert!(said(&config).contains(&format!("to {needed} ")), "{}", said(&config));
        let client = &mut config.log.kafka.client.0;
        client.insert("message.max.bytes".to_owned(), needed.to_string());
        assert_eq!(said(&config), "");
        config.history.recall.max_entries += 1;
        assert_ne!(said(&config), "");
        config.history.recall.max_entries = usize::MAX;
        assert_ne!(said(&config), "", "and nothing overflows");
    }

    #[test]
    fn a_folder_is_checked_without_being_created() {
        let folder = tempfile::tempdir().expect("a folder");
        let below = folder.path().join("a/b");
        try_writing(&below).expect("it could be made");
        assert_eq!(folder.path().read_dir().expect("readable").count(), 0);
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("written");
        for folder in [file.clone(), file.join("a/b")] {
            let error = try_writing(&folder).expect_err("a file").to_string();
            assert!(error.contains("file is not a folder"), "{error}");
        }
    }
}
