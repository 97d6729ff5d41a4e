use std::str::FromStr;

use turnstream_models::static_table::StaticTable;
use turnstream_ports::model::encoder::Encoded;

use super::*;

/// Eight words. A text's vector depends on the words in it, and one word contributes nothing.
const WORDS: [&str; 8] = ["sea", "ship", "bread", "oven", "dog", "bone", "star", "the"];

/// A teacher that a table can reproduce, except that it ignores common words.
struct Teacher;

impl Encoder for Teacher {
    fn name(&self) -> &str {
        "teacher"
    }

    fn fingerprint(&self) -> u64 {
        1
    }

    fn dimensions(&self) -> usize {
        8
    }

    fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
        for text in texts {
            let mut vector = [0.0_f32; 8];
            for word in text.split(' ').filter(|word| *word != "the") {
                let at = WORDS.iter().position(|known| *known == word).unwrap_or(7);
                // The words of a pair are similar.
                vector[at] += 2.0;
                vector[at ^ 1] += 1.0;
            }
            vector[7] += 0.1;
            to_length_1(&mut vector);
            vectors.extend(vector);
        }
        Ok(Encoded::default())
    }
}

fn tokenizer() -> Tokenizer {
    let pieces = ["[UNK]", "[unused1]", "##s", "日"].into_iter().chain(WORDS);
    let vocab: Vec<String> =
        pieces.enumerate().map(|(id, piece)| format!("{piece:?}:{id}")).collect();
    let json = format!(
        r###"{{"version":"1.0","truncation":{{"direction":"Right","max_length":2,"strategy":
        "LongestFirst","stride":0}},"padding":null,"added_tokens":[{{"id":0,"content":"[UNK]",
        "single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}},
        {{"id":1,"content":"[unused1]","single_word":false,"lstrip":false,"rstrip":false,
        "normalized":false,"special":true}}],"normalizer":null,"pre_tokenizer":{{"type":
        "Whitespace"}},"post_processor":null,"decoder":null,"model":{{"type":"WordPiece",
        "unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100,
        "vocab":{{{}}}}}}}"###,
        vocab.join(",")
    );
    assert!(Tokenizer::from_str(&json).is_ok());
    keep_latin_pieces(&json).expect("a tokenizer")
}

/// Returns all texts of three words: every pair occurs, and "the" is the most frequent word.
fn texts() -> Vec<String> {
    let mut texts = Vec::new();
    for one in WORDS {
        for other in WORDS {
            texts.push(format!("the {one} {other}"));
            texts.push(format!("{one} the {other}"));
        }
    }
    texts
}

fn options() -> DistilOptions {
    DistilOptions {
        dimensions: 6,
        epochs: 60,
        learning_rate: 0.002,
        hold_out_every: 7,
        threads: 2,
        ..DistilOptions::default()
    }
}

fn distilled(options: &DistilOptions) -> Distilled {
    distil(&Teacher, &tokenizer(), &texts(), options, &|_, _, _| ()).expect("a table")
}

#[test]
fn pieces_of_other_scripts_are_left_out_and_numbers_have_no_gaps() {
    let tokenizer = tokenizer();
    assert_eq!(tokenizer.get_vocab_size(true), 2 + WORDS.len());
    let pieces = pieces::texts(&tokenizer);
    assert_eq!(pieces[..3], ["[UNK]", "s", "sea"]);
    let encoded = tokenizer.encode_fast("sea unused1 日 the ship", false).expect("pieces");
    assert_eq!(encoded.get_ids(), [2, 0, 0, 9, 3], "nothing is cut");
}

#[test]
fn a_table_comes_near_its_teacher_on_texts_it_has_not_seen() {
    let made = distilled(&options());
    assert_eq!(made.texts + made.held_out, texts().len());
    assert!(made.held_out >= texts().len() / 7);
    assert!(made.kept_variance > 0.9, "{made:?}");
    assert!(made.cosine > 0.95 && made.cosine_of_regression > 0.95, "{made:?}");
    let unfitted = distilled(&DistilOptions { epochs: 0, ..options() });
    assert_eq!(unfitted.cosine, unfitted.cosine_of_regression);
}

#[test]
fn the_same_texts_give_the_same_table_which_reads_back() {
    let (one, other) = (distilled(&options()), distilled(&options()));
    assert_eq!(one, other);
    let bytes = |made: &Distilled| {
        StaticTable::to_bytes("test", &tokenizer(), &made.vectors, 6, None).expect("a table")
    };
    assert_eq!(bytes(&one), bytes(&other));

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("table.safetensors");
    std::fs::write(&path, bytes(&one)).expect("written");
    let table = StaticTable::open(&path).expect("a table");
    assert_eq!((table.name(), table.dimensions()), ("test", 6));
    let mut vectors = Vec::new();
    let encoded = table.encode(&["the dog", "bone", "oven", "", "日"], &mut vectors);
    assert_eq!(encoded.expect("vectors").tokens, 2 + 1 + 1 + 1);
    let rows: Vec<&[f32]> = vectors.chunks_exact(6).collect();
    let cosine = |one: usize, other: usize| -> f32 {
        rows[one].iter().zip(rows[other]).map(|(one, other)| one * other).sum()
    };
    assert!((cosine(0, 0) - 1.0).abs() < 1e-5);
    assert!(cosine(0, 1) > cosine(0, 2) + 0.3, "a dog is nearer to a bone than to an oven");
    assert_eq!(rows[3], [0.0; 6], "nothing says nothing");
}

#[test]
fn what_cannot_be_distilled_is_refused() {
    let refused = |texts: &[String], dimensions| {
        let options = DistilOptions { dimensions, ..options() };
        distil(&Teacher, &tokenizer(), texts, &options, &|_, _, _| ()).expect_err("refused")
    };
    assert!(matches!(refused(&texts()[..9], 6), DistilError::TooFewTexts { texts: 9, .. }));
    assert!(matches!(refused(&texts(), 9), DistilError::TooManyDimensions { encoder: 8, .. }));
    assert!(keep_latin_pieces("{}").is_err());
}

#[test]
fn descent_finds_the_vectors_from_anywhere() {
    let (texts, options) = (texts(), DistilOptions { dimensions: 8, ..options() });
    let said: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut targets = Vec::new();
    Teacher.encode(&said, &mut targets).expect("vectors");
    let corpus = Corpus::new(&tokenizer(), &texts, targets, &options).expect("a corpus");
    let mut random = fastrand::Rng::with_seed(1);
    let pieces = (0..8 * (2 + WORDS.len())).map(|_| random.f32() - 0.5).collect();
    let mut fit = Fit::new(pieces, 8);
    let before = fit.mean_cosine(&corpus);
    let options = DistilOptions { learning_rate: 0.05, epochs: 100, ..options };
    (0..options.epochs).for_each(|epoch| fit.epoch(&corpus, epoch, &options));
    let after = fit.mean_cosine(&corpus);
    assert!(before < 0.5 && after > 0.9, "{before} to {after}");
}
