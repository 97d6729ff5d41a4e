//! Tests that a gate learns a simple task, resumes exactly, and survives serialisation.

use turnstream_models::gate::card::{Split, Training};
use turnstream_models::gate::network::{NetworkShape, Variant};
use turnstream_models::gate::reading::TokenKind;
use turnstream_models::gate::{FORMAT_VERSION, Gate};
use turnstream_schemas::Speaker;

use super::*;
use crate::gate_reading::tokens_of;
use crate::labelled::Said;

/// Returns turns that ask for something about a thing, and turns that do not, in words of our own.
fn lesson(from: usize, to: usize) -> Vec<LabelledTurn> {
    let things = ["pool", "garden", "kitchen", "terrace", "library", "sauna", "cellar"];
    let asks = ["does the {} open early?", "is there a {} to see?", "how large is the {}?"];
    let tells = ["we liked the {} a lot.", "thanks, the {} it is.", "no {} for us today."];
    let turn = |at: usize| {
        let needs = at.is_multiple_of(2);
        let pattern = if needs { asks[at / 2 % 3] } else { tells[at / 2 % 3] };
        let said = |speaker, text: String| Said { speaker, text };
        LabelledTurn {
            conversation: at.to_string(),
            position: 3,
            domain: None,
            utterances: vec![
                said(Speaker::User, format!("hello, this is guest {at}")),
                said(Speaker::System, "welcome!".to_owned()),
                said(Speaker::User, pattern.replace("{}", things[at % things.len()])),
            ],
            knowledge: Vec::new(),
            reply: None,
            need: if needs { Need::Unstructured } else { Need::None },
        }
    };
    (from..to).map(turn).collect()
}

fn trainer(epochs: u32, threads: usize) -> (Trainer, Vec<Lesson>) {
    let lessons = vec![Lesson { train: lesson(0, 160), development: lesson(160, 220) }];
    let shape = NetworkShape {
        variant: Variant::Contx,
        width: 16,
        heads: 2,
        layers: 1,
        feed_forward: 16,
        max_tokens: 32,
        max_utterances: 0,
        pools_current: true,
    };
    let card = Card {
        format: FORMAT_VERSION,
        name: "ours".to_owned(),
        language: "en".to_owned(),
        shape,
        vocabulary: vocabulary(TokenKind::Words, &lessons, (2, 100)).unwrap(),
        table: None,
        ngrams: Vec::new(),
        definitions: vec![Definition {
            name: "dstc11".to_owned(),
            classes: vec![Need::None, Need::Unstructured],
            threshold: 0.5,
            null_threshold: 0.5,
            trained_on: Split::default(),
            developed_on: Split::default(),
            development: None,
        }],
        training: Training::default(),
    };
    let options = TrainOptions {
        epochs,
        patience: 9,
        batch: 8,
        rate: 3e-3,
        dropout: 0.1,
        threads,
        ..TrainOptions::default()
    };
    let regressions = regressions(&lessons, &|| {}).unwrap();
    (Trainer::new(card, options, &lessons, regressions).unwrap(), lessons)
}

fn quietly(_: Progress) {}

#[test]
fn what_can_be_learned_is_learned_and_survives_being_written() {
    let (mut trainer, lessons) = trainer(6, 2);
    let mut losses = Vec::new();
    while !trainer.is_done() {
        trainer
            .pass(&mut |progress| {
                if progress.development.is_some() {
                    losses.push(progress.loss);
                }
            })
            .unwrap();
    }
    assert!(losses.last().unwrap() < &(losses[0] / 2.0), "{losses:?}");
    let (card, parameters) = trainer.finish().unwrap();
    let found = card.definitions[0].development.unwrap();
    assert!(found.auc > 0.99 && found.f1 > 0.95, "{found:?}");

    let bytes = Gate::to_bytes(&card, &parameters).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gate.zst");
    std::fs::write(&path, &bytes).unwrap();
    let read = Gate::open(&path).unwrap();
    assert_eq!(read.card(), &card);
    let alone = Card { ngrams: Vec::new(), ..card.clone() };
    let alone = Gate::new(alone, parameters.clone()).unwrap();
    let regressions = regressions(&lessons, &|| {}).unwrap();
    let whole = Gate::new(card, parameters).unwrap();
    for turn in &lessons[0].development {
        let score = |gate: &Gate| {
            let tokens = tokens_of(gate, turn).unwrap();
            gate.needs(&[(&tokens, turn.last())]).unwrap()[0][0]
        };
        // Only half precision is lost.
        assert!((score(&read) - score(&whole)).abs() < 5e-3);
        // The mean of the regression and of an encoder that decides alone is the need.
        let log_odds = |need: f64| (need / (1.0 - need)).ln();
        let mean = f64::midpoint(log_odds(score(&alone)), regressions[0].logit(turn.last()));
        assert!((log_odds(score(&whole)) - mean).abs() < 1e-6);
    }
}

#[test]
fn the_same_seed_gives_the_same_weights_and_a_stopped_training_goes_on() {
    let (mut whole, _) = trainer(3, 2);
    let (mut stopped, _) = trainer(3, 2);
    for _ in 0..3 {
        whole.pass(&mut quietly).unwrap();
    }
    stopped.pass(&mut quietly).unwrap();
    let bytes = stopped.state().to_bytes("these").unwrap();
    let (mut resumed, _) = trainer(3, 2);
    resumed.resume(State::from_bytes(&bytes, "these").unwrap()).unwrap();
    assert!(!resumed.is_done());
    resumed.pass(&mut quietly).unwrap();
    resumed.pass(&mut quietly).unwrap();
    assert!(resumed.is_done());
    assert_eq!(resumed.state(), whole.state());
    assert_ne!(resumed.state(), stopped.state());
}
