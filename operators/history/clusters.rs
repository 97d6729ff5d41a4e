//! Clusters of a history's entries, updated as entries come and go (DH-RAG eq 15–17): the upper two
//! levels of the hierarchy that recall descends.
//!
//! Similar entries form a *group*, which has one summary; similar groups form a *category*. An entry
//! joins the group that it is most like, or founds one; a new group joins the category that it is most
//! like, or founds one. Entries are never clustered again: a turn costs one comparison with each group,
//! however many entries there are. The centroid of a category is the sum of its groups, and that of a
//! group the sum of its entries; an empty group or category is removed.
//!
//! Which entry is in which group depends on entries that were evicted since, so the scope's record keeps
//! the membership. It does not keep the sums, which can be computed from the members.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_schemas::{CategoryRecord, GroupRecord, GroupSummary};

use super::likeness::{Centroid, Signature};

/// `[history.clusters]`: how entries are grouped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClustersConfig {
    /// Categories of one scope at most, from 1; beyond it the two that are most alike become one.
    /// The paper's prototype has ten.
    #[schemars(range(min = 1))]
    pub max_categories: u32,
    /// Groups of one scope at most, from 1; beyond it an entry joins the group that it is most like,
    /// even below `group_likeness`.
    #[schemars(range(min = 1))]
    pub max_groups: u32,
    /// Least likeness to a category at which a new group joins it, 0..=1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub category_likeness: f64,
    /// Least likeness to a group at which an entry joins it, 0..=1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub group_likeness: f64,
}

impl Default for ClustersConfig {
    fn default() -> Self {
        Self { max_categories: 10, max_groups: 64, category_likeness: 0.15, group_likeness: 0.35 }
    }
}

/// Similar entries, with one summary of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    category: u32,
    // Boxed, like the category's: a node of a map has room for eleven values, and most scopes have
    // few.
    centroid: Box<Centroid>,
    /// Offsets of the entries.
    members: BTreeSet<i64>,
    summary: Option<Box<WrittenSummary>>,
}

/// A summary that a language model wrote.
#[derive(Clone, Debug, PartialEq)]
struct WrittenSummary {
    record: GroupSummary,
    /// The signature of the summary; empty where the model failed.
    text: Signature,
}

impl WrittenSummary {
    fn new(record: GroupSummary) -> Self {
        Self { text: Signature::of(record.text.as_deref()), record }
    }
}

impl Group {
    /// Returns the category that it belongs to.
    pub fn category(&self) -> u32 {
        self.category
    }

    /// Returns the sum of its entries.
    pub fn centroid(&self) -> &Centroid {
        &self.centroid
    }

    /// Returns the summary that a language model wrote, where one was asked.
    pub fn summary(&self) -> Option<&GroupSummary> {
        self.summary.as_ref().map(|summary| &summary.record)
    }

    /// Returns how alike a query and the language model's summary are, 0..=1; 0 where there is no
    /// summary.
    pub fn likeness_of_summary(&self, query: &Signature) -> f64 {
        self.summary.as_ref().map_or(0.0, |summary| summary.text.terms.likeness(&query.terms))
    }

    /// Whether a language model should write a (new) summary: the group has at least `least` entries, and
    /// their number has doubled or halved since the model was asked.
    fn is_to_be_summarised(&self, least: usize) -> bool {
        let now = self.members.len();
        let changed = self.summary().is_none_or(|summary| {
            let then = summary.entries as usize;
            now >= 2 * then || 2 * now <= then
        });
        now >= least && changed
    }

    /// Returns the offsets of its entries, oldest first; never empty.
    pub fn members(&self) -> impl Iterator<Item = i64> {
        self.members.iter().copied()
    }
}

/// Similar groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Category {
    centroid: Box<Centroid>,
    groups: BTreeSet<u32>,
}

impl Category {
    /// Returns the sum of its entries.
    pub fn centroid(&self) -> &Centroid {
        &self.centroid
    }

    /// Returns its groups, by number; never empty.
    pub fn groups(&self) -> impl Iterator<Item = u32> {
        self.groups.iter().copied()
    }
}

/// The clusters of one scope.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clusters {
    categories: BTreeMap<u32, Category>,
    groups: BTreeMap<u32, Group>,
    /// The group of each entry.
    group_of: FxHashMap<i64, u32>,
    /// The number of the next group or category. Numbers are never reused.
    next: u32,
}

impl Clusters {
    /// Returns the categories, by number.
    pub fn categories(&self) -> &BTreeMap<u32, Category> {
        &self.categories
    }

    /// Returns the group with this number.
    pub fn group(&self, number: u32) -> Option<&Group> {
        self.groups.get(&number)
    }

    /// Returns the group of an entry.
    pub fn group_of(&self, entry: i64) -> Option<u32> {
        self.group_of.get(&entry).copied()
    }

    /// Returns the category of an entry.
    pub fn category_of(&self, entry: i64) -> Option<u32> {
        self.group_of(entry).and_then(|group| self.groups.get(&group)).map(Group::category)
    }

    /// Returns the group that a language model should summarise next: the largest with at least
    /// `least` entries, of equals the oldest.
    pub fn to_be_summarised(&self, least: usize) -> Option<u32> {
        let groups = self.groups.iter().filter(|(_, group)| group.is_to_be_summarised(least));
        let largest = groups.max_by_key(|(number, group)| (group.members.len(), Reverse(**number)));
        largest.map(|(number, _)| *number)
    }

    /// Sets the summary that a language model wrote of a group. Does nothing where the group is gone.
    pub fn summarise(&mut self, group: u32, summary: GroupSummary) {
        if let Some(group) = self.groups.get_mut(&group) {
            group.summary = Some(Box::new(WrittenSummary::new(summary)));
        }
    }

    /// Adds an entry: it joins the group that it is most like, or founds one.
    pub fn insert(&mut self, entry: i64, text: &Signature, config: &ClustersConfig) {
        let nearest =
            nearest(self.groups.iter().map(|(number, of)| (*number, of.centroid())), text);
        let full = self.groups.len() >= config.max_groups as usize;
        let group = match nearest {
            Some((group, likeness)) if full || likeness >= config.group_likeness => group,
            _ => self.found(text, config),
        };
        self.join(entry, text, group);
        self.bound_categories(config);
    }

    /// Removes an entry.
    pub fn remove(&mut self, entry: i64, text: &Signature) {
        let Some(number) = self.group_of.remove(&entry) else { return };
        let Some(group) = self.groups.get_mut(&number) else { return };
        group.centroid.remove(text);
        group.members.remove(&entry);
        let (of, empty) = (group.category, group.members.is_empty());
        if empty {
            self.groups.remove(&number);
        }
        let Some(category) = self.categories.get_mut(&of) else { return };
        category.centroid.remove(text);
        if empty {
            category.groups.remove(&number);
        }
        if category.groups.is_empty() {
            self.categories.remove(&of);
        }
    }

    /// Replaces the text of an entry, which stays in its group.
    pub fn replace(&mut self, entry: i64, before: &Signature, now: &Signature) {
        let Some(group) = self.group_of(entry).and_then(|of| self.groups.get_mut(&of)) else {
            return;
        };
        group.centroid.remove(before);
        group.centroid.add(now);
        if let Some(category) = self.categories.get_mut(&group.category) {
            category.centroid.remove(before);
            category.centroid.add(now);
        }
    }

    /// Founds an empty group in the category that the text is most like, or in a new one.
    fn found(&mut self, text: &Signature, config: &ClustersConfig) -> u32 {
        let categories = self.categories.iter().map(|(number, of)| (*number, of.centroid()));
        let category = match nearest(categories, text) {
            Some((category, likeness)) if likeness >= config.category_likeness => category,
            _ => self.number(),
        };
        let number = self.number();
        let (centroid, members, summary) = Default::default();
        self.groups.insert(number, Group { category, centroid, members, summary });
        self.categories.entry(category).or_default().groups.insert(number);
        number
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    fn join(&mut self, entry: i64, text: &Signature, number: u32) {
        let Some(group) = self.groups.get_mut(&number) else { return };
        group.centroid.add(text);
        group.members.insert(entry);
        self.group_of.insert(entry, number);
        self.categories.entry(group.category).or_default().centroid.add(text);
    }

    /// Merges the two categories that are most alike, while there are too many. The lower number stays.
    fn bound_categories(&mut self, config: &ClustersConfig) {
        while self.categories.len() > config.max_categories.max(1) as usize {
            let mut closest: Option<(f64, u32, u32)> = None;
            for (one, first) in &self.categories {
                for (other, second) in self.categories.range(one + 1..) {
                    let likeness = first.centroid.likeness_of_sums(&second.centroid);
                    if closest.is_none_or(|(most, ..)| likeness > most) {
                        closest = Some((likeness, *one, *other));
                    }
                }
            }
            let Some((_, stays, goes)) = closest else { return };
            let Some(gone) = self.categories.remove(&goes) else { return };
            for group in &gone.groups {
                if let Some(group) = self.groups.get_mut(group) {
                    group.category = stays;
                }
            }
            let stays = self.categories.entry(stays).or_default();
            stays.centroid.merge(&gone.centroid);
            stays.groups.extend(gone.groups);
        }
    }

    /// Returns the clusters as the scope's record keeps them, and the number of the next cluster, or 0
    /// if it follows the highest there.
    pub fn records(&self) -> (Vec<CategoryRecord>, u32) {
        let groups = |category: &Category| {
            let groups = category.groups.iter().filter_map(|id| Some((id, self.groups.get(id)?)));
            let record = |(id, group): (&u32, &Group)| GroupRecord {
                id: *id,
                entries: group.members().collect(),
                summary: group.summary().cloned(),
            };
            groups.map(record).collect()
        };
        let categories = self.categories.iter();
        let records = categories.map(|(id, of)| CategoryRecord { id: *id, groups: groups(of) });
        let highest = [self.categories.keys().next_back(), self.groups.keys().next_back()];
        let follows = highest.into_iter().flatten().any(|id| id + 1 == self.next);
        (records.collect(), if follows { 0 } else { self.next })
    }

    /// Restores the clusters from the scope's record and the texts of the entries, without entries that no
    /// longer exist.
    pub fn restored<'e>(
        records: &[CategoryRecord],
        next: u32,
        text_of: impl Fn(i64) -> Option<&'e Signature>,
    ) -> Self {
        let mut clusters = Self { next, ..Self::default() };
        for category in records {
            for group in &category.groups {
                let (centroid, members) = Default::default();
                let summary = group.summary.clone().map(|of| Box::new(WrittenSummary::new(of)));
                let empty = Group { category: category.id, centroid, members, summary };
                let texts = group.entries.iter().filter_map(|at| Some((*at, text_of(*at)?)));
                for (entry, text) in texts {
                    clusters.groups.entry(group.id).or_insert_with(|| empty.clone());
                    let groups = &mut clusters.categories.entry(category.id).or_default().groups;
                    groups.insert(group.id);
                    clusters.join(entry, text, group.id);
                }
                clusters.next = clusters.next.max(group.id + 1).max(category.id + 1);
            }
        }
        clusters
    }
}

/// Returns the sum that a text is most like; of equals the first.
fn nearest<'c>(
    sums: impl Iterator<Item = (u32, &'c Centroid)>,
    text: &Signature,
) -> Option<(u32, f64)> {
    let likenesses = sums.map(|(number, centroid)| (number, centroid.likeness(text)));
    likenesses.reduce(|best, next| if next.1 > best.1 { next } else { best })
}

#[cfg(test)]
mod tests;
