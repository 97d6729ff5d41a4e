//! Converts records to dialogues, and dialogues to turns, for all data sets.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::vec;

use rustc_hash::{FxHashSet, FxHasher};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use turnstream_schemas::{EventTime, Speaker, Turn};

use super::source::{Layout, Source};
use super::{Format, FormatError, Labels, LoggedItem, LoggedItems, LoggedTurn};

/// A record of a data set.
pub(super) trait Shape: DeserializeOwned {
    /// Converts the record to a dialogue, or says what is wrong with it.
    fn dialogue(self) -> Result<Dialogue, String>;
}

/// A dialogue whose ids are not yet unique.
pub(super) struct Dialogue {
    /// The id in the data set, if it has one.
    pub(super) id: Option<String>,
    /// BCP 47 language tag.
    pub(super) language: &'static str,
    /// Every user turn carries this persona.
    pub(super) persona: Vec<String>,
    /// The utterances, in order.
    pub(super) utterances: Vec<Utterance>,
}

impl Dialogue {
    /// Returns a dialogue in English, with nothing but its utterances.
    pub(super) fn english(id: Option<String>, utterances: Vec<Utterance>) -> Self {
        Self { id, language: "en", persona: Vec::new(), utterances }
    }
}

/// One utterance of a dialogue.
pub(super) struct Utterance {
    /// The id in the data set, if it has one.
    pub(super) id: Option<String>,
    pub(super) speaker: Speaker,
    pub(super) text: String,
    pub(super) timestamp: Option<EventTime>,
    pub(super) metadata: Map<String, Value>,
    /// Labels of how this utterance was made. They go to the preceding turn, if the other side
    /// spoke it.
    pub(super) made_with: Labels,
    /// Labels of the reply to this utterance, if the reply is not in the dialogue.
    pub(super) answering: Labels,
}

impl Utterance {
    /// Returns an utterance with words only.
    pub(super) fn new(speaker: Speaker, text: String) -> Self {
        Self {
            id: None,
            speaker,
            text,
            timestamp: None,
            metadata: Map::new(),
            made_with: Labels::default(),
            answering: Labels::default(),
        }
    }
}

/// Returns the side of a speaker that the data names by role, in upper or lower case.
pub(super) fn side_by_role(role: &str) -> Result<Speaker, String> {
    match role.to_ascii_lowercase().as_str() {
        "user" | "u" => Ok(Speaker::User),
        "system" | "s" => Ok(Speaker::System),
        _ => Err(format!("unknown speaker `{role}` (known: user, system, U, S)")),
    }
}

/// Returns the side of a speaker if the data names no role: the first speaker is the user, and
/// everyone else is the other side.
pub(super) fn side_by_order(speaker: &str, first: &str) -> Speaker {
    if speaker == first { Speaker::User } else { Speaker::System }
}

/// Returns the side of the utterance at this place if the data names no speakers: two sides
/// alternate, and the user begins.
pub(super) fn side_by_place(place: usize) -> Speaker {
    if place.is_multiple_of(2) { Speaker::User } else { Speaker::System }
}

/// Returns an id that upstream writes as text or as a number.
pub(super) fn id_text(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

/// Reads a data set, one dialogue at a time.
pub(super) fn read<S: Shape + 'static>(
    format: Format,
    mut source: Source,
) -> Result<LoggedItems, FormatError> {
    let layout = source.layout()?;
    Ok(Box::new(Dialogues::<S> {
        format,
        source,
        layout,
        record: Vec::new(),
        ids: FxHashSet::default(),
        read: 0,
        ready: Vec::new().into_iter(),
        ended: false,
        shape: PhantomData,
    }))
}

struct Dialogues<S> {
    format: Format,
    source: Source,
    layout: Layout,
    record: Vec<u8>,
    /// Hashes of the conversation ids so far. A collision only costs a needless suffix.
    ids: FxHashSet<u64>,
    /// Number of records so far, including unreadable ones.
    read: u64,
    ready: vec::IntoIter<LoggedTurn>,
    ended: bool,
    shape: PhantomData<fn() -> S>,
}

impl<S: Shape> Iterator for Dialogues<S> {
    type Item = Result<LoggedItem, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(turn) = self.ready.next() {
                return Some(Ok(LoggedItem::Turn(Box::new(turn))));
            }
            if self.ended {
                return None;
            }
            match self.next_dialogue() {
                Ok(Some(turns)) => self.ready = turns.into_iter(),
                Ok(None) => self.ended = true,
                Err(error) => {
                    self.ended = error.ends();
                    return Some(Err(error));
                }
            }
        }
    }
}

impl<S: Shape> Dialogues<S> {
    fn next_dialogue(&mut self) -> Result<Option<Vec<LoggedTurn>>, FormatError> {
        let place = self.read;
        self.read += 1;
        let Some(line) = self.source.next(self.layout, &mut self.record)? else { return Ok(None) };
        let shape = serde_json::from_slice::<S>(&self.record).map_err(|_| {
            let (line, reason) = why::<S>(&self.record, line);
            self.source.unreadable(line, format!("not a dialogue of {}: {reason}", self.format))
        })?;
        let dialogue = shape.dialogue().and_then(|dialogue| {
            if dialogue.utterances.is_empty() { Err("no turns".to_owned()) } else { Ok(dialogue) }
        });
        match dialogue {
            Ok(dialogue) => {
                let id = self.unique_id(dialogue.id.as_deref(), place);
                Ok(Some(turns(dialogue, &id, line)))
            }
            Err(reason) => {
                let reason = format!("not a dialogue of {}: {reason}", self.format);
                Err(self.source.unreadable(line, reason))
            }
        }
    }

    fn unique_id(&mut self, id: Option<&str>, place: u64) -> String {
        let mut id = match id {
            Some(id) if !id.is_empty() => id.to_owned(),
            _ => format!("{}-{place}", self.format),
        };
        while !self.ids.insert(hash(&id)) {
            id = format!("{id}#{place}");
        }
        id
    }
}

fn hash(id: &str) -> u64 {
    let mut hasher = FxHasher::default();
    id.hash(&mut hasher);
    hasher.finish()
}

/// Returns the line of a record that does not parse, and the reason.
fn why<S: Shape>(record: &[u8], line: u64) -> (u64, String) {
    let mut parser = serde_json::Deserializer::from_slice(record);
    match serde_path_to_error::deserialize::<_, S>(&mut parser) {
        Ok(_) => (line, "more text follows the dialogue on its line".to_owned()),
        Err(error) => {
            let (path, error) = (error.path().to_string(), error.inner());
            let place = format!(" at line {} column {}", error.line(), error.column());
            let reason = error.to_string().replace(&place, "");
            let field = if path == "." { String::new() } else { format!("{path}: ") };
            let line = line + (error.line() as u64).saturating_sub(1);
            (line, format!("{field}{reason} (column {})", error.column()))
        }
    }
}

/// Returns the turns of a dialogue with the id `id` that begins on this line.
fn turns(dialogue: Dialogue, id: &str, line: u64) -> Vec<LoggedTurn> {
    let Dialogue { language, persona, utterances, .. } = dialogue;
    let mut ids = BTreeSet::new();
    let mut turns: Vec<LoggedTurn> = Vec::with_capacity(utterances.len());
    for (place, utterance) in utterances.into_iter().enumerate() {
        if let Some(before) = turns.last_mut()
            && before.turn.speaker != utterance.speaker
        {
            before.labels = utterance.made_with;
        }
        let mut turn = Turn::new(id, utterance.speaker, "");
        let mut turn_id = utterance.id.unwrap_or_else(|| (place + 1).to_string());
        while !ids.insert(turn_id.clone()) {
            turn_id = format!("{turn_id}#{}", place + 1);
        }
        turn.turn_id = Some(turn_id.into());
        turn.text = utterance.text;
        turn.timestamp = utterance.timestamp;
        turn.language = Some(language.to_owned());
        turn.metadata = utterance.metadata;
        if utterance.speaker == Speaker::User {
            turn.persona.clone_from(&persona);
        }
        turns.push(LoggedTurn { line, turn, last_of_scope: false, labels: utterance.answering });
    }
    if let Some(last) = turns.last_mut() {
        last.last_of_scope = true;
    }
    turns
}
