use turnstream_operators::integration::{Attention, Compared, IntegrationConfig, Matrix};

use super::train::{Example, Training, train};
use super::*;

fn text(words: &str, vector: [f32; 2]) -> Compared {
    Compared::new(words, Some(&vector))
}

fn card() -> Card {
    Card {
        format_version: FORMAT_VERSION,
        encoder: "water".to_owned(),
        fingerprint: format!("{:016x}", 7),
        words: 2.0,
        words_alone: 5.0,
        trained_on: vec!["questions.jsonl".to_owned()],
        questions: 3,
        licences: Vec::new(),
    }
}

/// Questions whose evidence points the other way: what the identity would put last.
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
    // By hand: logits 5, 0, 5 for the gold one in the middle.
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

#[test]
fn weights_are_read_as_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let matrix = Matrix::new(2, vec![1.0, 2.0, 3.0, 4.0]).unwrap();
    let bytes = to_bytes(&card(), &matrix).unwrap();
    assert_eq!(bytes, to_bytes(&card(), &matrix).unwrap());
    std::fs::write(&path, &bytes).unwrap();
    let (read_card, attention) = read(&path).unwrap();
    assert_eq!((read_card, &attention), (card(), &Attention::trained(2.0, 5.0, matrix)));

    let weights = Some(path);
    let config =
        IntegrationConfig { form: IntegrationForm::Learned, weights, ..Default::default() };
    let of = |encoder: Option<(String, u64)>| configured(&config, encoder.as_ref());
    assert_eq!(*of(Some(("water".to_owned(), 7))).unwrap().unwrap(), attention);
    for other in [None, Some(("water".to_owned(), 8)), Some(("fire".to_owned(), 7))] {
        let message = of(other).unwrap_err().to_string();
        assert!(message.contains("water/0000000000000007"), "{message}");
    }
    let lexical = IntegrationConfig { form: IntegrationForm::Lexical, ..config.clone() };
    assert!(configured(&lexical, None).unwrap().is_none());
}

#[test]
fn files_that_are_no_weights_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let told = || read(&path).unwrap_err().to_string();
    assert!(told().contains("cannot read"), "{}", told());
    let matrix = Matrix::new(2, vec![1.0, 2.0, 3.0, f32::NAN]).unwrap();
    let newer = Card { format_version: 2, ..card() };
    for (bytes, why) in [
        (b"not at all".to_vec(), "train integration"),
        (to_bytes(&card(), &matrix).unwrap(), "not finite"),
        (to_bytes(&newer, &matrix).unwrap(), "layout 2"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        assert!(told().contains(why) && told().contains("weights.safetensors"), "{}", told());
    }
}
