//! Compiles facts into a snapshot in memory: interns names, folds repeated facts, sorts, and writes
//! the lemma index and the rankings. The builder holds all facts in memory and each text once. It
//! serves packs and tests, and is the reference for the sorted import.

use std::cmp::Reverse;
use std::io::{Cursor, Seek, Write};
use std::path::Path;

use rustc_hash::FxHashMap;
use turnstream_schemas::text::is_steering;

use super::compile::{Compiler, Names, Seen, Storage, rank};
use super::grams::grams_of_index_key;
use super::import::{ImportedFact, normalise};
use super::layout::{MOST_CONCEPTS, Section, lemma_key};
use super::snapshot::{Backing, Snapshot};
use super::whole::write_whole_by;
use super::wording::OwnWords;
use super::{ConceptId, Fact, Graph, MAX_CONCEPT_BYTES};
use crate::language::Lexicon;

/// Why a fact cannot go into a snapshot.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BuildError {
    /// A field is empty.
    #[error("the {field} is empty")]
    Empty {
        /// The field.
        field: &'static str,
    },
    /// A text is longer than [`MAX_CONCEPT_BYTES`].
    #[error("the {field} has {bytes} bytes, more than the {MAX_CONCEPT_BYTES} allowed")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// A text contains control characters, such as a tab or a zero byte.
    #[error("the {field} holds a control character")]
    Control {
        /// The field.
        field: &'static str,
    },
    /// The weight is zero or not a number.
    #[error("the weight {0} is not a number other than zero")]
    Weight(f32),
    /// There are more of a kind than a snapshot can hold.
    #[error("more than {limit} {what}")]
    TooMany {
        /// The kind, in the plural.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}

/// Collects facts and compiles them. The result does not depend on the order of the facts.
#[derive(Default)]
pub struct Builder {
    names: Interners,
    /// (language, text) → number in order of appearance.
    concepts: Vec<FxHashMap<Box<str>, u32>>,
    concept_count: u32,
    facts: FxHashMap<(u32, u32, u16, u8), f32>,
    own: OwnWords,
}

/// Interns names, in order of appearance.
#[derive(Default)]
pub(super) struct Interner {
    names: Vec<String>,
    numbers: FxHashMap<String, usize>,
}

impl Interner {
    pub(super) fn intern(
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

    /// Returns the sorted names, and the position of each number among them.
    pub(super) fn sorted(&self) -> (Vec<String>, Vec<usize>) {
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        order.sort_by(|&a, &b| self.names[a].cmp(&self.names[b]));
        let mut places = vec![0; order.len()];
        for (place, &number) in order.iter().enumerate() {
            places[number] = place;
        }
        (order.iter().map(|&number| self.names[number].clone()).collect(), places)
    }
}

/// The names of languages, relations and sources.
#[derive(Default)]
pub(super) struct Interners([Interner; 3]);

impl Interners {
    /// The numbers of a fact's language, relation and source.
    pub(super) fn intern(&mut self, fact: &ImportedFact) -> Result<[usize; 3], BuildError> {
        let [languages, relations, sources] = &mut self.0;
        let source = sources.intern(source_of(fact), "sources", 255)?;
        let relation = relations.intern(&fact.relation, "relations", 65_535)?;
        Ok([languages.intern(&fact.language, "languages", 255)?, relation, source])
    }

    /// The sorted names, and the positions of their numbers: languages, relations, sources.
    pub(super) fn sorted(&self) -> (Names, [Vec<usize>; 3]) {
        let [languages, relations, sources] = self.0.each_ref().map(Interner::sorted);
        let names = Names::new([languages.0, relations.0, sources.0]);
        (names, [languages.1, relations.1, sources.1])
    }
}

/// The name of a fact's source.
pub(super) fn source_of(fact: &ImportedFact) -> &str {
    if fact.source.is_empty() { "unnamed" } else { &fact.source }
}

/// Checks a sentence that a fact brings.
///
/// # Errors
/// It is empty, longer than [`MAX_CONCEPT_BYTES`], or contains characters that control the output.
pub(super) fn check_sentence(sentence: &str) -> Result<(), BuildError> {
    let (field, bytes) = ("sentence", sentence.len());
    if sentence.trim().is_empty() {
        return Err(BuildError::Empty { field });
    }
    if bytes > MAX_CONCEPT_BYTES {
        return Err(BuildError::TooLong { field, bytes });
    }
    if sentence.contains(is_steering) {
        return Err(BuildError::Control { field });
    }
    Ok(())
}

/// Returns the normalised head and tail of a fact, if a snapshot can hold it.
pub(super) fn checked(fact: &ImportedFact) -> Result<[String; 2], BuildError> {
    let (head, tail) = (normalise(&fact.head), normalise(&fact.tail));
    let fields = [
        ("head", &*head),
        ("tail", &*tail),
        ("relation", &*fact.relation),
        ("source", &*fact.source),
        ("language", &*fact.language),
    ];
    for (field, text) in fields {
        if text.is_empty() && field != "source" {
            return Err(BuildError::Empty { field });
        }
        if text.len() > MAX_CONCEPT_BYTES {
            return Err(BuildError::TooLong { field, bytes: text.len() });
        }
        if text.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(BuildError::Control { field });
        }
    }
    if !fact.weight.is_finite() || fact.weight == 0.0 {
        return Err(BuildError::Weight(fact.weight));
    }
    fact.sentence.as_deref().map_or(Ok(()), check_sentence)?;
    Ok([head, tail])
}

impl Builder {
    /// An empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fact. Normalises its texts, and keeps its sentence and its capitals to say it. Folds
    /// it into an earlier fact with the same head, relation, tail and source: the larger absolute
    /// weight stays, and of two equally strong ones the negated one.
    ///
    /// # Errors
    /// A field is empty, too long or contains control characters, the weight is zero or not finite,
    /// or there are more than 255 sources or languages or 65,535 relations. The builder is
    /// unchanged.
    pub fn add(&mut self, fact: &ImportedFact) -> Result<(), BuildError> {
        let [head, tail] = checked(fact)?;
        let [language, relation, source] = self.names.intern(fact)?;
        let (relation, source) = (relation as u16, source as u8);
        let ends = [&*head, &*tail];
        let (head, tail) = (self.concept(language, &head)?, self.concept(language, &tail)?);
        if self.facts.len() == u32::MAX as usize {
            return Err(BuildError::TooMany { what: "facts", limit: u32::MAX as usize });
        }
        self.own.add(fact, source_of(fact), ends);
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
        if number as usize == MOST_CONCEPTS {
            return Err(BuildError::TooMany { what: "concepts", limit: MOST_CONCEPTS });
        }
        self.concepts[language].insert(text.into(), number);
        self.concept_count += 1;
        Ok(number)
    }

    /// The number of distinct facts so far.
    pub fn len(&self) -> usize {
        self.facts.len()
    }

    /// Whether there are no facts.
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// Compiles into memory.
    pub fn into_graph(self) -> Graph {
        let mut bytes = Cursor::new(Vec::new());
        // Writing to memory cannot fail, and tests of both functions ensure that `open` reads what
        // `compile` writes.
        let opened = match self.compile(&mut bytes) {
            Ok(()) => {
                let bytes = bytes.into_inner().into_boxed_slice();
                Snapshot::open(Backing::Owned(bytes), Path::new("(in memory)"))
            }
            Err(error) => unreachable!("memory cannot be written to: {error}"),
        };
        match opened {
            Ok(snapshot) => Graph::over(snapshot),
            Err(error) => unreachable!("a snapshot just compiled cannot be opened: {error}"),
        }
    }

    /// Compiles into a file ([`write_whole`](super::write_whole)).
    ///
    /// # Errors
    /// The folder cannot be created, or the file cannot be written.
    pub fn write(self, path: &Path) -> std::io::Result<()> {
        write_whole_by(path, |file| self.compile(file))
    }

    fn compile(self, out: &mut (impl Write + Seek)) -> std::io::Result<()> {
        let (names, [language_places, relation_places, source_places]) = self.names.sorted();
        let texts = self.sorted_concepts(&language_places);
        let mut ids = vec![0; texts.len()];
        for (place, concept) in texts.iter().enumerate() {
            ids[concept.number as usize] = place as u32;
        }
        let mut facts: Vec<Fact> = self
            .facts
            .iter()
            .map(|(&(head, tail, relation, source), &weight)| {
                let relation = relation_places[usize::from(relation)] as u16;
                let source = source_places[usize::from(source)] as u8;
                names.fact([ids[head as usize], ids[tail as usize]], relation, source, weight)
            })
            .collect();
        facts.sort_unstable_by_key(|fact| (fact.head, fact.tail, fact.relation, fact.source));

        let mut compiler = Compiler::new(Storage::Memory, names);
        let mut dictionary = compiler.dictionary();
        for concept in &texts {
            dictionary.push(concept.text, concept.language)?;
        }
        compiler.end_dictionary(dictionary)?;
        adjacency(&mut compiler, facts, texts.len())?;
        lemma_index(&mut compiler, &texts)?;
        compiler.assemble(&self.own, out)
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

struct Concept<'b> {
    text: &'b str,
    language: u8,
    number: u32,
}

/// Writes the facts by head, their rankings, and the facts by tail.
fn adjacency(
    compiler: &mut Compiler,
    mut facts: Vec<Fact>,
    concepts: usize,
) -> std::io::Result<()> {
    let mut seen = Seen::new(concepts);
    facts.iter().for_each(|fact| seen.add(fact));
    compiler.end_facts(seen)?;
    let (mut from, mut ranks) = (compiler.adjacency(), compiler.ranks());
    for fact in &facts {
        compiler.push(&mut from, [fact.head, fact.tail], fact)?;
        compiler.rank(&mut ranks, fact)?;
    }
    compiler.end_adjacency(from, [Section::From, Section::FromOffsets])?;
    compiler.end_ranks(ranks)?;
    let degrees = compiler.degrees();
    facts.sort_unstable_by_key(|fact| {
        let rank = rank(fact.weight, degrees[fact.head.0 as usize]);
        (fact.tail, rank, fact.head, fact.relation, fact.source)
    });
    let mut to = compiler.adjacency();
    for fact in &facts {
        compiler.push(&mut to, [fact.tail, fact.head], fact)?;
    }
    compiler.end_adjacency(to, [Section::To, Section::ToOffsets])
}

/// Writes the lemma index of the concepts of all languages with a lexicon.
fn lemma_index(compiler: &mut Compiler, texts: &[Concept<'_>]) -> std::io::Result<()> {
    let keys = LemmaKeys::new(&compiler.names().languages);
    let mut sorted: Vec<(String, Reverse<u32>, ConceptId)> = (0..)
        .zip(texts)
        .filter_map(|(id, concept)| {
            let degree = Reverse(compiler.degrees()[id as usize]);
            Some((keys.key(concept.text, concept.language)?, degree, ConceptId(id)))
        })
        .collect();
    sorted.sort_unstable();
    let mut by_gram: Vec<(u64, ConceptId)> = Vec::new();
    for (key, _, concept) in &sorted {
        by_gram.extend(grams_of_index_key(key).into_iter().map(|gram| (gram, *concept)));
    }
    by_gram.sort_unstable();
    let mut grams = compiler.grams();
    for (gram, concept) in by_gram {
        grams.push(gram, concept)?;
    }
    compiler.end_grams(grams)?;
    let mut lemmas = compiler.lemmas()?;
    for (key, _, concept) in sorted {
        lemmas.push(key.as_bytes(), concept)?;
    }
    compiler.end_lemmas(lemmas)
}

/// The keys of the lemma index.
pub(super) struct LemmaKeys<'l>(Vec<(&'l str, Option<&'static Lexicon>)>);

impl<'l> LemmaKeys<'l> {
    pub(super) fn new(languages: &'l [String]) -> Self {
        let lexicon = |code: &'l String| (code.as_str(), Lexicon::for_language(code));
        Self(languages.iter().map(lexicon).collect())
    }

    /// The key of a concept; `None` if its language has no lexicon or the concept has no words.
    pub(super) fn key(&self, text: &str, language: u8) -> Option<String> {
        let (code, lexicon) = self.0[usize::from(language)];
        let key = lexicon?.key(text);
        (!key.is_empty()).then(|| lemma_key(code, &key))
    }
}
