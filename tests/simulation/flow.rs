//! Tests that load that cannot be served takes no memory and does not delay other partitions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;
use turnstream_engine::config::Config;
use turnstream_log::embedded::{EmbeddedConfig, EmbeddedLog};
use turnstream_operators::generation::GenerationForm;

use crate::instance::{GROUP, Instance, Moved, NEVER};
use crate::oracle::Oracle;
use crate::workload::Workload;
use crate::world::dependencies;

/// Turns of the one long conversation.
const TURNS: usize = 5_000;

/// Turns of other conversations.
const OTHERS: usize = 300;

/// The most inputs in flight per partition, and the most inputs of one poll.
const BOUND: usize = 40;
const POLL: usize = 25;

/// Milliseconds until a request times out.
const PATIENCE_MS: u64 = 60_000;

/// A conversation of thousands of turns, whose first the model never answers, fills its partition.
/// A second partition is served all the same. Once the model works, the long conversation is served
/// as well, in order.
#[test]
fn an_endless_conversation_pauses_its_own_partition_only() {
    let config = config();
    let log = EmbeddedLog::in_memory(&EmbeddedConfig {
        partitions: 2,
        poll_records: POLL,
        ..EmbeddedConfig::default()
    });
    let log = log.expect("a log in memory");
    let mut workload = Workload::new(&mut Rng::with_seed(1), 2, false);
    for at in 0..TURNS {
        let text = if at == 0 { NEVER } else { "and then" };
        workload.send_of(&log, (0, "endless"), text, at as u64);
    }
    for at in 0..OTHERS {
        workload.send_of(&log, (1, &format!("other-{}", at % 30)), "hello", at as u64);
    }

    let stalled: Arc<AtomicBool> = Arc::default();
    let mut instance =
        Instance::start(&log, "process", &dependencies(config.clone()), |_| (9, 0), &stalled);
    let mut oracle = Oracle::default();
    let mut now_ms = 0;
    let mut round = |now_ms: u64, oracle: &mut Oracle| {
        instance.poll(now_ms);
        instance.work(now_ms);
        assert_eq!(instance.take_reports(usize::MAX, now_ms), Moved::On);
        oracle.observe(&log, &workload);
        assert!(instance.in_flight() <= 2 * BOUND + POLL, "{} in flight", instance.in_flight());
    };
    for _ in 0..4 * OTHERS {
        now_ms += 5;
        round(now_ms, &mut oracle);
    }
    assert_eq!(oracle.ended(), OTHERS, "all of the others, and nothing of the endless one");
    assert!(oracle.outcome((0, 0)).is_none(), "the first turn is still with the model");

    stalled.store(true, Ordering::Relaxed);
    now_ms += PATIENCE_MS;
    for _ in 0..8 * TURNS {
        now_ms += 20;
        round(now_ms, &mut oracle);
        if oracle.ended() == TURNS + OTHERS {
            break;
        }
    }
    oracle.check(&log, &workload, &config);
}

/// While a model is stalled, an instance that repeatedly loses its partitions holds only the turns
/// of its last assignment. All of them are served once the model works.
#[test]
fn turns_of_older_assignments_do_not_pile_up_at_a_stalled_model() {
    const LOSSES: u64 = 10;
    let config = config();
    let dependencies = dependencies(config.clone());
    let log =
        EmbeddedLog::in_memory(&EmbeddedConfig { partitions: 1, ..EmbeddedConfig::default() });
    let log = log.expect("a log in memory");
    let mut workload = Workload::new(&mut Rng::with_seed(1), 1, false);
    for at in 0..BOUND as u64 {
        workload.send_of(&log, (0, &format!("stalled-{at}")), NEVER, at);
    }
    let calm: Arc<AtomicBool> = Arc::default();
    let mut instance = Instance::start(&log, "process", &dependencies, |_| (9, 0), &calm);
    let mut oracle = Oracle::default();
    let mut rounds = |count: u64, now_ms: u64| {
        for round in 0..count {
            instance.poll(now_ms + round);
            instance.work(now_ms + round);
            assert_eq!(instance.take_reports(usize::MAX, now_ms + round), Moved::On);
        }
        instance.member
    };
    for loss in 0..LOSSES {
        let member = rounds(20, loss * 20);
        log.expel(GROUP, member);
    }
    rounds(20, LOSSES * 20);
    let given_up = dependencies.late_answers.load(Ordering::Relaxed);
    assert_eq!(given_up, LOSSES * BOUND as u64, "of each loss all, and no answer came");
    calm.store(true, Ordering::Relaxed);
    rounds(1, PATIENCE_MS * 2);
    rounds(200, PATIENCE_MS * 2 + 1_000);
    oracle.observe(&log, &workload);
    oracle.check(&log, &workload, &config);
}

fn config() -> Config {
    let mut config = Config::default();
    config.turns.max_in_flight_per_partition = BOUND;
    config.history.max_entries = 4;
    config.history.alpha = 0.0;
    config.history.importance_share = 0.0;
    config.commit.interval_ms = 5;
    config.generation.form = GenerationForm::Prompted;
    config.generation.prompted.call.timeout_ms = PATIENCE_MS;
    config
}
