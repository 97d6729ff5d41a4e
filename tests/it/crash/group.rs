//! Runs the processes of a service: two slots in one consumer group, of which one or both are
//! taken.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::{ClientConfig, TopicPartitionList};

use super::service::{PARTITIONS, Service};
use crate::kafka::engine::Engine;
use crate::static_members::MENDS;

/// How long a group may take to agree, including the session of a dead member.
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
    /// How often a process ended by itself.
    gave_up: usize,
    /// How many partitions' commits held finished offsets, over all kills.
    above: usize,
    /// How often a process left and joined again because of orphaned partitions.
    mended: usize,
    /// Asks the broker about the group, and never joins it.
    admin: BaseConsumer,
}

impl Group {
    pub(crate) fn new(service: &'static Service, bootstrap: &str, folder: &Path) -> Self {
        let mut admin = ClientConfig::new();
        admin.set("bootstrap.servers", bootstrap).set("group.id", service.group());
        // Read offsets as they are, without waiting for the transactions of dead processes.
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

    /// Returns the taken slots.
    pub(crate) fn running(&self) -> Vec<usize> {
        (0..2).filter(|slot| self.engines[*slot].is_some()).collect()
    }

    /// Starts a process in a free slot.
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

    /// Counts the partitions whose commit has finished offsets above its own.
    fn count_above(&self) -> usize {
        let mut list = TopicPartitionList::new();
        list.add_partition_range(self.service.turns, 0, PARTITIONS - 1);
        let committed = self.admin.committed_offsets(list, Duration::from_secs(10));
        // Only a count: a broker that does not answer is no failure.
        let Ok(committed) = committed else { return 0 };
        // The metadata is a version, and then the ranges.
        let above = |metadata: &str| metadata.len() > 1;
        committed.elements().iter().filter(|element| above(element.metadata())).count()
    }

    /// Returns how many partitions, over all kills, had a commit below inputs with an outcome.
    pub(crate) fn above(&self) -> usize {
        self.above
    }

    /// Asks a process to leave. It no longer counts, and the caller owns it.
    pub(crate) fn ask_to_leave(&mut self, slot: usize) -> Leaver {
        let engine = self.take(slot);
        engine.ask_to_stop();
        Leaver(engine)
    }

    /// Stops a process cleanly.
    pub(crate) fn stop(&mut self, slot: usize) {
        self.ask_to_leave(slot).leave(self);
    }

    /// Halts a process, or continues it.
    pub(crate) fn halt(&mut self, slot: usize, halt: bool) {
        let engine = self.engines[slot].as_ref().expect("a process in this place");
        engine.signal(if halt { "STOP" } else { "CONT" });
    }

    /// Returns how often a process began to give partitions away, by its log.
    pub(crate) fn given_away(&self, slot: usize) -> usize {
        let engine = self.engines[slot].as_ref().expect("a process in this place");
        engine.log().matches("revoked which").count()
    }

    /// Returns how often a process ended by itself.
    pub(crate) fn gave_up(&self) -> usize {
        self.gave_up
    }

    /// Returns how often processes that have ended left their group and joined again because of
    /// orphaned partitions.
    pub(crate) fn mended(&self) -> usize {
        self.mended
    }

    fn take(&mut self, slot: usize) -> Engine {
        let engine = self.engines[slot].take().expect("a process in this place");
        self.mended += engine.log().matches(MENDS).count();
        engine
    }

    /// Starts every process again that has ended by itself, as a supervisor would: a broker that
    /// does not answer for longer than a transaction may take costs a process its transactional id,
    /// and then it must end. Panics if a process ended by a fault of its own.
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
        // Either the effect of a transaction cannot be known, or the process was halted for longer
        // than one may take. It tells its supervisor so by the exit codes 4 (fenced) and 5
        // (unavailable).
        let may = matches!(status.code(), Some(4 | 5));
        let name = self.service.name;
        assert!(may && !log.contains("panicked"), "{name}: ended by itself: {status}\n{log}");
        eprintln!("{name}: a process ended by itself: {status}\n{log}");
        self.gave_up += 1;
    }

    /// Returns the ends of the logs of the running processes.
    pub(crate) fn log_ends(&self) -> String {
        let ends = self.engines.iter().flatten().map(Engine::log_end);
        ends.collect::<Vec<_>>().join("\n----\n")
    }

    /// Waits until the broker reports the group as stable with the running processes.
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
    /// Kills it, unless it has ended already; returns whether it was killed.
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
        // The signal may have come before the process could handle it.
        if !status.success() && status.signal() != Some(SIGTERM) {
            group.note_end(status, &self.0);
        }
    }
}
