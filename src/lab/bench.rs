//! Measures the speed of an encoder on fixed texts of our own: facts of about 8 tokens and
//! utterances of about 20, like those that the flow embeds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use turnstream_ports::model::encoder::{EncodeError, Encoded, Encoder};

/// Worded facts, one a line.
pub const FACTS: &str = include_str!("bench/facts.txt");
/// Utterances, one a line.
pub const UTTERANCES: &str = include_str!("bench/utterances.txt");

/// The load on the encoder.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Threads that call the encoder in parallel, from 1.
    pub threads: usize,
    /// Texts per call, from 1.
    pub batch: usize,
    /// The duration of the measurement.
    pub duration: Duration,
}

/// The result. The names are those that `turnstream models bench --json` prints.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// Embedded texts per second, over all threads.
    pub sentences_per_second: f64,
    /// Mean tokens per text.
    pub tokens_per_sentence: f64,
    /// Embedded texts.
    pub sentences: u64,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Embeds the texts repeatedly for a while, including tokenising. Each thread embeds at least one
/// batch, and finishes its last one.
///
/// # Errors
/// The encoder's first error.
pub fn measure(encoder: &dyn Encoder, texts: &[&str], load: Load) -> Result<Speed, EncodeError> {
    let started = Instant::now();
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut done, mut vectors) = (Encoded::default(), Vec::new());
        let mut sentences = 0;
        loop {
            let start = next.fetch_add(load.batch, Ordering::Relaxed);
            let batch: Vec<&str> =
                texts.iter().cycle().skip(start % texts.len()).take(load.batch).copied().collect();
            vectors.clear();
            done.tokens += encoder.encode(&batch, &mut vectors)?.tokens;
            sentences += batch.len() as u64;
            if started.elapsed() >= load.duration {
                return Ok((sentences, done.tokens));
            }
        }
    };
    let totals: Vec<Result<(u64, u64), EncodeError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..load.threads.max(1)).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let seconds = started.elapsed().as_secs_f64();
    let (mut sentences, mut tokens) = (0, 0);
    for total in totals {
        let (more, of_them) = total?;
        sentences += more;
        tokens += of_them;
    }
    Ok(Speed {
        sentences_per_second: sentences as f64 / seconds,
        tokens_per_sentence: tokens as f64 / sentences.max(1) as f64,
        sentences,
        seconds,
    })
}
