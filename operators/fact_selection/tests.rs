use proptest::prelude::*;
use turnstream_schemas::{EvidenceId, EvidenceSet, Score};

use super::*;
use crate::testing::document;

fn evidence(set: EvidenceSet, fact: &str, relevance: f64) -> Evidence {
    let parts: Vec<String> = fact.split_whitespace().map(|part| part.replace('_', " ")).collect();
    let [head, relation, tail] = &parts[..] else { panic!("not a fact: {fact}") };
    Evidence {
        id: EvidenceId(fact.to_owned()),
        source: "test".into(),
        text: fact.to_owned(),
        set: Some(set),
        fact: Some(FactStatement {
            head: head.clone(),
            relation: relation.clone(),
            tail: tail.clone(),
            weight: 1.0,
            negated: relation.starts_with("Not"),
            ..FactStatement::default()
        }),
        relevance: Score::new(relevance),
        document: None,
        persona: None,
        row: None,
        consistency: None,
        attention: None,
        selected: false,
    }
}

/// A sentence of a persona.
fn sentence(id: &str) -> Evidence {
    let (set, fact) = (None, None);
    let source = "persona".into();
    Evidence { set, fact, source, ..evidence(EvidenceSet::Foreseen, &format!("{id} IsA x"), 0.9) }
}

#[test]
fn a_persona_stands_behind_what_else_is_selected() {
    let unlikely = ("tea IsA drink", 0.1);
    let mut found = candidates(&[("coffee Causes insomnia", 0.5)], &[unlikely]);
    found.persona = vec![sentence("one"), sentence("two")];
    let config = FactSelectionConfig::default();
    for evidence in [select(&found, &config), most_relevant(&found, &config)] {
        let told: Vec<_> = evidence.iter().map(|it| (&*it.id.0, it.selected)).collect();
        assert_eq!(told[0], ("coffee Causes insomnia", true));
        let persona = told.iter().position(|one| *one == ("one IsA x", true)).expect("selected");
        assert_eq!((told.len(), told[persona + 1]), (4, ("two IsA x", true)));
        assert!(told[..persona].iter().all(|(_, selected)| *selected));
        assert!(told[persona + 2..].iter().all(|(_, selected)| !*selected));
    }
}

#[test]
fn rows_stand_among_passages_by_relevance() {
    let passage = |id: &str, relevance| document("documents", id, id, relevance);
    let row = |id: &str, relevance| document("goods", id, id, relevance);
    let found = Candidates {
        rows: vec![row("lamp", 0.5), row("chair", 0.3)],
        // Passages need not come by relevance: one that fits the persona comes first.
        passages: vec![passage("boat", 0.4), passage("sail", 0.9), passage("rope", 0.3)],
        ..Candidates::default()
    };
    let config = FactSelectionConfig { max_passages_selected: 4, ..Default::default() };
    let told: Vec<String> = select(&found, &config).into_iter().map(|it| it.id.0).collect();
    assert_eq!(told, ["lamp", "boat", "sail", "chair", "rope"]);
}

fn candidates(foreseen: &[(&str, f64)], unforeseen: &[(&str, f64)]) -> Candidates {
    let all = |set, facts: &[(&str, f64)]| {
        facts.iter().map(|(fact, relevance)| evidence(set, fact, *relevance)).collect()
    };
    Candidates {
        foreseen: all(EvidenceSet::Foreseen, foreseen),
        unforeseen: all(EvidenceSet::Unforeseen, unforeseen),
        ..Candidates::default()
    }
}

fn check(
    foreseen: &[(&str, f64)],
    unforeseen: &[(&str, f64)],
    config: &FactSelectionConfig,
    selected: &[&str],
) -> Vec<Evidence> {
    let evidence = select(&candidates(foreseen, unforeseen), config);
    let chosen: Vec<&str> = evidence
        .iter()
        .take_while(|evidence| evidence.selected)
        .map(|evidence| evidence.id.as_str())
        .collect();
    assert_eq!(chosen, selected);
    assert!(evidence.iter().skip(chosen.len()).all(|evidence| !evidence.selected));
    evidence
}

#[test]
fn foreseen_facts_come_first() {
    let config = FactSelectionConfig::default();
    check(&[], &[], &config, &[]);
    check(
        &[("tea IsA drink", 0.3)],
        &[("tea HasA caffeine", 0.9), ("tea AtLocation moon", 0.05)],
        &config,
        &["tea IsA drink", "tea HasA caffeine"],
    );
}

#[test]
fn a_concept_is_not_told_of_itself() {
    let facts = [("pet IsA pet", 0.9), ("pet IsA animal", 0.2)];
    check(&facts, &[], &FactSelectionConfig::default(), &["pet IsA animal"]);
}

#[test]
fn two_facts_about_the_same_pair_are_one_too_many() {
    let config = FactSelectionConfig::default();
    let evidence = check(
        &[("bed UsedFor sleep", 0.9), ("sleep AtLocation bed", 0.8), ("bed IsA furniture", 0.5)],
        &[],
        &config,
        &["bed UsedFor sleep", "bed IsA furniture"],
    );
    assert_eq!(evidence.len(), 3, "what is not selected stays in the record");
}

#[test]
fn one_concept_gives_only_so_many_facts_of_one_relation() {
    let config = FactSelectionConfig { max_per_relation_and_concept: 2, ..Default::default() };
    check(
        &[
            ("tea AtLocation cup", 0.9),
            ("tea AtLocation pot", 0.8),
            ("tea AtLocation shop", 0.7),
            ("tea HasProperty hot", 0.3),
        ],
        &[],
        &config,
        &["tea AtLocation cup", "tea AtLocation pot", "tea HasProperty hot"],
    );
}

#[test]
fn the_same_words_again_are_not_selected() {
    let config = FactSelectionConfig::default();
    check(
        &[("coffee HasA caffeine", 0.9), ("coffee_caffeine IsA coffee", 0.8)],
        &[],
        &config,
        &["coffee HasA caffeine"],
    );
}

#[test]
fn newness_counts_against_relevance() {
    let facts = [("tea IsA hot_drink", 0.9), ("tea IsA hot_brew", 0.8), ("milk IsA food", 0.7)];
    let config = FactSelectionConfig::default();
    check(&facts, &[], &config, &["tea IsA hot_drink", "milk IsA food", "tea IsA hot_brew"]);
    let config = FactSelectionConfig { relevance_share: 1.0, ..config };
    check(&facts, &[], &config, &["tea IsA hot_drink", "tea IsA hot_brew", "milk IsA food"]);
}

#[test]
fn a_denied_fact_stays_denied() {
    let config = FactSelectionConfig::default();
    let evidence = check(&[("tea NotIsA food", 0.9)], &[], &config, &["tea NotIsA food"]);
    assert!(evidence[0].fact.as_ref().unwrap().negated);
}

#[test]
fn a_failed_selection_takes_the_most_relevant_as_they_stand() {
    let config = FactSelectionConfig {
        max_selected: 2,
        max_unselected_in_record: 1,
        ..FactSelectionConfig::default()
    };
    let found = candidates(
        &[("tea IsA drink", 0.9)],
        &[("tea HasA leaf", 0.8), ("tea HasA milk", 0.7), ("tea HasA sugar", 0.6)],
    );
    let kept = most_relevant(&found, &config);
    let told: Vec<(&str, bool)> = kept.iter().map(|e| (e.id.as_str(), e.selected)).collect();
    assert_eq!(told, [("tea IsA drink", true), ("tea HasA leaf", true), ("tea HasA milk", false)]);
}

/// Facts over a few words, so that repeats are frequent.
fn facts() -> impl Strategy<Value = Vec<(String, f64)>> {
    let fact = (0_u8..6, 0_u8..3, 0_u8..6, 0.0_f64..1.0);
    prop::collection::vec(fact, 0..40).prop_map(|facts| {
        let told = |(head, relation, tail, relevance): (u8, u8, u8, f64)| {
            (format!("word{head} Rel{relation} word{tail}_more{tail}"), relevance)
        };
        facts.into_iter().map(told).collect()
    })
}

proptest! {
    #[test]
    fn a_selection_keeps_its_promises(foreseen in facts(), unforeseen in facts()) {
        let all = |set, facts: &[(String, f64)]| {
            facts.iter().map(|(fact, relevance)| evidence(set, fact, *relevance)).collect()
        };
        let found = Candidates {
            foreseen: all(EvidenceSet::Foreseen, &foreseen),
            unforeseen: all(EvidenceSet::Unforeseen, &unforeseen),
            ..Candidates::default()
        };
        let config = FactSelectionConfig::default();
        let kept = select(&found, &config);
        let selected: Vec<&Evidence> = kept.iter().filter(|evidence| evidence.selected).collect();

        prop_assert!(selected.len() <= 20 && kept.len() <= selected.len() + 10);
        prop_assert!(kept.is_sorted_by_key(|evidence| !evidence.selected), "selected first");
        prop_assert!(selected.is_sorted_by_key(|evidence| evidence.set), "foreseen first");
        for (at, one) in selected.iter().enumerate() {
            let pair = |evidence: &Evidence| {
                let fact = evidence.fact.clone().unwrap();
                let mut pair = [fact.head, fact.tail];
                pair.sort();
                pair
            };
            for other in &selected[..at] {
                prop_assert_ne!(pair(one), pair(other), "one fact for one pair");
            }
            let fact = one.fact.as_ref().unwrap();
            for concept in [&fact.head, &fact.tail] {
                let alike = selected.iter().filter(|other| {
                    let other = other.fact.as_ref().unwrap();
                    other.relation == fact.relation
                        && (&other.head == concept || &other.tail == concept)
                });
                prop_assert!(alike.count() <= 3, "{concept} is told too often");
            }
            if one.set == Some(EvidenceSet::Unforeseen) {
                prop_assert!(one.relevance.get() >= config.min_unforeseen_relevance);
            }
        }
        prop_assert_eq!(select(&found, &config), kept, "the same again");
    }
}
