//! Tests `turnstream run` on a real Apache Kafka while its processes are killed again and again.
//!
//! Two services in turn (scopes by conversation and by user; dynamic and static members) receive
//! turns without end, and their processes are killed with SIGKILL at moments that a seed draws:
//! alone, beside a second process, while that one joins, while one leaves. Each is started again
//! under its own transactional id. Readers of committed records that share nothing with the engine
//! read all along, Kafka's own console consumer among them, and in the end `oracle` compares what
//! they saw with what was sent: every input has one outcome, in the order of its scope, and the
//! history topic folds to the histories that those outcomes imply.
//!
//! `cargo test` runs a few kills. For many:
//!
//! ```sh
//! TURNSTREAM_CRASH_KILLS=100 cargo test --test it crash:: -- --nocapture
//! ```
//!
//! Another test kills the *broker* under two processes, which are started again if they end:
//!
//! ```sh
//! TURNSTREAM_CRASH_BROKER_KILLS=30 cargo test --test it crash::killed_brokers -- --nocapture
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::broker::Broker;
use crate::kafka::outcomes::OUTCOMES;

mod console;
mod feed;
mod group;
mod oracle;
mod outages;
mod plan;
mod random;
mod reader;
mod service;
mod turns;

use console::Console;
use feed::{Feed, Sender};
use group::Group;
use oracle::Verdict;
use plan::{Asked, Crash, Kind, Moment};
use random::Random;
use reader::{Isolation, Progress, Readers};
use service::{PARTITIONS, SERVICES, Service};
use turns::{Answered, TurnScript};

/// A number of outcomes after a crash of the broker that cannot all have been in flight before it.
const OF_NEW: usize = 2_000;

/// How long the test waits without any progress before it gives up.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn killed_processes_lose_and_double_nothing() {
    serve(
        "killed_processes_lose_and_double_nothing",
        Asked::of_processes(),
        |nth, kills, random| plan::crashes(kills, 2 * nth, nth > 0, random),
    );
}

#[test]
fn killed_brokers_lose_and_double_nothing() {
    serve("killed_brokers_lose_and_double_nothing", Asked::of_the_broker(), |_, kills, random| {
        plan::of_the_broker(kills, random)
    });
}

/// Runs each service in turn, with its share of the planned kills.
fn serve(test: &str, asked: Asked, plan: impl Fn(usize, usize, &mut Random) -> Vec<Crash>) {
    let Some(broker) = Broker::start_alone(test, &[]) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let evidence = Evidence { asked, broker_logs: broker.logs(), folder: Some(folder) };
    let since = Instant::now();
    let mut random = Random::new(asked.seed);
    let mut tally = Tally::default();
    for (nth, service) in SERVICES.iter().enumerate() {
        let kills = (asked.kills + nth) / SERVICES.len();
        if kills == 0 {
            continue;
        }
        let crashes = plan(nth, kills, &mut random);
        let run = Run::start(service, &broker, evidence.folder(), &mut random);
        run.crash(&crashes, &mut tally);
    }
    tally.print(asked, since.elapsed());
    assert_eq!(tally.kills.values().sum::<usize>(), asked.kills, "kills");
}

/// A service under test.
struct Run<'test> {
    service: &'static Service,
    broker: &'test Broker,
    group: Group,
    readers: Readers,
    console: Console,
    feed: Feed,
    progress: Progress,
}

impl<'test> Run<'test> {
    /// Creates the topics, and starts the readers, the feed and one process.
    fn start(
        service: &'static Service,
        broker: &'test Broker,
        folder: &Path,
        random: &mut Random,
    ) -> Self {
        broker.create_topics(service.prefix, PARTITIONS);
        let (progress, answered) = (Progress::default(), Answered::default());
        let readers = Readers::start(service, broker.bootstrap(), &progress, &answered);
        let console = Console::start(broker, &service.topic("responses"));
        let script = TurnScript::new(service, random.split(), answered);
        let sender = Sender::new(service, script, broker.bootstrap());
        let feed = Feed::start(sender, progress.counter());
        let mut group = Group::new(service, broker.bootstrap(), folder);
        group.start(0);
        Self { service, broker, group, readers, console, feed, progress }
    }

    /// Causes all the crashes, then finishes.
    fn crash(mut self, crashes: &[Crash], tally: &mut Tally) {
        let since = Instant::now();
        for crash in crashes {
            let before = self.progress.count();
            let killed = self.fail(*crash);
            let (at, now) = (since.elapsed().as_secs_f32(), self.progress.count());
            eprintln!(
                "{} {at:6.1} s: killed {killed} {:?} at {:?}, {now} outcomes ({} since the last)",
                self.service.name,
                crash.kind,
                crash.moment,
                now - before
            );
            *tally.kills.entry(crash.kind).or_default() += 1;
            tally.halts += usize::from(crash.halt.is_some());
        }
        self.finish(tally);
    }

    /// Waits for everything owed and for a fresh turn on every partition, and then asks the oracle.
    fn finish(mut self, tally: &mut Tally) {
        self.both_run();
        let Self { service, broker, mut group, readers, console, feed, progress } = self;
        let mut sender = feed.stop();
        // A lost outcome never comes; the oracle names its input.
        let all = comes(sender.count(), &progress, &mut group, &readers);
        let last_words = sender.send_last_words();
        let _ = all && comes(sender.count(), &progress, &mut group, &readers);
        for slot in group.running() {
            group.stop(slot);
        }
        let (found, sent) = (readers.finish(), sender.sent());
        let mut verdict = oracle::count(service, &sent, &found);
        let aborted = aborted(service, broker, &verdict);
        eprintln!("{}: {verdict:?}, {aborted} records aborted", service.name);
        oracle::check(service, &sent, &found, &mut verdict);
        oracle::check_last_words(&last_words, &found);
        let seen = console.finish(verdict.responses);
        let twice: Vec<_> = seen.iter().filter(|(_, count)| **count != 1).collect();
        assert!(twice.is_empty(), "the console consumer saw more than once: {twice:?}");
        assert_eq!(seen.len(), verdict.responses, "responses that the console consumer saw");
        tally.gave_up += group.gave_up();
        tally.above += group.above();
        tally.mended += group.mended();
        tally.add(&verdict, aborted, seen.len());
    }

    /// Brings the situation about, kills at the moment, and starts again. Returns what was killed.
    fn fail(&mut self, crash: Crash) -> String {
        if let Some(time) = crash.halt {
            self.halt(time, crash.first);
        }
        let killed = match crash.kind {
            Kind::Alone | Kind::AtJoin => {
                let one = self.one_runs();
                if crash.kind == Kind::AtJoin {
                    self.moves_on();
                    self.group.start(1 - one);
                }
                self.wait(crash.moment);
                if crash.kind == Kind::AtJoin && !crash.first { 1 - one } else { one }
            }
            Kind::Together => {
                self.both_run();
                self.wait(crash.moment);
                usize::from(crash.first)
            }
            Kind::AtLeave => return self.fail_at_leave(crash),
            Kind::Broker => return self.fail_the_broker(crash),
        };
        self.kill(killed, crash.away);
        format!("{killed}")
    }

    /// Halts the first of two processes while it gives partitions to the second, or the second once
    /// they agree, and then continues it.
    fn halt(&mut self, time: Duration, first: bool) {
        let one = self.one_runs();
        self.moves_on();
        let given = self.group.given_away(one);
        self.group.start(1 - one);
        let halted = if first { one } else { 1 - one };
        if first {
            let since = Instant::now();
            // If it ended by itself meanwhile, the two may have shared the partitions without that.
            while self.group.given_away(one) == given && since.elapsed() < PATIENCE {
                self.group.supervise();
                std::thread::sleep(Duration::from_millis(1));
            }
        } else {
            self.group.settle();
        }
        self.group.halt(halted, true);
        self.wait(Moment::Time(time));
        self.group.halt(halted, false);
    }

    fn fail_at_leave(&mut self, crash: Crash) -> String {
        self.both_run();
        let leaver = usize::from(crash.leaver);
        let leaving = self.group.ask_to_leave(leaver);
        self.wait(crash.moment);
        if !crash.first {
            let stays = 1 - leaver;
            self.kill(stays, crash.away);
            leaving.leave(&mut self.group);
            return format!("{stays}, which stayed,");
        }
        if leaving.kill(&mut self.group) {
            return format!("{leaver}, which was leaving,");
        }
        // It had left already: kill the other.
        self.kill(1 - leaver, crash.away);
        format!("{}, left alone,", 1 - leaver)
    }

    /// Kills the broker under two processes, or while the second of them joins.
    fn fail_the_broker(&mut self, crash: Crash) -> String {
        if crash.first {
            self.both_run();
        } else {
            let one = self.one_runs();
            self.moves_on();
            self.group.start(1 - one);
        }
        self.wait(crash.moment);
        let broker = self.broker;
        std::thread::scope(|threads| {
            let back = threads.spawn(|| broker.crash(crash.away));
            while !back.is_finished() {
                self.group.supervise();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        // Wait for more than what it had committed before it died.
        self.wait(Moment::Outcomes(OF_NEW, Duration::ZERO));
        "the broker".to_owned()
    }

    /// Kills a process, and starts it again after a while; the others go on meanwhile.
    fn kill(&mut self, slot: usize, away: Duration) {
        self.group.kill(slot);
        self.wait(Moment::Time(away));
        self.group.start(slot);
    }

    /// Makes sure that exactly one process runs, and returns its slot.
    fn one_runs(&mut self) -> usize {
        while let [_, second] = self.group.running()[..] {
            self.group.settle();
            self.group.stop(second);
        }
        self.group.running()[0]
    }

    /// Makes sure that two processes run, and that the group agrees on it.
    fn both_run(&mut self) {
        for slot in 0..2 {
            if !self.group.running().contains(&slot) {
                self.group.start(slot);
            }
        }
        self.group.settle();
    }

    /// Waits for an outcome.
    fn moves_on(&mut self) {
        self.wait(Moment::Outcomes(1, Duration::ZERO));
    }

    fn wait(&mut self, moment: Moment) {
        let rest = match moment {
            Moment::Outcomes(count, rest) => {
                let count = self.progress.count() + count;
                let came = comes(count, &self.progress, &mut self.group, &self.readers);
                assert!(came, "nothing moves any more");
                rest
            }
            Moment::Time(time) => time,
        };
        std::thread::sleep(rest);
        self.group.supervise();
    }
}

/// Waits until `count` inputs have an outcome, as long as more come; returns whether they came.
fn comes(count: usize, progress: &Progress, group: &mut Group, readers: &Readers) -> bool {
    let (mut seen, mut moved) = (progress.count(), Instant::now());
    while progress.count() < count {
        group.supervise();
        readers.assert_reading();
        std::thread::sleep(Duration::from_millis(5));
        if progress.count() > seen {
            (seen, moved) = (progress.count(), Instant::now());
        }
        if moved.elapsed() > PATIENCE {
            let ends = group.log_ends();
            eprintln!("{seen} of {count} outcomes, and nothing for {PATIENCE:?}\n{ends}");
            return false;
        }
    }
    true
}

/// Counts the outcomes that were written and never committed.
fn aborted(service: &Service, broker: &Broker, verdict: &Verdict) -> usize {
    let mut written = 0;
    for plain in OUTCOMES {
        let topic = service.topic(plain);
        let all = (broker.bootstrap(), topic.as_str(), Isolation::Uncommitted);
        reader::read(all, &AtomicBool::new(true), |_| written += 1);
    }
    written - (verdict.responses + verdict.recorded + verdict.dead_letters)
}

/// The result of the whole run.
#[derive(Default)]
struct Tally {
    kills: BTreeMap<Kind, usize>,
    /// How often a process was halted for longer than its session.
    halts: usize,
    /// How often a process ended by itself.
    gave_up: usize,
    /// How many partitions, at a kill, had a committed offset below inputs that had their outcome
    /// already.
    above: usize,
    /// How often a static member rejoined, so that its group assigned orphaned partitions.
    mended: usize,
    verdicts: Vec<Verdict>,
    aborted: usize,
    console: usize,
}

impl Tally {
    fn add(&mut self, verdict: &Verdict, aborted: usize, console: usize) {
        self.verdicts.push(*verdict);
        self.aborted += aborted;
        self.console += console;
    }

    fn print(&self, asked: Asked, took: Duration) {
        let sum = |of: fn(&Verdict) -> usize| self.verdicts.iter().map(of).sum::<usize>();
        eprintln!("{} kills by seed {}: {:?}", asked.kills, asked.seed, self.kills);
        eprintln!(
            "{} processes were halted for longer than a session; {} ended by themselves and were \
             started again",
            self.halts, self.gave_up
        );
        eprintln!(
            "{} partitions stood, at a kill, below inputs that had their outcome already",
            self.above
        );
        eprintln!("{} times partitions were nobody's, and a static member saw to it", self.mended);
        eprintln!(
            "{} inputs: {} responses, {} recorded, {} dead letters",
            sum(|of| of.inputs),
            sum(|of| of.responses),
            sum(|of| of.recorded),
            sum(|of| of.dead_letters)
        );
        eprintln!(
            "lost {}, doubled {}, unknown {}, out of order {}",
            sum(|of| of.lost),
            sum(|of| of.doubled),
            sum(|of| of.unknown),
            sum(|of| of.out_of_order)
        );
        eprintln!(
            "histories as expected: {} entries held, {} evicted; {} changes of hands",
            sum(|of| of.entries),
            self.verdicts.iter().map(|of| of.evictions).sum::<u64>(),
            sum(|of| of.handovers)
        );
        eprintln!(
            "the console consumer saw {} responses, each once; {} records were aborted",
            self.console, self.aborted
        );
        eprintln!("{:.0} s", took.as_secs_f32());
    }
}

/// Keeps what is needed to investigate if the test fails, and prints where it is.
struct Evidence {
    asked: Asked,
    broker_logs: Vec<PathBuf>,
    folder: Option<tempfile::TempDir>,
}

impl Evidence {
    fn folder(&self) -> &Path {
        self.folder.as_ref().expect("kept to the end").path()
    }
}

impl Drop for Evidence {
    fn drop(&mut self) {
        let Some(folder) = self.folder.take().filter(|_| std::thread::panicking()) else { return };
        let kept = folder.keep();
        // Best effort: the logs of the processes are there already.
        for (nth, log) in self.broker_logs.iter().enumerate() {
            let _ = std::fs::copy(log, kept.join(format!("broker-{}.log", nth + 1)));
        }
        eprintln!("seed {}; again with: {}", self.asked.seed, self.asked.command());
        eprintln!("the logs of broker and processes are in {}", kept.display());
    }
}
