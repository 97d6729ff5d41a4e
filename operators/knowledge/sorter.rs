//! Sorts more records than memory holds. Records that fill the memory are sorted and written to a
//! file as a run, and all runs are merged at the end (external merge sort, Knuth, The Art of
//! Computer Programming 3, 5.4).
//!
//! A record is bytes, and records sort by their bytes: callers write numbers with the highest byte
//! first. All runs lie in one unnamed file, which disappears with the process.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Longest record, in bytes.
pub(super) const LONGEST_RECORD: usize = u16::MAX as usize;

/// Least and most bytes of one read from a run.
const PIECE_BYTES: std::ops::RangeInclusive<usize> = 4 << 10..=1 << 20;

/// Collects and sorts records.
pub(super) struct Sorter {
    folder: PathBuf,
    memory_bytes: usize,
    data: Vec<u8>,
    entries: Vec<Entry>,
    spilled: Option<Spilled>,
}

/// A record in memory. Its prefix decides most comparisons.
pub(super) struct Entry {
    prefix: u64,
    start: u32,
    length: u32,
}

struct Spilled {
    file: File,
    /// The end of each run.
    ends: Vec<u64>,
}

fn prefix_of(record: &[u8]) -> u64 {
    let mut prefix = [0; 8];
    let length = record.len().min(8);
    prefix[..length].copy_from_slice(&record[..length]);
    u64::from_be_bytes(prefix)
}

impl Sorter {
    /// An empty sorter. Uses up to `memory_bytes` (at least one record, at most 4 GiB), and a file
    /// in the folder for further records.
    pub(super) fn new(folder: &Path, memory_bytes: usize) -> Self {
        let memory_bytes = memory_bytes.min(u32::MAX as usize - LONGEST_RECORD);
        let (data, entries) = (Vec::new(), Vec::new());
        Self { folder: folder.to_owned(), memory_bytes, data, entries, spilled: None }
    }

    /// Adds a record.
    pub(super) fn push(&mut self, record: &[u8]) -> io::Result<()> {
        if record.len() > LONGEST_RECORD {
            return Err(io::Error::other("a record is too long to be sorted"));
        }
        let held = self.data.len() + self.entries.len() * size_of::<Entry>();
        if held + record.len() + size_of::<Entry>() > self.memory_bytes && !self.entries.is_empty()
        {
            self.spill()?;
        }
        let (start, length) = (self.data.len() as u32, record.len() as u32);
        self.entries.push(Entry { prefix: prefix_of(record), start, length });
        self.data.extend_from_slice(record);
        Ok(())
    }

    fn sort(&mut self) {
        let data = &self.data;
        self.entries.sort_unstable_by(|a, b| {
            a.prefix.cmp(&b.prefix).then_with(|| record(data, a).cmp(record(data, b)))
        });
    }

    fn spill(&mut self) -> io::Result<()> {
        self.sort();
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            none => {
                let file = tempfile::tempfile_in(&self.folder)?;
                none.insert(Spilled { file, ends: Vec::new() })
            }
        };
        let mut out = BufWriter::with_capacity(1 << 16, &mut spilled.file);
        for entry in &self.entries {
            out.write_all(&(entry.length as u16).to_le_bytes())?;
            out.write_all(record(&self.data, entry))?;
        }
        out.flush()?;
        drop(out);
        spilled.ends.push(spilled.file.stream_position()?);
        self.data.clear();
        self.entries.clear();
        Ok(())
    }

    /// All records in order.
    pub(super) fn sorted(mut self) -> io::Result<Sorted> {
        if self.spilled.is_some() && !self.entries.is_empty() {
            self.spill()?;
        }
        let Some(mut spilled) = self.spilled.take() else {
            self.sort();
            let (data, entries) = (self.data, self.entries);
            return Ok(Sorted::Memory { data, entries: entries.into_iter() });
        };
        // The reads of the runs reuse the memory of the records.
        (self.data, self.entries) = (Vec::new(), Vec::new());
        let piece = (self.memory_bytes / spilled.ends.len())
            .clamp(*PIECE_BYTES.start(), *PIECE_BYTES.end());
        let mut runs = Vec::with_capacity(spilled.ends.len());
        let mut heads = BinaryHeap::with_capacity(spilled.ends.len());
        let mut position = 0;
        for (number, &end) in spilled.ends.iter().enumerate() {
            let mut run = Run { position, end, piece, bytes: Vec::new(), at: 0 };
            let mut head = Head { record: Vec::new(), run: number };
            if run.next(&mut spilled.file, &mut head.record)? {
                heads.push(Reverse(head));
            }
            runs.push(run);
            position = end;
        }
        Ok(Sorted::Merge { file: spilled.file, runs, heads, current: Vec::new() })
    }
}

fn record<'d>(data: &'d [u8], entry: &Entry) -> &'d [u8] {
    &data[entry.start as usize..][..entry.length as usize]
}

/// The sorted records.
pub(super) enum Sorted {
    /// All records fitted in memory.
    Memory { data: Vec<u8>, entries: std::vec::IntoIter<Entry> },
    /// The records are in the runs of a file.
    Merge { file: File, runs: Vec<Run>, heads: BinaryHeap<Reverse<Head>>, current: Vec<u8> },
}

impl Sorted {
    /// Takes the next record.
    pub(super) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        match self {
            Self::Memory { data, entries } => Ok(entries.next().map(|entry| record(data, &entry))),
            Self::Merge { file, runs, heads, current } => {
                let Some(mut first) = heads.peek_mut() else { return Ok(None) };
                let Head { record, run } = &mut first.0;
                std::mem::swap(current, record);
                if !runs[*run].next(file, record)? {
                    PeekMut::pop(first);
                }
                Ok(Some(current))
            }
        }
    }
}

/// The next record of a run.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Head {
    record: Vec<u8>,
    run: usize,
}

/// A run that is being read.
pub(super) struct Run {
    /// The unread part of the file lies between `position` and `end`.
    position: u64,
    end: u64,
    piece: usize,
    /// The bytes read so far.
    bytes: Vec<u8>,
    /// The start of the next record in `bytes`.
    at: usize,
}

impl Run {
    /// Takes the next record. Returns `false` at the end.
    fn next(&mut self, file: &mut File, record: &mut Vec<u8>) -> io::Result<bool> {
        if self.at == self.bytes.len() && self.position == self.end {
            return Ok(false);
        }
        self.need(file, 2)?;
        let length = u16::from_le_bytes([self.bytes[self.at], self.bytes[self.at + 1]]);
        self.at += 2;
        self.need(file, usize::from(length))?;
        record.clear();
        record.extend_from_slice(&self.bytes[self.at..self.at + usize::from(length)]);
        self.at += usize::from(length);
        Ok(true)
    }

    /// Reads until `count` bytes are available.
    fn need(&mut self, file: &mut File, count: usize) -> io::Result<()> {
        let held = self.bytes.len() - self.at;
        if held >= count {
            return Ok(());
        }
        self.bytes.drain(..self.at);
        self.at = 0;
        let left = self.end - self.position;
        let more = (self.piece.max(count) as u64).min(left) as usize;
        self.bytes.resize(held + more, 0);
        file.seek(SeekFrom::Start(self.position))?;
        file.read_exact(&mut self.bytes[held..])?;
        self.position += more as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_come_sorted_whatever_memory_holds(
            records in prop::collection::vec(prop::collection::vec(0..3u8, 0..12), 0..200),
            memory_bytes in 0..3_000usize,
        ) {
            let folder = tempfile::tempdir().expect("a folder");
            let mut sorter = Sorter::new(folder.path(), memory_bytes);
            for record in &records {
                sorter.push(record).expect("written");
            }
            let mut sorted = sorter.sorted().expect("written");
            let mut expected = records.clone();
            expected.sort();
            for record in &expected {
                prop_assert_eq!(sorted.next().expect("read"), Some(&record[..]));
            }
            prop_assert_eq!(sorted.next().expect("read"), None);
        }
    }

    #[test]
    fn runs_longer_than_a_piece_are_read_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut sorter = Sorter::new(folder.path(), 40_000);
        let record = |number: u32| [&number.to_be_bytes()[..], &vec![7; number as usize]].concat();
        for number in (0..500).rev() {
            sorter.push(&record(number)).expect("written");
        }
        assert!(sorter.spilled.as_ref().is_some_and(|spilled| spilled.ends.len() >= 3));
        let mut sorted = sorter.sorted().expect("written");
        for number in 0..500 {
            assert_eq!(sorted.next().expect("read"), Some(&record(number)[..]));
        }
        assert!(sorted.next().expect("read").is_none());
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let mut sorter = Sorter::new(Path::new("."), 1 << 20);
        assert!(sorter.push(&vec![0; LONGEST_RECORD + 1]).is_err());
    }
}
