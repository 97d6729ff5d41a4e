//! Tests static members on a real Apache Kafka that are stopped between the two steps of a
//! rebalance and come back: the broker takes each in with its old partitions, and starts no second
//! step. They notice, and have it done.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rdkafka::TopicPartitionList;
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::types::RDKafkaRespErr;

use crate::broker::Broker;
use crate::kafka::engine::Engine;
use crate::kafka::kcat::{Counter, KEY_END, read_all, send_lines};
use crate::kafka::outcomes::{Ended, OUTCOMES};
use crate::scraping::{get, samples};

const PARTITIONS: i32 = 4;
const GROUP: &str = "static-members";
/// How long a stopped member keeps its place: long enough to start the program on a busy machine.
const SESSION_MS: u32 = 10_000;
/// Turns sent to the stalled group, in conversations of their own.
const TURNS: usize = 80;
/// How long the test waits without any progress before it gives up.
const PATIENCE: Duration = Duration::from_secs(120);
/// The log message of a member that makes the group assign orphaned partitions.
pub(crate) const MENDS: &str = "these partitions have no owner";

#[test]
fn partitions_that_a_rebalance_left_unowned_are_reassigned() {
    let test = "partitions_that_a_rebalance_left_unowned_are_reassigned";
    let Some(broker) = Broker::start_or_skip(test) else { return };
    broker.create_topics("", PARTITIONS);
    let folder = tempfile::tempdir().expect("a folder");
    let start = |name: &str, nth: usize| {
        let config = write_config(&broker, name, folder.path());
        Engine::start(&config, &folder.path().join(format!("{name}-{nth}.log")))
    };

    // The first step: `a` is told to give up what `b` is to have, and is stopped before it does.
    let halfway = Halfway::join(&broker, "a");
    halfway.poll_until("it is given all", |member| member.assigned() == 4);
    let mut b = start("b", 1);
    halfway.poll_until("it is to give half up", |member| {
        b.assert_running();
        member.revoked() == 2
    });
    halfway.stop();
    b.kill();
    let (mut a, mut b) = (start("a", 1), start("b", 2));

    let counter = Counter::start(&broker, &OUTCOMES);
    send_lines(&broker, &turns(), &[], false);
    let (mut seen, mut moved) = (0, Instant::now());
    while counter.count() < TURNS {
        a.assert_running();
        b.assert_running();
        std::thread::sleep(Duration::from_millis(50));
        if counter.count() > seen {
            (seen, moved) = (counter.count(), Instant::now());
        }
        let logs = || format!("a:\n{}\nb:\n{}", a.log_end(), b.log_end());
        assert!(moved.elapsed() < PATIENCE, "{seen} of {TURNS} outcomes\n{}", logs());
    }

    // The group was stalled, or the test shows nothing; only the member without partitions
    // rejoined.
    assert_eq!(b.log().matches(MENDS).count(), 1, "{}", b.log());
    assert_eq!(a.log().matches(MENDS).count(), 0, "{}", a.log());
    let of = |engine: &Engine, metric: &str| scraped(engine, metric);
    assert_eq!(of(&b, "turnstream_group_mended_total"), 1.0);
    assert_eq!(of(&a, "turnstream_group_mended_total"), 0.0);
    let held = [&a, &b].map(|engine| of(engine, "turnstream_partitions_held"));
    assert_eq!(held, [2.0, 2.0], "{}", b.log());
    a.stop();
    b.stop();
    let mut ended: Vec<_> = OUTCOMES
        .iter()
        .flat_map(|topic| read_all(&broker, topic).into_iter().map(|read| Ended::of(topic, read)))
        .map(|ended| ended.place)
        .collect();
    let sent = read_all(&broker, "turns").into_iter().map(|read| (read.partition, read.offset));
    let mut sent: Vec<_> = sent.collect();
    sent.sort_unstable();
    ended.sort_unstable();
    assert_eq!(ended, sent, "each input has one outcome");
    let partitions = |at: i32| sent.iter().any(|place| place.0 == at);
    assert!((0..PARTITIONS).all(partitions), "turns on every partition: {sent:?}");
}

fn write_config(broker: &Broker, name: &str, folder: &Path) -> PathBuf {
    let text = format!(
        "[log]\nkind = \"kafka\"\n\n[log.kafka]\nbootstrap_servers = \"{}\"\n\
         group_id = \"{GROUP}\"\ngroup_instance_id = \"{name}\"\n\
         transactional_id = \"{GROUP}-{name}\"\nsession_timeout_ms = {SESSION_MS}\n\n\
         [metrics]\naddress = \"127.0.0.1:0\"\n",
        broker.bootstrap()
    );
    let path = folder.join(format!("{name}.toml"));
    std::fs::write(&path, text).expect("written");
    path
}

fn turns() -> Vec<Vec<u8>> {
    let turn = |at: usize| {
        let conversation = format!("talk-{at}");
        let turn = serde_json::json!({
            "conversation_id": conversation, "speaker": "user",
            "text": "What would one do with a kettle?",
        });
        [conversation.as_bytes(), &[KEY_END], turn.to_string().as_bytes()].concat()
    };
    (0..TURNS).map(turn).collect()
}

/// Returns a metric of a process, from the address in its log, once it has looked at its partitions
/// after it was first asked.
fn scraped(engine: &Engine, metric: &str) -> f64 {
    let log = engine.log();
    let line = log.lines().find(|line| line.contains("serving metrics")).expect("it says where");
    let address = line.split("127.0.0.1:").nth(1).expect("an address");
    let port: String = address.chars().take_while(char::is_ascii_digit).collect();
    let address = format!("127.0.0.1:{port}").parse().expect("an address");
    get(address, "/ready");
    std::thread::sleep(Duration::from_secs(1));
    samples(&get(address, "/metrics").1)[metric]
}

/// A static member of the group that follows an assignment, but ignores a revocation, like one that
/// is stopped at that moment.
struct Halfway(BaseConsumer<Told>);

#[derive(Clone, Default)]
struct Told(Arc<Noted>);

#[derive(Default)]
struct Noted {
    assigned: AtomicUsize,
    revoked: AtomicUsize,
    /// Whether it is ending, so that its actions have no consequences.
    ends: AtomicBool,
}

impl ClientContext for Told {}

impl ConsumerContext for Told {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        what: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        match what {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => {
                consumer.incremental_assign(list).expect("assigned");
                self.0.assigned.fetch_add(list.count(), Ordering::SeqCst);
            }
            _ if self.0.ends.load(Ordering::SeqCst) => {
                consumer.incremental_unassign(list).expect("given up");
            }
            _ => {
                self.0.revoked.fetch_add(list.count(), Ordering::SeqCst);
            }
        }
    }
}

impl Halfway {
    fn join(broker: &Broker, name: &str) -> Self {
        let consumer: BaseConsumer<Told> = ClientConfig::new()
            .set("bootstrap.servers", broker.bootstrap())
            .set("group.id", GROUP)
            .set("group.instance.id", name)
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("session.timeout.ms", SESSION_MS.to_string())
            .set("heartbeat.interval.ms", "500")
            .set("enable.auto.commit", "false")
            .create_with_context(Told::default())
            .expect("a client");
        consumer.subscribe(&["turns"]).expect("subscribed");
        Self(consumer)
    }

    fn assigned(&self) -> usize {
        self.0.context().0.assigned.load(Ordering::SeqCst)
    }

    fn revoked(&self) -> usize {
        self.0.context().0.revoked.load(Ordering::SeqCst)
    }

    fn poll_until(&self, what: &str, mut so: impl FnMut(&Self) -> bool) {
        let since = Instant::now();
        while !so(self) {
            // The client recovers from errors of connections.
            let _ = self.0.poll(Duration::from_millis(20));
            assert!(since.elapsed() < PATIENCE, "never: {what}");
        }
    }

    /// Ends without telling the broker: a static member does not leave.
    fn stop(self) {
        self.0.context().0.ends.store(true, Ordering::SeqCst);
    }
}
