//! Checks the invariants of every run of the engine, whatever the turns, over turns that went in
//! and responses that came out. Written without the code that they check: only the records, the
//! published schemas and the lexicon are used.
//!
//! Each check panics with the response it found wrong, and returns how many things it checked, so
//! that a caller can insist that there was something to check.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use turnstream_knowledge::language::Lexicon;
use turnstream_schemas::{EvidenceSet, FactStatement, Response, Turn, published};

/// Checks that inputs = responses + recorded + dead letters, in the counts that `--json` prints
/// last.
pub(crate) fn counts_are_conserved(counts: &Value) -> u64 {
    let count =
        |key: &str| counts[key].as_u64().unwrap_or_else(|| panic!("no count `{key}` in {counts}"));
    let ended = count("responses") + count("recorded") + count("dead_letters");
    assert_eq!(count("inputs"), ended, "{counts}");
    ended
}

/// Checks that every response is valid under the published schema.
pub(crate) fn responses_keep_the_schema(responses: &[Value]) -> usize {
    let schema = published::find("response").expect("the schema of responses is published");
    let schema: Value = serde_json::from_str(&schema.text()).expect("a schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema is a schema");
    for response in responses {
        let flaws: Vec<String> = validator
            .iter_errors(response)
            .map(|flaw| format!("{} at {}", flaw, flaw.instance_path()))
            .collect();
        assert!(flaws.is_empty(), "{flaws:?}\n{response}");
    }
    responses.len()
}

/// Checks that every selected fact has its head or its tail in E^Q ∪ E^T, and that a foreseen one
/// joins the two.
pub(crate) fn selected_facts_are_demanded(responses: &[Response]) -> usize {
    let mut checked = 0;
    for response in responses {
        let queries: BTreeSet<&str> = response.demand.query_concepts().collect();
        let topics: BTreeSet<&str> = response.demand.topic_concepts().collect();
        for evidence in response.evidence.iter().filter(|evidence| evidence.selected) {
            let Some(fact) = &evidence.fact else { continue };
            let (head, tail) = (fact.head.as_str(), fact.tail.as_str());
            let in_either =
                [head, tail].iter().any(|end| queries.contains(end) || topics.contains(end));
            assert!(in_either, "{}: {} is not demanded", response.response_id, evidence.id);
            let joins = queries.contains(head) && topics.contains(tail)
                || topics.contains(head) && queries.contains(tail);
            let foreseen = evidence.set == Some(EvidenceSet::Foreseen);
            assert_eq!(foreseen, joins, "{}: the set of {}", response.response_id, evidence.id);
            checked += 1;
        }
    }
    checked
}

/// Checks that every explicit query is, lemma by lemma, the span it names of the turn it names, and
/// that one found by search says how, and resembles its span.
pub(crate) fn explicit_queries_are_their_spans(turns: &[Turn], responses: &[Response]) -> usize {
    let said = utterances(turns, responses);
    let mut checked = 0;
    for response in responses {
        for query in &response.demand.queries.explicit {
            let at = (response.conversation_id.as_str(), query.turn.as_str());
            let utterances =
                said.get(&at).unwrap_or_else(|| panic!("{at:?} said nothing, yet is named"));
            // A turn id may be used again if the first was not answered; one of the turns must
            // match.
            let spans: Vec<&str> =
                utterances.iter().filter_map(|text| query.span.of(text)).collect();
            let lexicon = Lexicon::of_text(&query.concept);
            let key = lexicon.key(&query.concept);
            let fits = |span: &&str| match query.similarity {
                None => query.via.is_exact() && lexicon.key(span) == key,
                Some(similarity) => {
                    let alike = similarity.get() > 0.0 && similarity.get() <= 1.0;
                    !query.via.is_exact() && alike && lexicon.key(span) != key
                }
            };
            assert!(
                spans.iter().any(fits),
                "{}: the query `{}` names {spans:?} in {at:?}",
                response.response_id,
                query.concept
            );
            checked += 1;
        }
    }
    checked
}

/// Returns the words of every turn and response, by conversation and turn id.
fn utterances<'a>(
    turns: &'a [Turn],
    responses: &'a [Response],
) -> BTreeMap<(&'a str, &'a str), Vec<&'a str>> {
    let mut said: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for turn in turns {
        let Some(id) = &turn.turn_id else { continue };
        let at = (turn.conversation_id.as_str(), id.as_str());
        said.entry(at).or_default().push(&turn.text);
    }
    for response in responses {
        let at = (response.conversation_id.as_str(), response.response_id.as_str());
        said.entry(at).or_default().push(&response.text);
    }
    said
}

/// Checks that no selected fact that is denied is spoken as one that holds: a sentence with the
/// words of its head and of its tail has a negation. Returns the number of denied facts among the
/// selected.
pub(crate) fn denied_facts_are_spoken_as_denied(responses: &[Response]) -> usize {
    let mut checked = 0;
    for response in responses {
        let facts = response.evidence.iter().filter(|evidence| evidence.selected);
        let facts: Vec<&FactStatement> =
            facts.filter_map(|evidence| evidence.fact.as_ref()).collect();
        for denied in facts.iter().filter(|fact| fact.negated) {
            // Another fact that holds may have the same words: "aqua is a blue-white color".
            let affirmed = facts
                .iter()
                .any(|fact| !fact.negated && words_of(denied).is_subset(&words_of(fact)));
            assert!(
                affirmed || !is_affirmed(denied, &response.text),
                "{}: {} {} {} does not hold, yet it is said: {}",
                response.response_id,
                denied.head,
                denied.relation,
                denied.tail,
                response.text
            );
            checked += 1;
        }
    }
    checked
}

/// Whether one sentence has all words of a fact and no negation.
pub(crate) fn is_affirmed(fact: &FactStatement, text: &str) -> bool {
    let wanted = words_of(fact);
    text.split_inclusive(['.', '!', '?', ';']).any(|sentence| {
        let lemmas = lemmas(sentence);
        wanted.is_subset(&lemmas) && !is_negative(sentence)
    })
}

fn words_of(fact: &FactStatement) -> BTreeSet<String> {
    let mut words = lemmas(&fact.head);
    words.extend(lemmas(&fact.tail));
    words
}

fn lemmas(text: &str) -> BTreeSet<String> {
    let words = Lexicon::of_text(text).words(text);
    words.into_iter().map(|word| word.lemma.into_owned()).collect()
}

fn is_negative(sentence: &str) -> bool {
    Lexicon::english().words(sentence).iter().any(|word| {
        let negations = ["not", "no", "never", "cannot", "nor", "neither", "without", "nothing"];
        word.lower.ends_with("n't") || negations.contains(&&*word.lower)
    })
}

#[test]
fn an_affirmed_denial_is_found() {
    let denied = FactStatement {
        head: "dog".to_owned(),
        relation: "Desires".to_owned(),
        tail: "a bath".to_owned(),
        weight: 1.0,
        negated: true,
        ..FactStatement::default()
    };
    assert!(is_affirmed(&denied, "I see. Dogs want a bath."));
    assert!(!is_affirmed(&denied, "Dogs do not want a bath."));
    assert!(!is_affirmed(&denied, "A dog doesn't want a bath, of course."));
    assert!(!is_affirmed(&denied, "Dogs want a walk. A bath is warm."));
}
