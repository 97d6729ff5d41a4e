//! Imports histories into a log, for `turnstream history import`.
//!
//! ```text
//!  all partitions of the group ─▶ their changelogs ─▶ refuse, or ─▶ histories, rebased ─┐
//!                                 and positions ────────────────▶ the same positions ──┴─▶ commit
//! ```
//!
//! The import behaves as an engine does. It joins the group of the engines that serve the log,
//! restores every partition, and commits together with the positions that it found. So any other
//! engine is fenced, and the log keeps the position to continue from. One transaction holds a whole
//! history. All refusals come before the first transaction.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;
use turnstream_log::{Consumer, Event, LogError, Output, Position, Producer, Topic, Transaction};
use turnstream_schemas::{EntryKey, HistoryChange, Scope, ScopeRecord};

use super::rebase::{NoOrder, rebased};
use super::{Histories, Kept};

/// How long one poll of the group waits.
const POLL: Duration = Duration::from_millis(100);

/// Records after which a transaction is committed. The last history in it may exceed this.
const RECORDS_AT_ONCE: usize = 1_000;

/// Most scopes that an error names.
const NAMED: usize = 5;

/// The log that histories are imported into.
pub struct Target {
    /// Commits under the transactional id of an engine. Dropped before the consumer.
    pub producer: Box<dyn Producer>,
    /// A member of the group of the log's engines.
    pub consumer: Box<dyn Consumer>,
    /// For each partition: the offset from which turns are read while nothing is committed.
    pub beginnings: Vec<i64>,
    /// How long to wait until this process holds all partitions and open transactions have ended.
    pub patience: Duration,
}

/// The histories to import, and how.
pub struct Wanted<'a> {
    /// The histories.
    pub histories: &'a Histories,
    /// Whether to replace the history that the log already has of a scope.
    pub replace: bool,
}

/// The counts of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// Imported histories.
    pub scopes: u64,
    /// Entries of the imported histories.
    pub entries: u64,
    /// Histories that the log already had with the same content.
    pub unchanged: u64,
    /// Imported histories that replaced others, counted in `scopes` too.
    pub replaced: u64,
    /// Written records.
    pub written: u64,
    /// Tombstones among the written records.
    pub removed: u64,
}

/// Why histories cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The log failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A history cannot be ordered.
    #[error(transparent)]
    NoOrder(#[from] NoOrder),
    /// Another process serves the log.
    #[error(
        "after {seconds} s this process has {held} of the log's {of} partitions: another process \
         serves the others"
    )]
    Served {
        /// Partitions that this process holds.
        held: usize,
        /// All partitions.
        of: usize,
        /// How long the import waited.
        seconds: u64,
    },
    /// Another process began to serve the log during the import.
    #[error("another process began to serve the log after {done} histories were imported")]
    Interrupted {
        /// Histories imported before that.
        done: u64,
    },
    /// The log already has histories of these scopes.
    #[error("the log already has a history of {scopes}{place}")]
    AlreadyThere {
        /// The first of these scopes.
        scopes: String,
        /// The partition, if it is not the one of the scope's turns.
        place: String,
    },
}

/// The log's records of one scope: the values by key.
#[derive(Default)]
struct There {
    partition: i32,
    records: BTreeMap<EntryKey, Vec<u8>>,
}

/// A partition that this process holds.
struct Held {
    generation: u32,
    offset: i64,
    metadata: String,
}

/// The partitions, and the log's records of the wanted scopes.
type Look = (BTreeMap<i32, Held>, BTreeMap<Scope, There>);

/// A history to import, with its partition.
struct Going {
    partition: i32,
    entries: u64,
    replaces: bool,
    outputs: Vec<Output>,
}

/// Imports histories into a log. `place` gives the partition of a scope's turns. Calls `advance`
/// after each history.
///
/// # Errors
/// Nothing is written if a history cannot be ordered or already exists, or if another process
/// serves the log. After a later error some histories are imported, each of them whole; the same
/// import again does the rest.
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
    /// With the partition that has it and the partition of its turns, if they differ.
    Refused(Option<(i32, i32)>),
}

/// Builds the refusal. Scopes on the wrong partition come before the others.
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
        format!(", on partition {there}, but its turns come to partition {turns}")
    });
    ImportError::AlreadyThere { scopes, place: place.unwrap_or_default() }
}

/// Decides what to write of a history, given the log's records of its scope.
fn go(
    scope: &Scope,
    kept: &Kept,
    partition: i32,
    there: Option<&There>,
    replace: bool,
) -> Result<Went, NoOrder> {
    // Inputs applied on this log stay applied, even if the history is replaced.
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
    /// Waits until this process holds every partition. Returns their generations.
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

    /// Reads the log: the positions by partition, and the records of the wanted scopes.
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
                    // The import does not touch records that are not a history's.
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

    /// Commits a transaction. `done` is the number of histories before it.
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

/// Our records have only text keys and finite numbers, so encoding them in memory cannot fail.
fn json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).unwrap_or_else(|error| unreachable!("a record of ours: {error}"))
}

#[cfg(test)]
mod tests;
