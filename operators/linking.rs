//! Concept linking: which concepts of the graph a dialogue names.

use turnstream_schemas::Span;

use crate::knowledge::ConceptId;

/// A place in the dialogue that names a concept.
#[derive(Clone, Debug, PartialEq)]
pub struct Mention {
    /// The concept.
    pub concept: ConceptId,
    /// Which utterance of [`crate::flow::TurnContext::dialogue`], from 0.
    pub utterance: u32,
    /// Where in that utterance.
    pub span: Span,
    /// How many words the mention has, 1..=5.
    pub words: u8,
    /// How much the concept says, 0..=1: rare concepts say more than hubs.
    pub informativeness: f32,
}
