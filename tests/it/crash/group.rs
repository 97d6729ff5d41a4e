//! The processes of a service: two places in one consumer group, of which one or both are taken.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::{ClientConfig, TopicPartitionList};

use super::service::{PARTITIONS, Service};
use crate::kafka::engine::Engine;
use crate::static_members::MENDS;

/// How long a group may take to agree, a dead member's session included.
const SETTLE: Duration = Duration::from_secs(60);
const SIGTERM: i32 = 15;
/// How long a clean stop may take.
const DRAIN: Duration = Duration::from_secs(90);

/// Up to two processes, each with a transactional id that it keeps.
pub(crate) struct Group {
    service: &'static Service,
    configs: [PathBuf; 2],
    engines: [Option<Engine>; 2],
    folder: PathBuf,
    starts: usize,
    /// How often one ended by itself.
    gave_up: usize,
    /// How often a partition's commit held finished offsets at a kill.
    above: usize,
    /// How often one left and joined again, since partitions were nobody's.
    mended: usize,
    /// Asks the broker about the group, and never joins it.
    admin: BaseConsumer,
}

impl Group {
    pub(crate) fn new(service: &'static Service, bootstrap: &str, folder: &Path) -> Self {
        let mut admin = ClientConfig::new();
        admin.set("bootstrap.servers", bootstrap).set("group.id", service.group());
        // Offsets as they are, without waiting for the transactions of the dead.
        admin.set("isolation.level", "read_uncommitted");
        let admin = admin.create().expect("a client");
        Self {
            service,
            configs: [0, 1].map(|slot| service.write_config(bootstrap, slot, folder)),
            engines: [None, None],
            folder: folder.to_owned(),
            starts: 0,
            gave_up: 0,
            above: 0,
            mended: 0,
            admin,
        }
    }

    /// The places that are taken.
    pub(crate) fn running(&self) -> Vec<usize> {
        (0..2).filter(|slot| self.engines[*slot].is_some()).collect()
    }

    /// Starts a process in a place that is free.
    pub(crate) fn start(&mut self, slot: usize) {
        assert!(self.engines[slot].is_none(), "place {slot} is taken");
        self.starts += 1;
        let log = format!("{}-{slot}-{}.log", self.service.name, self.starts);
        let engine = Engine::start(&self.configs[slot], &self.folder.join(log));
        self.engines[slot] = Some(engine);
    }

    /// Kills a process.
    pub(crate) fn kill(&mut self, slot: usize) {
        self.take(slot).kill();
        self.above += self.count_above();
    }

    /// How many partitions have a commit with finished offsets above its own.
    fn count_above(&self) -> usize {
        let mut list = TopicPartitionList::new();
        list.add_partition_range(self.service.turns, 0, PARTITIONS - 1);
        let committed = self.admin.committed_offsets(list, Duration::from_secs(10));
        // It is only counted; a broker that does not answer is no failure.
        let Ok(committed) = committed else { return 0 };
        // A version, and then the ranges.
        let above = |metadata: &str| metadata.len() > 1;
        committed.elements().iter().filter(|element| above(element.metadata())).count()
    }

    /// How often, at a kill, a partition stood below inputs that had their outcome already.
    pub(crate) fn above(&self) -> usize {
        self.above
    }

    /// Asks a process to leave. It does not count any more, and is given away.
    pub(crate) fn ask_to_leave(&mut self, slot: usize) -> Leaver {
        let engine = self.take(slot);
        engine.ask_to_stop();
        Leaver(engine)
    }

    /// Stops a process cleanly.
    pub(crate) fn stop(&mut self, slot: usize) {
        self.ask_to_leave(slot).leave(self);
    }

    /// Halts a process, or lets it go on.
    pub(crate) fn halt(&mut self, slot: usize, halt: bool) {
        let engine = self.engines[slot].as_ref().expect("a process in this place");
        engine.signal(if halt { "STOP" } else { "CONT" });
    }

    /// How often a process began to give partitions away, as it says itself.
    pub(crate) fn given_away(&self, slot: usize) -> usize {
        let engine = self.engines[slot].as_ref().expect("a process in this place");
        engine.log().matches("revoked which").count()
    }

    /// How often a process ended by itself.
    pub(crate) fn gave_up(&self) -> usize {
        self.gave_up
    }

    /// How often, by those that have ended, a process left its group and joined again, since
    /// partitions were nobody's.
    pub(crate) fn mended(&self) -> usize {
        self.mended
    }

    fn take(&mut self, slot: usize) -> Engine {
        let engine = self.engines[slot].take().expect("a process in this place");
        self.mended += engine.log().matches(MENDS).count();
        engine
    }

    /// Starts every process again that has ended by itself, as whatever supervises it would: a
    /// broker that does not answer for longer than a transaction may take costs a process its
    /// transactional id, and then it has to end. Panics where that was a fault of its own.
    pub(crate) fn supervise(&mut self) {
        for slot in 0..2 {
            let Some(status) = self.engines[slot].as_mut().and_then(Engine::status) else {
                continue;
            };
            let engine = self.take(slot);
            self.note_end(status, &engine);
            self.start(slot);
        }
    }

    fn note_end(&mut self, status: ExitStatus, engine: &Engine) {
        let log = engine.log_end();
        // Whether a transaction took effect cannot be known, or it was halted for longer than one
        // may take: 4 (fenced) and 5 (unavailable) are what a supervisor is told.
        let may = matches!(status.code(), Some(4 | 5));
        let name = self.service.name;
        assert!(may && !log.contains("panicked"), "{name}: ended by itself: {status}\n{log}");
        eprintln!("{name}: a process ended by itself: {status}\n{log}");
        self.gave_up += 1;
    }

    /// The ends of the logs of those that run.
    pub(crate) fn log_ends(&self) -> String {
        let ends = self.engines.iter().flatten().map(Engine::log_end);
        ends.collect::<Vec<_>>().join("\n----\n")
    }

    /// Waits until the broker says that the group is stable with those that run.
    pub(crate) fn settle(&mut self) {
        let (wanted, since) = (self.running().len(), Instant::now());
        let name = self.service.group();
        loop {
            self.supervise();
            let asked = self.admin.fetch_group_list(Some(&name), Duration::from_secs(10));
            let stable = asked.is_ok_and(|list| {
                let mut groups = list.groups().iter().filter(|group| group.name() == name);
                groups.any(|group| group.state() == "Stable" && group.members().len() == wanted)
            });
            if stable {
                return;
            }
            assert!(since.elapsed() < SETTLE, "no stable group\n{}", self.log_ends());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A process that was asked to leave.
pub(crate) struct Leaver(Engine);

impl Leaver {
    /// Kills it, unless it has ended already; whether it had not.
    pub(crate) fn kill(mut self, group: &mut Group) -> bool {
        if self.0.status().is_none() {
            self.0.signal("KILL");
        }
        // It may have ended in between.
        let status = self.0.ended(DRAIN);
        if status.code().is_some_and(|code| code != 0) {
            group.note_end(status, &self.0);
        }
        status.code().is_none()
    }

    /// Waits until it has ended.
    pub(crate) fn leave(mut self, group: &mut Group) {
        let status = self.0.ended(DRAIN);
        // It may have been asked before it could listen.
        if !status.success() && status.signal() != Some(SIGTERM) {
            group.note_end(status, &self.0);
        }
    }
}
