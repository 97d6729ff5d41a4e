//! Judges responses with a language model: DCRAG's judged measures (MEEP, informativeness, overall)
//! and the scores of RAGAs (Es et al. 2024: context relevance, faithfulness, answer relevance). The
//! judge receives six questions per response, in our own words, and answers in JSON by a schema. An
//! unreadable answer is asked for once more, and counted if it is still unreadable.
//!
//! A judged figure depends on the judge and the prompt, so both are reported with it, and figures
//! of two judges are not compared.

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
pub use figures::{JudgedMeans, Used};
use prompts::Wording;
pub use prompts::{Prompt, Prompts};
use turnstream_ports::model::encoder::{EncodeError, Encoder};

use super::material::{Answer, Log, Place};

/// The latest turns that the judge sees, including the answered one.
pub const SHOWN_TURNS: usize = 12;
/// The most tokens of an answer.
const MAX_TOKENS: u32 = 400;
/// The pause before asking again if the model's queue is full.
const QUEUE_FULL: Duration = Duration::from_millis(20);

/// The judge.
pub struct Judge<'j> {
    /// The model.
    pub model: &'j Generate,
    /// Embeds texts for answer relevance, which is `None` without an encoder.
    pub encoder: Option<&'j dyn Encoder>,
    /// The judge's questions.
    pub prompts: Prompts,
    /// Responses judged concurrently, at least 1.
    pub at_once: usize,
}

/// Why responses cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    /// The judge answered no question.
    #[error("the judge answered none of {asked} questions; the first failed so: {first}")]
    Silent {
        /// The number of questions.
        asked: u64,
        /// The error of the first question.
        first: String,
    },
    /// The encoder failed.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// The judge's figures for one response. A figure is `None` if the answer was unreadable, or if it
/// is not defined for the response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// Engagement, 0..=100.
    pub meep: Option<f64>,
    /// 1 to 5, scaled to 0..=100.
    pub informativeness: Option<f64>,
    /// 1 to 5, scaled to 0..=100.
    pub overall: Option<f64>,
    /// The share of the selected evidence that helps, 0..=1; only with evidence.
    pub context_relevance: Option<f64>,
    /// The share of the statements that the evidence supports, 0..=1; only with evidence and
    /// statements.
    pub faithfulness: Option<f64>,
    /// The mean cosine of the dialogue and the utterances that the response would answer, −1..=1.
    pub answer_relevance: Option<f64>,
    /// The questions and their outcomes.
    pub counts: JudgementCounts,
}

/// Counts of questions and their outcomes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JudgementCounts {
    /// Questions asked.
    pub asked: u64,
    /// Questions asked again after an unreadable answer.
    pub asked_again: u64,
    /// Questions with an unreadable second answer.
    pub unreadable: u64,
    /// Questions without an answer from the model.
    pub failed: u64,
    /// The reason of the first failure.
    #[serde(skip)]
    pub first_failure: Option<String>,
    /// The answering models, by their own names.
    #[serde(skip)]
    pub models: BTreeMap<String, u64>,
}

impl JudgementCounts {
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

/// Scales 1..5 to 0..100. DCRAG scales the same way: the figures of its tables are only possible if
/// three hundred whole numbers are scaled so.
fn scaled(rating: f64) -> f64 {
    (rating - 1.0) / 4.0 * 100.0
}

impl Judge<'_> {
    /// Judges responses, one judgement each, and counts all questions; calls `done` after each
    /// response.
    ///
    /// # Errors
    /// The judge answered no question, or the encoder failed.
    pub fn judge(
        &self,
        answers: &[(&Answer, Place)],
        log: &Log,
        done: &(dyn Fn() + Sync),
    ) -> Result<(Vec<Judgement>, JudgementCounts), JudgeError> {
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
        let mut counts = JudgementCounts::default();
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
        let mut asking =
            Asking { judge: self, input: &answer.input, counts: JudgementCounts::default() };

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
                let none = || "there are no utterances".to_owned();
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

/// Returns the share of pieces whose numbers, from 1, are listed.
fn share_of(mut numbers: Vec<usize>, pieces: usize) -> Result<f64, String> {
    numbers.sort_unstable();
    numbers.dedup();
    if let Some(wrong) = numbers.iter().find(|number| !(1..=pieces).contains(number)) {
        return Err(format!("there is no piece {wrong}; they are numbered from 1 to {pieces}"));
    }
    Ok(numbers.len() as f64 / pieces as f64)
}

/// Returns the mean cosine of the dialogue and each utterance; `None` if the encoder knows no word
/// of the dialogue.
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
    counts: JudgementCounts,
}

impl Asking<'_> {
    /// Computes RAGAs' faithfulness: the statements of the response, and the share that the
    /// evidence supports.
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

    /// Asks a question about some material, and once more if the answer is unreadable.
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
            // The key of recorded answers: the prompt and its material.
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

    /// Waits for the model's answer.
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
