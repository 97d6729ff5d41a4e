//! Tests a process that is told to stop while a model is stalled: it ends all the same, and the
//! next one answers what it left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use turnstream_engine::config::Config;
use turnstream_engine::dependencies::Dependencies;
use turnstream_engine::metrics::Metrics;
use turnstream_engine::serve::{Summary, serve};
use turnstream_log::embedded::{EmbeddedConfig, EmbeddedLog, Isolation, Message};
use turnstream_log::{Ends, Topic};
use turnstream_operators::generation::GenerationForm;
use turnstream_ports::model::scripted::{Act, Line, Scripted};
use turnstream_ports::model::{Generate, GenerateRequest, Generated};

/// Turns, each in a conversation of its own.
const TURNS: usize = 2_000;
/// The number of those that the model answers before it stalls.
const ANSWERED: usize = 100;
const PATIENCE: Duration = Duration::from_secs(120);

type Model = Scripted<GenerateRequest, Generated>;

fn responses(log: &EmbeddedLog) -> usize {
    let records = log.read(Topic::Responses, 0, 0, usize::MAX, Isolation::ReadCommitted);
    records.expect("read").len()
}

/// Serves the log while `meanwhile` runs, which sets the flag.
fn served(
    log: &EmbeddedLog,
    model: &Arc<Model>,
    meanwhile: impl FnOnce(&Metrics, &AtomicBool),
) -> Summary {
    let mut config = Config::default();
    config.models.embedder = "none".to_owned().into();
    config.generation.form = GenerationForm::Prompted;
    config.generation.prompted.call.timeout_ms = 3_600_000;
    config.turns.max_in_flight = TURNS;
    config.turns.max_in_flight_per_partition = TURNS;
    config.run.drain_at_most_ms = 50;
    let consumer = log.consumer("test", Topic::Turns).expect("a consumer");
    let producer = log.producer(&consumer, "test").expect("a producer");
    let metrics = Metrics::new(&config.metrics);
    let generate = Arc::clone(model) as Arc<Generate>;
    let language_models = [("default".to_owned(), generate)].into();
    let dependencies = Dependencies::counted(&config, &metrics).expect("a pack");
    let dependencies = Dependencies { language_models, ..dependencies };
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let engine =
            threads.spawn(|| serve(Ends::new(consumer, producer), &dependencies, 2, &stop));
        meanwhile(&metrics, &stop);
        engine.join().expect("it ends").expect("cleanly")
    })
}

fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        // Abort instead of panicking, which would wait for the engine for ever.
        if began.elapsed() > PATIENCE {
            eprintln!("never: {what}");
            std::process::abort();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_process_that_is_told_to_stop_leaves_what_a_stalled_model_holds() {
    let log = EmbeddedConfig { partitions: 1, ..EmbeddedConfig::default() };
    let log = EmbeddedLog::in_memory(&log).expect("a log");
    for at in 0..TURNS {
        let conversation = format!("c{at}");
        let turn = json!({
            "conversation_id": conversation, "speaker": "user", "text": "What is coffee good for?",
        });
        let message = Message { value: Some(turn.to_string().into_bytes()), ..Message::default() };
        log.append_together(Topic::Turns, conversation.as_bytes(), [message]).expect("appended");
    }
    let script = |_: &GenerateRequest, number: u64| {
        let answer = Generated { text: "For waking up.".to_owned(), ..Generated::default() };
        Line {
            after_ms: if number < ANSWERED as u64 { 1 } else { 1_000 },
            act: Act::Answer(answer),
        }
    };
    let model = Arc::new(Scripted::new("scripted", TURNS, script));
    let first = served(&log, &model, |metrics, stop| {
        let in_flight = |number: usize| {
            let line = format!("turnstream_inputs_in_flight {number}");
            metrics.scrape().expect("metrics").lines().any(|found| *found == line)
        };
        wait_until("all are in flight", || in_flight(TURNS) && model.asked() == TURNS as u64);
        model.advance(1);
        wait_until("some are answered", || responses(&log) == ANSWERED);
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(first.left as usize, TURNS - ANSWERED);
    assert_eq!(first.tally.responses as usize, ANSWERED);

    let second = served(&log, &model, |_, stop| {
        let mut now_ms = 1;
        wait_until("all are answered", || {
            now_ms += 1_000;
            model.advance(now_ms);
            responses(&log) == TURNS
        });
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(second.left, 0);
    // The first answers lie below the committed offset, and are not read again.
    assert!(second.skipped as usize <= ANSWERED, "{}", second.skipped);
    assert_eq!(second.tally.responses as usize, TURNS - ANSWERED);
    assert!(second.tally.is_conserved());
}
