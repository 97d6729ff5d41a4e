//! Why an entry left its history, on a log: the record of a change that takes an entry away has no
//! value, so that compaction removes it, and says why in a header.

use turnstream_schemas::outcome::Bytes;
use turnstream_schemas::{Evicted, Header};

/// The header's name; its value is an eviction as JSON.
pub const HEADER: &str = "turnstream.evicted";

/// The header of a record that takes an entry away.
pub fn encode(evicted: &Evicted) -> Header {
    // Text keys and finite numbers only: writing them to memory cannot fail.
    let value = serde_json::to_vec(evicted).ok().map(Bytes);
    Header { name: HEADER.to_owned(), value }
}

/// Why the entry of a record is gone, where its headers say so. The last one counts: those of the
/// input come first, whatever they are called.
pub fn decode(headers: &[Header]) -> Option<Evicted> {
    let header = headers.iter().rev().find(|header| header.name == HEADER)?;
    serde_json::from_slice(&header.value.as_ref()?.0).ok()
}
