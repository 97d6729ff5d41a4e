//! Tokenizers from GGUF metadata, compared with the original programs: sentencepiece, and llama.cpp
//! for the patterns that split text into words (`fixtures/vocabularies.py`).

use std::collections::HashMap;

use candle_core::quantized::gguf_file::Value as Entry;
use serde::Deserialize;

use crate::decoder::ggml_tokenizer::build;

#[derive(Deserialize)]
struct TokenizerFixture {
    texts: Vec<String>,
    vocabularies: Vec<TokenizerCase>,
}

#[derive(Deserialize)]
struct TokenizerCase {
    name: String,
    model: String,
    pre: Option<String>,
    tokens: Vec<String>,
    types: Vec<i32>,
    merges: Option<Vec<String>>,
    scores: Option<Vec<f32>>,
    found: Vec<Vec<u32>>,
}

fn fixture() -> TokenizerFixture {
    serde_json::from_str(include_str!("../fixtures/vocabularies.json")).expect("a fixture")
}

impl TokenizerCase {
    fn metadata(&self) -> HashMap<String, Entry> {
        let texts = |all: &[String]| all.iter().cloned().map(Entry::String).collect();
        let mut metadata = HashMap::new();
        let mut say = |key: &str, value| metadata.insert(format!("tokenizer.ggml.{key}"), value);
        say("model", Entry::String(self.model.clone()));
        say("tokens", Entry::Array(texts(&self.tokens)));
        say("token_type", Entry::Array(self.types.iter().copied().map(Entry::I32).collect()));
        say("add_bos_token", Entry::Bool(false));
        if let Some(pre) = &self.pre {
            say("pre", Entry::String(pre.clone()));
        }
        if let Some(merges) = &self.merges {
            say("merges", Entry::Array(texts(merges)));
        }
        if let Some(scores) = &self.scores {
            say("scores", Entry::Array(scores.iter().copied().map(Entry::F32).collect()));
        }
        metadata
    }
}

#[test]
fn texts_become_the_tokens_that_their_makers_programs_find() {
    let fixture = fixture();
    assert_eq!(fixture.vocabularies.len(), 5);
    let mut by_cut = HashMap::new();
    for vocabulary in &fixture.vocabularies {
        let name = &vocabulary.name;
        let tokenizer = build(&vocabulary.metadata()).unwrap_or_else(|e| panic!("{name}: {e}"));
        for (text, expected) in fixture.texts.iter().zip(&vocabulary.found) {
            let found = tokenizer.encode(text.as_str(), false).expect("encodes");
            assert_eq!(found.get_ids(), expected, "{name}: {text:?}: {:?}", found.get_tokens());
        }
        by_cut.insert(name.as_str(), &vocabulary.found[2]);
    }
    // The text with numbers distinguishes the patterns.
    assert_ne!(by_cut["gpt-2"], by_cut["llama-bpe"]);
    assert_ne!(by_cut["llama-bpe"], by_cut["qwen2"]);
}

#[test]
fn tokens_become_the_text_again() {
    let fixture = fixture();
    for vocabulary in &fixture.vocabularies {
        let tokenizer = build(&vocabulary.metadata()).expect("builds");
        for text in &fixture.texts {
            let found = tokenizer.encode(text.as_str(), false).expect("encodes");
            let again = tokenizer.decode(found.get_ids(), true).expect("decodes");
            assert_eq!(&again, text, "{}", vocabulary.name);
        }
    }
}

#[test]
fn a_way_to_cut_that_is_not_known_is_refused_by_name() {
    let mut vocabulary = fixture().vocabularies.remove(1);
    vocabulary.pre = Some("unheard-of".to_owned());
    let Err(refused) = build(&vocabulary.metadata()) else { panic!("it is refused") };
    assert!(refused.contains("unheard-of") && refused.contains("tokenizer.json"), "{refused}");
}
