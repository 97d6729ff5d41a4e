//! The own words of facts that the topic changes.

use super::super::super::worded;
use super::super::*;
use super::run;
use crate::ImportedFact;

/// A change of what the source says of the Bergen, as a record; without a value, a tombstone.
fn change(head: &str, value: Option<&str>) -> Change {
    let key = format!(r#"{{"source":"ours","head":"{head}","relation":"IsA","tail":"sofa"}}"#);
    Change::read(key.as_bytes(), value.map(str::as_bytes)).expect("a change")
}

/// What is said of the Bergen in a version; empty if nothing is.
fn said(knowledge: &Knowledge, version: &KnowledgeVersion) -> String {
    knowledge.at(version, |view| {
        let concept = view.find("contoso bergen");
        let facts = concept.into_iter().flat_map(|id| view.strongest_from(id, 9));
        facts.map(|fact| worded(view, &fact, &view.wording(&fact))).collect::<Vec<_>>().join("; ")
    })
}

#[test]
fn a_live_fact_has_its_words_until_it_is_changed_or_withdrawn() {
    run(vec![ImportedFact::new("lamp", "IsA", "thing", 1.0)], |mut following| {
        let steps = [
            (
                "Contoso Bergen",
                Some(r#"{"sentence":"The Bergen is soft."}"#),
                "The Bergen is soft.",
            ),
            ("contoso bergen", Some(r#"{"sentence":"It is a sofa!"}"#), "It is a sofa!"),
            ("Contoso Bergen", Some("{}"), "Contoso Bergen is a kind of sofa"),
            ("contoso bergen", Some("{}"), "contoso bergen is a kind of sofa"),
            ("CONTOSO Bergen", Some(r#"{"weight":-1}"#), "CONTOSO Bergen is not a kind of sofa"),
            ("contoso bergen", None, ""),
        ];
        let mut held = Vec::new();
        for (head, value, expected) in steps {
            held.push((following.learn(vec![change(head, value)]), expected));
        }
        for (version, expected) in &held {
            assert_eq!(said(&following.knowledge, version), *expected, "each keeps its own");
        }
        assert!(following.knowledge.now().0.reworded.is_empty());
        held.clear();
        following.end();
    });
}

#[test]
fn words_of_the_topic_precede_those_of_the_snapshot() {
    let known = ImportedFact {
        source: "ours".to_owned(),
        sentence: Some("The Bergen is soft.".to_owned()),
        ..ImportedFact::new("Contoso Bergen", "IsA", "sofa", 1.0)
    };
    run(vec![known], |mut following| {
        let same = r#"{"sentence":"The Bergen is soft."}"#;
        let counts = Arc::clone(&following.counts);
        for (head, value, expected, differing) in [
            ("contoso bergen", Some(same), "The Bergen is soft.", 0),
            ("contoso bergen", Some(r#"{"sentence":"It is new."}"#), "It is new.", 1),
            ("contoso bergen", Some("{}"), "Contoso Bergen is a kind of sofa", 1),
            ("CONTOSO Bergen", Some("{}"), "CONTOSO Bergen is a kind of sofa", 1),
            ("contoso bergen", None, "", 1),
            ("contoso bergen", Some(same), "The Bergen is soft.", 0),
        ] {
            let now = following.learn(vec![change(head, value)]);
            assert_eq!(said(&following.knowledge, &now), expected, "{head} {value:?}");
            assert_eq!(counts.differing.load(Ordering::Relaxed), differing, "{head} {value:?}");
        }
        assert!(following.knowledge.now().0.reworded.is_empty());
        following.end();
    });
}
