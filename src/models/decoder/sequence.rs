//! One request while it is worked on: its tokens, how far they are through the network, and what
//! becomes of each new one.

use turnstream_ports::model::{CallError, Generated, Reply};
use turnstream_schemas::{Confidence, ConfidenceKind, ModelUsed};

use super::cache::KeyValues;
use super::constraint::Constraint;
use super::sampling::{Chosen, Sampler};
use super::text::Text;
use super::vocabulary::Vocabulary;

/// A request that is worked on.
pub(super) struct Sequence {
    pub(super) reply: Reply<Generated>,
    /// Those of the prompt, then those of the answer.
    pub(super) tokens: Vec<u32>,
    /// How many are the prompt's.
    pub(super) prompt: usize,
    /// Of the tokens that went through the network.
    pub(super) cache: KeyValues,
    pub(super) answer: Answer,
}

/// What an answer is made with.
pub(super) struct Answer {
    pub(super) sampler: Sampler,
    pub(super) constraint: Option<Constraint>,
    pub(super) text: Text,
    /// Tokens at most.
    pub(super) max_tokens: usize,
    pub(super) surety: Surety,
}

/// How sure the model was of the tokens it chose; of those that a schema forced it chose none.
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

/// What a new token means for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Go on.
    More,
    /// It is complete.
    Complete,
    /// It has as many tokens as it may.
    Cut,
}

impl Sequence {
    /// Tokens that did not go through the network yet: at least one while it is worked on.
    pub(super) fn pending(&self) -> &[u32] {
        &self.tokens[self.cache.tokens()..]
    }

    /// Whether the prompt went through, but for its last token at most.
    pub(super) fn is_answering(&self) -> bool {
        self.cache.tokens() + 1 >= self.prompt
    }

    /// Chooses the next token, and takes those that must follow it.
    ///
    /// # Errors
    /// What keeps the answer from going on.
    pub(super) fn advance(
        &mut self,
        logits: &[f32],
        vocabulary: &Vocabulary,
    ) -> Result<Next, String> {
        let ends = vocabulary.ends();
        let answer = &mut self.answer;
        let allowed = answer.constraint.as_mut().map(Constraint::allowed).transpose()?;
        let allowed = allowed.as_ref().map(|set| move |token| set.is_allowed(token));
        let allowed = allowed.as_ref().map(|allowed| allowed as &dyn Fn(u32) -> bool);
        let before = &self.tokens[self.prompt..];
        let chosen = answer.sampler.choose(logits, allowed, before)?;
        answer.surety.see(&chosen);
        if ends.contains(&chosen.token) {
            return Ok(Next::Complete);
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
            true => Next::Complete,
            false if answered >= answer.max_tokens => Next::Cut,
            false => Next::More,
        })
    }

    /// Answers the request, and says whether there was an answer, and what may be kept.
    pub(super) fn finish(mut self, next: Next, model: &str) -> (bool, Vec<u32>, KeyValues) {
        let Answer { text, surety, max_tokens, constraint, .. } = &mut self.answer;
        let incomplete = match (next, constraint) {
            (Next::Cut, Some(constraint)) => !constraint.is_complete(),
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
