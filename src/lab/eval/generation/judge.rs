//! What a language model says of responses: the judged measures of DCRAG (MEEP, informativeness,
//! overall) and the scores of RAGAs (Es et al. 2024: context relevance, faithfulness, answer
//! relevance). Six questions a response, in our own words; the answers are JSON by a schema, each
//! asked for once more where it cannot be read, and counted where it still cannot.
//!
//! A figure of a judge is one of that judge and that prompt: both stand beside it, and figures of
//! two judges are not compared.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use turnstream_operators::prompted::fence::fenced;
use turnstream_ports::model::{Busy, Generate, GenerateRequest, Generated, Origin, Step, reply};
use turnstream_schemas::{InputId, Speaker, Stage};

mod answers;
mod figures;
mod prompts;
#[cfg(test)]
mod tests;

use answers::{
    Engagement, Quality, Questions, Relevance, Statements, Support, read, schema, within,
};
pub use figures::{Judged, Used};
use prompts::Wording;
pub use prompts::{Prompt, Prompts};
use turnstream_ports::model::encoder::{EncodeError, Encoder};

use super::material::{Answer, Log, Place};

/// The latest turns that the judge is shown, the answered one included.
pub const SHOWN_TURNS: usize = 12;
/// Tokens of an answer at most.
const MAX_TOKENS: u32 = 400;
/// How long to wait where the model's queue is full.
const QUEUE_FULL: Duration = Duration::from_millis(20);

/// Who judges.
pub struct Judge<'j> {
    /// The model.
    pub model: &'j Generate,
    /// What gives texts vectors, for answer relevance; it is left out where nothing does.
    pub encoder: Option<&'j dyn Encoder>,
    /// Its questions.
    pub prompts: Prompts,
    /// Responses that are judged at the same time, at least 1.
    pub at_once: usize,
}

/// Why responses cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    /// No question was answered.
    #[error("the judge answered none of {asked} questions; the first failed so: {first}")]
    Silent {
        /// How many were asked.
        asked: u64,
        /// What came of the first.
        first: String,
    },
    /// The encoder failed.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// What the judge found of one response. What could not be read, or is not defined for it, is
/// `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// How engaging, 0..=100.
    pub meep: Option<f64>,
    /// 1 to 5, scaled to 0..=100.
    pub informativeness: Option<f64>,
    /// 1 to 5, scaled to 0..=100.
    pub overall: Option<f64>,
    /// The share of the selected evidence that helps, 0..=1; only with evidence.
    pub context_relevance: Option<f64>,
    /// The share of the statements that the evidence bears out, 0..=1; only with evidence and
    /// statements.
    pub faithfulness: Option<f64>,
    /// The mean cosine of the dialogue and the utterances that the response would answer, −1..=1.
    pub answer_relevance: Option<f64>,
    /// What was asked for it.
    pub counts: Counts,
}

/// What was asked, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Questions.
    pub asked: u64,
    /// Those that were asked once more, since the answer could not be read.
    pub asked_again: u64,
    /// Those whose second answer could not be read either.
    pub unreadable: u64,
    /// Those that the model gave no answer to.
    pub failed: u64,
    /// Why the first that came to nothing did.
    #[serde(skip)]
    pub first_failure: Option<String>,
    /// The models that answered, as they call themselves.
    #[serde(skip)]
    pub models: BTreeMap<String, u64>,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.asked += other.asked;
        self.asked_again += other.asked_again;
        self.unreadable += other.unreadable;
        self.failed += other.failed;
        if self.first_failure.is_none() {
            self.first_failure.clone_from(&other.first_failure);
        }
        for (model, times) in &other.models {
            *self.models.entry(model.clone()).or_default() += times;
        }
    }
}

/// 1 to 5 as 0 to 100. So DCRAG scales: of three hundred whole numbers, only this way do the
/// figures of its tables come about.
fn scaled(rating: f64) -> f64 {
    (rating - 1.0) / 4.0 * 100.0
}

impl Judge<'_> {
    /// Judges responses, one judgement each, and counts what was asked in all; `done` is told of
    /// each.
    ///
    /// # Errors
    /// No question was answered, or the encoder failed.
    pub fn judge(
        &self,
        answers: &[(&Answer, Place)],
        log: &Log,
        done: &(dyn Fn() + Sync),
    ) -> Result<(Vec<Judgement>, Counts), JudgeError> {
        let next = AtomicUsize::new(0);
        let work = || -> Result<Vec<(usize, Judgement)>, EncodeError> {
            let mut judged = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some((answer, place)) = answers.get(at) else { return Ok(judged) };
                judged.push((at, self.one(answer, *place, log)?));
                done();
            }
        };
        let mut judged = std::thread::scope(|scope| -> Result<_, JudgeError> {
            let others: Vec<_> = (1..self.at_once).map(|_| scope.spawn(work)).collect();
            let mut judged = work()?;
            for other in others {
                match other.join() {
                    Ok(more) => judged.extend(more?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok(judged)
        })?;
        judged.sort_unstable_by_key(|(at, _)| *at);
        let judged: Vec<Judgement> = judged.into_iter().map(|(_, judgement)| judgement).collect();
        let mut counts = Counts::default();
        judged.iter().for_each(|judgement| counts.add(&judgement.counts));
        if counts.asked > 0 && counts.failed + counts.unreadable == counts.asked {
            let first = counts.first_failure.unwrap_or_default();
            return Err(JudgeError::Silent { asked: counts.asked, first });
        }
        Ok((judged, counts))
    }

    fn one(&self, answer: &Answer, place: Place, log: &Log) -> Result<Judgement, EncodeError> {
        let history = log.history(place);
        let shown = &history[history.len().saturating_sub(SHOWN_TURNS)..];
        let dialogue = fenced(
            "dialogue",
            shown.iter().map(|said| {
                let Wording { user, system, .. } = self.prompts.wording;
                let who = if said.speaker == Speaker::User { user } else { system };
                format!("{who}{}", said.text)
            }),
        );
        let reply = fenced("reply", [&answer.text]);
        let evidence = numbered("evidence", &answer.evidence);
        let prompts = &self.prompts;
        let mut judgement = Judgement::default();
        let mut asking = Asking { judge: self, input: &answer.input, counts: Counts::default() };

        let both = [&*dialogue, &*reply];
        judgement.meep = asking.ask(&prompts.engagement, &both, |answer: Engagement| {
            within("score", answer.score, (0.0, 100.0))
        });
        let quality = asking.ask(&prompts.quality, &both, |answer: Quality| {
            let rating = |name, value| within(name, value as f64, (1.0, 5.0)).map(scaled);
            let informativeness = rating("informativeness", answer.informativeness)?;
            Ok((informativeness, rating("overall", answer.overall)?))
        });
        (judgement.informativeness, judgement.overall) = quality.unzip();

        if !answer.evidence.is_empty() {
            let pieces = answer.evidence.len();
            judgement.context_relevance =
                asking.ask(&prompts.relevance, &[&dialogue, &evidence], |answer: Relevance| {
                    share_of(answer.relevant, pieces)
                });
            judgement.faithfulness = asking.faithfulness(&[&dialogue, &reply], &evidence);
        }
        if let Some(encoder) = self.encoder {
            let utterances = asking.ask(&prompts.questions, &[&reply], |answer: Questions| {
                let none = || "there is no utterance".to_owned();
                (!answer.utterances.is_empty()).then_some(answer.utterances).ok_or_else(none)
            });
            let dialogue: Vec<&str> = shown.iter().map(|said| &*said.text).collect();
            judgement.answer_relevance = match utterances {
                Some(utterances) => likeness(encoder, &dialogue.join("\n"), &utterances)?,
                None => None,
            };
        }
        judgement.counts = asking.counts;
        Ok(judgement)
    }
}

/// The share of pieces whose numbers are listed, from 1.
fn share_of(mut numbers: Vec<usize>, pieces: usize) -> Result<f64, String> {
    numbers.sort_unstable();
    numbers.dedup();
    if let Some(wrong) = numbers.iter().find(|number| !(1..=pieces).contains(number)) {
        return Err(format!("there is no piece {wrong}; they are numbered from 1 to {pieces}"));
    }
    Ok(numbers.len() as f64 / pieces as f64)
}

/// The mean cosine of the dialogue and each utterance; `None` where the encoder knows nothing in
/// the dialogue.
fn likeness(
    encoder: &dyn Encoder,
    dialogue: &str,
    utterances: &[String],
) -> Result<Option<f64>, EncodeError> {
    let texts: Vec<&str> =
        std::iter::once(dialogue).chain(utterances.iter().map(String::as_str)).collect();
    let mut vectors = Vec::new();
    encoder.encode(&texts, &mut vectors)?;
    let (dialogue, utterances) = vectors.split_at(encoder.dimensions());
    if dialogue.iter().all(|number| *number == 0.0) {
        return Ok(None);
    }
    let rows = utterances.chunks_exact(encoder.dimensions());
    let cosine = |row: &[f32]| row.iter().zip(dialogue).map(|(a, b)| f64::from(a * b)).sum::<f64>();
    let (sum, count) = rows.fold((0.0, 0_u32), |(sum, count), row| (sum + cosine(row), count + 1));
    Ok((count > 0).then(|| sum / f64::from(count)))
}

fn numbered(name: &str, items: &[String]) -> String {
    fenced(name, items.iter().enumerate().map(|(at, item)| format!("{}. {item}", at + 1)))
}

/// The questions about one response.
struct Asking<'a> {
    judge: &'a Judge<'a>,
    input: &'a InputId,
    counts: Counts,
}

impl Asking<'_> {
    /// RAGAs: what the response states, and how much of it the evidence bears out.
    fn faithfulness(&mut self, response: &[&str], evidence: &str) -> Option<f64> {
        let prompts = &self.judge.prompts;
        let stated =
            self.ask(&prompts.statements, response, |answer: Statements| Ok(answer.statements))?;
        if stated.is_empty() {
            return None;
        }
        let statements = numbered("statements", &stated);
        self.ask(&prompts.support, &[evidence, &statements], |answer: Support| {
            let (verdicts, wanted) = (answer.supported.len(), stated.len());
            if verdicts != wanted {
                return Err(format!("{verdicts} verdicts for {wanted} statements"));
            }
            let borne_out = answer.supported.iter().filter(|supported| **supported).count();
            Ok(borne_out as f64 / wanted as f64)
        })
    }

    /// Asks a question about some material, and once more where the answer cannot be read.
    fn ask<A: DeserializeOwned + JsonSchema, T>(
        &mut self,
        prompt: &Prompt,
        material: &[&str],
        take: impl Fn(A) -> Result<T, String>,
    ) -> Option<T> {
        self.counts.asked += 1;
        let question = format!("{}\n\n{}", material.join("\n"), prompt.answer);
        let mut request = GenerateRequest {
            stage: Stage::Generation,
            system: prompt.system.clone(),
            // Recorded answers are known by this: the prompt, and what it was filled with.
            origin: Some(Origin {
                input: self.input.clone(),
                step: Step::Answer,
                round: 0,
                for_gate: false,
                prompt: format!("{}-{:08x}", prompt.hash, crc32fast::hash(question.as_bytes())),
            }),
            prompt: question,
            max_tokens: MAX_TOKENS,
            temperature: 0.0,
            schema: Some(schema::<A>()),
            seed: 0,
            listener: None,
        };
        let first = self.answer(request.clone())?;
        let reason = match read(&first.text).and_then(&take) {
            Ok(taken) => return Some(taken),
            Err(reason) => reason,
        };
        self.counts.asked_again += 1;
        if let Some(origin) = &mut request.origin {
            origin.step = Step::Again;
        }
        let answer = fenced("answer", [&first.text]);
        let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        let Wording { unreadable, again, .. } = self.judge.prompts.wording;
        request.prompt.push_str(&format!("\n\n{answer}\n{unreadable}{reason}{again}"));
        let again = self.answer(request)?;
        match read(&again.text).and_then(&take) {
            Ok(taken) => Some(taken),
            Err(reason) => {
                self.counts.unreadable += 1;
                self.failed(&format!("{}: {reason}", prompt.name));
                None
            }
        }
    }

    /// The model's answer; waits for it.
    fn answer(&mut self, mut request: GenerateRequest) -> Option<Generated> {
        let asked = loop {
            let (reply, asked) = reply();
            match self.judge.model.ask(request, reply) {
                Ok(()) => break asked,
                Err(Busy { request: back, .. }) => request = back,
            }
            std::thread::sleep(QUEUE_FULL);
        };
        match asked.wait() {
            Ok(generated) => {
                *self.counts.models.entry(generated.model.name.clone()).or_default() += 1;
                Some(generated)
            }
            Err(error) => {
                self.counts.failed += 1;
                self.failed(&error.to_string());
                None
            }
        }
    }

    fn failed(&mut self, reason: &str) {
        tracing::warn!(input = %self.input, "not judged: {reason}");
        self.counts.first_failure.get_or_insert_with(|| reason.to_owned());
    }
}
