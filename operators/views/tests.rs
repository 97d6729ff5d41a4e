use std::collections::BTreeSet;

use proptest::prelude::*;
use turnstream_knowledge::Upsert;
use turnstream_schemas::{
    Evidence, EvidenceSet, ExplicitQuery, FactStatement, Score, Span, TurnId,
};

use super::*;

const CONCEPTS: [&str; 5] = ["dog", "cat", "rain", "town", "unheard"];
const RELATIONS: [&str; 2] = ["IsA", "AtLocation"];

/// A fact by numbers: head, relation, tail.
type Statement = (usize, usize, usize);

fn key((head, relation, tail): Statement) -> FactKey {
    FactKey {
        source: "ours".to_owned(),
        head: CONCEPTS[head].to_owned(),
        relation: RELATIONS[relation].to_owned(),
        tail: CONCEPTS[tail].to_owned(),
    }
}

fn evidence(statement: Statement, selected: bool) -> Evidence {
    let FactKey { source, head, relation, tail } = key(statement);
    Evidence {
        id: evidence_id(&source, &relation, &head, &tail),
        source: source.as_str().into(),
        text: String::new(),
        set: Some(EvidenceSet::Foreseen),
        fact: Some(FactStatement { head, relation, tail, weight: 1.0, ..FactStatement::default() }),
        relevance: Score::new(0.5),
        document: None,
        persona: None,
        row: None,
        consistency: None,
        attention: None,
        selected,
    }
}

/// What one response asks for, and its evidence.
#[derive(Clone, Debug)]
struct AnsweredTurn {
    partition: i32,
    asked: Vec<usize>,
    missing: Vec<usize>,
    facts: Vec<(Statement, bool)>,
}

fn response(answered: &AnsweredTurn) -> Response {
    let fixture = include_str!("../../tests/fixtures/records/v1/response.json");
    let mut response: Response = serde_json::from_str(fixture).unwrap();
    let asked = |concept: &usize| ExplicitQuery {
        concept: CONCEPTS[*concept].to_owned(),
        turn: TurnId("t".to_owned()),
        span: Span { start: 0, end: 1 },
        weight: Score::new(1.0),
        via: turnstream_schemas::Via::Exact,
        similarity: None,
    };
    response.demand.queries.explicit = answered.asked.iter().map(asked).collect();
    let missing = answered.missing.iter().map(|concept| CONCEPTS[*concept].to_owned());
    response.demand.missing = missing.collect();
    let facts = answered.facts.iter().map(|(statement, selected)| evidence(*statement, *selected));
    response.evidence = facts.collect();
    response
}

#[derive(Clone, Debug)]
enum Happening {
    AnsweredTurn(AnsweredTurn),
    Changed(Statement, bool),
    StepCount,
}

fn happening() -> impl Strategy<Value = Happening> {
    let statement = || (0..5_usize, 0..2_usize, 0..5_usize);
    let answered = (
        0..2_i32,
        prop::collection::vec(0..5_usize, 0..4),
        prop::collection::vec(0..5_usize, 0..3),
        prop::collection::vec((statement(), any::<bool>()), 0..4),
    );
    prop_oneof![
        4 => answered.prop_map(|(partition, asked, missing, facts)| {
            Happening::AnsweredTurn(AnsweredTurn { partition, asked, missing, facts })
        }),
        3 => (statement(), any::<bool>()).prop_map(|(it, stands)| Happening::Changed(it, stands)),
        2 => Just(Happening::StepCount),
    ]
}

/// The oracle: computes every view from all events.
fn recompute(
    answered: &[AnsweredTurn],
    changed: &BTreeMap<Statement, bool>,
) -> BTreeMap<ViewKey, u64> {
    let mut rows = BTreeMap::new();
    let named: BTreeSet<usize> = changed
        .iter()
        .filter(|(_, stands)| **stands)
        .flat_map(|((head, _, tail), _)| [*head, *tail])
        .collect();
    for AnsweredTurn { partition, asked, missing, facts } in answered {
        let mut count = |view, key: String| {
            *rows.entry(ViewKey { view, partition: *partition, key }).or_insert(0) += 1;
        };
        count(ViewName::Actions, "answer".to_owned());
        for (statement, _) in facts.iter().filter(|(_, selected)| *selected) {
            let FactKey { source, head, relation, tail } = key(*statement);
            let id = evidence_id(&source, &relation, &head, &tail).0;
            count(ViewName::FactsUsed, id.clone());
            count(ViewName::RelationsUsed, relation);
            if changed.get(statement) == Some(&false) {
                count(ViewName::WithdrawnFactsUsed, id);
            }
        }
        for concept in asked.iter().collect::<BTreeSet<_>>() {
            count(ViewName::ConceptsAsked, CONCEPTS[*concept].to_owned());
        }
        for concept in missing.iter().collect::<BTreeSet<_>>().difference(&named.iter().collect()) {
            count(ViewName::ConceptsMissing, CONCEPTS[**concept].to_owned());
        }
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// After every step the rows equal those of the oracle, and a step returns only rows that changed.
    #[test]
    fn views_are_what_a_recount_gives(happenings in prop::collection::vec(happening(), 1..40)) {
        timely::execute_directly(move |worker| {
            let mut views = Views::install(worker);
            let (mut answered, mut changed) = (Vec::<AnsweredTurn>::new(), BTreeMap::new());
            let mut told = BTreeMap::<ViewKey, u64>::new();
            for happening in happenings.iter().chain([&Happening::StepCount]) {
                match happening {
                    Happening::AnsweredTurn(it) => {
                        views.insert(it.partition, &response(it));
                        answered.push(it.clone());
                    }
                    Happening::Changed(statement, stands) => {
                        let upsert = stands.then(|| Upsert::new(1.0, "en"));
                        views.learn(&Change { key: key(*statement), upsert });
                        changed.insert(*statement, *stands);
                    }
                    Happening::StepCount => {
                        for (key, count) in views.step(worker) {
                            let before = match count {
                                Some(count) => told.insert(key.clone(), count),
                                None => told.remove(&key),
                            };
                            assert_ne!(before, count, "{key:?} was told and had not changed");
                        }
                        assert_eq!(told, recompute(&answered, &changed));
                    }
                }
            }
        });
    }
}
