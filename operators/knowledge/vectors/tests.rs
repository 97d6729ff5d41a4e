use proptest::prelude::*;

use super::*;
use crate::ImportedFact;

/// A vector that no other fact has.
fn vector_of(graph: &Graph, at: usize) -> Vec<f32> {
    let turn = at as f32 / graph.stats().facts as f32;
    vec![turn.cos(), turn.sin(), 0.5, -0.25]
}

fn graph(facts: &[(u8, u8, u8)]) -> Graph {
    let fact = |(head, tail, kind): &(u8, u8, u8)| ImportedFact {
        head: format!("c{head}"),
        relation: ["RelatedTo", "UsedFor", "NotUsedFor"][usize::from(kind % 3)].to_owned(),
        tail: format!("c{tail}"),
        weight: if kind % 4 == 3 { -1.0 } else { 1.0 },
        source: format!("s{}", kind / 4 % 2),
        language: "en".to_owned(),
        sentence: None,
    };
    Graph::from_facts(facts.iter().map(fact))
}

proptest! {
    #[test]
    fn a_fact_has_the_row_of_its_place(
        facts in prop::collection::vec((0..6_u8, 0..6_u8, 0..8_u8), 1..60),
        broken_off in any::<prop::sample::Index>(),
        torn in 0..8_u64,
    ) {
        let graph = graph(&facts);
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("facts.vectors");
        let header = VectorsHeader::new(&graph, "test", 7, 4);
        let count = graph.facts().len();

        // Written in two parts; the first ended in the middle of a row.
        let first = broken_off.index(count);
        let mut writer = VectorsWriter::resume(&path, header.clone())?;
        (0..first).try_for_each(|at| writer.append(&vector_of(&graph, at)))?;
        drop(writer);
        let partial = folder.path().join("facts.vectors.partial");
        let file = File::options().write(true).open(&partial)?;
        let whole = file.metadata()?.len();
        file.set_len(whole - torn.min(whole - ROWS_AT as u64))?;
        let mut writer = VectorsWriter::resume(&path, header)?;
        let begun = writer.written() as usize;
        prop_assert_eq!(begun, if torn > 0 { first.saturating_sub(1) } else { first });
        prop_assert!(FactVectors::open(&path, &graph).is_err(), "not complete");
        (begun..count).try_for_each(|at| writer.append(&vector_of(&graph, at)))?;
        writer.finish()?;

        let vectors = FactVectors::open(&path, &graph)?;
        for (at, fact) in graph.facts().enumerate() {
            prop_assert_eq!(graph.position(&fact), Some(at));
            let row = vectors.of(&graph, &fact).expect("a row");
            let own = QueryVector::new(&vector_of(&graph, at)).cosine(row);
            prop_assert!(own > 0.9999, "{own}");
            let other = Fact { negated: !fact.negated, ..fact };
            let has_other = graph.facts().any(|it| (Fact { weight: other.weight, ..it }) == other);
            prop_assert_eq!(vectors.of(&graph, &other).is_some(), has_other);
        }
    }

    #[test]
    fn a_cosine_in_bytes_is_near_that_of_the_numbers(
        one in prop::collection::vec(-1.0_f32..1.0, 64),
        other in prop::collection::vec(-1.0_f32..1.0, 64),
    ) {
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        let exact = dot(&one, &other) / (dot(&one, &one) * dot(&other, &other)).sqrt();
        let mut row = Vec::new();
        quantise(&other, &mut row);
        let found = QueryVector::new(&one).cosine(Row::read(&row).expect("a row"));
        prop_assert!((found - exact).abs() < 0.01, "{found} for {exact}");
    }
}

#[test]
fn a_vector_of_zeros_is_like_nothing() {
    let mut row = Vec::new();
    quantise(&[0.0; 8], &mut row);
    let row = Row::read(&row).expect("a row");
    assert_eq!(QueryVector::new(&[1.0; 8]).cosine(row), 0.0);
    let mut some = Vec::new();
    quantise(&[1.0; 8], &mut some);
    let some = Row::read(&some).expect("a row");
    assert_eq!(QueryVector::new(&[0.0; 8]).cosine(some), 0.0);
}

#[test]
fn vectors_of_other_facts_are_refused() {
    let (ours, theirs) = (graph(&[(1, 2, 0)]), graph(&[(1, 3, 0)]));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("facts.vectors");
    let mut writer = VectorsWriter::resume(&path, VectorsHeader::new(&theirs, "test", 7, 4));
    let writer = writer.as_mut().expect("a file");
    writer.append(&[1.0; 4]).expect("a row");
    let writer = VectorsWriter::resume(&path, VectorsHeader::new(&ours, "test", 7, 4));
    assert_eq!(writer.expect("a file").written(), 0, "what was begun for other facts is left");
    let mut writer =
        VectorsWriter::resume(&path, VectorsHeader::new(&theirs, "test", 7, 4)).expect("a file");
    writer.append(&[1.0; 4]).expect("a row");
    writer.finish().expect("complete");
    let error = FactVectors::open(&path, &ours).expect_err("other facts");
    assert!(matches!(error, VectorsError::OtherFacts { .. }), "{error}");
    assert!(FactVectors::open(&path, &theirs).is_ok());
}

#[test]
fn an_unfinished_file_is_not_given_its_name() {
    let graph = graph(&[(1, 2, 0), (2, 3, 0)]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("facts.vectors");
    let header = VectorsHeader::new(&graph, "test", 7, 4);
    let mut writer = VectorsWriter::resume(&path, header).expect("a file");
    writer.append(&[1.0; 4]).expect("a row");
    assert!(writer.finish().is_err());
    assert!(!path.exists());
}
