//! Computes digests of everything that decides the words of a response: the program, its
//! configuration, its prompts, its models and its knowledge.
//!
//! Responses carry them, so that a later comparison tells which of these differed. Settings are
//! left out that decide only the source of turns, the destination of outcomes or the speed: a
//! replay of a file has the fingerprint of the service with the same configuration.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use turnstream_models::Embedder;
use turnstream_models::unified::UnifiedWeights;
use turnstream_operators::gate::GateForm;
use turnstream_operators::gate::learned::SHIPPED;
use turnstream_operators::prompted::Prompts;
use turnstream_schemas::{Fingerprint, FingerprintPart, Stage};

use crate::config::Config;

/// Sections and keys that do not affect the words of a response, or whose content has a separate
/// digest.
const LEFT_OUT: &[&str] = &[
    "commit",
    "documents.directory",
    "gateway",
    "knowledge",
    "log",
    "metrics",
    "models.batch_sequences",
    "models.batch_tokens",
    "models.batch_wait_ms",
    "models.cache_entries",
    "models.directory",
    "models.queue_requests",
    "models.threads",
    "responses",
    "run",
    "turns.max_in_flight",
    "turns.max_in_flight_per_partition",
    "turns.max_timestamp_skew_seconds",
    "turns.partitioner",
    "views",
];

/// The largest file that is read whole, in bytes. Of a larger one, the digest covers the size and
/// both ends.
const READ_WHOLE: u64 = 64 << 20;
/// The bytes to read at each end of a larger file.
const READ_AT_ENDS: u64 = 1 << 20;

/// The digests of everything that decides the words of a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Digests {
    /// The fingerprint that responses carry.
    #[serde(flatten)]
    pub fingerprint: Fingerprint,
    /// The digests that each part is made of, by the names of sections, stages and keys.
    pub details: BTreeMap<FingerprintPart, BTreeMap<String, String>>,
}

impl Digests {
    /// Computes the digests of a configuration with its prompts, the files that it names, and the
    /// graph, given by its checksum. A file that cannot be read counts by its path.
    pub fn new(config: &Config, prompts: &Prompts, graph: &str) -> Self {
        use FingerprintPart::{Configuration, Knowledge, Models, Version, Weights};
        let mut details: BTreeMap<FingerprintPart, BTreeMap<String, String>> =
            FingerprintPart::ALL.map(|part| (part, BTreeMap::new())).into();
        let mut note = |part, name: &str, digest: String| {
            details.entry(part).or_default().insert(name.to_owned(), digest);
        };
        note(Version, "turnstream", env!("CARGO_PKG_VERSION").to_owned());
        note(Weights, "shipped", turnstream_weights::DIGEST.to_owned());
        note(Knowledge, "graph", graph.to_owned());
        let written = serde_json::to_value(config)
            .unwrap_or_else(|error| unreachable!("a configuration is JSON: {error}"));
        let sections = written.as_object().into_iter().flatten();
        for (section, value) in sections.filter(|(name, _)| !LEFT_OUT.contains(&&***name)) {
            let of_models = matches!(&**section, "models" | "language_models");
            let part = if of_models { Models } else { Configuration };
            let mut kept = value.clone();
            if let Value::Object(keys) = &mut kept {
                keys.retain(|key, _| !LEFT_OUT.contains(&&*format!("{section}.{key}")));
            }
            note(part, section, digest_of(kept.to_string().as_bytes()));
        }
        for (part, key, path) in files_of(config) {
            note(part, &key, content(&path));
        }
        for stage in Stage::ALL {
            if let Some(of_stage) = prompts.of(stage) {
                let texts = format!("{}{}", of_stage.english.hash(), of_stage.chinese.hash());
                note(FingerprintPart::Prompts, stage.name(), texts);
            }
        }
        let parts = details.iter().map(|(part, of)| {
            let said = match part {
                Version | Weights => of.values().cloned().collect(),
                _ => digest_of(format!("{of:?}").as_bytes()),
            };
            (*part, said)
        });
        let parts: BTreeMap<FingerprintPart, String> = parts.collect();
        let digest = digest_of(format!("{parts:?}").as_bytes());
        Self { fingerprint: Fingerprint { digest, parts }, details }
    }
}

/// Returns the files and folders that a configuration names, each with its key. Leaves out those of
/// language models: their answers may be recorded ones while the files are gone.
fn files_of(config: &Config) -> Vec<(FingerprintPart, String, PathBuf)> {
    let Config { models, gate, consistency, integration, sources, teaching, .. } = config;
    let embedder = match &models.embedder {
        Embedder::Path(path) => Some(path),
        _ => None,
    };
    let unified = match &models.unified {
        UnifiedWeights::Path(path) => Some(path),
        UnifiedWeights::Shipped => None,
    };
    // The key holds a path, or the name of the weights that ship.
    let encoder = PathBuf::from(&gate.learned.model);
    let encoder = Some(&encoder).filter(|_| gate.learned.model != SHIPPED);
    let adapter = Some(&gate.adapter).filter(|_| gate.form == GateForm::Adapter);
    let of_models = [
        ("models.embedder", embedder),
        ("models.scorer", models.scorer.as_ref()),
        ("models.unified", unified),
        ("gate.learned.model", encoder),
        ("gate.adapter.model", adapter.and_then(|it| it.model.as_ref())),
        ("gate.adapter.directory", adapter.and_then(|it| it.directory.as_ref())),
        ("consistency.table", consistency.table.as_ref()),
        ("integration.weights", integration.weights.as_ref()),
    ];
    let of_models = of_models.map(|(key, path)| (FingerprintPart::Models, key.to_owned(), path));
    let tables =
        sources.iter().map(|(name, of)| (format!("sources.{name}.file"), of.file.as_ref()));
    let phrasings = ("teaching.phrasings".to_owned(), teaching.phrasings.as_ref());
    let of_knowledge =
        tables.chain([phrasings]).map(|(key, path)| (FingerprintPart::Knowledge, key, path));
    let named = of_models.into_iter().chain(of_knowledge);
    named.filter_map(|(part, key, path)| Some((part, key, path?.clone()))).collect()
}

/// The digest of a file, or of all files in a folder, with their names.
fn content(path: &Path) -> String {
    let mut digest = ContentDigest(Sha256::new());
    if let Err(error) = read(path, &mut digest) {
        tracing::warn!(%error, path = %path.display(), "the fingerprint has its path in place of its content");
        digest.0.update(path.as_os_str().as_encoded_bytes());
    }
    hexadecimal(digest.0)
}

/// Adds the written bytes to a digest.
struct ContentDigest(Sha256);

impl io::Write for ContentDigest {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn read(path: &Path, digest: &mut ContentDigest) -> io::Result<()> {
    if path.is_dir() {
        let entries = std::fs::read_dir(path)?.map(|entry| Ok(entry?.path()));
        let mut entries = entries.collect::<io::Result<Vec<_>>>()?;
        entries.sort();
        for entry in entries {
            digest.0.update(entry.file_name().unwrap_or_default().as_encoded_bytes());
            read(&entry, digest)?;
        }
        return Ok(());
    }
    let mut file = File::open(path)?;
    let bytes = file.metadata()?.len();
    digest.0.update(bytes.to_le_bytes());
    if bytes <= READ_WHOLE {
        io::copy(&mut file, digest)?;
    } else {
        io::copy(&mut (&file).take(READ_AT_ENDS), digest)?;
        file.seek(SeekFrom::Start(bytes - READ_AT_ENDS))?;
        io::copy(&mut file.take(READ_AT_ENDS), digest)?;
    }
    Ok(())
}

fn digest_of(bytes: &[u8]) -> String {
    hexadecimal(Sha256::new_with_prefix(bytes))
}

fn hexadecimal(digest: Sha256) -> String {
    digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use turnstream_operators::sources::SourceConfig;
    use turnstream_schemas::SourceKind;

    use super::*;

    /// Returns the parts of the fingerprint that a change affects.
    fn changed(
        change: impl FnOnce(&mut Config, &mut Prompts, &mut String),
    ) -> BTreeSet<&'static str> {
        let (mut config, mut prompts) = (Config::default(), Prompts::default());
        let mut graph = "1234-5".to_owned();
        let before = Digests::new(&config, &prompts, &graph).fingerprint;
        assert_eq!(before.digest.len(), 16);
        change(&mut config, &mut prompts, &mut graph);
        let after = Digests::new(&config, &prompts, &graph).fingerprint;
        let differing: BTreeSet<&str> = FingerprintPart::ALL
            .into_iter()
            .filter(|part| before.parts[part] != after.parts[part])
            .map(FingerprintPart::name)
            .collect();
        assert_eq!(before.digest != after.digest, !differing.is_empty());
        differing
    }

    #[test]
    fn what_changes_an_answer_changes_its_part_and_nothing_else() {
        assert_eq!(changed(|_, _, _| {}), [].into());
        assert_eq!(changed(|config, _, _| config.gate.threshold = 0.25), ["configuration"].into());
        let prompt = |prompts: &mut Prompts| {
            let nowhere = |_: &str| Err(io::ErrorKind::NotFound.into());
            prompts.add(Stage::Gate, None, nowhere).expect("it ships");
        };
        assert_eq!(changed(|_, prompts, _| prompt(prompts)), ["prompts"].into());
        assert_eq!(changed(|_, _, graph| graph.push('7')), ["knowledge"].into());
        let model = |config: &mut Config| config.models.embedder = "minilm".to_owned().into();
        assert_eq!(changed(|config, _, _| model(config)), ["models"].into());
        let faster = |config: &mut Config| {
            config.run.workers = 7;
            config.commit.interval_ms = 1;
            config.turns.max_timestamp_skew_seconds = 0;
            config.turns.max_in_flight = 1;
            config.models.threads = Some(1);
            config.log.kafka.group_id = "another".to_owned();
        };
        assert_eq!(changed(|config, _, _| faster(config)), [].into());
    }

    #[test]
    fn the_content_of_files_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("prices.jsonl");
        let of = |text: &str| {
            std::fs::write(&file, text).expect("written");
            let mut config = Config::default();
            let prices =
                SourceConfig { file: Some(file.clone()), ..SourceConfig::of(SourceKind::Table) };
            config.sources.insert("prices".to_owned(), prices);
            config.models.scorer = Some(folder.path().to_owned());
            Digests::new(&config, &Prompts::default(), "1234-5")
        };
        let (one, two) = (of("{\"price\": 1}"), of("{\"price\": 2}"));
        for (part, key) in [
            (FingerprintPart::Knowledge, "sources.prices.file"),
            (FingerprintPart::Models, "models.scorer"),
        ] {
            assert_ne!(one.fingerprint.parts[&part], two.fingerprint.parts[&part]);
            assert_ne!(one.details[&part][key], two.details[&part][key]);
        }
        let part = FingerprintPart::Configuration;
        assert_eq!(one.fingerprint.parts[&part], two.fingerprint.parts[&part]);
        assert_eq!(one, of("{\"price\": 1}"), "the same again");
    }

    #[test]
    fn shipped_parts_are_not_files() {
        assert_eq!(files_of(&Config::default()), [], "whatever lies in the working directory");
    }

    #[test]
    fn every_key_that_is_left_out_is_there() {
        let written = serde_json::to_value(Config::default()).expect("JSON");
        for name in LEFT_OUT {
            let pointer = format!("/{}", name.replace('.', "/"));
            assert!(written.pointer(&pointer).is_some(), "{name}");
        }
    }
}
