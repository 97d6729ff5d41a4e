//! Chooses the judges of whether a turn needs knowledge: a trained encoder, rules, or each for its own
//! sources.
//!
//! Each kind of knowledge has its own definition of need. The encoder was trained on the definitions
//! for documents and for rows. No data set that it may learn from labels the need of common knowledge;
//! that is what the rules are for. So each source that a turn calls for brings its judge, and the gate
//! opens if any of them sees a need.

use std::collections::BTreeMap;

use turnstream_ports::model::gate::GateScores;
use turnstream_schemas::{GateDecision, Score, SourceKind};

use super::GateConfig;
use super::GateForm;
use crate::flow::TurnInFlight;
use crate::source_planning;
use crate::sources::Sources;

/// The name of the rules' score in a decision, beside those of the encoder's definitions.
const RULES: &str = "rules";

/// The judges that the gate asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judges {
    encoder: bool,
    rules: bool,
    /// The encoder's definitions that count; if empty, all of them.
    definitions: Vec<String>,
}

impl Judges {
    /// Chooses the judges of a form, for all configured sources.
    pub fn new(config: &GateConfig, sources: &Sources) -> Self {
        Self::of_kinds(config, sources.iter().map(|source| source.config.kind))
    }

    /// Chooses the judges for the sources that a turn calls for. Every turn calls for a source
    /// without cues.
    pub(super) fn of_turn(config: &GateConfig, turn: &TurnInFlight, sources: &Sources) -> Self {
        Self::of_kinds(config, source_planning::kinds(turn, sources))
    }

    fn of_kinds(config: &GateConfig, kinds: impl IntoIterator<Item = SourceKind>) -> Self {
        let given = config.learned.definitions.clone();
        match config.form {
            GateForm::Learned => Self { encoder: true, rules: false, definitions: given },
            GateForm::BySource => Self::by_source(given, kinds),
            _ => Self { encoder: false, rules: true, definitions: Vec::new() },
        }
    }

    fn by_source(given: Vec<String>, kinds: impl IntoIterator<Item = SourceKind>) -> Self {
        let (mut rules, mut of_kinds) = (false, Vec::new());
        for kind in kinds {
            match definition(kind) {
                Some(name) if of_kinds.iter().all(|known| known != name) => {
                    of_kinds.push(name.to_owned());
                }
                Some(_) => {}
                None => rules = true,
            }
        }
        let encoder = !of_kinds.is_empty();
        let definitions = if given.is_empty() { of_kinds } else { given };
        Self { encoder, rules: rules || !encoder, definitions }
    }

    /// Whether a trained encoder is among them.
    pub fn asks_encoder(&self) -> bool {
        self.encoder
    }

    /// Returns the names of the encoder's definitions that count; if empty, all of them.
    pub fn definitions(&self) -> &[String] {
        &self.definitions
    }

    /// Decides by the encoder's scores and, if the rules are asked, by theirs: the highest score counts
    /// against the threshold.
    pub(super) fn decide(
        &self,
        mut scores: GateScores,
        by_rules: impl FnOnce() -> GateDecision,
        threshold: f64,
    ) -> GateDecision {
        scores.retain(|name, _| self.definitions.is_empty() || self.definitions.contains(name));
        let mut features = BTreeMap::new();
        if self.rules {
            let decision = by_rules();
            features = decision.features;
            scores.insert(RULES.to_owned(), decision.score.get());
        }
        let score = scores.values().copied().fold(0.0, f64::max);
        features.extend(scores.into_iter().map(|(name, score)| (name, Score::new(score))));
        GateDecision {
            retrieve: score >= threshold,
            score: Score::new(score),
            threshold: Some(Score::new(threshold)),
            features,
        }
    }
}

/// Returns the definition of the shipped encoder that judges the need of a kind of source. `None`
/// if rules judge it.
fn definition(kind: SourceKind) -> Option<&'static str> {
    match kind {
        SourceKind::Documents => Some("dstc11"),
        SourceKind::Table => Some("sgd"),
        SourceKind::Graph | SourceKind::UserPersona | SourceKind::BotPersona => None,
    }
}
