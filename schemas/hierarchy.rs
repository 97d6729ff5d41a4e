//! Defines how a scope's record keeps the hierarchy and the chains of its entries. The record is
//! written with every turn, so they are lists of numbers; older records, which name the fields, are
//! read too.

use std::iter;

use schemars::JsonSchema;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};

use crate::model::ModelUsed;

/// A category of similar groups: the top level of a history's hierarchy (DH-RAG eq 15). Written as
/// its number and the list of its groups.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(from = "WrittenCategory")]
pub struct CategoryRecord {
    /// Its number within the scope, never reused.
    pub id: u32,
    /// The groups in it, by rising number; never empty.
    pub groups: Vec<GroupRecord>,
}

/// A group of similar entries, which have one summary (DH-RAG eq 18). Written as a list, its number
/// and then its entries; with a summary, with named fields.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "WrittenEntries")]
pub struct GroupRecord {
    /// Its number within the scope, among categories and groups; never reused.
    pub id: u32,
    /// Offsets of its entries, rising; never empty.
    pub entries: Vec<i64>,
    /// A language model's summary of them, if one is configured.
    pub summary: Option<GroupSummary>,
}

/// A language model's summary of a group's entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupSummary {
    /// The summary; absent if the model failed. The model is asked again once the group has changed
    /// enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// How many entries the group had when the model was asked.
    pub entries: u32,
    /// The model, and the prompt that it was asked by.
    pub model: ModelUsed,
}

/// Entries that follow from each other: a chain of thought (DH-RAG eq 22). Written as a list, its
/// number and then its entries.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "WrittenEntries")]
pub struct ChainRecord {
    /// Its number within the scope, never reused.
    pub id: u32,
    /// Offsets of its entries, rising; never empty.
    pub entries: Vec<i64>,
}

/// A category as records have it.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum WrittenCategory {
    /// Its number and its groups.
    List(u32, Vec<GroupRecord>),
    /// The same in older records.
    Named { id: u32, groups: Vec<GroupRecord> },
}

/// A group or a chain as records have it.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum WrittenEntries {
    /// Its number, then the offsets of its entries.
    List(Vec<i64>),
    /// A group with a summary; in older records, any group or chain.
    Named { id: u32, entries: Vec<i64>, summary: Option<GroupSummary> },
}

/// A group or a chain was written as a list that does not begin with its number.
#[derive(Debug, thiserror::Error)]
#[error(
    "the list {0:?} does not begin with the number of a group or chain, a whole number of 32 bits"
)]
struct NotNumbered(Vec<i64>);

impl WrittenEntries {
    fn read(self) -> Result<(u32, Vec<i64>, Option<GroupSummary>), NotNumbered> {
        match self {
            Self::Named { id, entries, summary } => Ok((id, entries, summary)),
            Self::List(mut list) => match list.first().map(|id| u32::try_from(*id)) {
                Some(Ok(id)) => {
                    list.remove(0);
                    Ok((id, list, None))
                }
                _ => Err(NotNumbered(list)),
            },
        }
    }
}

impl From<WrittenCategory> for CategoryRecord {
    fn from(written: WrittenCategory) -> Self {
        match written {
            WrittenCategory::List(id, groups) | WrittenCategory::Named { id, groups } => {
                Self { id, groups }
            }
        }
    }
}

impl TryFrom<WrittenEntries> for GroupRecord {
    type Error = NotNumbered;

    fn try_from(written: WrittenEntries) -> Result<Self, NotNumbered> {
        let (id, entries, summary) = written.read()?;
        Ok(Self { id, entries, summary })
    }
}

impl TryFrom<WrittenEntries> for ChainRecord {
    type Error = NotNumbered;

    fn try_from(written: WrittenEntries) -> Result<Self, NotNumbered> {
        let (id, entries, _) = written.read()?;
        Ok(Self { id, entries })
    }
}

impl Serialize for CategoryRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.id, &self.groups).serialize(serializer)
    }
}

impl Serialize for GroupRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(summary) = &self.summary else {
            return list(self.id, &self.entries, serializer);
        };
        let mut fields = serializer.serialize_struct("GroupRecord", 3)?;
        fields.serialize_field("id", &self.id)?;
        fields.serialize_field("entries", &self.entries)?;
        fields.serialize_field("summary", summary)?;
        fields.end()
    }
}

impl Serialize for ChainRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        list(self.id, &self.entries, serializer)
    }
}

fn list<S: Serializer>(id: u32, entries: &[i64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(iter::once(i64::from(id)).chain(entries.iter().copied()))
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{from_value, json, to_value};

    use super::*;

    fn group(id: u32, entries: &[i64]) -> GroupRecord {
        GroupRecord { id, entries: entries.to_vec(), summary: None }
    }

    #[test]
    fn a_category_is_a_list_of_numbers_and_is_read_with_names_too() {
        let category = CategoryRecord { id: 0, groups: vec![group(1, &[8, 21]), group(3, &[13])] };
        let written = json!([0, [[1, 8, 21], [3, 13]]]);
        assert_eq!(to_value(&category).unwrap(), written);
        assert_eq!(from_value::<CategoryRecord>(written).unwrap(), category);
        let older = json!({
            "id": 0,
            "groups": [{ "id": 1, "entries": [8, 21] }, { "id": 3, "entries": [13] }],
        });
        assert_eq!(from_value::<CategoryRecord>(older).unwrap(), category);
    }

    #[test]
    fn a_chain_is_a_list_of_numbers_and_is_read_with_names_too() {
        let chain = ChainRecord { id: 2, entries: vec![8, 13] };
        assert_eq!(to_value(&chain).unwrap(), json!([2, 8, 13]));
        assert_eq!(from_value::<ChainRecord>(json!([2, 8, 13])).unwrap(), chain);
        let older = json!({ "id": 2, "entries": [8, 13] });
        assert_eq!(from_value::<ChainRecord>(older).unwrap(), chain);
    }

    #[test]
    fn a_summary_is_written_with_its_group() {
        let model = ModelUsed { name: "summariser".into(), prompt_hash: None };
        let summary =
            GroupSummary { text: Some("Two boats were booked.".into()), entries: 2, model };
        let group = GroupRecord { summary: Some(summary), ..group(1, &[8, 21]) };
        let written = to_value(&group).unwrap();
        assert_eq!(written["entries"], json!([8, 21]));
        assert_eq!(from_value::<GroupRecord>(written).unwrap(), group);
    }

    #[test]
    fn a_list_without_a_number_is_refused() {
        fn refused<T: DeserializeOwned>(list: serde_json::Value) -> bool {
            from_value::<T>(list).is_err()
        }
        assert!(refused::<GroupRecord>(json!([])));
        assert!(refused::<GroupRecord>(json!([-1, 8])));
        assert!(refused::<ChainRecord>(json!([4_294_967_296_i64, 8])));
        assert!(!refused::<ChainRecord>(json!([4_294_967_295_i64, 8])));
    }
}
