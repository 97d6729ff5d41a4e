//! CDP and CDF (DCRAG, section 4.1.3): how many responses connect to the history by a fact of the
//! graph, and how specific these facts are.
//!
//! Hard matching (Zhou et al. 2022): a fact tuple (head, relation, tail) connects history and
//! response if one end is a concept that the history names and the other end is a concept that the
//! response names, in either direction. Concepts are those that the engine links: the longest run
//! of lemmas, without stop words and uninformative hubs. Several sources of one tuple count once.
//! Denied facts count, since a response may deny as well.
//!
//! CDP is the share of responses with a tuple; CDF is the mean over all responses of the summed IDF
//! of their tuples. The paper does not define the documents of the IDF. Here a document is a turn
//! of the log, of either speaker. The IDF of a concept is ln((1 + N) ÷ (1 + n)) if n of the N turns
//! name it; that of a tuple is the mean of its two ends'.

use std::collections::{BTreeSet, HashMap};

use turnstream_knowledge::language::Lexicon;
use turnstream_knowledge::linking::{LinkingConfig, link};
use turnstream_knowledge::{ConceptId, RelationId, View};

use super::material::{Log, Place};

/// A fact without its source.
pub type Tuple = (ConceptId, RelationId, ConceptId);

/// The concepts that each turn of a log names, and the number of turns per concept.
pub struct Named {
    /// Concepts by conversation and turn.
    turns: Vec<Vec<BTreeSet<ConceptId>>>,
    frequencies: HashMap<ConceptId, u64>,
    documents: u64,
}

/// Returns the concepts that a text names.
fn concepts(graph: View<'_>, lexicon: &'static Lexicon, text: &str) -> BTreeSet<ConceptId> {
    let every = LinkingConfig { max_mentions: usize::MAX, ..LinkingConfig::default() };
    link(graph, [(lexicon, text)], &every).iter().map(|mention| mention.concept).collect()
}

impl Named {
    /// Links every turn of a log.
    pub fn new(graph: View<'_>, log: &Log) -> Self {
        let of_conversation = |said: &Vec<super::material::ConversationTurn>| {
            said.iter().map(|said| concepts(graph, said.lexicon, &said.text)).collect()
        };
        let turns: Vec<Vec<_>> = log.conversations().iter().map(of_conversation).collect();
        let mut frequencies = HashMap::new();
        let mut documents = 0;
        for named in turns.iter().flatten() {
            documents += 1;
            for concept in named {
                *frequencies.entry(*concept).or_default() += 1;
            }
        }
        Self { turns, frequencies, documents }
    }

    /// Returns the tuples that connect the history up to a place with a response.
    pub fn tuples(&self, graph: View<'_>, place: Place, response: &str) -> BTreeSet<Tuple> {
        let said = concepts(graph, Lexicon::of_text(response), response);
        let history = self.turns[place.conversation][..=place.turn].iter().flatten();
        let history: BTreeSet<ConceptId> = history.copied().collect();
        let mut tuples = BTreeSet::new();
        for one in &history {
            for other in said.iter().filter(|other| *other != one) {
                let both =
                    graph.facts_between(*one, *other).chain(graph.facts_between(*other, *one));
                tuples.extend(both.map(|fact| (fact.head, fact.relation, fact.tail)));
            }
        }
        tuples
    }

    /// Returns the IDF of a tuple, from 0.
    pub fn idf(&self, (head, _, tail): Tuple) -> f64 {
        (self.idf_of(head) + self.idf_of(tail)) / 2.0
    }

    fn idf_of(&self, concept: ConceptId) -> f64 {
        let with = self.frequencies.get(&concept).copied().unwrap_or_default();
        ((1 + self.documents) as f64 / (1 + with) as f64).ln()
    }
}

#[cfg(test)]
mod tests {
    use turnstream_knowledge::{Graph, ImportedFact};

    use super::super::tests::{log, near};
    use super::*;

    fn fact(head: &str, relation: &str, tail: &str, weight: f32, source: &str) -> ImportedFact {
        let source = source.to_owned();
        ImportedFact { source, ..ImportedFact::new(head, relation, tail, weight) }
    }

    #[test]
    fn tuples_join_the_history_to_the_response() {
        let graph = Graph::from_facts([
            fact("coffee", "RelatedTo", "cup", 1.0, "a"),
            fact("coffee", "RelatedTo", "cup", 1.0, "b"),
            fact("cup", "UsedFor", "coffee", 1.0, "a"),
            fact("coffee", "CapableOf", "sing", -1.0, "a"),
            fact("cup", "RelatedTo", "saucer", 1.0, "a"),
            fact("evening", "RelatedTo", "coffee", 1.0, "a"),
            fact("coffee", "RelatedTo", "coffee", 1.0, "a"),
        ]);
        let view = graph.view();
        let log = log(&[
            ("a", "user", "Two coffees, please."),
            ("a", "system", "In the evening?"),
            ("a", "user", "Yes."),
            ("b", "user", "The saucer!"),
        ]);
        let named = Named::new(view, &log);
        let tuples = |turn, text| {
            let place = Place { conversation: 0, turn };
            let found = named.tuples(view, place, text);
            let idf: f64 = found.iter().map(|tuple| named.idf(*tuple)).sum();
            (found.len(), idf)
        };
        // Cups and coffee are connected by two tuples, one of which has two sources. One of four
        // turns names coffee, and none names a cup.
        let (count, idf) = tuples(0, "The cups are clean.");
        assert_eq!(count, 2);
        near(idf, 2.0 * (f64::ln(5.0 / 2.0) + f64::ln(5.0)) / 2.0);
        assert_eq!(tuples(0, "It cannot sing.").0, 1, "a denied fact");
        assert_eq!(tuples(0, "Coffee is coffee.").0, 0, "a concept is not joined to itself");
        assert_eq!(tuples(0, "The saucer is clean.").0, 0, "the cup was not named");
        assert_eq!(tuples(0, "Coffee at this time?").0, 0, "nobody said evening yet");
        assert_eq!(tuples(2, "Coffee at this time?").0, 1);
        assert_eq!(tuples(2, "").0, 0);
    }
}
