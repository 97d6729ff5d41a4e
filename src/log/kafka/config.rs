//! The settings of the Kafka log.

use std::collections::BTreeMap;
use std::fmt;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::super::{Start, Topic};
use super::shared_settings;

/// How to reach Kafka, and the bounds of its client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KafkaConfig {
    /// Brokers to ask first: `host:port`, separated by commas; the default port is 9092.
    pub bootstrap_servers: String,
    /// The consumer group. Reading continues at its committed offsets; a renamed group has none.
    pub group_id: String,
    /// Names this process in the group for ever, so that a restart within the session keeps its
    /// partitions. Each process needs its own; empty for none.
    pub group_instance_id: String,
    /// Names this process as a writer. Each process needs its own and must keep it over restarts: a
    /// process that takes the id fences the earlier holder and aborts its open transaction.
    pub transactional_id: String,
    /// Names the one process that publishes the views of this log (`turnstream views`), as
    /// `transactional_id` names one that serves turns. It is the same wherever that process may
    /// run, so that the latest one replaces the others.
    pub views_transactional_id: String,
    /// Milliseconds without a heartbeat after which the process counts as dead, 1000 or more. Its
    /// partitions wait for that time before they get another owner.
    pub session_timeout_ms: u32,
    /// Milliseconds between polls after which the process counts as stuck; not below the
    /// session's.
    pub max_poll_interval_ms: u32,
    /// Milliseconds that a transaction may take, and for which a dead process can hold back readers
    /// of committed records.
    pub transaction_timeout_ms: u32,
    /// Milliseconds without progress after which the restoration of a partition starts anew, with a
    /// new client; the process's other partitions wait meanwhile.
    pub restore_timeout_ms: u32,
    /// Seconds of an outage after which a serving process ends with exit code 5. If it is not set,
    /// the process waits for the end of any outage and replaces its clients in place.
    pub give_up_after_seconds: Option<u64>,
    /// The most records of one poll, 1 or more.
    pub poll_records: usize,
    /// KiB of keys and values after which a poll adds no further record, 1 or more.
    pub poll_kib: usize,
    /// KiB that the client prefetches, over all partitions. The client may exceed it by one fetch.
    pub fetch_queue_kib: u32,
    /// The most KiB of one fetch per partition.
    pub fetch_partition_kib: u32,
    /// KiB of outcomes that may wait to be sent.
    pub send_queue_kib: u32,
    /// The names of the topics.
    pub topics: KafkaTopics,
    /// Whether missing topics are created at start, with `history`, `knowledge` and `views`
    /// compacted. Needs the permission to create topics. Otherwise a missing topic is an error.
    pub create_topics: bool,
    /// Partitions of a created topic other than that of knowledge, 1 or more. If some topics exist,
    /// the others get as many partitions as those. It cannot be raised later: keys would move.
    #[schemars(range(min = 1))]
    pub create_partitions: i32,
    /// Partitions of the topic of knowledge if it is created, 1 or more. With one, all processes
    /// read changes in the order in which they were written, and a response names one offset. It
    /// cannot be raised later: keys would move.
    #[schemars(range(min = 1))]
    pub create_knowledge_partitions: i32,
    /// Replicas of a created topic; 0 uses the broker's default (`default.replication.factor`).
    #[schemars(range(min = 0))]
    pub create_replication_factor: i32,
    /// Where to start reading a partition for which the group has never committed.
    pub start: Start,
    /// Settings passed to the Kafka client as they are, by librdkafka's names: security
    /// (`security.protocol`, `sasl.*`, `ssl.*`), `compression.type`, `client.id` and the like.
    /// Values that may be secrets are never shown. Settings that the guarantees rest on are
    /// refused.
    pub client: ClientSettings,
}

impl Default for KafkaConfig {
    fn default() -> Self {
        Self {
            bootstrap_servers: "localhost:9092".to_owned(),
            group_id: "turnstream".to_owned(),
            group_instance_id: String::new(),
            transactional_id: "turnstream-1".to_owned(),
            views_transactional_id: "turnstream-views".to_owned(),
            session_timeout_ms: 6_000,
            max_poll_interval_ms: 120_000,
            transaction_timeout_ms: 10_000,
            restore_timeout_ms: 15_000,
            give_up_after_seconds: None,
            poll_records: 500,
            poll_kib: 4 * 1024,
            fetch_queue_kib: 16 * 1024,
            fetch_partition_kib: 1024,
            send_queue_kib: 64 * 1024,
            topics: KafkaTopics::default(),
            create_topics: false,
            create_partitions: 8,
            create_knowledge_partitions: 1,
            create_replication_factor: 0,
            start: Start::Earliest,
            client: ClientSettings::default(),
        }
    }
}

/// The names of the topics on the broker. All but `knowledge`, `partials` and `views` must have the
/// same number of partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KafkaTopics {
    /// Inputs.
    pub turns: String,
    /// Responses.
    pub responses: String,
    /// Traces of responses, if `responses.trace` is `topic`. If it is missing, each response
    /// contains its trace.
    pub traces: String,
    /// Inputs that ended without a response.
    pub recorded: String,
    /// Inputs that could not be served.
    pub dead_letters: String,
    /// The holder of each conversation; compacted. If it is missing, holders are not published.
    pub conversations: String,
    /// The changelog of histories; compacted.
    pub history: String,
    /// Changes to the knowledge, for every process; compacted. Read if `knowledge.live` is set.
    pub knowledge: String,
    /// Partial responses, which are not committed. Used if `gateway.partials` is set.
    pub partials: String,
    /// Counts over responses, histories and knowledge; compacted. Only `turnstream views` needs it.
    pub views: String,
}

impl Default for KafkaTopics {
    fn default() -> Self {
        let name = |topic: Topic| topic.name().to_owned();
        Self {
            turns: name(Topic::Turns),
            responses: name(Topic::Responses),
            traces: name(Topic::Traces),
            recorded: name(Topic::Recorded),
            dead_letters: name(Topic::DeadLetters),
            conversations: name(Topic::Conversations),
            history: name(Topic::History),
            knowledge: name(Topic::Knowledge),
            partials: name(Topic::Partials),
            views: name(Topic::Views),
        }
    }
}

impl KafkaTopics {
    /// The name of a topic.
    pub fn name(&self, topic: Topic) -> &str {
        match topic {
            Topic::Turns => &self.turns,
            Topic::Responses => &self.responses,
            Topic::Traces => &self.traces,
            Topic::Recorded => &self.recorded,
            Topic::DeadLetters => &self.dead_letters,
            Topic::Conversations => &self.conversations,
            Topic::History => &self.history,
            Topic::Knowledge => &self.knowledge,
            Topic::Partials => &self.partials,
            Topic::Views => &self.views,
        }
    }

    /// Returns the topic that has this name.
    pub(super) fn of(&self, name: &str) -> Option<Topic> {
        Topic::ALL.into_iter().find(|topic| self.name(*topic) == name)
    }
}

/// Settings of the Kafka client by librdkafka's names. When they are shown or written, every value
/// is hidden that is not known to be harmless.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ClientSettings(pub BTreeMap<String, String>);

/// The setting of the client that bounds records and batches.
pub(super) const MESSAGE_LIMIT: &str = "message.max.bytes";

/// The client's default for that setting.
const CLIENT_LIMIT_BYTES: usize = 1_000_000;

/// The text in place of a hidden value.
const HIDDEN: &str = "***";

/// Settings whose values are not secret.
const HARMLESS: [&str; 12] = [
    "client.id",
    "client.rack",
    "compression.codec",
    "compression.type",
    "compression.level",
    "linger.ms",
    "sasl.mechanism",
    "sasl.mechanisms",
    "security.protocol",
    "ssl.ca.location",
    "ssl.certificate.location",
    "statistics.interval.ms",
];

impl ClientSettings {
    fn shown(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| {
            let harmless = HARMLESS.contains(&key.as_str());
            (key.as_str(), if harmless { value.as_str() } else { HIDDEN })
        })
    }
}

impl fmt::Debug for ClientSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.shown()).finish()
    }
}

impl Serialize for ClientSettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.shown())
    }
}

impl KafkaConfig {
    fn reader_settings(&self, isolation: &str) -> ClientConfig {
        let mut settings = shared_settings(self);
        // Why a broker does not answer may only stand in a line of this level: see `Membership`.
        if (settings.log_level as i32) < RDKafkaLogLevel::Info as i32 {
            settings.set_log_level(RDKafkaLogLevel::Info);
        }
        // The client warns of settings that only a producer knows, so those are left out.
        settings
            .set("isolation.level", isolation)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("queued.max.messages.kbytes", self.fetch_queue_kib.to_string())
            // With the client's default of one second, a reader that is slower than the broker
            // would wait for nothing each time the queue has been full.
            .set("fetch.queue.backoff.ms", "10")
            .set(
                "max.partition.fetch.bytes",
                self.fetch_partition_kib.saturating_mul(1024).to_string(),
            );
        settings
    }

    /// Settings of the group's member.
    pub(super) fn consumer_settings(&self) -> ClientConfig {
        let mut settings = self.reader_settings("read_committed");
        settings
            .set("group.id", &self.group_id)
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("session.timeout.ms", self.session_timeout_ms.to_string())
            .set("heartbeat.interval.ms", (self.session_timeout_ms / 5).max(200).to_string())
            .set("max.poll.interval.ms", self.max_poll_interval_ms.to_string())
            .set(
                "auto.offset.reset",
                match self.start {
                    Start::Earliest => "earliest",
                    Start::Latest => "latest",
                },
            );
        // Statistics show the lag and the membership without a request to the broker.
        if !self.client.0.contains_key("statistics.interval.ms") {
            settings.set("statistics.interval.ms", "5000");
        }
        if !self.group_instance_id.is_empty() {
            settings.set("group.instance.id", &self.group_instance_id);
        }
        settings
    }

    /// Settings of a reader of a changelog. It never joins the group, although the client requires
    /// a group name.
    pub(super) fn changelog_settings(&self) -> ClientConfig {
        let mut settings = self.reader_settings("read_committed");
        settings
            .set("group.id", &self.group_id)
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "earliest");
        settings
    }

    /// Settings of the restorer, which reads changelogs to a known end. A fetch at the end must not
    /// wait for later records: with the client's default of half a second, restoring any partition
    /// would take at least that long.
    pub(super) fn restorer_settings(&self) -> ClientConfig {
        let mut settings = self.changelog_settings();
        settings.set("fetch.wait.max.ms", "10");
        settings
    }

    /// Settings of a follower, which never joins the group either.
    pub(super) fn follower_settings(&self) -> ClientConfig {
        let mut settings = self.changelog_settings();
        // Statistics show the lag without a request to the broker.
        if !self.client.0.contains_key("statistics.interval.ms") {
            settings.set("statistics.interval.ms", "5000");
        }
        settings
    }

    /// Settings of a reader of all records, also those of open and aborted transactions. It never
    /// joins the group.
    pub(super) fn uncommitted_settings(&self) -> ClientConfig {
        let mut settings = self.reader_settings("read_uncommitted");
        settings.set("group.id", &self.group_id);
        settings
    }

    /// Settings of the client that asks for high watermarks, which a reader of committed records
    /// cannot see.
    pub(super) fn watermark_settings(&self) -> ClientConfig {
        self.reader_settings("read_uncommitted")
    }

    /// The largest record or batch that the client sends, in bytes, as far as it is known before
    /// the topics are asked. Every topic of outcomes has to accept it.
    pub fn sent_bytes(&self) -> usize {
        self.message_limit_bytes().unwrap_or(CLIENT_LIMIT_BYTES)
    }

    /// The largest record or batch that the client sends, in bytes, if that is set.
    pub(super) fn message_limit_bytes(&self) -> Option<usize> {
        self.client.0.get(MESSAGE_LIMIT)?.trim().parse().ok()
    }

    /// Settings of the producer. Unless they set a limit, records may be as large as the largest
    /// that a topic accepts.
    pub(super) fn producer_settings(&self, accepted_bytes: Option<usize>) -> ClientConfig {
        let mut settings = shared_settings(self);
        if let (None, Some(bytes)) = (self.message_limit_bytes(), accepted_bytes) {
            settings.set(MESSAGE_LIMIT, bytes.clamp(1_000, 1_000_000_000).to_string());
        }
        // The flush that ends a transaction is too short for the client to notice, so lingering
        // adds to the latency of every commit.
        if !self.client.0.contains_key("linger.ms") {
            settings.set("linger.ms", "0.5");
        }
        // Records are repetitive, so they compress well.
        let is_named = |key: &str| self.client.0.contains_key(key);
        if !is_named("compression.type") && !is_named("compression.codec") {
            settings.set("compression.type", "lz4");
        }
        settings
            .set("transactional.id", &self.transactional_id)
            // A log line reports a lost connection, after which the latest commit is in doubt.
            .set("log.connection.close", "true")
            .set_log_level(RDKafkaLogLevel::Info)
            .set("transaction.timeout.ms", self.transaction_timeout_ms.to_string())
            .set("queue.buffering.max.kbytes", self.send_queue_kib.to_string());
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_never_shown() {
        let mut config = KafkaConfig::default();
        for key in ["sasl.password", "ssl.key.pem", "sasl.oauthbearer.client.secret", "unknown"] {
            config.client.0.insert(key.to_owned(), "hunter2".to_owned());
        }
        config.client.0.insert("security.protocol".to_owned(), "sasl_ssl".to_owned());
        for shown in [format!("{config:?}"), serde_json::to_string(&config).unwrap()] {
            assert!(!shown.contains("hunter2"), "{shown}");
            assert!(shown.contains("sasl.password") && shown.contains("sasl_ssl"), "{shown}");
        }
        assert_eq!(config.client.0["sasl.password"], "hunter2", "and still reach the client");
    }
}
