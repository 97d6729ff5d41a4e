//! Queries by meaning: if the dialogue names no concept of the graph, neither literally nor by a
//! similar spelling, the concepts of the nearest facts become queries.
//!
//! They are implicit queries, because the dialogue does not name them. This is the last step of the
//! search in the whole graph, after the lemma index and the n-grams of
//! [`turnstream_knowledge::search`].

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_knowledge::small_talk::{small_talk_in, spoken_words};
use turnstream_knowledge::{ConceptId, Fact, View};
use turnstream_schemas::{ImplicitQuery, Score};

use super::QueryProductionConfig;
use crate::flow::TurnInFlight;
use crate::meaning::FactMeaning;
use crate::salience::{Said, word_count};

/// How the graph is searched by meaning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ByMeaningConfig {
    /// Whether to search by meaning.
    pub enabled: bool,
    /// Least cosine of a fact and the dialogue; 0..=1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_similarity: f64,
    /// How many of the nearest facts give queries; 1..=1024. Their concepts become implicit queries,
    /// `max_implicit` at most.
    #[schemars(range(min = 1, max = 1024))]
    pub max_facts: u32,
    /// Most facts that are searched; 1..=100000000. In a larger graph, only the strongest facts of each
    /// concept are searched, as many of each as fit. The search takes some 26 ms over the shipped
    /// knowledge (300000 facts), and only for a turn that names no concept.
    #[schemars(range(min = 1, max = 100_000_000))]
    pub max_searched_facts: u32,
}

impl Default for ByMeaningConfig {
    fn default() -> Self {
        Self { enabled: true, min_similarity: 0.6, max_facts: 8, max_searched_facts: 500_000 }
    }
}

/// Returns implicit queries by meaning, by falling likeness, ties by text; none if the turn names a
/// concept, is small talk, or has no vector.
pub(super) fn queries(
    turn: &TurnInFlight,
    graph: View<'_>,
    meaning: Option<&FactMeaning>,
    config: &QueryProductionConfig,
) -> Vec<ImplicitQuery> {
    let by_meaning = &config.by_meaning;
    let meaning = meaning.filter(|_| by_meaning.enabled && turn.mentions.is_empty());
    let meaning = meaning.filter(|_| !is_small_talk(turn.context.query()));
    let Some(dialogue) = meaning.and_then(|meaning| meaning.of(turn, graph)) else {
        return Vec::new();
    };
    let nearest = dialogue.nearest(by_meaning.max_facts as usize, by_meaning.min_similarity);
    about(turn, graph, &nearest, config)
}

/// Whether an utterance is nothing but small talk, such as a greeting, which has no subject.
fn is_small_talk(said: &str) -> bool {
    small_talk_in(said, &spoken_words(said)).share >= 1.0
}

/// Returns the ends of facts that are informative and that the dialogue does not name, as queries.
fn about(
    turn: &TurnInFlight,
    graph: View<'_>,
    facts: &[(f64, Fact)],
    config: &QueryProductionConfig,
) -> Vec<ImplicitQuery> {
    let said = Said::read(&turn.context, &turn.mentions);
    let mut likest = BTreeMap::<ConceptId, f64>::new();
    for (cosine, fact) in facts {
        for end in [fact.head, fact.tail] {
            let text = graph.concept(end);
            let wanted = f64::from(graph.informativeness(end)) >= config.min_informativeness
                && word_count(text) <= config.max_words
                && !said.names(end)
                && said.share(text) < 1.0;
            if wanted {
                let known = likest.entry(end).or_default();
                *known = known.max(*cosine);
            }
        }
    }
    let mut likest: Vec<(f64, &str)> =
        likest.into_iter().map(|(concept, cosine)| (cosine, graph.concept(concept))).collect();
    likest.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    likest.truncate(config.max_implicit as usize);
    let query = |(cosine, concept): (f64, &str)| ImplicitQuery {
        concept: concept.to_owned(),
        because: Vec::new(),
        weight: Score::new(cosine),
        similarity: Some(Score::new(cosine)),
    };
    likest.into_iter().map(query).collect()
}
