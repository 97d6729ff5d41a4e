//! The sources of knowledge that a turn can ask: what they are called, what they hold, and which
//! has to be asked before which. (UniMS-RAG, K_1 to K_n.)
//!
//! [`mod@crate::source_planning`] chooses among them, and the retrieval operators ask them in the order
//! of the plan. A source that depends on another is asked after it and searched for what that one gave:
//! documents behind a persona's sentence, the persona that a passage fits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_schemas::{Plan, SourceKind, SourceName, Turn};

/// `[sources.NAME]`: a source that turns can ask, by the name that plans and evidence have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceConfig {
    /// What it holds: `graph`, `table`, `user_persona`, `bot_persona` or `documents`. There is one graph,
    /// and there is one set of documents.
    pub kind: SourceKind,
    /// What it knows, in a sentence: the prompted form of source planning reads it.
    #[serde(default)]
    pub description: String,
    /// Sources that are asked before it, by name. It is searched for what they gave, and not asked
    /// where one of them is not in the plan. A graph depends on nothing.
    #[serde(default)]
    pub depends_on: Vec<String>,
    /// Words that call for it: the lexical form of source planning plans it where the current
    /// utterance has one of them. Where there are none, every turn that passed the gate calls for it.
    #[serde(default)]
    pub cues: Vec<String>,
    /// A persona's sentences. Where there are none, those that the turn brings; one source alone can
    /// be about these.
    #[serde(default)]
    pub sentences: Vec<String>,
    /// A table's rows: a file with one JSON object a line, values by column. Relative paths start
    /// at the working directory.
    #[serde(default)]
    pub file: Option<PathBuf>,
}

impl SourceConfig {
    /// A source of a kind, and nothing more.
    pub fn of(kind: SourceKind) -> Self {
        let (description, file) = Default::default();
        let (depends_on, cues, sentences) = Default::default();
        Self { kind, description, depends_on, cues, sentences, file }
    }
}

/// All of them, by name. Where there are none, those that the rest of the configuration has are
/// asked: `graph`, `persona` for the sentences that a turn brings about its user, and `documents`.
pub type SourcesConfig = BTreeMap<String, SourceConfig>;

/// A source that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its name in plans and evidence.
    pub name: SourceName,
    /// What it is.
    pub config: SourceConfig,
}

impl Source {
    /// A persona's sentences for a turn: its own, else those that the turn brings.
    pub fn sentences<'t>(&'t self, turn: &'t Turn) -> &'t [String] {
        if self.config.sentences.is_empty() { &turn.persona } else { &self.config.sentences }
    }

    /// Whether there is anything to ask it for: a persona without a sentence answers nothing.
    pub fn can_answer(&self, turn: &Turn) -> bool {
        self.config.kind.describes().is_none()
            || self.sentences(turn).iter().any(|sentence| !sentence.trim().is_empty())
    }
}

/// The sources of a process, each behind those that it depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources(Vec<Source>);

impl Sources {
    /// The sources in an order of asking: by kind (graph, tables, personas, documents), then by name,
    /// and none before one that it depends on.
    ///
    /// # Errors
    /// What makes them no order, by the source and its key.
    pub fn new(config: &SourcesConfig) -> Result<Self, SourcesError> {
        for (name, source) in config {
            check(name, source, config)?;
        }
        for kind in [SourceKind::Graph, SourceKind::Documents] {
            let of_kind: Vec<&String> = config
                .iter()
                .filter(|(_, source)| source.kind == kind)
                .map(|(name, _)| name)
                .collect();
            if let [_, second, ..] = of_kind[..] {
                let reason = format!("there is a source of kind {} already", kind.name());
                return Err(SourcesError::new(second, "kind", reason, "take one of them out"));
            }
        }
        let mut of_turns = config
            .iter()
            .filter(|(_, source)| source.kind.describes().is_some() && source.sentences.is_empty());
        if let Some((second, _)) = of_turns.nth(1) {
            let reason = "another persona is made of the sentences that turns bring already";
            let remedy = "give one of the two its own sentences";
            return Err(SourcesError::new(second, "sentences", reason, remedy));
        }
        let mut left: Vec<(&String, &SourceConfig)> = config.iter().collect();
        left.sort_by_key(|(name, source)| (source.kind, *name));
        let mut ordered = Self::default();
        while !left.is_empty() {
            let free = left.iter().position(|(_, source)| {
                source.depends_on.iter().all(|name| ordered.of_name(name).is_some())
            });
            let Some(free) = free else {
                let reason = "sources depend on each other in a circle";
                return Err(SourcesError::new(left[0].0, "depends_on", reason, "break the circle"));
            };
            let (name, source) = left.remove(free);
            ordered.0.push(Source { name: name.as_str().into(), config: source.clone() });
        }
        Ok(ordered)
    }

    /// In the order of asking.
    pub fn iter(&self) -> impl Iterator<Item = &Source> {
        self.0.iter()
    }

    /// The one with a name.
    pub fn of_name(&self, name: &str) -> Option<&Source> {
        self.0.iter().find(|source| source.name.as_str() == name)
    }

    /// Whether a plan asks a graph of facts.
    pub fn have_facts(&self, plan: &Plan) -> bool {
        let mut planned = plan.0.iter().filter_map(|name| self.of_name(name.as_str()));
        planned.any(|source| source.config.kind == SourceKind::Graph)
    }

    /// Those that a choice can be asked for, in the order of asking: each that is chosen and, before it,
    /// all that it depends on.
    pub fn with_dependencies(&self, chosen: &BTreeSet<&str>) -> Vec<&Source> {
        let mut needed: BTreeSet<&str> = chosen.clone();
        for source in self.0.iter().rev() {
            if needed.contains(source.name.as_str()) {
                needed.extend(source.config.depends_on.iter().map(String::as_str));
            }
        }
        self.0.iter().filter(|source| needed.contains(source.name.as_str())).collect()
    }
}

/// Why sources cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sources.{name}.{key}: {reason}; {remedy}")]
pub struct SourcesError {
    /// The source.
    pub name: String,
    /// The key of its table.
    pub key: &'static str,
    /// What is wrong with it.
    pub reason: String,
    /// What to do.
    pub remedy: &'static str,
}

impl SourcesError {
    fn new(name: &str, key: &'static str, reason: impl Into<String>, remedy: &'static str) -> Self {
        Self { name: name.to_owned(), key, reason: reason.into(), remedy }
    }
}

/// What one source alone can have wrong.
fn check(name: &str, source: &SourceConfig, all: &SourcesConfig) -> Result<(), SourcesError> {
    let wrong = |key, reason: &str, remedy| Err(SourcesError::new(name, key, reason, remedy));
    let kind = source.kind;
    if kind == SourceKind::Graph && !source.depends_on.is_empty() {
        return wrong(
            "depends_on",
            "a graph is asked for what the dialogue demands and depends on no source",
            "take it out",
        );
    }
    if source.depends_on.iter().any(|other| !all.contains_key(other)) {
        return wrong("depends_on", "no source has one of these names", "add it under [sources]");
    }
    match (kind, &source.file) {
        (SourceKind::Table, None) => {
            return wrong("file", "a table needs the file of its rows", "name it");
        }
        (SourceKind::Table, Some(_)) | (_, None) => {}
        (_, Some(_)) => {
            return wrong("file", "only a table has a file", "take it out, or change kind");
        }
    }
    if kind.describes().is_none() && !source.sentences.is_empty() {
        return wrong("sentences", "only a persona has sentences", "take them out, or change kind");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
