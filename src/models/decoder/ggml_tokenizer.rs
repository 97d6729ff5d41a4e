//! Converts the tokenizer in a GGUF file's metadata into the equivalent `tokenizer.json`.

use std::collections::HashMap;

use candle_core::quantized::gguf_file::Value as Entry;
use serde_json::{Value, json};
use tokenizers::Tokenizer;

/// What a user can do if the conversion fails.
const REMEDY: &str = "put the model's tokenizer.json beside the file";

/// Value of `tokenizer.ggml.token_type` for control tokens.
const CONTROL: i64 = 3;
/// Value of `tokenizer.ggml.token_type` for tokens added after training.
const ADDED: i64 = 4;

/// Llama 3's pattern for splitting a text into words.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen2's pattern: each digit stands alone.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The tokenizer's metadata.
struct Entries<'a> {
    metadata: &'a HashMap<String, Entry>,
    tokens: Vec<&'a str>,
    types: Vec<i64>,
}

/// Builds the tokenizer from a file's metadata.
///
/// # Errors
/// The tokenizer is missing or unsupported; the message says what to do.
pub(super) fn build(metadata: &HashMap<String, Entry>) -> Result<Tokenizer, String> {
    let entries = Entries::read(metadata)?;
    let json = match entries.text("model") {
        Some("gpt2") => entries.byte_level(),
        Some("llama") => entries.sentence_piece(),
        other => Err(format!("tokenizer.ggml.model is {other:?}; known are gpt2 and llama")),
    };
    let json = json.map_err(|reason| format!("{reason}; {REMEDY}"))?;
    Tokenizer::from_bytes(json.to_string()).map_err(|error| format!("{error}; {REMEDY}"))
}

impl<'a> Entries<'a> {
    fn read(metadata: &'a HashMap<String, Entry>) -> Result<Self, String> {
        let array = |key: &str| match metadata.get(key) {
            Some(Entry::Array(array)) => Some(array.as_slice()),
            _ => None,
        };
        let tokens = array("tokenizer.ggml.tokens");
        let tokens = tokens.ok_or_else(|| format!("it holds no tokenizer; {REMEDY}"))?;
        let tokens = strings(tokens).ok_or("tokenizer.ggml.tokens are not all texts")?;
        let types = array("tokenizer.ggml.token_type").unwrap_or_default();
        let types = types.iter().map(|of| of.to_i32().map_or(1, i64::from)).collect();
        Ok(Self { metadata, tokens, types })
    }

    fn find(&self, key: &str) -> Option<&'a Entry> {
        self.metadata.get(&format!("tokenizer.ggml.{key}"))
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        match self.find(key)? {
            Entry::String(text) => Some(text),
            _ => None,
        }
    }

    fn switch(&self, key: &str) -> Option<bool> {
        match self.find(key)? {
            Entry::Bool(on) => Some(*on),
            _ => None,
        }
    }

    /// Byte-level byte pair encoding, as in GPT-2.
    fn byte_level(&self) -> Result<Value, String> {
        let merges = match self.find("merges") {
            Some(Entry::Array(merges)) => strings(merges),
            _ => None,
        };
        let merges = merges.ok_or("there are no tokenizer.ggml.merges")?;
        // Neither side of a merge contains a space: the encoding writes it as another letter.
        let merges: Vec<(&str, &str)> =
            merges.iter().filter_map(|merge| merge.split_once(' ')).collect();
        let bytes = |by_words: bool| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": by_words });
        let split = |by: &str| json!({ "type": "Split", "pattern": { "Regex": by }, "behavior": "Isolated", "invert": false });
        let (before, ignores_merges) = match self.text("pre") {
            Some("llama-bpe" | "llama3" | "llama-v3") => (vec![split(LLAMA3), bytes(false)], true),
            Some("qwen2" | "deepseek-r1-qwen") => (vec![split(QWEN2), bytes(false)], false),
            Some("smollm") => {
                (vec![json!({ "type": "Digits", "individual_digits": true }), bytes(true)], false)
            }
            Some("gpt-2" | "default") | None => (vec![bytes(true)], false),
            Some(other) => return Err(format!("tokenizer.ggml.pre is {other:?}")),
        };
        Ok(json!({
            "version": "1.0",
            "added_tokens": self.added(),
            "normalizer": null,
            "pre_tokenizer": { "type": "Sequence", "pretokenizers": before },
            "post_processor": self.begins(),
            "decoder": bytes(true),
            "model": {
                "type": "BPE",
                "vocab": self.vocabulary(),
                "merges": merges,
                "ignore_merges": ignores_merges,
            },
        }))
    }

    /// Sentencepiece's byte pair encoding; the merges follow from the tokens' scores.
    fn sentence_piece(&self) -> Result<Value, String> {
        let Some(Entry::Array(scores)) = self.find("scores") else {
            return Err("there are no tokenizer.ggml.scores".to_owned());
        };
        let scores: Vec<f32> = scores.iter().filter_map(|score| score.to_f32().ok()).collect();
        if scores.len() != self.tokens.len() {
            return Err(format!("{} scores of {} tokens", scores.len(), self.tokens.len()));
        }
        let prefix = self.switch("add_space_prefix").unwrap_or(true);
        let spaces =
            json!({ "type": "Replace", "pattern": { "String": " " }, "content": "\u{2581}" });
        let normalizers = match prefix {
            true => vec![json!({ "type": "Prepend", "prepend": "\u{2581}" }), spaces],
            false => vec![spaces],
        };
        let mut decoders = vec![
            json!({ "type": "Replace", "pattern": { "String": "\u{2581}" }, "content": " " }),
            json!({ "type": "ByteFallback" }),
            json!({ "type": "Fuse" }),
        ];
        if prefix {
            decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
        }
        Ok(json!({
            "version": "1.0",
            "added_tokens": self.added(),
            "normalizer": { "type": "Sequence", "normalizers": normalizers },
            "pre_tokenizer": null,
            "post_processor": self.begins(),
            "decoder": { "type": "Sequence", "decoders": decoders },
            "model": {
                "type": "BPE",
                "vocab": self.vocabulary(),
                "merges": self.merges(&scores),
                "unk_token": "<unk>",
                "fuse_unk": true,
                "byte_fallback": true,
            },
        }))
    }

    fn vocabulary(&self) -> HashMap<&'a str, usize> {
        self.tokens.iter().enumerate().map(|(id, token)| (*token, id)).collect()
    }

    /// Tokens that are matched in a text before any others.
    fn added(&self) -> Vec<Value> {
        let kinds = self.tokens.iter().zip(&self.types).enumerate();
        let added = kinds.filter(|(_, (_, kind))| [CONTROL, ADDED].contains(kind));
        let added = added.map(|(id, (token, kind))| {
            json!({
                "id": id, "content": token, "special": *kind == CONTROL, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false,
            })
        });
        added.collect()
    }

    /// The post-processor that adds a first token, if the file asks for one.
    fn begins(&self) -> Value {
        let id = match self.find("bos_token_id") {
            Some(Entry::U32(id)) => *id as usize,
            _ => return Value::Null,
        };
        let adds = self.switch("add_bos_token").unwrap_or(self.text("model") == Some("llama"));
        let Some(begin) = self.tokens.get(id).filter(|_| adds) else { return Value::Null };
        let special = json!({ "SpecialToken": { "id": begin, "type_id": 0 } });
        let text = |id: &str| json!({ "Sequence": { "id": id, "type_id": 0 } });
        json!({
            "type": "TemplateProcessing",
            "single": [special, text("A")],
            "pair": [special, text("A"), text("B")],
            "special_tokens": { *begin: { "id": begin, "ids": [id], "tokens": [begin] } },
        })
    }

    /// Pairs of tokens that form another token, best score first.
    fn merges(&self, scores: &[f32]) -> Vec<(&'a str, &'a str)> {
        let ids = self.vocabulary();
        let mut merges: Vec<(f32, usize, usize)> = Vec::new();
        for (token, score) in self.tokens.iter().zip(scores) {
            let splits = token.char_indices().skip(1).map(|(at, _)| token.split_at(at));
            merges.extend(
                splits
                    .filter_map(|(left, right)| Some((*score, *ids.get(left)?, *ids.get(right)?))),
            );
        }
        merges.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| (a.1, a.2).cmp(&(b.1, b.2))));
        merges.iter().map(|(_, left, right)| (self.tokens[*left], self.tokens[*right])).collect()
    }
}

/// Converts all entries to texts; `None` if one is not a text.
fn strings(array: &[Entry]) -> Option<Vec<&str>> {
    array.iter().map(|entry| entry.to_string().ok().map(String::as_str)).collect()
}
