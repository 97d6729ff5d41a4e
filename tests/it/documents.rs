//! Tests that the documents name files and tests that exist.

use std::path::{Path, PathBuf};

const DOCUMENTS: [&str; 51] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/dead-letters.md",
    "docs/metrics.md",
    "benches/README.md",
    "deploy/kafka/README.md",
    "docs/curves.md",
    "docs/decision.md",
    "docs/documents.md",
    "docs/exactly-once.md",
    "docs/explain.md",
    "docs/gate.md",
    "docs/gateway.md",
    "docs/generation.md",
    "docs/glossary.md",
    "docs/handover.md",
    "docs/history.md",
    "docs/history-table.md",
    "docs/kafka.md",
    "docs/knowledge.md",
    "docs/views.md",
    "docs/language-models.md",
    "docs/linking.md",
    "docs/measurements/build.md",
    "docs/measurements/decision.md",
    "docs/measurements/documents.md",
    "docs/measurements/gate.md",
    "docs/measurements/generation.md",
    "docs/measurements/history.md",
    "docs/measurements/kafka.md",
    "docs/measurements/knowledge.md",
    "docs/measurements/linking.md",
    "docs/measurements/models.md",
    "docs/measurements/personas.md",
    "docs/measurements/refinement.md",
    "docs/measurements/speed.md",
    "docs/measurements/unified-model.md",
    "docs/models.md",
    "docs/personas.md",
    "docs/refinement.md",
    "docs/sources.md",
    "docs/unified-model.md",
    "docs/gate-table.md",
    "deploy/recipes/README.md",
    "deploy/training/README.md",
    "tests/companies/README.md",
    "src/weights/pack/README.md",
    "src/weights/reader/README.md",
    "src/weights/static_table/README.md",
    "src/weights/unified/README.md",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the targets of a document's links to other files of the repository.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://") && !target.starts_with('#'))
}

/// Collects every Rust file of ours.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn links_lead_somewhere() {
    for document in DOCUMENTS {
        let path = root().join(document);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{document}: {e}"));
        for link in links(&text) {
            let target = link.split('#').next().unwrap_or_default();
            let target = path.parent().expect("a folder").join(target);
            assert!(target.exists(), "{document} links to {link}, which is not there");
        }
    }
}

/// The second column of the table of invariants names tests: each is a test function or a module.
#[test]
fn every_invariant_names_tests_that_exist() {
    let mut files = Vec::new();
    for folder in ["src", "operators", "schemas", "tests"] {
        sources(&root().join(folder), &mut files);
    }
    let texts: Vec<String> =
        files.iter().map(|file| std::fs::read_to_string(file).expect("UTF-8")).collect();
    let architecture = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("UTF-8");
    let invariants = architecture.split("## Invariants").nth(1).expect("the section");
    let mut checked = 0;
    for row in invariants.lines().filter(|line| line.starts_with("| ") && line.contains('`')) {
        let held_by = row.split('|').nth(2).expect("a third column");
        for name in held_by.split('`').skip(1).step_by(2) {
            if name.starts_with(".ci/") {
                continue;
            }
            let last = name.rsplit("::").next().expect("a name");
            let module = name.rsplit("::").find(|part| *part != "tests").expect("a name");
            let is_function = texts.iter().any(|text| text.contains(&format!("fn {last}(")));
            let is_module =
                files.iter().any(|file| file.file_stem().is_some_and(|stem| stem == module));
            assert!(is_function || is_module, "ARCHITECTURE.md names `{name}`, which is not there");
            checked += 1;
        }
    }
    assert!(checked > 20, "the table was read: {checked}");
}
