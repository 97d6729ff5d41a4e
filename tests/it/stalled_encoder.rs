//! Tests a stalled encoder, behind the runtime that `turnstream run` puts it behind, under an
//! engine that serves: every turn is answered without its vector, and the waiting requests stay
//! within their bounds. Then the encoder goes on, and turns have vectors again.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use turnstream_engine::config::Config;
use turnstream_engine::dependencies::Dependencies;
use turnstream_engine::metrics::Metrics;
use turnstream_engine::serve::serve;
use turnstream_log::embedded::{EmbeddedConfig, EmbeddedLog, Isolation, Message};
use turnstream_log::{Ends, Topic};
use turnstream_models::batch::backends::Embeds;
use turnstream_models::batch::{Batched, Threads};
use turnstream_models::metrics::Task;
use turnstream_operators::stage::OnFailure;
use turnstream_ports::model::encoder::{EncodeError, Encoded, Encoder};
use turnstream_schemas::{Response, Stage};

/// Encodes nothing while the lock is held.
#[derive(Clone, Default)]
struct Stalling(Arc<Mutex<()>>);

impl Encoder for Stalling {
    fn name(&self) -> &str {
        "stalling"
    }

    fn fingerprint(&self) -> u64 {
        3
    }

    fn dimensions(&self) -> usize {
        2
    }

    fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
        drop(self.0.lock().expect("not poisoned"));
        texts.iter().for_each(|_| vectors.extend([0.6, 0.8]));
        Ok(Encoded::default())
    }
}

/// Turns while the encoder is stalled, and after.
const STALLED: usize = 2_000;
const AFTER: usize = 100;
const QUEUE: usize = 16;

fn append(log: &EmbeddedLog, from: usize, turns: usize) {
    for at in from..from + turns {
        let conversation = format!("c{at}");
        let turn = json!({
            "conversation_id": conversation,
            "speaker": "user",
            "text": format!("What is coffee number {at} good for?"),
        });
        let message = Message { value: Some(turn.to_string().into_bytes()), ..Message::default() };
        log.append_together(Topic::Turns, conversation.as_bytes(), [message]).expect("appended");
    }
}

fn answers(log: &EmbeddedLog) -> Vec<Vec<u8>> {
    let records = log.read(Topic::Responses, 0, 0, usize::MAX, Isolation::ReadCommitted);
    records.expect("read").into_iter().filter_map(|record| record.value).collect()
}

fn responses(log: &EmbeddedLog) -> Vec<Response> {
    let parse = |value: &Vec<u8>| serde_json::from_slice(value).expect("a response");
    answers(log).iter().map(parse).collect()
}

#[test]
fn a_stalled_encoder_degrades_every_turn_and_holds_no_more_than_its_bounds() {
    let mut config = Config::default();
    // Only vectors of this encoder.
    config.models.embedder = "none".to_owned().into();
    config.models.queue_requests = QUEUE;
    config.gate.threshold = 0.0;
    config.embedding.on_failure = OnFailure::Degrade;
    // Long enough for an encoder that answers on a busy machine.
    config.embedding.call.timeout_ms = 100;
    config.embedding.call.attempts = 1;
    config.turns.max_in_flight = 128;
    config.commit.interval_ms = 0;
    // The source pauses at the bound, after the records of one poll.
    let in_flight_bound = (config.turns.max_in_flight + STALLED / 2) as f64;

    let log = EmbeddedConfig { partitions: 1, ..EmbeddedConfig::default() };
    let log = EmbeddedLog::in_memory(&log).expect("a log");
    let consumer = log.consumer("test", Topic::Turns).expect("a consumer");
    let producer = log.producer(&consumer, "test").expect("a producer");
    let metrics = Metrics::new(&config.metrics);
    let encoder = Stalling::default();
    let held = encoder.0.lock().expect("not poisoned");
    let counted = metrics.models().model(Task::Embed).clone();
    let embeds = Embeds(Arc::new(encoder.clone()));
    let batched = Batched::start(embeds, config.models.limits(), &Threads::new(2), counted.clone());
    let embed = Some(Arc::new(batched.expect("threads")) as _);
    let dependencies = Dependencies::counted(&config, &metrics).expect("a pack");
    let dependencies = Dependencies { embed, ..dependencies };

    append(&log, 0, STALLED);
    let stop = AtomicBool::new(false);
    // Asserted after the scope: a panic in it would wait for the engine for ever.
    let (mut most_queued, mut most_in_flight) = (0, 0.0_f64);
    std::thread::scope(|threads| {
        let engine = threads.spawn(|| {
            let ends = Ends::new(consumer, producer);
            serve(ends, &dependencies, 2, &stop).expect("the log ends")
        });
        while answers(&log).len() < STALLED && !engine.is_finished() {
            most_queued = most_queued.max(counted.queued.get());
            let text = metrics.scrape().expect("metrics");
            let in_flight = text
                .lines()
                .filter(|line| line.starts_with("turnstream_partition_in_flight{"))
                .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            most_in_flight = most_in_flight.max(in_flight.sum());
            std::thread::sleep(Duration::from_millis(5));
        }
        // Read after the loop too: requests stay queued while the encoder is stalled, and on a
        // loaded machine the loop may have seen nothing between the first turn and the last.
        most_queued = most_queued.max(counted.queued.get());
        drop(held);
        // The queue empties: the requests in it are abandoned.
        while counted.queued.get() > 0 && !engine.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        append(&log, STALLED, AFTER);
        log.seal(Topic::Turns);
        let summary = engine.join().expect("it ends");
        assert!(summary.tally.is_conserved());
        assert_eq!(summary.tally.responses as usize, STALLED + AFTER);
    });
    // A request also counts while it is being refused: one for each of the two workers.
    assert!((1..=QUEUE as i64 + 2).contains(&most_queued), "{most_queued} requests waited");
    assert!(most_in_flight < in_flight_bound, "{most_in_flight} turns");
    assert!(counted.refused.get() > 0, "the queue was full, and said so");

    let answered = responses(&log);
    let (stalled, after) = answered.split_at(STALLED);
    for response in stalled {
        assert!(response.is_without(Stage::Embedding), "{}", response.turn_id);
        assert_eq!(response.degraded.len(), 1, "{:?}", response.degraded);
        assert!(!response.text.is_empty());
    }
    let whole = after.iter().filter(|response| response.degraded.is_empty()).count();
    assert!(whole > 0, "vectors come again");
    assert!(counted.skipped.get() > 0, "nobody waited for those any more");
}
