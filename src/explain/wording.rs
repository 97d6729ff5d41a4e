//! Words for values that records name, shared with the demo.

use turnstream_schemas::{ConfidenceKind, RecordedReason, RevisionKind};

use super::page::Ink;
use super::spoken::Spoken;

/// What a confidence measures.
pub fn confidence_kind(kind: ConfidenceKind) -> &'static str {
    match kind {
        ConfidenceKind::LowestLogit => "lowest logit",
        ConfidenceKind::LowestLogProbability => "lowest log-probability",
        ConfidenceKind::MeanRelevance => "mean relevance of what it states",
        ConfidenceKind::AnswerPrecision => "share of such answers that were right",
    }
}

/// What cross revision did, and whether that is a gain or a loss.
pub fn revision_kind(kind: RevisionKind) -> (Ink, &'static str) {
    match kind {
        RevisionKind::Drop => (Ink::Careful, "drop"),
        RevisionKind::Add => (Ink::Good, "add"),
        RevisionKind::Move => (Ink::Plain, "move"),
        RevisionKind::Prefer => (Ink::Plain, "prefer"),
    }
}

/// Why a turn was recorded without a response.
pub fn recorded_because(reason: &RecordedReason, spoken: &Spoken) -> String {
    match reason {
        RecordedReason::System => {
            "an agent's own words: there is nothing to answer, and the history has them".to_owned()
        }
        RecordedReason::Echo(response) => {
            let turn = response.as_str().into();
            let label = spoken.label(&turn);
            format!("our own answer {label} came back; it is in the history already")
        }
        RecordedReason::SupersededBy(agent) => format!(
            "{agent} came before our answer was made, so the agent's words answer this turn"
        ),
        RecordedReason::MergedInto(turn) => {
            format!("{turn} continues it, and is answered with the words of both")
        }
        RecordedReason::Held => {
            "a person holds the conversation, or is waited for; the words are in the history"
                .to_owned()
        }
        RecordedReason::Takeover => "an agent holds the conversation from here on".to_owned(),
        RecordedReason::Release => "the engine holds the conversation again".to_owned(),
        RecordedReason::DuplicateOf(turn) => {
            format!("it repeats {turn}, which was answered")
        }
        RecordedReason::Forgotten => "the history was forgotten, as requested".to_owned(),
    }
}
