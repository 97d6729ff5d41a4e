//! Turns whose need for knowledge a data set tells: what a gate is trained and scored on.
//!
//! Stands between [`turnstream_formats`], which reads conversations and labels, and whatever
//! learns from them or is measured by them. What holds for every data set:
//!
//! - A turn counts where the data set says what its reply took: DSTC's last user turn, every user
//!   turn of SGD, KETOD and KBP that is answered, every turn of Topical-Chat and KdConv that is
//!   answered, whoever speaks.
//! - Everything but [`LabelledTurn::reply`] and [`LabelledTurn::need`] was there before the reply.
//! - What *need* means is each data set's own definition. Turns of two data sets are never pooled
//!   as if they were labelled alike; [`Positive`] names the class that is asked of one of them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use turnstream_schemas::Speaker;

use turnstream_formats::{Format, FormatError, LoggedItem, LoggedTurn, Need};

mod closest;
mod transcript;

use closest::Closest;
pub use transcript::transcribe;

/// One turn whose need for knowledge a data set tells.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelledTurn {
    /// The conversation, by the data set's id or ours. Instances of DSTC that begin with the same
    /// words were cut from one conversation, and carry the id of the first of them, so that
    /// splitting or drawing by conversation keeps them together.
    pub conversation: String,
    /// Which turn of its conversation is answered, from 1; both sides' turns are counted.
    pub position: u32,
    /// The domain, where the data set says: SGD's service without its number; the domain of
    /// DSTC's gold snippet, so that only positive instances have one.
    pub domain: Option<String>,
    /// What was said, oldest first; the last is the turn that is answered. Strictly causal.
    pub utterances: Vec<Said>,
    /// What could be retrieved for it without looking at the reply, best first, at most
    /// [`MAX_KNOWLEDGE`]: KBP's persona and the knowledge behind it, sentences of Topical-Chat's
    /// reading set, ranked by words. Empty for other data sets.
    pub knowledge: Vec<String>,
    /// The gold reply, which is the future: a score that reads it is not causal.
    pub reply: Option<String>,
    /// What the reply took.
    pub need: Need,
}

/// One utterance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Whose.
    pub speaker: Speaker,
    /// Its words, as the data set has them.
    pub text: String,
}

/// The most [`LabelledTurn::knowledge`] of a turn.
pub const MAX_KNOWLEDGE: usize = 5;

impl LabelledTurn {
    /// The words of the turn that is answered.
    pub fn last(&self) -> &str {
        self.utterances.last().map_or("", |said| &said.text)
    }
}

/// The data sets that tell what their replies took.
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
    /// Turns whose reply takes texts.
    Unstructured,
    /// Turns whose reply takes rows or triples.
    Structured,
    /// Turns whose reply takes what is known about a person: every turn but the null ones.
    Persona,
    /// Turns whose reply takes nothing.
    Null,
}

impl Positive {
    /// The classes that can be asked of a data set, the usual one first; none where it has no
    /// labels.
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

    /// Whether a turn is of the class.
    pub fn is_positive(self, need: Need) -> bool {
        match self {
            Self::Unstructured => need == Need::Unstructured,
            Self::Structured => need == Need::Structured,
            Self::Persona => need == Need::Persona,
            Self::Null => need == Need::None,
        }
    }

    /// The class's name on the command line and in results.
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

/// Why there are no labelled turns.
#[derive(Debug, thiserror::Error)]
pub enum LabelledError {
    /// The data set does not say what its replies took.
    #[error(
        "{format} does not say which turns need knowledge; these do: {}",
        LABELLED.map(Format::name).join(", ")
    )]
    Unlabelled {
        /// The data set.
        format: Format,
    },
    /// The file cannot be read, or a dialogue in it cannot.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The file holds no labelled turn: upstream keeps the labels of a test split apart.
    #[error(
        "{path} has no labelled turn of {format}; give a split with labels",
        path = path.display()
    )]
    Nothing {
        /// The file.
        path: PathBuf,
        /// What it was read as.
        format: Format,
    },
}

/// The labelled turns of a file, plain or gzip, in its order.
///
/// # Errors
/// Where the data set has no labels, and at the first dialogue that cannot be read, by its line.
pub fn read(format: Format, path: &Path) -> Result<Vec<LabelledTurn>, LabelledError> {
    if !LABELLED.contains(&format) {
        return Err(LabelledError::Unlabelled { format });
    }
    let mut conversations = Conversations::new(format);
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

/// Which dialogues of a file are one conversation.
struct Conversations {
    /// By their first words, where a conversation is in the file in several prefixes.
    by_first_words: Option<BTreeMap<String, String>>,
}

impl Conversations {
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
