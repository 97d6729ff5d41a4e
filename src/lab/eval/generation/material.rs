//! Reads the material of the measures: the responses of a replay, each with its history in the log
//! and its reference.

use std::collections::{BTreeSet, HashMap};
use std::io::BufRead;
use std::path::{Path, PathBuf};

use turnstream_formats::{Format, LoggedItem};
use turnstream_knowledge::language::Lexicon;
use turnstream_schemas::{
    Confidence, ConversationId, FactStatement, InputId, Response, Speaker, TenantId, Turn, TurnId,
};

use super::GenerationError;
use crate::eval::retrieval;

/// The relevant fields of a response.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The answered input.
    pub input: InputId,
    /// The tenant, if the turn named one.
    pub tenant_id: Option<TenantId>,
    /// The conversation.
    pub conversation_id: ConversationId,
    /// The answered turn.
    pub turn_id: TurnId,
    /// The response's text.
    pub text: String,
    /// The selected evidence in words, in order.
    pub evidence: Vec<String>,
    /// The selected facts: head, relation, tail, as the graph writes them.
    pub facts: BTreeSet<[String; 3]>,
    /// The generator's confidence, if it gave one.
    pub confidence: Option<Confidence>,
}

impl From<Response> for Answer {
    fn from(response: Response) -> Self {
        let selected = response.evidence.into_iter().filter(|evidence| evidence.selected);
        let (evidence, facts): (Vec<_>, Vec<_>) =
            selected.map(|evidence| (evidence.text, evidence.fact)).unzip();
        let tuple = |fact: FactStatement| [fact.head, fact.relation, fact.tail];
        Self {
            input: response.input,
            tenant_id: response.tenant_id,
            conversation_id: response.conversation_id,
            turn_id: response.turn_id,
            text: response.text,
            evidence,
            facts: facts.into_iter().flatten().map(tuple).collect(),
            confidence: response.confidence,
        }
    }
}

/// Reads a replay's output, plain or gzip, and skips blank lines.
///
/// # Errors
/// The file cannot be read, a line is not a response, or there is no response.
pub fn answers(path: &Path) -> Result<Vec<Answer>, GenerationError> {
    let failed = |source| GenerationError::Read { path: path.to_owned(), source };
    let file = retrieval::open(path).map_err(|error| match error {
        retrieval::EvalError::Read { source, .. } => failed(source),
        other => GenerationError::Other(other),
    })?;
    let mut answers = Vec::new();
    for (at, line) in file.lines().enumerate() {
        let line = line.map_err(failed)?;
        if line.trim().is_empty() {
            continue;
        }
        let response: Response = serde_json::from_str(&line).map_err(|error| {
            let (path, line) = (path.to_owned(), at + 1);
            GenerationError::NoResponse { path, line, reason: error.to_string() }
        })?;
        answers.push(response.into());
    }
    if answers.is_empty() {
        return Err(GenerationError::NoResponses { path: path.to_owned() });
    }
    Ok(answers)
}

/// A turn of the log.
#[derive(Clone, Debug)]
pub struct ConversationTurn {
    /// The turn's own id, or the one that a replay gives it.
    pub turn_id: TurnId,
    /// The speaker.
    pub speaker: Speaker,
    /// The text.
    pub text: String,
    /// The lexicon of its language.
    pub lexicon: &'static Lexicon,
}

/// Identifies a conversation of a log.
type Key = (Option<TenantId>, ConversationId);

/// The conversations of a log, in memory.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    conversations: Vec<Vec<ConversationTurn>>,
    places: HashMap<Key, usize>,
}

/// The place of a response in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the conversation, from 0.
    pub conversation: usize,
    /// The number of the answered turn, from 0.
    pub turn: usize,
}

impl Log {
    /// Reads a log. Like a replay, reports invalid records and leaves them out.
    ///
    /// # Errors
    /// The log as a whole cannot be read.
    pub fn read(format: Format, path: &Path) -> Result<Self, GenerationError> {
        let (conversations, places) = (Vec::new(), HashMap::new());
        let mut log = Self { path: path.to_owned(), conversations, places };
        let mut offset = 0;
        for item in turnstream_formats::open(format, path)? {
            match item {
                Ok(LoggedItem::Turn(logged)) => log.add(logged.turn, offset),
                Ok(LoggedItem::Raw { line, bytes }) => match serde_json::from_slice(&bytes) {
                    Ok(turn) => log.add(turn, offset),
                    Err(error) => tracing::warn!(line, %error, "not a turn; left out"),
                },
                Err(error) if error.ends() => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(%error, "left out");
                    continue;
                }
            }
            offset += 1;
        }
        Ok(log)
    }

    /// Adds the next turn; `offset` is its place among the inputs of a replay.
    fn add(&mut self, turn: Turn, offset: i64) {
        let lexicon = Lexicon::of_turn(&turn);
        let input = InputId { topic: String::new(), partition: 0, offset };
        let said = ConversationTurn {
            turn_id: turn.turn_id.unwrap_or_else(|| input.turn_id()),
            speaker: turn.speaker,
            text: turn.text,
            lexicon,
        };
        let next = self.conversations.len();
        let place = *self.places.entry((turn.tenant_id, turn.conversation_id)).or_insert(next);
        if place == next {
            self.conversations.push(Vec::new());
        }
        self.conversations[place].push(said);
    }

    /// Returns all conversations, ordered by their beginnings.
    pub fn conversations(&self) -> &[Vec<ConversationTurn>] {
        &self.conversations
    }

    /// Finds the place of each response.
    ///
    /// # Errors
    /// A response answers no user turn of the log.
    pub fn places(&self, answers: &[Answer]) -> Result<Vec<Place>, GenerationError> {
        let place = |answer: &Answer| {
            let key = (answer.tenant_id.clone(), answer.conversation_id.clone());
            let conversation = *self.places.get(&key)?;
            let answered = |said: &ConversationTurn| {
                said.turn_id == answer.turn_id && said.speaker == Speaker::User
            };
            // The first of repeated turns is answered; the others are duplicates.
            let turn = self.conversations[conversation].iter().position(answered)?;
            Some(Place { conversation, turn })
        };
        let missing = |answer: &Answer| GenerationError::OtherLog {
            path: self.path.clone(),
            conversation: answer.conversation_id.to_string(),
            turn: answer.turn_id.to_string(),
        };
        answers.iter().map(|answer| place(answer).ok_or_else(|| missing(answer))).collect()
    }

    /// Returns the conversation up to and including the answered turn.
    pub fn history(&self, place: Place) -> &[ConversationTurn] {
        &self.conversations[place.conversation][..=place.turn]
    }

    /// Returns the reference: the turn directly after the answered one, if it is the system's.
    pub fn reference(&self, place: Place) -> Option<&str> {
        let next = self.conversations[place.conversation].get(place.turn + 1);
        next.filter(|said| said.speaker == Speaker::System).map(|said| &*said.text)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::tests::answer;
    use super::*;

    fn file(lines: &[String]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(lines.join("\n").as_bytes()).expect("written");
        file
    }

    fn turn(conversation: &str, id: Option<&str>, speaker: Speaker, text: &str) -> String {
        let mut turn = Turn::new(conversation, speaker, text);
        turn.turn_id = id.map(Into::into);
        serde_json::to_string(&turn).expect("JSON")
    }

    #[test]
    fn a_history_ends_with_the_turn_that_is_answered_and_the_reference_follows_it() {
        let log = file(&[
            turn("a", Some("1"), Speaker::User, "one"),
            turn("b", None, Speaker::User, "other"),
            "not a turn".to_owned(),
            turn("a", Some("2"), Speaker::System, "two"),
            turn("b", None, Speaker::User, "another"),
            turn("a", Some("3"), Speaker::User, "three"),
            turn("b", None, Speaker::System, "late"),
        ]);
        let log = Log::read(Format::Turns, log.path()).expect("a log");
        let places = log.places(&[
            answer("a", "1"),
            answer("a", "3"),
            // Ids that a replay gives, counted over all its inputs.
            answer("b", "0-1"),
            answer("b", "0-4"),
        ]);
        let seen: Vec<(Vec<&str>, Option<&str>)> = places
            .expect("all of the log")
            .into_iter()
            .map(|place| {
                let history = log.history(place).iter().map(|said| &*said.text).collect();
                (history, log.reference(place))
            })
            .collect();
        assert_eq!(seen[0], (vec!["one"], Some("two")));
        assert_eq!(seen[1], (vec!["one", "two", "three"], None));
        assert_eq!(seen[2], (vec!["other"], None), "another user turn is no reference");
        assert_eq!(seen[3], (vec!["other", "another"], Some("late")));

        for other in [answer("c", "1"), answer("a", "2"), answer("a", "4")] {
            let error = log.places(&[other]).expect_err("not answered").to_string();
            assert!(error.contains("--references"), "{error}");
        }
    }

    #[test]
    fn a_line_that_is_not_a_response_is_refused_with_its_number() {
        let error = answers(file(&[" ".to_owned(), "{}".to_owned()]).path()).expect_err("refused");
        assert!(error.to_string().contains(":2: "), "{error}");
        let error = answers(file(&[]).path()).expect_err("refused");
        assert!(matches!(error, GenerationError::NoResponses { .. }), "{error}");
        let error = answers(Path::new("/nowhere/at/all")).expect_err("refused");
        assert!(matches!(error, GenerationError::Read { .. }), "{error}");
    }
}
