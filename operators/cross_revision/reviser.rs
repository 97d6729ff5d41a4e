//! The steps of cross revision. Each step repairs one class of error in the whole demand.

use std::collections::{BTreeMap, BTreeSet};

use turnstream_knowledge::language::Lexicon;
use turnstream_knowledge::linking::Mention;
use turnstream_knowledge::{ConceptId, View};
use turnstream_schemas::{
    Demand, ExplicitQuery, ImplicitQuery, Revision, RevisionKind, Score, Topic,
};

use super::CrossRevisionConfig;
use crate::flow::{TurnInFlight, Utterance};
use crate::salience::Said;

use RevisionKind::{Drop, Move, Prefer};

/// One turn under revision.
pub(super) struct Reviser<'a> {
    turn: &'a TurnInFlight,
    graph: View<'a>,
    config: &'a CrossRevisionConfig,
    said: Said,
    /// The latest mention of each concept.
    latest: BTreeMap<ConceptId, &'a Mention>,
}

/// A query or topic, of any of the four lists.
trait Demanded {
    fn concept(&self) -> &str;
    fn weight(&self) -> f64;
    fn set_weight(&mut self, weight: f64);
}

macro_rules! demanded {
    ($($type:ty),*) => {$(
        impl Demanded for $type {
            fn concept(&self) -> &str {
                &self.concept
            }

            fn weight(&self) -> f64 {
                self.weight.get()
            }

            fn set_weight(&mut self, weight: f64) {
                self.weight = Score::new(weight);
            }
        }
    )*};
}

demanded!(ExplicitQuery, ImplicitQuery, Topic);

impl<'a> Reviser<'a> {
    pub(super) fn new(
        turn: &'a TurnInFlight,
        graph: View<'a>,
        config: &'a CrossRevisionConfig,
    ) -> Self {
        let said = Said::read(&turn.context, &turn.mentions);
        let latest = turn.mentions.iter().map(|mention| (mention.concept, mention)).collect();
        Self { turn, graph, config, said, latest }
    }

    /// Repairs explicit queries whose lemma-normalised span is not their concept. Such a query gets
    /// the span where H does name the concept, or moves to the implicit queries if the graph joins
    /// it to a concept that H names, or is dropped.
    pub(super) fn explicit_queries_are_said(&self, demand: &mut Demand) {
        let explicit = std::mem::take(&mut demand.queries.explicit);
        let (stand, fallen): (Vec<_>, Vec<_>) =
            explicit.into_iter().partition(|query| self.is_span_of(query));
        demand.queries.explicit = stand;
        for query in fallen {
            if let Some(found) = self.said_query(&query.concept, query.weight) {
                tell(demand, Move, "explicit", &query.concept, "its words stand at another place");
                demand.queries.explicit.push(found);
                continue;
            }
            let because = self.joined_to(&query.concept, self.latest.keys().copied());
            if because.is_empty() {
                let why = "the dialogue does not name it and nothing it names leads there";
                tell(demand, Drop, "explicit", &query.concept, why);
            } else {
                let why = "the dialogue does not name it, but what it names leads there: implicit";
                tell(demand, Move, "explicit", &query.concept, why);
                let ExplicitQuery { concept, weight, .. } = query;
                demand.queries.implicit.push(ImplicitQuery {
                    concept,
                    because,
                    weight,
                    similarity: None,
                });
            }
        }
    }

    /// Moves implicit queries that H names to the explicit ones, unless they are there already, and
    /// drops those whose content lemmas H holds.
    pub(super) fn implicit_queries_are_not_said(&self, demand: &mut Demand) {
        for query in std::mem::take(&mut demand.queries.implicit) {
            let concept = query.concept.as_str();
            let known = demand.queries.explicit.iter().any(|other| other.concept == concept);
            if let Some(said) = self.said_query(concept, query.weight) {
                if known {
                    let why = "the dialogue names it, and it is an explicit query already";
                    tell(demand, Drop, "implicit", concept, why);
                } else {
                    tell(demand, Move, "implicit", concept, "the dialogue names it: explicit");
                    demand.queries.explicit.push(said);
                }
            } else if self.said.share(concept) >= 1.0 {
                tell(demand, Drop, "implicit", concept, "the dialogue holds all its words");
            } else {
                demand.queries.implicit.push(query);
            }
        }
    }

    /// Drops maintained topics that none of the latest utterances names. Those that H does not name
    /// at all become extended topics.
    pub(super) fn maintained_topics_go_on(&self, demand: &mut Demand) {
        for topic in std::mem::take(&mut demand.topics.maintained) {
            let concept = topic.concept.as_str();
            match self.utterances_since(concept) {
                Some(since) if since < self.config.latest_utterances => {
                    demand.topics.maintained.push(topic);
                }
                Some(since) => {
                    let why = format!("finished: last named {since} utterances ago");
                    tell(demand, Drop, "maintained", concept, &why);
                }
                None => {
                    let why = "the dialogue does not name it: extended";
                    tell(demand, Move, "maintained", concept, why);
                    demand.topics.extended.push(topic);
                }
            }
        }
    }

    /// Drops extended topics that H names, or that merely reword H. Those that one of the latest
    /// utterances names become maintained topics.
    pub(super) fn extended_topics_are_new(&self, demand: &mut Demand) {
        for topic in std::mem::take(&mut demand.topics.extended) {
            let concept = topic.concept.as_str();
            let known = demand.topics.maintained.iter().any(|other| other.concept == concept);
            match self.utterances_since(concept) {
                Some(since) if since < self.config.latest_utterances && !known => {
                    tell(demand, Move, "extended", concept, "the dialogue is at it: maintained");
                    let Topic { concept, weight, .. } = topic;
                    let because = Vec::new();
                    demand.topics.maintained.push(Topic { concept, weight, because });
                }
                Some(_) => tell(demand, Drop, "extended", concept, "the dialogue names it already"),
                None if self.said.share(concept) >= self.config.reword_share => {
                    tell(demand, Drop, "extended", concept, "it only rewords the dialogue");
                }
                None => demand.topics.extended.push(topic),
            }
        }
    }

    /// Drops repeats of a concept within a list.
    pub(super) fn lists_hold_no_concept_twice(&self, demand: &mut Demand) {
        let Demand { queries, topics, revisions, .. } = demand;
        keep_first(&mut queries.explicit, "explicit", revisions);
        keep_first(&mut queries.implicit, "implicit", revisions);
        keep_first(&mut topics.maintained, "maintained", revisions);
        keep_first(&mut topics.extended, "extended", revisions);
    }

    /// Drops explicit queries and maintained topics about which the graph has no fact, since it
    /// could not answer. Then drops implicit queries and extended topics that no fact, unless
    /// denied, joins to one of those: they leave the subject. If there are none of those, the
    /// queries found by meaning are the subject.
    pub(super) fn demands_connect(&self, demand: &mut Demand) {
        let Demand { queries, topics, revisions, .. } = demand;
        let known = |concept: &str| {
            let found = self.graph.find(concept);
            found.is_some_and(|concept| self.graph.degree(concept) > 0)
        };
        let nothing = "the graph has no fact about it";
        retain(&mut queries.explicit, "explicit", nothing, revisions, known);
        retain(&mut topics.maintained, "maintained", nothing, revisions, known);
        let anchors: BTreeSet<ConceptId> = queries
            .explicit
            .iter()
            .map(|query| query.concept.as_str())
            .chain(topics.maintained.iter().map(|topic| topic.concept.as_str()))
            .filter_map(|concept| self.graph.find(concept))
            .collect();
        let found = queries.implicit.iter().filter(|query| query.similarity.is_some());
        let subject: BTreeSet<String> =
            found.filter(|_| anchors.is_empty()).map(|query| query.concept.clone()).collect();
        let joined = |concept: &str| {
            subject.contains(concept)
                || !self.joined_to(concept, anchors.iter().copied()).is_empty()
        };
        let adrift = "no fact joins it to what the dialogue is about";
        retain(&mut queries.implicit, "implicit", adrift, revisions, joined);
        retain(&mut topics.extended, "extended", adrift, revisions, joined);
    }

    /// Lifts the weight of queries and topics that meet in a fact that is not denied, and sorts
    /// each list by falling weight, ties by text.
    pub(super) fn meetings_go_first(&self, demand: &mut Demand) {
        let queries = self.found(demand.query_concepts());
        let topics = self.found(demand.topic_concepts());
        let mut met = BTreeMap::<String, String>::new();
        for (query_text, query) in &queries {
            for (topic_text, topic) in &topics {
                if query != topic
                    && let Some(relation) = self.relation_between(*query, *topic)
                {
                    let meet = |other: &str| format!("it meets {other} in a fact ({relation})");
                    met.entry(query_text.clone()).or_insert_with(|| meet(topic_text));
                    met.entry(topic_text.clone()).or_insert_with(|| meet(query_text));
                }
            }
        }
        let lift = self.config.meeting_lift;
        let Demand { queries, topics, revisions, .. } = demand;
        prefer(&mut queries.explicit, "explicit", (&met, lift), revisions);
        prefer(&mut queries.implicit, "implicit", (&met, lift), revisions);
        prefer(&mut topics.maintained, "maintained", (&met, lift), revisions);
        prefer(&mut topics.extended, "extended", (&met, lift), revisions);
    }

    /// Cuts each list to its `max_per_list` heaviest concepts.
    pub(super) fn lists_are_bounded(&self, demand: &mut Demand) {
        let most = self.config.max_per_list as usize;
        let Demand { queries, topics, revisions, .. } = demand;
        cut(&mut queries.explicit, "explicit", most, revisions);
        cut(&mut queries.implicit, "implicit", most, revisions);
        cut(&mut topics.maintained, "maintained", most, revisions);
        cut(&mut topics.extended, "extended", most, revisions);
    }

    /// Whether the lemmas of a query's span are those of its concept, or the search found the concept
    /// at that span.
    fn is_span_of(&self, query: &ExplicitQuery) -> bool {
        let said_by = |utterance: &&Utterance| utterance.turn_id == query.turn;
        let mut utterances = self.turn.context.dialogue.iter().filter(said_by);
        let concept = self.graph.find(&query.concept);
        let searched = |mention: &Mention| {
            !mention.via.is_exact()
                && Some(mention.concept) == concept
                && mention.span == query.span
        };
        if self.turn.mentions.iter().any(searched) {
            return true;
        }
        let language = concept.and_then(|id| Lexicon::for_language(self.graph.language(id)));
        let lexicon = language.unwrap_or_else(|| Lexicon::of_text(&query.concept));
        let key = lexicon.key(&query.concept);
        utterances.any(|utterance| {
            query.span.of(&utterance.text).is_some_and(|span| lexicon.key(span) == key)
        })
    }

    /// Returns the explicit query for a concept at its latest mention; `None` if H does not name
    /// it.
    fn said_query(&self, concept: &str, weight: Score) -> Option<ExplicitQuery> {
        let mention = self.latest.get(&self.graph.find(concept)?)?;
        let utterance = self.turn.context.dialogue.get(mention.utterance as usize)?;
        Some(ExplicitQuery {
            concept: concept.to_owned(),
            turn: utterance.turn_id.clone(),
            span: mention.span,
            weight,
            via: mention.via,
            similarity: (!mention.via.is_exact())
                .then(|| Score::new(f64::from(mention.similarity))),
        })
    }

    /// Returns how many utterances ago a concept was last named; `None` if H does not name it.
    fn utterances_since(&self, concept: &str) -> Option<u32> {
        let mention = self.latest.get(&self.graph.find(concept)?)?;
        Some((self.turn.context.dialogue.len() as u32 - 1).saturating_sub(mention.utterance))
    }

    /// Returns those of `others` that a fact joins to the concept, in either direction and without
    /// denying it.
    fn joined_to(&self, concept: &str, others: impl Iterator<Item = ConceptId>) -> Vec<String> {
        let Some(concept) = self.graph.find(concept) else { return Vec::new() };
        let mut joined: Vec<String> = others
            .filter(|other| *other != concept && self.relation_between(*other, concept).is_some())
            .map(|other| self.graph.concept(other).to_owned())
            .collect();
        joined.sort_unstable();
        joined
    }

    /// Returns the name of a relation between two concepts, in either direction, from a fact that
    /// is not denied.
    fn relation_between(&self, one: ConceptId, other: ConceptId) -> Option<&'a str> {
        let there = self.graph.facts_between(one, other);
        let back = self.graph.facts_between(other, one);
        let fact = there.chain(back).find(|fact| !fact.negated)?;
        Some(self.graph.relation(fact.relation).name)
    }

    /// Maps each of these texts to its concept, where the graph has it.
    fn found<'d>(&self, concepts: impl Iterator<Item = &'d str>) -> BTreeMap<String, ConceptId> {
        concepts.filter_map(|text| Some((text.to_owned(), self.graph.find(text)?))).collect()
    }
}

fn revision(kind: RevisionKind, list: &str, concept: &str, why: &str) -> Revision {
    Revision { kind, what: format!("{list}: {concept}"), why: why.to_owned() }
}

fn tell(demand: &mut Demand, kind: RevisionKind, list: &str, concept: &str, why: &str) {
    demand.revisions.push(revision(kind, list, concept, why));
}

/// Keeps the concepts that pass, and records why the others were dropped.
fn retain<T: Demanded>(
    list: &mut Vec<T>,
    name: &str,
    why: &str,
    revisions: &mut Vec<Revision>,
    passes: impl Fn(&str) -> bool,
) {
    list.retain(|demanded| {
        let stays = passes(demanded.concept());
        if !stays {
            revisions.push(revision(Drop, name, demanded.concept(), why));
        }
        stays
    });
}

fn keep_first<T: Demanded>(list: &mut Vec<T>, name: &str, revisions: &mut Vec<Revision>) {
    let mut seen = BTreeSet::new();
    list.retain(|demanded| {
        let first = seen.insert(demanded.concept().to_owned());
        if !first {
            revisions.push(revision(Drop, name, demanded.concept(), "it stands there already"));
        }
        first
    });
}

/// Lifts the weights of the concepts that met, sorts the list, and records which concepts rose.
fn prefer<T: Demanded>(
    list: &mut [T],
    name: &str,
    (met, lift): (&BTreeMap<String, String>, f64),
    revisions: &mut Vec<Revision>,
) {
    let by_weight =
        |a: &T, b: &T| b.weight().total_cmp(&a.weight()).then_with(|| a.concept().cmp(b.concept()));
    list.sort_by(by_weight);
    let before: Vec<String> = list.iter().map(|demanded| demanded.concept().to_owned()).collect();
    for demanded in list.iter_mut().filter(|demanded| met.contains_key(demanded.concept())) {
        demanded.set_weight(demanded.weight() + (1.0 - demanded.weight()) * lift);
    }
    list.sort_by(by_weight);
    for (rank, demanded) in list.iter().enumerate() {
        let rose = !before[..=rank].iter().any(|concept| concept == demanded.concept());
        if let Some(why) = met.get(demanded.concept()).filter(|_| rose) {
            revisions.push(revision(Prefer, name, demanded.concept(), why));
        }
    }
}

fn cut<T: Demanded>(list: &mut Vec<T>, name: &str, most: usize, revisions: &mut Vec<Revision>) {
    for demanded in list.drain(most.min(list.len())..) {
        let why = "the list is full of heavier ones";
        revisions.push(revision(Drop, name, demanded.concept(), why));
    }
}
