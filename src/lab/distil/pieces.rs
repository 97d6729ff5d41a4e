//! Selects the word pieces of a tokenizer for a table.

use std::str::FromStr;

use serde_json::{Map, Value};
use tokenizers::Tokenizer;

/// Why a tokenizer is unsuitable.
#[derive(Debug, thiserror::Error)]
#[error("the tokenizer of the model: {0}; a table needs a WordPiece tokenizer (`tokenizer.json`)")]
pub struct PieceError(String);

impl PieceError {
    pub(super) fn cut(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// Reduces an encoder's tokenizer to the pieces that English text can need (Latin letters, digits
/// and marks), renumbered without gaps in their old order. Other text becomes the unknown piece.
/// Truncation and padding are removed.
///
/// # Errors
/// The JSON is not a WordPiece tokenizer.
pub fn keep_latin_pieces(tokenizer_json: &str) -> Result<Tokenizer, PieceError> {
    let mut json: Value = serde_json::from_str(tokenizer_json).map_err(PieceError::cut)?;
    for key in ["truncation", "padding", "post_processor"] {
        json[key] = Value::Null;
    }
    let vocabulary = json.pointer_mut("/model/vocab").and_then(Value::as_object_mut);
    let vocabulary = vocabulary.ok_or_else(|| PieceError("it has no vocabulary".to_owned()))?;
    let mut kept: Vec<(u64, String)> = std::mem::take(vocabulary)
        .into_iter()
        .filter_map(|(piece, id)| Some((id.as_u64()?, piece)))
        .filter(|(_, piece)| is_latin(piece))
        .collect();
    kept.sort_unstable();
    let numbered = kept.into_iter().enumerate().map(|(id, (_, piece))| (piece, Value::from(id)));
    let numbered: Map<String, Value> = numbered.collect();
    if let Some(added) = json["added_tokens"].as_array_mut() {
        let id = |piece: &Value| numbered.get(piece["content"].as_str()?).cloned();
        added.retain_mut(|piece| id(piece).map(|id| piece["id"] = id).is_some());
    }
    json["model"]["vocab"] = Value::Object(numbered);
    Tokenizer::from_str(&json.to_string()).map_err(PieceError::cut)
}

/// Whether a piece is a used special piece, or consists of Latin letters, digits and marks.
fn is_latin(piece: &str) -> bool {
    if piece.starts_with('[') && piece.ends_with(']') && piece.len() > 2 {
        return !piece.starts_with("[unused");
    }
    let bare = piece.strip_prefix("##").unwrap_or(piece);
    bare.chars().all(|letter| {
        letter.is_ascii() || matches!(letter, '\u{a1}'..='\u{24f}' | '\u{2010}'..='\u{2044}' | '€')
    })
}

/// Returns the pieces by number, as texts for an encoder, without the mark of a continuation.
pub(super) fn texts(tokenizer: &Tokenizer) -> Vec<String> {
    let count = tokenizer.get_vocab_size(true) as u32;
    let piece = |id| tokenizer.id_to_token(id).unwrap_or_default();
    (0..count).map(|id| piece(id).trim_start_matches("##").to_owned()).collect()
}
