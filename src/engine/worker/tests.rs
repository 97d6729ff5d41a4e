use turnstream_knowledge::{Graph, ImportedFact};
use turnstream_operators::flow::Original;
use turnstream_operators::ingest::InputRecord;
use turnstream_ports::cache::{MemoryCache, ScopeCache};

use super::*;
use crate::config::Config;

fn dependencies() -> Dependencies {
    let graph = Graph::from_facts([ImportedFact::new("a", "IsA", "b", 1.0)]);
    Dependencies { timings: false, ..Dependencies::with_graph(Config::default(), Arc::new(graph)) }
}

fn turn(offset: i64) -> Input {
    let value = format!(r#"{{"conversation_id":"{}","speaker":"user","text":"x"}}"#, offset % 7);
    let original = Original { value: Some(value.into_bytes()), ..Original::default() };
    let record = InputRecord { generation: 1, offset, original, ..InputRecord::default() };
    Input::Record(record)
}

/// The log gives offsets in order. A worker that sees an older offset stops the process and does
/// not apply it. The other worker waits for the stopped one, and the engine does not wait for
/// either.
#[test]
fn a_panic_of_a_worker_is_noticed_and_stops_the_engine() {
    let (outlet, _outcomes) = crossbeam_channel::unbounded();
    let workers = Workers::start(2, &dependencies(), &outlet).unwrap();
    workers.send(0, vec![turn(14), turn(7)]).unwrap();
    while workers.check().is_ok() {
        std::thread::yield_now();
    }
    assert!(matches!(workers.send(0, vec![turn(21)]), Err(WorkerError::Panicked(_))));
    assert!(matches!(workers.drain(None), Err(WorkerError::Panicked(_))));
}

/// A deadline wakes the core when a scope has been idle for long enough, and not before.
#[test]
fn idle_scopes_leave_memory_when_their_time_has_come() {
    timely::execute_directly(|worker| {
        let (inlet, inputs) = crossbeam_channel::unbounded();
        let (outlet, _outcomes) = crossbeam_channel::unbounded();
        let cache = Arc::new(MemoryCache::default());
        let dependencies = Dependencies { cache: cache.clone(), ..dependencies() };
        // An open channel without changes would keep the dataflow of the graph running.
        let (_, changes) = crossbeam_channel::unbounded();
        let inlet_of_core = Inlet { inputs, changes };
        let core = Core::install(worker, &dependencies, inlet_of_core, outlet, Clock::none());
        cache.begin(0, 1).unwrap();
        inlet.send(Input::Assigned { partition: 0, generation: 1 }).unwrap();
        inlet.send(turn(0)).unwrap();
        core.waker().activate().unwrap();
        let mut step = |now_ms| (0..20).for_each(|_| core.step(worker, now_ms));
        step(1);
        let due_ms = core.next_deadline_ms().unwrap();
        assert_eq!(due_ms, 901_000, "the next whole second");
        step(due_ms - 1);
        assert_eq!(cache.len(0), 0);
        step(due_ms);
        assert_eq!(cache.len(0), 2, "the entry and the scope's own record");
        assert_eq!(core.next_deadline_ms(), None, "nobody else is idle");
        drop(inlet);
        core.waker().activate().unwrap();
    });
}

/// A worker whose last turn ends during a step does not park forever.
#[test]
fn workers_end_with_their_last_turn() {
    let (ended, end) = crossbeam_channel::bounded(1);
    // The thread is not joined: if a worker never ends, joining would never return.
    std::thread::spawn(move || {
        for round in 0..200 {
            let (outlet, outcomes) = crossbeam_channel::unbounded();
            let workers = Workers::start(1 + round % 2, &dependencies(), &outlet).unwrap();
            drop(outlet);
            workers.send(0, (0..20).map(turn).collect()).unwrap();
            workers.drain(None).unwrap();
            assert_eq!(outcomes.into_iter().count(), 20);
        }
        ended.send(()).unwrap();
    });
    let waited = end.recv_timeout(Duration::from_secs(120));
    assert!(waited.is_ok(), "a worker parked with nothing left to wake it, or panicked");
}
