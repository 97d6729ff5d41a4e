//! Whole requests: prompts, scheduling, prefix caching and failures.

use std::sync::{Arc, Mutex};

use turnstream_ports::model::{
    Asked, Busy, CallError, GenerateRequest, Generated, Listener, reply,
};
use turnstream_schemas::Stage;

use crate::metrics::DecoderMetrics;
use candle_core::quantized::GgmlDType;
use tempfile::TempDir;

use super::tiny;
use crate::decoder::{Generate, LocalConfig, Surest, start};

pub(super) fn request(prompt: &str) -> GenerateRequest {
    GenerateRequest {
        stage: Stage::Generation,
        system: "Answer briefly.".to_owned(),
        prompt: prompt.to_owned(),
        max_tokens: 24,
        temperature: 0.0,
        schema: None,
        seed: 1,
        listener: None,
        origin: None,
    }
}

pub(super) fn begin(model: &Generate, request: GenerateRequest) -> Asked<Generated> {
    let (reply, asked) = reply();
    assert!(model.ask(request, reply).is_ok(), "the queue has room");
    asked
}

pub(super) fn ask(model: &Generate, request: GenerateRequest) -> Result<Generated, CallError> {
    begin(model, request).wait()
}

/// A model with the temporary folder of its files.
struct Tiny {
    model: Arc<Generate>,
    metrics: DecoderMetrics,
    _folder: TempDir,
}

fn tiny(change: impl FnOnce(&mut LocalConfig)) -> Tiny {
    let (folder, mut config) = tiny::gguf("wide", GgmlDType::Q8_0);
    change(&mut config);
    let metrics = DecoderMetrics::unread();
    let model = start("tiny", &config, metrics.clone()).unwrap();
    Tiny { model, metrics, _folder: folder }
}

#[test]
fn a_request_is_answered_and_read_along() {
    let Tiny { model, metrics, .. } = &tiny(|_| ());
    let told = Arc::new(Mutex::new(String::new()));
    let listening = Arc::clone(&told);
    let listener =
        Listener(Arc::new(move |so_far: &str| *listening.lock().unwrap() = so_far.to_owned()));
    let asked = GenerateRequest { listener: Some(listener), ..request("Hello") };
    let answer = ask(&**model, asked).unwrap();
    assert_eq!(*told.lock().unwrap(), answer.text);
    assert!(!answer.text.is_empty());
    assert_eq!((answer.model.name.as_str(), model.name()), ("tiny", "tiny"));
    assert!(answer.confidence.is_some());
    assert_eq!(ask(&**model, request("Hello")).unwrap(), answer);
    assert!(metrics.answer_tokens.get() > 2);
    assert!(metrics.prompt_tokens.get() > metrics.kept_tokens.get());
    assert_eq!((metrics.queued.get(), metrics.errors.get()), (0, 0));
}

#[test]
fn a_seed_says_what_is_drawn() {
    let Tiny { model, .. } = &tiny(|_| ());
    let drawn = |seed| {
        let warm = GenerateRequest { temperature: 1.0, seed, ..request("Hello") };
        ask(&**model, warm).unwrap().text
    };
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
}

#[test]
fn an_answer_depends_neither_on_its_neighbours_nor_on_what_was_kept() {
    let prompts: Vec<String> =
        (0..12).map(|at| "What about the cat? ".repeat(1 + at % 5) + &at.to_string()).collect();
    let asked = |prompt: &String| GenerateRequest { temperature: 0.8, ..request(prompt) };
    let alone = tiny(|config| config.cache_bytes = 0);
    let alone: Vec<Generated> =
        prompts.iter().map(|prompt| ask(&*alone.model, asked(prompt)).unwrap()).collect();
    // Concurrent requests, with steps so short that a prompt takes several; run twice.
    let together = tiny(|config| {
        config.max_sequences = 5;
        config.step_tokens = 16;
    });
    for _ in 0..2 {
        let begun: Vec<Asked<Generated>> =
            prompts.iter().map(|prompt| begin(&*together.model, asked(prompt))).collect();
        let answers: Vec<Generated> =
            begun.into_iter().map(|asked| asked.wait().unwrap()).collect();
        assert_eq!(answers, alone);
    }
    assert!(together.metrics.kept_tokens.get() > together.metrics.prompt_tokens.get() / 3);
}

#[test]
fn a_conversation_that_grows_pays_for_what_is_new() {
    let Tiny { model, metrics, .. } = &tiny(|_| ());
    let mut history = String::new();
    let mut new = Vec::new();
    for turn in 0..6 {
        history.push_str(&format!("Turn {turn}: and then something else was said.\n"));
        let before = metrics.prompt_tokens.get() - metrics.kept_tokens.get();
        ask(&**model, request(&history)).unwrap();
        new.push(metrics.prompt_tokens.get() - metrics.kept_tokens.get() - before);
    }
    // Each turn computes its own tokens and the template's end, and no more as the history grows.
    assert!(new[1..].iter().all(|new| *new < 80) && new[0] > 60, "{new:?}");
    assert!(metrics.kept.get() > 0);
}

#[test]
fn a_prompt_that_is_too_long_is_refused_with_the_numbers() {
    let Tiny { model, metrics, .. } = &tiny(|config| config.context_tokens = 80);
    for long in ["word ".repeat(50), "word ".repeat(5_000)] {
        let error = ask(&**model, request(&long)).unwrap_err().to_string();
        assert!(error.contains("24") && error.contains("80") && error.contains("context_tokens"));
    }
    assert_eq!(metrics.errors.get(), 2);
    ask(&**model, request("short")).unwrap();
}

#[test]
fn an_answer_ends_at_a_stop_string_and_says_how_sure_it_was() {
    let usual = ask(&*tiny(|_| ()).model, request("Hello")).unwrap();
    let letters: Vec<char> = usual.text.chars().skip(1).collect();
    let stop = letters.windows(2).find(|pair| !pair.contains(&char::REPLACEMENT_CHARACTER));
    let stop = String::from_iter(stop.expect("two letters"));
    let before = usual.text.split(&stop).next().unwrap().to_owned();
    let stopping = tiny(|config| {
        config.stop = vec![stop];
        config.confidence = Surest::LowestLogProbability;
    });
    let stopped = ask(&*stopping.model, request("Hello")).unwrap();
    assert_eq!(stopped.text, before);
    assert!(stopped.confidence.unwrap().value < 0.0);
    assert_ne!(stopped.confidence.unwrap().kind, usual.confidence.unwrap().kind);
}

/// A request whose listener calls `on_piece` whenever more of the answer is written.
fn listening(on_piece: impl Fn() + Send + Sync + 'static) -> GenerateRequest {
    let listener = Listener(Arc::new(move |_: &str| on_piece()));
    GenerateRequest { listener: Some(listener), max_tokens: 1_000, ..request("Hello") }
}

#[test]
fn a_full_queue_hands_the_request_back_and_abandoned_requests_are_dropped() {
    let Tiny { model, metrics, .. } = &tiny(|config| {
        config.max_sequences = 1;
        config.queue_requests = 1;
    });
    let (working, works) = crossbeam_channel::bounded(1);
    let (go, goes) = crossbeam_channel::bounded::<()>(0);
    let first = begin(
        &**model,
        listening(move || {
            let _ = working.try_send(());
            let _ = goes.recv();
        }),
    );
    works.recv().unwrap();
    let second = begin(&**model, request("second"));
    let (reply, _asked) = reply();
    let Err(Busy { request: back, reply }) = model.ask(request("third"), reply) else {
        panic!("the queue is full");
    };
    assert_eq!(back, request("third"));
    assert_eq!((metrics.refused.get(), metrics.queued.get()), (1, 1));
    // The first request is abandoned while active; the second is served.
    drop(first);
    drop(go);
    assert!(second.wait().is_ok());
    assert_eq!(metrics.skipped.get(), 1);
    assert!(metrics.answer_tokens.get() < 900);
    assert!(model.ask(request("third"), reply).is_ok());
}

#[test]
fn a_panic_costs_the_requests_that_were_worked_on_and_no_more() {
    let Tiny { model, metrics, .. } = &tiny(|_| ());
    let answer = ask(&**model, listening(|| panic!("a listener's fault")));
    assert_eq!(answer, Err(CallError::Panic));
    assert!(ask(&**model, request("Hello")).is_ok());
    assert_eq!(metrics.panics.get(), 1);
}
