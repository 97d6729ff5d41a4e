//! Tests sources that the configuration names, through the program: planned by the user's words,
//! asked in order, and spoken; and refused if they have no order.

use serde_json::{Value, json};
use turnstream_schemas::{Response, Speaker};

use crate::persona::{replayed, turn};
use crate::turnstream;

/// Writes a shop: its goods as a table that some words call for, its clerk, and general knowledge.
fn shop(folder: &std::path::Path) -> String {
    let goods = folder.join("goods.jsonl");
    let rows = [
        json!({ "item": "Oslo lamp", "unit_price": "$49.00", "in_stock": true }),
        json!({ "item": "Oslo chair", "unit_price": "$90.00", "in_stock": false }),
        json!({ "item": "Bergen lamp", "unit_price": "$35.50", "in_stock": true }),
    ];
    let rows: String = rows.iter().map(|row| format!("{row}\n")).collect();
    std::fs::write(&goods, rows).expect("written");
    format!(
        "[models]\nembedder = \"none\"\n[gate]\nform = \"always\"\n[generation]\nform = \"lexical\"\n\
         [sources.facts]\nkind = \"graph\"\nspeak = true\ncues = [\"used for\", \"what is\"]\n\
         [sources.goods]\nkind = \"table\"\nfile = {goods:?}\ncues = [\"price\", \"stock\"]\n\
         [sources.clerk]\nkind = \"bot_persona\"\nsentences = [\"I work at night.\", \"I sell lamps.\"]\n\
         cues = [\"you\", \"work\"]\n"
    )
}

fn plan(response: &Response) -> Vec<&str> {
    response.plan.0.iter().map(|source| source.as_str()).collect()
}

#[test]
fn what_is_said_plans_the_sources_and_rows_are_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let asked = [
        "What is the unit price of the Bergen lamp?",
        "Do you work at night, and is the Oslo chair in stock?",
        "What is an umbrella used for?",
        "Good afternoon to everybody over there.",
    ];
    let turns: Vec<Value> =
        asked.iter().enumerate().map(|(at, text)| turn(at, text, &[])).collect();
    let responses = replayed(folder.path(), &turns, &shop(folder.path()));
    let [price, both, facts, null] = &responses[..] else { panic!("{responses:?}") };

    assert_eq!(plan(price), ["goods"]);
    assert_eq!(price.text, "For Bergen lamp: unit price is $35.50.");
    let row = price.evidence[0].row.as_ref().expect("a row");
    assert_eq!((&*price.evidence[0].id.0, row.place), ("goods/3", 3));
    assert!(price.evidence[0].selected && price.demand.queries.explicit.is_empty());

    assert_eq!(plan(both), ["goods", "clerk"]);
    let clerk = both.evidence.iter().find_map(|found| found.persona.as_ref().map(|it| (found, it)));
    let (found, sentence) = clerk.expect("a sentence");
    assert_eq!((&*found.text, sentence.describes), ("I work at night.", Speaker::System));
    let said = "For Oslo chair: in stock is no. I am sorry, I do not know the answer to the rest of your question.";
    assert_eq!(both.text, said, "a persona is not said, and no page answers");

    assert_eq!(plan(facts), ["facts"]);
    assert!(facts.evidence.iter().any(|found| found.fact.is_some()), "{facts:?}");
    assert!(!facts.demand.queries.explicit.is_empty());

    assert!(plan(null).is_empty() && null.evidence.is_empty());
    assert!(null.gate.retrieve, "the gate's own decision");
}

#[test]
fn sources_that_cannot_be_ordered_are_refused_by_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.toml");
    let validate = |config: &str| {
        std::fs::write(&path, config).expect("written");
        let path = path.to_str().expect("UTF-8");
        let ended = turnstream(&["validate", "--config", path]).output().expect("started");
        (ended.status.success(), String::from_utf8_lossy(&ended.stderr).into_owned())
    };
    let (fits, said) = validate(&shop(folder.path()));
    assert!(fits, "{said}");
    let persona = "kind = \"bot_persona\"\nsentences = [\"I sail.\"]\n";
    for (config, says) in [
        (
            format!(
                "[sources.a]\n{persona}depends_on = [\"b\"]\n[sources.b]\n{persona}depends_on = [\"a\"]\n"
            ),
            "sources.a.depends_on",
        ),
        ("[sources.a]\nkind = \"table\"\n".to_owned(), "sources.a.file"),
        ("[sources.a]\nkind = \"documents\"\n".to_owned(), "documents.directory"),
        ("[sources.a]\nkind = \"weather\"\n".to_owned(), "sources.a.kind"),
        ("[source_planning]\nform = \"random\"\n".to_owned(), "source_planning.form"),
    ] {
        let (fits, said) = validate(&config);
        assert!(!fits && said.contains(says), "{says} is not in {said}");
    }
}
