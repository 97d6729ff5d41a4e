//! Triples without weights: tab-separated head, relation, tail, as in KdConv's knowledge bases.
//! Relations are open, in the words of the source (周边景点).
//!
//! A triple whose tail is a text of several sentences is a document and not a fact: it serves no
//! look-up and does not fit in a sentence. It is left out and counted.

use super::{ImportOptions, ImportedFact, LineError};

/// The relation whose tails are texts about the head, in KdConv's knowledge bases.
const DOCUMENT_RELATION: &str = "Information";

/// A tail with more characters is a text too. Tickets and full opening hours are shorter.
const MAX_TAIL_CHARACTERS: usize = 160;

/// The fact of a line; `None` for a document. Every fact has the weight 1.
pub(super) fn parse(
    line: &str,
    options: &ImportOptions,
) -> Result<Option<ImportedFact>, LineError> {
    let columns: Vec<&str> = line.split('\t').collect();
    let [head, relation, tail] = columns[..] else {
        return Err(LineError::Columns { found: columns.len(), expected: "3" });
    };
    if is_text(relation.trim(), tail) {
        return Ok(None);
    }
    Ok(Some(ImportedFact {
        relation: relation.trim().to_owned(),
        head: head.to_owned(),
        tail: tail.to_owned(),
        weight: 1.0,
        source: options.source.as_deref().unwrap_or("triples").to_owned(),
        language: options.languages.first().map_or("en", String::as_str).to_owned(),
        sentence: None,
    }))
}

fn is_text(relation: &str, tail: &str) -> bool {
    relation == DOCUMENT_RELATION || tail.chars().nth(MAX_TAIL_CHARACTERS).is_some()
}

/// Whether a line is a triple that was left out as a document.
pub(super) fn is_document(line: &[u8]) -> bool {
    let line = std::str::from_utf8(line).unwrap_or_default();
    let mut columns = line.split('\t').skip(1);
    matches!((columns.next(), columns.next()), (Some(relation), Some(tail))
        if is_text(relation.trim(), tail))
}

#[cfg(test)]
mod tests {
    use super::super::{Format, import};
    use super::*;
    use crate::Builder;
    use crate::language::Lexicon;

    #[test]
    fn triples_are_facts_and_texts_are_left_out() {
        let text = "字".repeat(MAX_TAIL_CHARACTERS + 1);
        let lines = format!(
            "長城\t周边景点\t十三陵\n长城\t门票\t40元\n长城\tInformation\t很长。\n长城\t地址\t{text}\n\
             长城\t电话\n\n长城\t周边景点\t十三陵\n"
        );
        let options = ImportOptions {
            format: Format::Triples,
            languages: vec!["zh".to_owned()],
            source: Some("kb".to_owned()),
            ..ImportOptions::default()
        };
        let mut builder = Builder::new();
        let report = import(lines.as_bytes(), &options, &mut builder, |_| ()).unwrap();
        assert_eq!((report.lines, report.facts, report.bad), (7, 3, 1));
        assert_eq!((report.skipped, report.documents), (3, 2), "two texts and an empty line");
        assert!(report.bad_lines[0].reason.contains("3"), "{:?}", report.bad_lines);

        let graph = builder.into_graph();
        assert_eq!(graph.stats().languages, ["zh"]);
        let both = graph.concepts_with_lemmas("zh", &Lexicon::chinese().key("長城"));
        let texts: Vec<&str> = both.map(|id| graph.concept(id)).collect();
        assert_eq!(texts, ["长城"], "both scripts are one concept");
        let relation = graph.find_relation("周边景点").unwrap();
        let fact = graph.facts().find(|fact| fact.relation == relation).unwrap();
        assert_eq!((graph.concept(fact.tail), fact.weight, fact.negated), ("十三陵", 1.0, false));
    }
}
