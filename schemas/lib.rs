//! What flows: the records of turnstream.
//!
//! Every record that enters or leaves the engine, or travels between two operators under a
//! name of the field, is a type in this package. Nothing here computes: a record knows how it
//! is written, read and described, and that is all. The package reaches neither timely nor any
//! client of a log, a model or an index.
//!
//! Reading order is data order:
//!
//! 1. [`turn`] and [`forget`]: what arrives on the `turns` topic;
//! 2. [`history`]: the entries a conversation keeps, and the changes published about them;
//! 3. [`demand`]: which knowledge a turn asks for (queries, topics, revisions);
//! 4. [`plan`]: which sources are asked, in which order;
//! 5. [`evidence`]: what the sources gave;
//! 6. [`response`]: what leaves on the `responses` topic;
//! 7. [`outcome`]: the three ways an input can end;
//! 8. [`stages`]: the stages, a row for each, and [`fault`]: why one could not do its work;
//! 9. [`knowledge`]: what changes in the knowledge while turns flow;
//! 10. [`views`]: what committed responses, histories and knowledge amount to;
//! 11. [`answers`]: what a language model answers in a prompted stage;
//! 12. [`text`]: what is shown of words that come from outside.
//!
//! Records that outlive a process carry [`SCHEMA_VERSION`]. Their JSON Schemas lie in
//! `schemas/json/` and are generated from the types (see [`published`]).

pub mod answers;
pub mod demand;
pub mod evidence;
pub mod fault;
pub mod forget;
pub mod history;
pub mod ids;
pub mod knowledge;
pub mod model;
pub mod outcome;
pub mod plan;
pub mod published;
pub mod refinement;
pub mod response;
pub mod stages;
pub mod text;
pub mod turn;
pub mod views;

pub use answers::{
    ConsistencyAnswer, GateAnswer, PlanAnswer, QueriesAnswer, RelevanceAnswer, RevisionAnswer,
    SelectionAnswer, TopicsAnswer,
};
pub use demand::{
    Demand, ExplicitQuery, ImplicitQuery, Queries, Revision, RevisionKind, Span, Thoughts, Topic,
    Topics, Via,
};
pub use evidence::{
    Column, DocumentPassage, Evidence, EvidenceSet, FactStatement, PersonaSentence, TableRow,
};
pub use fault::{Degraded, Fault, FaultKind};
pub use forget::{Forget, ForgetKind, NoScope, TurnsRecord};
pub use history::{
    CategoryRecord, ChainRecord, EntryKey, EntryVector, Evicted, EvictionCounts, EvictionReason,
    GroupRecord, GroupSummary, HistoryChange, HistoryEntry, Passage, RecalledTurn, RecalledVia,
    RoundedVector, ScopeRecord,
};
pub use ids::{
    ConversationId, EntryId, EventTime, EvidenceId, InputId, RequestId, ResponseId, Scope,
    ScopeKind, Score, SourceName, TenantId, TurnId, UserId,
};
pub use knowledge::{FactKey, FactValue};
pub use model::ModelUsed;
pub use outcome::{DeadLetter, Header, Outcome, Recorded, RecordedReason};
pub use plan::{Plan, SourceKind};
pub use refinement::{RefinementRound, ScoredEvidence};
pub use response::{Confidence, ConfidenceKind, GateDecision, KnowledgeState, Response};
pub use stages::{RecordPart, Stage, StageRow};
pub use turn::{Extra, Speaker, Turn, TurnKind};
pub use views::{ViewKey, ViewName, ViewValue};

/// The version that durable records are written with. Older versions stay readable: their
/// fixtures lie in `tests/fixtures/` and a test parses them.
pub const SCHEMA_VERSION: u32 = 1;
