//! When the intake polls, and when it waits for room.

use std::cell::Cell;

use turnstream_log::Topic;
use turnstream_log::embedded::{EmbeddedConfig, EmbeddedLog, Message};
use turnstream_ports::cache::MemoryCache;

use super::*;

/// Counts the inputs that are passed on.
struct Counting<'t>(&'t Cell<usize>);

impl Inlets for Counting<'_> {
    fn send(&self, _: i32, inputs: Vec<Input>) -> Result<(), WorkerError> {
        let records = inputs.iter().filter(|input| matches!(input, Input::Record(_)));
        self.0.set(self.0.get() + records.count());
        Ok(())
    }
}

#[test]
fn a_full_process_is_not_polled_and_pauses_only_after_a_time() {
    let log = EmbeddedLog::in_memory(&EmbeddedConfig::default()).unwrap();
    let append = || log.append(Topic::Turns, 0, Message::default()).unwrap();
    for _ in 0..4 {
        append();
    }
    let consumer = Box::new(log.consumer("group", Topic::Turns).unwrap());
    let flow = Arc::new(FlowControl::new(100, 4));
    let (reports, _reported) = crossbeam_channel::unbounded();
    let (passed, cache) = (Cell::new(0), Arc::new(MemoryCache::default()));
    let mut intake = Intake::new(consumer, Counting(&passed), reports, Arc::clone(&flow), cache);
    let wait = Duration::from_millis(1);
    while passed.get() < 4 {
        assert!(intake.poll(0, wait).unwrap());
    }
    append();
    let is_paused = |intake: &Intake<Counting<'_>>| intake.partitions[&0].paused;
    for now_ms in [10, 10 + HOLD_MS - 1] {
        intake.poll(now_ms, wait).unwrap();
        assert_eq!((passed.get(), is_paused(&intake)), (4, false), "at {now_ms}");
    }
    // With room again it reads on at once, where a pause would wait for half of the bound.
    flow.settle(0, 1);
    intake.poll(10 + HOLD_MS - 1, wait).unwrap();
    assert_eq!((passed.get(), is_paused(&intake)), (5, false));
    append();
    intake.poll(1_000, wait).unwrap();
    intake.poll(1_000 + HOLD_MS, wait).unwrap();
    assert_eq!((passed.get(), is_paused(&intake)), (5, true));
    flow.settle(0, 1);
    intake.poll(2_000, wait).unwrap();
    assert_eq!(passed.get(), 5, "it is paused until half of the bound");
    flow.settle(0, 1);
    intake.poll(2_000, wait).unwrap();
    assert_eq!((passed.get(), is_paused(&intake)), (6, false));
}
