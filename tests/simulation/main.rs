//! Tests the engine by a crash simulation: runs the real engine on the embedded log, in virtual
//! time, under faults that a seed chooses, and compares it with an oracle that knows the outcome of
//! every input.
//!
//! Each run has its own world ([`world`]): a log in memory, up to three instances of the engine in
//! one consumer group ([`instance`]), a scripted model with latency, errors, panics and silence,
//! and a workload ([`workload`]) of users, agents who answer before the bot and take over, echoes,
//! repeats, directives and unfit records. Instances are killed at every step of the commit protocol
//! ([`protocol`]) and elsewhere, restarted, expelled from the group, added and stopped;
//! transactions abort. Then the faults stop and all outcomes must arrive. The oracle ([`oracle`])
//! compares the log with the plain rules.
//!
//! [`directory`] kills a real process at every call to a log in a directory. [`flow`] gives an
//! instance more than it can serve.
//!
//! ```text
//! cargo test --test simulation                                           500 seeds
//! TURNSTREAM_SIMULATION_SEEDS=10000 cargo test --release --test simulation
//! TURNSTREAM_SIMULATION_SEED=42 cargo test --test simulation             one seed, with what happens
//! cargo test --test simulation broken::                                  the test of the test
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

mod directory;
mod flow;
mod history;
mod instance;
mod lived;
mod oracle;
mod protocol;
mod workload;
mod world;

use lived::Lived;
use protocol::Step;
use world::World;

/// Seeds to run by default.
const SEEDS: u64 = 500;

/// Threads that share the seeds.
const THREADS: usize = 2;

#[test]
fn no_fault_loses_doubles_or_reorders_an_outcome() {
    let of = |name| std::env::var(name).ok().map(|text: String| text.parse().expect("a number"));
    let seeds: Range<u64> = match of("TURNSTREAM_SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..of("TURNSTREAM_SIMULATION_SEEDS").unwrap_or(SEEDS),
    };
    let begun = std::time::Instant::now();
    let count = seeds.end - seeds.start;
    let (lived, failed) = run_all(seeds);
    eprintln!("{count} seeds in {:.1} s\n{lived}", begun.elapsed().as_secs_f64());
    for (seed, why) in failed.iter().take(5) {
        eprintln!(
            "\nseed {seed}: {why}\n  again: TURNSTREAM_SIMULATION_SEED={seed} cargo test --test \
             simulation -- --nocapture"
        );
    }
    assert!(failed.is_empty(), "{} of {count} seeds failed", failed.len());
    if count >= SEEDS {
        for step in Step::ALL {
            assert!(lived.crashes.get(&step).is_some_and(|n| *n > 0), "no crash at {step:?}");
        }
        assert!(lived.forgotten > 0, "nothing was ever forgotten");
        assert!(lived.held > 0, "no turn was ever held");
        assert!(lived.merged > 0, "no fragment was ever merged");
        assert!(lived.unmarked > 0, "no transaction was ever given up and left unmarked");
    }
}

/// A seed is a run: everything that happens and every byte on the log is the same again.
#[test]
fn a_seed_gives_the_same_trace_twice() {
    for seed in 0..10 {
        let (first, second) = (World::new(seed).traced(), World::new(seed).traced());
        let differs = first.iter().zip(&second).find(|(first, second)| first != second);
        assert!(differs.is_none(), "seed {seed}: {differs:?}");
        assert!(first.len() == second.len() && first.len() > 100, "seed {seed}: {}", first.len());
    }
}

/// Runs every seed. Returns the sum of the events, and the failed seeds with the reasons.
fn run_all(seeds: Range<u64>) -> (Lived, BTreeMap<u64, String>) {
    let next = AtomicU64::new(seeds.start);
    std::thread::scope(|threads| {
        let running: Vec<_> = (0..THREADS)
            .map(|_| {
                threads.spawn(|| {
                    let (mut lived, mut failed) = (Lived::default(), BTreeMap::new());
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds.end {
                            return (lived, failed);
                        }
                        match run(seed) {
                            Ok(of_it) => lived.add(&of_it),
                            Err(why) => drop(failed.insert(seed, why)),
                        }
                    }
                })
            })
            .collect();
        let (mut lived, mut failed) = (Lived::default(), BTreeMap::new());
        for thread in running {
            let (of_it, failures) = thread.join().expect("failures are caught");
            lived.add(&of_it);
            failed.extend(failures);
        }
        (lived, failed)
    })
}

/// Runs one seed. A panic of the engine or the oracle is a failure.
fn run(seed: u64) -> Result<Lived, String> {
    catch_unwind(AssertUnwindSafe(|| World::new(seed).run()))
        .map_err(|panic| turnstream_ports::panics::message(&*panic))
}

/// Tests the simulation itself: with a promise broken on purpose, a seed soon fails.
#[cfg(debug_assertions)]
mod broken {
    use turnstream_ports::broken::{Broken, choose};

    /// The most seeds until a broken promise is noticed.
    const WITHIN: u64 = 500;

    fn caught(broken: Broken) {
        choose(Some(broken));
        let failure = (0..WITHIN).find_map(|seed| Some((seed, super::run(seed).err()?)));
        choose(None);
        let (seed, why) = failure.unwrap_or_else(|| panic!("{broken:?} was not noticed"));
        eprintln!("{broken:?} was noticed at seed {seed}: {why}");
        let whole = super::run(seed);
        assert!(whole.is_ok(), "and so it was not the break that was noticed: {whole:?}");
    }

    #[test]
    fn serving_again_what_was_finished_is_caught() {
        caught(Broken::NoSkip);
    }

    #[test]
    fn skipping_by_the_last_applied_offset_is_caught() {
        caught(Broken::SkipByLastApplied);
    }

    #[test]
    fn committing_past_what_is_pending_is_caught() {
        caught(Broken::CommitPastPending);
    }

    #[test]
    fn restoring_until_the_last_message_is_caught() {
        caught(Broken::RestoreByLastMessage);
    }

    #[test]
    fn taking_an_id_without_a_sweep_is_caught() {
        caught(Broken::NoSweep);
    }

    #[test]
    fn late_answers_of_an_older_generation_are_caught() {
        caught(Broken::LateAnswers);
    }

    #[test]
    fn a_superseded_outcome_after_the_agents_is_caught() {
        caught(Broken::SupersededAfterAgent);
    }

    #[test]
    fn an_answer_while_an_agent_holds_the_conversation_is_caught() {
        caught(Broken::AnswerWhileHeld);
    }

    #[test]
    fn a_lost_release_is_caught() {
        caught(Broken::LostRelease);
    }

    #[test]
    fn a_fragment_that_is_answered_twice_is_caught() {
        caught(Broken::FragmentAnsweredTwice);
    }

    #[test]
    fn a_restore_that_clusters_anew_is_caught() {
        caught(Broken::ClusterAnew);
    }
}
