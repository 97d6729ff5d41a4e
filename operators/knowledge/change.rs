//! Parses a record of the `knowledge` topic: one source's present assertion about one statement, or
//! what staff taught about one phrasing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use turnstream_schemas::{FactKey, FactValue, PhrasingKey, PhrasingValue};

use super::builder::{BuildError, check_sentence};
use super::import::written;
use super::phrasings::{PhrasingChange, Taught};
use super::{MAX_CONCEPT_BYTES, Wording, normalise};

/// The present state of a statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Upsert {
    /// Never 0. Below 0 the statement is negated.
    pub weight: f32,
    /// Language of head and tail.
    pub language: String,
    /// The words of its own.
    pub wording: Wording,
}

impl Upsert {
    /// A state without words of its own.
    pub fn new(weight: f32, language: &str) -> Self {
        Self { weight, language: language.to_owned(), wording: Wording::default() }
    }
}

/// A change of a statement: an upsert or a retraction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The statement, with normalised texts.
    pub key: FactKey,
    /// The new state; `None` retracts the statement.
    pub upsert: Option<Upsert>,
}

/// Changes that become visible together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    /// In the order of the log. Of two changes with the same key, the later one applies.
    pub changes: Vec<Change>,
    /// In the order of the log. Of two changes of the same text, the later one applies.
    pub phrasings: Vec<PhrasingChange>,
    /// Per partition: the next offset that is not in these changes or earlier ones.
    pub offsets: BTreeMap<i32, i64>,
}

/// Why a record is not a change.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The key cannot be parsed.
    #[error(
        "the key is not a statement: {0}; it must be JSON like \
         {{\"source\":\"ours\",\"head\":\"coffee\",\"relation\":\"UsedFor\",\"tail\":\"wake up\"}}, \
         or {{\"phrasing\":\"where is my parcel\"}}"
    )]
    Key(serde_json::Error),
    /// The value cannot be parsed.
    #[error(
        "the value neither asserts nor retracts the statement: {0}; it must be JSON like \
         {{\"weight\":1.0,\"language\":\"en\"}} or {{\"retracted\":true}}, or absent"
    )]
    Value(serde_json::Error),
    /// No graph can hold the statement.
    #[error(transparent)]
    Fact(#[from] BuildError),
    /// A name of the value is another text than that of the key.
    #[error("the {field} is not the text of the key with capitals")]
    Name {
        /// The field.
        field: &'static str,
    },
    /// The record does not say what a phrasing leads to.
    #[error(
        "the value does not say what the phrasing leads to: {0}; it must be JSON like \
         {{\"gold\":\"page.md#heading\"}}, {{\"action\":\"decline\"}} or {{\"withdrawn\":true}}, or absent"
    )]
    Phrasing(String),
}

/// A record of the `knowledge` topic.
#[derive(Clone, Debug, PartialEq)]
pub enum KnowledgeRecord {
    /// A change of a statement.
    Fact(Change),
    /// What staff taught about a text; `None` withdraws it.
    Phrasing(String, Option<Taught>),
}

impl KnowledgeRecord {
    /// Parses a record.
    ///
    /// # Errors
    /// The record is neither a change of a statement nor of a phrasing.
    pub fn read(key: &[u8], value: Option<&[u8]>) -> Result<Self, ChangeError> {
        let Ok(PhrasingKey { phrasing }) = serde_json::from_slice(key) else {
            return Change::read(key, value).map(Self::Fact);
        };
        let text = phrasing.trim();
        if text.is_empty() {
            return Err(ChangeError::Phrasing("`phrasing` is empty".to_owned()));
        }
        let wrong = |error: serde_json::Error| ChangeError::Phrasing(error.to_string());
        let value =
            value.map(serde_json::from_slice::<PhrasingValue>).transpose().map_err(wrong)?;
        let stands = value.filter(|value| !value.withdrawn);
        let taught = stands.map(|value| Taught::new(value.gold, value.action)).transpose();
        Ok(Self::Phrasing(text.to_owned(), taught.map_err(ChangeError::Phrasing)?))
    }
}

impl Change {
    /// Parses a record. Normalises texts and checks them as an import does.
    ///
    /// # Errors
    /// The record is not a change.
    pub fn read(key: &[u8], value: Option<&[u8]>) -> Result<Self, ChangeError> {
        let key: FactKey = serde_json::from_slice(key).map_err(ChangeError::Key)?;
        let value = value.map(serde_json::from_slice::<FactValue>).transpose();
        Self::new(key, value.map_err(ChangeError::Value)?)
    }

    /// Makes a normalised and checked change. Capitals of the key stay as names, unless the value
    /// has names.
    ///
    /// # Errors
    /// [`ChangeError::Fact`] if no graph can hold the statement, [`ChangeError::Name`] if the value
    /// names another concept than the key.
    pub fn new(given: FactKey, value: Option<FactValue>) -> Result<Self, ChangeError> {
        let (head, tail) = (normalise(&given.head), normalise(&given.tail));
        let names = [written(&given.head, &head), written(&given.tail, &tail)];
        let key = FactKey { head, tail, ..given };
        let texts = [
            ("head", &key.head),
            ("tail", &key.tail),
            ("relation", &key.relation),
            ("source", &key.source),
        ];
        for (field, text) in texts {
            check_text(field, text)?;
        }
        let stands = value.filter(|value| !value.retracted);
        let upsert = stands.map(|value| checked_upsert(&key, value, names)).transpose()?;
        Ok(Self { key, upsert })
    }

    /// Returns the key and the value of the record of this change. A retraction has a value, so
    /// that compaction keeps it.
    pub fn record(&self) -> (Vec<u8>, Vec<u8>) {
        let value = match self.upsert.clone() {
            Some(Upsert { weight, language, wording }) => {
                let Wording { sentence, head: head_name, tail: tail_name } = wording;
                FactValue { weight, language, sentence, head_name, tail_name, retracted: false }
            }
            None => FactValue { retracted: true, ..FactValue::default() },
        };
        // Serialising cannot fail: all keys are text and the weight is finite.
        let key = serde_json::to_vec(&self.key).unwrap_or_default();
        (key, serde_json::to_vec(&value).unwrap_or_default())
    }
}

/// Checks the state of a statement, given the names that its key has.
fn checked_upsert(
    key: &FactKey,
    value: FactValue,
    [head, tail]: [Option<String>; 2],
) -> Result<Upsert, ChangeError> {
    let FactValue { weight, language, sentence, head_name, tail_name, .. } = value;
    check_text("language", &language)?;
    if !weight.is_finite() || weight == 0.0 {
        return Err(BuildError::Weight(weight).into());
    }
    sentence.as_deref().map_or(Ok(()), check_sentence)?;
    let sentence = sentence.map(|sentence| sentence.trim().to_owned());
    let head = name("head_name", head_name.as_deref(), &key.head)?.or(head);
    let tail = name("tail_name", tail_name.as_deref(), &key.tail)?.or(tail);
    Ok(Upsert { weight, language, wording: Wording { sentence, head, tail } })
}

/// The name that a value gives a concept, if it has capitals.
fn name(
    field: &'static str,
    given: Option<&str>,
    text: &str,
) -> Result<Option<String>, ChangeError> {
    let Some(given) = given else { return Ok(None) };
    if normalise(given) != text {
        return Err(ChangeError::Name { field });
    }
    Ok(written(given, text))
}

fn check_text(field: &'static str, text: &str) -> Result<(), BuildError> {
    if text.is_empty() || text.contains(['\t', '\n']) {
        return Err(BuildError::Empty { field });
    }
    if text.contains(char::is_control) {
        return Err(BuildError::Control { field });
    }
    if text.len() > MAX_CONCEPT_BYTES {
        return Err(BuildError::TooLong { field, bytes: text.len() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use turnstream_schemas::Action;

    use super::*;

    fn read(key: &str, value: Option<&str>) -> Result<Change, String> {
        Change::read(key.as_bytes(), value.map(str::as_bytes)).map_err(|error| error.to_string())
    }

    const KEY: &str =
        r#"{"source":"ours","head":"Ice_Cream","relation":"HasProperty","tail":"cold"}"#;

    #[test]
    fn a_record_is_read_normalised_and_written_again() {
        let change = read(KEY, Some(r#"{"weight":-2}"#)).unwrap();
        assert_eq!(change.key.head, "ice cream");
        let names = Wording { head: Some("Ice Cream".to_owned()), ..Wording::default() };
        let upsert = Upsert { wording: names, ..Upsert::new(-2.0, "en") };
        assert_eq!(change.upsert, Some(upsert));
        let (key, value) = change.record();
        assert_eq!(Change::read(&key, Some(&value)).unwrap(), change);
        assert_eq!(String::from_utf8(key).unwrap(), KEY.replace("Ice_Cream", "ice cream"));
    }

    #[test]
    fn a_sentence_and_names_are_read_and_written_again() {
        let said =
            r#"{"sentence":" Our Ice is cold. ","tail_name":"COLD","head_name":"ice cream"}"#;
        let change = read(KEY, Some(said)).unwrap();
        let text = |text: &str| Some(text.to_owned());
        let (head, tail) = (text("Ice Cream"), text("COLD"));
        let wording = Wording { sentence: text("Our Ice is cold."), head, tail };
        assert_eq!(change.upsert, Some(Upsert { wording, ..Upsert::new(1.0, "en") }));
        let (key, value) = change.record();
        assert_eq!(Change::read(&key, Some(&value)).unwrap(), change);
        // A value without any is written as it was before there were any.
        let (_, value) = read(&KEY.replace("Ice_Cream", "ice"), Some("{}")).unwrap().record();
        assert_eq!(String::from_utf8(value).unwrap(), r#"{"weight":1.0,"language":"en"}"#);
    }

    #[test]
    fn both_ways_of_taking_back_are_read_and_the_lasting_one_is_written() {
        let taken = read(KEY, Some(r#"{"retracted":true}"#)).unwrap();
        assert_eq!(taken, read(KEY, None).unwrap());
        assert_eq!(taken.upsert, None);
        let (key, value) = taken.record();
        assert_eq!(Change::read(&key, Some(&value)).unwrap(), taken);
        assert!(String::from_utf8(value).unwrap().contains(r#""retracted":true"#));
    }

    #[test]
    fn a_phrasing_is_read_with_what_it_leads_to() {
        let read = |key: &str, value: Option<&str>| {
            KnowledgeRecord::read(key.as_bytes(), value.map(str::as_bytes))
                .map_err(|error| error.to_string())
        };
        let key = r#"{"phrasing":" where is my parcel "}"#;
        let of = |taught| KnowledgeRecord::Phrasing("where is my parcel".to_owned(), taught);
        let place = Taught::Place("post.md#late".to_owned());
        for (value, taught) in [
            (Some(r#"{"gold":"post.md#late"}"#), Some(place)),
            (Some(r#"{"action":"hand_off"}"#), Some(Taught::Action(Action::HandOff))),
            (Some(r#"{"withdrawn":true}"#), None),
            (None, None),
        ] {
            assert_eq!(read(key, value), Ok(of(taught.clone())), "{value:?}");
            let again = taught.map(|it| serde_json::to_string(&it.value()).expect("JSON"));
            assert_eq!(read(key, again.as_deref()), read(key, value), "{value:?}");
        }
        for (value, reason) in [
            ("{}", "needs `gold`"),
            (r#"{"gold":"a","action":"decline"}"#, "decline has no `gold`"),
            (r#"{"golf":"a"}"#, "golf"),
        ] {
            let error = read(key, Some(value)).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        assert!(read(r#"{"phrasing":" "}"#, None).unwrap_err().contains("is empty"));
        assert!(matches!(read(KEY, None), Ok(KnowledgeRecord::Fact(_))));
        assert!(read(r#"{"phrase":"x"}"#, None).unwrap_err().contains("not a statement"));
    }

    #[test]
    fn what_no_graph_can_hold_is_refused_with_the_reason() {
        for (key, value, reason) in [
            ("dog", None, "the key is not a statement"),
            (r#"{"head":"a","relation":"IsA","tail":"b"}"#, None, "source"),
            (KEY, Some("1"), "the value neither"),
            (KEY, Some(r#"{"weight":0}"#), "the weight 0"),
            (KEY, Some(r#"{"wieght":1}"#), "wieght"),
            (KEY, Some(r#"{"sentence":" "}"#), "the sentence is empty"),
            (KEY, Some(r#"{"sentence":"Ice\ncream."}"#), "the sentence holds"),
            (
                KEY,
                Some(r#"{"head_name":"Cold Cream"}"#),
                "the head_name is not the text of the key",
            ),
            (r#"{"source":"s","head":" _ ","relation":"IsA","tail":"b"}"#, None, "head is empty"),
            (
                r#"{"source":"s","head":"a\u0001","relation":"IsA","tail":"b"}"#,
                None,
                "the head holds",
            ),
        ] {
            let error = read(key, value).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        let long = KEY.replace("cold", &"x".repeat(MAX_CONCEPT_BYTES + 1));
        assert!(read(&long, None).unwrap_err().contains("more than the 1024"));
    }
}
