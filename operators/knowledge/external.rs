//! Compiles facts into a snapshot within bounded memory: sorts in files what does not fit
//! ([`super::sorter`]). The bytes equal those of the [`Builder`](super::Builder).
//!
//! A fact passes four sorts. The first sorts its two ends by text, which numbers the concepts. The
//! second sorts ends by fact, which joins them. The third sorts facts by their numbers, which folds
//! repeated ones. The fourth sorts facts by tail and rank. Lemma keys are sorted last.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::builder::{BuildError, Interners, LemmaKeys, checked, source_of};
use super::compile::{Compiler, Seen, Storage, rank};
use super::grams::grams_of_index_key;
use super::import::ImportedFact;
use super::layout::{MOST_CONCEPTS, Section};
use super::sorter::Sorter;
use super::whole::{folder_of, write_whole_by};
use super::wording::OwnWords;
use super::{ConceptId, Fact};

/// Collects facts and compiles them within bounded memory. The result depends neither on the order
/// of the facts nor on the memory.
pub struct ExternalBuilder {
    path: PathBuf,
    sorter_bytes: usize,
    names: Interners,
    /// The ends of the facts: text, language, fact, side.
    ends: Sorter,
    /// The other fields of the facts.
    rest: BufWriter<File>,
    facts: u32,
    own: OwnWords,
}

/// Why a fact was refused.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// A snapshot cannot hold the fact.
    #[error(transparent)]
    Fact(#[from] BuildError),
    /// The sorted facts cannot be written.
    #[error("sorted facts cannot be written: {0}")]
    Storage(#[from] io::Error),
}

/// Ends a text in a record. Smaller than any byte of a text.
const END: u8 = 0;
/// Bytes of a fact beside its ends: relation 2, source 1, weight 4.
const REST_BYTES: usize = 7;
/// Bytes that name an end of a fact: fact 4, side 1.
const END_BYTES: usize = 5;

impl ExternalBuilder {
    /// Creates an empty builder and the folder of the snapshot, in which its files lie. Two sorts
    /// run at a time and share `memory_bytes`. Beside them the builder holds four bytes for each
    /// concept, about five more for its offsets, 40 bytes for each different (relation, source,
    /// weight), and the sentences and the names with capitals that the facts bring.
    ///
    /// # Errors
    /// The folder cannot be created or written in.
    pub fn new(path: &Path, memory_bytes: usize) -> io::Result<Self> {
        let folder = folder_of(path);
        std::fs::create_dir_all(folder)?;
        let sorter_bytes = memory_bytes / 2;
        Ok(Self {
            path: path.to_owned(),
            sorter_bytes,
            names: Interners::default(),
            ends: Sorter::new(folder, sorter_bytes),
            rest: BufWriter::new(tempfile::tempfile_in(folder)?),
            facts: 0,
            own: OwnWords::default(),
        })
    }

    /// Whether there are no facts.
    pub fn is_empty(&self) -> bool {
        self.facts == 0
    }

    /// Adds a fact, as [`Builder::add`](super::Builder::add) does.
    ///
    /// # Errors
    /// A snapshot cannot hold the fact, or the sorted facts cannot be written.
    pub fn add(&mut self, fact: &ImportedFact) -> Result<(), CollectError> {
        let ends = checked(fact)?;
        if self.facts == u32::MAX {
            return Err(BuildError::TooMany { what: "facts", limit: u32::MAX as usize }.into());
        }
        let [_, relation, source] = self.names.intern(fact)?;
        for (side, text) in (0..).zip(&ends) {
            let fact_number = self.facts.to_be_bytes();
            let record =
                [text.as_bytes(), &[END], fact.language.as_bytes(), &[END], &fact_number, &[side]];
            self.ends.push(&record.concat())?;
        }
        self.rest.write_all(&(relation as u16).to_le_bytes())?;
        self.rest.write_all(&[source as u8])?;
        self.rest.write_all(&fact.weight.to_le_bytes())?;
        self.own.add(fact, source_of(fact), ends.each_ref().map(String::as_str));
        self.facts += 1;
        Ok(())
    }

    /// Compiles into the file. Calls `progress` with the name of each step.
    ///
    /// # Errors
    /// A file cannot be written, or there are too many concepts.
    pub fn write(self, mut progress: impl FnMut(&'static str)) -> io::Result<()> {
        let Self { path, sorter_bytes, names, ends, mut rest, facts, own } = self;
        let folder = folder_of(&path);
        let sorter = || Sorter::new(folder, sorter_bytes);
        let (names, places) = names.sorted();
        let mut compiler = Compiler::new(Storage::Folder(folder.to_owned()), names);

        progress("numbering concepts");
        let mut by_fact = sorter();
        let keys = number_concepts(&mut compiler, ends, &mut by_fact)?;
        progress("joining facts");
        rest.flush()?;
        let rest = rest.into_inner().map_err(|error| error.into_error())?;
        let mut by_head = sorter();
        join_ends(by_fact, rest, &places, facts, &mut by_head)?;
        progress("folding facts");
        let facts = fold(&mut compiler, by_head)?;
        progress("ranking facts");
        let mut by_tail = sorter();
        write_from(&mut compiler, facts, &mut by_tail)?;
        write_to(&mut compiler, by_tail)?;
        progress("indexing lemmas");
        write_lemmas(&mut compiler, keys, [sorter(), sorter()])?;
        progress("writing the snapshot");
        write_whole_by(&path, |file| compiler.assemble(&own, file))
    }
}

/// Rewinds a file after writing, to read it.
fn rewound(out: BufWriter<tempfile::SpooledTempFile>) -> io::Result<impl Read> {
    let mut file = out.into_inner().map_err(|error| error.into_error())?;
    file.rewind()?;
    Ok(BufReader::with_capacity(1 << 16, file))
}

fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
}

/// Numbers the concepts in order of their texts. Returns the lemma index key of each.
fn number_concepts(
    compiler: &mut Compiler,
    ends: Sorter,
    by_fact: &mut Sorter,
) -> io::Result<impl Read + use<>> {
    let mut dictionary = compiler.dictionary();
    let mut keys = BufWriter::new(compiler.storage().file());
    let lemma_keys = LemmaKeys::new(&compiler.names().languages);
    let (mut ends, mut current, mut count) = (ends.sorted()?, Vec::new(), 0u32);
    while let Some(record) = ends.next()? {
        let (name, end) = record.split_at(record.len() - END_BYTES);
        if name != current {
            if count as usize == MOST_CONCEPTS {
                return Err(io::Error::other(format!("more than {MOST_CONCEPTS} concepts")));
            }
            count += 1;
            name.clone_into(&mut current);
            let mut parts = name.split(|&byte| byte == END);
            let mut part = || std::str::from_utf8(parts.next().unwrap_or_default());
            let (text, language) = (part(), part());
            let (text, language) = (text.map_err(broken)?, language.map_err(broken)?);
            let place = compiler.names().language(language)?;
            dictionary.push(text, place)?;
            let key = lemma_keys.key(text, place).unwrap_or_default();
            let length = u16::try_from(key.len()).map_err(broken)?;
            keys.write_all(&length.to_le_bytes())?;
            keys.write_all(key.as_bytes())?;
        }
        by_fact.push(&[end, &(count - 1).to_be_bytes()].concat())?;
    }
    compiler.end_dictionary(dictionary)?;
    rewound(keys)
}

/// The error of a file whose content differs from what was written to it.
fn broken(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Joins the two ends of each fact. Of repeated facts the strongest comes first, and of two equally
/// strong ones the negated one.
fn join_ends(
    by_fact: Sorter,
    mut rest: File,
    [_, relations, sources]: &[Vec<usize>; 3],
    facts: u32,
    by_head: &mut Sorter,
) -> io::Result<()> {
    rest.rewind()?;
    let mut rest = BufReader::with_capacity(1 << 16, rest);
    let mut by_fact = by_fact.sorted()?;
    let mut end = || -> io::Result<[u8; 4]> {
        let record = by_fact.next()?.ok_or_else(|| broken("an end of a fact is missing"))?;
        Ok(u32_at(record, END_BYTES).to_be_bytes())
    };
    for _ in 0..facts {
        let (head, tail) = (end()?, end()?);
        let mut bytes = [0; REST_BYTES];
        rest.read_exact(&mut bytes)?;
        let relation = relations[usize::from(u16::from_le_bytes([bytes[0], bytes[1]]))] as u16;
        let source = sources[usize::from(bytes[2])] as u8;
        let weight = f32::from_le_bytes([bytes[3], bytes[4], bytes[5], bytes[6]]);
        let strength = (!weight.abs().to_bits()).to_be_bytes();
        let affirms = u8::from(weight > 0.0);
        let record =
            [&head[..], &tail, &relation.to_be_bytes(), &[source], &strength, &[affirms]].concat();
        by_head.push(&record)?;
    }
    Ok(())
}

/// Bytes of the key of a sorted fact: head 4, tail 4, relation 2, source 1.
const FACT_KEY_BYTES: usize = 11;
/// Bytes of the key and the weight.
const FACT_BYTES: usize = 15;

/// Folds repeated facts and collects [`Seen`]. Returns the facts by head, tail, relation, source.
fn fold(compiler: &mut Compiler, by_head: Sorter) -> io::Result<impl Read + use<>> {
    let mut seen = Seen::new(compiler.concepts());
    let mut facts = BufWriter::new(compiler.storage().file());
    let (mut by_head, mut current) = (by_head.sorted()?, Vec::new());
    while let Some(record) = by_head.next()? {
        let (key, strength) = record.split_at(FACT_KEY_BYTES);
        if key != current {
            key.clone_into(&mut current);
            let absolute = f32::from_bits(!u32_at(strength, 0));
            let weight = if strength[4] == 1 { absolute } else { -absolute };
            facts.write_all(key)?;
            facts.write_all(&weight.to_be_bytes())?;
            seen.add(&read_fact(compiler, key, weight));
        }
    }
    compiler.end_facts(seen)?;
    rewound(facts)
}

fn read_fact(compiler: &Compiler, key: &[u8], weight: f32) -> Fact {
    let relation = u16::from_be_bytes([key[8], key[9]]);
    compiler.names().fact([u32_at(key, 0), u32_at(key, 4)], relation, key[10], weight)
}

/// Writes the facts by head and their rankings, and sorts the facts by tail and rank.
fn write_from(
    compiler: &mut Compiler,
    mut facts: impl Read,
    by_tail: &mut Sorter,
) -> io::Result<()> {
    let (mut from, mut ranks) = (compiler.adjacency(), compiler.ranks());
    let mut bytes = [0; FACT_BYTES];
    for _ in 0..compiler.facts() {
        facts.read_exact(&mut bytes)?;
        let (key, weight) = bytes.split_at(FACT_KEY_BYTES);
        let weight = f32::from_bits(u32_at(weight, 0));
        let fact = read_fact(compiler, key, weight);
        compiler.push(&mut from, [fact.head, fact.tail], &fact)?;
        compiler.rank(&mut ranks, &fact)?;
        let (strength, scarce, degree) =
            rank(fact.weight, compiler.degrees()[fact.head.0 as usize]);
        let record = [
            &fact.tail.0.to_be_bytes()[..],
            &(!strength.0).to_be_bytes(),
            &[u8::from(scarce)],
            &degree.to_be_bytes(),
            &fact.head.0.to_be_bytes(),
            &fact.relation.0.to_be_bytes(),
            &[fact.source, u8::from(fact.negated)],
        ];
        by_tail.push(&record.concat())?;
    }
    compiler.end_adjacency(from, [Section::From, Section::FromOffsets])?;
    compiler.end_ranks(ranks)
}

fn write_to(compiler: &mut Compiler, by_tail: Sorter) -> io::Result<()> {
    let mut to = compiler.adjacency();
    let mut by_tail = by_tail.sorted()?;
    while let Some(record) = by_tail.next()? {
        let fact = Fact {
            tail: ConceptId(u32_at(record, 0)),
            weight: f32::from_bits(!u32_at(record, 4)),
            head: ConceptId(u32_at(record, 13)),
            relation: super::RelationId(u16::from_be_bytes([record[17], record[18]])),
            source: record[19],
            negated: record[20] == 1,
        };
        compiler.push(&mut to, [fact.tail, fact.head], &fact)?;
    }
    compiler.end_adjacency(to, [Section::To, Section::ToOffsets])
}

/// Writes the lemma index from the keys of the concepts, in the order of the concepts.
fn write_lemmas(
    compiler: &mut Compiler,
    mut keys: impl Read,
    [mut by_key, mut by_gram]: [Sorter; 2],
) -> io::Result<()> {
    let mut key = Vec::new();
    for concept in 0..compiler.concepts() as u32 {
        let mut length = [0; 2];
        keys.read_exact(&mut length)?;
        key.resize(usize::from(u16::from_le_bytes(length)), 0);
        keys.read_exact(&mut key)?;
        if !key.is_empty() {
            for gram in grams_of_index_key(std::str::from_utf8(&key).map_err(broken)?) {
                let mut record = [0; 12];
                record[..8].copy_from_slice(&gram.to_be_bytes());
                record[8..].copy_from_slice(&concept.to_be_bytes());
                by_gram.push(&record)?;
            }
            let degree = !compiler.degrees()[concept as usize];
            by_key.push(
                &[&key[..], &[END], &degree.to_be_bytes(), &concept.to_be_bytes()].concat(),
            )?;
        }
    }
    let mut lemmas = compiler.lemmas()?;
    let mut by_key = by_key.sorted()?;
    while let Some(record) = by_key.next()? {
        let (key, rest) = record.split_at(record.len() - 9);
        lemmas.push(key, ConceptId(u32_at(rest, 5)))?;
    }
    compiler.end_lemmas(lemmas)?;
    let mut grams = compiler.grams();
    let mut by_gram = by_gram.sorted()?;
    while let Some(record) = by_gram.next()? {
        let gram = u64::from(u32_at(record, 0)) << 32 | u64::from(u32_at(record, 4));
        grams.push(gram, ConceptId(u32_at(record, 8)))?;
    }
    compiler.end_grams(grams)
}

#[cfg(test)]
mod tests;
