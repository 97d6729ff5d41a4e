//! The inputs of a scope: turns and demands to forget, in the order of the log.

use std::sync::Arc;

use turnstream_schemas::{
    Evicted, Outcome, Recorded, RecordedReason, RequestId, SCHEMA_VERSION, Scope, TurnId,
};

use crate::flow::Original;
use crate::ingest::{ArrivedForget, ArrivedTurn};

/// An input of a scope that waits for its turn.
#[derive(Debug)]
pub enum WaitingInput {
    /// A turn.
    Turn(Box<ArrivedTurn>),
    /// A demand to forget the inputs before it.
    Forget(Box<ArrivedForget>),
}

impl WaitingInput {
    /// The request that identifies the input.
    pub fn request(&self) -> RequestId {
        match self {
            Self::Turn(turn) => turn.request,
            Self::Forget(forget) => forget.request,
        }
    }

    /// The scope that it belongs to.
    pub fn scope(&self) -> &Scope {
        match self {
            Self::Turn(turn) => &turn.scope,
            Self::Forget(forget) => &forget.scope,
        }
    }

    pub(super) fn turn_id(&self) -> &TurnId {
        match self {
            Self::Turn(turn) => &turn.turn_id,
            Self::Forget(forget) => &forget.turn_id,
        }
    }

    pub(super) fn original(&self) -> &Arc<Original> {
        match self {
            Self::Turn(turn) => &turn.original,
            Self::Forget(forget) => &forget.original,
        }
    }

    pub(super) fn is_last_of_scope(&self) -> bool {
        match self {
            Self::Turn(turn) => turn.last_of_scope,
            Self::Forget(forget) => forget.last_of_scope,
        }
    }

    /// The outcome of an input that is recorded for this reason.
    pub(super) fn recorded(&self, reason: RecordedReason, evicted: Vec<Evicted>) -> Outcome {
        match self {
            Self::Turn(turn) => recorded(turn, reason, evicted),
            Self::Forget(of) => Outcome::Recorded(Box::new(Recorded {
                schema_version: SCHEMA_VERSION,
                input: of.input.clone(),
                tenant_id: of.forget.tenant_id.clone(),
                conversation_id: of.forget.conversation_id.clone(),
                user_id: of.forget.user_id.clone(),
                turn_id: of.turn_id.clone(),
                reason,
                evicted,
                metadata: of.forget.metadata.clone(),
                extra: of.forget.extra.clone(),
            })),
        }
    }
}

/// The outcome of a turn that is recorded for this reason.
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
