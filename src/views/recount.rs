//! The oracle of views: every row anew, from everything that is on the log. Written without
//! `operators/views.rs`; also the oracle of `tests/it/views.rs`.

use std::collections::{BTreeMap, BTreeSet};

use turnstream_operators::knowledge::Change;
use turnstream_schemas::{FactKey, Response, ViewKey, ViewName};

/// The rows over responses, each with its partition, and over changes, a later one of a key
/// replacing an earlier one.
pub(crate) fn recount(responses: &[(i32, Response)], changes: &[Change]) -> BTreeMap<ViewKey, u64> {
    let mut stands = BTreeMap::<&FactKey, bool>::new();
    for change in changes {
        stands.insert(&change.key, change.upsert.is_some());
    }
    let mut named = BTreeSet::new();
    let mut taken_back = BTreeSet::new();
    for (FactKey { source, head, relation, tail }, stands) in stands {
        if stands {
            named.extend([head.as_str(), tail.as_str()]);
        } else {
            taken_back.insert(format!("{source}/{relation}/{head}/{tail}"));
        }
    }
    let mut rows = BTreeMap::new();
    for (partition, response) in responses {
        let mut count = |view, key: &str| {
            let key = ViewKey { view, partition: *partition, key: key.to_owned() };
            *rows.entry(key).or_insert(0) += 1;
        };
        for evidence in response.evidence.iter().filter(|evidence| evidence.selected) {
            let Some(fact) = &evidence.fact else { continue };
            count(ViewName::FactsUsed, &evidence.id.0);
            count(ViewName::RelationsUsed, &fact.relation);
            if taken_back.contains(&evidence.id.0) {
                count(ViewName::WithdrawnFactsUsed, &evidence.id.0);
            }
        }
        let explicit = &response.demand.queries.explicit;
        let asked: BTreeSet<&str> = explicit.iter().map(|query| query.concept.as_str()).collect();
        asked.into_iter().for_each(|concept| count(ViewName::ConceptsAsked, concept));
        let missing: BTreeSet<&str> = response.demand.missing.iter().map(String::as_str).collect();
        for concept in missing.difference(&named) {
            count(ViewName::ConceptsMissing, concept);
        }
    }
    rows
}
