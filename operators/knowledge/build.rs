//! Compiles facts into a snapshot: interning, folding of repeated facts, sorting, the lemma index
//! and the rankings. All facts are held in memory once (16 bytes each, and each text once).

use std::cmp::Reverse;
use std::io::Write;
use std::path::Path;

use fst::MapBuilder;
use rustc_hash::FxHashMap;

use super::import::{ImportedFact, normalise};
use super::layout::{
    CHECKED_FROM, FORMAT_VERSION, HEADER_BYTES, MAGIC, SECTIONS, Section, encode, lemma_key,
    lexicon_fingerprint, pack,
};
use super::relation::positive_name;
use super::snapshot::{Backing, Snapshot};
use super::{ConceptId, Fact, Graph, MAX_CONCEPT_BYTES, RelationId};
use crate::language::Lexicon;

/// Concepts whose other end has fewer facts than this rank behind those that have more: a
/// concept that hardly anything is said about is more often a slip of the pen.
pub(super) const WELL_ATTESTED_DEGREE: u32 = 3;

/// Why a fact cannot go into a snapshot.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BuildError {
    /// A field has nothing in it.
    #[error("the {field} is empty")]
    Empty {
        /// Which field.
        field: &'static str,
    },
    /// A text is longer than [`MAX_CONCEPT_BYTES`].
    #[error("the {field} has {bytes} bytes, more than the {MAX_CONCEPT_BYTES} allowed")]
    TooLong {
        /// Which field.
        field: &'static str,
        /// How long it is.
        bytes: usize,
    },
    /// The weight is zero or no number.
    #[error("the weight {0} is not a number other than zero")]
    Weight(f32),
    /// A snapshot has no room for one more of these.
    #[error("more than {limit} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
}

/// Collects facts and compiles them. The result does not depend on the order of the facts.
#[derive(Default)]
pub struct Builder {
    languages: Interner,
    relations: Interner,
    sources: Interner,
    /// (language, text) → number in order of appearance.
    concepts: Vec<FxHashMap<Box<str>, u32>>,
    concept_count: u32,
    facts: FxHashMap<(u32, u32, u16, u8), f32>,
}

/// Names in order of appearance.
#[derive(Default)]
struct Interner {
    names: Vec<String>,
    numbers: FxHashMap<String, usize>,
}

impl Interner {
    fn intern(
        &mut self,
        name: &str,
        what: &'static str,
        limit: usize,
    ) -> Result<usize, BuildError> {
        if let Some(&number) = self.numbers.get(name) {
            return Ok(number);
        }
        if self.names.len() == limit {
            return Err(BuildError::TooMany { what, limit });
        }
        self.numbers.insert(name.to_owned(), self.names.len());
        self.names.push(name.to_owned());
        Ok(self.names.len() - 1)
    }

    /// The names sorted, and for each number its place among them.
    fn sorted(&self) -> (Vec<&str>, Vec<usize>) {
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        order.sort_by(|&a, &b| self.names[a].cmp(&self.names[b]));
        let mut places = vec![0; order.len()];
        for (place, &number) in order.iter().enumerate() {
            places[number] = place;
        }
        (order.iter().map(|&number| self.names[number].as_str()).collect(), places)
    }
}

impl Builder {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fact. Texts are normalised. A fact with the same head, relation, tail and source as
    /// an earlier one is folded into it: the larger absolute weight stays, and of two equally
    /// strong ones the denial.
    ///
    /// # Errors
    /// A field is empty or too long, the weight is zero or not finite, or there are more than 255
    /// sources or languages or 65,535 relations. The builder is as it was.
    pub fn add(&mut self, fact: &ImportedFact) -> Result<(), BuildError> {
        let (head, tail) = (normalise(&fact.head), normalise(&fact.tail));
        for (field, text) in [("head", &*head), ("tail", &*tail), ("relation", &*fact.relation)] {
            if text.is_empty() || text.contains(['\t', '\n']) {
                return Err(BuildError::Empty { field });
            }
            if text.len() > MAX_CONCEPT_BYTES {
                return Err(BuildError::TooLong { field, bytes: text.len() });
            }
        }
        if !fact.weight.is_finite() || fact.weight == 0.0 {
            return Err(BuildError::Weight(fact.weight));
        }
        let source = if fact.source.is_empty() { "unnamed" } else { &fact.source };
        let source = self.sources.intern(source, "sources", 255)? as u8;
        let relation = self.relations.intern(&fact.relation, "relations", 65_535)? as u16;
        let language = self.languages.intern(&fact.language, "languages", 255)?;
        let (head, tail) = (self.concept(language, &head)?, self.concept(language, &tail)?);
        let weight = self.facts.entry((head, tail, relation, source)).or_insert(fact.weight);
        let strength = |weight: f32| (weight.abs(), weight < 0.0);
        if strength(fact.weight) > strength(*weight) {
            *weight = fact.weight;
        }
        Ok(())
    }

    fn concept(&mut self, language: usize, text: &str) -> Result<u32, BuildError> {
        while self.concepts.len() <= language {
            self.concepts.push(FxHashMap::default());
        }
        if let Some(&number) = self.concepts[language].get(text) {
            return Ok(number);
        }
        let number = self.concept_count;
        if number == u32::MAX {
            return Err(BuildError::TooMany { what: "concepts", limit: u32::MAX as usize });
        }
        self.concepts[language].insert(text.into(), number);
        self.concept_count += 1;
        Ok(number)
    }

    /// How many distinct facts there are so far.
    pub fn len(&self) -> usize {
        self.facts.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// Compiles into memory.
    pub fn into_graph(self) -> Graph {
        let bytes = self.compile().into_boxed_slice();
        let opened = Snapshot::open(Backing::Owned(bytes), Path::new("(in memory)"));
        match opened {
            Ok(snapshot) => Graph::over(snapshot),
            // What `compile` writes, `open` reads: held by the tests of both.
            Err(error) => unreachable!("a snapshot just compiled cannot be opened: {error}"),
        }
    }

    /// Compiles into a file ([`write_whole`]).
    ///
    /// # Errors
    /// The folder cannot be made or the file not be written.
    pub fn write(self, path: &Path) -> std::io::Result<()> {
        write_whole(path, &self.compile())
    }

    /// The bytes of the snapshot.
    fn compile(self) -> Vec<u8> {
        let (languages, language_places) = self.languages.sorted();
        let (relations, relation_places) = self.relations.sorted();
        let (sources, source_places) = self.sources.sorted();
        let texts = self.sorted_concepts(&language_places);
        let mut ids = vec![ConceptId(0); texts.len()];
        for (place, concept) in texts.iter().enumerate() {
            ids[concept.number as usize] = ConceptId(place as u32);
        }
        let denies: Vec<bool> =
            relations.iter().map(|name| positive_name(name).is_some()).collect();
        let mut facts: Vec<Fact> = self
            .facts
            .iter()
            .map(|(&(head, tail, relation, source), &weight)| {
                let relation = relation_places[usize::from(relation)];
                Fact {
                    head: ids[head as usize],
                    tail: ids[tail as usize],
                    relation: RelationId(relation as u16),
                    weight: weight.abs(),
                    source: source_places[usize::from(source)] as u8,
                    negated: weight < 0.0 || denies[relation],
                }
            })
            .collect();
        facts.sort_unstable_by_key(|fact| (fact.head, fact.tail, fact.relation, fact.source));

        let mut sections: [Vec<u8>; SECTIONS] = Default::default();
        let degrees = adjacency(&facts, texts.len(), &mut sections);
        dictionary(&texts, &mut sections);
        lemma_index(&texts, &languages, &degrees, &mut sections);
        let names = [&languages, &relations, &sources].map(|names| names.join("\t"));
        sections[Section::Names as usize] = names.join("\n").into_bytes();
        let largest = degrees.iter().copied().max().unwrap_or(0);
        let fingerprint = lexicon_fingerprint(languages);
        assemble(&sections, [fingerprint, texts.len() as u32, facts.len() as u32, largest])
    }

    fn sorted_concepts(&self, language_places: &[usize]) -> Vec<Concept<'_>> {
        let mut texts: Vec<Concept<'_>> = Vec::with_capacity(self.concept_count as usize);
        for (language, concepts) in self.concepts.iter().enumerate() {
            let language = language_places[language] as u8;
            texts.extend(concepts.iter().map(|(text, &number)| Concept { text, language, number }));
        }
        texts.sort_unstable_by_key(|concept| (concept.text, concept.language));
        texts
    }
}

/// Writes a file under a temporary name beside it, which is renamed when all is on disk: a reader
/// sees the whole file or none, and two writers do not disturb each other. Makes its folder.
///
/// # Errors
/// The folder cannot be made or the file not be written.
pub fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut options = tempfile::Builder::new();
    options.prefix(".unfinished-");
    #[cfg(unix)]
    {
        // As for any other file, the user's mask decides who may read it.
        use std::os::unix::fs::PermissionsExt;
        options.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let mut file = options.tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

struct Concept<'b> {
    text: &'b str,
    language: u8,
    number: u32,
}

fn push(section: &mut Vec<u8>, number: usize) {
    section.extend_from_slice(&(number as u32).to_le_bytes());
}

fn dictionary(texts: &[Concept<'_>], sections: &mut [Vec<u8>; SECTIONS]) {
    let mut end = 0;
    push(&mut sections[Section::TextOffsets as usize], 0);
    for concept in texts {
        end += concept.text.len();
        push(&mut sections[Section::TextOffsets as usize], end);
        sections[Section::Texts as usize].extend_from_slice(concept.text.as_bytes());
        sections[Section::Languages as usize].push(concept.language);
    }
}

/// Facts, where each concept's begin, and the two rankings. Gives the degree of each concept.
fn adjacency(facts: &[Fact], concepts: usize, sections: &mut [Vec<u8>; SECTIONS]) -> Vec<u32> {
    let mut degrees = vec![0u32; concepts];
    for fact in facts {
        degrees[fact.head.0 as usize] += 1;
        degrees[fact.tail.0 as usize] += 1;
        sections[Section::Facts as usize].extend_from_slice(&encode(fact));
    }
    type End = fn(&Fact) -> ConceptId;
    let ends: [(End, End, Section, Section); 2] = [
        (|fact| fact.head, |fact| fact.tail, Section::FromOffsets, Section::FromRanked),
        (|fact| fact.tail, |fact| fact.head, Section::ToOffsets, Section::ToRanked),
    ];
    for (near, far, offsets, ranked) in ends {
        let mut order: Vec<u32> = (0..facts.len() as u32).collect();
        order.sort_unstable_by_key(|&index| {
            let fact = &facts[index as usize];
            let degree = degrees[far(fact).0 as usize];
            // Weights are positive and finite, so their bits order as they do. The index comes
            // last and follows head, tail, relation and source.
            let weight = Reverse(fact.weight.to_bits());
            (near(fact), weight, degree < WELL_ATTESTED_DEGREE, degree, index)
        });
        let mut counts = vec![0usize; concepts];
        for &index in &order {
            counts[near(&facts[index as usize]).0 as usize] += 1;
            push(&mut sections[ranked as usize], index as usize);
        }
        let mut end = 0;
        push(&mut sections[offsets as usize], 0);
        for count in counts {
            end += count;
            push(&mut sections[offsets as usize], end);
        }
    }
    degrees
}

/// The lemma index covers the concepts of every language that has a lexicon.
fn lemma_index(
    texts: &[Concept<'_>],
    languages: &[&str],
    degrees: &[u32],
    sections: &mut [Vec<u8>; SECTIONS],
) {
    let lexicons: Vec<_> = languages.iter().map(|code| Lexicon::for_language(code)).collect();
    let key = |concept: &Concept<'_>| {
        let language = usize::from(concept.language);
        let key = lexicons[language]?.key(concept.text);
        (!key.is_empty()).then(|| lemma_key(languages[language], &key))
    };
    let mut keys: Vec<(String, Reverse<u32>, usize)> = texts
        .iter()
        .enumerate()
        .filter_map(|(id, concept)| Some((key(concept)?, Reverse(degrees[id]), id)))
        .collect();
    keys.sort_unstable();
    let mut map = MapBuilder::memory();
    let mut start = 0;
    for same in keys.chunk_by(|a, b| a.0 == b.0) {
        // Keys rise and the writer is memory, so nothing can fail.
        let _ = map.insert(&same[0].0, pack(start, same.len()));
        start += same.len();
        for (.., id) in same {
            push(&mut sections[Section::LemmaConcepts as usize], *id);
        }
    }
    sections[Section::Lemmas as usize] = map.into_inner().unwrap_or_default();
}

/// `counts`: lexicon fingerprint, concepts, facts, largest degree.
fn assemble(sections: &[Vec<u8>; SECTIONS], counts: [u32; 4]) -> Vec<u8> {
    let size = sections.iter().map(Vec::len).sum::<usize>() + HEADER_BYTES + 8 * SECTIONS;
    let mut bytes = Vec::with_capacity(size);
    bytes.resize(HEADER_BYTES, 0);
    for section in sections {
        bytes.extend_from_slice(&(section.len() as u64).to_le_bytes());
    }
    for section in sections {
        bytes.extend_from_slice(section);
    }
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    for (at, count) in (16..).step_by(4).zip(counts) {
        bytes[at..at + 4].copy_from_slice(&count.to_le_bytes());
    }
    let checksum = crc32fast::hash(&bytes[CHECKED_FROM..]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    bytes
}
