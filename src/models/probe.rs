//! Probes language models with one short question each, through the port that stages use. `run`,
//! `chat` and `replay` probe them before the first turn, and `models check` and `validate` on
//! demand.
//!
//! A failed probe does not stop the caller: a server may come up later.

use std::time::{Duration, Instant};

use serde::Serialize;
use turnstream_ports::model::{CallError, GenerateRequest, LanguageModels, reply};
use turnstream_schemas::Stage;
use turnstream_schemas::text::bounded_line;

use super::language::AnswerFiles;

/// How long a check on demand waits: longer than a server's own time-outs, so that the server's
/// error message is shown.
pub const OF_A_CHECK: Duration = Duration::from_secs(120);
/// How long a start waits for all models together.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most characters of a reason.
const REASON_CHARACTERS: usize = 1_000;

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Probed {
    /// The name in the configuration.
    pub model: String,
    /// Whether the model answers.
    pub answers: bool,
    /// The time until the answer, or the time waited.
    pub seconds: f64,
    /// Why the model does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Probes all models at once, and waits at most `patience`.
pub fn probe(models: &LanguageModels, patience: Duration) -> Vec<Probed> {
    let began = Instant::now();
    let asked: Vec<_> = models
        .iter()
        .map(|(name, model)| {
            let (reply, asked) = reply();
            // A full queue hands the request back; dropping it sends a fault.
            let _ = model.ask(question(), reply);
            (name, asked)
        })
        .collect();
    asked
        .into_iter()
        .map(|(name, asked)| {
            let answer = asked.wait_for(patience.saturating_sub(began.elapsed()));
            let reason = match answer {
                // An empty answer counts: a model that thinks first may spend all tokens on
                // thoughts.
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

/// Probes the models at a start and logs which of them answer. Does nothing if answers are replayed
/// from a file.
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
