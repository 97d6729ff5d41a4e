//! An active request: its tokens, how many of them are through the network, and how each new token
//! continues the answer.

use turnstream_ports::model::{CallError, Generated, Reply};
use turnstream_schemas::{Confidence, ConfidenceKind, ModelUsed};

use super::cache::KeyValues;
use super::constraint::Constraint;
use super::sampling::{Chosen, Sampler};
use super::text::Text;
use super::vocabulary::DecoderVocabulary;

/// An active request.
pub(super) struct Sequence {
    pub(super) reply: Reply<Generated>,
    /// The tokens of the prompt, then those of the answer.
    pub(super) tokens: Vec<u32>,
    /// The number of prompt tokens.
    pub(super) prompt: usize,
    /// The cache of the tokens that are through the network.
    pub(super) cache: KeyValues,
    pub(super) answer: AnswerState,
}

/// The state of an answer.
pub(super) struct AnswerState {
    pub(super) sampler: Sampler,
    pub(super) constraint: Option<Constraint>,
    pub(super) text: Text,
    /// The most tokens.
    pub(super) max_tokens: usize,
    pub(super) surety: Surety,
}

/// The model's confidence in the tokens that it chose; tokens that a schema forced do not count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Surety {
    kind: ConfidenceKind,
    lowest: f32,
}

impl Surety {
    pub(super) fn new(kind: ConfidenceKind) -> Self {
        Self { kind, lowest: f32::INFINITY }
    }

    fn see(&mut self, chosen: &Chosen) {
        let value = match self.kind {
            ConfidenceKind::LowestLogProbability => chosen.log_probability,
            _ => chosen.logit,
        };
        self.lowest = self.lowest.min(value);
    }

    fn confidence(self) -> Option<Confidence> {
        let value = f64::from(self.lowest);
        value.is_finite().then_some(Confidence { kind: self.kind, value })
    }
}

/// How an answer continues after a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continuation {
    /// The answer goes on.
    More,
    /// The answer is complete.
    Complete,
    /// The answer reached its most tokens.
    Cut,
}

impl Sequence {
    /// Tokens that are not through the network yet; an active sequence has at least one.
    pub(super) fn pending(&self) -> &[u32] {
        &self.tokens[self.cache.tokens()..]
    }

    /// Whether the prompt is through the network, except perhaps its last token.
    pub(super) fn is_answering(&self) -> bool {
        self.cache.tokens() + 1 >= self.prompt
    }

    /// Chooses the next token and appends the tokens that a schema forces after it.
    ///
    /// # Errors
    /// The answer cannot continue.
    pub(super) fn advance(
        &mut self,
        logits: &[f32],
        vocabulary: &DecoderVocabulary,
    ) -> Result<Continuation, String> {
        let ends = vocabulary.ends();
        let answer = &mut self.answer;
        let allowed = answer.constraint.as_mut().map(Constraint::allowed).transpose()?;
        let allowed = allowed.as_ref().map(|set| move |token| set.is_allowed(token));
        let allowed = allowed.as_ref().map(|allowed| allowed as &dyn Fn(u32) -> bool);
        let before = &self.tokens[self.prompt..];
        let chosen = answer.sampler.choose(logits, allowed, before)?;
        answer.surety.see(&chosen);
        if ends.contains(&chosen.token) {
            return Ok(Continuation::Complete);
        }
        self.tokens.push(chosen.token);
        let mut stopped = answer.text.push(vocabulary.bytes(chosen.token));
        if let Some(constraint) = &mut answer.constraint {
            constraint.consume(chosen.token)?;
            for token in constraint.forced() {
                if ends.contains(&token) {
                    stopped = true;
                    break;
                }
                self.tokens.push(token);
                stopped |= answer.text.push(vocabulary.bytes(token));
            }
            stopped |= constraint.is_finished();
        }
        let answered = self.tokens.len() - self.prompt;
        Ok(match stopped {
            true => Continuation::Complete,
            false if answered >= answer.max_tokens => Continuation::Cut,
            false => Continuation::More,
        })
    }

    /// Answers the request. Returns whether it succeeded, with the tokens and the cache to keep.
    pub(super) fn finish(mut self, next: Continuation, model: &str) -> (bool, Vec<u32>, KeyValues) {
        let AnswerState { text, surety, max_tokens, constraint, .. } = &mut self.answer;
        let incomplete = match (next, constraint) {
            (Continuation::Cut, Some(constraint)) => !constraint.is_complete(),
            _ => false,
        };
        let text = std::mem::take(text).finish();
        let answer = if incomplete {
            Err(CallError::Model(format!(
                "the answer had {max_tokens} tokens and was not yet complete by its schema; allow \
                 it more tokens"
            )))
        } else {
            let model = ModelUsed { name: model.to_owned(), prompt_hash: None };
            Ok(Generated { text, confidence: surety.confidence(), model })
        };
        self.reply.answer(answer);
        (!incomplete, self.tokens, self.cache)
    }
}
