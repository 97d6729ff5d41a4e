//! Generates a graph as large as the public ConceptNet, for tests of scale: a file in the format of
//! ConceptNet's assertions, with meaningless words.
//!
//! The degrees of the concepts are drawn from those counted on a real file, heads and tails are
//! paired at random (the configuration model of random graphs, Molloy and Reed 1995), and relations
//! are as frequent as in ConceptNet 5.7. The same options give the same bytes.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use rustc_hash::FxHashSet;

mod shape;

use shape::{CONCEPTS_BY_DEGREES, LARGER_OF_16, RELATIONS, WEIGHTS, dataset};
use turnstream_sources::knowledge::Progress;

/// The English concepts, and the facts between them, of ConceptNet 5.7 in round numbers.
const PUBLISHED_CONCEPTS: u32 = 1_170_000;
const PUBLISHED_FACTS: u32 = 3_280_000;

/// The size of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenerateOptions {
    /// Concepts, each in at least one fact: 10 to 500,000,000.
    pub concepts: u32,
    /// Facts: at least 47 and at least as many as concepts; at most 10 for each concept.
    pub facts: u32,
    /// Another seed gives another graph of the same shape.
    pub seed: u64,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self { concepts: PUBLISHED_CONCEPTS, facts: PUBLISHED_FACTS, seed: 1 }
    }
}

/// Why a file cannot be generated.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// No graph has this size.
    #[error(
        "{facts} facts of {concepts} concepts cannot be made: take 10 to 500,000,000 concepts, at \
         least 47 facts, and between 1 and 10 facts for each concept"
    )]
    Shape {
        /// The requested concepts.
        concepts: u32,
        /// The requested facts.
        facts: u32,
    },
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// Pseudo-random numbers (SplitMix64; Steele, Lea and Flood 2014).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`, which must be above 0.
    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// Draws the index of a count, in proportion to the counts.
    fn among(&mut self, counts: impl Iterator<Item = u32> + Clone) -> usize {
        let mut left = self.below(counts.clone().map(u64::from).sum());
        let found = counts.map(u64::from).position(|count| {
            let here = left < count;
            left = left.wrapping_sub(count);
            here
        });
        found.unwrap_or(0)
    }
}

/// Draws a degree of a class; the largest class may give a larger degree.
fn degree(mut class: usize, largest: usize, chance: &mut Chance) -> u32 {
    while class >= largest && class < 18 && chance.below(16) < LARGER_OF_16 {
        class += 1;
    }
    if class < 3 {
        return class as u32;
    }
    let above = 1u64 << (class - 2);
    // Logarithmically uniform: the probability of a degree d is proportional to 1 / d.
    loop {
        let drawn = above + 1 + chance.below(above);
        if chance.below(drawn) <= above {
            return drawn as u32;
        }
    }
}

/// Draws the ends of facts: each concept once for every fact with it as head, and as tail.
fn ends(options: &GenerateOptions, chance: &mut Chance) -> [Vec<u32>; 2] {
    let classes = CONCEPTS_BY_DEGREES[0].len();
    let cells: Vec<u64> = CONCEPTS_BY_DEGREES
        .iter()
        .flatten()
        .scan(0, |sum, &count| {
            *sum += u64::from(count);
            Some(*sum)
        })
        .collect();
    let total = cells[cells.len() - 1];
    let (mut heads, mut tails) = (Vec::new(), Vec::new());
    // Keep one end of each concept, so that every concept is in a fact.
    let (mut kept_heads, mut kept_tails) = (FxHashSet::default(), FxHashSet::default());
    for concept in 0..options.concepts {
        let drawn = chance.below(total);
        let cell = cells.partition_point(|&sum| sum <= drawn);
        let out = degree(cell / classes, CONCEPTS_BY_DEGREES.len() - 1, chance);
        let into = degree(cell % classes, classes - 1, chance);
        if out > 0 {
            kept_heads.insert(heads.len())
        } else {
            kept_tails.insert(tails.len())
        };
        heads.extend(std::iter::repeat_n(concept, out as usize));
        tails.extend(std::iter::repeat_n(concept, into as usize));
    }
    let facts = options.facts as usize;
    [fit(heads, &kept_heads, facts, chance), fit(tails, &kept_tails, facts, chance)]
}

/// Removes or duplicates ends until there are `facts`; each end is equally likely.
fn fit(mut ends: Vec<u32>, kept: &FxHashSet<usize>, facts: usize, chance: &mut Chance) -> Vec<u32> {
    if ends.len() > facts {
        // Selection sampling (Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S).
        let mut spare = (ends.len() - facts) as u64;
        let mut left = (ends.len() - kept.len()) as u64;
        let mut place = 0;
        ends.retain(|_| {
            place += 1;
            if kept.contains(&(place - 1)) {
                return true;
            }
            let goes = chance.below(left) < spare;
            left -= 1;
            spare -= u64::from(goes);
            !goes
        });
    }
    let drawn = ends.len() as u64;
    while ends.len() < facts {
        ends.push(ends[chance.below(drawn) as usize]);
    }
    ends.sort_unstable();
    ends
}

/// Writes the file, gzip-compressed.
///
/// # Errors
/// No graph has this size, or the file cannot be written.
pub fn generate(
    path: &Path,
    options: &GenerateOptions,
    progress: Progress,
) -> Result<(), GenerateError> {
    let &GenerateOptions { concepts, facts, seed } = options;
    let per_concept = concepts..=concepts.saturating_mul(10);
    if !(10..=500_000_000).contains(&concepts) || facts < 47 || !per_concept.contains(&facts) {
        return Err(GenerateError::Shape { concepts, facts });
    }
    let mut chance = Chance(seed);
    let [heads, mut tails] = ends(options, &mut chance);
    for place in (1..tails.len()).rev() {
        tails.swap(place, chance.below(place as u64 + 1) as usize);
    }
    let task = progress.items(path, heads.len() as u64);
    let out = BufWriter::with_capacity(1 << 16, File::create(path)?);
    let mut out = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
    let (mut said, mut line) = (FxHashSet::default(), String::new());
    for (place, &head) in heads.iter().enumerate() {
        if place > 0 && heads[place - 1] != head {
            // Clearing a set costs its largest size so far, and hubs are rare.
            if said.capacity() > 1_024 { said = FxHashSet::default() } else { said.clear() }
        }
        let relation = pair(place, head, &mut tails, &mut said, (concepts, &mut chance));
        write_line(&mut line, [head, tails[place]], relation, &mut chance);
        out.write_all(line.as_bytes())?;
        task.item(place as u64 + 1);
    }
    out.finish()?.into_inner().map_err(|error| error.into_error())?.sync_all()?;
    task.finish();
    Ok(())
}

/// How often a head is given another tail before a new one is invented: the draw may pair two hubs
/// more often than there are relations.
const MOST_EXCHANGES: usize = 100;

/// Gives a head's next tail a relation that the head does not have to it yet. If that is
/// impossible, or if the tail is the head itself, a later tail comes first.
fn pair(
    place: usize,
    head: u32,
    tails: &mut [u32],
    said: &mut FxHashSet<(u32, usize)>,
    (concepts, chance): (u32, &mut Chance),
) -> usize {
    let later = (tails.len() - place) as u64;
    for exchange in 1.. {
        // Every relation occurs, however small the graph.
        let relation = match place {
            0..47 => place,
            _ => chance.among(RELATIONS.iter().map(|relation| relation.1)),
        };
        if tails[place] != head && said.insert((tails[place], relation)) {
            return relation;
        }
        if later > 1 && exchange < MOST_EXCHANGES {
            tails.swap(place, place + chance.below(later) as usize);
        } else {
            tails[place] = chance.below(u64::from(concepts)) as u32;
        }
    }
    0
}

fn write_line(line: &mut String, ends: [u32; 2], relation: usize, chance: &mut Chance) {
    let relation = RELATIONS[relation].0;
    let [head, tail] = ends.map(|concept| {
        // Some concepts carry a part of speech in their name, which is not part of the concept.
        let suffix = ["", "", "", "", "", "", "/n", "/v"][chance.below(8) as usize];
        format!("/c/en/{}{suffix}", text(concept))
    });
    let weight = WEIGHTS[chance.among(WEIGHTS.iter().map(|weight| weight.1))].0;
    let (dataset, contributor) = dataset(relation);
    line.clear();
    *line += &format!(
        "/a/[/r/{relation}/,{head}/,{tail}/]\t/r/{relation}\t{head}\t{tail}\t{{\"dataset\": \
         \"{dataset}\", \"license\": \"cc:by-sa/4.0\", \"sources\": [{{\"contributor\": \
         \"{contributor}\"}}], \"weight\": {weight:?}}}\n"
    );
}

/// Words that occur in concepts of two words.
const COMMON_WORDS: u64 = 40_000;

/// Returns a unique text for each concept: one to three words of syllables. Every twentieth is the
/// plural of its neighbour.
fn text(concept: u32) -> String {
    let number = u64::from(concept);
    if number % 20 == 19 {
        return format!("{}s", text(concept - 1));
    }
    // Each part encodes a digit of the number, so different numbers give different words.
    let (rest, kind) = (number / 8, number % 8);
    match kind {
        0..2 => word(rest * 2 + kind),
        2..5 => {
            let (first, second) = two_words(rest * 3 + kind - 2);
            format!("{first}_{second}")
        }
        _ => {
            let (first, second) = two_words(rest * 3 + kind - 5);
            format!("{first}_of_{second}")
        }
    }
}

/// Returns two words for each number: the first is a digit of it, and gives the offset of the
/// second.
fn two_words(number: u64) -> (String, String) {
    let (first, rest) = (number % COMMON_WORDS, number / COMMON_WORDS);
    (word(first), word((first * 7 + rest) % COMMON_WORDS))
}

/// Returns a word for each number below 2^32. The number is mixed, so that neighbours look
/// different, and its digits become syllables.
fn word(number: u64) -> String {
    const CONSONANTS: &[u8; 16] = b"bdfghjklmnprtvwz";
    const VOWELS: &[u8; 4] = b"aeiu";
    // Small numbers stay small, so that common words are short; multiplication by an odd number is
    // a bijection modulo a power of two.
    let bits = if number < 1 << 18 { 18 } else { 36 };
    let mut left = number.wrapping_mul(0x2_7d4e_b2f1) & ((1 << bits) - 1);
    let mut word = String::new();
    for _ in 0..bits / 6 {
        word.push(char::from(CONSONANTS[(left & 15) as usize]));
        word.push(char::from(VOWELS[(left >> 4 & 3) as usize]));
        left >>= 6;
    }
    word
}

#[cfg(test)]
mod tests;
