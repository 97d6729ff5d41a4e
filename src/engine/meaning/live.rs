//! Vectors of live facts, made by a slow encoder. The thread of the knowledge feed makes them
//! before the workers hear of the facts, so that every fact that a turn can see has its vector.

use std::sync::Arc;

use quick_cache::sync::Cache;
use turnstream_knowledge::{Change, Graph, ImportedFact, Upsert, quantise, verbalise};
use turnstream_operators::meaning::LiveRows;

use turnstream_ports::model::encoder::{Encoder, encode_all};

/// Vectors of live facts. Clones share them.
#[derive(Clone)]
pub struct LiveVectors {
    encoder: Arc<dyn Encoder>,
    threads: usize,
    /// Keyed by the facts' words. Holds as many rows as there may be live facts. Beyond that the
    /// least used rows are removed, and words rank their facts.
    rows: Arc<Cache<String, Arc<[u8]>>>,
}

impl LiveVectors {
    /// Starts without vectors. Holds at most `most`, made on `threads` threads.
    pub fn new(encoder: Arc<dyn Encoder>, threads: usize, most: u64) -> Self {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Self { encoder, threads, rows: Arc::new(Cache::new(most)) }
    }

    /// Makes the vectors of the facts that changes add. If the encoder fails, words rank these
    /// facts.
    pub fn embed(&self, changes: &[Change]) {
        let texts: Vec<String> =
            texts(changes).into_iter().filter(|text| self.rows.get(text).is_none()).collect();
        if texts.is_empty() {
            return;
        }
        let borrowed: Vec<&str> = texts.iter().map(String::as_str).collect();
        match encode_all(&*self.encoder, &borrowed, self.threads, &|_| ()) {
            Ok(vectors) => {
                let vectors = vectors.chunks_exact(self.encoder.dimensions());
                for (text, vector) in texts.into_iter().zip(vectors) {
                    let mut row = Vec::new();
                    quantise(vector, &mut row);
                    self.rows.insert(text, row.into());
                }
            }
            Err(error) => {
                let facts = texts.len();
                tracing::warn!(facts, "learned facts are ranked by words: {error}");
            }
        }
    }
}

impl LiveRows for LiveVectors {
    fn row(&self, text: &str) -> Option<Arc<[u8]>> {
        self.rows.get(text)
    }
}

/// The words of the facts that changes add, sorted and without duplicates.
pub(crate) fn texts(changes: &[Change]) -> Vec<String> {
    let facts = changes.iter().filter_map(|Change { key, upsert }| {
        let Upsert { weight, language, .. } = upsert.as_ref()?;
        let fact = ImportedFact::new(&key.head, &key.relation, &key.tail, *weight);
        Some(ImportedFact { language: language.clone(), source: key.source.clone(), ..fact })
    });
    // Workers word facts from a graph, so the texts come from a graph here too.
    let graph = Graph::from_facts(facts);
    let mut texts: Vec<String> = graph.facts().map(|fact| verbalise(graph.view(), &fact)).collect();
    texts.sort_unstable();
    texts.dedup();
    texts
}

#[cfg(test)]
mod tests {
    use turnstream_knowledge::{QueryVector, Row};
    use turnstream_ports::model::encoder::{EncodeError, Encoded};

    use super::*;

    /// Encodes the number of letters and of words. Fails on a marked text.
    struct LengthEncoder;

    impl Encoder for LengthEncoder {
        fn name(&self) -> &str {
            "counts"
        }

        fn fingerprint(&self) -> u64 {
            7
        }

        fn dimensions(&self) -> usize {
            2
        }

        fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
            if texts.iter().any(|text| text.contains("fail")) {
                let (encoder, reason) = ("counts".to_owned(), "told to".to_owned());
                return Err(EncodeError { encoder, reason });
            }
            for text in texts {
                vectors.extend([text.len() as f32, text.split(' ').count() as f32]);
            }
            Ok(Encoded::default())
        }
    }

    fn change(head: &str, stands: bool) -> Change {
        let key = format!(r#"{{"source":"ours","head":"{head}","relation":"IsA","tail":"drink"}}"#);
        let value = if stands { r#"{"weight":2}"# } else { r#"{"retracted":true}"# };
        Change::read(key.as_bytes(), Some(value.as_bytes())).unwrap()
    }

    #[test]
    fn a_learned_fact_has_the_vector_of_its_words() {
        let live = LiveVectors::new(Arc::new(LengthEncoder), 2, 100);
        live.embed(&[change("Green Tea", true), change("milk", false), change("coffee", true)]);
        let words = |head| texts(&[change(head, true)]).remove(0);
        let text = words("green tea");
        assert!(text.starts_with("green tea "), "{text}");
        let row = live.row(&text).expect("a row");
        let query = QueryVector::new(&[text.len() as f32, text.split(' ').count() as f32]);
        assert!(query.cosine(Row::read(&row).unwrap()) > 0.999);
        assert!(live.row(&words("milk")).is_none(), "it was taken back");
        // A failure keeps the vectors that exist, and the fact can be added again.
        live.embed(&[change("failure", true)]);
        assert!(live.row(&words("coffee")).is_some());
        assert!(live.row(&words("failure")).is_none());
    }
}
