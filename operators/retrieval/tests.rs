use turnstream_ports::documents::{Chunk, FoundChunk, SearchDocuments, SearchError};
use turnstream_schemas::{Plan, Turn};

use super::*;
use crate::sources::{SourceConfig, Sources};
use crate::tables::{Row, Table, Tables};
use crate::testing::{graph, run_dataflow, scene, stage_context};

/// Documents that echo the query as a passage, so that a test sees what they were asked.
struct Echo;

impl SearchDocuments for Echo {
    fn source(&self) -> &str {
        "documents"
    }

    fn by_words(
        &self,
        text: &str,
        _: Option<&[u32]>,
        _: usize,
    ) -> Result<Vec<FoundChunk>, SearchError> {
        let chunk = text.len() as u32;
        Ok(vec![FoundChunk { chunk, score: 0.5 }])
    }

    fn dimensions(&self) -> Option<usize> {
        None
    }

    fn by_meaning(
        &self,
        _: &[f32],
        _: Option<&[u32]>,
        _: usize,
    ) -> Result<Vec<FoundChunk>, SearchError> {
        Ok(Vec::new())
    }

    fn named_in(&self, _: &str) -> Vec<u32> {
        Vec::new()
    }

    fn chunk(&self, number: u32) -> Result<Option<Chunk>, SearchError> {
        let (id, document) = (number.to_string(), "d".to_owned());
        Ok(Some(Chunk { id, document, title: String::new(), ordinal: 0, text: "said".into() }))
    }
}

fn sources(documents_depend: bool) -> Sources {
    let of = |name: &str, config: SourceConfig| (name.to_owned(), config);
    let depends_on = vec!["persona".to_owned(); usize::from(documents_depend)];
    let documents = SourceConfig { depends_on, ..SourceConfig::of(SourceKind::Documents) };
    let boats = SourceConfig {
        file: Some("boats.jsonl".into()),
        depends_on: vec!["persona".to_owned()],
        ..SourceConfig::of(SourceKind::Table)
    };
    let (persona, facts) = (SourceKind::UserPersona, SourceKind::Graph);
    let config = [
        of("documents", documents),
        of("boats", boats),
        of("persona", SourceConfig::of(persona)),
        of("facts", SourceConfig::of(facts)),
    ];
    Sources::new(&config.into()).expect("sources")
}

fn boats() -> Tables {
    let rows = ["Heron", "Plover"].map(|name| {
        let row = serde_json::json!({ "boat": name, "price": 40 });
        Row::of(row.as_object().expect("an object"))
    });
    [("boats".into(), Arc::new(Table::new(rows.into())))].into()
}

/// Runs retrieval over turns with these plans.
fn retrieved(plans: &[&[&str]], documents_depend: bool) -> Vec<TurnInFlight> {
    let turns: Vec<TurnInFlight> = plans
        .iter()
        .map(|plan| {
            let mut turn = scene(&["u: the boat price, sail?"], &graph("sail UsedFor boat 2"));
            let mut context = (*turn.context).clone();
            context.turn = Turn { persona: vec!["I sail the Plover.".to_owned()], ..context.turn };
            turn.context = Arc::new(context);
            turn.plan = Plan(plan.iter().map(|name| (*name).into()).collect());
            turn
        })
        .collect();
    let (mut out, faults) = run_dataflow(turns, move |turns| {
        let mut means = stage_context(&graph("sail UsedFor boat 2"));
        means.sources = Arc::new(sources(documents_depend));
        means.tables = Arc::new(boats());
        means.documents = Some(Arc::new(Echo));
        retrieval(turns, RetrievalConfig::default(), &means)
    });
    assert!(faults.is_empty(), "{faults:?}");
    out.sort_by_key(|turn| turn.plan.0.len());
    out
}

fn texts(found: &[turnstream_schemas::Evidence]) -> Vec<&str> {
    found.iter().map(|found| &*found.text).collect()
}

#[test]
fn each_source_of_a_plan_is_asked_once() {
    let out = retrieved(&[&["facts", "persona", "boats", "documents"], &[], &["documents"]], false);
    assert_eq!(out.len(), 3, "every turn comes out once");
    let [null, one, all] = &out[..] else { unreachable!() };
    assert_eq!((null.asked, one.asked, all.asked), (0, 1, 4));
    assert_eq!(null.candidates.iter().count(), 0);
    assert_eq!(one.candidates.iter().count(), 1);
    assert_eq!(texts(&all.candidates.persona), ["I sail the Plover."]);
    assert_eq!(all.candidates.passages.len(), 1);
}

#[test]
fn a_source_is_asked_for_what_the_one_before_it_gave() {
    let out = retrieved(&[&["persona", "boats"]], false);
    let rows = texts(&out[0].candidates.rows);
    assert_eq!(rows, ["boat = Plover, price = 40"], "the persona's boat alone");
    for (depends, asked) in
        [(false, "the boat price, sail?"), (true, "I sail the Plover. the boat price, sail?")]
    {
        let out = retrieved(&[&["persona", "documents"]], depends);
        let found = &out[0].candidates.passages[0];
        assert_eq!(found.id.0, format!("documents/{}", asked.len()), "{depends}");
    }
}

#[test]
fn a_source_that_nobody_knows_ends_the_plan() {
    let out = retrieved(&[&["persona", "weather", "documents"]], false);
    assert_eq!(out[0].asked, 1);
    assert_eq!(out[0].candidates.iter().count(), 1);
}
