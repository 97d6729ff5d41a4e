//! One history in a form for people and programs: categories, summaries and entries, chains,
//! weights, and evicted entries with their reasons.

use serde::Serialize;
use turnstream_explain::{Ink, Text, Tree};
use turnstream_operators::history::eviction::Weighted;
use turnstream_operators::history::hierarchy::{Summary, central, summarise};
use turnstream_operators::history::similarity::Similarity;
use turnstream_operators::history::{Database, HistoryConfig};
use turnstream_schemas::{
    EntryId, EvictionReason, Handover, HistoryEntry, Holder, Scope, ScopeRecord, TurnId,
};

use super::{Kept, Left};

/// A history in the form in which it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    /// The scope of the history.
    pub scope: Scope,
    /// Inputs that ended as a response or as a recorded turn.
    pub turns: u64,
    /// Entries evicted since the scope began.
    pub evictions: u64,
    /// The last change of hands; absent if the engine always held the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
    /// The categories with their groups and entries.
    pub categories: Vec<ShownCategory>,
    /// The chains of thought with more than one entry, as turn ids.
    pub chains: Vec<Vec<TurnId>>,
    /// The evicted entries, in order, as far as their reasons are known.
    pub evicted: Vec<ShownEviction>,
}

/// A category: similar groups.
#[derive(Clone, Debug, Serialize)]
pub struct ShownCategory {
    /// Its number.
    pub id: u32,
    /// Its groups.
    pub groups: Vec<ShownGroup>,
}

/// A group: similar entries.
#[derive(Clone, Debug, Serialize)]
pub struct ShownGroup {
    /// Its number.
    pub id: u32,
    /// The words of its most central entry.
    pub summary: String,
    /// The words that its entries share.
    pub concepts: Vec<String>,
    /// Its entries, oldest first.
    pub entries: Vec<ShownEntry>,
}

/// An entry with its present weights.
#[derive(Clone, Debug, Serialize)]
pub struct ShownEntry {
    /// Its turn.
    pub turn_id: TurnId,
    /// What the user said.
    pub query: Option<String>,
    /// The response to the query.
    pub response: Option<String>,
    /// Relevance to the latest query.
    pub relevance: f64,
    /// How fresh the entry is, 0 to 1.
    pub recency: f64,
    /// The importance of the entry, if the configuration weighs it.
    pub importance: Option<f64>,
    /// The weight by which eviction ranks it now.
    pub weight: f64,
}

/// An evicted entry.
#[derive(Clone, Debug, Serialize)]
pub struct ShownEviction {
    /// Its turn.
    pub turn_id: TurnId,
    /// What the user said, if still known.
    pub query: Option<String>,
    /// The response to the query, if still known.
    pub response: Option<String>,
    /// Relevance to the turn that caused the eviction.
    pub relevance: f64,
    /// How fresh the entry was, 0 to 1.
    pub recency: f64,
    /// The importance of the entry, if the configuration weighed it.
    pub importance: Option<f64>,
    /// Its weight.
    pub weight: f64,
    /// Its rank by weight, which was beyond the capacity.
    pub rank: u32,
    /// The reason of the eviction.
    pub reason: EvictionReason,
}

impl Shown {
    /// Lays out a history in its present state.
    ///
    /// # Errors
    /// A record is not one of the engine's.
    pub fn of(
        scope: &Scope,
        kept: &Kept,
        config: &HistoryConfig,
        similarity: &Similarity,
    ) -> Result<Self, serde_json::Error> {
        let database = kept.database(config, similarity)?;
        let latest = kept.entries.values().rev().find_map(|entry| entry.query.as_deref());
        let query = similarity.of_query(latest.unwrap_or_default());
        let weighted = database.weighted(&query, config);
        let ScopeRecord { turns, evictions, handover, .. } = kept.record.clone();
        Ok(Self {
            scope: scope.clone(),
            turns,
            evictions,
            handover,
            categories: categories(&database, kept, &weighted),
            chains: chains(&database, kept),
            evicted: kept.left.iter().map(left).collect(),
        })
    }
}

fn categories(database: &Database, kept: &Kept, weighted: &[Weighted]) -> Vec<ShownCategory> {
    let by_offset = |at: i64| kept.entries.values().find(|entry| entry.input.offset == at);
    let shown = |at: i64| {
        let entry = by_offset(at)?;
        let weighted = weighted.iter().find(|weighted| weighted.id.offset == at)?;
        Some(shown_entry(entry, weighted))
    };
    let clusters = database.clusters();
    let groups = |numbers: &mut dyn Iterator<Item = u32>| -> Vec<ShownGroup> {
        let groups = numbers.filter_map(|id| Some((id, clusters.group(id)?)));
        let groups = groups.map(|(id, group)| {
            let first = central(group, |at| database.text_of(at));
            let others = group.members().filter(|at| Some(*at) != first);
            let entries = first.into_iter().chain(others).filter_map(by_offset);
            let summary = summarise(group, entries);
            let Summary { text: extract, concepts } = summary.unwrap_or_default();
            let written = group.summary().and_then(|summary| summary.text.clone());
            let summary = written.unwrap_or(extract);
            ShownGroup {
                id,
                summary,
                concepts,
                entries: group.members().filter_map(shown).collect(),
            }
        });
        groups.collect()
    };
    let categories = clusters.categories().iter();
    let shown = categories
        .map(|(id, category)| ShownCategory { id: *id, groups: groups(&mut category.groups()) });
    shown.collect()
}

fn shown_entry(entry: &HistoryEntry, weighted: &Weighted) -> ShownEntry {
    ShownEntry {
        turn_id: entry.turn_id.clone(),
        query: entry.query.clone(),
        response: entry.response.clone(),
        relevance: weighted.relevance,
        recency: weighted.recency,
        importance: weighted.importance,
        weight: weighted.weight,
    }
}

fn chains(database: &Database, kept: &Kept) -> Vec<Vec<TurnId>> {
    let turn = |at: &i64| {
        let entries = kept.entries.iter();
        let mut found = entries.filter(|(EntryId { offset, .. }, _)| offset == at);
        found.next().map(|(_, entry)| entry.turn_id.clone())
    };
    let chains = database.chains().all().filter(|(_, entries)| entries.len() > 1);
    chains.map(|(_, entries)| entries.iter().filter_map(turn).collect()).collect()
}

fn left(left: &Left) -> ShownEviction {
    let Left { entry, evicted, .. } = left;
    ShownEviction {
        turn_id: evicted.turn_id.clone(),
        query: entry.as_ref().and_then(|entry| entry.query.clone()),
        response: entry.as_ref().and_then(|entry| entry.response.clone()),
        relevance: evicted.relevance.get(),
        recency: evicted.recency.get(),
        importance: evicted.importance.map(turnstream_schemas::Score::get),
        weight: evicted.weight.get(),
        rank: evicted.rank,
        reason: evicted.reason,
    }
}

/// Renders a history as a tree, with the last `max_evicted` evicted entries.
pub fn tree(shown: &Shown, max_evicted: usize) -> Tree {
    let entries: usize =
        shown.categories.iter().flat_map(|it| &it.groups).map(|group| group.entries.len()).sum();
    let said = format!(
        ": {}, {} of {} since the scope began, {}",
        count(entries, "entry", "entries"),
        count(shown.evictions as usize, "eviction", "evictions"),
        count(shown.turns as usize, "turn", "turns"),
        count(shown.categories.len(), "category", "categories"),
    );
    let head = Text::new(Ink::Strong, shown.scope.to_string()).and(Ink::Plain, said);
    let head = match &shown.handover {
        Some(last) => head.and(Ink::Careful, hands(last)),
        None => head,
    };
    let categories = shown.categories.iter().map(category);
    let chains = shown.chains.iter().map(|turns| {
        let turns: Vec<&str> = turns.iter().map(TurnId::as_str).collect();
        Tree::leaf(Text::new(Ink::Plain, turns.join(" → ")))
    });
    let chains = Tree::leaf(Text::new(Ink::Label, "chains of thought")).with(chains);
    let skipped = shown.evicted.len().saturating_sub(max_evicted);
    let evicted = shown.evicted.iter().skip(skipped).map(eviction);
    let said = match skipped {
        0 => String::new(),
        skipped => format!(", {skipped} earlier ones not shown"),
    };
    let evicted = Tree::leaf(Text::new(Ink::Label, "evicted").and(Ink::Quiet, said)).with(evicted);
    let further = [chains, evicted].into_iter().filter(|tree| !tree.is_leaf());
    Tree::leaf(head).with(categories).with(further)
}

fn category(category: &ShownCategory) -> Tree {
    let groups = category.groups.iter().map(|group| {
        let concepts = format!(" {}: ", group.concepts.join(", "));
        let head = Text::new(Ink::Label, "summary").and(Ink::Plain, concepts);
        let head = head.and(Ink::Quiet, format!("“{}”", group.summary));
        Tree::leaf(head).with(group.entries.iter().map(entry))
    });
    Tree::leaf(Text::new(Ink::Label, format!("category {}", category.id))).with(groups)
}

fn entry(entry: &ShownEntry) -> Tree {
    let scores = scores(entry.weight, (entry.relevance, entry.recency, entry.importance));
    said(&entry.turn_id, &entry.query, &entry.response, format!(" weighs {scores} now"))
}

/// Who holds the conversation, if it is not the engine.
fn hands(last: &Handover) -> String {
    let who = match last.holder {
        Holder::Bot => return String::new(),
        Holder::Waiting => "nobody yet, the user waits",
        Holder::Agent => "an agent",
    };
    format!("; held by {who}, since {}", last.since)
}

fn eviction(gone: &ShownEviction) -> Tree {
    let scores = scores(gone.weight, (gone.relevance, gone.recency, gone.importance));
    let why = match gone.reason {
        EvictionReason::Capacity => format!(" ranked {} by weight {scores}", gone.rank),
        EvictionReason::Age => format!(" was too old; weight {scores}"),
        EvictionReason::Forget => " was forgotten on request".to_owned(),
    };
    said(&gone.turn_id, &gone.query, &gone.response, why)
}

fn scores(weight: f64, (relevance, recency, importance): (f64, f64, Option<f64>)) -> String {
    let importance = importance.map(|it| format!(", importance {it:.2}")).unwrap_or_default();
    format!("{weight:.2} (relevance {relevance:.2}, recency {recency:.2}{importance})")
}

fn said(turn: &TurnId, query: &Option<String>, response: &Option<String>, why: String) -> Tree {
    let head = Text::new(Ink::Strong, turn.as_str()).and(Ink::Quiet, why);
    let line = |who: &str, text: &Option<String>| match text {
        Some(text) => Text::new(Ink::Quiet, who).and(Ink::Plain, text),
        None => Text::default(),
    };
    Tree::leaf(head).and(line("user: ", query)).and(line("response: ", response))
}

fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
