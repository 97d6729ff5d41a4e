use std::sync::Arc;

use turnstream_ports::documents::Chunk;

use super::*;
use crate::decision::DecisionTexts;
use crate::flow::Embedded;
use crate::testing::{asking_source, graph, run_dataflow, scene, stage_context};

/// Documents that answer from a table. The engine's own documents are tested in `src`.
struct AnswerTable {
    words: Vec<(u32, f64)>,
    meanings: Option<Vec<(u32, f64)>>,
}

impl AnswerTable {
    fn found(table: &[(u32, f64)], within: Option<&[u32]>, limit: usize) -> Vec<FoundChunk> {
        let wanted = table.iter().filter(|(chunk, _)| within.is_none_or(|of| of.contains(chunk)));
        wanted
            .take(limit)
            .map(|(chunk, score)| FoundChunk { chunk: *chunk, score: *score })
            .collect()
    }
}

impl SearchDocuments for AnswerTable {
    fn source(&self) -> &str {
        "documents"
    }

    fn by_words(
        &self,
        text: &str,
        within: Option<&[u32]>,
        limit: usize,
    ) -> Result<Vec<FoundChunk>, SearchError> {
        if text.contains("broken") {
            let (index, reason) = ("table".to_owned(), "it is broken".to_owned());
            return Err(SearchError::Unreadable { index, reason });
        }
        Ok(Self::found(&self.words, within, limit))
    }

    fn dimensions(&self) -> Option<usize> {
        self.meanings.as_ref().map(|_| 2)
    }

    fn by_meaning(
        &self,
        _: &[f32],
        within: Option<&[u32]>,
        limit: usize,
    ) -> Result<Vec<FoundChunk>, SearchError> {
        Ok(Self::found(self.meanings.as_deref().unwrap_or_default(), within, limit))
    }

    fn named_in(&self, text: &str) -> Vec<u32> {
        let named = [("Ashley", vec![1, 2]), ("Gonville", vec![3])];
        named.into_iter().filter(|(name, _)| text.contains(name)).flat_map(|(_, of)| of).collect()
    }

    fn chunk(&self, number: u32) -> Result<Option<Chunk>, SearchError> {
        // Chunk 5 was removed since it was indexed.
        Ok((number != 5).then(|| Chunk {
            id: format!("d{number}#0"),
            document: format!("d{number}"),
            title: "Title".to_owned(),
            ordinal: 0,
            text: format!("text {number}").into(),
        }))
    }
}

fn table() -> AnswerTable {
    AnswerTable {
        words: vec![(3, 0.9), (5, 0.8), (1, 0.6), (2, 0.3)],
        meanings: Some(vec![(2, 0.9), (1, 0.5), (3, 0.1)]),
    }
}

fn found(lines: &[&str], embedding: bool, config: &DocumentRetrievalConfig) -> Vec<(String, f64)> {
    let mut turn = scene(lines, &graph(""));
    // The dialogue as a whole points elsewhere; only the utterance counts.
    turn.embedding = embedding.then(|| Embedded {
        dialogue: Arc::from([0.0_f32, 1.0]),
        utterance: Some(Arc::from([1.0_f32, 0.0])),
    });
    let texts = DecisionTexts::default().response_texts();
    turn.context = Arc::new(turn.context.as_ref().clone().with_choice(&texts));
    let passages = retrieve(&turn, &"documents".into(), &[], &table(), &texts, config).unwrap();
    passages.into_iter().map(|passage| (passage.id.0, passage.relevance.get())).collect()
}

fn ids(found: &[(String, f64)]) -> Vec<&str> {
    found.iter().map(|(id, _)| id.as_str()).collect()
}

#[test]
fn words_and_meaning_are_weighed() {
    let config = DocumentRetrievalConfig { word_share: 0.5, ..Default::default() };
    let fused = found(&["u: parking?"], true, &config);
    // 3: (0.9 + 0.1) / 2; 2: (0.3 + 0.9) / 2; 1: (0.6 + 0.5) / 2; 5 is gone.
    let expected = [("documents/d2#0", 0.6), ("documents/d1#0", 0.55), ("documents/d3#0", 0.5)];
    assert_eq!(ids(&fused), expected.map(|(id, _)| id));
    for ((_, score), (_, expected)) in fused.iter().zip(expected) {
        assert!((score - expected).abs() < 1e-9, "{score} is not {expected}");
    }
    let words = ["documents/d3#0", "documents/d1#0", "documents/d2#0"];
    assert_eq!(ids(&found(&["u: parking?"], false, &config)), words, "without an embedding");
    let bm25 = DocumentRetrievalConfig { form: SearchForm::Bm25, ..config };
    assert_eq!(ids(&found(&["u: parking?"], true, &bm25)), words);
    let dense = DocumentRetrievalConfig { form: SearchForm::Dense, ..config };
    let meaning = ["documents/d2#0", "documents/d1#0", "documents/d3#0"];
    assert_eq!(ids(&found(&["u: parking?"], true, &dense)), meaning);
}

#[test]
fn dense_without_an_embedding_says_what_to_do() {
    let config = DocumentRetrievalConfig { form: SearchForm::Dense, ..Default::default() };
    let turn = scene(&["u: parking?"], &graph(""));
    let texts = ResponseTexts::default();
    let error = retrieve(&turn, &"documents".into(), &[], &table(), &texts, &config).unwrap_err();
    assert!(error.to_string().contains("document_retrieval.form"), "{error}");
}

#[test]
fn the_titles_named_last_bound_the_search() {
    let config = DocumentRetrievalConfig { form: SearchForm::Bm25, ..Default::default() };
    let lines = ["u: Tell me of the Gonville.", "s: Or the Ashley?", "u: Is there parking?"];
    assert_eq!(ids(&found(&lines, false, &config)), ["documents/d1#0", "documents/d2#0"]);
    assert_eq!(ids(&found(&lines[..1], false, &config)), ["documents/d3#0"]);
    // What a response only asks about counts once the user chooses it.
    let lines =
        ["u: The Gonville?", "s: Do you mean “Ashley: Parking” or “Pool”?", "u: Is it warm?"];
    assert_eq!(ids(&found(&lines, false, &config)), ["documents/d3#0"]);
    let lines = [lines[0], lines[1], "u: the first one"];
    assert_eq!(ids(&found(&lines, false, &config)), ["documents/d1#0", "documents/d2#0"]);
    let all = DocumentRetrievalConfig { within: SearchWithin::All, ..config };
    assert_eq!(found(&lines, false, &all).len(), 3);
}

#[test]
fn bounds_hold() {
    let config = DocumentRetrievalConfig { form: SearchForm::Bm25, ..Default::default() };
    let few = DocumentRetrievalConfig { max_passages: 2, ..config };
    assert_eq!(ids(&found(&["u: x"], false, &few)), ["documents/d3#0", "documents/d1#0"]);
    let good = DocumentRetrievalConfig { min_score: 0.5, ..config };
    assert_eq!(found(&["u: x"], false, &good).len(), 2);
    let narrow = DocumentRetrievalConfig { max_found: 1, ..config };
    assert_eq!(found(&["u: x"], false, &narrow).len(), 1);
}

fn retrieved(line: &str) -> TurnInFlight {
    let (turn, demand) = (scene(&[line], &graph("")), turnstream_schemas::Demand::default());
    asking_source(TurnInFlight { demand, ..turn }, "documents")
}

#[test]
fn every_turn_comes_out_with_or_without_documents() {
    for (documents, passages) in [(false, 0), (true, 3)] {
        for on_failure in [OnFailure::Degrade, OnFailure::DeadLetter] {
            let turns = vec![retrieved("u: parking?"), retrieved("u: broken")];
            let (out, faults) = run_dataflow(turns, move |turns| {
                let mut means = stage_context(&graph(""));
                means.documents = documents.then(|| Arc::new(table()) as Arc<dyn SearchDocuments>);
                let config = DocumentRetrievalConfig { on_failure, ..Default::default() };
                document_retrieval(turns, config, &means)
            });
            let dead = documents && on_failure == OnFailure::DeadLetter;
            assert_eq!((out.len(), faults.len()), if dead { (1, 1) } else { (2, 0) });
            assert_eq!(out[0].candidates.passages.len(), passages);
            if let Some(failed) = out.get(1) {
                let progress = &failed.progress;
                assert_eq!(progress.is_without(Stage::DocumentRetrieval), documents);
            }
        }
    }
}
