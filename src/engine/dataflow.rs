//! The dataflow as a figure and as one function: [`dialogue`] joins the stages, one line for each,
//! in the order of the flow.
//!
//! ```text
//!  turns ──▶ ingest ──▶ history: recall ──▶ gate ──┬── no ──────────────────────────────────────────┐
//!  (log)      │            ▲                      └── yes ─▶ embedding ─▶ source planning ─┬─ NULL ─┤
//!             │            │                 ┌─────────────────────────────────────────────┘        │
//!             │            │                 ├── facts ─┬─▶ query production ─┐                     │
//!             │            │                 │          └─▶ topic planning ───┴─▶ cross revision    │
//!             │            │                 │                                          │           │
//!             │            │                 └── no facts ─┐   ┌────────────────────────┘           │
//!             │            │                               ▼   ▼                                    │
//!             │            │                 retrieval, in the order of the plan:                   │
//!             │            │                 facts, tables, personas, documents                     │
//!             │            │                ┌────────────────┘                                      │
//!             │            │                ▼                                                       │
//!             │            │            relevance ──▶ fact selection ──▶ decision ◀─────────────────┘
//!             │            │                                                  │
//!             │            │                                             integration ◀── again ─────┐
//!             │            │                                                  │                     │
//!             │            │                                             generation                 │
//!             │            │                                                  │                     │
//!             │            │                                             consistency                │
//!             │            │                                                  │                     │
//!             │            │                                           self-refinement ─────────────┘
//!             │            │                                                  │
//!             │            └──── feedback: history update, eviction ◀─────────┤
//!             ▼                                                               ▼
//!        dead letters                 responses + history changes + offsets, one transaction
//! ```
//!
//! The flow has four loops: history asks models before a recall (`history::preparation`), retrieval
//! asks the sources of a plan one by one, self-refinement makes a response anew, and every turn
//! returns to history when it ends. Outside the streams, history tells the stages that wait for a
//! model which turns are still [awaited](turnstream_operators::awaited).
//!
//! One record, [`TurnInFlight`], goes through all stages. A stage reads and writes the parts that
//! its row of the [table](turnstream_schemas::StageRow) names; builds with debug assertions hold it
//! to that on every branch that a turn takes.

use std::sync::Arc;

use timely::dataflow::StreamVec;
use timely::dataflow::operators::vec::{Branch, Map};
use timely::dataflow::operators::{Concat, Concatenate, ConnectLoop, Feedback};
use turnstream_operators::consistency::consistency;
use turnstream_operators::cross_revision::cross_revision;
use turnstream_operators::decision::{decision, spoken_facts};
use turnstream_operators::embedding::embedding;
use turnstream_operators::fact_selection::fact_selection;
use turnstream_operators::flow::{Epoch, Finished, TurnInFlight};
use turnstream_operators::gate::gate;
use turnstream_operators::gate::later::{after_draft, after_retrieval};
use turnstream_operators::generation::generation;
use turnstream_operators::history::{TurnEnd, history};
use turnstream_operators::ingest::{Input, ingest};
use turnstream_operators::integration::integration;
use turnstream_operators::query_production::query_production;
use turnstream_operators::relevance::{RelevanceForm, relevance};
use turnstream_operators::retrieval::{RetrievalConfig, retrieval};
use turnstream_operators::self_refinement::{RefiningConfig, self_refinement};
use turnstream_operators::source_planning::source_planning;
use turnstream_operators::stage_context::StageContext;
use turnstream_operators::topic_planning::topic_planning;

use crate::dependencies::Dependencies;

/// Joins the stages on one worker. Takes inputs and returns those that have ended.
pub fn dialogue<'scope>(
    inputs: StreamVec<'scope, Epoch, Input>,
    dependencies: &Dependencies,
    context: &StageContext,
) -> StreamVec<'scope, Epoch, Finished> {
    let config = dependencies.config.as_ref().clone();
    let of_sources = RetrievalConfig {
        facts: config.fact_retrieval,
        tables: config.table_retrieval,
        personas: config.persona_retrieval,
        documents: config.document_retrieval,
    };
    let refining = RefiningConfig {
        self_refinement: config.self_refinement,
        is_relevance_judged: config.relevance.form != RelevanceForm::Off,
        integration: config.integration.clone(),
        generation: config.generation.clone(),
        consistency: config.consistency.clone(),
    };
    let (rules, late) = (dependencies.rules(), dependencies.count_late_answers());
    let keeping = dependencies.keeping(context);
    let facts = spoken_facts(&config.decision, &config.generation, &context.sources);
    let scope = inputs.scope();
    let (feedback, answers) = scope.feedback::<Vec<TurnEnd>>(1);

    let (turns, refused) = ingest(inputs, config.turns, dependencies.topic.clone());
    let (recalled, finished) = history(turns, answers, rules, keeping, late);
    let (gated, gate_faults) = gate(recalled, config.gate.clone(), context);
    // Turns pass unchanged unless the gate decides by a draft; `after_retrieval` below does the
    // same for retrieved evidence.
    let (gated, drafts, draft_faults) =
        after_draft(gated, config.gate.clone(), config.generation.clone(), context);
    let (no, yes) = gated.branch(|_, turn| turn.gate.retrieve);
    let (embedded, embedding_faults) = embedding(yes, config.embedding, context);
    let (planned, planning_faults) =
        source_planning(embedded, config.source_planning, facts, context);
    let (asking, null) = planned.branch(|_, turn| turn.plan.0.is_empty());
    // Queries and topics search the graph alone, so other plans skip the stages that make them.
    let sources = Arc::clone(&context.sources);
    let (elsewhere, of_facts) = asking.branch(move |_, turn| sources.have_facts(&turn.plan));
    let queried = query_production(of_facts.clone(), config.query_production, context);
    let planned = topic_planning(of_facts, config.topic_planning, context);
    let (demanded, demand_faults) =
        cross_revision(queried, planned, config.cross_revision, context);
    let demanded = demanded.concat(elsewhere.map(TurnInFlight::without_demand));
    let (retrieved, retrieval_faults) = retrieval(demanded, of_sources, context);
    let (retrieved, relevance_faults) = relevance(retrieved, config.relevance, context);
    let (retrieved, later_faults) = after_retrieval(retrieved, config.gate, context);
    let (unneeded, needed) = retrieved.branch(|_, turn| turn.gate.retrieve);
    let no = no.concat(null).concat(unneeded);
    let (selected, selection_faults) = fact_selection(needed, config.fact_selection, context);
    let grounded = selected.concat(no.map(TurnInFlight::without_knowledge));
    let (decided, decision_faults) = decision(grounded, config.decision, facts, context);
    let (integrated, integration_faults) = integration(decided, config.integration, context);
    let (drafted, generation_faults) = generation(integrated, config.generation, context);
    let (judged, consistency_faults) = consistency(drafted, config.consistency, context);
    let (drafted, refinement_faults) = self_refinement(judged, refining, context);

    // Every fault goes back to `history`, because the scope waits until its turn has ended.
    let faults = [
        gate_faults,
        draft_faults,
        embedding_faults,
        planning_faults,
        demand_faults,
        retrieval_faults,
        relevance_faults,
        later_faults,
        selection_faults,
        decision_faults,
        integration_faults,
        generation_faults,
        consistency_faults,
        refinement_faults,
    ];
    let faults = scope.concatenate(faults).map(|failed| Err(Box::new(failed)));
    let drafted = drafted.concat(drafts);
    drafted.map(|drafted| Ok(Box::new(drafted))).concat(faults).connect_loop(feedback);
    finished.concat(refused)
}
