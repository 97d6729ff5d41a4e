//! Reads conversation logs and public data sets as turns, for `turnstream replay LOG --format …`.
//!
//! A loader returns the turns that a client would have sent, in the order of the log, and holds one
//! dialogue in memory at a time. It passes on our own format, `turns`, line by line, unparsed. The
//! module named after a data set converts it to turns and labels; its head describes the set, and
//! says who the user is, which labels are kept and what is dropped.
//!
//! Rules for every data set:
//!
//! - The file is plain or gzip, recognised by its content. It holds JSON lines, a JSON list of
//!   dialogues, or consecutive dialogues of several lines each, recognised by its first characters.
//!   Unknown fields are ignored. `-` is standard input.
//! - The user is the speaker that the data names as such, else the first speaker.
//! - Conversation ids are those of the data set, if it has them, else the format's name and the
//!   dialogue's place in the file from 0 (`kdconv-0`). A repeated id gets `#` and that place, so
//!   that ids are unique within a file.
//! - Turn ids are those of the data set, if it has them, else the turn's place in its dialogue (the
//!   first is 1). A repeated id gets `#` and that place, so that ids are unique within a
//!   conversation.
//! - Turns are neither merged nor cut, and their texts stay unchanged. A turn without text stays:
//!   the engine decides what to do with it.
//! - A label describes the *reply* to a turn and goes with the turn that is answered, since a gate
//!   decides before the reply exists. Labels of two data sets are never pooled: each set has its
//!   own definition.
//! - A dialogue that cannot be read becomes an error item with its line; the next dialogue follows.

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
    /// Returns the format's name on the command line and in results.
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

/// The knowledge that the reply to a turn needed, by the data set's own definition.
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
    /// Facts about a person, with or without texts that depend on them.
    Persona,
}

/// A data set's labels of the reply to a turn. Empty if it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// The kind of knowledge that the reply needed.
    pub need: Option<Need>,
    /// The evidence that the reply used, by the data set's ids or, if it has none, in its words.
    pub gold: Vec<String>,
    /// The texts of those ids, in the data set's words, if they are kept.
    pub texts: Vec<String>,
    /// The topic of the reply.
    pub topic: Option<String>,
    /// The domain of the task, by the data set's name.
    pub domain: Option<String>,
    /// All evidence that was available for the reply before it was made, used or not, in the data
    /// set's words and order.
    pub available: Arc<[String]>,
    /// The reply, if it is no turn of the log.
    pub reply: Option<String>,
}

/// One turn of a data set.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedTurn {
    /// The line where its dialogue begins, from 1.
    pub line: u64,
    /// The turn, as a client would have sent it.
    pub turn: Turn,
    /// Whether the conversation ends here, so that its scope may be retired.
    pub last_of_scope: bool,
    /// The data set's labels of the reply to the turn.
    pub labels: Labels,
}

/// An item of a log, in the order of the log.
#[derive(Clone, Debug, PartialEq)]
pub enum LoggedItem {
    /// A turn of a data set.
    Turn(Box<LoggedTurn>),
    /// A line of `turns`, valid or not, without its line break.
    Raw {
        /// The line, from 1.
        line: u64,
        /// Its bytes; not blank.
        bytes: Vec<u8>,
    },
}

/// The items of a log. After an error whose [`FormatError::ends`] is true no item follows; after
/// any other error the next dialogue follows.
pub type LoggedItems = Box<dyn Iterator<Item = Result<LoggedItem, FormatError>> + Send>;

/// Opens a log for reading from its beginning; `-` is standard input. Holds one dialogue in memory
/// (for `turns`, one line), and about 16 bytes for each conversation id so far.
///
/// # Errors
///
/// The file cannot be opened, or its first bytes cannot be read.
pub fn open(format: Format, path: &Path) -> Result<LoggedItems, FormatError> {
    open_counting(format, path, &Arc::default())
}

/// Opens a log as [`open`] does, and adds the bytes that are read from the file, before unpacking,
/// to `read`.
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
        Format::Sgd => dialogue::read::<sgd::SgdDialogue>(format, source),
        Format::Ketod => dialogue::read::<ketod::KetodDialogue>(format, source),
        Format::Dstc11 | Format::Dstc10 => dialogue::read::<dstc::DstcInstance>(format, source),
        Format::TopicalChat => {
            dialogue::read::<topical_chat::TopicalChatConversation>(format, source)
        }
        Format::Kbp => dialogue::read::<kbp::KbpDialogue>(format, source),
        Format::Dailydialog => dialogue::read::<dailydialog::DailyDialogue>(format, source),
        Format::CommonsenseDialogues => {
            dialogue::read::<commonsense_dialogues::CommonsenseDialogue>(format, source)
        }
        Format::Topiocqa => dialogue::read::<topiocqa::TopiocqaConversation>(format, source),
        Format::Locomo => dialogue::read::<locomo::LocomoConversation>(format, source),
        Format::Kdconv => dialogue::read::<kdconv::KdconvDialogue>(format, source),
        Format::Kvret => dialogue::read::<kvret::KvretDialogue>(format, source),
        Format::Multiwoz => dialogue::read::<multiwoz::MultiwozDialogue>(format, source),
    }
}
