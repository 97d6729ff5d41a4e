use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::language::Lexicon;

fn fact(head: &str, relation: &str, tail: &str, weight: f32) -> ImportedFact {
    ImportedFact::new(head, relation, tail, weight)
}

/// The report and the graph of an imported text.
fn imported(text: &str, options: &ImportOptions) -> (ImportReport, Graph) {
    let mut builder = Builder::new();
    let report = import(text.as_bytes(), options, &mut builder, |_| ()).expect("memory is read");
    assert_eq!(report.lines, report.facts + report.skipped + report.bad);
    (report, builder.into_graph())
}

/// Every fact of a graph as a line of text, sorted.
fn dump(graph: &Graph) -> Vec<String> {
    let mut lines: Vec<String> = graph
        .facts()
        .map(|fact| {
            let (head, tail) = (graph.concept(fact.head), graph.concept(fact.tail));
            let sign = if fact.negated { "not " } else { "" };
            let relation = graph.relation(fact.relation).name;
            format!("{sign}{head} {relation} {tail} {} {}", fact.weight, graph.source(fact.source))
        })
        .collect();
    lines.sort();
    lines
}

#[test]
fn facts_are_spoken() {
    for (head, relation, tail, weight, spoken) in [
        ("coffee", "UsedFor", "wake up", 2.0, "coffee is used for waking up"),
        ("coffee", "UsedFor", "breakfast", 2.0, "coffee is used for breakfast"),
        ("coffee", "UsedFor", "sleep", -1.0, "coffee is not used for sleeping"),
        ("person", "NotDesires", "pay tax", 1.0, "person does not want to pay tax"),
        ("person", "NotDesires", "pay tax", -1.0, "person does not want to pay tax"),
        ("book", "ReceivesAction", "write by author", 1.0, "book can be written by author"),
        ("wake up", "HasPrerequisite", "open eye", 1.0, "waking up requires opening eye"),
        ("dog", "CapableOf", "fly", -0.5, "dog cannot fly"),
        ("milk", "HasProperty", "find in fridge", 1.0, "milk is found in fridge"),
        ("cat", "Owns", "person", -1.0, "cat does not stand in the relation \"owns\" to person"),
    ] {
        let graph = Graph::from_facts([fact(head, relation, tail, weight)]);
        let only = graph.facts().next().expect("one fact");
        assert_eq!(verbalise(graph.view(), &only), spoken);
        assert_eq!(only.negated, weight < 0.0 || relation.starts_with("Not"), "{spoken}");
        assert!(only.weight > 0.0);
    }
}

#[test]
fn tsv_lines_become_facts_and_bad_ones_are_reported() {
    let long = "x".repeat(70_000);
    let text = format!(
        "relation\thead\ttail\tweight\nIsA\tDog\tpet_animal\t1\tours\r\n\
         IsA\tdog\nIsA\tdog\tpet\theavy\n\nIsA\t \tpet\t1\nIsA\tdog\tpet\t0\n\
         IsA\t{long}\tpet\t1\nIsA\tdog\tpet\tNaN\n/r/IsA\tcat\tpet\t-2"
    );
    let (report, graph) = imported(&text, &ImportOptions::default());
    assert_eq!((report.lines, report.facts, report.skipped, report.bad), (10, 2, 2, 6));
    let lines: Vec<u64> = report.bad_lines.iter().map(|bad| bad.line).collect();
    assert_eq!(lines, [3, 4, 6, 7, 8, 9]);
    assert!(report.bad_lines[0].reason.contains("2 tab-separated"), "{:?}", report.bad_lines[0]);
    assert!(report.bad_lines[4].reason.contains("longer"), "{:?}", report.bad_lines[4]);
    assert_eq!(dump(&graph), ["dog IsA pet animal 1 ours", "not cat IsA pet 2 tsv"]);

    let options = ImportOptions { bad_lines_kept: 1, ..Default::default() };
    let (report, _) = imported(&text, &options);
    assert_eq!((report.bad, report.bad_lines.len()), (6, 1), "all are counted, some are kept");
}

#[test]
fn bytes_that_are_not_text_are_a_bad_line() {
    let mut builder = Builder::new();
    let text: &[u8] = b"IsA\tdog\t\xff\t1\nIsA\tdog\tpet\t1\n";
    let report =
        import(text, &ImportOptions::default(), &mut builder, |_| ()).expect("memory is read");
    assert_eq!((report.facts, report.bad), (1, 1));
    assert!(report.bad_lines[0].reason.contains("UTF-8"));
}

const CONCEPTNET: &str = "\
/a/[/r/UsedFor/,/c/en/coffee/n/,/c/en/wake_up/]\t/r/UsedFor\t/c/en/coffee/n\t/c/en/wake_up\t\
{\"dataset\": \"/d/conceptnet/4/en\", \"weight\": 2.0, \"sources\": [{\"a\": 1}]}
/a/x\t/r/Synonym\t/c/en/coffee\t/c/fr/café\t{\"weight\": 1.0}
/a/x\t/r/IsA\t/c/fr/café\t/c/fr/boisson\t{\"weight\": 1.0}
/a/x\t/r/ExternalURL\t/c/en/coffee\thttp://example.org/coffee\t{\"weight\": 1.0}
/a/x\t/r/NotDesires\t/c/en/person\t/c/en/cold_coffee\t{\"weight\": 1}
/a/x\t/r/IsA\tcoffee\t/c/en/drink\t{\"weight\": 1.0}
/a/x\t/r/IsA\t/c/en/coffee\t/c/en/drink\t{\"weight\": \"much\"}
/a/x\tIsA\t/c/en/coffee\t/c/en/drink\t{\"weight\": 1.0}
";

#[test]
fn conceptnet_assertions_are_read() {
    let (report, graph) = imported(CONCEPTNET, &ImportOptions::default());
    assert_eq!((report.facts, report.skipped, report.bad), (2, 3, 3));
    assert_eq!(
        dump(&graph),
        [
            "coffee UsedFor wake up 2 /d/conceptnet/4/en",
            "not person NotDesires cold coffee 1 conceptnet",
        ]
    );
    let options =
        ImportOptions { languages: Vec::new(), source: Some("ours".into()), ..Default::default() };
    let (report, graph) = imported(CONCEPTNET, &options);
    assert_eq!((report.facts, report.skipped), (3, 2), "pairs of two languages are left out");
    assert_eq!(graph.stats().languages, ["en", "fr"]);
    let cafe = graph.find("café").expect("kept");
    assert_eq!((graph.language(cafe), graph.source(0)), ("fr", "ours"));
    assert_eq!(graph.concepts_with_lemmas("fr", "café").count(), 0, "French has no lexicon");
}

#[test]
fn facts_that_nobody_should_be_told_are_left_out_and_counted() {
    let text = "IsA\tcoffee\tdrink\t1\n/r/UsedFor\tKnife\tmurdering_someone\t1\nHasProperty\tAmericans\tloud\t1\n";
    let (report, graph) = imported(text, &ImportOptions::default());
    assert_eq!((report.lines, report.facts, report.skipped, report.unfit), (3, 1, 2, 2));
    assert_eq!(dump(&graph), ["coffee IsA drink 1 tsv"]);
    let kept = ImportOptions { keep_unfit: true, ..Default::default() };
    let (report, _) = imported(text, &kept);
    assert_eq!((report.facts, report.unfit), (3, 0));
    // The lists apply to English only.
    let german = ImportOptions { languages: vec!["de".to_owned()], ..Default::default() };
    assert_eq!(imported("IsA\trat\tdie\t1\nIsA\tbitch\tx\t1\n", &german).0.unfit, 0);
}

#[test]
fn repeated_facts_fold_into_the_strongest_and_a_tie_denies() {
    let with_source = |weight, source: &str| ImportedFact {
        source: source.to_owned(),
        ..fact("dog", "CapableOf", "fly", weight)
    };
    let facts = [
        with_source(0.5, "a"),
        with_source(-2.0, "a"),
        with_source(2.0, "a"),
        with_source(1.0, "b"),
    ];
    let expected = ["dog CapableOf fly 1 b", "not dog CapableOf fly 2 a"];
    let mut reversed = facts.clone();
    reversed.reverse();
    let (forward, backward) = (Graph::from_facts(facts), Graph::from_facts(reversed));
    assert_eq!(dump(&forward), expected);
    assert_eq!(forward.version(), backward.version(), "the order of the facts is no matter");
}

#[test]
fn texts_are_normalised_as_conceptnet_does() {
    for (text, normal) in [
        ("  Wake__Up ", "wake up"),
        ("NEW\u{a0}York", "new york"),
        ("cafe\u{301}", "café"),
        ("_", ""),
    ] {
        assert_eq!(normalise(text), normal);
    }
}

#[test]
fn hubs_say_less() {
    let star = |parts: u32| {
        let part = |number| fact("hub", "HasA", &format!("part {number}"), 1.0);
        let mut facts: Vec<ImportedFact> = (0..parts).map(part).collect();
        facts.push(fact("part 1", "HasA", "screw", 1.0));
        Graph::from_facts(facts)
    };
    let says = |graph: &Graph, text: &str| graph.informativeness(graph.find(text).expect(text));
    let large = star(3_000);
    assert_eq!(large.degree(large.find("hub").expect("hub")), 3_000);
    assert!(says(&large, "hub") < 0.01, "{}", says(&large, "hub"));
    assert_eq!((says(&large, "screw"), says(&large, "part 2")), (1.0, 1.0));
    assert!(says(&large, "part 1") < 1.0 && says(&large, "part 1") > says(&large, "hub"));
    let expected = 1.0 - 10f32.ln() / 1_001f32.ln();
    assert!((says(&star(10), "hub") - expected).abs() < 1e-6, "a small graph has no hubs");
}

#[test]
fn an_empty_graph_is_a_graph() {
    let graph = Graph::from_facts([]);
    assert_eq!((graph.stats().facts, graph.stats().concepts), (0, 0));
    assert_eq!(graph.find("dog"), None);
    assert_eq!(graph.concepts_with_lemmas("en", "dog").count(), 0);
}

#[test]
fn a_snapshot_file_is_the_graph_and_damage_is_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("deeper").join("graph.snapshot");
    let facts = [fact("coffee", "UsedFor", "wake up", 2.0), fact("tea", "IsA", "drink", 1.0)];
    let in_memory = Graph::from_facts(facts.clone());
    let mut builder = Builder::new();
    for fact in &facts {
        builder.add(fact).expect("a good fact");
    }
    builder.write(&path).expect("written");
    let mapped = Graph::open(&path).expect("opened");
    assert_eq!((mapped.version(), dump(&mapped)), (in_memory.version(), dump(&in_memory)));
    assert_eq!(
        std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
        1,
        "nothing is left over"
    );
    drop(mapped);

    let whole = std::fs::read(&path).expect("read");
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("written");
        Graph::open(&path).expect_err("refused")
    };
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x40;
        let error = refused(&damaged);
        match at {
            0..8 => assert!(matches!(error, SnapshotError::NotASnapshot { .. }), "{at}: {error}"),
            8..12 => assert!(matches!(error, SnapshotError::Format { .. }), "{at}: {error}"),
            _ => assert!(matches!(error, SnapshotError::Damaged { .. }), "{at}: {error}"),
        }
    }
    let mut other_lexicon = whole.clone();
    other_lexicon[16] ^= 1;
    let checksum = crc32fast::hash(&other_lexicon[16..]);
    other_lexicon[12..16].copy_from_slice(&checksum.to_le_bytes());
    assert!(matches!(refused(&other_lexicon), SnapshotError::Lexicon { .. }));
    for length in [0, 7, 31, 32, 60, whole.len() - 1] {
        let error = refused(&whole[..length]).to_string();
        assert!(error.contains("knowledge import"), "the remedy is named: {error}");
    }
    let missing = Graph::open(&folder.path().join("missing")).expect_err("not there");
    assert!(matches!(missing, SnapshotError::Read { .. }));
}

type Triple = (u8, u8, u8, i8, bool);

fn triples() -> impl Strategy<Value = Vec<Triple>> {
    let weight = (-3..=3i8).prop_filter("a weight is not zero", |weight| *weight != 0);
    prop::collection::vec((0..12u8, 0..3u8, 0..12u8, weight, any::<bool>()), 0..80)
}

const RELATIONS: [&str; 3] = ["IsA", "NotDesires", "UsedFor"];

fn facts_of(triples: &[Triple]) -> Vec<ImportedFact> {
    let make = |&(head, relation, tail, weight, other): &Triple| ImportedFact {
        source: if other { "b" } else { "a" }.to_owned(),
        ..fact(
            &format!("c{head}"),
            RELATIONS[usize::from(relation)],
            &format!("c{tail}"),
            f32::from(weight),
        )
    };
    triples.iter().map(make).collect()
}

/// head, relation, tail, source → (weight, negated), folded by a plain loop.
type Oracle = BTreeMap<(String, String, String, String), (f32, bool)>;

fn oracle(facts: &[ImportedFact]) -> Oracle {
    let mut folded: BTreeMap<_, f32> = BTreeMap::new();
    for fact in facts {
        let key =
            (fact.head.clone(), fact.relation.clone(), fact.tail.clone(), fact.source.clone());
        let kept = folded.entry(key).or_insert(fact.weight);
        if fact.weight.abs() > kept.abs() || (fact.weight == -*kept && fact.weight < 0.0) {
            *kept = fact.weight;
        }
    }
    let denied = |relation: &str, weight: f32| weight < 0.0 || relation.starts_with("Not");
    folded
        .into_iter()
        .map(|(key, weight)| {
            let negated = denied(&key.1, weight);
            (key, (weight.abs(), negated))
        })
        .collect()
}

fn named(graph: &Graph, facts: impl Iterator<Item = Fact>) -> Oracle {
    facts
        .map(|fact| {
            let text = |id| graph.concept(id).to_owned();
            let relation = graph.relation(fact.relation).name.to_owned();
            let source = graph.source(fact.source).to_owned();
            ((text(fact.head), relation, text(fact.tail), source), (fact.weight, fact.negated))
        })
        .collect()
}

#[test]
fn a_text_that_two_languages_have_is_two_concepts() {
    let in_language = |language: &str, tail: &str| ImportedFact {
        language: language.to_owned(),
        ..fact("dna", "IsA", tail, 1.0)
    };
    let graph = Graph::from_facts([in_language("zh", "分子"), in_language("en", "molecule")]);
    let [english, chinese] = ["en", "zh"].map(|code| graph.find_in(code, "dna").expect(code));
    assert_eq!((graph.language(english), graph.language(chinese)), ("en", "zh"));
    assert_eq!(graph.find("dna"), Some(english), "the first language by name");
    let tail = |id| graph.facts_from(id).map(|fact| graph.concept(fact.tail)).collect::<Vec<_>>();
    assert_eq!((tail(english), tail(chinese)), (vec!["molecule"], vec!["分子"]));
    assert_eq!((graph.find_in("fr", "dna"), graph.find_in("zh", "molecule")), (None, None));
    assert_eq!(graph.concepts_with_lemmas("en", "dna").collect::<Vec<_>>(), [english]);
}

/// Reads everything of a graph, so that a bad offset would panic.
fn ask_all(graph: &Graph) -> usize {
    let mut given = graph.facts().count();
    for concept in graph.concepts() {
        given += graph.concept(concept).len() + graph.language(concept).len();
        for fact in graph.facts_from(concept).chain(graph.facts_to(concept)) {
            given += graph.relation(fact.relation).name.len() + graph.source(fact.source).len();
            given += graph.facts_between(fact.head, fact.tail).len();
        }
        let text = graph.concept(concept);
        given += graph.concepts_with_lemmas("en", text).map(|id| id.0 as usize).sum::<usize>();
        given += usize::from(graph.find(text).is_some()) + graph.degree(concept) as usize;
    }
    given
}

proptest! {
    /// A file damaged on purpose, with a correct checksum.
    #[test]
    fn no_damage_leads_out_of_the_file(
        triples in triples(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), 1..=255u8), 1..4),
    ) {
        let mut whole = Vec::new();
        let mut builder = Builder::new();
        for fact in facts_of(&triples) {
            builder.add(&fact).expect("a good fact");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("graph.snapshot");
        builder.write(&path).expect("written");
        whole.extend(std::fs::read(&path).expect("read"));
        // The damage spares the finite-state map, whose library trusts its bytes.
        let sections = layout::sections(&whole).expect("sections");
        let map = layout::range(&sections, layout::Section::Lemmas);
        for (at, flip) in damage {
            let at = layout::CHECKED_FROM + at.index(whole.len() - layout::CHECKED_FROM);
            if !map.contains(&at) {
                whole[at] ^= flip;
            }
        }
        let checksum = crc32fast::hash(&whole[layout::CHECKED_FROM..]);
        whole[layout::CHECKSUM_AT..][..4].copy_from_slice(&checksum.to_le_bytes());
        std::fs::write(&path, &whole).expect("written");
        if let Ok(graph) = Graph::open(&path) {
            ask_all(&graph);
        }
    }

    #[test]
    fn a_graph_gives_what_a_scan_of_the_facts_gives(triples in triples()) {
        let facts = facts_of(&triples);
        let graph = Graph::from_facts(facts.clone());
        let expected = oracle(&facts);
        prop_assert_eq!(&named(&graph, graph.facts()), &expected);
        for head in graph.concepts() {
            let of = |wanted: &dyn Fn(&str, &str) -> bool| -> Oracle {
                expected
                    .iter()
                    .filter(|((head, _, tail, _), _)| wanted(head, tail))
                    .map(|(key, value)| (key.clone(), *value))
                    .collect()
            };
            let text = graph.concept(head);
            prop_assert_eq!(graph.find(text), Some(head));
            let from = of(&|head, _| head == text);
            let to = of(&|_, tail| tail == text);
            prop_assert_eq!(graph.degree(head) as usize, from.len() + to.len());
            prop_assert_eq!(named(&graph, graph.facts_from(head)), from);
            prop_assert_eq!(named(&graph, graph.facts_to(head)), to);
            for tail in graph.concepts() {
                let other = graph.concept(tail);
                let between = of(&|head, tail| head == text && tail == other);
                prop_assert_eq!(graph.facts_between(head, tail).len(), between.len());
                prop_assert_eq!(named(&graph, graph.facts_between(head, tail)), between);
            }
        }
    }

    #[test]
    fn the_strongest_come_first(triples in triples(), limit in 0..10usize) {
        let graph = Graph::from_facts(facts_of(&triples));
        for concept in graph.concepts() {
            let rank = |fact: &Fact, far: ConceptId| {
                let degree = graph.degree(far);
                let ids = (fact.head, fact.tail, fact.relation, fact.source);
                (std::cmp::Reverse(fact.weight.to_bits()), degree < 3, degree, ids)
            };
            let from: Vec<Fact> = graph.facts_from(concept).collect();
            let to: Vec<Fact> = graph.facts_to(concept).collect();
            prop_assert!(from.is_sorted_by_key(|fact| rank(fact, fact.tail)));
            prop_assert!(to.is_sorted_by_key(|fact| rank(fact, fact.head)));
            let strongest: Vec<Fact> = graph.strongest_from(concept, limit).collect();
            prop_assert_eq!(&strongest[..], &from[..limit.min(from.len())]);
            let strongest: Vec<Fact> = graph.strongest_to(concept, limit).collect();
            prop_assert_eq!(&strongest[..], &to[..limit.min(to.len())]);
        }
    }

    #[test]
    fn the_lemma_index_has_every_concept_under_its_lemmas(
        texts in prop::collection::btree_set("(dog|dogs|house|houses|wake|waking|up){1}( (dog|dogs|houses|up|ups)){0,2}", 1..8)
    ) {
        let graph = Graph::from_facts(texts.iter().map(|text| fact(text, "IsA", "thing", 1.0)));
        let lexicon = Lexicon::english();
        let keys: BTreeSet<String> = texts.iter().map(|text| lexicon.key(text)).collect();
        for key in keys {
            let mut expected: Vec<&str> = texts
                .iter()
                .map(String::as_str)
                .filter(|text| lexicon.key(text) == key)
                .collect();
            expected.sort_unstable();
            let found: Vec<&str> =
                graph.concepts_with_lemmas("en", &key).map(|id| graph.concept(id)).collect();
            prop_assert_eq!(&found, &expected, "equal degrees are ordered by text");
            let mut walk = graph.lemma_walk("en");
            prop_assert!(key.split(' ').all(|lemma| walk.step(lemma)));
            let walked: Vec<&str> = walk.concepts().map(|id| graph.concept(id)).collect();
            prop_assert_eq!(walked, expected);
            let mut elsewhere = graph.lemma_walk("fr");
            prop_assert!(!elsewhere.step(key.split(' ').next().expect("a word")));
        }
    }
}
