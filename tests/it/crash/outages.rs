//! Tests three brokers that go away one after the other, as in a rolling restart and as in crashes,
//! under two processes of `turnstream run`.
//!
//! No process may end: it recreates in place what it lost, and nothing is lost or doubled. The test
//! prints the gaps between outcomes and asserts none. `cargo test` runs two outages; the whole plan
//! stops each broker by SIGTERM and then kills each:
//!
//! ```sh
//! TURNSTREAM_CRASH_OUTAGES=6 cargo test --test it crash::outages -- --nocapture
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::plan::Asked;
use super::random::Random;
use super::service::SERVICES;
use super::{Evidence, Run, Tally};
use crate::broker::Broker;

/// Brokers of the cluster.
const BROKERS: usize = 3;
/// How long a broker is away.
const AWAY: Duration = Duration::from_secs(5);

#[test]
fn brokers_that_go_one_after_the_other_end_no_process() {
    let test = "brokers_that_go_one_after_the_other_end_no_process";
    let Some(broker) = Broker::start_alone(test, &["--brokers", "3"]) else { return };
    let asked = Asked::of_three_brokers();
    let folder = tempfile::tempdir().expect("a folder");
    let evidence = Evidence { asked, broker_logs: broker.logs(), folder: Some(folder) };
    let (since, mut tally) = (Instant::now(), Tally::default());
    let mut random = Random::new(asked.seed);
    let mut run = Run::start(&SERVICES[0], &broker, evidence.folder(), &mut random);
    run.both_run();
    run.moves_on();
    let pace = Pace::start(run.progress.counter());
    for nth in 0..asked.kills {
        let node = 1 + nth % BROKERS;
        let kill = nth >= asked.kills / 2;
        pace.take_longest();
        broker.end_node(node, kill);
        std::thread::sleep(AWAY);
        run.moves_on();
        let away = pace.take_longest();
        broker.start_node(node);
        run.both_run();
        run.moves_on();
        let how = if kill { "killed" } else { "stopped" };
        eprintln!(
            "broker {node} {how} at {:.0} s: longest gap {away:?}, and {:?} around its return",
            since.elapsed().as_secs_f32(),
            pace.take_longest()
        );
    }
    pace.stop();
    run.finish(&mut tally);
    tally.print(asked, since.elapsed());
    assert_eq!(tally.gave_up, 0, "processes that ended by themselves");
}

/// Watches the longest time without an outcome.
struct Pace {
    longest_ms: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Pace {
    fn start(count: Arc<AtomicUsize>) -> Self {
        let (longest_ms, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (longest, stopped) = (Arc::clone(&longest_ms), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let (mut seen, mut moved) = (0, Instant::now());
            while !stopped.load(Ordering::Relaxed) {
                let now = count.load(Ordering::Relaxed);
                if now != seen {
                    (seen, moved) = (now, Instant::now());
                }
                longest.fetch_max(moved.elapsed().as_millis() as usize, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Self { longest_ms, stop, thread }
    }

    /// Returns the longest gap since the last call.
    fn take_longest(&self) -> Duration {
        Duration::from_millis(self.longest_ms.swap(0, Ordering::Relaxed) as u64)
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it only watches");
    }
}
