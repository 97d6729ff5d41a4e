//! Measures how close the runtime comes to the ideal rate of its model: a dataflow of turns, each
//! of which asks for one vector, over a model that takes 20 ms for a batch of any size.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use timely::dataflow::operators::vec::Input as _;
use timely::dataflow::operators::{Inspect, Probe};
use timely::worker::Worker;
use turnstream_knowledge::KnowledgeVersion;
use turnstream_models::ModelsConfig;
use turnstream_models::batch::backends::Embeds;
use turnstream_models::batch::{Batched, Threads};
use turnstream_models::metrics::ModelMetrics;
use turnstream_operators::awaited::Awaited;
use turnstream_operators::flow::{Embedded, Epoch, TurnContext, TurnInFlight, Utterance};
use turnstream_operators::stage::{
    Answer, Asked, Call, CallConfig, Clock, Decide, Observer, OnFailure, StageRunner, Step,
    Without, run,
};
use turnstream_operators::timers::Timers;
use turnstream_ports::model::encoder::{EncodeError, Encoded, Encoder};
use turnstream_ports::model::{Embed, Embedding};
use turnstream_schemas::{
    EventTime, Fault, InputId, RequestId, Scope, Speaker, Stage, Turn, TurnId,
};

/// The time that a batch takes.
const BATCH_TIME: Duration = Duration::from_millis(20);
/// The most texts in a batch.
const BATCH: usize = 32;
/// The model's threads.
const THREADS: usize = 2;
/// The number of turns.
const TURNS: usize = 6_400;

/// An encoder that sleeps for [`BATCH_TIME`] and gives every text the same vector.
struct Slow;

impl Encoder for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn fingerprint(&self) -> u64 {
        0
    }

    fn dimensions(&self) -> usize {
        1
    }

    fn encode(&self, texts: &[&str], vectors: &mut Vec<f32>) -> Result<Encoded, EncodeError> {
        std::thread::sleep(BATCH_TIME);
        vectors.extend(texts.iter().map(|_| 1.0));
        Ok(Encoded { tokens: texts.len() as u64, cut: 0 })
    }
}

/// Puts the turns through, and prints the share of the ideal rate that they reached.
pub(crate) fn report() {
    let limits = ModelsConfig {
        queue_requests: 4 * BATCH,
        batch_sequences: BATCH,
        cache_entries: 0,
        ..ModelsConfig::default()
    };
    let (limits, threads) = (limits.limits(), Threads::new(THREADS));
    let model = Batched::start(Embeds(Arc::new(Slow)), limits, &threads, ModelMetrics::unread());
    let model: Arc<Embed> = Arc::new(model.expect("threads"));
    let seconds = timely::execute_directly(move |worker| pass(worker, model));
    let ideal = BATCH_TIME.as_secs_f64() * (TURNS / BATCH / THREADS) as f64;
    eprintln!(
        "batches/ideal  {TURNS} turns in {seconds:.3} s; ideal {ideal:.3} s; {:.1} % of the ideal rate",
        100.0 * ideal / seconds
    );
}

/// Asks for one vector per turn.
struct OneVector(Arc<Embed>);

impl Decide for OneVector {
    type Turn = TurnInFlight;
    type Decision = Option<Embedding>;

    const STAGE: Stage = Stage::Embedding;

    fn on_failure(&self, _: &TurnInFlight) -> OnFailure {
        OnFailure::DeadLetter
    }

    fn call(&self) -> Option<Call> {
        Some(Call::new(Arc::clone(&self.0), &CallConfig::default()))
    }

    fn begin(&self, turn: &TurnInFlight) -> Result<Step<Option<Embedding>>, Fault> {
        Ok(Step::ask(vec![turn.context.query().to_owned()]))
    }

    fn read(
        &self,
        _: &TurnInFlight,
        _: &Asked,
        answer: Answer,
    ) -> Result<Step<Option<Embedding>>, Fault> {
        let mut vectors: Vec<Embedding> = answer.of(Self::STAGE)?;
        Ok(Step::decided(vectors.pop()))
    }

    fn without(&self, _: &TurnInFlight, _: Without<'_>) -> Option<Embedding> {
        None
    }

    fn write(&self, turn: &mut TurnInFlight, dialogue: Option<Embedding>) {
        turn.embedding = dialogue.map(|dialogue| Embedded { dialogue, utterance: None });
    }
}

/// Returns the seconds from the first turn to the last answer.
fn pass(worker: &mut Worker, model: Arc<Embed>) -> f64 {
    let (timers, awaited) = (Timers::default(), Awaited::default());
    let runner = StageRunner {
        clock: Clock::none(),
        observer: Observer::none(),
        timers: timers.clone(),
        awaited: awaited.clone(),
    };
    let answered = Rc::new(Cell::new(0));
    let (mut input, probe) = worker.dataflow::<Epoch, _, _>(|scope| {
        let (input, turns) = scope.new_input::<TurnInFlight>();
        let (embedded, faults) = run(turns, OneVector(model), &runner);
        let count = Rc::clone(&answered);
        let embedded = embedded.inspect(move |_| count.set(count.get() + 1));
        faults.inspect(|failed| panic!("{:?}", failed.fault));
        (input, embedded.probe().0)
    });
    let started = Instant::now();
    for offset in 0..TURNS as i64 {
        let context = context(offset);
        awaited.ask(context.request);
        input.send(TurnInFlight::undecided(Arc::new(context), KnowledgeVersion::default()));
    }
    input.close();
    while !probe.done() {
        let now = started.elapsed();
        timers.advance(now.as_millis() as u64);
        worker.step();
        let next = timers.next_ms().map(Duration::from_millis);
        if !probe.done() {
            worker.step_or_park(next.map(|next| next.saturating_sub(now)));
        }
    }
    assert_eq!(answered.get(), TURNS, "every turn has its vector");
    started.elapsed().as_secs_f64()
}

/// Returns a turn in a conversation of its own.
fn context(offset: i64) -> TurnContext {
    let text = format!("turn {offset}");
    let turn_id = TurnId(offset.to_string());
    let utterance =
        Utterance { turn_id: turn_id.clone(), speaker: Speaker::User, text: text.as_str().into() };
    TurnContext {
        request: RequestId { partition: 0, generation: 1, offset },
        input: InputId { topic: "turns".to_owned(), partition: 0, offset },
        scope: Scope::new(None, "c"),
        turn: Turn::new("c", Speaker::User, &text),
        turn_id,
        event_time: EventTime(0),
        dialogue: vec![utterance],
        recalled: Vec::new(),
        reconstructed: None,
        chosen: None,
        recall_fault: None,
    }
}
