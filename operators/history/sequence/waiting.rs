//! The inputs of a scope: turns and directives, in the order of the log.

use std::sync::Arc;

use turnstream_schemas::{
    ConversationId, DirectiveKind, EventTime, Evicted, InputId, Outcome, Recorded, RecordedReason,
    RequestId, SCHEMA_VERSION, Scope, TenantId, TurnId, UserId,
};

use super::ending::recorded;
use crate::flow::Original;
use crate::history::Database;
use crate::ingest::{ArrivedDirective, ArrivedTurn};

/// An input of a scope that waits for its turn.
#[derive(Debug)]
pub enum WaitingInput {
    /// A turn.
    Turn(Box<ArrivedTurn>),
    /// A directive.
    Directive(Box<ArrivedDirective>),
}

impl WaitingInput {
    /// Returns the request that identifies the input.
    pub fn request(&self) -> RequestId {
        match self {
            Self::Turn(turn) => turn.request,
            Self::Directive(directive) => directive.request,
        }
    }

    /// Returns the scope that it belongs to.
    pub fn scope(&self) -> &Scope {
        match self {
            Self::Turn(turn) => &turn.scope,
            Self::Directive(directive) => &directive.scope,
        }
    }

    pub(super) fn turn_id(&self) -> &TurnId {
        match self {
            Self::Turn(turn) => &turn.turn_id,
            Self::Directive(directive) => &directive.turn_id,
        }
    }

    /// Whether one of the scope's remembered turns has the id that the input's sender gave it. An
    /// input without an id is named by its place in the log, which is its own: a history that was
    /// imported may remember such a name from another log.
    pub(super) fn repeats(&self, database: &Database) -> bool {
        let input = match self {
            Self::Turn(turn) => &turn.input,
            Self::Directive(directive) => &directive.input,
        };
        database.remembers(self.turn_id()) && *self.turn_id() != input.turn_id()
    }

    pub(super) fn original(&self) -> &Arc<Original> {
        match self {
            Self::Turn(turn) => &turn.original,
            Self::Directive(directive) => &directive.original,
        }
    }

    pub(super) fn is_last_of_scope(&self) -> bool {
        match self {
            Self::Turn(turn) => turn.last_of_scope,
            Self::Directive(directive) => directive.last_of_scope,
        }
    }

    /// Makes the outcome of an input that is recorded for this reason.
    pub(super) fn recorded(&self, reason: RecordedReason, evicted: Vec<Evicted>) -> Outcome {
        match self {
            Self::Turn(turn) => recorded(turn, reason, evicted),
            Self::Directive(of) => Outcome::Recorded(Box::new(Recorded {
                schema_version: SCHEMA_VERSION,
                input: of.input.clone(),
                tenant_id: of.directive.tenant_id.clone(),
                conversation_id: of.directive.conversation_id.clone(),
                user_id: of.directive.user_id.clone(),
                turn_id: of.turn_id.clone(),
                reason,
                evicted,
                metadata: of.directive.metadata.clone(),
                extra: of.directive.extra.clone(),
            })),
        }
    }

    /// Whether the input is a directive by which an agent takes the scope over.
    pub(super) fn is_takeover(&self) -> bool {
        matches!(self, Self::Directive(of) if of.directive.kind == DirectiveKind::Takeover)
    }

    /// Returns the input's id and time with its tenant, conversation and user, for a change of
    /// hands.
    pub(super) fn whereabouts(&self) -> Whereabouts<'_> {
        match self {
            Self::Turn(turn) => Whereabouts::of(turn),
            Self::Directive(of) => Whereabouts {
                input: &of.input,
                time: of.event_time,
                tenant_id: of.directive.tenant_id.as_ref(),
                conversation_id: of.directive.conversation_id.as_ref(),
                user_id: of.directive.user_id.as_ref(),
            },
        }
    }
}

/// The id and time of an input, with its tenant, conversation and user.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whereabouts<'i> {
    pub(super) input: &'i InputId,
    pub(super) time: EventTime,
    pub(super) tenant_id: Option<&'i TenantId>,
    pub(super) conversation_id: Option<&'i ConversationId>,
    pub(super) user_id: Option<&'i UserId>,
}

impl<'i> Whereabouts<'i> {
    pub(super) fn of(turn: &'i ArrivedTurn) -> Self {
        Self {
            input: &turn.input,
            time: turn.event_time,
            tenant_id: turn.turn.tenant_id.as_ref(),
            conversation_id: Some(&turn.turn.conversation_id),
            user_id: turn.turn.user_id.as_ref(),
        }
    }
}
