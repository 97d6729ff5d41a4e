//! Whether language models answer: one short question to each, through the port that stages ask.
//! Asked before the first turn, and by `turnstream models check`.
//!
//! Whoever asks waits, and goes on whatever comes of it: a server may come later.

use std::time::{Duration, Instant};

use serde::Serialize;
use turnstream_ports::model::{CallError, GenerateRequest, LanguageModels, reply};
use turnstream_schemas::Stage;
use turnstream_schemas::text::bounded_line;

use super::language::AnswerFiles;

/// How long somebody who asks for nothing else waits. Longer than a server's own time-outs, so that
/// the message is theirs.
pub const OF_A_CHECK: Duration = Duration::from_secs(120);
/// How long a start waits for all models together.
const PATIENCE: Duration = Duration::from_secs(10);
/// Characters of a reason at most.
const REASON_CHARACTERS: usize = 1_000;

/// What came of asking a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Probed {
    /// Its name in the configuration.
    pub model: String,
    /// Whether it answers.
    pub answers: bool,
    /// How long the answer took, or how long it was waited for.
    pub seconds: f64,
    /// Why it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Asks all of them at once, and waits so long at most.
pub fn probe(models: &LanguageModels, patience: Duration) -> Vec<Probed> {
    let began = Instant::now();
    let asked: Vec<_> = models
        .iter()
        .map(|(name, model)| {
            let (reply, asked) = reply();
            // One that is handed back is dropped, which answers it.
            let _ = model.ask(question(), reply);
            (name, asked)
        })
        .collect();
    asked
        .into_iter()
        .map(|(name, asked)| {
            let answer = asked.wait_for(patience.saturating_sub(began.elapsed()));
            let reason = match answer {
                // It need not say anything: a model that thinks first may not have come so far.
                Ok(_) | Err(CallError::Empty(_)) => None,
                Err(CallError::Timeout { .. }) => {
                    Some(format!("no answer within {} s", patience.as_secs()))
                }
                Err(error) => Some(bounded_line(&error.to_string(), REASON_CHARACTERS)),
            };
            let (answers, seconds) = (reason.is_none(), began.elapsed().as_secs_f64());
            Probed { model: name.clone(), answers, seconds, reason }
        })
        .collect()
}

/// Asks the models of a start, and says in the log which of them answer. Nobody is asked where
/// their answers are read from a file.
pub fn tell(models: &LanguageModels, files: &AnswerFiles) {
    if files.answers.is_some() {
        return;
    }
    for Probed { model, seconds, reason, .. } in probe(models, PATIENCE) {
        match reason {
            None => tracing::info!(model, seconds, "the language model answers"),
            Some(reason) => tracing::warn!(
                model,
                %reason,
                "the language model does not answer; turns go on without it, as on_failure of each \
                 stage says"
            ),
        }
    }
}

fn question() -> GenerateRequest {
    GenerateRequest {
        stage: Stage::Generation,
        system: String::new(),
        prompt: "Say yes.".to_owned(),
        max_tokens: 4,
        temperature: 0.0,
        schema: None,
        seed: 0,
        listener: None,
        origin: None,
    }
}
