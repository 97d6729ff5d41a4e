//! The port to the reader: one network that turns texts into vectors, and reads a turn and a section
//! together to say which sentence answers, if any does.
//!
//! Its vectors are made through [`Encoder`](super::encoder::Encoder).

use super::Model;

/// The reader's name as an encoder.
pub const READER: &str = "reader";

/// How much of an earlier turn is in the vector of a question ([`Question::before`]).
pub const BEFORE_SHARE: f32 = 0.5;

/// A customer's turn, with what it follows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Question {
    /// The utterance.
    pub utterance: String,
    /// The customer's utterance before it: without the two turns before, a follow-up cannot be
    /// understood.
    pub user_before: Option<String>,
    /// The latest utterance of the other side.
    pub system_before: Option<String>,
}

impl Question {
    /// The turns before, of which each is [`BEFORE_SHARE`] in the question's vector.
    pub fn before(&self) -> impl Iterator<Item = &String> {
        self.system_before.iter().chain(&self.user_before)
    }
}

/// What may answer: a section of a document with its sentences, or a row of a table with its cells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Section {
    /// The headings, or what the row is about.
    pub title: String,
    /// The sentences, or each column as `name: value`.
    pub sentences: Vec<String>,
    /// How near the question is to the nearest phrasing that staff taught for it, in hundredths of the cosine;
    /// 0 without one.
    pub taught: u8,
}

/// A question with what may answer it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReadRequest {
    /// The question.
    pub question: Question,
    /// The sections; may be empty.
    pub sections: Vec<Section>,
}

/// What an utterance is for, beside a question.
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

/// How a question was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// By section and sentence: the logit that it answers, against 0 for none. A sentence for which
    /// there was no room has none, so that the list of a section may be shorter than its sentences.
    pub scores: Vec<Vec<f32>>,
    /// The probability of each intent, in the order of [`Intent::ALL`].
    pub intents: [f32; 5],
    /// The share of answers that were right on development data where the best section had the
    /// probability that it has here, 0..=1; 0 without a section.
    pub precision: f32,
}

/// The port to the reader, which answers in the order of the requests.
pub type Read = dyn Model<Vec<ReadRequest>, Vec<Reading>>;
