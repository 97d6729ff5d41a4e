//! The figure: how the stages are joined. One function, one line per stage, in the order of the
//! flow.
//!
//! ```text
//!  turns ──▶ ingest ──▶ history: recall ──▶ gate ──┬── no ───────────────────────────────┐
//!  (log)      │            ▲                      └── yes ─┬─▶ query production ─┐       │
//!             │            │                                └─▶ topic planning ───┴─▶ cross revision
//!             │            │                            ┌─────────────────────────────────┘
//!             │            │                            ▼
//!             │            │                     fact retrieval ──▶ fact selection ──▶ generation
//!             │            │                                                               │
//!             │            └──── feedback: history update, eviction ◀──────────────────────┤
//!             ▼                                                                            ▼
//!        dead letters                              responses + history changes + offsets, one transaction
//! ```

use std::sync::Arc;

use timely::dataflow::StreamVec;
use timely::dataflow::operators::vec::{Branch, Map};
use timely::dataflow::operators::{Concat, Concatenate, ConnectLoop, Feedback};
use turnstream_operators::flow::{Epoch, Finished, Grounded};
use turnstream_operators::history::Answer;
use turnstream_operators::ingest::Input;
use turnstream_operators::stage::{Clock, OnFailure, Shell};
use turnstream_operators::{
    cross_revision, fact_retrieval, fact_selection, gate, generation, history, ingest,
    query_production, topic_planning,
};

use crate::worker::Parts;

/// Joins the stages on one worker: inputs in, inputs that ended out.
pub fn dialogue<'scope>(
    inputs: StreamVec<'scope, Epoch, Input>,
    parts: &Parts,
    clock: &Clock,
) -> StreamVec<'scope, Epoch, Finished> {
    let config = &parts.config;
    let scope = inputs.scope();
    let shell = |on_failure: OnFailure| Shell { clock: clock.clone(), on_failure };
    let (back, answers) = scope.feedback::<Vec<Answer>>(1);
    let rules = parts.rules();
    let late = parts.count_late_answers();

    let (turns, refused) = ingest::ingest(inputs, config.turns.clone(), Arc::clone(&parts.topic));
    let (recalled, finished) = history::history(turns, answers, rules, late);
    let (gated, gate_faults) = gate::gate(recalled, shell(config.gate.on_failure), words.clone());
    let (no, yes) = gated.branch(|_, turn| turn.gate.retrieve);
    let queried = query_production::query_production(yes.clone(), &config.query_production);
    let planned = topic_planning::topic_planning(yes, &config.topic_planning);
    let (demanded, demand_faults) = cross_revision::cross_revision(queried, planned);
    let (retrieved, retrieval_faults) = fact_retrieval::fact_retrieval(demanded);
    let (selected, selection_faults) = fact_selection::fact_selection(retrieved);
    let grounded = selected.concat(no.map(Grounded::without_knowledge));
    let (drafted, generation_faults) = generation::generation(grounded, call);

    let faults = [gate_faults, demand_faults, retrieval_faults, selection_faults, generation_faults];
    let faults = scope.concatenate(faults).map(|failed| Err(Box::new(failed)));
    drafted.map(|drafted| Ok(Box::new(drafted))).concat(faults).connect_loop(back);
    finished.concat(refused)
}
