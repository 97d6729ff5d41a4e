//! Compares every look-up in a version with a scan of its facts.

use std::collections::BTreeSet;

use super::super::super::{ConceptId, likeness};
use super::super::*;
use super::{CONCEPTS, Naive, Told};
use crate::language::Lexicon;

pub(super) fn say(view: View<'_>, fact: &Fact) -> Told {
    let text = |id| view.concept(id).to_owned();
    (
        text(fact.head),
        view.relation(fact.relation).name.to_owned(),
        text(fact.tail),
        view.source(fact.source).to_owned(),
        view.language(fact.head).to_owned(),
        fact.weight.to_bits(),
        fact.negated,
    )
}

/// The documented rank of a fact, as far as the snapshot's degrees decide it.
fn place(
    graph: &Graph,
    far: &str,
    language: &str,
    weight: u32,
) -> (std::cmp::Reverse<u32>, bool, u32) {
    let known = graph.find_all(far).find(|id| graph.language(*id) == language);
    let degree = known.map_or(0, |id| graph.degree(id));
    (std::cmp::Reverse(weight), degree == 1 || degree == 2, degree)
}

/// Checks that every look-up in a version equals a scan of its facts.
pub(super) fn check(
    knowledge: &Knowledge,
    graph: &Graph,
    version: &KnowledgeVersion,
    naive: &Naive,
) {
    let facts = naive.facts();
    knowledge.at(version, |view| {
        for fact in graph.facts() {
            let stands = say(graph.view(), &fact);
            let mut others = facts.clone();
            others.iter_mut().for_each(|other| other.5 = stands.5);
            let expected = others.contains(&stands);
            assert_eq!(view.has(&fact), expected, "{stands:?}");
        }
        for text in CONCEPTS {
            let named = |fact: &&Told| fact.0 == text || fact.2 == text;
            let languages: BTreeSet<&str> =
                facts.iter().filter(named).map(|fact| fact.4.as_str()).collect();
            let found = view.find(text);
            assert_eq!(found.map(|id| view.language(id)), languages.first().copied(), "{text}");
            for language in &languages {
                check_concept(view, graph, (text, language), &facts);
            }
            let lexicon = Lexicon::english();
            let lemmas = lexicon.key(text);
            let linked = view.concepts_with_lemmas("en", &lemmas);
            let mut expected: Vec<_> = CONCEPTS
                .iter()
                .filter(|other| lexicon.key(other) == lemmas)
                .map(|other| (std::cmp::Reverse(degree(&facts, other, "en")), *other))
                .filter(|(degree, _)| degree.0 > 0)
                .collect();
            expected.sort_unstable();
            let texts: Vec<&str> = linked.iter().map(|id| view.concept(*id)).collect();
            assert_eq!(texts, expected.iter().map(|(_, text)| *text).collect::<Vec<_>>());
            check_alike(view, text, &facts);
            let mut walk = view.lemma_walk("en");
            for (at, word) in lexicon.words(text).iter().enumerate() {
                let beginning: Vec<String> =
                    lexicon.words(text)[..=at].iter().map(|word| word.lemma.to_string()).collect();
                let goes_on = CONCEPTS.iter().any(|other| {
                    degree(&facts, other, "en") > 0
                        && lexicon.key(other).starts_with(&beginning.join(" "))
                });
                assert!(walk.step(&word.lemma) || !goes_on, "{text}");
            }
            assert_eq!(walk.most_named(), linked.first().copied(), "{text}");
        }
    });
}

/// Checks that the search for a typing error equals a scan of the concepts with facts.
fn check_alike(view: View<'_>, text: &str, facts: &[Told]) {
    let lexicon = Lexicon::english();
    let wanted = format!("{}e", lexicon.key(text));
    let least = 0.3;
    let mut expected: Vec<_> = CONCEPTS
        .iter()
        .map(|other| (likeness(lexicon, &wanted, &lexicon.key(other)), *other))
        .filter(|(likeness, other)| *likeness >= least && degree(facts, other, "en") > 0)
        .collect();
    expected.sort_by(|one, other| {
        let degree = |text| std::cmp::Reverse(degree(facts, text, "en"));
        let by_degree = || degree(one.1).cmp(&degree(other.1));
        other.0.total_cmp(&one.0).then_with(by_degree).then_with(|| one.1.cmp(other.1))
    });
    let alike = view.alike(lexicon, &wanted, least, 1 << 20);
    let alike: Vec<_> = alike.into_iter().map(|(id, like)| (like, view.concept(id))).collect();
    assert_eq!(alike, expected, "{wanted}");
}

fn degree(facts: &[Told], text: &str, language: &str) -> u32 {
    let of = facts.iter().filter(|fact| fact.4 == language);
    of.map(|fact| u32::from(fact.0 == text) + u32::from(fact.2 == text)).sum()
}

fn check_concept(view: View<'_>, graph: &Graph, (text, language): (&str, &str), facts: &[Told]) {
    let id = |text: &str| -> Option<ConceptId> {
        let lemmas = Lexicon::english().key(text);
        match language {
            "en" => view
                .concepts_with_lemmas("en", &lemmas)
                .into_iter()
                .find(|id| view.concept(*id) == text),
            // Only English has a lexicon here. Other languages are found only if no other has the
            // text.
            _ => view.find(text).filter(|id| view.language(*id) == language),
        }
    };
    let Some(concept) = id(text) else { return };
    assert_eq!(view.degree(concept), degree(facts, text, language), "{text} {language}");
    let scale = (1.0 + 1000.0_f32).ln();
    let informativeness = 1.0 - (view.degree(concept) as f32).ln() / scale;
    assert!((view.informativeness(concept) - informativeness).abs() < 1e-6);
    for (side, far) in [(Side::From, 2), (Side::To, 0)] {
        let far_of = |fact: &Told| if far == 2 { fact.2.clone() } else { fact.0.clone() };
        let near_of = |fact: &Told| if far == 2 { fact.0.clone() } else { fact.2.clone() };
        let given: Vec<Told> = match side {
            Side::From => view.strongest_from(concept, 1000).map(|fact| say(view, &fact)).collect(),
            Side::To => view.strongest_to(concept, 1000).map(|fact| say(view, &fact)).collect(),
        };
        let expected: BTreeSet<Told> = facts
            .iter()
            .filter(|fact| fact.4 == language && near_of(fact) == text)
            .cloned()
            .collect();
        assert_eq!(given.iter().cloned().collect::<BTreeSet<_>>(), expected, "{text} {side:?}");
        assert_eq!(given.len(), expected.len(), "each once");
        let places = given.iter().map(|fact| place(graph, &far_of(fact), language, fact.5));
        assert!(places.is_sorted(), "{given:?}");
        for limit in 0..given.len() {
            let cut: Vec<Told> = match side {
                Side::From => {
                    view.strongest_from(concept, limit).map(|fact| say(view, &fact)).collect()
                }
                Side::To => {
                    view.strongest_to(concept, limit).map(|fact| say(view, &fact)).collect()
                }
            };
            assert_eq!(cut, given[..limit]);
        }
    }
    for other in CONCEPTS {
        let Some(tail) = id(other) else { continue };
        let given: Vec<Told> =
            view.facts_between(concept, tail).map(|fact| say(view, &fact)).collect();
        let mut expected: Vec<Told> = facts
            .iter()
            .filter(|fact| fact.4 == language && fact.0 == text && fact.2 == other)
            .cloned()
            .collect();
        expected.sort_by_key(|fact| (fact.1.clone(), fact.3.clone()));
        assert_eq!(given, expected, "{text} {other}");
    }
}
