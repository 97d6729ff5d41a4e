//! How alike two texts of a history are: the measure behind recall, clusters, chains and eviction.
//!
//! Two texts are compared by their vectors where both have one, and by their terms otherwise. All sums
//! are of whole numbers: a sum of many texts does not depend on their order, and a text that is removed
//! leaves no trace, so a centroid that is computed again from its members after a restart equals the
//! earlier one to the last bit.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use turnstream_knowledge::terms::terms;

/// The length to which a text's numbers are scaled before they are rounded. The dot product of two texts
/// fits in 32 bits, and that of two sums over every entry of a history in 64.
const LENGTH: f64 = 16_384.0;

/// The terms of a text ([`terms`]), each with its weight. Terms are hashed to 64 bits: a collision makes
/// two texts look a little more alike, and has no other effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// By rising hash, without repeats.
    terms: Vec<Term>,
    /// The squared length of the vector of their weights.
    squared: i64,
    /// The number of terms, repeated ones counted each time.
    length: u32,
}

/// One term of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// The hash of the term.
    pub hash: u64,
    /// How often the text contains it.
    pub count: u32,
    /// Its weight in a cosine: 1 + ln(count), scaled so that all weights have the common length.
    weight: i32,
}

impl Terms {
    /// Counts the terms of texts.
    pub fn of<'text>(texts: impl IntoIterator<Item = &'text str>) -> Self {
        let terms = texts.into_iter().flat_map(terms);
        let mut hashes: Vec<u64> = terms.map(|term| hash_of(&term)).collect();
        hashes.sort_unstable();
        let dampened = |count: u32| 1.0 + f64::from(count).ln();
        let counted = hashes.chunk_by(|a, b| a == b).map(|equal| (equal[0], equal.len() as u32));
        let length = counted.clone().map(|(_, count)| dampened(count).powi(2)).sum::<f64>().sqrt();
        let term = |(hash, count)| {
            let weight = (LENGTH * dampened(count) / length).round() as i32;
            Term { hash, count, weight }
        };
        let terms: Vec<Term> = counted.map(term).collect();
        let squared = terms.iter().map(|term| i64::from(term.weight).pow(2)).sum();
        Self { terms, squared, length: hashes.len() as u32 }
    }

    /// Returns the terms by rising hash, without repeats.
    pub fn iter(&self) -> impl Iterator<Item = &Term> {
        self.terms.iter()
    }

    /// Returns the number of terms, repeated ones counted each time.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Returns the terms that both texts have, each as it is in this text and in the other.
    pub fn shared<'t>(&'t self, other: &'t Self) -> impl Iterator<Item = (&'t Term, &'t Term)> {
        let (mut ours, mut theirs) = (self.terms.as_slice(), other.terms.as_slice());
        std::iter::from_fn(move || {
            while let ([a, rest_a @ ..], [b, rest_b @ ..]) = (ours, theirs) {
                match a.hash.cmp(&b.hash) {
                    std::cmp::Ordering::Less => ours = rest_a,
                    std::cmp::Ordering::Greater => theirs = rest_b,
                    std::cmp::Ordering::Equal => {
                        (ours, theirs) = (rest_a, rest_b);
                        return Some((a, b));
                    }
                }
            }
            None
        })
    }

    /// Returns the cosine of two texts' terms, 0..=1; 0 where one has none.
    pub fn likeness(&self, other: &Self) -> f64 {
        cosine(self.dot(other), self.squared, other.squared)
    }

    fn dot(&self, other: &Self) -> i64 {
        let products = self.shared(other).map(|(a, b)| i64::from(a.weight) * i64::from(b.weight));
        products.sum()
    }
}

/// Returns the hash of a term, as [`Terms`] use it.
pub(super) fn hash_of(term: &str) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    term.hash(&mut hasher);
    hasher.finish()
}

/// An encoder's vector of a text, rounded to whole numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vector {
    numbers: Arc<[i16]>,
    squared: i64,
}

impl Vector {
    /// Rounds a vector of any length; `None` where its length is 0 or a number is not finite.
    pub fn of(vector: &[f32]) -> Option<Self> {
        let squares = vector.iter().map(|number| f64::from(*number).powi(2));
        let length = squares.sum::<f64>().sqrt();
        let has_length = length.is_finite() && length > 0.0;
        has_length.then(|| {
            // Away from zero, as `f64::round` does, which is a call on this target.
            let rounded = |number: &f32| {
                let scaled = LENGTH * f64::from(*number) / length;
                (scaled + 0.5_f64.copysign(scaled)) as i16
            };
            Self::rounded(vector.iter().map(rounded).collect())
        })
    }

    /// Takes numbers that are rounded already, as a history entry keeps them.
    pub fn rounded(numbers: Arc<[i16]>) -> Self {
        let squared = numbers.iter().map(|number| i64::from(*number).pow(2)).sum();
        Self { numbers, squared }
    }

    /// Returns the rounded numbers.
    pub fn numbers(&self) -> &Arc<[i16]> {
        &self.numbers
    }

    fn dot(&self, other: &Self) -> i64 {
        let pairs = self.numbers.iter().zip(&*other.numbers);
        i64::from(pairs.map(|(a, b)| i32::from(*a) * i32::from(*b)).sum::<i32>())
    }
}

/// The parts of a text by which texts are compared: its terms and, where there is one, its vector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// Its terms.
    pub terms: Terms,
    /// The encoder's vector, where an encoder is configured and knows anything in the text.
    pub vector: Option<Vector>,
}

impl Signature {
    /// Makes the signature of texts by their words alone.
    pub fn of<'text>(texts: impl IntoIterator<Item = &'text str>) -> Self {
        Self { terms: Terms::of(texts), vector: None }
    }

    /// Sets the vector.
    pub fn with(self, vector: Option<Vector>) -> Self {
        Self { vector, ..self }
    }

    /// Returns how alike two texts are, 0..=1: the cosine of their vectors where both have one of
    /// the same length (0 where it is negative), of their terms otherwise; 0 where one is empty.
    pub fn likeness(&self, other: &Self) -> f64 {
        self.likeness_in_meaning(other).unwrap_or_else(|| self.terms.likeness(&other.terms))
    }

    /// Returns the cosine of the vectors of two texts, 0 where it is negative; `None` unless both
    /// have one of the same length.
    pub fn likeness_in_meaning(&self, other: &Self) -> Option<f64> {
        let (ours, theirs) = (self.vector.as_ref()?, other.vector.as_ref()?);
        let comparable = ours.numbers.len() == theirs.numbers.len();
        comparable.then(|| cosine(ours.dot(theirs), ours.squared, theirs.squared))
    }
}

fn cosine(dot: i64, ours: i64, theirs: i64) -> f64 {
    if dot <= 0 {
        return 0.0;
    }
    (dot as f64 / (ours as f64 * theirs as f64).sqrt()).min(1.0)
}

/// The sum of texts: the direction that they share. Grows and shrinks with its members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Centroid {
    terms: FxHashMap<u64, i64>,
    terms_squared: i64,
    /// A number has room for a hundred thousand members.
    vector: Vec<i32>,
    vector_squared: i64,
    /// Members that have a vector.
    vectors: usize,
}

impl Centroid {
    /// Adds a text.
    pub fn add(&mut self, text: &Signature) {
        self.terms_squared += 2 * self.terms_dot(&text.terms) + text.terms.squared;
        for term in text.terms.iter() {
            *self.terms.entry(term.hash).or_default() += i64::from(term.weight);
        }
        if let Some(vector) = &text.vector {
            self.vector.resize(self.vector.len().max(vector.numbers.len()), 0);
            self.vector_squared += 2 * self.vector_dot(vector) + vector.squared;
            let numbers = self.vector.iter_mut().zip(&*vector.numbers);
            numbers.for_each(|(sum, number)| *sum += i32::from(*number));
            self.vectors += 1;
        }
    }

    /// Removes a text that was added before.
    pub fn remove(&mut self, text: &Signature) {
        self.terms_squared += text.terms.squared - 2 * self.terms_dot(&text.terms);
        for term in text.terms.iter() {
            if let Some(sum) = self.terms.get_mut(&term.hash) {
                *sum -= i64::from(term.weight);
                if *sum == 0 {
                    self.terms.remove(&term.hash);
                }
            }
        }
        if let Some(vector) = &text.vector {
            self.vector_squared += vector.squared - 2 * self.vector_dot(vector);
            let numbers = self.vector.iter_mut().zip(&*vector.numbers);
            numbers.for_each(|(sum, number)| *sum -= i32::from(*number));
            self.vectors -= 1;
            if self.vectors == 0 {
                self.vector.clear();
            }
        }
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &Self) {
        for (term, sum) in &other.terms {
            *self.terms.entry(*term).or_default() += sum;
        }
        self.terms_squared = self.terms.values().map(|sum| sum * sum).sum();
        self.vector.resize(self.vector.len().max(other.vector.len()), 0);
        self.vector.iter_mut().zip(&other.vector).for_each(|(sum, number)| *sum += number);
        self.vector_squared = self.vector.iter().map(|sum| i64::from(*sum).pow(2)).sum();
        self.vectors += other.vectors;
    }

    /// Returns how alike a text and the sum are, 0..=1, as [`Signature::likeness`] compares.
    pub fn likeness(&self, text: &Signature) -> f64 {
        match &text.vector {
            Some(vector) if vector.numbers.len() == self.vector.len() => {
                cosine(self.vector_dot(vector), self.vector_squared, vector.squared)
            }
            _ => cosine(self.terms_dot(&text.terms), self.terms_squared, text.terms.squared),
        }
    }

    /// Returns how alike two sums are, 0..=1.
    pub fn likeness_of_sums(&self, other: &Self) -> f64 {
        if !self.vector.is_empty() && self.vector.len() == other.vector.len() {
            let pairs = self.vector.iter().zip(&other.vector);
            let dot = pairs.map(|(a, b)| i64::from(*a) * i64::from(*b)).sum();
            return cosine(dot, self.vector_squared, other.vector_squared);
        }
        let (few, many) =
            if self.terms.len() < other.terms.len() { (self, other) } else { (other, self) };
        let dot = few.terms.iter().filter_map(|(term, sum)| Some(sum * many.terms.get(term)?));
        cosine(dot.sum(), self.terms_squared, other.terms_squared)
    }

    /// Returns how much a term weighs in the sum, from 0.
    pub(super) fn weight(&self, term: u64) -> i64 {
        self.terms.get(&term).copied().unwrap_or_default()
    }

    fn terms_dot(&self, terms: &Terms) -> i64 {
        terms.iter().map(|term| self.weight(term.hash) * i64::from(term.weight)).sum()
    }

    fn vector_dot(&self, vector: &Vector) -> i64 {
        let pairs = self.vector.iter().zip(&*vector.numbers);
        pairs.map(|(sum, number)| i64::from(*sum) * i64::from(*number)).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(text: &str) -> Signature {
        Signature::of([text])
    }

    #[test]
    fn likeness_sees_content_and_not_form() {
        let query = text("Where is my parcel?");
        assert!(query.likeness(&text("The parcels were sent")) > 0.3);
        assert_eq!(query.likeness(&text("Where is my dog?")), 0.0);
        assert_eq!(query.likeness(&text("")), 0.0);
        assert!((query.likeness(&query) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn vectors_decide_where_both_texts_have_one() {
        let of = |words: &str, vector: &[f32]| text(words).with(Vector::of(vector));
        let (parcel, dog) = (of("parcel", &[3.0, 4.0]), of("dog", &[4.0, 3.0]));
        assert!((parcel.likeness(&dog) - 0.96).abs() < 1e-4);
        assert_eq!(parcel.likeness(&of("parcel", &[-4.0, 3.0])), 0.0);
        assert!((parcel.likeness(&text("parcel")) - 1.0).abs() < 1e-9, "the words decide");
        assert!((parcel.likeness(&of("parcel", &[1.0])) - 1.0).abs() < 1e-9, "another encoder");
        let rounded = Vector::of(&[1.0, -4.0]).expect("it has a length");
        assert_eq!(**rounded.numbers(), [3_974, -15_895]);
        assert_eq!(Vector::of(&[0.0, 0.0]), None);
        assert_eq!(Vector::of(&[f32::NAN, 1.0]), None);
    }

    /// Texts of a few words, some with a vector.
    fn any_texts() -> impl Strategy<Value = Vec<Signature>> {
        let words = proptest::collection::vec(
            proptest::sample::select(vec!["dog", "parcel", "violin", "train", "rain"]),
            0..5,
        );
        let vector = proptest::option::of([-9..9_i8, -9..9_i8, -9..9_i8]);
        let one = (words, vector).prop_map(|(words, vector)| {
            let vector = vector.and_then(|numbers| Vector::of(&numbers.map(f32::from)));
            text(&words.join(" ")).with(vector)
        });
        proptest::collection::vec(one, 1..12)
    }

    proptest! {
        /// Whichever texts came and went, and in whichever order: the sum is that of the members.
        #[test]
        fn a_centroid_is_the_sum_of_its_members(texts in any_texts(), stay in 0..12_usize) {
            let stay = stay.min(texts.len());
            let mut lived = Centroid::default();
            texts.iter().for_each(|text| lived.add(text));
            texts[stay..].iter().for_each(|text| lived.remove(text));

            let mut anew = Centroid::default();
            texts[..stay].iter().rev().for_each(|text| anew.add(text));
            prop_assert_eq!(&lived, &anew);

            let mut merged = Centroid::default();
            let (mut one, mut other) = (Centroid::default(), Centroid::default());
            texts[..stay / 2].iter().for_each(|text| one.add(text));
            texts[stay / 2..stay].iter().for_each(|text| other.add(text));
            merged.merge(&one);
            merged.merge(&other);
            prop_assert_eq!(&merged, &anew);
            for text in &texts {
                let likeness = anew.likeness(text);
                prop_assert!((0.0..=1.0).contains(&likeness));
            }
        }
    }
}
