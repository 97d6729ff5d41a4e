//! Tokenises texts with a model's own `tokenizer.json`.

use tokenizers::{Encoding, Tokenizer, TruncationParams};

use super::ModelError;
use super::folder::{Folder, TOKENIZER};

/// Bytes per allowed token, beyond which a text is cut before it is tokenised. This bounds the time
/// of tokenising.
const BYTES_PER_TOKEN: usize = 64;

/// A model's tokenizer with a bound on the tokens.
pub(super) struct TextTokenizer {
    tokenizer: Tokenizer,
    max_bytes: usize,
}

/// The tokens of a text, or of a pair of texts.
pub(super) struct TextTokens {
    pub(super) ids: Vec<u32>,
    /// The text of each token: 0 or 1, by the model's own rule.
    pub(super) types: Vec<u32>,
    /// Whether the text had more tokens than the model takes.
    pub(super) cut: bool,
}

impl TextTokenizer {
    /// Reads a folder's tokenizer. The truncation and padding in the file are those of the process
    /// that saved it (always 128 tokens for MiniLM), and are replaced.
    pub(super) fn read(folder: &mut Folder, max_tokens: usize) -> Result<Self, ModelError> {
        let bytes = folder.read(TOKENIZER)?;
        let refused = |error: tokenizers::Error| folder.refused(TOKENIZER, error.to_string());
        let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(refused)?;
        let truncation = TruncationParams { max_length: max_tokens, ..TruncationParams::default() };
        tokenizer.with_truncation(Some(truncation)).map_err(refused)?;
        tokenizer.with_padding(None);
        Ok(Self { tokenizer, max_bytes: max_tokens * BYTES_PER_TOKEN })
    }

    /// Tokenises a text.
    ///
    /// # Errors
    /// The tokenizer's error.
    pub(super) fn text(&self, text: &str) -> Result<TextTokens, String> {
        let (head, cut) = self.head(text);
        let encoding = self.tokenizer.encode_fast(head, true);
        encoding.map(|encoding| TextTokens::of(&encoding, cut)).map_err(|error| error.to_string())
    }

    /// Tokenises a pair of texts. If there are too many tokens, the longer text loses its end.
    ///
    /// # Errors
    /// The tokenizer's error.
    pub(super) fn pair(&self, first: &str, second: &str) -> Result<TextTokens, String> {
        let ((first, first_cut), (second, second_cut)) = (self.head(first), self.head(second));
        let encoding = self.tokenizer.encode_fast((first, second), true);
        let encoding = encoding.map_err(|error| error.to_string())?;
        Ok(TextTokens::of(&encoding, first_cut || second_cut))
    }

    /// Returns the beginning of a text that can matter, and whether the text is longer.
    fn head<'a>(&self, text: &'a str) -> (&'a str, bool) {
        let head = &text[..text.floor_char_boundary(self.max_bytes)];
        (head, head.len() < text.len())
    }
}

impl TextTokens {
    fn of(encoding: &Encoding, cut: bool) -> Self {
        Self {
            ids: encoding.get_ids().to_vec(),
            types: encoding.get_type_ids().to_vec(),
            cut: cut || !encoding.get_overflowing().is_empty(),
        }
    }
}
