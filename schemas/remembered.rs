//! The ids of a scope's last turns as its record keeps them: short hashes, so that a record
//! that is written with every turn stays small.

use std::borrow::Cow;
use std::collections::VecDeque;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};

use crate::ids::TurnId;

/// How many bytes of an id's SHA-256 are kept. With six, one turn in 10^12 whose id is new is taken
/// for a repeat; six bytes are eight characters of base64 without padding.
const HASH_BYTES: usize = 6;

type TurnIdHash = [u8; HASH_BYTES];

/// The ids of the last turns that ended as a response or a recorded turn, as short hashes: the first
/// six bytes of each id's SHA-256. Written as base64 of all of them, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RememberedTurns(VecDeque<TurnIdHash>);

impl RememberedTurns {
    /// How many turns are remembered at most.
    pub const MOST: usize = 256;

    /// Remembers one more turn, and forgets the oldest beyond [`Self::MOST`].
    pub fn push(&mut self, turn_id: &TurnId) {
        if self.0.len() == Self::MOST {
            self.0.pop_front();
        }
        self.0.push_back(short_hash(turn_id));
    }

    /// Whether a turn of this id is remembered.
    pub fn contains(&self, turn_id: &TurnId) -> bool {
        !self.0.is_empty() && self.0.contains(&short_hash(turn_id))
    }

    /// Whether no turn is remembered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn short_hash(turn_id: &TurnId) -> TurnIdHash {
    let digest = Sha256::digest(turn_id.as_str());
    std::array::from_fn(|at| digest[at])
}

impl<'id> FromIterator<&'id TurnId> for RememberedTurns {
    fn from_iter<I: IntoIterator<Item = &'id TurnId>>(turn_ids: I) -> Self {
        let mut remembered = Self::default();
        turn_ids.into_iter().for_each(|turn_id| remembered.push(turn_id));
        remembered
    }
}

impl Serialize for RememberedTurns {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = self.0.iter().flatten().copied().collect();
        serializer.serialize_str(&BASE64.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for RememberedTurns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = BASE64.decode(text).map_err(de::Error::custom)?;
        let (hashes, rest) = bytes.as_chunks();
        match rest {
            [] => Ok(Self(hashes.iter().copied().collect())),
            _ => Err(de::Error::custom("remembered turns are six bytes each")),
        }
    }
}

impl JsonSchema for RememberedTurns {
    fn schema_name() -> Cow<'static, str> {
        "RememberedTurns".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "contentEncoding": "base64",
            "description": "The first six bytes of each id's SHA-256 as base64, oldest first.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn_ids(numbers: impl Iterator<Item = usize>) -> Vec<TurnId> {
        numbers.map(|number| TurnId(format!("turn-{number}"))).collect()
    }

    #[test]
    fn the_last_ones_are_remembered_and_written_in_eight_characters_each() {
        let said = turn_ids(0..RememberedTurns::MOST + 3);
        let remembered: RememberedTurns = said.iter().collect();
        let (gone, kept) = said.split_at(3);
        assert!(kept.iter().all(|turn_id| remembered.contains(turn_id)));
        assert!(!gone.iter().any(|turn_id| remembered.contains(turn_id)));
        let written = serde_json::to_string(&remembered).expect("a text");
        assert_eq!(written.len(), 2 + 8 * RememberedTurns::MOST, "{written}");
        let read: RememberedTurns = serde_json::from_str(&written).expect("what was written");
        assert_eq!(read, remembered);
    }

    /// Histories outlive the program, so a later one must find the same bytes.
    #[test]
    fn a_hash_is_the_beginning_of_the_sha_256() {
        let one: RememberedTurns = turn_ids(1..2).iter().collect();
        assert_eq!(serde_json::to_value(&one).expect("a text"), "l0ytLdYD");
    }

    #[test]
    fn what_is_no_row_of_hashes_is_refused() {
        for (written, why) in [("\"AAAA\"", "six bytes each"), ("\"not base64\"", "Invalid")] {
            let error = serde_json::from_str::<RememberedTurns>(written).expect_err(written);
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
