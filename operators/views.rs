//! Views count committed responses, histories and the knowledge, and keep the counts up to date as
//! these change.
//!
//! ```text
//!  responses ──▶ facts used ──────┬─▶ count ─────────────────────▶ facts_used
//!  (committed)        │           ├─▶ by relation, count ────────▶ relations_used
//!                     └─ semijoin ┴─▶ count ─────────────────────▶ withdrawn_facts_used
//!                           ▲
//!  knowledge ──▶ statements │ taken back
//!   (topic)  └─▶ concepts named ──┐
//!                                 ▼
//!  responses ──▶ missing ──────▶ antijoin ──▶ count ─────────────▶ concepts_missing
//!            ├─▶ asked ─────────────────────▶ count ─────────────▶ concepts_asked
//!            └─▶ action ────────────────────▶ count ─────────────▶ actions
//!  histories ──▶ views of histories: `views/histories.rs`
//! ```
//!
//! The views run in a dataflow of their own, beside the one that answers. It reads only committed
//! records, so it cannot hold a turn back, and no turn depends on it. Its time is the number of steps.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use differential_dataflow::VecCollection;
use differential_dataflow::input::InputSession;
use rustc_hash::FxHashMap;
use timely::dataflow::ProbeHandle;
use timely::dataflow::operators::Probe;
use timely::worker::Worker;
use turnstream_knowledge::Change;
use turnstream_schemas::{Action, FactKey, HistoryChange, Response, ViewKey, ViewName};

use crate::fact_retrieval::evidence_id;

use self::histories::Histories;

mod histories;

/// The time of the dataflow: the number of steps so far.
type StepCount = u64;

/// A partition, and a key that a view counts on it.
type Shown = (i32, String);

/// A collection of the dataflow.
type Rows<'scope, D> = VecCollection<'scope, StepCount, D>;

/// Changes of a view's rows: (key, count), +1 where it comes and −1 where it goes.
type Differences = Rc<RefCell<Vec<((ViewKey, i64), i64)>>>;

/// The views on one worker.
pub struct Views {
    /// A fact that grounds a response, with its relation.
    facts: InputSession<StepCount, (Shown, String), isize>,
    asked: InputSession<StepCount, Shown, isize>,
    missing: InputSession<StepCount, Shown, isize>,
    actions: InputSession<StepCount, Shown, isize>,
    taken_back: InputSession<StepCount, String, isize>,
    named: InputSession<StepCount, String, isize>,
    histories: Histories,
    /// By key on the knowledge topic: whether the statement is asserted.
    standing: FxHashMap<FactKey, bool>,
    probe: ProbeHandle<StepCount>,
    differences: Differences,
    step: StepCount,
}

/// A key of a view with its new count; `None` if nothing is left to count.
pub type ViewChange = (ViewKey, Option<u64>);

impl Views {
    /// Builds the dataflow, without input yet.
    pub fn install(worker: &mut Worker) -> Self {
        let mut views = Self {
            facts: InputSession::new(),
            asked: InputSession::new(),
            missing: InputSession::new(),
            actions: InputSession::new(),
            taken_back: InputSession::new(),
            named: InputSession::new(),
            histories: Histories::default(),
            standing: FxHashMap::default(),
            probe: ProbeHandle::new(),
            differences: Differences::default(),
            step: 0,
        };
        worker.dataflow::<StepCount, _, _>(|scope| {
            let facts = views.facts.to_collection(scope);
            let asked = views.asked.to_collection(scope);
            let missing = views.missing.to_collection(scope);
            let actions = views.actions.to_collection(scope);
            let taken_back = views.taken_back.to_collection(scope).distinct();
            let named = views.named.to_collection(scope).distinct();

            let used = facts.clone().map(|(shown, _)| shown);
            let relations = facts.map(|((partition, _), relation)| (partition, relation));
            let by_key = |(partition, key): Shown| (key, partition);
            let withdrawn = used.clone().map(by_key).semijoin(taken_back);
            let withdrawn = withdrawn.map(|(key, partition)| (partition, key));
            let missing = missing.map(by_key).antijoin(named);
            let missing = missing.map(|(key, partition)| (partition, key));

            let rows = counted(used, ViewName::FactsUsed)
                .concat(counted(relations, ViewName::RelationsUsed))
                .concat(counted(withdrawn, ViewName::WithdrawnFactsUsed))
                .concat(counted(asked, ViewName::ConceptsAsked))
                .concat(counted(missing, ViewName::ConceptsMissing))
                .concat(counted(actions, ViewName::Actions))
                .concat(views.histories.install(scope, &views.probe));
            let differences = Rc::clone(&views.differences);
            let noted = rows.consolidate().inspect(move |(row, _, difference)| {
                differences.borrow_mut().push((row.clone(), *difference as i64));
            });
            noted.inner.probe_with(&views.probe);
        });
        views
    }

    /// Counts a response that was committed to a partition, brief or whole.
    pub fn insert(&mut self, partition: i32, response: &Response) {
        if let Some(action) = response.action.map(Action::name) {
            let reason = response.hand_off.filter(|_| response.action == Some(Action::HandOff));
            let key = match reason {
                Some(reason) => format!("{action}/{}", reason.name()),
                None => action.to_owned(),
            };
            self.actions.insert((partition, key));
        }
        self.insert_trace(partition, response);
    }

    /// Counts what led to a response whose record was brief.
    pub fn insert_trace(&mut self, partition: i32, trace: &Response) {
        for evidence in trace.evidence.iter().filter(|evidence| evidence.selected) {
            let Some(fact) = &evidence.fact else { continue };
            self.facts.insert(((partition, evidence.id.0.clone()), fact.relation.clone()));
        }
        for concept in asked(trace) {
            self.asked.insert((partition, concept.to_owned()));
        }
        for concept in missing(trace) {
            self.missing.insert((partition, concept.to_owned()));
        }
    }

    /// Applies a change from the `knowledge` topic.
    pub fn learn(&mut self, change: &Change) {
        let stands = change.upsert.is_some();
        let before = self.standing.insert(change.key.clone(), stands);
        if before == Some(stands) {
            return;
        }
        let FactKey { source, head, relation, tail } = &change.key;
        let id = evidence_id(source, relation, head, tail).0;
        if stands {
            self.named.update(head.clone(), 1);
            self.named.update(tail.clone(), 1);
            if before.is_some() {
                self.taken_back.update(id, -1);
            }
        } else {
            if before.is_some() {
                self.named.update(head.clone(), -1);
                self.named.update(tail.clone(), -1);
            }
            self.taken_back.update(id, 1);
        }
    }

    /// Applies a change from a partition of the `history` topic. `bytes` is the size of its key and
    /// value.
    pub fn remember(&mut self, partition: i32, change: &HistoryChange, bytes: usize) {
        self.histories.take(partition, change, bytes);
    }

    /// Returns how many entries of histories and records of scopes are kept.
    pub fn remembered(&self) -> usize {
        self.histories.keys()
    }

    /// Returns how many statements of the `knowledge` topic are kept, asserted or retracted.
    pub fn statements(&self) -> usize {
        self.standing.len()
    }

    /// Processes all input since the last step, and returns the rows that changed, in order of
    /// their keys, each once.
    pub fn step(&mut self, worker: &mut Worker) -> Vec<ViewChange> {
        self.step += 1;
        let Self { facts, asked, missing, actions, taken_back, named, .. } = self;
        for shown in [asked, missing, actions] {
            shown.advance_to(self.step);
            shown.flush();
        }
        for names in [taken_back, named] {
            names.advance_to(self.step);
            names.flush();
        }
        facts.advance_to(self.step);
        facts.flush();
        self.histories.advance_to(self.step);
        while self.probe.less_than(&self.step) {
            worker.step();
        }
        let mut changed = BTreeMap::<ViewKey, Option<u64>>::new();
        let clusters = self.histories.drain_clusters();
        for ((key, count), difference) in self.differences.borrow_mut().drain(..).chain(clusters) {
            let row = changed.entry(key).or_default();
            // The old row and the new one may come in any order.
            if difference > 0 {
                *row = Some(count.unsigned_abs());
            }
        }
        changed.into_iter().collect()
    }
}

/// Returns the rows of a view: how often each key occurs.
fn counted(shown: Rows<'_, Shown>, view: ViewName) -> Rows<'_, (ViewKey, i64)> {
    shown
        .count()
        .map(move |((partition, key), count)| (ViewKey { view, partition, key }, count as i64))
}

/// Returns the concepts that a response's demand asks for, each once.
fn asked(response: &Response) -> Vec<&str> {
    let explicit = response.demand.queries.explicit.iter().map(|query| query.concept.as_str());
    once(explicit.collect())
}

/// Returns the concepts that a response's demand asks for and found no fact about, each once.
fn missing(response: &Response) -> Vec<&str> {
    once(response.demand.missing.iter().map(String::as_str).collect())
}

fn once(mut of: Vec<&str>) -> Vec<&str> {
    of.sort_unstable();
    of.dedup();
    of
}

#[cfg(test)]
mod tests;
