//! Counts the events of a run, and of all runs.

use std::collections::BTreeMap;
use std::fmt;

use crate::protocol::Step;

/// Counts of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lived {
    pub(crate) inputs: u64,
    pub(crate) responses: u64,
    pub(crate) recorded: u64,
    pub(crate) dead_letters: u64,
    /// Entries that a demand to forget removed.
    pub(crate) forgotten: u64,
    /// User turns while a person held the conversation or was waited for.
    pub(crate) held: u64,
    /// Fragments that were merged into a later turn.
    pub(crate) merged: u64,
    pub(crate) commits: u64,
    pub(crate) aborts: u64,
    /// Transactions of dead processes that the log ended without a marker.
    pub(crate) unmarked: u64,
    /// Crashes by step of the commit protocol.
    pub(crate) crashes: BTreeMap<Step, u64>,
    /// Crashes elsewhere.
    pub(crate) other_crashes: u64,
    pub(crate) expulsions: u64,
    pub(crate) clean_stops: u64,
    pub(crate) late_answers: u64,
    pub(crate) stale: u64,
    pub(crate) skipped: u64,
}

impl Lived {
    pub(crate) fn add(&mut self, other: &Self) {
        self.inputs += other.inputs;
        self.responses += other.responses;
        self.recorded += other.recorded;
        self.dead_letters += other.dead_letters;
        self.forgotten += other.forgotten;
        self.held += other.held;
        self.merged += other.merged;
        self.commits += other.commits;
        self.aborts += other.aborts;
        self.unmarked += other.unmarked;
        self.other_crashes += other.other_crashes;
        self.expulsions += other.expulsions;
        self.clean_stops += other.clean_stops;
        self.late_answers += other.late_answers;
        self.stale += other.stale;
        self.skipped += other.skipped;
        for (step, count) in &other.crashes {
            *self.crashes.entry(*step).or_default() += count;
        }
    }
}

impl fmt::Display for Lived {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inputs, responses, recorded, dead_letters, forgotten, held, merged, .. } = self;
        writeln!(
            out,
            "{inputs} inputs: {responses} responses, {recorded} recorded ({held} held, {merged} merged), \
             {dead_letters} dead letters; {forgotten} entries forgotten"
        )?;
        let Self { commits, aborts, unmarked, expulsions, clean_stops, .. } = self;
        writeln!(
            out,
            "{commits} commits, {aborts} aborted transactions, {unmarked} that the log gave up and \
             did not mark, {expulsions} expulsions, {clean_stops} clean stops"
        )?;
        let Self { late_answers, stale, skipped, .. } = self;
        writeln!(
            out,
            "{skipped} inputs read again and skipped, {late_answers} late answers and {stale} \
             outcomes of older assignments dropped"
        )?;
        writeln!(out, "crashes: {} outside of commits", self.other_crashes)?;
        for (step, count) in &self.crashes {
            writeln!(out, "  {count:>7} {step:?}")?;
        }
        Ok(())
    }
}
