//! What stages ask of the unified model (UniMS-RAG): one decoder that plans sources, scores the relevance of
//! one piece of evidence, and words evidence as a response. Nothing here knows its tokens.
//!
//! Everything that is asked about a turn begins with what was said, so that the model goes through that
//! once. Relevance is asked for one piece of evidence at a time: none sees another (the evidence attention
//! mask).

use turnstream_schemas::{Column, Evidence, Score, SourceKind};

use super::Model;

/// What a user said, and what was answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Exchange {
    /// The user's words.
    pub user: String,
    /// The response; `None` of the one that is being answered.
    pub response: Option<String>,
}

/// A piece of evidence as the model reads it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EvidenceText {
    /// The kind of its source.
    pub kind: SourceKind,
    /// Its words.
    pub text: String,
    /// What a response can refer to: the columns of a row, the title of a document as `name`. The model says
    /// which, and does not spell the value.
    pub columns: Vec<Column>,
}

/// What is asked about a turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// Which of these kinds of sources have to be asked, in which order?
    Plan {
        /// Each once.
        kinds: Vec<SourceKind>,
    },
    /// How relevant is a piece of evidence to what was said?
    Relevance {
        /// The plan that it was found by.
        plan: Vec<SourceKind>,
        /// The piece.
        evidence: EvidenceText,
    },
    /// What is to be said?
    Response {
        /// The plan that the evidence was found by; none for NULL.
        plan: Vec<SourceKind>,
        /// The evidence, each with its relevance in tenths, 0..=10.
        evidence: Vec<(EvidenceText, u8)>,
        /// Tokens that the response has at most.
        max_tokens: u32,
        /// How often it is worded, 1 or more: first by the most probable token each time, then by tokens
        /// that are drawn. The same question draws the same.
        drafts: u32,
    },
}

/// A question about a turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnifiedRequest {
    /// What was said, oldest first; the last is what is answered.
    pub dialogue: Vec<Exchange>,
    /// What is asked.
    pub task: Task,
}

/// A part of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The model's own words.
    Words(String),
    /// A value of the evidence, as it stands there, by its name.
    Value(Column),
}

/// An answer, to the task of the same name.
#[derive(Clone, Debug, PartialEq)]
pub enum UnifiedAnswer {
    /// Kinds in the order of asking; none for NULL.
    Plan {
        /// The kinds.
        kinds: Vec<SourceKind>,
        /// How probable the model holds this very plan among those that it could have made, 0..=1.
        probability: f32,
    },
    /// The relevance, 0..=1: the mean over the evaluation tokens, each by its probability.
    Relevance(f32),
    /// Drafts of a response, as many as were asked for.
    Response(Vec<Wording>),
}

/// A draft of a response.
#[derive(Clone, Debug, PartialEq)]
pub struct Wording {
    /// Its parts, in order.
    pub said: Vec<Said>,
    /// The lowest log-probability of a token, among those that could have stood there.
    pub lowest_log_probability: f32,
    /// Whether it came to its end by itself.
    pub is_whole: bool,
    /// Tokens that the network was asked for, its end among them.
    pub tokens: u32,
}

/// The unified model, behind its port: answers in the order of the questions.
pub type Unified = dyn Model<Vec<UnifiedRequest>, Vec<UnifiedAnswer>>;

/// The text of a response's parts.
pub fn text_of(said: &[Said]) -> String {
    let mut text = String::new();
    for part in said {
        match part {
            Said::Words(words) => text.push_str(words),
            Said::Value(Column { value, .. }) => {
                // A value stands for the space before it too.
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

/// By which name a response refers to the title of a document.
pub const TITLE: &str = "name";

/// A piece of evidence as the model reads it, of a source of this kind.
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

/// A relevance as evaluation tokens have it, in tenths.
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
