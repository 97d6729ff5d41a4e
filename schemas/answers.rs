//! The answers of language models in prompted stages, as JSON. The bounds limit what a model that is held to
//! the schema can write; the stages have bounds of their own.
//!
//! A model that is held to a schema writes the properties in the order of the schema. The thought is the
//! first property, so that the rest of the answer can rest on it.
//!
//! The schemas go to the models with the descriptions in them, so the comments on these types and their
//! fields are part of the prompts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::response::Action;

/// The gate's answer (RAGate-Prompt).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GateAnswer {
    /// Whether the reply gains from facts outside of the conversation.
    pub needs_knowledge: bool,
}

/// Source planning's answer (UniMS-RAG).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanAnswer {
    /// Names of sources as the prompt lists them, in the order of asking; none where the reply needs
    /// nothing.
    #[schemars(length(max = 16), inner(length(min = 1, max = 48)))]
    pub sources: Vec<String>,
}

/// Relevance's answer (UniMS-RAG).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RelevanceAnswer {
    /// The relevance of each piece of evidence, in the prompt's order: 0 (nothing to do with it) to 10
    /// (just what is needed).
    #[schemars(length(max = 32), inner(range(max = 10)))]
    pub relevance: Vec<u32>,
}

/// Consistency's answer (UniMS-RAG).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConsistencyAnswer {
    /// How well each piece of evidence and the response agree, in the prompt's order: 0 (the response denies it,
    /// or has nothing to do with it) to 10 (the response says it).
    #[schemars(length(max = 32), inner(range(max = 10)))]
    pub consistency: Vec<u32>,
}

/// The decision's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionAnswer {
    /// What the reply does.
    pub action: Action,
    /// The words to the customer; empty where it declines or hands off.
    #[schemars(length(max = 800))]
    pub reply: String,
    /// The numbers of the evidence that an answer rests on, the most important first.
    #[schemars(length(max = 8))]
    pub evidence: Vec<u32>,
    /// Why it hands off.
    #[serde(default)]
    #[schemars(required)]
    pub reason: HandOffCall,
}

/// What a language model may hand a conversation over for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HandOffCall {
    /// It does not hand off.
    #[default]
    None,
    /// The customer asks for a person.
    Asked,
    /// The customer complains of repeated trouble, or is angry.
    Complaint,
    /// People may be in danger.
    Safety,
}

/// Query production's answer (DCRAG eq 1, 2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueriesAnswer {
    /// What the user wants to know, where the model is asked to think in the same answer.
    #[serde(default)]
    #[schemars(required, length(max = 400))]
    pub aim: String,
    /// Concepts that the conversation names, the most useful first.
    #[schemars(length(max = 16), inner(length(min = 1, max = 48)))]
    pub explicit: Vec<String>,
    /// Concepts that it does not name, the most useful first.
    #[schemars(length(max = 16), inner(length(min = 1, max = 48)))]
    pub implicit: Vec<String>,
}

/// Topic planning's answer (DCRAG eq 3, 4).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TopicsAnswer {
    /// Where the conversation goes, where the model is asked to think in the same answer.
    #[serde(default)]
    #[schemars(required, length(max = 400))]
    pub course: String,
    /// Topics that are new, the most fitting first.
    #[schemars(length(max = 16), inner(length(min = 1, max = 48)))]
    pub extended: Vec<String>,
    /// Topics that stay, the most fitting first.
    #[schemars(length(max = 16), inner(length(min = 1, max = 48)))]
    pub maintained: Vec<String>,
}

/// Cross revision's answer (DCRAG eq 5, 6).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevisionAnswer {
    /// What has to change and why, where the model is asked to think in the same answer.
    #[serde(default)]
    #[schemars(required, length(max = 400))]
    pub changes: String,
    /// E^EQ as it is to be.
    #[schemars(length(max = 16), inner(length(min = 1, max = 48)))]
    pub explicit: Vec<String>,
    /// E^ET as it is to be.
    #[schemars(length(max = 16), inner(length(min = 1, max = 48)))]
    pub extended: Vec<String>,
    /// E^IQ as it is to be.
    #[schemars(length(max = 16), inner(length(min = 1, max = 48)))]
    pub implicit: Vec<String>,
    /// E^MT as it is to be.
    #[schemars(length(max = 16), inner(length(min = 1, max = 48)))]
    pub maintained: Vec<String>,
}

/// Fact selection's answer (DCRAG eq 7).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SelectionAnswer {
    /// Numbers of facts as the prompt counts them, the most useful first.
    #[schemars(length(max = 20), inner(range(max = 9999)))]
    pub selected: Vec<u32>,
}
