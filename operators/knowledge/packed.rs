//! Packed arrays: numbers of a few bits each, end to end, read in place. A snapshot consists of
//! them.
//!
//! A packed array holds numbers of one width. [`offsets`](OffsetsWriter) hold a rising sequence in
//! blocks of [`BLOCK`]: a directory entry has the first number of a block, and the differences of
//! the others from it are packed in as few bits as the block needs. A hub therefore widens only its
//! own block.

use std::io::{self, Write};

/// Numbers of a rising sequence that share a directory entry.
const BLOCK: usize = 64;
/// u64 the first number; u64 the start of the block's bits, times 64, plus its width.
const ENTRY_BYTES: usize = 16;
/// A read takes eight bytes from the byte in which a number begins, so each array ends with this
/// padding.
pub(super) const PADDING: usize = 8;
/// Widest number that one read can return: a number may begin seven bits into its first byte.
pub(super) const WIDEST: u32 = 57;

/// The number of bits of a number up to `largest`.
pub(super) fn bits_for(largest: u64) -> u32 {
    u64::BITS - largest.leading_zeros()
}

/// The number of bits that distinguish `count` things: 0 for at most one thing.
pub(super) fn bits_among(count: usize) -> u32 {
    bits_for((count as u64).saturating_sub(1))
}

pub(super) fn read_u64(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

/// The number of bytes of `count` numbers of this width; `None` if no file can hold them.
pub(super) fn packed_bytes(count: usize, width: u32) -> Option<usize> {
    let bits = (count as u64).checked_mul(u64::from(width))?;
    usize::try_from(bits.div_ceil(8)).ok()?.checked_add(PADDING)
}

/// The number of `width` bits that begins at a bit.
///
/// # Panics
/// Reading eight bytes from there exceeds `bytes`. Opening a snapshot verifies that no read does.
pub(super) fn read_bits(bytes: &[u8], bit: u64, width: u32) -> u64 {
    let word = read_u64(bytes, (bit / 8) as usize);
    (word >> (bit % 8)) & ((1 << width) - 1)
}

/// Packs numbers.
pub(super) struct PackedWriter<W> {
    out: W,
    word: u64,
    filled: u32,
}

impl<W: Write> PackedWriter<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, word: 0, filled: 0 }
    }

    /// Appends a number that fits in `width` bits, at most 64.
    pub(super) fn push(&mut self, number: u64, width: u32) -> io::Result<()> {
        debug_assert!(bits_for(number) <= width);
        // If nothing is filled, only the number is shifted; if 64 bits were filled, they were
        // flushed.
        self.word |= number << self.filled;
        let free = u64::BITS - self.filled;
        if width < free {
            self.filled += width;
            return Ok(());
        }
        self.out.write_all(&self.word.to_le_bytes())?;
        self.word = number.checked_shr(free).unwrap_or(0);
        self.filled = width - free;
        Ok(())
    }

    /// Ends the array, including its padding.
    pub(super) fn finish(mut self) -> io::Result<W> {
        let bytes = self.filled.div_ceil(8) as usize;
        self.out.write_all(&self.word.to_le_bytes()[..bytes])?;
        self.out.write_all(&[0; PADDING])?;
        Ok(self.out)
    }
}

/// Writes a rising sequence block by block. Holds about 1.5 bytes per number.
pub(super) struct OffsetsWriter {
    block: Vec<u64>,
    directory: Vec<u8>,
    data: PackedWriter<Vec<u8>>,
    bits: u64,
    last: u64,
}

impl OffsetsWriter {
    /// A sequence that begins with 0.
    pub(super) fn new() -> Self {
        let data = PackedWriter::new(Vec::new());
        let block = Vec::with_capacity(BLOCK);
        let mut offsets = Self { block, directory: Vec::new(), data, bits: 0, last: 0 };
        offsets.block.push(0);
        offsets
    }

    /// Appends a number that is `by` larger than the last.
    pub(super) fn advance(&mut self, by: u64) {
        self.last += by;
        if self.block.len() == BLOCK {
            self.flush();
        }
        self.block.push(self.last);
    }

    fn flush(&mut self) {
        let (Some(&first), Some(&last)) = (self.block.first(), self.block.last()) else { return };
        let width = bits_for(last - first);
        self.directory.extend_from_slice(&first.to_le_bytes());
        self.directory.extend_from_slice(&(self.bits << 6 | u64::from(width)).to_le_bytes());
        for number in self.block.drain(..) {
            // Writing to memory cannot fail.
            let _ = self.data.push(number - first, width);
            self.bits += u64::from(width);
        }
    }

    /// Writes the directory and the data.
    pub(super) fn finish(mut self, out: &mut impl Write) -> io::Result<()> {
        self.flush();
        out.write_all(&self.directory)?;
        out.write_all(&self.data.finish()?)
    }
}

/// The length of the directory of `count` numbers.
fn directory_bytes(count: usize) -> usize {
    count.div_ceil(BLOCK) * ENTRY_BYTES
}

/// The number at an index of a sequence of `count`.
pub(super) fn offset(bytes: &[u8], count: usize, index: usize) -> u64 {
    let entry = index / BLOCK * ENTRY_BYTES;
    let (first, place) = (read_u64(bytes, entry), read_u64(bytes, entry + 8));
    let (bit, width) = (place >> 6, (place & 63) as u32);
    let within = bit + (index % BLOCK) as u64 * u64::from(width);
    first + read_bits(&bytes[directory_bytes(count)..], within, width)
}

/// Verifies a sequence of `count` numbers: it is readable, begins with 0 and rises. Returns its
/// last number.
pub(super) fn check_offsets(bytes: &[u8], count: usize) -> Option<u64> {
    let data = bytes.get(directory_bytes(count)..).filter(|data| data.len() >= PADDING)?;
    let bits = (data.len() - PADDING) as u64 * 8;
    for block in 0..count.div_ceil(BLOCK) {
        let place = read_u64(bytes, block * ENTRY_BYTES + 8);
        let (bit, width) = (place >> 6, place & 63);
        let numbers = BLOCK.min(count - block * BLOCK) as u64;
        if width > u64::from(WIDEST) || bit.saturating_add(numbers * width) > bits {
            return None;
        }
        // Keeps the sums within the block from overflowing.
        if read_u64(bytes, block * ENTRY_BYTES) > 1 << 62 {
            return None;
        }
    }
    let mut last = 0;
    for index in 0..count {
        let number = offset(bytes, count, index);
        if number < last || index == 0 && number != 0 {
            return None;
        }
        last = number;
    }
    Some(last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(steps: &[u64]) -> Vec<u8> {
        let mut offsets = OffsetsWriter::new();
        for &step in steps {
            offsets.advance(step);
        }
        let mut bytes = Vec::new();
        offsets.finish(&mut bytes).expect("memory");
        bytes
    }

    proptest! {
        #[test]
        fn packed_numbers_are_read_back(
            numbers in prop::collection::vec((0..=WIDEST, any::<u64>()), 0..50)
        ) {
            let mut writer = PackedWriter::new(Vec::new());
            let masked = |&(width, number): &(u32, u64)| number & ((1 << width) - 1);
            for pair in &numbers {
                writer.push(masked(pair), pair.0).expect("memory");
            }
            let bytes = writer.finish().expect("memory");
            let mut bit = 0;
            for pair in &numbers {
                prop_assert_eq!(read_bits(&bytes, bit, pair.0), masked(pair));
                bit += u64::from(pair.0);
            }
            prop_assert_eq!(bytes.len() as u64, bit.div_ceil(8) + PADDING as u64);
        }

        #[test]
        fn offsets_are_running_sums(steps in prop::collection::vec(
            prop_oneof![8 => 0..5u64, 1 => 0..100_000u64, 1 => 0..1u64 << 40], 0..300
        )) {
            let bytes = written(&steps);
            let mut sum = 0;
            for (index, step) in steps.iter().enumerate() {
                prop_assert_eq!(offset(&bytes, steps.len() + 1, index), sum);
                sum += step;
            }
            prop_assert_eq!(offset(&bytes, steps.len() + 1, steps.len()), sum);
            prop_assert_eq!(check_offsets(&bytes, steps.len() + 1), Some(sum));
        }

        #[test]
        fn damaged_offsets_are_refused_or_can_be_read(
            steps in prop::collection::vec(0..9u64, 1..200),
            damage in (any::<prop::sample::Index>(), 1..=255u8),
        ) {
            let mut bytes = written(&steps);
            let at = damage.0.index(bytes.len());
            bytes[at] ^= damage.1;
            let count = steps.len() + 1;
            if let Some(last) = check_offsets(&bytes, count) {
                let read: Vec<u64> = (0..count).map(|at| offset(&bytes, count, at)).collect();
                prop_assert!(read.is_sorted() && read[count - 1] == last);
            }
        }
    }

    #[test]
    fn widths_are_the_least_that_do() {
        assert_eq!([0, 1, 2, 3, 4, 255, 256].map(bits_for), [0, 1, 2, 2, 3, 8, 9]);
        assert_eq!([0, 1, 2, 3, 4, 5].map(bits_among), [0, 0, 1, 2, 2, 3]);
        assert_eq!(packed_bytes(3, 3), Some(2 + PADDING));
        assert_eq!(packed_bytes(usize::MAX, 64), None);
    }
}
