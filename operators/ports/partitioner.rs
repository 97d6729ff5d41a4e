//! The partition of a key, as Kafka's clients compute it.
//!
//! Ingest uses it if `turns.partitioner` names a client. A keyed turn on another partition was
//! written by another kind of client, and its conversation would be cut in two.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the writers of turns choose the partition of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Partitioner {
    /// As Kafka's own Java clients choose it.
    Murmur2,
    /// As librdkafka's `consistent_random` chooses it, and with it kcat and most clients that are
    /// not Java.
    Crc32,
    /// In any way: nothing is checked.
    #[default]
    Unchecked,
}

impl Partitioner {
    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Murmur2 => "murmur2",
            Self::Crc32 => "crc32",
            Self::Unchecked => "unchecked",
        }
    }

    /// Returns the partition of a key, from 0, among `partitions` (at least 1). `None` if the key
    /// may be on any partition: if unchecked, or by librdkafka's rule for an empty key.
    pub fn partition(self, key: &[u8], partitions: i32) -> Option<i32> {
        let hash = match self {
            Self::Murmur2 => murmur2(key) & 0x7fff_ffff,
            Self::Crc32 if !key.is_empty() => crc32fast::hash(key),
            Self::Crc32 | Self::Unchecked => return None,
        };
        let count = u32::try_from(partitions).ok().filter(|count| *count > 0)?;
        i32::try_from(hash % count).ok()
    }
}

/// Austin Appleby's MurmurHash2, 32 bits, with the seed of Kafka's `Utils.murmur2`.
fn murmur2(key: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    // Keys of 4 GiB do not exist; Java's length has 31 bits.
    let mut hash = SEED ^ key.len() as u32;
    let (words, rest) = key.as_chunks::<4>();
    for word in words {
        let mut mixed = u32::from_le_bytes(*word).wrapping_mul(M);
        mixed ^= mixed >> 24;
        hash = hash.wrapping_mul(M) ^ mixed.wrapping_mul(M);
    }
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, byte| tail << 8 | u32::from(*byte));
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by `Utils.murmur2` and `BuiltInPartitioner.partitionForKey` of kafka-clients
    /// 4.3.1, for 8 and 13 partitions.
    #[test]
    fn murmur2_is_that_of_kafkas_own_clients() {
        let rows: [(&[u8], u32, i32, i32); 15] = [
            (b"", 275_646_681, 1, 11),
            (b"a", 2_731_586_172, 4, 5),
            (b"ab", 316_155_434, 2, 10),
            (b"abc", 479_470_107, 3, 12),
            (b"abcd", 2_971_317_748, 4, 11),
            (b"c-17", 1_461_515_431, 7, 12),
            (b"conversation-12345", 295_554_174, 6, 6),
            (b"user/42", 3_594_913_614, 6, 8),
            ("Köln".as_bytes(), 2_729_500_566, 6, 2),
            ("会话-7".as_bytes(), 335_748_988, 4, 3),
            (b"The quick brown fox jumps over the lazy dog", 495_243_318, 6, 11),
            (b"\xff", 3_983_499_611, 3, 2),
            (b"\xff\x80", 3_852_178_576, 0, 1),
            (b"\x00\xff\xfe\x7f\x80", 2_798_561_325, 5, 3),
            (b"\x80\x81\x82\x83\x84\x85\x86\x87", 2_686_514_889, 1, 8),
        ];
        for (key, hash, of_8, of_13) in rows {
            assert_eq!(murmur2(key), hash, "{key:?}");
            assert_eq!(Partitioner::Murmur2.partition(key, 8), Some(of_8), "{key:?}");
            assert_eq!(Partitioner::Murmur2.partition(key, 13), Some(of_13), "{key:?}");
        }
    }

    /// The partitions on which kcat put these keys, on a topic of 13 partitions.
    #[test]
    fn crc32_is_that_of_librdkafka() {
        for (key, partition) in [
            ("abc", 4),
            ("会话-7", 4),
            ("The quick brown fox jumps over the lazy dog", 6),
            ("c-17", 7),
            ("Köln", 8),
            ("conversation-12345", 9),
            ("user/42", 9),
            ("a", 10),
        ] {
            assert_eq!(Partitioner::Crc32.partition(key.as_bytes(), 13), Some(partition), "{key}");
        }
        assert_eq!(Partitioner::Crc32.partition(b"", 13), None, "placed at random");
    }

    #[test]
    fn unchecked_places_nothing() {
        assert_eq!(Partitioner::Unchecked.partition(b"a", 8), None);
        assert_eq!(Partitioner::Murmur2.partition(b"a", 0), None);
    }
}
