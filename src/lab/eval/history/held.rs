//! Holds the history of one conversation under measurement: the engine's own database, which
//! receives turns, evicts by its rule and recalls, and the controls for comparison.
//!
//! The measure is causal: an entry recalled for a question was held when the question was asked.

use std::collections::BTreeSet;

use turnstream_knowledge::terms::terms;
use turnstream_operators::bm25::{Bag, Statistics};
use turnstream_operators::history::clusters::Clusters;
use turnstream_operators::history::recall::{RecallConfig, RecallMethod};
use turnstream_operators::history::similarity::Similarity;
use turnstream_operators::history::{Database, HistoryConfig, Remembering};
use turnstream_schemas::{EntryId, HistoryEntry, InputId, SCHEMA_VERSION, Scope, Speaker, TurnId};

use super::attending::Attending;
use super::material::Utterance;

/// The rule by which entries are evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Eviction {
    /// The engine's rule (DH-RAG eq 12–14), as configured.
    #[default]
    Rule,
    /// The oldest: the rule with α = 0 and no other terms.
    Recency,
    /// Any entry but the newest, each equally likely.
    Random,
    /// None: everything is kept.
    None,
}

/// The method that ranks the held entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Method {
    /// The engine compares every entry with the query.
    Flat,
    /// The engine descends from category over summary to entry.
    Hierarchy,
    /// The engine follows the best chains of thought.
    Chains,
    /// The engine takes what its hierarchy and its chains find.
    #[default]
    All,
    /// Latest first: a control.
    Recency,
    /// BM25 over the entries' words: a control.
    Bm25,
}

impl Eviction {
    /// Returns the name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::Recency => "recency",
            Self::Random => "random",
            Self::None => "none",
        }
    }
}

impl Method {
    /// The engine's methods; the first is the default.
    pub const ENGINE: [Self; 4] = [Self::All, Self::Flat, Self::Hierarchy, Self::Chains];

    /// Returns the engine's setting for the method; `None` for a control outside the engine.
    fn of_engine(self) -> Option<RecallMethod> {
        match self {
            Self::Flat => Some(RecallMethod::Flat),
            Self::Hierarchy => Some(RecallMethod::Hierarchy),
            Self::Chains => Some(RecallMethod::Chains),
            Self::All => Some(RecallMethod::All),
            Self::Recency | Self::Bm25 => None,
        }
    }

    /// Returns the name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Hierarchy => "hierarchy",
            Self::Chains => "chains",
            Self::All => "all",
            Self::Recency => "recency",
            Self::Bm25 => "bm25",
        }
    }
}

/// How a history is kept and queried.
#[derive(Clone, Debug)]
pub struct Keeping {
    /// The engine's configuration, except for the capacity.
    pub config: HistoryConfig,
    /// The engine's similarity of texts.
    pub similarity: Similarity,
    /// Whether a question is completed from earlier utterances, as the engine reconstructs queries.
    pub reconstruct: bool,
    /// Reorders the first recalled entries, if set.
    pub attending: Option<Attending>,
    /// The rule of eviction.
    pub eviction: Eviction,
    /// The method of recall.
    pub method: Method,
    /// The most entries held; `None` for all.
    pub capacity: Option<usize>,
    /// Seeds random eviction.
    pub seed: u64,
}

impl Keeping {
    /// Returns the engine's configuration for this setting. Eviction by recency is the paper's rule
    /// with α = 0 and no other terms.
    fn engine(&self) -> HistoryConfig {
        let capacity = match self.eviction {
            Eviction::Rule | Eviction::Recency => self.capacity,
            Eviction::Random | Eviction::None => None,
        };
        let recency = self.eviction == Eviction::Recency;
        let or_none = |share: f64| if recency { 0.0 } else { share };
        let method = self.method.of_engine().unwrap_or_default();
        HistoryConfig {
            max_entries: capacity.unwrap_or(usize::MAX),
            alpha: or_none(self.config.alpha),
            importance_share: or_none(self.config.importance_share),
            // Rank everything found; K cuts the ranking.
            recall: RecallConfig { method, min_relevance: 0.0, ..self.config.recall.clone() },
            ..self.config.clone()
        }
    }
}

impl Keeping {
    fn remembering<'r>(&'r self, config: &'r HistoryConfig) -> Remembering<'r> {
        Remembering { config, similarity: &self.similarity }
    }
}

/// The history of a conversation.
pub struct Held<'k> {
    keeping: &'k Keeping,
    config: HistoryConfig,
    database: Database,
    /// The number of utterances so far.
    heard: i64,
    random: fastrand::Rng,
    /// The entries left by random eviction.
    left: BTreeSet<EntryId>,
}

impl<'k> Held<'k> {
    /// Makes an empty history.
    pub fn new(keeping: &'k Keeping) -> Self {
        Self {
            keeping,
            config: keeping.engine(),
            database: Database::default(),
            heard: 0,
            random: fastrand::Rng::with_seed(keeping.seed),
            left: BTreeSet::new(),
        }
    }

    /// Adds an utterance as a replay of logged turns does: a user's utterance makes an entry; a
    /// system's completes the latest entry without a response, or else makes its own.
    pub fn hear(&mut self, said: &Utterance) {
        let input = InputId { topic: "eval".to_owned(), partition: 0, offset: self.heard };
        self.heard += 1;
        self.database.see_time(said.time);
        let rules = self.keeping.remembering(&self.config);
        let completes = said.speaker == Speaker::System
            && self.database.complete(&scope(), &said.text, &said.id, &rules).is_some();
        if !completes {
            self.insert(entry(said, input), &said.text);
        }
    }

    fn insert(&mut self, entry: HistoryEntry, query: &str) {
        let id = entry.input.entry_id();
        let query = self.keeping.similarity.of_query(query);
        let rules = self.keeping.remembering(&self.config);
        self.database.insert(&scope(), entry, &query, &rules);
        if self.keeping.eviction == Eviction::Random {
            let capacity = self.keeping.capacity.unwrap_or(usize::MAX);
            while self.left.len() >= capacity.max(1) {
                let drawn = self.random.usize(0..self.left.len());
                let drawn = self.left.iter().nth(drawn).copied();
                drawn.map(|drawn| self.left.remove(&drawn));
            }
            self.left.insert(id);
        }
    }

    /// Returns the held entries, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &HistoryEntry> {
        let random = self.keeping.eviction == Eviction::Random;
        self.database
            .entries()
            .filter(move |entry| !random || self.left.contains(&entry.input.entry_id()))
    }

    /// Returns the clusters of the entries, also of those that random eviction took.
    pub fn clusters(&self) -> &Clusters {
        self.database.clusters()
    }

    /// Prepares the held entries for several questions.
    pub fn ask(&self) -> RankedEntries<'_> {
        let entries: Vec<&HistoryEntry> = self.entries().collect();
        let ranker = match self.keeping.method {
            Method::Recency => HeldRanker::Recency,
            Method::Bm25 => {
                let bag = |entry: &&HistoryEntry| words(entry).flat_map(terms).collect();
                let bags: Vec<Bag<String>> = entries.iter().map(bag).collect();
                HeldRanker::Bm25(Statistics::of(&bags), bags)
            }
            _ if self.keeping.eviction == Eviction::Random => {
                HeldRanker::Rebuilt(Box::new(self.rebuilt(&entries)))
            }
            _ => HeldRanker::Held(&self.database),
        };
        RankedEntries { entries, ranker, keeping: self.keeping, config: &self.config }
    }

    /// Returns a database of these entries alone: the engine itself does not evict at random.
    fn rebuilt(&self, entries: &[&HistoryEntry]) -> Database {
        let mut database = Database::default();
        let rules = self.keeping.remembering(&self.config);
        for &entry in entries {
            // Nothing is evicted, so the query does not matter.
            let query = self.keeping.similarity.of_query("");
            database.insert(&scope(), entry.clone(), &query, &rules);
        }
        database
    }
}

/// The held entries, and how they are ranked.
pub struct RankedEntries<'h> {
    entries: Vec<&'h HistoryEntry>,
    ranker: HeldRanker<'h>,
    keeping: &'h Keeping,
    config: &'h HistoryConfig,
}

enum HeldRanker<'h> {
    Recency,
    Bm25(Statistics<String>, Vec<Bag<String>>),
    Held(&'h Database),
    Rebuilt(Box<Database>),
}

impl RankedEntries<'_> {
    /// Returns the held entries, oldest first.
    pub fn entries(&self) -> &[&HistoryEntry] {
        &self.entries
    }

    /// Returns the indexes in [`Self::entries`] of the entries recalled for a question, best first;
    /// of equals, the later first.
    pub fn recall(&self, question: &str) -> Vec<usize> {
        let mut places = self.found(question);
        if let Some(attending) = &self.keeping.attending {
            attending.order(question, &self.entries, &mut places);
        }
        places
    }

    fn found(&self, question: &str) -> Vec<usize> {
        match &self.ranker {
            HeldRanker::Recency => (0..self.entries.len()).rev().collect(),
            HeldRanker::Bm25(statistics, bags) => {
                let asked: Bag<String> = terms(question).into_iter().collect();
                let scores = bags.iter().map(|bag| statistics.bm25(&asked, bag));
                by_score(&scores.collect::<Vec<f64>>())
            }
            HeldRanker::Held(database) => self.places(database, question),
            HeldRanker::Rebuilt(database) => self.places(database, question),
        }
    }

    /// Returns the entries that the engine recalls.
    fn places(&self, database: &Database, question: &str) -> Vec<usize> {
        let completed = self
            .keeping
            .reconstruct
            .then(|| database.reconstruct(question, self.config).map(|it| it.query))
            .flatten();
        let query = completed.as_deref().unwrap_or(question);
        let found = database.find(&self.keeping.similarity.of_query(query), self.config);
        let place =
            |offset: i64| self.entries.binary_search_by_key(&offset, |entry| entry.input.offset);
        found.iter().filter_map(|found| place(found.entry).ok()).collect()
    }
}

/// Returns indexes by falling score; of equals, the later first.
fn by_score(scores: &[f64]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..scores.len()).collect();
    places.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(b.cmp(a)));
    places
}

/// Returns the ids of an entry's one or two utterances.
pub fn utterances(entry: &HistoryEntry) -> impl Iterator<Item = &TurnId> {
    let asked = entry.query.as_ref().map(|_| &entry.turn_id);
    let answered = entry.response.as_ref().and(entry.response_turn_id.as_ref());
    asked.into_iter().chain(answered)
}

fn words(entry: &HistoryEntry) -> impl Iterator<Item = &str> {
    entry.query.as_deref().into_iter().chain(entry.response.as_deref())
}

/// Returns the fixed scope of the only conversation.
fn scope() -> Scope {
    Scope::new(None, "eval")
}

/// Makes an entry of an utterance.
fn entry(said: &Utterance, input: InputId) -> HistoryEntry {
    let asks = said.speaker == Speaker::User;
    HistoryEntry {
        schema_version: SCHEMA_VERSION,
        input,
        query: asks.then(|| said.text.clone()),
        turn_id: said.id.clone(),
        user_id: None,
        passages: Vec::new(),
        response: (!asks).then(|| said.text.clone()),
        response_turn_id: (!asks).then(|| said.id.clone()),
        event_time: said.time,
        vector: None,
        extra: serde_json::Map::new(),
    }
}
