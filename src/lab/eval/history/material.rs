//! Reads conversations with questions about them, from a data set or from our own turns.
//!
//! - `locomo`: the questions come at the end of their conversation.
//! - `topiocqa`: each question from the fourth of a conversation on is about the earlier turns, and
//!   belongs to the topic of the article that answers it.
//! - `turns`: our own record. A user turn whose `metadata.evidence` is a list of turn ids of its
//!   conversation is a question about the earlier turns; `metadata.category` names its category.
//!   The turn then becomes part of the history, unless `metadata.probe` is true.
//!
//! A question never depends on later turns.

use std::collections::BTreeMap;
use std::path::Path;

use turnstream_formats::{Format, LoggedItem};
use turnstream_schemas::{EventTime, ScopeKind, Speaker, Turn, TurnId};

use super::HistoryEvalError;

/// The data sets with questions about a history.
pub const MEASURED: [Format; 3] = [Format::Locomo, Format::Topiocqa, Format::Turns];

/// The first questions of a TopiOCQA conversation are not measured: there is too little to recall.
const UNASKED: usize = 3;

/// The utterances and questions of a conversation, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// The conversation's id.
    pub id: String,
    /// The utterances and questions, in order.
    pub steps: Vec<Step>,
}

/// A step of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// An utterance.
    Said(Utterance),
    /// A question about the earlier utterances.
    Asked(Question),
}

/// An utterance.
#[derive(Clone, Debug, PartialEq)]
pub struct Utterance {
    /// The id, unique in its conversation.
    pub id: TurnId,
    /// The speaker.
    pub speaker: Speaker,
    /// The text.
    pub text: String,
    /// The event time.
    pub time: EventTime,
    /// The topic of its answer, if the data set has topics.
    pub topic: Option<String>,
}

/// A question with its expected result.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The question's text.
    pub text: String,
    /// The category, if it has one.
    pub category: Option<String>,
    /// The expected result.
    pub gold: Gold,
}

/// The entries that should be recalled for a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Gold {
    /// Turns by the data set's ids; some ids may match no turn.
    Evidence(Vec<String>),
    /// Turns of this topic.
    Topic(String),
}

/// Reads the conversations of a file, in order.
///
/// # Errors
/// The format is not in [`MEASURED`], or the file does not have the format.
pub fn read(format: Format, path: &Path) -> Result<Vec<Conversation>, HistoryEvalError> {
    let conversations = match format {
        Format::Locomo => locomo(path)?,
        Format::Topiocqa => topiocqa(path)?,
        Format::Turns => turns(path)?,
        _ => return Err(HistoryEvalError::Format { format }),
    };
    let asked = |conversation: &Conversation| {
        conversation.steps.iter().any(|step| matches!(step, Step::Asked(_)))
    };
    if conversations.iter().any(asked) {
        Ok(conversations)
    } else {
        Err(HistoryEvalError::Nothing { path: path.to_owned(), format })
    }
}

/// A turn with its topic and the first line of its dialogue.
struct Read {
    line: u64,
    turn: Turn,
    topic: Option<String>,
}

/// Reads the dialogues of a data set.
fn dialogues(format: Format, path: &Path) -> Result<Vec<Vec<Read>>, HistoryEvalError> {
    let (mut dialogues, mut dialogue) = (Vec::new(), Vec::new());
    for item in turnstream_formats::open(format, path)? {
        let LoggedItem::Turn(logged) = item? else { continue };
        let ends = logged.last_of_scope;
        dialogue.push(Read { line: logged.line, turn: logged.turn, topic: logged.labels.topic });
        if ends {
            dialogues.push(std::mem::take(&mut dialogue));
        }
    }
    Ok(dialogues)
}

/// Converts a turn at a place of its log; a missing id or time is set as in a replay.
fn said(turn: Turn, topic: Option<String>, place: usize) -> Utterance {
    Utterance {
        id: turn.turn_id.unwrap_or_else(|| TurnId(format!("0-{place}"))),
        speaker: turn.speaker,
        text: turn.text,
        time: turn.timestamp.unwrap_or(EventTime(place as i64 * 1_000)),
        topic,
    }
}

fn id_of(dialogue: &[Read]) -> String {
    dialogue.first().map_or_else(String::new, |first| first.turn.conversation_id.to_string())
}

fn locomo(path: &Path) -> Result<Vec<Conversation>, HistoryEvalError> {
    let mut questions = turnstream_formats::questions(Format::Locomo, path)?;
    let conversation = |dialogue: Vec<Read>| {
        let id = id_of(&dialogue);
        let asked = dialogue.first().and_then(|first| questions.remove(&first.line));
        let spoken = dialogue.into_iter().enumerate();
        let spoken = spoken.map(|(place, read)| Step::Said(said(read.turn, None, place)));
        let asked = asked.into_iter().flatten().map(|question| {
            Step::Asked(Question {
                text: question.text,
                category: question.category,
                gold: Gold::Evidence(question.evidence),
            })
        });
        Conversation { id, steps: spoken.chain(asked).collect() }
    };
    Ok(dialogues(Format::Locomo, path)?.into_iter().map(conversation).collect())
}

fn topiocqa(path: &Path) -> Result<Vec<Conversation>, HistoryEvalError> {
    let conversation = |dialogue: Vec<Read>| {
        let (id, mut steps, mut questions) = (id_of(&dialogue), Vec::new(), 0);
        for (place, Read { turn, topic, .. }) in dialogue.into_iter().enumerate() {
            let is_question = turn.speaker == Speaker::User;
            if let Some(topic) = topic.as_ref().filter(|_| is_question && questions >= UNASKED) {
                let (text, gold) = (turn.text.clone(), Gold::Topic(topic.clone()));
                steps.push(Step::Asked(Question { text, category: None, gold }));
            }
            questions += usize::from(is_question);
            steps.push(Step::Said(said(turn, topic, place)));
        }
        Conversation { id, steps }
    };
    Ok(dialogues(Format::Topiocqa, path)?.into_iter().map(conversation).collect())
}

fn turns(path: &Path) -> Result<Vec<Conversation>, HistoryEvalError> {
    let mut places = BTreeMap::new();
    let mut conversations: Vec<Conversation> = Vec::new();
    for (place, item) in turnstream_formats::open(Format::Turns, path)?.enumerate() {
        let LoggedItem::Raw { line, bytes } = item? else { continue };
        let refused =
            |reason: String| HistoryEvalError::Turn { path: path.to_owned(), line, reason };
        let turn: Turn =
            serde_json::from_slice(&bytes).map_err(|error| refused(error.to_string()))?;
        let scope = turn.scope(ScopeKind::Conversation);
        let at = *places.entry(scope).or_insert_with(|| {
            let id = turn.conversation_id.to_string();
            conversations.push(Conversation { id, steps: Vec::new() });
            conversations.len() - 1
        });
        let question = question(&turn).map_err(refused)?;
        let only_asks = turn.metadata.get("probe").is_some_and(|probe| *probe == true);
        let steps = &mut conversations[at].steps;
        let is_heard = question.is_none() || !only_asks;
        steps.extend(question.map(Step::Asked));
        if is_heard {
            steps.push(Step::Said(said(turn, None, place)));
        }
    }
    Ok(conversations)
}

/// Returns the question in a turn of our own format, if any.
fn question(turn: &Turn) -> Result<Option<Question>, String> {
    let Some(evidence) = turn.metadata.get("evidence") else { return Ok(None) };
    let ids = serde_json::from_value(evidence.clone())
        .map_err(|_| "metadata.evidence is not a list of turn ids".to_owned())?;
    if turn.speaker == Speaker::System {
        return Err(
            "metadata.evidence is on a system turn, but only user turns ask questions".to_owned()
        );
    }
    let category = turn.metadata.get("category");
    let category = category.map(|it| it.as_str().map_or_else(|| it.to_string(), str::to_owned));
    Ok(Some(Question { text: turn.text.clone(), category, gold: Gold::Evidence(ids) }))
}

impl Step {
    /// Returns the question, if this step is one.
    pub fn question(&self) -> Option<&Question> {
        match self {
            Self::Asked(question) => Some(question),
            Self::Said(_) => None,
        }
    }
}
