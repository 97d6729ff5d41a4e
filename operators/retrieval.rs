//! Retrieval asks the sources of a turn's plan one after the other, each through its operator.
//!
//! ```text
//!             ┌──▶ fact retrieval ─────┐
//!  demanded ──┼──▶ table retrieval ────┼──▶ the next source of the plan, or ──▶ retrieved
//!     ▲       ├──▶ persona retrieval ──┤
//!     │       └──▶ document retrieval ─┘
//!     └─────────────── feedback ───────┘
//! ```
//!
//! A dependent source is asked after those before it in the plan have answered, so that it can use their
//! evidence. Key: none. State: none; the turn itself counts the sources that it has asked. Each round goes
//! through one operator, so a plan of n sources takes n rounds. A source that is not configured ends the
//! plan.

use std::sync::Arc;

use timely::dataflow::StreamVec;
use timely::dataflow::operators::vec::{Map, Partition};
use timely::dataflow::operators::{Concat, Concatenate, ConnectLoop, Feedback};
use turnstream_schemas::SourceKind;

use crate::document_retrieval::{DocumentRetrievalConfig, document_retrieval};
use crate::fact_retrieval::{FactRetrievalConfig, fact_retrieval};
use crate::flow::{Epoch, TurnInFlight};
use crate::persona_retrieval::{PersonaRetrievalConfig, persona_retrieval};
use crate::stage::Streams;
use crate::stage_context::StageContext;
use crate::table_retrieval::{TableRetrievalConfig, table_retrieval};

/// How each kind of source is asked.
#[derive(Clone, Debug, Default)]
pub struct RetrievalConfig {
    /// The graph.
    pub facts: FactRetrievalConfig,
    /// Tables.
    pub tables: TableRetrievalConfig,
    /// Personas.
    pub personas: PersonaRetrievalConfig,
    /// The documents.
    pub documents: DocumentRetrievalConfig,
}

/// Runs retrieval over a stream of planned turns. Returns (turns with the evidence from their sources,
/// faults).
pub fn retrieval<'scope>(
    turns: StreamVec<'scope, Epoch, TurnInFlight>,
    config: RetrievalConfig,
    context: &StageContext,
) -> Streams<'scope, TurnInFlight> {
    let scope = turns.scope();
    let (feedback, again) = scope.feedback::<Vec<TurnInFlight>>(1);
    let sources = Arc::clone(&context.sources);
    let by_kind =
        turns.map(TurnInFlight::unasked).concat(again).partition(5, move |turn: TurnInFlight| {
            let kind = turn.source(&sources).map(|source| source.config.kind);
            (way(kind), turn)
        });
    let Ok([facts, tables, personas, documents, retrieved]) = <[_; 5]>::try_from(by_kind) else {
        unreachable!("the stream was parted into five")
    };
    let RetrievalConfig {
        facts: of_facts,
        tables: of_tables,
        personas: of_personas,
        documents: of_documents,
    } = config;
    let (facts, fact_faults) = fact_retrieval(facts, of_facts, context);
    let (tables, table_faults) = table_retrieval(tables, of_tables, context);
    let (personas, persona_faults) = persona_retrieval(personas, of_personas, context);
    let (documents, document_faults) = document_retrieval(documents, of_documents, context);
    let asked = scope.concatenate([facts, tables, personas, documents]);
    asked.map(|turn| TurnInFlight { asked: turn.asked + 1, ..turn }).connect_loop(feedback);
    (retrieved, scope.concatenate([fact_faults, table_faults, persona_faults, document_faults]))
}

/// Returns the branch for a turn whose next source is of this kind; the last branch if no source is
/// left.
fn way(kind: Option<SourceKind>) -> u64 {
    match kind {
        Some(SourceKind::Graph) => 0,
        Some(SourceKind::Table) => 1,
        Some(SourceKind::UserPersona | SourceKind::BotPersona) => 2,
        Some(SourceKind::Documents) => 3,
        None => 4,
    }
}

#[cfg(test)]
mod tests;
