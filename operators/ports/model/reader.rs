//! The port to the reader: one network that turns texts into vectors, and reads a question with a
//! section to score each sentence as the answer.
//!
//! Its vectors are made through [`Encoder`](super::encoder::Encoder).

use super::Model;

/// The reader's name as an encoder.
pub const READER: &str = "reader";

/// The share of each earlier turn in the vector of a question ([`Question::before`]).
pub const BEFORE_SHARE: f32 = 0.5;

/// A customer's utterance with the two turns before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Question {
    /// The utterance.
    pub utterance: String,
    /// The customer's utterance before it. A follow-up cannot be understood without the two turns
    /// before.
    pub user_before: Option<String>,
    /// The latest utterance of the other side.
    pub system_before: Option<String>,
}

impl Question {
    /// Returns the turns before, each with a share of [`BEFORE_SHARE`] in the question's vector.
    pub fn before(&self) -> impl Iterator<Item = &String> {
        self.system_before.iter().chain(&self.user_before)
    }
}

/// A candidate for the answer: a section of a document with its sentences, or a row of a table with
/// its cells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Section {
    /// The headings, or the subject of the row.
    pub title: String,
    /// The sentences, or each column as `name: value`.
    pub sentences: Vec<String>,
    /// The similarity of the question to the nearest phrasing that staff taught for this section,
    /// in hundredths of the cosine; 0 without one.
    pub taught: u8,
}

/// A question with its candidates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReadRequest {
    /// The question.
    pub question: Question,
    /// The sections; may be empty.
    pub sections: Vec<Section>,
}

/// The purpose of an utterance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Intent {
    /// Asks for something that the knowledge may have.
    Question,
    /// Greets, thanks, says good-bye.
    SmallTalk,
    /// Asks for a person.
    HandOff,
    /// Complains of repeated trouble, or is angry.
    Complaint,
    /// Speaks of danger to people: self-harm, a threat, an emergency.
    Safety,
}

impl Intent {
    /// All, in the order of [`Reading::intents`].
    pub const ALL: [Self; 5] =
        [Self::Question, Self::SmallTalk, Self::HandOff, Self::Complaint, Self::Safety];
}

/// The result of reading a question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// By section and sentence: the logit of the sentence as the answer, where 0 is the logit of no
    /// answer. Sentences beyond the reader's room have none, so a section's list may be shorter
    /// than its sentences.
    pub scores: Vec<Vec<f32>>,
    /// The probability of each intent, in the order of [`Intent::ALL`].
    pub intents: [f32; 5],
    /// The share of right answers on development data at the probability that the best section has
    /// here, 0..=1; 0 without a section.
    pub precision: f32,
}

/// The port to the reader, which answers in the order of the requests.
pub type Read = dyn Model<Vec<ReadRequest>, Vec<Reading>>;
