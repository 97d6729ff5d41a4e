//! Makes the outcomes of turns, responses and recorded turns, and the entries of the history.

use turnstream_schemas::{
    Evicted, HistoryEntry, Outcome, RecalledTurn, Recorded, RecordedReason, Response,
    SCHEMA_VERSION,
};

use crate::flow::TurnInFlight;
use crate::ingest::ArrivedTurn;

/// Makes the outcome of a turn that is recorded for this reason.
pub(super) fn recorded(
    turn: &ArrivedTurn,
    reason: RecordedReason,
    evicted: Vec<Evicted>,
) -> Outcome {
    Outcome::Recorded(Box::new(Recorded {
        schema_version: SCHEMA_VERSION,
        input: turn.input.clone(),
        tenant_id: turn.turn.tenant_id.clone(),
        conversation_id: Some(turn.turn.conversation_id.clone()),
        user_id: turn.turn.user_id.clone(),
        turn_id: turn.turn_id.clone(),
        reason,
        evicted,
        metadata: turn.turn.metadata.clone(),
        extra: turn.turn.extra.clone(),
    }))
}

/// Makes the entry of a turn that has no response yet.
pub(super) fn unanswered(turn: &ArrivedTurn, query: Option<&str>) -> HistoryEntry {
    HistoryEntry {
        schema_version: SCHEMA_VERSION,
        input: turn.input.clone(),
        query: query.map(str::to_owned),
        turn_id: turn.turn_id.clone(),
        user_id: turn.turn.user_id.clone(),
        passages: Vec::new(),
        response: None,
        response_turn_id: None,
        event_time: turn.event_time,
        vector: None,
        extra: serde_json::Map::new(),
    }
}

/// Makes the response to a turn that went down the flow.
pub(super) fn response(
    turn: &ArrivedTurn,
    drafted: TurnInFlight,
    evicted: Vec<Evicted>,
) -> Response {
    let recalled = drafted.context.recalled.iter();
    let history = recalled.enumerate().map(|(place, recalled)| {
        let attended = drafted.history.iter().find(|attended| attended.place == place);
        RecalledTurn {
            turn_id: recalled.entry.turn_id.clone(),
            via: recalled.via,
            relevance: Some(recalled.relevance),
            weight: recalled.weight,
            passage: recalled.best_passage().map(|passage| passage.id.clone()),
            attention: attended.map(|attended| attended.attention),
            left_out: attended.is_some_and(|attended| attended.left_out),
        }
    });
    let history = history.collect();
    Response {
        schema_version: SCHEMA_VERSION,
        response_id: turn.input.response_id(),
        input: turn.input.clone(),
        tenant_id: turn.turn.tenant_id.clone(),
        conversation_id: turn.turn.conversation_id.clone(),
        user_id: turn.turn.user_id.clone(),
        turn_id: turn.turn_id.clone(),
        text: drafted.draft.text,
        action: drafted.decision.as_ref().map(|it| it.action),
        hand_off: drafted.decision.as_ref().and_then(|it| it.hand_off),
        answer_precision: drafted.decision.as_ref().and_then(|it| it.precision),
        citations: drafted.draft.citations,
        brief: false,
        // The committer sets it.
        fingerprint: None,
        history,
        gate: drafted.gate,
        demand: drafted.demand,
        plan: drafted.plan,
        evidence: drafted.evidence,
        refinement: drafted.refinement.rounds,
        evicted,
        query_reconstructed: drafted.context.reconstructed.as_ref().map(|it| it.query.clone()),
        confidence: drafted.draft.confidence,
        knowledge: drafted.knowledge.state().clone(),
        model: drafted.draft.model,
        degraded: drafted.progress.degraded.into_iter().map(Into::into).collect(),
        models: drafted.progress.models,
        timings_us: drafted.progress.timings_us,
        metadata: turn.turn.metadata.clone(),
        extra: turn.turn.extra.clone(),
    }
}
