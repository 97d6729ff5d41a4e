use std::sync::Arc;

use turnstream_ports::model::encoder::{EncodeError, Encoded};
use turnstream_ports::model::{Busy, CallError, Model, Reply};
use turnstream_schemas::RequestId;

use super::*;
use crate::flow::Embedded;
use crate::testing::{graph, run_dataflow, scene, stage_context};

/// Two dimensions: how much of a text is about the sea, and about bread. Fails on `error`.
struct Counting;

impl Encoder for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn fingerprint(&self) -> u64 {
        1
    }

    fn dimensions(&self) -> usize {
        2
    }

    fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
        for text in texts {
            if text.contains("error") {
                let (encoder, reason) = ("counting".to_owned(), "asked for".to_owned());
                return Err(EncodeError { encoder, reason });
            }
            vectors.extend(["sea", "bread"].map(|word| text.matches(word).count() as f32));
        }
        Ok(Encoded::default())
    }
}

/// The same through the port, on a thread of its own.
struct Elsewhere;

impl Model<Vec<String>, Vec<Embedding>> for Elsewhere {
    fn name(&self) -> &str {
        "elsewhere"
    }

    fn ask(
        &self,
        texts: Vec<String>,
        reply: Reply<Vec<Embedding>>,
    ) -> Result<(), Busy<Vec<String>, Vec<Embedding>>> {
        std::thread::spawn(move || {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let mut vectors = Vec::new();
            let encoded = Counting.encode(&texts, &mut vectors);
            let answer = encoded.map(|_| vectors.chunks(2).map(Arc::from).collect());
            reply.answer(answer.map_err(|error| CallError::Model(error.to_string())));
        });
        Ok(())
    }
}

fn config() -> EmbeddingConfig {
    let call = CallConfig { attempts: 1, ..CallConfig::default() };
    EmbeddingConfig { utterances: 2, call, ..EmbeddingConfig::default() }
}

/// What the operator makes of a dialogue: in place, and through the port.
fn embedded(lines: &[&str]) -> [TurnInFlight; 2] {
    let graph = graph("sea HasA fish 1");
    let turn = scene(lines, &graph);
    [false, true].map(|asked| {
        let (graph, turn) = (Arc::clone(&graph), turn.clone());
        let (mut values, faults): (Vec<TurnInFlight>, _) = run_dataflow(vec![turn], move |turns| {
            let encoder: Option<Arc<dyn Encoder>> = (!asked).then(|| Arc::new(Counting) as _);
            let embed = asked.then(|| Arc::new(Elsewhere) as _);
            let context = StageContext { embed, encoder, ..stage_context(&graph) };
            // As `history` does when it hands a turn down.
            context.runner.awaited.ask(RequestId { partition: 0, generation: 1, offset: 0 });
            embedding(turns, config(), &context)
        });
        assert!(faults.is_empty());
        values.pop().expect("a turn")
    })
}

#[test]
fn a_dialogue_is_the_weighted_sum_of_its_latest_utterances() {
    // The first utterance is one too many; what the system said counts 0.8 × 0.5.
    for turn in embedded(&["u: sea sea sea", "s: bread", "u: sea"]) {
        let length = (1.0_f32 + 0.4 * 0.4).sqrt();
        let expected = [1.0 / length, 0.4 / length];
        let Embedded { dialogue: found, utterance } = turn.embedding.expect("vectors");
        assert_eq!(utterance.as_deref(), Some([1.0, 0.0].as_slice()), "the current one alone");
        assert!(
            found.iter().zip(expected).all(|(found, it)| (found - it).abs() < 1e-6),
            "{found:?}"
        );
    }
}

#[test]
fn what_says_nothing_has_no_vector() {
    for turn in embedded(&["u: hello"]) {
        assert_eq!(turn.embedding, None);
        assert!(turn.progress.degraded.is_empty());
    }
}

#[test]
fn an_encoder_that_fails_is_gone_without() {
    for turn in embedded(&["u: an error at sea"]) {
        assert_eq!(turn.embedding, None);
        assert_eq!(turn.progress.without(), [Stage::Embedding]);
    }
}
