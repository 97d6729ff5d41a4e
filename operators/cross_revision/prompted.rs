//! Prompted cross revision: a language model brings queries and topics together. (DCRAG eq 5, 6.) The
//! differences between the demand before and after are recorded as revisions, with the model's thought
//! as their reason.

use std::collections::BTreeMap;

use turnstream_knowledge::View;
use turnstream_schemas::{Demand, Queries, Revision, RevisionAnswer, RevisionKind, Topics};

use super::{CrossRevisionConfig, unrevised};
use crate::flow::TurnInFlight;
use crate::query_production::prompted::{Finder, first_of_each, implicit_queries};
use crate::salience::Recency;
use crate::topic_planning::prompted::in_order;

/// The reason to record if the model gave none.
const NO_REASON: &str = "so the language model";

/// Returns the demand after the revisions of a model's answer.
pub(super) fn revised(
    turn: &TurnInFlight,
    graph: View<'_>,
    (answer, thought): (&RevisionAnswer, &str),
    config: &CrossRevisionConfig,
) -> Demand {
    let before = unrevised(turn);
    let most = config.max_per_list as usize;
    let finder = Finder::new(turn, graph, &Recency::default());
    let list = |names: &[String]| {
        let concepts = first_of_each(names.iter().filter_map(|name| finder.concept(name)), most);
        concepts.into_iter().map(|id| graph.concept(id).to_owned()).collect::<Vec<_>>()
    };
    let (explicit, unnamed) = finder.explicit(&answer.explicit, most);
    let named: Vec<String> = explicit.iter().map(|query| query.concept.clone()).collect();
    let mut implicit = list(&answer.implicit);
    implicit.extend(unnamed.into_iter().map(|id| graph.concept(id).to_owned()));
    implicit.retain(|concept| !named.contains(concept));
    implicit.truncate(most);
    let maintained = list(&answer.maintained);
    let mut extended = list(&answer.extended);
    extended.retain(|concept| !maintained.contains(concept));

    let queries = Queries { explicit, implicit: implicit_queries(implicit, &named) };
    let extended = in_order(extended, &maintained);
    let topics = Topics { maintained: in_order(maintained, &[]), extended };
    let why = if thought.is_empty() { NO_REASON } else { thought };
    let revisions = revisions(&before, (&queries, &topics), why);
    Demand { queries, topics, revisions, ..before }
}

/// Returns a revision for each query or topic that was dropped, moved to another list, or added.
fn revisions(before: &Demand, after: (&Queries, &Topics), why: &str) -> Vec<Revision> {
    let was = lists(&before.queries, &before.topics);
    let is = lists(after.0, after.1);
    let mut revisions = Vec::new();
    let mut told = |kind, list: &str, concept: &str| {
        let what = format!("{list}: {concept}");
        revisions.push(Revision { kind, what, why: why.to_owned() });
    };
    for ((side, concept), list) in &was {
        match is.get(&(*side, *concept)) {
            None => told(RevisionKind::Drop, list, concept),
            Some(now) if now != list => told(RevisionKind::Move, now, concept),
            Some(_) => {}
        }
    }
    for ((side, concept), list) in &is {
        if !was.contains_key(&(*side, *concept)) {
            told(RevisionKind::Add, list, concept);
        }
    }
    revisions
}

/// Maps each side (queries or topics) and concept to the list that holds it.
fn lists<'d>(
    queries: &'d Queries,
    topics: &'d Topics,
) -> BTreeMap<(&'static str, &'d str), &'static str> {
    let explicit = queries.explicit.iter().map(|query| ("explicit", "queries", &query.concept));
    let implicit = queries.implicit.iter().map(|query| ("implicit", "queries", &query.concept));
    let maintained = topics.maintained.iter().map(|topic| ("maintained", "topics", &topic.concept));
    let extended = topics.extended.iter().map(|topic| ("extended", "topics", &topic.concept));
    let all = explicit.chain(implicit).chain(maintained).chain(extended);
    all.map(|(list, side, concept)| ((side, &**concept), list)).collect()
}
