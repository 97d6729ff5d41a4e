//! The reason of an eviction, on a log. The record that removes an entry has no value, so that
//! compaction removes the entry; a header of that record carries the reason.

use turnstream_schemas::outcome::Bytes;
use turnstream_schemas::{Evicted, Header};

/// The name of the header. Its value is the eviction as JSON.
pub const HEADER: &str = "turnstream.evicted";

/// The header for a record that removes an entry.
pub fn encode(evicted: &Evicted) -> Header {
    // Text keys and finite numbers only, so serialisation to memory cannot fail.
    let value = serde_json::to_vec(evicted).ok().map(Bytes);
    Header { name: HEADER.to_owned(), value }
}

/// The reason of an eviction, if the headers have one. The last header of the name counts: the
/// headers of the input come first and may use any name.
pub fn decode(headers: &[Header]) -> Option<Evicted> {
    let header = headers.iter().rev().find(|header| header.name == HEADER)?;
    serde_json::from_slice(&header.value.as_ref()?.0).ok()
}
