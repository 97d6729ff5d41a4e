//! Checks of the Kafka settings that need no broker. `turnstream validate` reports the problems,
//! and a client is created only after the checks. The Kafka client itself judges its settings.

use std::net::Ipv6Addr;

use rdkafka::ClientConfig;
use rdkafka::client::{Client, DefaultClientContext};
use rdkafka::error::KafkaError;
use rdkafka::types::{RDKafkaConfRes, RDKafkaType};

use super::super::LogError;
use super::{KafkaConfig, features};

/// Settings that only this module sets, because its guarantees or bounds rest on them.
const OURS: [&str; 26] = [
    "acks",
    "auto.commit.enable",
    "auto.offset.reset",
    "bootstrap.servers",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.idempotence",
    "enable.partition.eof",
    "fetch.message.max.bytes",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "isolation.level",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "metadata.broker.list",
    "partition.assignment.strategy",
    "queue.buffering.max.kbytes",
    "queued.max.messages.kbytes",
    "request.required.acks",
    "session.timeout.ms",
    "transaction.timeout.ms",
    "transactional.id",
    "heartbeat.interval.ms",
];

/// Client settings that are derived from settings of this module.
const MADE_OF: [(&str, &str); 7] = [
    ("heartbeat.interval.ms", "session_timeout_ms"),
    ("max.partition.fetch.bytes", "fetch_partition_kib"),
    ("max.poll.interval.ms", "max_poll_interval_ms"),
    ("queue.buffering.max.kbytes", "send_queue_kib"),
    ("queued.max.messages.kbytes", "fetch_queue_kib"),
    ("session.timeout.ms", "session_timeout_ms"),
    ("transaction.timeout.ms", "transaction_timeout_ms"),
];

/// A setting that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`log.kafka.{}`: {message}; {remedy}", .keys.join("."))]
pub struct SettingProblem {
    /// The names of the keys below `log.kafka`.
    pub keys: Vec<String>,
    /// The problem, without the value of a key that may be secret.
    pub message: String,
    /// The remedy.
    pub remedy: String,
}

impl SettingProblem {
    fn new(keys: &[&str], message: impl Into<String>, remedy: &str) -> Self {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        Self { keys, message: message.into(), remedy: remedy.to_owned() }
    }
}

impl KafkaConfig {
    /// Refuses settings that cannot work, and names the first.
    pub(super) fn check(&self) -> Result<(), LogError> {
        match self.problems().into_iter().next() {
            Some(problem) => Err(LogError::Refused(problem.to_string())),
            None => Ok(()),
        }
    }

    /// All problems that show without creating a client.
    pub fn problems(&self) -> Vec<SettingProblem> {
        let mut found = Vec::new();
        let mut ensure = |holds: bool, keys: &[&str], message: &str, remedy: &str| {
            if !holds {
                found.push(SettingProblem::new(keys, message, remedy));
            }
        };
        let brokers = self.bootstrap_servers.split(',').map(str::trim);
        let listed = brokers.into_iter().all(is_host_and_port);
        let remedy = "write \"host:port\", several of them with commas between";
        ensure(listed, &["bootstrap_servers"], "expected hosts with their ports", remedy);
        for (key, text) in [
            ("group_id", &self.group_id),
            ("transactional_id", &self.transactional_id),
            ("views_transactional_id", &self.views_transactional_id),
        ] {
            ensure(!text.is_empty(), &[key], "expected a string that is not empty", "name one");
        }
        for (key, least, given) in [
            ("session_timeout_ms", 1_000, self.session_timeout_ms),
            ("transaction_timeout_ms", 1_000, self.transaction_timeout_ms),
            ("restore_timeout_ms", 1_000, self.restore_timeout_ms),
            ("poll_records", 1, u32::try_from(self.poll_records).unwrap_or(u32::MAX)),
            ("poll_kib", 1, u32::try_from(self.poll_kib).unwrap_or(u32::MAX)),
        ] {
            let message = format!("expected an integer of at least {least}");
            ensure(given >= least, &[key], &message, "raise it");
        }
        let remedy = "raise it, or lower session_timeout_ms";
        let outlasts = self.max_poll_interval_ms >= self.session_timeout_ms;
        ensure(outlasts, &["max_poll_interval_ms"], "less than session_timeout_ms", remedy);
        for problem in self.client_problems() {
            if !found.iter().any(|told| told.keys == problem.keys) {
                found.push(problem);
            }
        }
        found
    }

    /// Problems of `log.kafka.client`: settings that only this module may set, settings that this
    /// build does not support, and settings that the client refuses.
    fn client_problems(&self) -> Vec<SettingProblem> {
        let mut found = Vec::new();
        for key in self.client.0.keys().filter(|key| OURS.contains(&key.as_str())) {
            let remedy = "use the setting of that name in log.kafka, if there is one";
            let message = "it cannot be set: the engine's guarantees rest on it";
            found.push(SettingProblem::new(&["client", key], message, remedy));
        }
        let settings = [self.consumer_settings(), self.producer_settings(None)];
        for (key, value) in settings.iter().flat_map(ClientConfig::config_map) {
            // The map holds a placeholder for a sensitive value.
            let value = self.client.0.get(key).map_or(value, String::as_str);
            let Err(error) = ClientConfig::new().set(key, value).create_native_config() else {
                continue;
            };
            let problem = refused_setting(key, &error);
            if !found.iter().any(|told| told.keys == problem.keys) {
                found.push(problem);
            }
        }
        found.sort_by(|one, other| one.keys.cmp(&other.keys));
        if let (true, Err(refused)) = (found.is_empty(), features::check(&self.client)) {
            let (message, remedy) = turnstream_ports::remedy::parted(&refused.to_string());
            found.push(SettingProblem::new(&["client"], message, &remedy));
        }
        found
    }

    /// A problem that shows only when a client is created: a file that it cannot read, or settings
    /// that exclude each other. Creates one client of each kind, without brokers, so none is asked.
    pub fn unusable_client(&self) -> Option<SettingProblem> {
        let kinds = [
            (self.consumer_settings(), RDKafkaType::RD_KAFKA_CONSUMER),
            (self.producer_settings(None), RDKafkaType::RD_KAFKA_PRODUCER),
        ];
        kinds.into_iter().find_map(|(mut settings, kind)| {
            settings.remove("bootstrap.servers");
            let made = settings.create_native_config();
            let made =
                made.and_then(|native| Client::new(&settings, native, kind, DefaultClientContext));
            made.err().map(|error| self.named_setting(&error))
        })
    }

    /// The setting that the client's message names, if it names one.
    fn named_setting(&self, error: &KafkaError) -> SettingProblem {
        let said = match error {
            KafkaError::ClientCreation(said) => said.trim().to_owned(),
            other => other.to_string(),
        };
        let ours = MADE_OF.iter().map(|(theirs, ours)| (*theirs, vec![*ours]));
        let set = self.client.0.keys().map(|key| (key.as_str(), vec!["client", key]));
        let named = set.chain(ours).find(|(theirs, _)| said.contains(theirs));
        let keys = named.map_or_else(|| vec!["client"], |(_, keys)| keys);
        SettingProblem::new(&keys, format!("the Kafka client refuses it: {said}"), MANUAL)
    }
}

/// Where the client's settings are described.
const MANUAL: &str = "librdkafka's CONFIGURATION.md says what each setting may be";

/// The client's objection to one setting, under the key that the user has set.
fn refused_setting(key: &str, error: &KafkaError) -> SettingProblem {
    let ours = MADE_OF.iter().find(|(theirs, _)| *theirs == key).map(|(_, ours)| *ours);
    let keys = ours.map_or_else(|| vec!["client", key], |ours| vec![ours]);
    let message = match error {
        KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, ..) => {
            "the Kafka client has no setting of this name".to_owned()
        }
        KafkaError::ClientConfig(_, said, _, value)
            if !turnstream_ports::secret::is_secret(key) || !said.contains(value) =>
        {
            format!("the Kafka client refuses it: {}", said.trim())
        }
        _ => "the Kafka client refuses its value".to_owned(),
    };
    SettingProblem::new(&keys, message, MANUAL)
}

/// Whether a text can be the address of a broker: a name or an IP address (IPv6 in brackets),
/// usually with a port.
fn is_host_and_port(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match bracketed {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => host.trim_end_matches('.').split('.').all(|label| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            !label.is_empty() && label.bytes().all(plain)
        }),
    };
    is_host && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_client(key: &str, value: &str) -> KafkaConfig {
        let mut config = KafkaConfig::default();
        config.client.0.insert(key.to_owned(), value.to_owned());
        config
    }

    #[test]
    fn settings_that_the_guarantees_rest_on_are_refused_by_name() {
        assert!(KafkaConfig::default().check().is_ok());
        let error = with_client("isolation.level", "read_uncommitted").check().unwrap_err();
        assert!(error.to_string().contains("log.kafka.client.isolation.level"), "{error}");
        let parsed: Result<KafkaConfig, _> = serde_json::from_str(r#"{"group": "x"}"#);
        assert!(parsed.unwrap_err().to_string().contains("unknown field `group`"));
    }

    #[test]
    fn what_the_client_refuses_is_told_by_key_before_a_broker_is_asked() {
        for (config, keys, says) in [
            (
                with_client("compresion.type", "lz4"),
                vec!["client", "compresion.type"],
                "no setting",
            ),
            (with_client("linger.ms", "soon"), vec!["client", "linger.ms"], "refuses"),
            (with_client("compression.type", "rar"), vec!["client", "compression.type"], "rar"),
            (
                KafkaConfig { fetch_queue_kib: 0, ..KafkaConfig::default() },
                vec!["fetch_queue_kib"],
                "range",
            ),
        ] {
            let found = config.problems();
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].keys, keys);
            assert!(found[0].message.contains(says), "{found:?}");
        }
    }

    #[test]
    fn what_shows_only_in_a_client_is_told_by_key() {
        assert_eq!(KafkaConfig::default().unusable_client(), None);
        // The client's own minimum lies between the two values.
        let config = with_client("message.timeout.ms", "20000");
        assert_eq!(config.problems(), []);
        let found = config.unusable_client().expect("longer than a transaction may take");
        assert_eq!(found.keys, ["client", "message.timeout.ms"], "{found}");
    }

    #[test]
    fn an_address_of_a_broker_is_a_host_and_mostly_a_port() {
        for fine in
            ["localhost:9092", "10.0.0.1:9092", "[::1]:9092", "kafka", "b-1.example_x.org.:1"]
        {
            assert!(is_host_and_port(fine), "{fine}");
        }
        for wrong in ["", "not a host", "a b:9092", "host:", "host:0", "host:70000", "host:port"] {
            assert!(!is_host_and_port(wrong), "{wrong}");
        }
        for wrong in ["::1:9092", "[::g]:9092", "ssl://host:9093", "a..b:9092", ":9092"] {
            assert!(!is_host_and_port(wrong), "{wrong}");
        }
    }
}
