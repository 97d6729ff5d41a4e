use super::*;

fn text(words: &str, vector: [f32; 2]) -> Compared {
    Compared::new(words, Some(&vector))
}

/// Returns questions with evidence in the opposite direction, which the identity ranks last.
fn examples() -> Vec<Example> {
    let example = |at: usize| {
        let (east, north) = ([1.0, 0.0], [0.0, 1.0]);
        let (asked, right) = if at.is_multiple_of(2) { (east, north) } else { (north, east) };
        Example {
            query: text("lake", asked),
            texts: vec![text("drum", asked), text("violin", right), text("harp", asked)],
            gold: vec![false, true, false],
        }
    };
    (0..8).map(example).collect()
}

fn evenly() -> Training {
    Training { meaning_share: 0.5, ..Training::default() }
}

#[test]
fn training_turns_attention_to_the_evidence() {
    let training = Training { steps: 200, rate: 0.05, decay: 0.0, ..evenly() };
    let trained = train(&examples(), 2, &training, &|| ()).unwrap();
    let [before, after] = trained.loss;
    // By hand: logits 5, 0 and 5, with the gold text in the middle.
    assert!((before - (5.0 + (2.0 + (-5.0_f64).exp()).ln())).abs() < 1e-4, "{before}");
    assert!(after < 0.1, "{after}");
    let example = &examples()[0];
    let shares = trained.attention().shares(&example.query, &example.texts);
    assert!(shares[1] > 0.9, "{shares:?}");
    assert_eq!(trained.questions, 8);
    let again = train(&examples(), 2, &training, &|| ()).unwrap();
    assert_eq!(again.matrix, trained.matrix, "the same questions, the same weights");
}

#[test]
fn without_steps_or_with_much_decay_it_is_the_identity() {
    let identity = Attention::identity(0.1, 0.5);
    let example = &examples()[0];
    let by_identity = identity.logits(&example.query, &example.texts);
    for training in [
        Training { steps: 0, ..evenly() },
        Training { steps: 300, rate: 1e-3, decay: 900.0, ..evenly() },
    ] {
        let trained = train(&examples(), 2, &training, &|| ()).unwrap().attention();
        let logits = trained.logits(&example.query, &example.texts);
        let close = logits.iter().zip(&by_identity).all(|(a, b)| (a - b).abs() < 0.05);
        assert!(close, "{logits:?} is not {by_identity:?}");
    }
}

#[test]
fn questions_that_teach_nothing_are_left_out() {
    let mut some = examples();
    some[0].gold = vec![false; 3];
    some[1].gold = vec![true; 3];
    assert_eq!(train(&some, 2, &evenly(), &|| ()).unwrap().questions, 6);
    let none = train(&some[..2], 2, &evenly(), &|| ()).unwrap_err();
    assert!(none.to_string().contains("gold evidence"), "{none}");
}
