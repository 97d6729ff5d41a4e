use turnstream_schemas::FactStatement;

use super::*;
use crate::testing::{document, table_row};

fn said_of(evidence: &Evidence, response: &str) -> f64 {
    ResponseWords::of(response).consistency(evidence)
}

fn passage(text: &str) -> Evidence {
    document("documents", "d", text, 0.5)
}

fn fact(text: &str, negated: bool) -> Evidence {
    let (head, relation, tail) = ("dog", "CapableOf", "fly");
    let fact = FactStatement {
        head: head.to_owned(),
        relation: relation.to_owned(),
        tail: tail.to_owned(),
        weight: 1.0,
        negated,
        ..FactStatement::default()
    };
    Evidence { fact: Some(fact), document: None, ..passage(text) }
}

fn lamp() -> Evidence {
    let row = table_row(&[("item", "Oslo lamp"), ("price", "$49"), ("in stock", "no")]);
    let text = "item = Oslo lamp, price = $49, in stock = no";
    Evidence { row: Some(row), document: None, ..passage(text) }
}

#[test]
fn what_is_said_counts_by_the_part_that_is_said_most_of() {
    let hotel =
        passage("We stayed two nights. The wifi was fast and free. Parking costs ten pounds.");
    for (response, share) in [
        ("From “Ashley”: The wifi was fast and free.", 1.0),
        ("Their wifi is free.", 2.0 / 3.0),
        ("I like lakes.", 0.0),
        ("", 0.0),
    ] {
        let found = said_of(&hotel, response);
        assert!((found - share).abs() < 1e-9, "{response}: {found} is not {share}");
    }
    assert_eq!(said_of(&passage("门票六十元。"), "门票是六十元。"), 1.0);
    assert_eq!(said_of(&passage("What is it?"), "What is it?"), 0.0, "grammar alone says nothing");
}

#[test]
fn a_denial_on_one_side_alone_contradicts() {
    for (evidence, response, agrees) in [
        (passage("Pets are not allowed."), "No, pets are not allowed.", true),
        (passage("Pets are not allowed."), "Pets are allowed.", false),
        (passage("Pets are allowed."), "Pets aren’t allowed here.", false),
        (passage("Parking is free."), "There is no wifi, but parking is free.", true),
        (passage("Parking is free."), "Unfortunately, parking is free for guests.", true),
        (fact("dog is capable of fly", true), "A dog can fly.", false),
        (fact("dog is capable of fly", true), "A dog cannot fly.", true),
        (fact("dog is capable of fly", false), "A dog can fly.", true),
        (passage("早餐不免费。"), "早餐免费。", false),
        (passage("早餐不错。"), "早餐不错。", true),
        (passage("早餐免费。"), "早餐免费，不过停车收费。", true),
    ] {
        let found = said_of(&evidence, response);
        assert_eq!(found > 0.0, agrees, "{} / {response}: {found}", evidence.text);
    }
}

#[test]
fn other_numbers_contradict() {
    let parking = passage("Parking costs 10 pounds a night.");
    assert!(said_of(&parking, "Parking costs 10 pounds.") > 0.5);
    assert_eq!(said_of(&parking, "Parking costs 12 pounds."), 0.0);
    assert!(said_of(&parking, "Parking costs some pounds, and you asked for 2 rooms.") > 0.4);
    assert!(said_of(&parking, "12 people asked. Parking costs 10 pounds.") > 0.5);
}

#[test]
fn a_row_is_read_by_column() {
    for (response, agrees) in [
        ("For Oslo lamp: price is $49.", true),
        ("For Oslo lamp: price is $59.", false),
        ("The Oslo lamp is not in stock.", true),
        ("The Oslo lamp is in stock.", false),
    ] {
        let found = said_of(&lamp(), response);
        assert_eq!(found == 1.0, agrees, "{response}: {found}");
        assert_eq!(found == 0.0, !agrees, "{response}: {found}");
    }
}
