//! Measures the learned gate: turns per second at 64, 128 and 256 words of context, on one thread
//! and on two, alone and in batches, beside the rate that the machine's matrix products allow for
//! the same arithmetic.
//!
//! ```text
//! cargo bench --bench gate
//! ```
//!
//! Criterion does not measure the rates, since threads are measured side by side.

#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use gemm::Parallelism;
use turnstream_formats::Need;
use turnstream_lab::gate_reading::tokens_of;
use turnstream_lab::labelled::{LabelledTurn, Said};
use turnstream_models::gate::Gate;
use turnstream_models::gate::network::NetworkShape;
use turnstream_models::gate::reading::TurnTokens;
use turnstream_ports::model::gate::{GateReading, LearnedGate};
use turnstream_schemas::Speaker;

/// How long each figure is measured.
const SPAN: Duration = Duration::from_secs(3);

fn main() {
    let gate = Gate::shipped().expect("the shipped gate");
    let shape = gate.card().shape.clone();
    println!("{shape:?}");
    let peak = matrix_rate(&shape);
    println!("matrix products of the encoder's widths: {:.1} GFLOP/s on one thread", peak / 1e9);
    for words in [64, 128, 256] {
        let turns: Vec<LabelledTurn> = (0..64).map(|seed| turn(words, seed)).collect();
        let tokens: Vec<TurnTokens> =
            turns.iter().map(|turn| tokens_of(&gate, turn).expect("tokens")).collect();
        let length = tokens.iter().map(TurnTokens::len).sum::<usize>() as f64 / 64.0;
        let limit = peak / operations(&shape, length);
        println!("{words} words, {length:.0} tokens read; the products alone: {limit:.0} turns/s");
        for threads in [1, 2] {
            let stream = rate(threads, |at| {
                let turn = &turns[at % turns.len()];
                let utterances = turn.utterances.iter();
                let utterances = utterances.map(|said| (said.speaker, &*said.text)).collect();
                let reading = GateReading { utterances, knowledge: Vec::new(), response: None };
                drop(gate.score(&reading).expect("a score"));
                1
            });
            let share = 100.0 * stream / (limit * threads as f64);
            println!("  {threads} threads, as in the stream: {stream:.0} turns/s ({share:.0} %)");
            for batch in [1, 16] {
                let rate = rate(threads, |at| {
                    let from = at * batch % tokens.len();
                    let some = tokens.iter().zip(turns.iter().map(LabelledTurn::last));
                    let some: Vec<_> = some.skip(from).take(batch).collect();
                    gate.needs(&some).expect("scores").len()
                });
                let share = 100.0 * rate / (limit * threads as f64);
                println!(
                    "  {threads} threads, cut before, {batch} at once: {rate:.0} turns/s ({share:.0} %)"
                );
            }
        }
    }
}

/// Returns turns per second of a function that returns how many turns it processed.
fn rate(threads: usize, each: impl Fn(usize) -> usize + Sync) -> f64 {
    let run = || {
        let (begun, mut done, mut at) = (Instant::now(), 0, 0);
        while begun.elapsed() < SPAN {
            done += each(at);
            at += 1;
        }
        done as f64 / begun.elapsed().as_secs_f64()
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let own = run();
        own + others.into_iter().map(|other| other.join().expect("a thread")).sum::<f64>()
    })
}

/// Returns the operations of the products and of attention in one turn of `tokens` tokens.
fn operations(shape: &NetworkShape, tokens: f64) -> f64 {
    let (width, wide) = (shape.width as f64, shape.feed_forward as f64);
    let layer = tokens * width * (4.0 * width + 2.0 * wide) + 2.0 * tokens * tokens * width;
    // The table's vectors are 256 wide.
    2.0 * (shape.layers as f64 * layer + tokens * 256.0 * width)
}

/// Returns operations per second of products of 128 rows, as wide as the encoder, on one thread.
fn matrix_rate(shape: &NetworkShape) -> f64 {
    let (rows, inputs, outputs) = (128, shape.width, shape.feed_forward);
    let (a, b) = (vec![0.5_f32; rows * inputs], vec![0.25_f32; inputs * outputs]);
    let mut c = vec![0.0_f32; rows * outputs];
    let (begun, mut times) = (Instant::now(), 0_u64);
    while begun.elapsed() < SPAN {
        for _ in 0..100 {
            // SAFETY: the slices have rows × inputs, inputs × outputs and rows × outputs numbers.
            #[allow(unsafe_code)]
            unsafe {
                gemm::gemm(
                    rows,
                    outputs,
                    inputs,
                    c.as_mut_ptr(),
                    1,
                    outputs as isize,
                    false,
                    a.as_ptr(),
                    1,
                    inputs as isize,
                    b.as_ptr(),
                    1,
                    outputs as isize,
                    0.0_f32,
                    1.0_f32,
                    false,
                    false,
                    false,
                    Parallelism::None,
                );
            }
            times += 1;
        }
        std::hint::black_box(&c);
    }
    (2 * rows * inputs * outputs) as f64 * times as f64 / begun.elapsed().as_secs_f64()
}

/// Returns a dialogue of about `words` words, in our own words.
fn turn(words: usize, seed: u64) -> LabelledTurn {
    const SAID: [&str; 6] = [
        "I am looking for a quiet room near the river with breakfast included.",
        "There are three houses near the river, which day would you like to arrive?",
        "On Friday, please, and tell me whether the garden is open in the evening.",
        "The garden is open until ten, and guests may use the terrace as well.",
        "Do people say that the street is noisy at night?",
        "Some of them do, although most slept well with the windows closed.",
    ];
    let mut random = fastrand::Rng::with_seed(seed);
    let mut utterances = Vec::new();
    let mut count = 0;
    while count < words {
        let text = SAID[random.usize(..SAID.len())];
        count += text.split_whitespace().count();
        let speaker = if utterances.len() % 2 == 0 { Speaker::User } else { Speaker::System };
        utterances.push(Said { speaker, text: text.to_owned() });
    }
    LabelledTurn {
        conversation: seed.to_string(),
        position: utterances.len() as u32,
        domain: None,
        utterances,
        knowledge: Vec::new(),
        reply: None,
        need: Need::None,
    }
}
