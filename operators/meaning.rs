//! Likeness in meaning between facts and a dialogue: the cosine of their vectors. What
//! [`ranking`](crate::ranking) does with words, this does with what an encoder makes of them.
//!
//! Facts of the snapshot have their vectors in a file ([`FactVectors`]). A fact that was put while
//! turns flow has a vector in [`LiveRows`] before any turn sees it, where the encoder takes its
//! time; by one that takes microseconds it is encoded when it is a candidate first, and remembered.

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

/// Facts beyond the snapshot whose vectors are remembered; then all are forgotten.
const MOST_REMEMBERED: usize = 65_536;

type RowsByText = FxHashMap<Box<str>, Box<[u8]>>;

/// Vectors of facts beyond the snapshot, made while they were learned.
pub trait LiveRows: Send + Sync {
    /// The row ([`quantise`]) of a fact by its words ([`verbalise`]), where it has one.
    fn row(&self, text: &str) -> Option<Arc<[u8]>>;
}

/// What facts are ranked by in meaning. One per worker; cheap to clone.
#[derive(Clone)]
pub struct FactMeaning {
    vectors: Arc<FactVectors>,
    /// The encoder that made them, where it can be called in place.
    encoder: Option<Arc<dyn Encoder>>,
    /// The rows of facts that were learned, where the encoder cannot be called in place.
    live: Option<Arc<dyn LiveRows>>,
    /// How it embeds dialogues itself, where the turn's own vector is by another encoder.
    own: Option<LatestUtterances>,
    /// The facts that are searched where a dialogue names none; without them nothing is.
    searched: Option<Searched>,
    /// The rows of facts beyond the snapshot, by their words.
    remembered: Rc<RefCell<RowsByText>>,
}

impl FactMeaning {
    /// Meaning as the vectors have it, and as the encoder that made them gives it for facts beyond
    /// the snapshot, where it can be called in place.
    pub fn new(vectors: Arc<FactVectors>, encoder: Option<Arc<dyn Encoder>>) -> Self {
        Self { vectors, encoder, live: None, own: None, searched: None, remembered: Rc::default() }
    }

    /// The same, with the vectors of facts beyond the snapshot made elsewhere.
    pub fn with_live(self, live: Arc<dyn LiveRows>) -> Self {
        Self { live: Some(live), ..self }
    }

    /// The same, with facts that are searched where a dialogue names none.
    pub fn with_searched(self, searched: Searched) -> Self {
        Self { searched: Some(searched), ..self }
    }

    /// Meaning by an encoder that is called in place, where the turns' own vectors are by another
    /// one: dialogues are embedded here once more.
    pub fn beside(
        vectors: Arc<FactVectors>,
        encoder: Arc<dyn Encoder>,
        latest: LatestUtterances,
    ) -> Self {
        Self { own: Some(latest), ..Self::new(vectors, Some(encoder)) }
    }

    /// A turn's dialogue, to compare facts with; `None` where it has no vector.
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

    /// The cosine of a fact beyond the snapshot, encoded here where nobody else does that.
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
    /// How like in meaning a fact is, 0..=1: the cosine, where it is above 0. `None` where the
    /// fact has no vector.
    pub fn likeness(&self, fact: &Fact) -> Option<f64> {
        let snapshot: &Graph = self.graph.graph();
        let cosine = match self.meaning.vectors.of(snapshot, fact) {
            Some(row) => self.query.cosine(row),
            None => self.meaning.remembered(verbalise(self.graph, fact), &self.query)?,
        };
        Some(f64::from(cosine.clamp(0.0, 1.0)))
    }
}
