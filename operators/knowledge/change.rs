//! Parses a record of the `knowledge` topic: one source's present assertion about one statement, or
//! what staff taught about one phrasing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use turnstream_schemas::{FactKey, FactValue, PhrasingKey, PhrasingValue};

use super::builder::BuildError;
use super::phrasings::{PhrasingChange, Taught};
use super::{MAX_CONCEPT_BYTES, normalise};

/// The present state of a statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Upsert {
    /// Never 0. Below 0 the statement is negated.
    pub weight: f32,
    /// Language of head and tail.
    pub language: String,
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

    /// Makes a normalised and checked change.
    ///
    /// # Errors
    /// [`ChangeError::Fact`] if no graph can hold the statement.
    pub fn new(key: FactKey, value: Option<FactValue>) -> Result<Self, ChangeError> {
        let FactKey { source, head, relation, tail } = key;
        let (head, tail) = (normalise(&head), normalise(&tail));
        let key = FactKey { source, head, relation, tail };
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
        let upsert = stands.map(|FactValue { weight, language, .. }| Upsert { weight, language });
        if let Some(Upsert { weight, language }) = &upsert {
            check_text("language", language)?;
            if !weight.is_finite() || *weight == 0.0 {
                return Err(BuildError::Weight(*weight).into());
            }
        }
        Ok(Self { key, upsert })
    }

    /// Returns the key and the value of the record of this change. A retraction has a value, so
    /// that compaction keeps it.
    pub fn record(&self) -> (Vec<u8>, Vec<u8>) {
        let value = match &self.upsert {
            Some(Upsert { weight, language }) => {
                FactValue { weight: *weight, language: language.clone(), retracted: false }
            }
            None => FactValue { retracted: true, ..FactValue::default() },
        };
        // Serialising cannot fail: all keys are text and the weight is finite.
        let key = serde_json::to_vec(&self.key).unwrap_or_default();
        (key, serde_json::to_vec(&value).unwrap_or_default())
    }
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
        let upsert = Upsert { weight: -2.0, language: "en".to_owned() };
        assert_eq!(change.upsert, Some(upsert));
        let (key, value) = change.record();
        assert_eq!(Change::read(&key, Some(&value)).unwrap(), change);
        assert_eq!(String::from_utf8(key).unwrap(), KEY.replace("Ice_Cream", "ice cream"));
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
