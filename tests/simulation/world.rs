//! Runs the world of one run: time, faults and processes.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;
use turnstream_engine::config::Config;
use turnstream_engine::dependencies::Dependencies;
use turnstream_knowledge::{Graph, ImportedFact};
use turnstream_log::Topic;
use turnstream_log::embedded::{EmbeddedConfig, EmbeddedLog, Isolation};
use turnstream_operators::generation::GenerationForm;
use turnstream_operators::history::handover::WhileWaiting;
use turnstream_operators::ingest::{AgentTurns, OnAgentReply};
use turnstream_operators::stage::OnFailure;
use turnstream_schemas::{HandOffReason, Outcome, RecordedReason, ScopeKind};

use crate::instance::{GROUP, Instance, Moved};
use crate::lived::Lived;
use crate::oracle::Oracle;
use crate::protocol::{Fault, Step};
use crate::workload::Workload;

/// The most moves of the world while faults happen.
const STORMY_MOVES: usize = 6_000;

/// The most rounds after the faults until all outcomes are there, of [`ROUND_MS`] each.
const CALM_ROUNDS: usize = 4_000;

/// Virtual milliseconds of one calm round.
const ROUND_MS: u64 = 5;

/// A seat for a process: its name, and the process while it lives.
struct Seat {
    name: String,
    instance: Option<Instance>,
    /// When a dead process starts again.
    start_at_ms: u64,
    /// When the broker ends the open transaction of a dead process.
    abort_at_ms: Option<u64>,
    /// Dead members of the group, with the end of their sessions.
    ghosts: Vec<(u64, u64)>,
}

/// One run.
pub(crate) struct World {
    rng: Rng,
    now_ms: u64,
    log: EmbeddedLog,
    dependencies: Dependencies,
    workload: Workload,
    /// Inputs still to be sent.
    to_send: usize,
    oracle: Oracle,
    seats: Vec<Seat>,
    /// The most inputs of one poll.
    poll_records: usize,
    /// Whether the model behaves.
    calm: Arc<AtomicBool>,
    /// How often a fault happens, in 1,000 moves.
    storm: u32,
    talks: bool,
    /// Everything that happens, in order, if the run is traced.
    trace: Option<RefCell<Vec<String>>>,
    lived: Lived,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let partitions = rng.i32(1..=4);
        let by_user = rng.bool();
        let poll_records = rng.usize(1..30);
        let log = EmbeddedLog::in_memory(&EmbeddedConfig {
            partitions,
            poll_records,
            compact_after_records: if rng.bool() { rng.u64(1..40) } else { 0 },
            ..EmbeddedConfig::default()
        });
        let workload = Workload::new(&mut rng, partitions, by_user);
        let seat = |number: usize| Seat {
            name: format!("process-{number}"),
            instance: None,
            start_at_ms: 0,
            abort_at_ms: None,
            ghosts: Vec::new(),
        };
        Self {
            now_ms: 0,
            log: log.expect("a log in memory"),
            dependencies: dependencies(config(&mut rng, by_user)),
            workload,
            to_send: rng.usize(30..150),
            oracle: Oracle::default(),
            poll_records,
            seats: (0..rng.usize(1..=3)).map(seat).collect(),
            calm: Arc::default(),
            storm: rng.u32(0..60),
            talks: std::env::var_os("TURNSTREAM_SIMULATION_SEED").is_some(),
            trace: None,
            lived: Lived::default(),
            rng,
        }
    }

    /// Runs the world. Panics if a promise is broken.
    pub(crate) fn run(mut self) -> Lived {
        self.live();
        self.lived
    }

    /// Runs as [`World::run`] does. Returns every move, and every record that ended up on the log.
    pub(crate) fn traced(mut self) -> Vec<String> {
        self.trace = Some(RefCell::default());
        self.live();
        for topic in Topic::OF_TURNS.into_iter().chain(Topic::MAY_BE_MISSING) {
            for partition in 0..self.workload.partitions {
                let read =
                    self.log.read(topic, partition, 0, usize::MAX, Isolation::ReadUncommitted);
                let records = read.expect("read").into_iter();
                let told: Vec<String> = records.map(|record| format!("{record:?}")).collect();
                for record in told {
                    self.say(format_args!("{topic:?} {partition}: {record}"));
                }
            }
        }
        self.trace.map(RefCell::into_inner).unwrap_or_default()
    }

    fn live(&mut self) {
        for _ in 0..STORMY_MOVES {
            if self.to_send == 0 && self.rng.u8(0..200) == 0 {
                break;
            }
            self.stormy_move();
        }
        while self.to_send > 0 {
            self.send();
        }
        self.say("the storm is over");
        self.calm.store(true, Ordering::Relaxed);
        for seat in 0..self.seats.len() {
            if let Some(instance) = &self.seats[seat].instance {
                instance.wire.calm();
            }
            self.seats[seat].start_at_ms = self.now_ms;
        }
        self.settle();
        for partition in 0..self.workload.partitions {
            self.workload.send_fresh(&self.log, partition, self.now_ms);
        }
        self.settle();
        self.stop_all();
        self.oracle.check(&self.log, &self.workload, &self.dependencies.config);
        self.check_fresh();
        self.count();
    }

    fn say(&self, what: impl fmt::Display) {
        if self.talks {
            eprintln!("{:>7} ms  {what}", self.now_ms);
        }
        if let Some(trace) = &self.trace {
            trace.borrow_mut().push(format!("{:>7} ms  {what}", self.now_ms));
        }
    }

    fn stormy_move(&mut self) {
        if self.rng.u32(0..1_000) < self.storm {
            self.fault();
        }
        let seat = self.rng.usize(0..self.seats.len());
        match self.rng.u8(0..16) {
            0 => self.now_ms += self.rng.u64(0..40),
            1 if self.to_send > 0 => {
                for _ in 0..self.rng.usize(1..6).min(self.to_send) {
                    self.send();
                }
            }
            2..=5 => self.poll(seat),
            6..=9 => self.work(seat),
            10..=13 => {
                let most = self.rng.usize(1..8);
                self.take_reports(seat, most);
            }
            _ => self.end_if_drained(seat),
        }
        self.pass_time();
    }

    fn send(&mut self) {
        self.workload.send(&mut self.rng, &self.log, self.now_ms);
        self.to_send -= 1;
    }

    /// Causes a fault, or starts or stops an instance.
    fn fault(&mut self) {
        let at = self.rng.usize(0..self.seats.len());
        let Some(instance) = &mut self.seats[at].instance else { return };
        match self.rng.u8(0..12) {
            0..=4 => {
                let step = Step::ALL[self.rng.usize(0..Step::ALL.len())];
                instance.wire.plan(Fault::Crash(step));
            }
            5 => {
                let step = Step::ALL[self.rng.usize(0..Step::AfterCommit as usize)];
                instance.wire.plan(Fault::Abort(step));
            }
            6 => {
                self.lived.other_crashes += 1;
                self.die(at);
            }
            7..=9 => {
                self.lived.expulsions += 1;
                let member = instance.member;
                if self.rng.bool() {
                    // Leave answers in flight.
                    self.now_ms += self.rng.u64(0..100);
                    self.work(at);
                }
                self.log.expel(GROUP, member);
                self.say(format_args!("{} is expelled", self.seats[at].name));
                // The instance sometimes rejoins so quickly that its worker has not heard of the
                // expulsion.
                for _ in 0..self.rng.u8(0..16) {
                    self.poll(at);
                }
            }
            10 => {
                instance.ask_to_stop();
                self.say(format_args!("{} is asked to stop", self.seats[at].name));
            }
            _ => drop(self.log.compact(Topic::History).expect("compacted")),
        }
    }

    /// Applies what is due: restarts, and expired sessions and transactions.
    fn pass_time(&mut self) {
        let now_ms = self.now_ms;
        for at in 0..self.seats.len() {
            let seat = &mut self.seats[at];
            for (member, _) in seat.ghosts.extract_if(.., |(_, until)| *until <= now_ms) {
                self.log.expel(GROUP, member);
            }
            if seat.abort_at_ms.take_if(|at_ms| *at_ms <= now_ms).is_some() {
                // A broker that crashed and returned may have no place to write the abort marker
                // to.
                if self.rng.bool() {
                    self.log.abort_open(&seat.name).expect("aborted");
                } else {
                    let unmarked = self.log.forget_open(&seat.name).expect("forgotten");
                    self.lived.unmarked += unmarked as u64;
                }
                self.oracle.observe(&self.log, &self.workload);
            }
            if self.seats[at].instance.is_none() && self.seats[at].start_at_ms <= now_ms {
                self.start(at);
            }
        }
    }

    fn start(&mut self, at: usize) {
        let base = self.rng.u64(..);
        let temper = move |number: u64| {
            let mut dice = Rng::with_seed(base.wrapping_add(number));
            (dice.u64(..), dice.u64(..))
        };
        let name = self.seats[at].name.clone();
        self.say(format_args!("{name} starts"));
        let instance = Instance::start(&self.log, &name, &self.dependencies, temper, &self.calm);
        // The start aborted the process's open transactions, so more may be visible.
        self.oracle.observe(&self.log, &self.workload);
        let seat = &mut self.seats[at];
        seat.abort_at_ms = None;
        seat.instance = Some(instance);
    }

    fn die(&mut self, at: usize) {
        let Some(instance) = self.seats[at].instance.take() else { return };
        self.say(format_args!("{} dies at {:?}", self.seats[at].name, instance.wire.crashed()));
        self.retire(&instance);
        instance.wire.die();
        let member = instance.member;
        drop(instance);
        let seat = &mut self.seats[at];
        seat.ghosts.push((member, self.now_ms + self.rng.u64(0..800)));
        seat.start_at_ms = self.now_ms + self.rng.u64(0..1_500);
        seat.abort_at_ms = Some(self.now_ms + self.rng.u64(100..2_000));
    }

    /// Counts the work of an instance that has ended.
    fn retire(&mut self, instance: &Instance) {
        self.lived.commits += instance.wire.commits();
        self.lived.aborts += instance.wire.aborts();
        let (stale, skipped) = instance.stale_and_skipped();
        self.lived.stale += stale;
        self.lived.skipped += skipped;
    }

    fn poll(&mut self, at: usize) {
        let now_ms = self.now_ms;
        let bound = self.dependencies.config.turns.max_in_flight + self.poll_records;
        if let Some(instance) = &mut self.seats[at].instance {
            instance.poll(now_ms);
            assert!(instance.in_flight() <= bound, "{} in flight", instance.in_flight());
        }
    }

    fn work(&mut self, at: usize) {
        if let Some(instance) = &mut self.seats[at].instance {
            instance.work(self.now_ms);
        }
    }

    fn take_reports(&mut self, at: usize, most: usize) {
        let now_ms = self.now_ms;
        let Some(instance) = &mut self.seats[at].instance else { return };
        let moved = instance.take_reports(most, now_ms);
        self.moved(at, moved);
    }

    fn end_if_drained(&mut self, at: usize) {
        let now_ms = self.now_ms;
        let Some(instance) = &mut self.seats[at].instance else { return };
        let moved = instance.end_if_drained(now_ms);
        self.moved(at, moved);
    }

    fn moved(&mut self, at: usize, moved: Moved) {
        self.oracle.observe(&self.log, &self.workload);
        match moved {
            Moved::On => {}
            Moved::Died => {
                let instance = self.seats[at].instance.as_ref();
                let step = instance.and_then(|instance| instance.wire.crashed());
                *self.lived.crashes.entry(step.expect("it died somewhere")).or_default() += 1;
                self.die(at);
            }
            Moved::Stopped => {
                self.say(format_args!("{} stopped", self.seats[at].name));
                let Some(instance) = self.seats[at].instance.take() else { return };
                let tally = instance.tally();
                assert!(tally.is_conserved(), "{tally:?}");
                self.retire(&instance);
                drop(instance);
                self.lived.clean_stops += 1;
                self.seats[at].start_at_ms = self.now_ms + self.rng.u64(0..1_500);
            }
        }
    }

    /// Advances all instances in turn until all outcomes are there.
    fn settle(&mut self) {
        for _ in 0..CALM_ROUNDS {
            if self.oracle.ended() == self.workload.sent().len() {
                return;
            }
            self.round();
        }
        let sent = self.workload.sent().iter();
        let missing: Vec<_> = sent
            .filter(|sent| self.oracle.outcome((sent.partition, sent.offset)).is_none())
            .map(|sent| (sent.partition, sent.offset))
            .collect();
        panic!("owed and never there: {missing:?}");
    }

    fn round(&mut self) {
        self.now_ms += ROUND_MS;
        self.pass_time();
        for at in 0..self.seats.len() {
            self.poll(at);
            self.work(at);
            self.take_reports(at, usize::MAX);
            self.end_if_drained(at);
        }
    }

    fn stop_all(&mut self) {
        for seat in &mut self.seats {
            seat.start_at_ms = u64::MAX;
            if let Some(instance) = &mut seat.instance {
                instance.ask_to_stop();
            }
        }
        for _ in 0..CALM_ROUNDS {
            if self.seats.iter().all(|seat| seat.instance.is_none()) {
                return;
            }
            self.round();
            self.seats.iter_mut().for_each(|seat| seat.start_at_ms = u64::MAX);
        }
        panic!("a process was asked to stop and does not");
    }

    /// Checks that a new conversation is answered at the end.
    fn check_fresh(&self) {
        let fresh = self.workload.sent().iter().rev().take(self.workload.partitions as usize);
        for sent in fresh {
            let outcome = self.oracle.outcome((sent.partition, sent.offset));
            let answered = matches!(outcome, Some(Outcome::Response(_)));
            assert!(answered, "{sent:?} of a fresh conversation: {outcome:?}");
        }
    }

    fn count(&mut self) {
        self.lived.late_answers = self.dependencies.late_answers.load(Ordering::Relaxed);
        for sent in self.workload.sent() {
            self.lived.inputs += 1;
            match self.oracle.outcome((sent.partition, sent.offset)) {
                Some(Outcome::Response(_)) => self.lived.responses += 1,
                Some(Outcome::Recorded(recorded)) => {
                    self.lived.recorded += 1;
                    match recorded.reason {
                        RecordedReason::Forgotten => {
                            self.lived.forgotten += recorded.evicted.len() as u64;
                        }
                        RecordedReason::Held => self.lived.held += 1,
                        RecordedReason::MergedInto(_) => self.lived.merged += 1,
                        _ => {}
                    }
                }
                _ => self.lived.dead_letters += 1,
            }
        }
    }
}

/// Returns a configuration whose bounds are often reached.
fn config(rng: &mut Rng, by_user: bool) -> Config {
    let mut config = Config::default();
    config.turns.scope = if by_user { ScopeKind::User } else { ScopeKind::Conversation };
    if rng.u8(0..5) == 0 {
        config.turns.on_agent_reply = OnAgentReply::Answer;
    }
    if rng.bool() {
        config.turns.agent_turns = AgentTurns::Beside;
    }
    if rng.bool() {
        config.turns.burst_ms = rng.u64(1..400);
    }
    if rng.bool() {
        config.handover.while_waiting = WhileWaiting::Hold;
    }
    // Event times lie up to ten minutes back.
    config.handover.return_after_minutes = rng.u64(0..8);
    config.handover.wait_at_most_minutes = rng.u64(0..8);
    config.handover.queues.insert(HandOffReason::Asked, "front desk".to_owned());
    config.turns.max_in_flight_per_partition = rng.usize(1..40);
    config.turns.max_in_flight = rng.usize(4..100);
    config.history.max_entries = rng.usize(0..6);
    config.history.alpha = 0.0;
    config.history.importance_share = 0.0;
    config.history.idle_after_seconds = rng.u64(0..3);
    config.history.max_scopes_in_memory = rng.usize(1..6);
    config.commit.interval_ms = rng.u64(0..60);
    config.commit.max_outcomes = rng.usize(1..30);
    config.commit.retry_backoff_ms = 0;
    config.generation.form = GenerationForm::Prompted;
    config.generation.prompted.call.timeout_ms = 100;
    config.generation.prompted.call.attempts = rng.u32(1..4);
    config.generation.prompted.call.backoff_ms = rng.u64(0..20);
    config.generation.on_failure =
        if rng.u8(0..4) == 0 { OnFailure::Degrade } else { OnFailure::DeadLetter };
    config
}

/// Returns the engine's dependencies, with a few facts.
pub(crate) fn dependencies(config: Config) -> Dependencies {
    let facts = [
        ("dog", "CapableOf", "bark"),
        ("coffee", "Causes", "insomnia"),
        ("umbrella", "UsedFor", "stay dry"),
        ("kitchen", "UsedFor", "cook"),
    ];
    let facts = facts.map(|(head, relation, tail)| ImportedFact::new(head, relation, tail, 1.0));
    Dependencies {
        timings: false,
        ..Dependencies::with_graph(config, Arc::new(Graph::from_facts(facts)))
    }
}
