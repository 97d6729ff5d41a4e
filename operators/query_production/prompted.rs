//! Prompted query production: a language model names what has to be looked up. (DCRAG eq 1, 2.)
//!
//! A name becomes a query if the graph has the concept. The dialogue must name an explicit query;
//! otherwise the query goes behind the implicit ones (an error class of the paper, appendix D).
//! Weights fall with the model's order.

use turnstream_knowledge::{ConceptId, View};
use turnstream_schemas::{ExplicitQuery, ImplicitQuery, Queries, QueriesAnswer, Score, Span, Via};

use super::QueryProductionConfig;
use crate::flow::TurnInFlight;
use crate::prompted::material::concept;
use crate::salience::{Named, Recency, named_concepts};

/// Returns the queries from a model's answer.
pub(super) fn queries(
    turn: &TurnInFlight,
    graph: View<'_>,
    answer: &QueriesAnswer,
    config: &QueryProductionConfig,
) -> Queries {
    let finder = Finder::new(turn, graph, &config.recency);
    let (explicit, unnamed) = finder.explicit(&answer.explicit, config.max_explicit as usize);
    let named: Vec<String> = explicit.iter().map(|query| query.concept.clone()).collect();
    let implicit = answer.implicit.iter().filter_map(|name| finder.concept(name));
    let implicit = first_of_each(implicit.chain(unnamed), config.max_implicit as usize);
    let implicit = implicit.iter().map(|id| graph.concept(*id).to_owned());
    let implicit = implicit.filter(|concept| !named.contains(concept)).collect::<Vec<_>>();
    Queries { explicit, implicit: implicit_queries(implicit, &named) }
}

/// Makes implicit queries in order, each with all explicit queries as its reasons.
pub(crate) fn implicit_queries(concepts: Vec<String>, because: &[String]) -> Vec<ImplicitQuery> {
    let all = concepts.len();
    let query = |(at, concept)| ImplicitQuery {
        concept,
        because: because.to_vec(),
        weight: by_rank(at, all),
        similarity: None,
    };
    concepts.into_iter().enumerate().map(query).collect()
}

/// Returns the weight of a place in a list: 1 for the first, then falling evenly, above 0 for the
/// last.
pub(crate) fn by_rank(at: usize, all: usize) -> Score {
    Score::new(1.0 - at as f64 / all.max(1) as f64)
}

/// Returns the first `most` concepts, each once.
pub(crate) fn first_of_each(
    concepts: impl Iterator<Item = ConceptId>,
    most: usize,
) -> Vec<ConceptId> {
    let mut kept = Vec::new();
    for concept in concepts {
        if kept.len() < most && !kept.contains(&concept) {
            kept.push(concept);
        }
    }
    kept
}

/// Finds the names that a model gave in the graph and in the dialogue.
pub(crate) struct Finder<'t> {
    turn: &'t TurnInFlight,
    graph: View<'t>,
    named: Vec<Named<'t>>,
}

impl<'t> Finder<'t> {
    pub(crate) fn new(turn: &'t TurnInFlight, graph: View<'t>, recency: &Recency) -> Self {
        let named = named_concepts(&turn.context, &turn.mentions, recency);
        Self { turn, graph, named }
    }

    /// Returns the concept that a name means.
    pub(crate) fn concept(&self, name: &str) -> Option<ConceptId> {
        concept(self.graph, &self.turn.context, name)
    }

    /// Returns explicit queries in the order of the names, and the concepts that are no explicit
    /// queries because the dialogue does not name them; together at most `most`.
    pub(crate) fn explicit(
        &self,
        names: &[String],
        most: usize,
    ) -> (Vec<ExplicitQuery>, Vec<ConceptId>) {
        let concepts = first_of_each(names.iter().filter_map(|name| self.concept(name)), most);
        let found: Vec<_> =
            concepts.iter().map(|concept| (*concept, self.place(*concept))).collect();
        let all = found.iter().filter(|(_, place)| place.is_some()).count();
        let (mut queries, mut unnamed) = (Vec::new(), Vec::new());
        for (concept, place) in found {
            let Some(place) = place else {
                unnamed.push(concept);
                continue;
            };
            let weight = by_rank(queries.len(), all);
            let concept = self.graph.concept(concept).to_owned();
            queries.push(ExplicitQuery { concept, weight, ..place });
        }
        (queries, unnamed)
    }

    /// Returns where the dialogue names a concept: where it was linked, else the latest utterance
    /// that has its words.
    fn place(&self, concept: ConceptId) -> Option<ExplicitQuery> {
        let dialogue = &self.turn.context.dialogue;
        let query = |utterance: usize, span, via, similarity| {
            let (concept, weight) = (String::new(), Score::default());
            let turn = dialogue.get(utterance)?.turn_id.clone();
            Some(ExplicitQuery { concept, turn, span, weight, via, similarity })
        };
        if let Some(named) = self.named.iter().find(|named| named.concept() == concept) {
            let mention = named.mention;
            let similarity =
                (!mention.via.is_exact()).then(|| Score::new(f64::from(mention.similarity)));
            return query(mention.utterance as usize, mention.span, mention.via, similarity);
        }
        let words = self.graph.concept(concept);
        let (at, start) = dialogue
            .iter()
            .enumerate()
            .rev()
            .find_map(|(at, said)| Some((at, find_words(&said.text, words)?)))?;
        let span = Span { start: start as u32, end: (start + words.len()) as u32 };
        query(at, span, Via::Exact, None)
    }
}

/// Finds words in a text as whole words, in any case (ASCII).
fn find_words(text: &str, words: &str) -> Option<usize> {
    let ends_word = |byte: Option<&u8>| byte.is_none_or(|byte| !byte.is_ascii_alphanumeric());
    let (bytes, wanted) = (text.as_bytes(), words.as_bytes());
    let mut places = bytes.windows(wanted.len().max(1)).enumerate();
    let place = places.find(|(at, window)| {
        window.eq_ignore_ascii_case(wanted)
            && ends_word(at.checked_sub(1).and_then(|before| bytes.get(before)))
            && ends_word(bytes.get(at + wanted.len()))
    });
    place.map(|(at, _)| at).filter(|at| text.is_char_boundary(*at))
}
