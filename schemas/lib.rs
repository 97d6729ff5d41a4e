//! Defines the records that flow through turnstream.
//!
//! Every record that enters or leaves the engine, or travels between two operators under a name from
//! the papers, is a type in this package. The types only define how a record is written, read and
//! described. The package depends neither on timely nor on any client of a log, a model or an index.
//!
//! Reading order is data order:
//!
//! 1. [`turn`] and [`directive`]: the records of the `turns` topic;
//! 2. [`history`]: the entries that a scope keeps, and the changes published about them, with
//!    [`hierarchy`]: their groups and chains;
//! 3. [`demand`]: which knowledge a turn asks for (queries, topics, revisions);
//! 4. [`plan`]: which sources are asked, in which order;
//! 5. [`evidence`]: the answers of the sources;
//! 6. [`response`]: the records of the `responses` and `traces` topics, and [`fingerprint`]: the
//!    digests of program, configuration and models that made a response;
//! 7. [`outcome`]: the three ways an input can end, and [`handover`]: who holds a conversation
//!    afterwards;
//! 8. [`stages`]: the table of stages, and [`fault`]: the reason why a stage could not serve a
//!    turn;
//! 9. [`knowledge`]: changes of the knowledge while turns flow;
//! 10. [`views`]: counts over committed responses, histories and knowledge;
//! 11. [`answers`]: the answers of language models in prompted stages;
//! 12. [`text`]: makes words from outside safe to show.
//!
//! Records that outlive a process carry [`SCHEMA_VERSION`]. Their JSON Schemas in `schemas/json/` are
//! generated from the types (see [`published`]).

pub mod answers;
pub mod demand;
pub mod directive;
pub mod evidence;
pub mod fault;
pub mod fingerprint;
pub mod handover;
pub mod hierarchy;
pub mod history;
pub mod ids;
pub mod knowledge;
pub mod model;
pub mod outcome;
pub mod partial;
pub mod plan;
pub mod published;
pub mod refinement;
pub mod remembered;
pub mod response;
pub mod stages;
pub mod text;
pub mod turn;
pub mod views;

pub use answers::{
    ConsistencyAnswer, DecisionAnswer, GateAnswer, HandOffCall, PlanAnswer, QueriesAnswer,
    RelevanceAnswer, RevisionAnswer, SelectionAnswer, TopicsAnswer,
};
pub use demand::{
    Demand, ExplicitQuery, ImplicitQuery, Queries, Revision, RevisionKind, Span, Thoughts, Topic,
    Topics, Via,
};
pub use directive::{Directive, DirectiveKind, NoScope, TurnsRecord};
pub use evidence::{
    CellsAsked, Citation, Column, DocumentPassage, Evidence, EvidenceSet, FactStatement,
    PersonaSentence, RowOperation, RowsAsked, TableRow,
};
pub use fault::{Degraded, Fault, FaultKind};
pub use fingerprint::{Fingerprint, FingerprintPart};
pub use handover::{ConversationRecord, HandOffReason, Handover, HandoverReason, Holder};
pub use hierarchy::{CategoryRecord, ChainRecord, GroupRecord, GroupSummary};
pub use history::{
    EntryKey, EntryVector, Evicted, EvictionCounts, EvictionReason, HistoryChange, HistoryEntry,
    Passage, RecalledTurn, RecalledVia, RoundedVector, ScopeRecord,
};
pub use ids::{
    ConversationId, EntryId, EventTime, EvidenceId, InputId, RequestId, ResponseId, Scope,
    ScopeKind, Score, SourceName, TenantId, TurnId, UserId,
};
pub use knowledge::{FactKey, FactValue, PhrasingKey, PhrasingValue};
pub use model::ModelUsed;
pub use outcome::{DeadLetter, Header, Outcome, Recorded, RecordedReason};
pub use partial::PartialResponse;
pub use plan::{Plan, SourceKind};
pub use refinement::{RefinementRound, ScoredEvidence};
pub use remembered::RememberedTurns;
pub use response::{
    Action, BriefResponse, Confidence, ConfidenceKind, GateDecision, KnowledgeState, Response,
};
pub use stages::{RecordPart, Stage, StageRow};
pub use turn::{Extra, Speaker, Turn, TurnKind};
pub use views::{ViewKey, ViewName, ViewValue};

/// The version of durable records. Older versions stay readable: a test parses their fixtures in
/// `tests/fixtures/`.
pub const SCHEMA_VERSION: u32 = 1;
