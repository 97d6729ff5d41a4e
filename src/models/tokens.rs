//! Texts to tokens, by a model's own `tokenizer.json`.

use tokenizers::{Encoding, Tokenizer, TruncationParams};

use super::ModelError;
use super::folder::{Folder, TOKENIZER};

/// Bytes of a text per token that it may have, beyond which it is cut before anything else: no
/// text makes tokenising take longer than this.
const BYTES_PER_TOKEN: usize = 64;

/// A model's tokenizer with a bound on what it gives.
pub(super) struct TextTokenizer {
    tokenizer: Tokenizer,
    max_bytes: usize,
}

/// The tokens of a text, or of a pair of texts.
pub(super) struct Tokens {
    pub(super) ids: Vec<u32>,
    /// Which text each is of: 0 or 1, by the model's own rule.
    pub(super) types: Vec<u32>,
    /// Whether there were more than the model takes.
    pub(super) cut: bool,
}

impl TextTokenizer {
    /// Reads the tokenizer of a folder. The bounds and the padding in the file are those of
    /// whoever saved it (128 tokens, always, for MiniLM), and are replaced.
    pub(super) fn read(folder: &mut Folder, max_tokens: usize) -> Result<Self, ModelError> {
        let bytes = folder.read(TOKENIZER)?;
        let refused = |error: tokenizers::Error| folder.refused(TOKENIZER, error.to_string());
        let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(refused)?;
        let truncation = TruncationParams { max_length: max_tokens, ..TruncationParams::default() };
        tokenizer.with_truncation(Some(truncation)).map_err(refused)?;
        tokenizer.with_padding(None);
        Ok(Self { tokenizer, max_bytes: max_tokens * BYTES_PER_TOKEN })
    }

    /// The tokens of a text.
    ///
    /// # Errors
    /// What the tokenizer says.
    pub(super) fn text(&self, text: &str) -> Result<Tokens, String> {
        let (head, cut) = self.head(text);
        let encoding = self.tokenizer.encode_fast(head, true);
        encoding.map(|encoding| Tokens::of(&encoding, cut)).map_err(|error| error.to_string())
    }

    /// The tokens of two texts together. Where there are too many, the longer text loses its end.
    ///
    /// # Errors
    /// What the tokenizer says.
    pub(super) fn pair(&self, first: &str, second: &str) -> Result<Tokens, String> {
        let ((first, first_cut), (second, second_cut)) = (self.head(first), self.head(second));
        let encoding = self.tokenizer.encode_fast((first, second), true);
        let encoding = encoding.map_err(|error| error.to_string())?;
        Ok(Tokens::of(&encoding, first_cut || second_cut))
    }

    /// The first bytes of a text, as many as may count, and whether that is less than all.
    fn head<'a>(&self, text: &'a str) -> (&'a str, bool) {
        let head = &text[..text.floor_char_boundary(self.max_bytes)];
        (head, head.len() < text.len())
    }
}

impl Tokens {
    fn of(encoding: &Encoding, cut: bool) -> Self {
        Self {
            ids: encoding.get_ids().to_vec(),
            types: encoding.get_type_ids().to_vec(),
            cut: cut || !encoding.get_overflowing().is_empty(),
        }
    }
}
