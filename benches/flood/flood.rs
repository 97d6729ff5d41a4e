//! Floods a real Kafka while the model is stalled: memory must not grow, the process must stay in
//! its group, and once the model answers again, turns are served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use turnstream_engine::config::Config;
use turnstream_engine::dependencies::Dependencies;
use turnstream_engine::serve::serve as serve_engine;
use turnstream_log::Ends;
use turnstream_log::kafka::{self, KafkaConfig};
use turnstream_operators::generation::GenerationForm;
use turnstream_ports::model::{Busy, GenerateRequest, Generated, Model, Reply};

use crate::broker::Broker;
use crate::memory::Resident;

/// Returns the length of the flood in seconds.
pub(crate) fn seconds() -> u64 {
    let seconds = std::env::var("FLOOD_SECONDS");
    seconds.map_or(600, |text| text.parse().expect("a whole number"))
}

/// The interval between measurements of memory.
const LOOK: Duration = Duration::from_secs(10);

/// How long the model answers at the end.
const CALM: Duration = Duration::from_secs(20);

pub(crate) fn measure(broker: &Broker) {
    let bootstrap = broker.bootstrap();
    println!("a flood of {} s, with a model that never answers", seconds());
    let mut engine = crate::start("engine", bootstrap);
    let clients = crate::start("clients", bootstrap).wait().expect("a child");
    assert!(clients.success(), "the clients");
    assert!(engine.wait().expect("a child").success(), "the engine");
}

/// A model that keeps every request unanswered until it is told to answer.
#[derive(Default)]
struct Stalled {
    answers: AtomicBool,
    kept: std::sync::Mutex<Vec<Reply<Generated>>>,
}

/// The most requests that the model holds, like a queue.
const HELD: usize = 256;

impl Stalled {
    fn wake(&self) {
        self.answers.store(true, Ordering::SeqCst);
        let kept = std::mem::take(&mut *self.kept.lock().expect("no panic"));
        kept.into_iter().for_each(|reply| reply.answer(Ok(answer())));
    }
}

fn answer() -> Generated {
    Generated { text: "Here I am again.".to_owned(), ..Generated::default() }
}

impl Model<GenerateRequest, Generated> for Stalled {
    fn name(&self) -> &str {
        "stalled"
    }

    fn ask(
        &self,
        request: GenerateRequest,
        reply: Reply<Generated>,
    ) -> Result<(), Busy<GenerateRequest, Generated>> {
        if self.answers.load(Ordering::SeqCst) {
            reply.answer(Ok(answer()));
            return Ok(());
        }
        let mut kept = self.kept.lock().expect("no panic");
        kept.retain(|reply| !reply.is_abandoned());
        if kept.len() >= HELD {
            return Err(Busy { request, reply });
        }
        kept.push(reply);
        Ok(())
    }
}

/// Serves for the time of the flood and a little longer.
pub(crate) fn serve(bootstrap: &str) {
    let mut config = Config::default();
    config.generation.form = GenerationForm::Prompted;
    // Longer than the flood, so that no request ends by a timeout.
    config.generation.prompted.call.timeout_ms = seconds() * 10_000;
    let log = KafkaConfig {
        bootstrap_servers: bootstrap.to_owned(),
        group_id: "flood".to_owned(),
        transactional_id: "flood".to_owned(),
        ..KafkaConfig::default()
    };
    let (consumer, producer) = kafka::connect(&log).expect("a broker");
    let ends = Ends::new(consumer, producer);
    let model = Arc::new(Stalled::default());
    let generate = Some(Arc::clone(&model) as _);
    let language_models = generate.map(|model| ("default".to_owned(), model)).into_iter().collect();
    let dependencies =
        Dependencies { language_models, ..Dependencies::new(&config).expect("the graph") };
    let stop = AtomicBool::new(false);
    let summary = std::thread::scope(|threads| {
        threads.spawn(|| {
            let begun = Instant::now();
            while begun.elapsed().as_secs() < seconds() {
                std::thread::sleep(LOOK.min(Duration::from_secs(seconds())));
                let kept = model.kept.lock().expect("no panic").len();
                println!(
                    "{:>5} s  {}; {kept} requests at the model",
                    begun.elapsed().as_secs(),
                    Resident::now()
                );
            }
            model.wake();
            std::thread::sleep(CALM);
            println!("{:>5} s  {}; the model answers", begun.elapsed().as_secs(), Resident::now());
            stop.store(true, Ordering::Relaxed);
        });
        serve_engine(ends, &dependencies, 1, &stop).expect("served")
    });
    println!("{:?}", summary.tally);
    assert!(summary.tally.is_conserved() && summary.tally.responses > 0, "{summary:?}");
    assert_eq!(summary.stale, 0, "it never left its group");
}
