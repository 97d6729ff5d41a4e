//! Measures the likeness in meaning between facts and a dialogue: the cosine of their vectors.
//! [`ranking`](crate::ranking) does the same by words.
//!
//! Facts of the snapshot have their vectors in a file ([`FactVectors`]). Facts that are added while turns
//! flow get theirs in one of two ways. Where the encoder does not answer at once, their vectors are in
//! [`LiveRows`] before any turn sees the facts. An encoder that takes microseconds encodes a fact when it is
//! a candidate for the first time, and the vector is kept.

mod nearest;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use turnstream_knowledge::{Fact, FactVectors, Graph, QueryVector, Row, View, quantise, verbalise};
use turnstream_ports::model::encoder::Encoder;

use crate::dialogue_vector::{LatestUtterances, embed};
use crate::flow::TurnInFlight;

pub use nearest::Searched;

/// The most facts beyond the snapshot whose vectors are kept; beyond it, all of them are dropped.
const MOST_REMEMBERED: usize = 65_536;

type RowsByText = FxHashMap<Box<str>, Box<[u8]>>;

/// Vectors of facts beyond the snapshot, made when the facts were learned.
pub trait LiveRows: Send + Sync {
    /// Returns the row ([`quantise`]) of a fact, given its words ([`verbalise`]), where it has one.
    fn row(&self, text: &str) -> Option<Arc<[u8]>>;
}

/// Ranks facts by meaning. One per worker; cheap to clone.
#[derive(Clone)]
pub struct FactMeaning {
    vectors: Arc<FactVectors>,
    /// The encoder that made the vectors, where it answers at once.
    encoder: Option<Arc<dyn Encoder>>,
    /// The rows of facts beyond the snapshot, where the encoder does not answer at once.
    live: Option<Arc<dyn LiveRows>>,
    /// How to embed dialogues here, where the turn's own vector is by another encoder.
    own: Option<LatestUtterances>,
    /// The facts to search where a dialogue names none; `None` turns that search off.
    searched: Option<Searched>,
    /// The rows of facts beyond the snapshot, by their words.
    remembered: Rc<RefCell<RowsByText>>,
}

impl FactMeaning {
    /// Ranks by these vectors, and by those of `encoder` for facts beyond the snapshot. `encoder` made the
    /// vectors, and answers at once.
    pub fn new(vectors: Arc<FactVectors>, encoder: Option<Arc<dyn Encoder>>) -> Self {
        Self { vectors, encoder, live: None, own: None, searched: None, remembered: Rc::default() }
    }

    /// Adds vectors of facts beyond the snapshot that are made elsewhere.
    pub fn with_live(self, live: Arc<dyn LiveRows>) -> Self {
        Self { live: Some(live), ..self }
    }

    /// Adds facts to search where a dialogue names none.
    pub fn with_searched(self, searched: Searched) -> Self {
        Self { searched: Some(searched), ..self }
    }

    /// Ranks by an encoder that answers at once, where the turns' own vectors are by another one: dialogues
    /// are embedded once more here.
    pub fn beside(
        vectors: Arc<FactVectors>,
        encoder: Arc<dyn Encoder>,
        latest: LatestUtterances,
    ) -> Self {
        Self { own: Some(latest), ..Self::new(vectors, Some(encoder)) }
    }

    /// Returns a turn's dialogue, to compare facts with; `None` where it has no vector, or one of
    /// another length.
    pub fn of<'m>(&'m self, turn: &TurnInFlight, graph: View<'m>) -> Option<Dialogue<'m>> {
        let query = match (&self.own, &self.encoder) {
            (Some(latest), Some(encoder)) => {
                let embedded = embed(&turn.context, &**encoder, *latest).ok().flatten()?;
                QueryVector::new(&embedded.dialogue)
            }
            _ => QueryVector::new(&turn.embedding.as_ref()?.dialogue),
        };
        let fits = query.dimensions() == self.vectors.header().dimensions;
        fits.then_some(Dialogue { meaning: self, graph, query })
    }

    /// Returns the cosine of a fact beyond the snapshot, encoded here unless [`LiveRows`] has its
    /// row.
    fn remembered(&self, text: String, query: &QueryVector) -> Option<f32> {
        if let Some(live) = &self.live {
            return Row::read(&live.row(&text)?).map(|row| query.cosine(row));
        }
        let mut remembered = self.remembered.borrow_mut();
        if let Some(row) = remembered.get(text.as_str()) {
            return Row::read(row).map(|row| query.cosine(row));
        }
        let (mut vector, mut row) = (Vec::new(), Vec::new());
        self.encoder.as_deref()?.encode(&[&text], &mut vector).ok()?;
        quantise(&vector, &mut row);
        let cosine = Row::read(&row).map(|row| query.cosine(row));
        if remembered.len() >= MOST_REMEMBERED {
            remembered.clear();
        }
        remembered.insert(text.into_boxed_str(), row.into_boxed_slice());
        cosine
    }
}

/// One turn's dialogue as a vector.
pub struct Dialogue<'m> {
    meaning: &'m FactMeaning,
    graph: View<'m>,
    query: QueryVector,
}

impl Dialogue<'_> {
    /// Returns the likeness of a fact in meaning, 0..=1: the cosine, 0 where that is negative.
    /// `None` where the fact has no vector.
    pub fn likeness(&self, fact: &Fact) -> Option<f64> {
        let snapshot: &Graph = self.graph.graph();
        let cosine = match self.meaning.vectors.of(snapshot, fact) {
            Some(row) => self.query.cosine(row),
            None => self.meaning.remembered(verbalise(self.graph, fact), &self.query)?,
        };
        Some(f64::from(cosine.clamp(0.0, 1.0)))
    }
}
