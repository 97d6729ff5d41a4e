//! Writes the sections of a snapshot, each in the order of the file. The builder in memory and the
//! sorted import both use it: concepts, facts and lemmas in their orders give the same bytes.

use std::cmp::Reverse;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use fst::MapBuilder;
use rustc_hash::{FxHashMap, FxHashSet};
use tempfile::SpooledTempFile;

use super::layout::{
    CHECKED_FROM, CHECKSUM_AT, Counts, HEADER_BYTES, MAGIC, SECTIONS, Section, format_of, label,
    lexicon_fingerprint,
};
use super::packed::{OffsetsWriter, PackedWriter};
use super::relation::positive_name;
use super::wording::OwnWords;
use super::{ConceptId, Fact, RelationId};

mod writers;

pub(super) use writers::{AdjacencyWriter, DictionaryWriter, GramWriter, LemmaWriter, RankWriter};

/// A fact whose far end has fewer facts than this ranks behind those with more: a concept with
/// hardly any facts is more often a typing error.
pub(super) const WELL_ATTESTED_DEGREE: u32 = 3;

/// A section of this size moves from memory to a file, if there is a folder for it.
const SECTION_BYTES_IN_MEMORY: usize = 1 << 20;

/// The storage of sections until all are written.
#[derive(Clone, Debug)]
pub(super) enum Storage {
    /// In memory: writing cannot fail.
    Memory,
    /// In unnamed files of this folder; small sections stay in memory.
    Folder(PathBuf),
}

impl Storage {
    pub(super) fn file(&self) -> SpooledTempFile {
        match self {
            Self::Memory => tempfile::spooled_tempfile(usize::MAX),
            Self::Folder(folder) => tempfile::spooled_tempfile_in(SECTION_BYTES_IN_MEMORY, folder),
        }
    }
}

type Spool = BufWriter<SpooledTempFile>;

/// The names of a snapshot, each list sorted, and which relations negate.
pub(super) struct Names {
    pub(super) languages: Vec<String>,
    pub(super) relations: Vec<String>,
    pub(super) sources: Vec<String>,
    /// By relation: whether its name negates.
    denies: Vec<bool>,
}

impl Names {
    pub(super) fn new([languages, relations, sources]: [Vec<String>; 3]) -> Self {
        let denies = relations.iter().map(|name| positive_name(name).is_some()).collect();
        Self { languages, relations, sources, denies }
    }

    /// The position of a language.
    pub(super) fn language(&self, code: &str) -> io::Result<u8> {
        let place = self.languages.binary_search_by(|name| name.as_str().cmp(code));
        place.map(|place| place as u8).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// A fact with an imported weight.
    pub(super) fn fact(
        &self,
        [head, tail]: [u32; 2],
        relation: u16,
        source: u8,
        weight: f32,
    ) -> Fact {
        Fact {
            head: ConceptId(head),
            tail: ConceptId(tail),
            relation: RelationId(relation),
            source,
            weight: weight.abs(),
            negated: weight < 0.0 || self.denies[usize::from(relation)],
        }
    }
}

/// The distinct labels of the facts. They stay in memory, at a few bytes each.
#[derive(Default)]
pub(super) struct Labels {
    found: FxHashSet<u64>,
    codes: FxHashMap<u64, u32>,
}

fn label_of(fact: &Fact) -> u64 {
    label(fact.relation.0, fact.source, fact.negated, fact.weight)
}

impl Labels {
    pub(super) fn add(&mut self, fact: &Fact) {
        self.found.insert(label_of(fact));
    }

    /// Numbers the labels, and returns them in order.
    fn settle(&mut self) -> Vec<u64> {
        let mut labels: Vec<u64> = self.found.drain().collect();
        labels.sort_unstable();
        self.codes = labels.iter().copied().zip(0..).collect();
        labels
    }
}

/// The number of facts, their labels and the degrees: known once the last fact was seen.
pub(super) struct Seen {
    pub(super) facts: usize,
    pub(super) labels: Labels,
    /// The number of facts of each concept.
    pub(super) degrees: Vec<u32>,
}

impl Seen {
    pub(super) fn new(concepts: usize) -> Self {
        Self { facts: 0, labels: Labels::default(), degrees: vec![0; concepts] }
    }

    pub(super) fn add(&mut self, fact: &Fact) {
        self.facts += 1;
        self.labels.add(fact);
        self.degrees[fact.head.0 as usize] += 1;
        self.degrees[fact.tail.0 as usize] += 1;
    }
}

/// The sort key of a fact in the ranking of its near end: heavy facts first, then those whose far
/// end is well attested and informative. Ties are ordered by ids.
pub(super) fn rank(weight: f32, far_degree: u32) -> (Reverse<u32>, bool, u32) {
    // Weights are positive and finite, so their bits sort like the numbers.
    (Reverse(weight.to_bits()), far_degree < WELL_ATTESTED_DEGREE, far_degree)
}

/// A snapshot whose sections are being written.
pub(super) struct Compiler {
    storage: Storage,
    names: Names,
    parts: [SpooledTempFile; SECTIONS],
    counts: Counts,
    largest: u32,
    codes: FxHashMap<u64, u32>,
    degrees: Vec<u32>,
}

impl Compiler {
    pub(super) fn new(storage: Storage, names: Names) -> Self {
        let parts = std::array::from_fn(|_| storage.file());
        let languages = names.languages.len();
        let counts = Counts { concepts: 0, facts: 0, labels: 0, languages, lemmas: 0, grams: 0 };
        let (codes, degrees) = (FxHashMap::default(), Vec::new());
        Self { storage, names, parts, counts, largest: 0, codes, degrees }
    }

    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    pub(super) fn storage(&self) -> &Storage {
        &self.storage
    }

    pub(super) fn concepts(&self) -> usize {
        self.counts.concepts
    }

    pub(super) fn facts(&self) -> usize {
        self.counts.facts
    }

    /// The number of facts of each concept.
    pub(super) fn degrees(&self) -> &[u32] {
        &self.degrees
    }

    fn put(&mut self, section: Section, mut done: Spool) -> io::Result<()> {
        done.flush()?;
        self.parts[section as usize] = done.into_inner().map_err(|error| error.into_error())?;
        Ok(())
    }

    fn put_offsets(&mut self, section: Section, offsets: OffsetsWriter) -> io::Result<()> {
        let mut out = BufWriter::new(self.storage.file());
        offsets.finish(&mut out)?;
        self.put(section, out)
    }

    /// First step: begins the concepts.
    pub(super) fn dictionary(&self) -> DictionaryWriter {
        DictionaryWriter {
            texts: BufWriter::new(self.storage.file()),
            offsets: OffsetsWriter::new(),
            languages: PackedWriter::new(BufWriter::new(self.storage.file())),
            bits: self.counts.language_bits(),
            concepts: 0,
        }
    }

    /// Ends the concepts.
    pub(super) fn end_dictionary(&mut self, dictionary: DictionaryWriter) -> io::Result<()> {
        self.counts.concepts = dictionary.concepts;
        self.put(Section::Texts, dictionary.texts)?;
        self.put_offsets(Section::TextOffsets, dictionary.offsets)?;
        self.put(Section::Languages, dictionary.languages.finish()?)
    }

    /// Second step: writes the labels, once every fact was seen.
    pub(super) fn end_facts(&mut self, mut seen: Seen) -> io::Result<()> {
        let labels = seen.labels.settle();
        let mut out = BufWriter::new(self.storage.file());
        for label in &labels {
            out.write_all(&label.to_le_bytes())?;
        }
        self.counts.labels = labels.len();
        self.counts.facts = seen.facts;
        self.codes = seen.labels.codes;
        self.degrees = seen.degrees;
        self.largest = self.degrees.iter().copied().max().unwrap_or(0);
        self.put(Section::Labels, out)
    }

    /// Third step: begins the facts by head, or the facts by tail.
    pub(super) fn adjacency(&self) -> AdjacencyWriter {
        AdjacencyWriter {
            facts: PackedWriter::new(BufWriter::new(self.storage.file())),
            offsets: OffsetsWriter::new(),
            next: 0,
            degree: 0,
        }
    }

    /// Appends a fact. The caller sorts the facts of one writer by head, tail, relation, source,
    /// and those of the other by tail, [`rank`], head, relation, source.
    pub(super) fn push(
        &self,
        writer: &mut AdjacencyWriter,
        [near, far]: [ConceptId; 2],
        fact: &Fact,
    ) -> io::Result<()> {
        let code = self.codes[&label_of(fact)];
        writer.reach(near.0);
        writer.degree += 1;
        writer.facts.push(u64::from(far.0), self.counts.concept_bits())?;
        writer.facts.push(u64::from(code), self.counts.label_bits())
    }

    /// Ends the facts by head or by tail.
    pub(super) fn end_adjacency(
        &mut self,
        mut writer: AdjacencyWriter,
        [facts, offsets]: [Section; 2],
    ) -> io::Result<()> {
        writer.reach(self.counts.concepts as u32);
        self.put(facts, writer.facts.finish()?)?;
        self.put_offsets(offsets, writer.offsets)
    }

    /// Begins the rankings of the heads.
    pub(super) fn ranks(&self) -> RankWriter {
        RankWriter {
            ranks: PackedWriter::new(BufWriter::new(self.storage.file())),
            offsets: OffsetsWriter::new(),
            group: Vec::new(),
            next: 0,
        }
    }

    /// Appends a fact. The caller sorts facts by head, tail, relation, source.
    pub(super) fn rank(&self, writer: &mut RankWriter, fact: &Fact) -> io::Result<()> {
        if fact.head.0 >= writer.next {
            writer.end_group(fact.head.0)?;
        }
        writer.group.push(rank(fact.weight, self.degrees[fact.tail.0 as usize]));
        Ok(())
    }

    /// Ends the rankings.
    pub(super) fn end_ranks(&mut self, mut writer: RankWriter) -> io::Result<()> {
        writer.end_group(self.counts.concepts as u32)?;
        self.put(Section::Ranks, writer.ranks.finish()?)?;
        self.put_offsets(Section::RankOffsets, writer.offsets)
    }

    /// Last step: begins the lemma index.
    pub(super) fn lemmas(&self) -> io::Result<LemmaWriter> {
        Ok(LemmaWriter {
            map: MapBuilder::new(BufWriter::new(self.storage.file())).map_err(fst_error)?,
            concepts: PackedWriter::new(BufWriter::new(self.storage.file())),
            bits: self.counts.concept_bits() + 1,
            key: Vec::new(),
            pending: None,
            entries: 0,
        })
    }

    /// Ends the lemma index.
    pub(super) fn end_lemmas(&mut self, mut writer: LemmaWriter) -> io::Result<()> {
        writer.end_entry(true)?;
        self.counts.lemmas = writer.entries;
        self.put(Section::Lemmas, writer.map.into_inner().map_err(fst_error)?)?;
        self.put(Section::LemmaConcepts, writer.concepts.finish()?)
    }

    /// Begins the index of character n-grams.
    pub(super) fn grams(&self) -> GramWriter {
        GramWriter {
            grams: BufWriter::new(self.storage.file()),
            offsets: OffsetsWriter::new(),
            concepts: PackedWriter::new(BufWriter::new(self.storage.file())),
            bits: self.counts.concept_bits(),
            current: None,
            length: 0,
        }
    }

    /// Ends the index of character n-grams.
    pub(super) fn end_grams(&mut self, mut writer: GramWriter) -> io::Result<()> {
        writer.end_list();
        self.put(Section::Grams, writer.grams)?;
        self.put_offsets(Section::GramOffsets, writer.offsets)?;
        self.put(Section::GramConcepts, writer.concepts.finish()?)
    }

    /// Writes the header, all sections and the own words.
    pub(super) fn assemble(
        mut self,
        own: &OwnWords,
        out: &mut (impl Write + Seek),
    ) -> io::Result<()> {
        let Names { languages, relations, sources, .. } = &self.names;
        let lines = [languages, relations, sources].map(|names| names.join("\t"));
        let fingerprint = lexicon_fingerprint(languages.iter().map(String::as_str));
        self.parts[Section::Names as usize].write_all(lines.join("\n").as_bytes())?;

        let mut header = [0; HEADER_BYTES + 8 * SECTIONS];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&format_of(own).to_le_bytes());
        let Counts { concepts, facts, lemmas, .. } = self.counts;
        let counts = [fingerprint, concepts as u32, facts as u32, self.largest, lemmas as u32];
        for (at, count) in (CHECKED_FROM..).step_by(4).zip(counts) {
            header[at..at + 4].copy_from_slice(&count.to_le_bytes());
        }
        for (at, part) in (HEADER_BYTES..).step_by(8).zip(&mut self.parts) {
            let length = part.seek(SeekFrom::End(0))?;
            header[at..at + 8].copy_from_slice(&length.to_le_bytes());
        }
        let begin = out.stream_position()?;
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&header[CHECKED_FROM..]);
        out.write_all(&header)?;
        let mut buffer = vec![0; 1 << 16];
        for part in &mut self.parts {
            part.rewind()?;
            loop {
                let read = part.read(&mut buffer)?;
                if read == 0 {
                    break;
                }
                checksum.update(&buffer[..read]);
                out.write_all(&buffer[..read])?;
            }
        }
        let own = own.lines();
        checksum.update(own.as_bytes());
        out.write_all(own.as_bytes())?;
        let end = out.stream_position()?;
        out.seek(SeekFrom::Start(begin + CHECKSUM_AT as u64))?;
        out.write_all(&checksum.finalize().to_le_bytes())?;
        out.seek(SeekFrom::Start(end))?;
        Ok(())
    }
}

/// Keys come in order and without repetition, so only writing can fail.
fn fst_error(error: fst::Error) -> io::Error {
    match error {
        fst::Error::Io(error) => error,
        fst::Error::Fst(error) => io::Error::other(error),
    }
}
