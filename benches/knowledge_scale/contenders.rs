//! Implements the contenders: a hash map of adjacency lists, and SQLite with indexes.

use rusqlite::{Connection, params};
use rustc_hash::FxHashMap;
use turnstream_knowledge::{ConceptId, Fact, Graph};
use turnstream_operators::fact_retrieval::DemandedConcepts;

/// Facts by head and by tail, strongest first. Foreseen facts are found by scanning the lists.
pub(crate) struct HashMaps {
    from: FxHashMap<ConceptId, Vec<Fact>>,
    to: FxHashMap<ConceptId, Vec<Fact>>,
}

impl HashMaps {
    pub(crate) fn of(graph: &Graph) -> Self {
        let from = graph.concepts().map(|id| (id, graph.facts_from(id).collect())).collect();
        let to = graph.concepts().map(|id| (id, graph.facts_to(id).collect())).collect();
        Self { from, to }
    }

    pub(crate) fn foreseen(&self, demand: &DemandedConcepts) -> usize {
        let scan = |ones: &[ConceptId], others: &[ConceptId]| {
            let facts = ones.iter().flat_map(|one| &self.from[one]);
            facts.filter(|fact| others.binary_search(&fact.tail).is_ok()).count()
        };
        let (queries, topics) = ends(demand);
        scan(&queries, &topics) + scan(&topics, &queries)
    }

    pub(crate) fn neighbours(&self, demand: &DemandedConcepts, most: usize) -> usize {
        let (queries, topics) = ends(demand);
        let facts = queries.iter().chain(&topics).flat_map(|concept| {
            self.from[concept].iter().take(most).chain(self.to[concept].iter().take(most))
        });
        facts.map(|fact| usize::from(fact.weight > 0.0)).sum()
    }
}

fn ends(demand: &DemandedConcepts) -> (Vec<ConceptId>, Vec<ConceptId>) {
    (demand.queries.keys().copied().collect(), demand.topics.keys().copied().collect())
}

/// A database in memory, with an index for each kind of look-up.
pub(crate) struct Sqlite(Connection);

const FORESEEN: &str = "SELECT relation, source, weight FROM facts
    WHERE head IN (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) AND tail IN (?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";

impl Sqlite {
    pub(crate) fn of(graph: &Graph) -> rusqlite::Result<Self> {
        let mut database = Connection::open_in_memory()?;
        database.execute_batch(
            "CREATE TABLE facts (head INTEGER, tail INTEGER, relation INTEGER, source INTEGER,
                weight REAL, from_rank INTEGER, to_rank INTEGER)",
        )?;
        let key = |fact: &Fact| (fact.head.0, fact.tail.0, fact.relation.0, fact.source);
        let mut ranks = FxHashMap::default();
        for concept in graph.concepts() {
            for (rank, fact) in graph.facts_to(concept).enumerate() {
                ranks.insert(key(&fact), rank as u32);
            }
        }
        let insertion = database.transaction()?;
        {
            let mut insert =
                insertion.prepare("INSERT INTO facts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
            for concept in graph.concepts() {
                for (rank, fact) in graph.facts_from(concept).enumerate() {
                    let (head, tail, relation, source) = key(&fact);
                    let to_rank = ranks[&key(&fact)];
                    let rank = rank as u32;
                    insert.execute(params![
                        head,
                        tail,
                        relation,
                        source,
                        fact.weight,
                        rank,
                        to_rank
                    ])?;
                }
            }
        }
        insertion.commit()?;
        database.execute_batch(
            "CREATE INDEX between_ends ON facts (head, tail);
             CREATE INDEX strongest_from ON facts (head, from_rank);
             CREATE INDEX strongest_to ON facts (tail, to_rank);
             ANALYZE",
        )?;
        Ok(Self(database))
    }

    pub(crate) fn foreseen(&self, demand: &DemandedConcepts) -> rusqlite::Result<usize> {
        let (queries, topics) = ends(demand);
        let mut select = self.0.prepare_cached(FORESEEN)?;
        let mut found = 0;
        for (ones, others) in [(&queries, &topics), (&topics, &queries)] {
            let ends = ones.iter().chain(others).map(|concept| concept.0);
            let mut rows = select.query(rusqlite::params_from_iter(ends))?;
            while rows.next()?.is_some() {
                found += 1;
            }
        }
        Ok(found)
    }

    pub(crate) fn neighbours(
        &self,
        demand: &DemandedConcepts,
        most: usize,
    ) -> rusqlite::Result<usize> {
        let (queries, topics) = ends(demand);
        let mut found = 0;
        for sql in [
            "SELECT tail, relation, source, weight FROM facts WHERE head = ?1
                ORDER BY from_rank LIMIT ?2",
            "SELECT head, relation, source, weight FROM facts WHERE tail = ?1
                ORDER BY to_rank LIMIT ?2",
        ] {
            let mut select = self.0.prepare_cached(sql)?;
            for concept in queries.iter().chain(&topics) {
                let mut rows = select.query(params![concept.0, most as u32])?;
                while rows.next()?.is_some() {
                    found += 1;
                }
            }
        }
        Ok(found)
    }
}
