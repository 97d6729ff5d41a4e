//! Encodes the finished offsets above a committed one as the metadata of that commit: short,
//! versioned ASCII.
//!
//! The text begins with the letter of the version. Two numbers follow for each range, in rising
//! order: the count of offsets between the range and the end of the one before (for the first, the
//! committed offset), and the count of offsets it spans, less one. A number is written in digits of
//! five bits, lowest first. Each digit is one of 64 letters, and the upper half of the alphabet
//! marks that more digits follow. The empty set is the empty text.

use turnstream_ports::broken::Broken;

/// Finished offsets from `first` to `last`, both included. Offsets between them that were never
/// polled count as inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetRange {
    /// The lowest offset.
    pub first: i64,
    /// The highest offset, at least `first`.
    pub last: i64,
}

/// Why metadata of a commit cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// Another program or a later version wrote the metadata.
    #[error(
        "the metadata of the commit at offset {position} begins with {found:?}, and this version \
         reads {VERSION:?}; run the version that wrote it, or stop other tools from committing \
         offsets of this group"
    )]
    Version {
        /// The committed offset.
        position: i64,
        /// The first letter.
        found: char,
    },
    /// The metadata is damaged.
    #[error(
        "the metadata of the commit at offset {position} is damaged at byte {at}; outcomes after \
         that offset may already be written, so do not begin there without checking"
    )]
    Damaged {
        /// The committed offset.
        position: i64,
        /// Byte at which reading failed, from 0.
        at: usize,
    },
}

/// The version that this code writes and reads.
pub const VERSION: &str = "A";

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const DIGIT_BITS: u32 = 5;

/// Encodes ranges. They must rise, lie apart and be at or above `position`.
pub fn encode(position: i64, ranges: &[OffsetRange]) -> String {
    let mut text = String::new();
    let mut end = position;
    for range in ranges {
        if text.is_empty() {
            text.push_str(VERSION);
        }
        number(&mut text, range.first.abs_diff(end));
        number(&mut text, range.last.abs_diff(range.first));
        end = range.last.saturating_add(1);
    }
    text
}

fn number(text: &mut String, mut rest: u64) {
    loop {
        let low = (rest & 0x1f) as usize;
        rest >>= DIGIT_BITS;
        let more = usize::from(rest > 0) << DIGIT_BITS;
        text.push(char::from(DIGITS[low | more]));
        if rest == 0 {
            return;
        }
    }
}

/// Decodes what [`encode`] wrote with the same `position`.
pub fn decode(position: i64, text: &str) -> Result<Vec<OffsetRange>, MetadataError> {
    let Some(found) = text.chars().next() else {
        return Ok(Vec::new());
    };
    if Broken::NoSkip.here() {
        return Ok(Vec::new());
    }
    let Some(digits) = text.strip_prefix(VERSION) else {
        return Err(MetadataError::Version { position, found });
    };
    let mut numbers = Vec::new();
    let (mut value, mut shift) = (0_u64, 0);
    for (at, byte) in digits.bytes().enumerate() {
        let damaged = MetadataError::Damaged { position, at: at + VERSION.len() };
        let Some(digit) = DIGITS.iter().position(|digit| *digit == byte) else {
            return Err(damaged);
        };
        let low = (digit as u64) & 0x1f;
        if shift >= u64::BITS || (low << shift) >> shift != low {
            return Err(damaged);
        }
        value |= low << shift;
        shift += DIGIT_BITS;
        if digit >> DIGIT_BITS == 0 {
            numbers.push((value, at + VERSION.len()));
            (value, shift) = (0, 0);
        }
    }
    if shift != 0 || !numbers.len().is_multiple_of(2) {
        return Err(MetadataError::Damaged { position, at: text.len() });
    }
    let mut end = position;
    let mut ranges = Vec::with_capacity(numbers.len() / 2);
    for pair in numbers.chunks_exact(2) {
        let first = end.checked_add_unsigned(pair[0].0);
        let last = first.and_then(|first| first.checked_add_unsigned(pair[1].0));
        let (Some(first), Some(last), Some(after)) =
            (first, last, last.and_then(|last| last.checked_add(1)))
        else {
            return Err(MetadataError::Damaged { position, at: pair[1].1 });
        };
        ranges.push(OffsetRange { first, last });
        end = after;
    }
    Ok(ranges)
}

/// The most bytes of one range in a set that spans `span` offsets now and may grow by a million.
pub(super) fn worst_range_bytes(span: i64) -> usize {
    let bits = i64::BITS - span.saturating_add(1 << 20).leading_zeros();
    2 * bits.div_ceil(DIGIT_BITS) as usize
}
