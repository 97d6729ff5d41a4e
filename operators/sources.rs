//! Defines the sources of knowledge that a turn can ask: their names, their content, and their
//! order. (UniMS-RAG, K_1 to K_n.)
//!
//! [`mod@crate::source_planning`] chooses among them, and the retrieval operators ask them in the order
//! of the plan. A source that depends on another is asked after it and searched for that one's evidence:
//! documents for a persona's sentence, or a persona for a passage that it fits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_schemas::{Plan, SourceKind, SourceName, Turn};

/// `[sources.NAME]`: a source that turns can ask. Plans and evidence refer to it by NAME.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceConfig {
    /// What it holds: `graph`, `table`, `user_persona`, `bot_persona` or `documents`. There can be only
    /// one graph and one set of documents.
    pub kind: SourceKind,
    /// What it knows, in one sentence, for the prompted form of source planning.
    #[serde(default)]
    pub description: String,
    /// The names of the sources that are asked before it. Their evidence becomes part of its query, and
    /// it is not asked if one of them is not in the plan. A graph depends on nothing.
    #[serde(default)]
    pub depends_on: Vec<String>,
    /// Words that call for it: the lexical form of source planning plans it if the current utterance
    /// has one of them. If empty, every turn that passed the gate calls for it.
    #[serde(default)]
    pub cues: Vec<String>,
    /// The sentences of a persona. If empty, the persona has the sentences that the turn brings; only
    /// one source can use those.
    #[serde(default)]
    pub sentences: Vec<String>,
    /// For a graph: whether responses may say its facts. By default, beside documents or tables
    /// they say none, since common knowledge is no answer from a company; without them, where no
    /// language model words the response, they say a fact only to a user who asks for it. With
    /// `true` they may say every selected fact, with `false` none.
    #[serde(default)]
    pub speak: Option<bool>,
    /// The rows of a table: a file with one JSON object per line, values by column, or a CSV
    /// file (`.csv`) whose first line names the columns. A relative path
    /// starts at the working directory.
    #[serde(default)]
    pub file: Option<PathBuf>,
}

impl SourceConfig {
    /// Makes a source of a kind, with everything else empty.
    pub fn of(kind: SourceKind) -> Self {
        let (description, file, speak) = Default::default();
        let (depends_on, cues, sentences) = Default::default();
        Self { kind, description, depends_on, cues, sentences, speak, file }
    }
}

/// All sources, by name. If there are none, turns ask what the rest of the configuration provides:
/// `graph`, `persona` for the sentences that a turn brings about its user, and `documents`.
pub type SourcesConfig = BTreeMap<String, SourceConfig>;

/// A source that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its name in plans and evidence.
    pub name: SourceName,
    /// Its configuration.
    pub config: SourceConfig,
}

impl Source {
    /// Returns the sentences of a persona for a turn: its own, else those that the turn brings.
    pub fn sentences<'t>(&'t self, turn: &'t Turn) -> &'t [String] {
        if self.config.sentences.is_empty() { &turn.persona } else { &self.config.sentences }
    }

    /// Whether it could answer at all: a persona without a sentence cannot.
    pub fn can_answer(&self, turn: &Turn) -> bool {
        self.config.kind.describes().is_none()
            || self.sentences(turn).iter().any(|sentence| !sentence.trim().is_empty())
    }
}

/// Which facts of the graph may be said to users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpokenFacts {
    /// All that were selected.
    Selected,
    /// Those that the turn asks for.
    AskedFor,
    /// None.
    None,
}

/// The sources of a process, each after those that it depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources(Vec<Source>);

impl Sources {
    /// Sorts the sources into the order of asking: by kind (graph, tables, personas, documents), then by
    /// name, but each after those that it depends on.
    ///
    /// # Errors
    /// The sources contradict each other or their kind; the error names the source and the key.
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
                let reason =
                    format!("another source has the kind {}, which only one may have", kind.name());
                return Err(SourcesError::new(second, "kind", reason, "remove one of them"));
            }
        }
        let mut of_turns = config
            .iter()
            .filter(|(_, source)| source.kind.describes().is_some() && source.sentences.is_empty());
        if let Some((second, _)) = of_turns.nth(1) {
            let reason = "another persona already uses the sentences that come with turns";
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

    /// Returns the sources in the order of asking.
    pub fn iter(&self) -> impl Iterator<Item = &Source> {
        self.0.iter()
    }

    /// Returns the source with a name.
    pub fn of_name(&self, name: &str) -> Option<&Source> {
        self.0.iter().find(|source| source.name.as_str() == name)
    }

    /// Whether there are documents or tables.
    pub fn have_texts(&self) -> bool {
        let of_texts =
            |it: &Source| matches!(it.config.kind, SourceKind::Documents | SourceKind::Table);
        self.0.iter().any(of_texts)
    }

    /// Returns which facts of the graph may be said to users. By default, a language model that
    /// words the response may use all that were selected where there are no documents or tables.
    pub fn spoken_facts(&self, worded_by_model: bool) -> SpokenFacts {
        let graph = self.0.iter().find(|source| source.config.kind == SourceKind::Graph);
        match graph.and_then(|graph| graph.config.speak) {
            Some(true) => SpokenFacts::Selected,
            Some(false) => SpokenFacts::None,
            None if self.have_texts() => SpokenFacts::None,
            None if worded_by_model => SpokenFacts::Selected,
            None => SpokenFacts::AskedFor,
        }
    }

    /// Whether a plan asks the graph.
    pub fn have_facts(&self, plan: &Plan) -> bool {
        let mut planned = plan.0.iter().filter_map(|name| self.of_name(name.as_str()));
        planned.any(|source| source.config.kind == SourceKind::Graph)
    }

    /// Returns the chosen sources and all that they depend on, in the order of asking.
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

/// Why the configured sources cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sources.{name}.{key}: {reason}; {remedy}")]
pub struct SourcesError {
    /// The source.
    pub name: String,
    /// The key in its section.
    pub key: &'static str,
    /// The reason.
    pub reason: String,
    /// The remedy.
    pub remedy: &'static str,
}

impl SourcesError {
    fn new(name: &str, key: &'static str, reason: impl Into<String>, remedy: &'static str) -> Self {
        Self { name: name.to_owned(), key, reason: reason.into(), remedy }
    }
}

/// Checks one source by itself.
fn check(name: &str, source: &SourceConfig, all: &SourcesConfig) -> Result<(), SourcesError> {
    let wrong = |key, reason: &str, remedy| Err(SourcesError::new(name, key, reason, remedy));
    let kind = source.kind;
    if kind == SourceKind::Graph && !source.depends_on.is_empty() {
        return wrong("depends_on", "a graph cannot depend on other sources", "remove it");
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
            return wrong("file", "only a table has a file", "remove it, or change kind");
        }
    }
    if kind.describes().is_none() && !source.sentences.is_empty() {
        return wrong("sentences", "only a persona has sentences", "remove them, or change kind");
    }
    if kind != SourceKind::Graph && source.speak.is_some() {
        let reason = "only a graph has this setting";
        return wrong("speak", reason, "remove it, or change kind");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
