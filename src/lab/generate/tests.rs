use std::collections::BTreeSet;

use turnstream_knowledge::{Builder, Graph, ImportOptions};
use turnstream_sources::knowledge::{SourceFile, import_files};

use super::*;

fn generated(options: &GenerateOptions) -> (Vec<u8>, Graph) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("facts.csv.gz");
    generate(&path, options, Progress::Silent).expect("written");
    let mut builder = Builder::new();
    // A generated word may occur in the lists of unfit words.
    let kept = ImportOptions { keep_unfit: true, ..ImportOptions::default() };
    let files = [SourceFile { options: kept, ..SourceFile::new(path.clone()) }];
    let reports = import_files(&files, &mut builder, Progress::Silent).expect("read");
    let report = &reports[0].report;
    assert_eq!((report.bad, report.skipped), (0, 0), "{:?}", report.bad_lines);
    assert_eq!(report.facts, u64::from(options.facts));
    (std::fs::read(&path).expect("read"), builder.into_graph())
}

#[test]
fn a_generated_file_has_the_counts_that_were_asked_for() {
    let options = GenerateOptions { concepts: 11_700, facts: 32_800, seed: 7 };
    let (bytes, graph) = generated(&options);
    let stats = graph.stats();
    assert_eq!((stats.facts, stats.concepts, stats.relations), (32_800, 11_700, 47));
    assert!(graph.facts().all(|fact| fact.head != fact.tail));
    assert!(bytes == generated(&options).0, "the same seed gives the same bytes");
    let another = generated(&GenerateOptions { seed: 8, ..options });
    assert!(another.1.version() != graph.version(), "another seed gives another graph");
}

#[test]
fn degrees_are_spread_as_in_the_real_file() {
    let options = GenerateOptions { concepts: 87_871, facts: 296_463, seed: 1 };
    let (_, graph) = generated(&options);
    let mut degrees: Vec<u32> = graph.concepts().map(|concept| graph.degree(concept)).collect();
    degrees.sort_unstable();
    // Counted on the English file of the Open Mind core.
    for (per_mille, real) in [(500, 1), (750, 3), (900, 9), (950, 22), (990, 119), (999, 402)] {
        let found = f64::from(degrees[degrees.len() * per_mille / 1_000]);
        let real = f64::from(real);
        assert!((found - real).abs() <= 0.25 * real, "{per_mille}: {found}, not {real}");
    }
}

#[test]
fn every_concept_has_a_text_of_its_own() {
    let numbers = (0..60_000).chain(1_100_000..1_160_000).chain(499_990_000..500_000_000);
    let texts: BTreeSet<String> = numbers.clone().map(text).collect();
    assert_eq!(texts.len(), numbers.count());
}

#[test]
fn impossible_shapes_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("facts.csv.gz");
    for (concepts, facts) in [(9, 50), (100, 99), (10, 46), (100, 1_001)] {
        let options = GenerateOptions { concepts, facts, seed: 1 };
        let error = generate(&path, &options, Progress::Silent).expect_err("refused").to_string();
        assert!(error.contains("for each concept"), "{error}");
        assert!(!path.exists());
    }
}
