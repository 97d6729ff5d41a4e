//! Statistics of a graph: counts by language, relation and source, and the degrees of concepts.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use turnstream_knowledge::Graph;

/// The statistics of a graph.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Census {
    /// Facts, after repeated lines were merged.
    pub facts: u64,
    /// Distinct concepts.
    pub concepts: u64,
    /// Distinct relations.
    pub relations: u64,
    /// Languages of the concepts, sorted.
    pub languages: Vec<String>,
    /// Size of the compiled snapshot in bytes.
    pub snapshot_bytes: u64,
    /// Name of the snapshot.
    pub snapshot: String,
    /// Bytes of the whole snapshot, including texts and lemmas, per fact.
    pub bytes_per_fact: f64,
    /// Bytes of the mapped file that are in memory now, shared with every process that maps it.
    /// `None` if the system does not report it, or if the snapshot is not a file.
    pub resident_bytes: Option<u64>,
    /// Size of each part of the snapshot in bytes.
    pub parts: BTreeMap<&'static str, u64>,
    /// Concepts and facts by language.
    pub by_language: BTreeMap<String, LanguageCount>,
    /// Facts and denied facts by relation.
    pub by_relation: BTreeMap<String, RelationCount>,
    /// Facts by source.
    pub by_source: BTreeMap<String, u64>,
    /// The degrees of concepts.
    pub degrees: Degrees,
}

/// The counts of a language.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LanguageCount {
    /// Concepts of the language.
    pub concepts: u64,
    /// Facts about these concepts.
    pub facts: u64,
}

/// The counts of a relation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RelationCount {
    /// Facts of the relation.
    pub facts: u64,
    /// Denied facts.
    pub negated: u64,
}

/// Percentiles of the concepts' degrees: "50" is the degree that half of the concepts do not
/// exceed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Degrees {
    /// Facts with the concept as head.
    pub out: BTreeMap<&'static str, u32>,
    /// Facts with the concept as tail.
    pub into: BTreeMap<&'static str, u32>,
    /// Both together.
    pub total: BTreeMap<&'static str, u32>,
}

/// Percentiles in ten-thousandths.
const PERCENTILES: [(&str, usize); 9] = [
    ("10", 1_000),
    ("50", 5_000),
    ("75", 7_500),
    ("90", 9_000),
    ("95", 9_500),
    ("99", 9_900),
    ("99.9", 9_990),
    ("99.99", 9_999),
    ("100", 10_000),
];

fn percentiles(mut degrees: Vec<u32>) -> BTreeMap<&'static str, u32> {
    degrees.sort_unstable();
    let Some(last) = degrees.len().checked_sub(1) else { return BTreeMap::new() };
    // The nearest rank: the smallest degree that the percentile's share of concepts does not
    // exceed.
    let rank = |parts: usize| (degrees.len() * parts).div_ceil(10_000).saturating_sub(1).min(last);
    PERCENTILES.map(|(name, parts)| (name, degrees[rank(parts)])).into()
}

/// Counts a graph; `path` is its snapshot's file, if it has one.
pub fn census(graph: &Graph, path: Option<&Path>) -> Census {
    let stats = graph.stats();
    let mut by_language: BTreeMap<String, LanguageCount> = BTreeMap::new();
    let (mut out, mut into, mut total) = (Vec::new(), Vec::new(), Vec::new());
    for concept in graph.concepts() {
        let facts = graph.facts_from(concept).len();
        let language = by_language.entry(graph.language(concept).to_owned()).or_default();
        language.concepts += 1;
        language.facts += facts as u64;
        out.push(facts as u32);
        into.push(graph.facts_to(concept).len() as u32);
        total.push(graph.degree(concept));
    }
    let mut by_relation: BTreeMap<String, RelationCount> = BTreeMap::new();
    let mut by_source: BTreeMap<String, u64> = BTreeMap::new();
    for fact in graph.facts() {
        let relation = graph.relation(fact.relation).name;
        if !by_relation.contains_key(relation) {
            by_relation.insert(relation.to_owned(), RelationCount::default());
        }
        if let Some(count) = by_relation.get_mut(relation) {
            count.facts += 1;
            count.negated += u64::from(fact.negated);
        }
        let source = graph.source(fact.source);
        match by_source.get_mut(source) {
            Some(count) => *count += 1,
            None => _ = by_source.insert(source.to_owned(), 1),
        }
    }
    let [out, into, total] = [out, into, total].map(percentiles);
    Census {
        facts: stats.facts,
        concepts: stats.concepts,
        relations: stats.relations,
        languages: stats.languages,
        snapshot_bytes: stats.snapshot_bytes,
        snapshot: graph.version().to_owned(),
        bytes_per_fact: stats.snapshot_bytes as f64 / stats.facts.max(1) as f64,
        resident_bytes: path.and_then(resident_bytes),
        parts: graph.parts().into_iter().collect(),
        by_language,
        by_relation,
        by_source,
        degrees: Degrees { out, into, total },
    }
}

/// Bytes of a mapped file that are in memory (Linux).
fn resident_bytes(path: &Path) -> Option<u64> {
    let path = std::fs::canonicalize(path).ok()?;
    let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
    resident_in(&maps, path.to_str()?)
}

/// Sums the resident sizes of a file's mappings in the text of `/proc/PID/smaps`.
fn resident_in(maps: &str, path: &str) -> Option<u64> {
    let (mut inside, mut kibibytes) = (false, None);
    for line in maps.lines() {
        let first = line.split_ascii_whitespace().next().unwrap_or_default();
        if !first.ends_with(':') {
            inside = line.ends_with(path);
        } else if inside && first == "Rss:" {
            let size: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
            kibibytes = Some(kibibytes.unwrap_or(0) + size);
        }
    }
    kibibytes.map(|kibibytes: u64| kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use turnstream_knowledge::ImportedFact;

    use super::*;

    #[test]
    fn a_census_counts_what_is_there() {
        let chinese = ImportedFact {
            language: "zh".to_owned(),
            source: "b".to_owned(),
            ..ImportedFact::new("狗", "IsA", "动物", 1.0)
        };
        let english = |tail: &str, weight| ImportedFact::new("dog", "CapableOf", tail, weight);
        let graph = Graph::from_facts([chinese, english("bark", 1.0), english("fly", -1.0)]);
        let census = census(&graph, None);
        assert_eq!(census.by_language["en"], LanguageCount { concepts: 3, facts: 2 });
        assert_eq!(census.by_language["zh"], LanguageCount { concepts: 2, facts: 1 });
        assert_eq!(census.by_relation["CapableOf"], RelationCount { facts: 2, negated: 1 });
        assert_eq!(
            census.by_source,
            BTreeMap::from([("b".to_owned(), 1), ("unnamed".to_owned(), 2)])
        );
        assert_eq!((census.degrees.out["50"], census.degrees.out["100"]), (0, 2));
        assert_eq!((census.degrees.into["50"], census.degrees.total["10"]), (1, 1));
        assert_eq!(census.resident_bytes, None);
        let parts: u64 = census.parts.values().sum();
        assert!(parts < census.snapshot_bytes && parts > census.snapshot_bytes / 2);
    }

    #[test]
    fn an_empty_graph_has_no_percentiles() {
        assert_eq!(census(&Graph::from_facts([]), None).degrees, Degrees::default());
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let degrees = percentiles((1..=1_000).collect());
        assert_eq!((degrees["50"], degrees["99.9"], degrees["100"]), (500, 999, 1_000));
    }

    #[test]
    fn mappings_of_one_file_are_summed() {
        let maps = "7f00-7f10 r--s 00000000 fe:00 12    /data/my graph.snapshot\n\
                    Size:     100 kB\nRss:      40 kB\nVmFlags: rd\n\
                    7f20-7f30 r--s 00000000 fe:00 13    /data/other\nRss:   7 kB\n\
                    7f40-7f50 r--s 00000000 fe:00 12    /data/my graph.snapshot\nRss:  2 kB\n";
        assert_eq!(resident_in(maps, "/data/my graph.snapshot"), Some(42 * 1024));
        assert_eq!(resident_in(maps, "/data/absent"), None);
    }
}
