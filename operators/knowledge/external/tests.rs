use proptest::prelude::*;

use super::*;
use crate::{Builder, Graph};

/// The bytes of the builder in memory, and those of the external builder.
fn both(facts: &[ImportedFact], memory_bytes: usize) -> [Vec<u8>; 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("deeper").join("graph.snapshot");
    let mut builder = Builder::new();
    let mut external = ExternalBuilder::new(&path, memory_bytes).expect("a folder");
    for fact in facts {
        let expected = builder.add(fact).map_err(|error| error.to_string());
        assert_eq!(external.add(fact).map_err(|error| error.to_string()), expected);
    }
    external.write(|_| ()).expect("written");
    let sorted = std::fs::read(&path).expect("read");
    assert!(Graph::open(&path).is_ok());
    let left = std::fs::read_dir(path.parent().expect("a folder")).expect("read").count();
    assert_eq!(left, 1, "no sorted run is left over");
    builder.write(&path).expect("written");
    [std::fs::read(&path).expect("read"), sorted]
}

fn facts() -> impl Strategy<Value = Vec<ImportedFact>> {
    let text = prop::sample::select(vec![
        "dog",
        "Dogs",
        "DOGS",
        "the dog",
        "house",
        "houses",
        "wake up",
        "waking_up",
        "狗",
        "狗 狗",
        "a",
        "an exceedingly long text that differs late",
        "an exceedingly long text that differs",
        "",
        "bad\u{1}text",
    ]);
    let relation = prop::sample::select(vec!["IsA", "NotDesires", "UsedFor", "dbpedia/genre"]);
    let weight = prop::sample::select(vec![1.0f32, 2.0, -2.0, 0.5, 1e-30, -1.0, 0.0, f32::NAN]);
    let source = prop::sample::select(vec!["b", "a", "", "cn4"]);
    let language = prop::sample::select(vec!["en", "zh", "fr"]);
    let sentence = prop::sample::select(vec![None, None, Some("A Dog is."), Some("Is it?")]);
    let fact = (relation, text.clone(), text, weight, source, language, sentence).prop_map(
        |(relation, head, tail, weight, source, language, sentence)| ImportedFact {
            relation: relation.to_owned(),
            head: head.to_owned(),
            tail: tail.to_owned(),
            weight,
            source: source.to_owned(),
            language: language.to_owned(),
            sentence: sentence.map(str::to_owned),
        },
    );
    prop::collection::vec(fact, 0..120)
}

proptest! {
    #[test]
    fn sorting_gives_the_bytes_of_memory(facts in facts(), memory_bytes in 0..20_000usize) {
        let [expected, sorted] = both(&facts, memory_bytes);
        prop_assert!(expected == sorted);
    }

    #[test]
    fn the_order_of_the_facts_is_no_matter(
        facts in facts().prop_shuffle(), memory_bytes in 0..5_000usize,
    ) {
        let [_, forward] = both(&facts, memory_bytes);
        let reversed: Vec<ImportedFact> = facts.into_iter().rev().collect();
        let [_, backward] = both(&reversed, 1 << 20);
        prop_assert!(forward == backward);
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    assert!(ExternalBuilder::new(&file.path().join("graph.snapshot"), 1 << 20).is_err());
}
