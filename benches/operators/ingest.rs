//! Measures ingest: bytes to turns, and to dead letters, through the operator on one worker.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use timely::WorkerConfig;
use timely::communication::Allocator;
use timely::communication::allocator::thread::Thread;
use timely::dataflow::operators::vec::Map;
use timely::dataflow::operators::{Concat, Input as _, Probe};
use timely::dataflow::{InputHandleVec, ProbeHandle};
use timely::worker::Worker;
use turnstream_operators::flow::Original;
use turnstream_operators::ingest::{Input, InputRecord, TurnsConfig, ingest};

use crate::scenes;

/// Ingests every record of the dialogues in one iteration, or every record cut short.
pub(crate) fn bench(criterion: &mut Criterion) {
    let whole: Vec<Vec<u8>> =
        scenes::DIALOGUES.lines().map(|line| line.as_bytes().to_vec()).collect();
    let spoilt: Vec<Vec<u8>> = whole.iter().map(|line| line[..line.len() - 2].to_vec()).collect();
    let mut group = criterion.benchmark_group("operators/ingest");
    for (slug, records) in [("turns", whole), ("spoilt", spoilt)] {
        let inputs: Vec<_> = (0..).zip(records).map(|(at, record)| input(at, record)).collect();
        group.throughput(Throughput::Elements(inputs.len() as u64));
        let mut flow = Flow::new();
        group.bench_with_input(BenchmarkId::from_parameter(slug), &inputs, |bench, inputs| {
            bench.iter_batched(
                || inputs.clone(),
                |inputs| flow.serve(inputs),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn input(offset: i64, value: Vec<u8>) -> Input {
    let original = Original {
        key: Some(b"key".to_vec()),
        value: Some(value),
        headers: Vec::new(),
        time_ms: Some(1_700_000_000_000),
    };
    let (partition, generation, last_of_scope) = (0, 1, false);
    Input::Record(InputRecord {
        partition,
        generation,
        offset,
        original,
        last_of_scope,
        followed: false,
        answered: None,
    })
}

/// The operator alone, on a worker of this thread.
struct Flow {
    worker: Worker,
    inputs: InputHandleVec<u64, Input>,
    probe: ProbeHandle<u64>,
}

impl Flow {
    fn new() -> Self {
        let allocator = Allocator::Thread(Thread::default());
        let mut worker = Worker::new(WorkerConfig::default(), allocator, None);
        let (inputs, probe) = worker.dataflow(|scope| {
            let (inputs, stream) = scope.new_input();
            let (turns, refused) = ingest(stream, TurnsConfig::default(), "turns".into());
            let (probe, _) = turns.map(drop).concat(refused.map(drop)).probe();
            (inputs, probe)
        });
        Self { worker, inputs, probe }
    }

    fn serve(&mut self, mut records: Vec<Input>) {
        self.inputs.send_batch(&mut records);
        let next = self.inputs.time() + 1;
        self.inputs.advance_to(next);
        self.inputs.flush();
        while self.probe.less_than(&next) {
            self.worker.step();
        }
    }
}
