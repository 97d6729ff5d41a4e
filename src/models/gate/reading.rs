//! How the attention encoder reads a turn: dialogue, knowledge and response as tokens, each with
//! its position and its segment.
//!
//! Positions count from the end, and segments are relative to the current speaker. The latest words
//! therefore always have the same positions, and the encoder can read a system's turn as it reads a
//! user's.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnstream_ports::model::encoder::EncodeError;
use turnstream_schemas::Speaker;
use unicode_segmentation::UnicodeSegmentation;

use super::network::{NetworkShape, Variant};
use crate::static_table::StaticTable;

/// The kind of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum TokenKind {
    /// A piece of the shipped static table, whose vector it begins from. English.
    #[default]
    Pieces,
    /// A word of the training split, as in the paper.
    Words,
    /// A character, for Chinese.
    Characters,
}

/// The tokens that have an embedding of their own. The rows of the embedding are the [`MARKS`],
/// then these tokens in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vocabulary {
    /// The kind of tokens.
    pub kind: TokenKind,
    /// The tokens, most frequent first.
    pub tokens: Vec<String>,
}

/// Rows of the embedding before the vocabulary: a token without a row of its own, and the
/// beginnings of an utterance, of knowledge and of a response.
pub const MARKS: usize = 4;
const UNKNOWN: u32 = 0;
const UTTERANCE: u32 = 1;
const KNOWLEDGE: u32 = 2;
const RESPONSE: u32 = 3;

/// A token without a piece.
const NO_PIECE: u32 = u32::MAX;

/// Segments: the current utterance, the one before, earlier ones of the same side and of the other
/// side, knowledge, response.
pub const SEGMENTS: usize = 6;

/// One token of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadToken {
    /// The row in the embedding.
    pub word: u32,
    /// The row in the static table.
    pub piece: u32,
    /// Whether the token is a punctuation mark.
    pub is_punctuation: bool,
}

/// Tokens with their positions and segments, in columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tokens {
    /// Rows in the embedding.
    pub words: Vec<u32>,
    /// Rows in the static table.
    pub pieces: Vec<u32>,
    /// Positions; the last token has 0.
    pub positions: Vec<u32>,
    /// Segments, below [`SEGMENTS`].
    pub segments: Vec<u32>,
}

impl Tokens {
    /// Appends tokens and returns their range.
    pub fn push(&mut self, tokens: &Self) -> Range<usize> {
        let from = self.words.len();
        self.words.extend_from_slice(&tokens.words);
        self.pieces.extend_from_slice(&tokens.pieces);
        self.positions.extend_from_slice(&tokens.positions);
        self.segments.extend_from_slice(&tokens.segments);
        from..self.words.len()
    }

    fn add(&mut self, word: u32, piece: u32, segment: u32) {
        self.words.push(word);
        self.pieces.push(piece);
        self.segments.push(segment);
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Keeps the last `most` tokens.
    fn keep_last(&mut self, most: usize) {
        let first = self.len().saturating_sub(most);
        self.words.drain(..first);
        self.pieces.drain(..first);
        self.segments.drain(..first);
    }

    /// Numbers the positions from the end.
    fn place(&mut self) {
        self.positions = (0..self.len() as u32).rev().collect();
    }
}

/// A turn as the network's input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnTokens {
    /// The dialogue and, if the variant appends it, knowledge or response. Never empty.
    pub context: Tokens,
    /// The range of the current utterance.
    pub current: Range<usize>,
    /// The knowledge that the dialogue attends to (contx × know).
    pub knowledge: Tokens,
    /// The number of utterances in the dialogue.
    pub depth: usize,
}

impl TurnTokens {
    /// The number of rows.
    pub fn len(&self) -> usize {
        self.context.len() + self.knowledge.len()
    }

    /// Always false: the context is never empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A tokenised turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutTurn {
    /// The dialogue, oldest first; the last utterance is the current one.
    pub utterances: Vec<(Speaker, Vec<ReadToken>)>,
    /// The retrieved knowledge, best first.
    pub knowledge: Vec<Vec<ReadToken>>,
    /// The response, if the variant reads one.
    pub response: Option<Vec<ReadToken>>,
    /// The number of utterances in the dialogue, including omitted ones.
    pub depth: usize,
}

/// Tokenises texts.
pub struct Reader {
    kind: TokenKind,
    rows: HashMap<String, u32>,
    /// Rows in the embedding by piece of the table.
    by_piece: Vec<u32>,
    table: Option<Arc<StaticTable>>,
}

impl Reader {
    /// Makes a reader for a vocabulary; `table` is the shipped table if the tokens are its pieces.
    pub fn new(vocabulary: &Vocabulary, table: Option<Arc<StaticTable>>) -> Self {
        let rows = vocabulary.tokens.iter().enumerate();
        let rows: HashMap<String, u32> =
            rows.map(|(at, token)| (token.clone(), (MARKS + at) as u32)).collect();
        let pieces = table.iter().flat_map(|table| (0..).map_while(|piece| table.piece(piece)));
        let by_piece = pieces.map(|piece| rows.get(&piece).copied().unwrap_or(UNKNOWN)).collect();
        Self { kind: vocabulary.kind, rows, by_piece, table }
    }

    /// Tokenises a text.
    ///
    /// # Errors
    /// The table's tokenizer fails on the text.
    pub fn cut(&self, text: &str) -> Result<Vec<ReadToken>, EncodeError> {
        if let Some(table) = &self.table {
            let pieces = table.cut(text)?.into_iter();
            return Ok(pieces.map(|piece| self.of_piece(table, piece)).collect());
        }
        Ok(split(self.kind, text)
            .map(|word| ReadToken {
                word: self.rows.get(&word).copied().unwrap_or(UNKNOWN),
                piece: NO_PIECE,
                is_punctuation: !word.chars().any(char::is_alphanumeric),
            })
            .collect())
    }

    fn of_piece(&self, table: &StaticTable, piece: u32) -> ReadToken {
        ReadToken {
            word: self.by_piece.get(piece as usize).copied().unwrap_or(UNKNOWN),
            piece,
            is_punctuation: table
                .piece(piece)
                .is_some_and(|piece| !piece.chars().any(char::is_alphanumeric)),
        }
    }
}

/// Returns a text's tokens as a vocabulary spells them.
///
/// # Errors
/// The table's tokenizer fails on the text.
pub fn spellings(
    kind: TokenKind,
    table: Option<&StaticTable>,
    text: &str,
) -> Result<Vec<String>, EncodeError> {
    Ok(match table {
        Some(table) => {
            table.cut(text)?.into_iter().filter_map(|piece| table.piece(piece)).collect()
        }
        None => split(kind, text).collect(),
    })
}

/// Splits a text into lower-case words and punctuation marks, or into characters.
fn split(kind: TokenKind, text: &str) -> impl Iterator<Item = String> {
    let characters = kind == TokenKind::Characters;
    let text = text.to_lowercase();
    let tokens: Vec<String> = if characters {
        text.graphemes(true).map(str::to_owned).collect()
    } else {
        text.split_word_bounds().map(str::to_owned).collect()
    };
    tokens.into_iter().filter(|token| !token.trim().is_empty())
}

/// Makes a written turn resemble a transcript of speech; for training only. Each probability is
/// 0..=1.
pub struct Noise<'r> {
    /// The probability that a turn loses its punctuation.
    pub bare: f32,
    /// The probability that a token is lost.
    pub lost: f32,
    /// The probability that a token is misheard: it then has neither row nor piece.
    pub misheard: f32,
    /// The random generator.
    pub random: &'r mut fastrand::Rng,
}

/// Builds the input of a variant from a turn.
pub fn assemble(turn: &CutTurn, shape: &NetworkShape, mut noise: Option<Noise<'_>>) -> TurnTokens {
    let bare = noise.as_mut().is_some_and(|noise| noise.random.f32() < noise.bare);
    let mut read = |out: &mut Tokens, tokens: &[ReadToken], segment: u32, most: usize| {
        let tokens = tokens.iter().take(most).filter(|token| !(bare && token.is_punctuation));
        for token in tokens {
            let (mut word, mut piece) = (token.word, token.piece);
            if let Some(noise) = &mut noise {
                let chance = noise.random.f32();
                if chance < noise.lost {
                    continue;
                }
                if chance < noise.lost + noise.misheard {
                    (word, piece) = (UNKNOWN, NO_PIECE);
                }
            }
            out.add(word, piece, segment);
        }
    };
    let most = shape.max_tokens;
    let last = turn.utterances.len().saturating_sub(1);
    let answered = turn.utterances.last().map(|(speaker, _)| *speaker);
    let mut context = Tokens::default();
    let mut current = 0;
    // Start at the first utterance that still fits.
    let mut room = most;
    let mut first = last;
    let read_utterances = match shape.max_utterances {
        0 => usize::MAX,
        most => most,
    };
    while first > 0
        && last - first + 1 < read_utterances
        && turn.utterances[first].1.len() + 1 < room
    {
        room -= turn.utterances[first].1.len() + 1;
        first -= 1;
    }
    for (at, (speaker, tokens)) in turn.utterances.iter().enumerate().skip(first) {
        let segment = match last - at {
            0 => 0,
            1 => 1,
            _ if Some(*speaker) == answered => 2,
            _ => 3,
        };
        current = context.len();
        context.add(UTTERANCE, NO_PIECE, segment);
        read(&mut context, tokens, segment, usize::MAX);
    }
    let said = context.len() - current;
    context.keep_last(most);
    let said = said.min(context.len());
    let current = context.len() - said..context.len();

    let mut knowledge = Tokens::default();
    if shape.variant.reads_knowledge() {
        for tokens in &turn.knowledge {
            if knowledge.len() >= most {
                break;
            }
            let room = most - knowledge.len() - 1;
            knowledge.add(KNOWLEDGE, NO_PIECE, 4);
            read(&mut knowledge, tokens, 4, room);
        }
    }
    let mut appended = Tokens::default();
    match shape.variant {
        Variant::ContxPlusKnow => appended = std::mem::take(&mut knowledge),
        Variant::ContxPlusResp => {
            appended.add(RESPONSE, NO_PIECE, 5);
            let response = turn.response.as_deref().unwrap_or_default();
            read(&mut appended, response, 5, most - 1);
        }
        Variant::Contx | Variant::ContxTimesKnow => {}
    }
    context.place();
    appended.place();
    knowledge.place();
    context.push(&appended);
    TurnTokens { context, current, knowledge, depth: turn.depth }
}

#[cfg(test)]
mod tests;
