use super::*;
use crate::history::chains::ChainsConfig;
use crate::history::clusters::ClustersConfig;
use crate::history::relevance::EntryStatistics;

/// A history of utterances, one entry each, numbered from 0; `<` marks one that refers back.
struct History {
    texts: Vec<Signature>,
    clusters: Clusters,
    chains: Chains,
    statistics: EntryStatistics,
    entries: Vec<i64>,
}

impl History {
    fn of(said: &[&str]) -> Self {
        let texts: Vec<Signature> = said.iter().map(|said| Signature::of([*said])).collect();
        let (mut clusters, mut chains) = (Clusters::default(), Chains::default());
        let mut statistics = EntryStatistics::default();
        for (entry, said) in (0..).zip(said) {
            statistics.add(&texts[entry as usize].terms);
            let (text, text_of) = (&texts[entry as usize], |at: i64| texts.get(at as usize));
            clusters.insert(entry, text, &ClustersConfig::default());
            let refers_back = said.starts_with('<');
            chains.insert(entry, text, refers_back, text_of, &ChainsConfig::default());
        }
        let entries = (0..said.len() as i64).collect();
        Self { texts, clusters, chains, statistics, entries }
    }

    fn find(&self, method: RecallMethod, query: &str, config: &RecallConfig) -> Vec<(i64, f64)> {
        let query = Signature::of([query]);
        let searched = SearchedEntries {
            clusters: &self.clusters,
            chains: &self.chains,
            entries: &self.entries,
            text_of: |at| self.texts.get(at as usize),
            relevance: Relevance::to(&query, &self.statistics, config.meaning_share),
        };
        let config = RecallConfig { method, ..config.clone() };
        let found = find(&searched, &config);
        found.iter().map(|found| (found.entry, (found.score * 100.0).round() / 100.0)).collect()
    }
}

/// An exchange about a violin in four entries, and two others.
const SAID: [&str; 6] = [
    "old violin",
    "< how much is it",
    "rain on the lake",
    "violin strings bow case box",
    "< and then",
    "snow on the lake",
];

#[test]
fn each_method_finds_what_it_should() {
    let history = History::of(&SAID);
    let config = RecallConfig::default();
    let find = |method| history.find(method, "violin", &config);
    assert_eq!(
        find(RecallMethod::Flat),
        [(0, 0.44), (3, 0.27), (5, 0.0), (4, 0.0), (2, 0.0), (1, 0.0)]
    );
    assert_eq!(find(RecallMethod::Hierarchy), [(0, 0.44), (3, 0.27)]);
    // (own + 0.2 × neighbours') ÷ 1.4: an entry shares in the relevance of its neighbours in the chain.
    let among_neighbours = [(0, 0.31), (3, 0.19), (1, 0.06), (4, 0.04)];
    assert_eq!(find(RecallMethod::Chains), among_neighbours);
    assert_eq!(find(RecallMethod::All), among_neighbours);
    assert_eq!(find(RecallMethod::Recency), []);
}

#[test]
fn only_the_best_chains_and_groups_are_followed() {
    let history = History::of(&SAID);
    let config = RecallConfig { max_chains: 1, max_groups: 1, ..RecallConfig::default() };
    let find = |method| history.find(method, "violin", &config);
    assert_eq!(find(RecallMethod::Chains), [(0, 0.31), (1, 0.06)]);
    assert_eq!(find(RecallMethod::Hierarchy), [(0, 0.44)]);
    assert_eq!(find(RecallMethod::All), [(0, 0.31), (1, 0.06)]);
    let config = RecallConfig { neighbour_weight: 0.0, ..config };
    assert_eq!(history.find(RecallMethod::Chains, "violin", &config), [(0, 0.44), (1, 0.0)]);
}
