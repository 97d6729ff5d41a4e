//! The port to the unified model (UniMS-RAG): one decoder that plans sources, scores the relevance
//! of one piece of evidence, and words evidence as a response. Nothing here knows its tokens.
//!
//! Every request about a turn begins with the dialogue, so that the model processes the dialogue
//! once. Relevance is asked for one piece of evidence at a time, and no piece sees another (the
//! evidence attention mask).

use turnstream_schemas::{Column, Evidence, Score, SourceKind};

use super::Model;

/// A user's words and the response to them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Exchange {
    /// The user's words.
    pub user: String,
    /// The response; `None` for the turn that is being answered.
    pub response: Option<String>,
}

/// A piece of evidence in the form that the model reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EvidenceText {
    /// The kind of its source.
    pub kind: SourceKind,
    /// Its words.
    pub text: String,
    /// What a response can refer to: the columns of a row, or the title of a document as `name`.
    /// The model names the column and does not spell the value.
    pub columns: Vec<Column>,
}

/// A task about a turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// Plan which of these kinds of sources to ask, and in which order.
    Plan {
        /// The kinds, each once.
        kinds: Vec<SourceKind>,
    },
    /// Score how relevant a piece of evidence is to the dialogue.
    Relevance {
        /// The plan through which it was found.
        plan: Vec<SourceKind>,
        /// The piece.
        evidence: EvidenceText,
    },
    /// Word a response.
    Response {
        /// The plan through which the evidence was found; empty for NULL.
        plan: Vec<SourceKind>,
        /// The evidence, each with its relevance in tenths, 0..=10.
        evidence: Vec<(EvidenceText, u8)>,
        /// The most tokens of a response.
        max_tokens: u32,
        /// Number of drafts, 1 or more. The first takes the most probable token each time, the
        /// others sample tokens. The same request samples the same tokens.
        drafts: u32,
    },
}

/// A request about a turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnifiedRequest {
    /// The dialogue, oldest exchange first; the last one is to be answered.
    pub dialogue: Vec<Exchange>,
    /// The task.
    pub task: Task,
}

/// A part of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The model's own words.
    Words(String),
    /// A value of the evidence, unchanged, with the name of its column.
    Value(Column),
}

/// An answer, to the task of the same name.
#[derive(Clone, Debug, PartialEq)]
pub enum UnifiedAnswer {
    /// The kinds in the order of asking; empty for NULL.
    Plan {
        /// The kinds.
        kinds: Vec<SourceKind>,
        /// The probability of this plan among all that the model could have made, 0..=1.
        probability: f32,
    },
    /// The relevance, 0..=1: the mean over the evaluation tokens, weighted by probability.
    Relevance(f32),
    /// Drafts of a response, as many as requested.
    Response(Vec<Wording>),
}

/// A draft of a response.
#[derive(Clone, Debug, PartialEq)]
pub struct Wording {
    /// Its parts, in order.
    pub said: Vec<Said>,
    /// The lowest log-probability of a token, relative to the tokens allowed in its place.
    pub lowest_log_probability: f32,
    /// Whether the model ended the draft by itself.
    pub is_whole: bool,
    /// Tokens that the network produced, including the end token.
    pub tokens: u32,
}

/// The port to the unified model, which answers in the order of the requests.
pub type Unified = dyn Model<Vec<UnifiedRequest>, Vec<UnifiedAnswer>>;

/// Joins the parts of a response to a text.
pub fn text_of(said: &[Said]) -> String {
    let mut text = String::new();
    for part in said {
        match part {
            Said::Words(words) => text.push_str(words),
            Said::Value(Column { value, .. }) => {
                // A value implies the space before it.
                let joins = text.ends_with(|c: char| c.is_whitespace() || "([{“\"'$/-".contains(c));
                if !text.is_empty() && !joins {
                    text.push(' ');
                }
                text.push_str(value);
            }
        }
    }
    text.trim().to_owned()
}

/// The name by which a response refers to the title of a document.
pub const TITLE: &str = "name";

/// Converts a piece of evidence, from a source of this kind, to the form that the model reads.
pub fn evidence_text(evidence: &Evidence, kind: SourceKind) -> EvidenceText {
    let title = evidence.document.as_ref().map_or("", |passage| passage.title.trim());
    if !title.is_empty() {
        let text = format!("{title}: {}", evidence.text);
        let title = Column { name: TITLE.to_owned(), value: title.to_owned() };
        return EvidenceText { kind, text, columns: vec![title] };
    }
    let columns = evidence.row.as_ref().map_or_else(Vec::new, |row| row.columns.clone());
    EvidenceText { kind, text: evidence.text.clone(), columns }
}

/// A relevance in tenths, as evaluation tokens express it.
pub fn tenths(relevance: Score) -> u8 {
    (relevance.get().clamp(0.0, 1.0) * 10.0).round() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_brings_its_space_along() {
        let words = |it: &str| Said::Words(it.to_owned());
        let value =
            |it: &str| Said::Value(Column { name: "of it".to_owned(), value: it.to_owned() });
        let said = [words(" It is"), value("$49"), words(", from ("), value("Oslo"), words(").")];
        assert_eq!(text_of(&said), "It is $49, from (Oslo).");
        assert_eq!(text_of(&[value("Oslo"), words(" is far.")]), "Oslo is far.");
        assert_eq!(text_of(&[]), "");
    }
}
