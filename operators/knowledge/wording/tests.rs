use super::*;
use crate::{
    Builder, Format, Graph, ImportOptions, ImportReport, MAX_CONCEPT_BYTES, import, verbalise,
    worded,
};

fn imported(lines: &str, language: &str, format: Format) -> (ImportReport, Graph) {
    let languages = vec![language.to_owned()];
    let options = ImportOptions { languages, format, ..ImportOptions::default() };
    let mut builder = Builder::new();
    let report = import(lines.as_bytes(), &options, &mut builder, |_| ()).expect("memory is read");
    (report, builder.into_graph())
}

/// What is said of each fact, in the order of the facts.
fn said(graph: &Graph) -> Vec<String> {
    let view = graph.view();
    graph.facts().map(|fact| worded(view, &fact, &view.wording(&fact))).collect()
}

const OWN: &str = "\
    relation\thead\ttail\tweight\tsource\tsentence\n\
    IsA\tContoso Bergen\tsofa\t1\t\t The Bergen is our softest sofa \n\
    MadeOf\tcontoso_bergen\tFSC Oak\t1\tours\n\
    MadeOf\tlamp\toak\t1\n\
    IsA\tContoso Bergen\tsofa\t1\tcn4\n";

#[test]
fn a_fact_is_said_by_its_sentence_or_with_its_capitals() {
    let (report, graph) = imported(OWN, "en", Format::Auto);
    assert_eq!((report.facts, report.bad), (4, 0), "{report:?}");
    let expected = [
        "Contoso Bergen is made of FSC Oak",
        "contoso bergen is a kind of sofa",
        "The Bergen is our softest sofa",
        "lamp is made of oak",
    ];
    assert_eq!(said(&graph), expected, "names are not of common sources");
    let plain: Vec<String> =
        graph.facts().map(|fact| verbalise(graph.view(), &fact)).take(2).collect();
    assert_eq!(plain, ["contoso bergen is made of fsc oak", expected[1]], "as it is ranked");
    let name = |text| graph.view().name(graph.find(text).expect("normalised"));
    assert_eq!([name("fsc oak"), name("oak")], [Some("FSC Oak"), None]);
}

#[test]
fn chinese_triples_have_own_words_too() {
    let line = "价格\tContoso沙发\t300欧元\t1\tours\t卑尔根沙发三百欧元。\n";
    assert_eq!(said(&imported(line, "zh", Format::Tsv).1), ["卑尔根沙发三百欧元。"]);
    let triple = "Contoso沙发\t价格\t300欧元\n";
    assert_eq!(said(&imported(triple, "zh", Format::Triples).1), ["Contoso沙发的价格是300欧元"]);
}

#[test]
fn a_sentence_that_cannot_be_said_is_a_bad_line() {
    let long = "x".repeat(MAX_CONCEPT_BYTES + 1);
    let lines = format!(
        "IsA\ta\tb\t1\tours\t{long}\nIsA\ta\tb\t1\tours\tto\u{202e}gether\n\
         IsA\ta\tb\t1\tours\tso\tmuch\nIsA\ta\tb\t1\tours\t \n"
    );
    let (report, graph) = imported(&lines, "en", Format::Tsv);
    assert_eq!((report.facts, report.bad), (1, 3));
    for (bad, reason) in report.bad_lines.iter().zip(["1025 bytes", "the sentence holds", "4 to 6"])
    {
        assert!(bad.reason.contains(reason), "{bad:?}");
    }
    assert_eq!(said(&graph), ["a is a kind of b"], "an empty column is no sentence");
}

#[test]
fn a_sentence_says_only_what_it_was_brought_for() {
    let affirmed = ImportedFact {
        sentence: Some("Dogs fly.".to_owned()),
        ..ImportedFact::new("dog", "CapableOf", "fly", 1.0)
    };
    let denied = ImportedFact { weight: -2.0, sentence: None, ..affirmed.clone() };
    let named = |head: &str| ImportedFact { head: head.to_owned(), ..affirmed.clone() };
    assert_eq!(said(&Graph::from_facts([affirmed.clone()])), ["Dogs fly."]);
    assert_eq!(said(&Graph::from_facts([affirmed.clone(), denied])), ["dog cannot fly"]);
    let [forward, backward] =
        [["DOG", "Dog"], ["Dog", "DOG"]].map(|heads| Graph::from_facts(heads.map(&named)));
    assert_eq!(forward.version(), backward.version());
    assert_eq!(forward.view().name(forward.find("dog").expect("a dog")), Some("DOG"));
}

#[test]
fn own_words_are_of_the_file_and_a_file_without_them_is_as_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("graph.snapshot");
    let write = |lines: &str| {
        let mut builder = Builder::new();
        import(lines.as_bytes(), &ImportOptions::default(), &mut builder, |_| ()).expect("read");
        builder.write(&path).expect("written");
        std::fs::read(&path).expect("read")
    };
    let refused = |mut bytes: Vec<u8>, format: u8| {
        bytes[8] = format;
        std::fs::write(&path, bytes).expect("written");
        Graph::open(&path).expect_err("refused").to_string()
    };
    let plain = write("MadeOf\tlamp\toak\t1\n");
    assert_eq!(plain[8], 3);
    assert!(Graph::open(&path).expect("opened").own_words().is_empty());
    assert!(refused(plain, 4).contains("damaged"));
    let own = write(OWN);
    assert_eq!(own[8], 4);
    let (_, in_memory) = imported(OWN, "en", Format::Tsv);
    let mapped = Graph::open(&path).expect("opened");
    assert_eq!((said(&mapped), mapped.version()), (said(&in_memory), in_memory.version()));
    drop(mapped);
    assert!(refused(own.clone(), 3).contains("damaged"));
    assert!(refused(own, 5).contains("format 5"));
}
