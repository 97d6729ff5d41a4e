//! Reads turns with labels of their need for knowledge, on which gates are trained and scored.
//!
//! The module connects [`turnstream_formats`], which reads conversations and labels, with training
//! and evaluation. For every data set:
//!
//! - A turn counts if the data set says what its reply used: DSTC's last user turn; every answered
//!   user turn of SGD, KETOD and KBP; every answered turn of Topical-Chat and KdConv, of either
//!   speaker.
//! - Everything except [`LabelledTurn::reply`] and [`LabelledTurn::need`] was known before the
//!   reply.
//! - Each data set defines *need* itself. Turns of two data sets are never pooled as if they had
//!   the same labels; [`Positive`] names a class within one data set.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use turnstream_schemas::Speaker;

use turnstream_formats::{Format, FormatError, LoggedItem, LoggedTurn, Need};

mod closest;
mod transcript;

use closest::Closest;
pub use transcript::transcribe;

/// A turn with the label of its need for knowledge.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelledTurn {
    /// The conversation, by the data set's id or our own. Instances of DSTC with the same first
    /// words come from one conversation and share the id of the first of them, so that splitting or
    /// resampling by conversation keeps them together.
    pub conversation: String,
    /// The position of the answered turn in its conversation, from 1, counting both sides' turns.
    pub position: u32,
    /// The domain, if the data set has one: SGD's service without its number; the domain of DSTC's
    /// gold snippet, which only positive instances have.
    pub domain: Option<String>,
    /// The dialogue, oldest first; the last utterance is the answered turn. Strictly causal.
    pub utterances: Vec<Said>,
    /// Retrieval candidates found without the reply, best first, at most [`MAX_KNOWLEDGE`]: KBP's
    /// persona and the knowledge behind it, or sentences of Topical-Chat's reading set, ranked by
    /// words. Empty for other data sets.
    pub knowledge: Vec<String>,
    /// The gold reply, which is in the future: a score that reads it is not causal.
    pub reply: Option<String>,
    /// The kind of knowledge that the reply used.
    pub need: Need,
}

/// One utterance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The speaker.
    pub speaker: Speaker,
    /// The text, as in the data set.
    pub text: String,
}

/// The most [`LabelledTurn::knowledge`] of a turn.
pub const MAX_KNOWLEDGE: usize = 5;

impl LabelledTurn {
    /// Returns the text of the answered turn.
    pub fn last(&self) -> &str {
        self.utterances.last().map_or("", |said| &said.text)
    }
}

/// The data sets with labels of what replies used.
pub const LABELLED: [Format; 7] = [
    Format::Dstc11,
    Format::Dstc10,
    Format::Ketod,
    Format::Sgd,
    Format::TopicalChat,
    Format::Kbp,
    Format::Kdconv,
];

/// The class of turns that a binary decision is asked to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub enum Positive {
    /// Turns whose reply needs texts.
    Unstructured,
    /// Turns whose reply needs rows or triples.
    Structured,
    /// Turns whose reply needs what is known about a person: every turn but the null ones.
    Persona,
    /// Turns whose reply needs nothing.
    Null,
}

impl Positive {
    /// Returns the measurable classes of a data set, the usual one first; empty without labels.
    pub fn of(format: Format) -> &'static [Self] {
        match format {
            Format::Dstc11 | Format::Dstc10 | Format::Ketod | Format::TopicalChat => {
                &[Self::Unstructured]
            }
            Format::Sgd | Format::Kdconv => &[Self::Structured],
            Format::Kbp => &[Self::Null, Self::Persona],
            _ => &[],
        }
    }

    /// Whether a turn has the class.
    pub fn is_positive(self, need: Need) -> bool {
        match self {
            Self::Unstructured => need == Need::Unstructured,
            Self::Structured => need == Need::Structured,
            Self::Persona => need == Need::Persona,
            Self::Null => need == Need::None,
        }
    }

    /// Returns the class's name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unstructured => "unstructured",
            Self::Structured => "structured",
            Self::Persona => "persona",
            Self::Null => "null",
        }
    }
}

impl fmt::Display for Positive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why labelled turns cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LabelledError {
    /// The data set has no labels of what its replies used.
    #[error(
        "{format} does not say which turns need knowledge; use one of {}",
        LABELLED.map(Format::name).join(", ")
    )]
    Unlabelled {
        /// The data set.
        format: Format,
    },
    /// The file, or a dialogue in it, cannot be read.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The file has no labelled turn: upstream publishes the labels of a test split separately.
    #[error(
        "{path} has no labelled turn of {format}; give a split with labels",
        path = path.display()
    )]
    Nothing {
        /// The file.
        path: PathBuf,
        /// The format that it was read as.
        format: Format,
    },
}

/// Reads the labelled turns of a file, plain or gzip, in order.
///
/// # Errors
/// The data set has no labels, or a dialogue cannot be read; the error names the line of the first.
pub fn read(format: Format, path: &Path) -> Result<Vec<LabelledTurn>, LabelledError> {
    if !LABELLED.contains(&format) {
        return Err(LabelledError::Unlabelled { format });
    }
    let mut conversations = ConversationIds::new(format);
    let mut dialogue = Vec::new();
    let mut labelled = Vec::new();
    for item in turnstream_formats::open(format, path)? {
        let LoggedItem::Turn(turn) = item? else { continue };
        let ends = turn.last_of_scope;
        dialogue.push(*turn);
        if ends {
            enter(&dialogue, &conversations.id(&dialogue), &mut labelled);
            dialogue.clear();
        }
    }
    if labelled.is_empty() {
        return Err(LabelledError::Nothing { path: path.to_owned(), format });
    }
    Ok(labelled)
}

/// Assigns the dialogues of a file to conversations.
struct ConversationIds {
    /// By first words, for files with several prefixes of one conversation.
    by_first_words: Option<BTreeMap<String, String>>,
}

impl ConversationIds {
    fn new(format: Format) -> Self {
        let prefixes = matches!(format, Format::Dstc11 | Format::Dstc10);
        Self { by_first_words: prefixes.then(BTreeMap::new) }
    }

    fn id(&mut self, dialogue: &[LoggedTurn]) -> String {
        let Some(first) = dialogue.first() else { return String::new() };
        let id = first.turn.conversation_id.to_string();
        match &mut self.by_first_words {
            None => id,
            Some(known) => known.entry(first.turn.text.clone()).or_insert(id).clone(),
        }
    }
}

/// Adds the labelled turns of one dialogue.
fn enter(dialogue: &[LoggedTurn], conversation: &str, labelled: &mut Vec<LabelledTurn>) {
    let mut said = Vec::with_capacity(dialogue.len());
    let mut closest = Closest::default();
    for (place, logged) in dialogue.iter().enumerate() {
        let (turn, labels) = (&logged.turn, &logged.labels);
        said.push(Said { speaker: turn.speaker, text: turn.text.clone() });
        let Some(need) = labels.need else { continue };
        let follows = dialogue.get(place + 1).filter(|next| next.turn.speaker != turn.speaker);
        let reply = labels.reply.clone().or_else(|| follows.map(|next| next.turn.text.clone()));
        labelled.push(LabelledTurn {
            conversation: conversation.to_owned(),
            position: place as u32 + 1,
            domain: labels.domain.clone(),
            utterances: said.clone(),
            knowledge: closest.of(&labels.available, &said),
            reply,
            need,
        });
    }
}

#[cfg(test)]
mod tests;
