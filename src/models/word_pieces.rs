//! Cuts texts in ASCII into word pieces as BERT's uncased tokenizers do, but without the offsets
//! and allocations of the crate tokenizers, which an encoder does not need. Every turn takes this
//! path for [`StaticTable`](super::static_table::StaticTable), for which cutting is most of
//! encoding.

use rustc_hash::FxHashMap;
use tokenizers::{
    ModelWrapper, NormalizerWrapper, PreTokenizerWrapper, Tokenizer, TokenizerImpl,
    normalizers::BertNormalizer,
};

/// Cuts texts into a tokenizer's pieces, by itself if it can: a text in ASCII, for a tokenizer that
/// lowers letters, splits at white space and punctuation and takes the longest known piece.
pub(super) struct WordPieces {
    tokenizer: Tokenizer,
    fast: Option<Vocabulary>,
}

/// The pieces by their text.
struct Vocabulary {
    begins: FxHashMap<Box<[u8]>, u32>,
    continues: FxHashMap<Box<[u8]>, u32>,
    /// The piece of a word that cannot be cut.
    unknown: u32,
    longest_word: usize,
    /// The longest piece, in bytes.
    longest_piece: usize,
}

impl WordPieces {
    pub(super) fn new(tokenizer: Tokenizer) -> Self {
        let fast = Vocabulary::of(&tokenizer);
        Self { tokenizer, fast }
    }

    /// The tokenizer as it was given.
    pub(super) fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The numbers of a text's pieces, without special ones.
    ///
    /// # Errors
    /// The tokenizer's error.
    pub(super) fn of(&self, text: &str) -> Result<Vec<u32>, tokenizers::Error> {
        match &self.fast {
            // A special piece such as `[SEP]` stands for itself, also in a text.
            Some(vocabulary) if text.bytes().all(|byte| byte.is_ascii() && byte != b'[') => {
                Ok(vocabulary.pieces(text.as_bytes()))
            }
            _ => Ok(self.tokenizer.encode_fast(text, false)?.get_ids().to_vec()),
        }
    }
}

impl Vocabulary {
    /// Returns `None` for a tokenizer that cuts in another way.
    fn of(tokenizer: &Tokenizer) -> Option<Self> {
        let parts: &TokenizerImpl<_, _, _, _, _> = tokenizer;
        let Some(NormalizerWrapper::BertNormalizer(BertNormalizer {
            clean_text: true,
            lowercase: true,
            ..
        })) = parts.get_normalizer()
        else {
            return None;
        };
        let Some(PreTokenizerWrapper::BertPreTokenizer(_)) = parts.get_pre_tokenizer() else {
            return None;
        };
        let ModelWrapper::WordPiece(model) = parts.get_model() else { return None };
        let cuts = parts.get_truncation().is_some() || parts.get_padding().is_some();
        // Every added piece must contain the bracket by which a text is tested for them.
        let mut added = parts.get_added_vocabulary().get_vocab().keys();
        if cuts || !added.all(|it| it.contains('[')) {
            return None;
        }
        let prefix = model.continuing_subword_prefix.as_str();
        let (mut begins, mut continues) = (FxHashMap::default(), FxHashMap::default());
        let mut longest_piece = 0;
        for (piece, number) in parts.get_vocab(false) {
            let rest = piece.strip_prefix(prefix);
            let text = rest.unwrap_or(&piece).as_bytes();
            longest_piece = longest_piece.max(piece.len());
            match rest {
                Some(_) => continues.insert(text.into(), number),
                None => begins.insert(text.into(), number),
            };
        }
        let unknown = parts.token_to_id(&model.unk_token)?;
        let longest_word = model.max_input_chars_per_word;
        // Words are split at punctuation, so that no word begins with such a prefix itself.
        let splits = prefix.bytes().any(|byte| byte.is_ascii_punctuation());
        splits.then_some(Self { begins, continues, unknown, longest_word, longest_piece })
    }

    fn pieces(&self, text: &[u8]) -> Vec<u32> {
        let mut pieces = Vec::with_capacity(text.len() / 4 + 1);
        let mut word = Vec::with_capacity(32);
        for &byte in text {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' => self.end(&mut word, &mut pieces),
                // The rest of the control characters is dropped, also within a word.
                0..=31 | 127 => {}
                _ if byte.is_ascii_punctuation() => {
                    self.end(&mut word, &mut pieces);
                    word.push(byte);
                    self.end(&mut word, &mut pieces);
                }
                _ => word.push(byte.to_ascii_lowercase()),
            }
        }
        self.end(&mut word, &mut pieces);
        pieces
    }

    /// Cuts a word into the longest pieces from its beginning on.
    fn end(&self, word: &mut Vec<u8>, pieces: &mut Vec<u32>) {
        if word.is_empty() {
            return;
        }
        let before = pieces.len();
        let mut begin = 0;
        while begin < word.len() && word.len() <= self.longest_word {
            let known = if begin == 0 { &self.begins } else { &self.continues };
            let most = word.len().min(begin + self.longest_piece);
            let found = (begin + 1..=most)
                .rev()
                .find_map(|end| known.get(&word[begin..end]).map(|&piece| (end, piece)));
            let Some((end, piece)) = found else { break };
            pieces.push(piece);
            begin = end;
        }
        if begin < word.len() {
            pieces.truncate(before);
            pieces.push(self.unknown);
        }
        word.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::static_table::StaticTable;
    use super::*;

    fn shipped() -> WordPieces {
        WordPieces::new(StaticTable::shipped().unwrap().tokenizer().clone())
    }

    fn by_the_crate(pieces: &WordPieces, text: &str) -> Vec<u32> {
        pieces.tokenizer.encode_fast(text, false).unwrap().get_ids().to_vec()
    }

    #[test]
    fn the_shipped_tokenizer_is_one_that_is_cut_here() {
        assert!(shipped().fast.is_some());
    }

    #[test]
    fn what_is_special_is_cut_alike() {
        let pieces = shipped();
        let long = "a".repeat(101);
        let texts = [
            "",
            "  \t\r\n ",
            "Hello, World!it's 3.5%",
            "un\u{1}believ\u{7f}able \u{b}x\u{c}y\0z",
            "##ing ing# [SEP] a[MASK]b",
            "supercalifragilisticexpialidocious qzxjkvbwpyqzx",
            &long,
            &long[..100],
            "caf\u{e9} \u{2014} na\u{ef}ve",
            "a_b-c/d\\e",
        ];
        for text in texts {
            assert_eq!(pieces.of(text).unwrap(), by_the_crate(&pieces, text), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_cut_as_the_crate_cuts_it(text in "[ -~\\t\\n\\x00-\\x1f\\x7f]{0,80}|\\PC{0,40}") {
            let pieces = shipped();
            prop_assert_eq!(pieces.of(&text).unwrap(), by_the_crate(&pieces, &text));
        }
    }
}
