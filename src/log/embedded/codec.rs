//! The byte format of the embedded log's keys and values.
//!
//! Keys sort by their parts: one letter for the kind, then big-endian numbers. Values are a
//! sequence of parts: numbers are big-endian, and byte strings follow their length.

use turnstream_schemas::Header;
use turnstream_schemas::outcome::Bytes;

use super::super::{LogError, Topic};
use super::{Message, state::Committed};

/// A partition of a topic.
pub(super) type TopicPartition = (Topic, i32);

/// A record in its stored form.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Stored {
    /// The transaction that wrote the record; 0 if none did.
    pub(super) transaction: u64,
    pub(super) message: Message,
}

/// An open, aborted or forgotten transaction in its stored form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Unfinished {
    /// Its state.
    pub(super) fate: Fate,
    /// The transactional id of its producer.
    pub(super) owner: String,
    /// The partitions that it wrote to, each with the first offset that it took there.
    pub(super) touched: Vec<(TopicPartition, i64)>,
    /// The positions that it would commit, by group and partition.
    pub(super) positions: Vec<(String, i32, Committed)>,
}

/// The state of a transaction that has not committed. The number is the stored form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fate {
    /// Its producer can still end it.
    #[default]
    Open = 0,
    /// Aborted.
    Aborted = 1,
    /// Given up without an end marker. Readers treat it as open, and the next end of a transaction
    /// of the same producer ends this one too.
    Forgotten = 2,
}

pub(super) const META_KEY: &[u8] = b"m";

pub(super) fn record_key((topic, partition): TopicPartition, offset: i64) -> Vec<u8> {
    let mut key = Vec::with_capacity(14);
    key.push(b'r');
    put_place(&mut key, (topic, partition));
    key.extend(offset.to_be_bytes());
    key
}

pub(super) fn offset_of(key: &[u8]) -> i64 {
    key.last_chunk().map_or(-1, |bytes| i64::from_be_bytes(*bytes))
}

pub(super) fn end_key(place: TopicPartition) -> Vec<u8> {
    let mut key = vec![b'e'];
    put_place(&mut key, place);
    key
}

pub(super) fn committed_key(group: &str, partition: i32) -> Vec<u8> {
    let mut key = vec![b'g'];
    key.extend(partition.to_be_bytes());
    key.extend(group.as_bytes());
    key
}

pub(super) fn transaction_key(transaction: u64) -> Vec<u8> {
    let mut key = vec![b't'];
    key.extend(transaction.to_be_bytes());
    key
}

fn code(topic: Topic) -> u8 {
    match topic {
        Topic::Turns => 0,
        Topic::Responses => 1,
        Topic::Recorded => 2,
        Topic::DeadLetters => 3,
        Topic::History => 4,
        Topic::Knowledge => 5,
        Topic::Views => 6,
        Topic::Traces => 7,
        Topic::Conversations => 8,
        Topic::Partials => 9,
    }
}

fn put_place(out: &mut Vec<u8>, (topic, partition): TopicPartition) {
    out.push(code(topic));
    out.extend(partition.to_be_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(bytes);
}

fn put_optional(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    out.push(u8::from(bytes.is_some()));
    if let Some(bytes) = bytes {
        put_bytes(out, bytes);
    }
}

impl Stored {
    pub(super) fn encode(&self) -> Vec<u8> {
        let message = &self.message;
        let length = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
        let mut out = Vec::with_capacity(32 + length(&message.key) + length(&message.value));
        out.extend(self.transaction.to_be_bytes());
        put_optional(
            &mut out,
            message.time_ms.map(i64::to_be_bytes).as_ref().map(|time| &time[..]),
        );
        put_optional(&mut out, message.key.as_deref());
        put_optional(&mut out, message.value.as_deref());
        out.extend(u32::try_from(message.headers.len()).unwrap_or(u32::MAX).to_be_bytes());
        for header in &message.headers {
            put_bytes(&mut out, header.name.as_bytes());
            put_optional(&mut out, header.value.as_ref().map(|value| &value.0[..]));
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, LogError> {
        Self::take(&mut Reader(bytes)).ok_or_else(damaged)
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let transaction = reader.u64()?;
        let time_ms = match reader.optional()? {
            None => None,
            Some(bytes) => Some(i64::from_be_bytes(bytes.try_into().ok()?)),
        };
        let key = reader.optional()?.map(<[u8]>::to_vec);
        let value = reader.optional()?.map(<[u8]>::to_vec);
        let mut headers = Vec::new();
        for _ in 0..reader.u32()? {
            let name = reader.text()?;
            let value = reader.optional()?.map(|value| Bytes(value.to_vec()));
            headers.push(Header { name, value });
        }
        Some(Self { transaction, message: Message { key, value, headers, time_ms } })
    }

    /// The transaction that wrote the record, without reading the rest.
    pub(super) fn transaction(bytes: &[u8]) -> u64 {
        bytes.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
    }
}

impl Committed {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = self.offset.to_be_bytes().to_vec();
        out.extend(self.metadata.as_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, LogError> {
        let (offset, metadata) = bytes.split_first_chunk().ok_or_else(damaged)?;
        let metadata = String::from_utf8(metadata.to_vec()).map_err(|_| damaged())?;
        Ok(Self { offset: i64::from_be_bytes(*offset), metadata })
    }
}

impl Unfinished {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.fate as u8];
        put_bytes(&mut out, self.owner.as_bytes());
        out.extend(u32::try_from(self.touched.len()).unwrap_or(u32::MAX).to_be_bytes());
        for (place, first) in &self.touched {
            put_place(&mut out, *place);
            out.extend(first.to_be_bytes());
        }
        for (group, partition, committed) in &self.positions {
            put_bytes(&mut out, group.as_bytes());
            out.extend(partition.to_be_bytes());
            put_bytes(&mut out, &committed.encode());
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, LogError> {
        Self::take(&mut Reader(bytes)).ok_or_else(damaged)
    }

    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let fate = match reader.u8()? {
            0 => Fate::Open,
            1 => Fate::Aborted,
            2 => Fate::Forgotten,
            _ => return None,
        };
        let owner = reader.text()?;
        let mut touched = Vec::new();
        for _ in 0..reader.u32()? {
            let topic = usize::from(reader.u8()?);
            let topic = *Topic::ALL.iter().find(|known| usize::from(code(**known)) == topic)?;
            touched.push(((topic, reader.i32()?), reader.i64()?));
        }
        let mut positions = Vec::new();
        while !reader.0.is_empty() {
            let group = reader.text()?;
            let partition = reader.i32()?;
            positions.push((group, partition, Committed::decode(reader.bytes()?).ok()?));
        }
        Some(Self { fate, owner, touched, positions })
    }
}

pub(super) fn damaged() -> LogError {
    LogError::Refused(
        "the embedded log holds a value that cannot be read; it was damaged or written by a \
         later version: restore its directory from a copy, or use a new one"
            .to_owned(),
    )
}

/// Reads parts from the front of a value.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u8(&mut self) -> Option<u8> {
        self.chunk().map(u8::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.chunk().map(i32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_be_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.chunk().map(i64::from_be_bytes)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u32()?).ok()?;
        let (first, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(first)
    }

    fn optional(&mut self) -> Option<Option<&'a [u8]>> {
        match self.u8()? {
            0 => Some(None),
            _ => self.bytes().map(Some),
        }
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }
}
