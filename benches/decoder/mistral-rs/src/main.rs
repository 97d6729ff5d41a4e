//! Measures mistral.rs on the shape of `cargo bench --bench decoder`, in one process: prompts and
//! answers of the same lengths, for 1 and 8 conversations at once, in tokens per second.
//!
//! `python3 benches/decoder/llama_cpp.py --write FOLDER/bench.gguf` writes the file; then, in this
//! folder, `RUSTFLAGS='-C target-cpu=native' cargo run --release -- FOLDER ROUNDS`. Without these
//! flags its candle has no vector instructions.

use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use mistralrs::{
    GgufModelBuilder, Model, NormalRequest, Request, RequestMessage, Response, SamplingParams,
};
use tokio::sync::mpsc::channel;

const PROMPT: usize = 512;
const ANSWER: usize = 64;

/// Returns a prompt that shares its beginning with no other.
fn prompt(seed: usize) -> Vec<u32> {
    let mut state = seed as u64 * 7919 + 13;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        33 + ((state >> 33) % 160) as u32
    };
    (0..PROMPT).map(|_| next()).collect()
}

/// Returns the seconds that `conversations` conversations took at once, each with an answer of
/// `answer` tokens.
async fn all_at_once(
    model: &Model,
    conversations: usize,
    answer: usize,
    turn: usize,
) -> Result<f64> {
    let begun = Instant::now();
    let mut answers = Vec::new();
    for at in 0..conversations {
        let (sender, receiver) = channel(16);
        let sampling = SamplingParams { max_len: Some(answer), ..SamplingParams::deterministic() };
        let message = RequestMessage::CompletionTokens(prompt(turn * 100 + at));
        let id = model.inner().next_request_id();
        let request = NormalRequest::new_simple(message, sampling, sender, id, None, None);
        model.inner().get_sender(None)?.send(Request::Normal(Box::new(request))).await?;
        answers.push(receiver);
    }
    for mut receiver in answers {
        match receiver.recv().await.context("no answer")? {
            Response::CompletionDone(done) if done.usage.completion_tokens == answer => {}
            Response::CompletionDone(done) => {
                bail!("{} tokens of answer, not {answer}", done.usage.completion_tokens)
            }
            Response::CompletionModelError(error, _) => bail!(error),
            Response::InternalError(error) | Response::ValidationError(error) => bail!(error),
            _ => bail!("another kind of answer"),
        }
    }
    Ok(begun.elapsed().as_secs_f64())
}

async fn median(
    model: &Model,
    conversations: usize,
    answer: usize,
    turns: std::ops::Range<usize>,
) -> Result<f64> {
    let mut times = Vec::new();
    for turn in turns {
        times.push(all_at_once(model, conversations, answer, turn).await?);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().context("which folder holds bench.gguf?")?;
    let rounds: usize = arguments.next().map_or(Ok(3), |rounds| rounds.parse())?;
    let model = GgufModelBuilder::new(folder, vec!["bench.gguf"])
        .with_force_cpu()
        .with_max_num_seqs(8)
        .with_prefix_cache_n(None)
        .build()
        .await?;
    all_at_once(&model, 1, 1, 999).await?;
    for conversations in [1, 8] {
        let begin = conversations * 100;
        let first = median(&model, conversations, 1, begin..begin + rounds).await?;
        let begin = begin + 50;
        let whole = median(&model, conversations, 1 + ANSWER, begin..begin + rounds).await?;
        let prefill = (conversations * PROMPT) as f64 / first;
        let decode = (conversations * ANSWER) as f64 / (whole - first);
        println!("{conversations} at once: prefill {prefill:.0}/s, decode {decode:.0}/s");
    }
    Ok(())
}
