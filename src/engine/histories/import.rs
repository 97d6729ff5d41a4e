//! Histories into a log: what `turnstream history import` does to it.
//!
//! ```text
//!  all partitions of the group ─▶ their changelogs ─▶ refuse, or ─▶ histories, rebased ─┐
//!                                 and positions ────────────────▶ the same positions ──┴─▶ commit
//! ```
//!
//! It goes about it as an engine does: it joins the group of those that serve the log, restores
//! every partition, and commits with the positions that it found, so that whatever engine there is
//! or was is fenced, and so that the log knows where to begin. A history goes in whole, in one
//! transaction. What is to be refused is refused before the first of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;
use turnstream_log::{Consumer, Event, LogError, Output, Position, Producer, Topic, Transaction};
use turnstream_schemas::{EntryKey, HistoryChange, Scope, ScopeRecord};

use super::rebase::{NoOrder, rebased};
use super::{Histories, Kept};

/// How long one look at the group waits.
const POLL: Duration = Duration::from_millis(100);

/// Records of one transaction, until the history that goes over it ends.
const RECORDS_AT_ONCE: usize = 1_000;

/// Scopes that a refusal names.
const NAMED: usize = 5;

/// A log that histories go into.
pub struct Target {
    /// Commits under the transactional id of an engine. It goes before the consumer does.
    pub producer: Box<dyn Producer>,
    /// A member of the group of the log's engines.
    pub consumer: Box<dyn Consumer>,
    /// For each partition: where reading of turns begins while nothing is committed of it.
    pub beginnings: Vec<i64>,
    /// How long all partitions may take to be ours, and open transactions to end.
    pub patience: Duration,
}

/// What goes in, and how.
pub struct Wanted<'a> {
    /// The histories.
    pub histories: &'a Histories,
    /// Whether a history of such a scope that is there already gives way.
    pub replace: bool,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// Histories that went in.
    pub scopes: u64,
    /// Their entries.
    pub entries: u64,
    /// Histories that were there just so before.
    pub unchanged: u64,
    /// Histories that others gave way to, among `scopes`.
    pub replaced: u64,
    /// Records that were written.
    pub written: u64,
    /// Tombstones among them.
    pub removed: u64,
}

/// Why histories do not go in.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A history that cannot be put in order.
    #[error(transparent)]
    NoOrder(#[from] NoOrder),
    /// Others serve the log.
    #[error(
        "of the log's {of} partitions {held} are ours after {seconds} s: somebody else serves the \
         others"
    )]
    Served {
        /// Partitions that were given to us.
        held: usize,
        /// All.
        of: usize,
        /// How long they were waited for.
        seconds: u64,
    },
    /// Others began to serve it.
    #[error("another process began to serve the log; {done} histories went in before")]
    Interrupted {
        /// Histories that went in.
        done: u64,
    },
    /// The log has histories of these scopes.
    #[error("the log has a history of {scopes} already{place}")]
    AlreadyThere {
        /// Some of them.
        scopes: String,
        /// Where, if that is not where their turns come to.
        place: String,
    },
}

/// What a log has of one scope, by key: the value's bytes.
#[derive(Default)]
struct There {
    partition: i32,
    records: BTreeMap<EntryKey, Vec<u8>>,
}

/// A partition that is ours.
struct Held {
    generation: u32,
    offset: i64,
    metadata: String,
}

/// The partitions, and what the log has of the wanted scopes.
type Look = (BTreeMap<i32, Held>, BTreeMap<Scope, There>);

/// A history and where it goes.
struct Going {
    partition: i32,
    entries: u64,
    replaces: bool,
    outputs: Vec<Output>,
}

/// Puts histories into a log, each on the partition that `place` says its turns come to; tells
/// `advance` of every one.
///
/// # Errors
/// Nothing is written where histories have no order, are there already, or somebody serves the log.
/// Later errors leave some of them on the log, each whole: the same import again does the rest.
pub fn import(
    target: &mut Target,
    wanted: &Wanted<'_>,
    place: &dyn Fn(&Scope) -> i32,
    advance: &dyn Fn(),
) -> Result<Imported, ImportError> {
    let generations = target.hold_all()?;
    let (held, there) = target.look(generations, wanted.histories)?;
    let mut done = Imported::default();
    let mut going = Vec::new();
    let mut refused = Vec::new();
    let is_something =
        |(_, kept): &(_, &Kept)| !kept.entries.is_empty() || kept.record != ScopeRecord::default();
    for (scope, kept) in wanted.histories.iter().filter(is_something) {
        match go(scope, kept, place(scope), there.get(scope), wanted.replace)? {
            Went::Goes(history) => going.push(history),
            Went::IsThere => done.unchanged += 1,
            Went::Refused(at) => refused.push((scope, at)),
        }
    }
    if !refused.is_empty() {
        return Err(already_there(refused));
    }
    let (mut transaction, mut committed) = (Transaction::default(), 0);
    for Going { partition, entries, replaces, outputs } in going {
        done.scopes += 1;
        done.entries += entries;
        done.replaced += u64::from(replaces);
        done.written += outputs.len() as u64;
        done.removed += outputs.iter().filter(|output| output.value.is_none()).count() as u64;
        let Some(Held { generation, offset, metadata }) = held.get(&partition) else {
            return Err(LogError::Stale { partitions: vec![partition] }.into());
        };
        if !transaction.positions.iter().any(|position| position.partition == partition) {
            let (generation, offset, metadata) = (*generation, *offset, metadata.clone());
            transaction.positions.push(Position { partition, generation, offset, metadata });
        }
        transaction.outputs.extend(outputs);
        advance();
        if transaction.outputs.len() >= RECORDS_AT_ONCE {
            target.commit(&std::mem::take(&mut transaction), committed)?;
            committed = done.scopes;
        }
    }
    target.commit(&transaction, committed)?;
    Ok(done)
}

enum Went {
    Goes(Going),
    IsThere,
    /// With where it is and where it should be, if that is not the same.
    Refused(Option<(i32, i32)>),
}

/// Which scopes are refused; those that are not where they should be before the others.
fn already_there(mut refused: Vec<(&Scope, Option<(i32, i32)>)>) -> ImportError {
    refused.sort_by_key(|(_, at)| at.is_none());
    let first = refused.first().and_then(|(_, at)| *at);
    refused.retain(|(_, at)| *at == first);
    let named = refused.iter().take(NAMED).map(|(scope, _)| format!("`{scope}`"));
    let mut scopes = named.collect::<Vec<_>>().join(", ");
    if refused.len() > NAMED {
        scopes = format!("{scopes} and {} more", refused.len() - NAMED);
    }
    let place = first.map(|(there, turns)| {
        format!(", on partition {there}, and its turns come to partition {turns}")
    });
    ImportError::AlreadyThere { scopes, place: place.unwrap_or_default() }
}

/// What of a history must be written, where the log has this of its scope.
fn go(
    scope: &Scope,
    kept: &Kept,
    partition: i32,
    there: Option<&There>,
    replace: bool,
) -> Result<Went, NoOrder> {
    // What was applied on this log stays applied, also where its history gives way.
    let own = there.and_then(|it| it.records.get(&EntryKey { scope: scope.clone(), entry: None }));
    let own = own.and_then(|value| serde_json::from_slice::<ScopeRecord>(value).ok());
    let applied = own.map_or(-1, |record| record.last_applied_offset.max(-1));
    let mut changes = BTreeMap::new();
    for change in rebased(scope, kept, (partition, applied))? {
        let value = match &change {
            HistoryChange::Entry { entry, .. } => Some(json(entry)),
            HistoryChange::Scope { record, .. } => Some(json(record)),
            HistoryChange::Gone { .. } => None,
        };
        changes.insert(change.key().clone(), value);
    }
    if let Some(There { partition: at, records }) = there {
        let same = |(key, value): (&EntryKey, &Option<Vec<u8>>)| records.get(key) == value.as_ref();
        if *at == partition && records.len() == changes.len() && changes.iter().all(same) {
            return Ok(Went::IsThere);
        }
        if *at != partition {
            return Ok(Went::Refused(Some((*at, partition))));
        }
        if !replace {
            return Ok(Went::Refused(None));
        }
        for key in records.keys() {
            changes.entry(key.clone()).or_insert(None);
        }
    }
    let output = |(key, value): (EntryKey, Option<Vec<u8>>)| Output {
        topic: Topic::History,
        partition,
        input_offset: -1,
        key: Some(json(&key)),
        value,
        headers: Vec::new(),
    };
    let outputs = changes.into_iter().map(output).collect();
    let entries = kept.entries.len() as u64;
    Ok(Went::Goes(Going { partition, entries, replaces: there.is_some(), outputs }))
}

impl Target {
    /// Waits until every partition is ours; gives their generations.
    fn hold_all(&mut self) -> Result<BTreeMap<i32, u32>, ImportError> {
        let (begun, of) = (Instant::now(), self.beginnings.len());
        let mut held = BTreeMap::new();
        while held.len() < of {
            match self.consumer.poll(POLL)? {
                Event::Assigned(assigned) => {
                    held.extend(assigned.iter().map(|it| (it.partition, it.generation)));
                }
                Event::Revoked(partitions) | Event::Lost(partitions) => {
                    held.retain(|partition, _| !partitions.contains(partition));
                    self.consumer.release()?;
                }
                Event::Records(_) | Event::End => {}
            }
            if begun.elapsed() > self.patience {
                let seconds = self.patience.as_secs();
                return Err(ImportError::Served { held: held.len(), of, seconds });
            }
        }
        Ok(held)
    }

    /// What the log has: positions by partition, and what lies there of the wanted scopes.
    fn look(
        &mut self,
        generations: BTreeMap<i32, u32>,
        wanted: &Histories,
    ) -> Result<Look, ImportError> {
        let (begun, mut held, mut there) = (Instant::now(), BTreeMap::new(), BTreeMap::new());
        for (partition, generation) in generations {
            let restored = loop {
                let mut found = BTreeMap::<Scope, There>::new();
                let restored = self.consumer.restore(partition, &mut |record| {
                    let key = record.key.as_deref().unwrap_or_default();
                    // What is no history's is nothing that the import would touch.
                    let Ok(key) = serde_json::from_slice::<EntryKey>(key) else { return Ok(()) };
                    if wanted.of(&key.scope).is_none() {
                        return Ok(());
                    }
                    let of = found.entry(key.scope.clone()).or_default();
                    of.partition = partition;
                    match record.value {
                        Some(value) => drop(of.records.insert(key, value)),
                        None => drop(of.records.remove(&key)),
                    }
                    Ok(())
                });
                match restored {
                    Err(LogError::Unsettled { .. }) if begun.elapsed() < self.patience => {
                        std::thread::sleep(POLL);
                    }
                    restored => {
                        there.extend(found.into_iter().filter(|(_, of)| !of.records.is_empty()));
                        break restored?;
                    }
                }
            };
            let begins = usize::try_from(partition).ok().and_then(|at| self.beginnings.get(at));
            let offset = restored.position.or(begins.copied()).unwrap_or_default();
            held.insert(partition, Held { generation, offset, metadata: restored.metadata });
        }
        Ok((held, there))
    }

    /// Commits, after so many histories.
    fn commit(&mut self, transaction: &Transaction, done: u64) -> Result<(), ImportError> {
        let interrupted = || ImportError::Interrupted { done };
        match self.consumer.poll(Duration::ZERO)? {
            Event::Revoked(_) | Event::Lost(_) => return Err(interrupted()),
            Event::Assigned(_) | Event::Records(_) | Event::End => {}
        }
        match self.producer.commit(transaction) {
            Err(LogError::Stale { .. }) => Err(interrupted()),
            committed => Ok(committed?),
        }
    }
}

/// Our records hold text keys and finite numbers only, so writing one to memory cannot fail.
fn json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).unwrap_or_else(|error| unreachable!("a record of ours: {error}"))
}

#[cfg(test)]
mod tests;
