//! Conversation logs and public data sets as turns, for `turnstream replay LOG --format …`.
//!
//! Stands before the flow: a loader gives what a client would have sent, in the order of the
//! log, one dialogue in memory at a time. Our own format, `turns`, is handed on line by line as
//! it is; a data set is read into turns and labels by the file of its name in this folder,
//! which says what the set is, who its user is, which labels are kept and what is dropped.
//!
//! What holds for every data set:
//!
//! - The file is plain or gzip, told by its content, and holds JSON lines, a JSON list of
//!   dialogues, or dialogues one after the other over several lines each, told by its first
//!   characters. Unknown fields are ignored. `-` is standard input.
//! - Who is the user: as the data says; the first speaker where it does not say.
//! - Conversation ids are the data set's where it has them, else the format's name and the
//!   dialogue's place in the file from 0 (`kdconv-0`). A repeated id gets `#` and that place,
//!   so that ids are unique within a file.
//! - Turn ids are the data set's where it has them, else the turn's place in its dialogue, from
//!   1. A repeated id gets `#` and that place, so that ids are unique within a conversation.
//! - Turns are neither merged, cut nor tidied. A turn with no text stays: the engine decides.
//! - A label says what the *reply* to a turn was made with, and stands beside the turn that is
//!   answered: a gate decides before the reply is there. Labels of two data sets are never
//!   pooled: each set has its own definition.
//! - A dialogue that cannot be read is an error item with its line; the next one follows.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use turnstream_schemas::Turn;

mod commonsense_dialogues;
mod dailydialog;
mod dialogue;
mod dstc;
mod kbp;
mod kdconv;
mod ketod;
mod kvret;
mod locomo;
mod multiwoz;
mod questions;
pub mod sgd;
mod source;
#[cfg(test)]
mod tests;
mod topical_chat;
mod topiocqa;
mod turns;

pub use questions::{Question, questions};
pub use source::{FormatError, MAX_RECORD_BYTES};

/// The shape of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Format {
    /// Our own record, one JSON object a line.
    #[default]
    Turns,
    /// Schema-Guided Dialogue: tasks with services.
    Sgd,
    /// KETOD: SGD with replies enriched by knowledge.
    Ketod,
    /// DSTC11 track 5: hotels and restaurants, subjective knowledge.
    Dstc11,
    /// DSTC10 track 2, task 2: spoken, with knowledge.
    Dstc10,
    /// Topical-Chat: two people with reading sets.
    TopicalChat,
    /// KBP: Chinese, persona and the knowledge behind it.
    Kbp,
    /// DailyDialog: everyday talk.
    Dailydialog,
    /// Commonsense-Dialogues: short talk about a situation.
    CommonsenseDialogues,
    /// TopiOCQA: questions and answers with topic switches.
    Topiocqa,
    /// LoCoMo: very long talk over many sessions.
    Locomo,
    /// KdConv: Chinese, driven by a knowledge graph.
    Kdconv,
    /// KVRET: an in-car assistant.
    Kvret,
    /// MultiWOZ 2.1: tasks over several domains.
    Multiwoz,
}

impl Format {
    /// The format's name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Turns => "turns",
            Self::Sgd => "sgd",
            Self::Ketod => "ketod",
            Self::Dstc11 => "dstc11",
            Self::Dstc10 => "dstc10",
            Self::TopicalChat => "topical-chat",
            Self::Kbp => "kbp",
            Self::Dailydialog => "dailydialog",
            Self::CommonsenseDialogues => "commonsense-dialogues",
            Self::Topiocqa => "topiocqa",
            Self::Locomo => "locomo",
            Self::Kdconv => "kdconv",
            Self::Kvret => "kvret",
            Self::Multiwoz => "multiwoz",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the reply to a turn took, by the data set's own definition.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// No knowledge.
    None,
    /// Rows or triples: a database, a service, a graph.
    Structured,
    /// Texts: reviews, articles, snippets.
    Unstructured,
    /// What is known about a person, with or without texts that depend on it.
    Persona,
}

/// What a data set says about answering a turn. Empty where it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// What the reply took.
    pub need: Option<Need>,
    /// What the reply used, by the data set's ids or, where it has none, in its words.
    pub gold: Vec<String>,
    /// What those ids stand for, in the data set's words, where they are kept.
    pub texts: Vec<String>,
    /// What the reply is about.
    pub topic: Option<String>,
    /// What the task is about, by the data set's names for its domains.
    pub domain: Option<String>,
    /// What whoever replies could rest the reply on, in the data set's words and order: known
    /// before the reply, whether it used any of it or not.
    pub available: Arc<[String]>,
    /// The reply, where it is no turn of the log.
    pub reply: Option<String>,
}

/// One turn of a data set.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedTurn {
    /// The line its dialogue begins on, from 1.
    pub line: u64,
    /// The turn, as a client would have sent it.
    pub turn: Turn,
    /// Whether the conversation ends here: its scope may be retired.
    pub last_of_scope: bool,
    /// What the data set says about answering the turn.
    pub labels: Labels,
}

/// What a log gives, in its order.
#[derive(Clone, Debug, PartialEq)]
pub enum LoggedItem {
    /// A turn of a data set.
    Turn(Box<LoggedTurn>),
    /// A line of `turns`, valid or not, without its line break.
    Raw {
        /// Which line, from 1.
        line: u64,
        /// Its bytes; not blank.
        bytes: Vec<u8>,
    },
}

/// The items of a log. An error whose [`FormatError::ends`] is true is the last item; after any
/// other the next dialogue follows.
pub type LoggedItems = Box<dyn Iterator<Item = Result<LoggedItem, FormatError>> + Send>;

/// Opens a log for reading from its beginning, `-` being standard input. Holds one dialogue in
/// memory (`turns`: one line), besides 16 bytes or so for each conversation id it has seen.
///
/// # Errors
///
/// Where the file cannot be opened, or its first bytes cannot be read.
pub fn open(format: Format, path: &Path) -> Result<LoggedItems, FormatError> {
    open_counting(format, path, &Arc::default())
}

/// The same, adding the bytes that are read of the file, as it lies there, to `read`.
///
/// # Errors
///
/// As [`open`].
pub fn open_counting(
    format: Format,
    path: &Path,
    read: &Arc<AtomicU64>,
) -> Result<LoggedItems, FormatError> {
    let source = source::Source::open(path, Arc::clone(read))?;
    match format {
        Format::Turns => Ok(Box::new(turns::Lines::new(source))),
        Format::Sgd => dialogue::read::<sgd::Record>(format, source),
        Format::Ketod => dialogue::read::<ketod::Record>(format, source),
        Format::Dstc11 | Format::Dstc10 => dialogue::read::<dstc::Record>(format, source),
        Format::TopicalChat => dialogue::read::<topical_chat::Record>(format, source),
        Format::Kbp => dialogue::read::<kbp::Record>(format, source),
        Format::Dailydialog => dialogue::read::<dailydialog::Record>(format, source),
        Format::CommonsenseDialogues => {
            dialogue::read::<commonsense_dialogues::Record>(format, source)
        }
        Format::Topiocqa => dialogue::read::<topiocqa::Record>(format, source),
        Format::Locomo => dialogue::read::<locomo::Record>(format, source),
        Format::Kdconv => dialogue::read::<kdconv::Record>(format, source),
        Format::Kvret => dialogue::read::<kvret::Record>(format, source),
        Format::Multiwoz => dialogue::read::<multiwoz::Record>(format, source),
    }
}
