//! Reports of failing brokers, in few log lines.
//!
//! A process has five clients or more. While a broker is away, each client reports every attempt to
//! reach it, in up to three ways: thousands of lines a minute with the same content. All clients
//! therefore report to this module. It writes one line when a broker begins to fail, one a minute
//! while it fails, and one when it has recovered.
//!
//! A client reports its failures when it is polled, which is rare for some, so a report may be old.
//! If another client was recently connected to the broker, the module reports the failure only
//! after the next statistics show a client that tries to connect without success.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Instant;

use rdkafka::config::RDKafkaLogLevel as Level;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::statistics::Statistics;

/// The interval of lines about a broker that keeps failing.
const TELL_MS: u64 = 60_000;

/// A broker counts as recovered after this time without a failure: clients retry within 10 s, and
/// repeat equal failures every 30 s.
const OVER_MS: u64 = 60_000;

/// A failure is doubted for this time after a client was connected: three of its statistics.
const CONNECTED_MS: u64 = 15_000;

/// Facilities of librdkafka's log lines about connections. They repeat errors, which are handled.
const OF_CONNECTIONS: [&str; 3] = ["FAIL", "ERROR", "REQTMOUT"];

/// States of a broker to which a client tries to connect: see `rd_kafka_broker_state_names`.
const SOUGHT: [&str; 2] = ["TRY_CONNECT", "CONNECT"];

/// The outages of this process, whose clients use one cluster.
static OUTAGES: LazyLock<(Instant, Mutex<Outages>)> =
    LazyLock::new(|| (Instant::now(), Mutex::default()));

/// Handles an error that a client reports.
pub(super) fn report_error(error: &KafkaError, reason: &str) {
    match error.rdkafka_error_code() {
        // The clients that enable it want this event; it is not an error.
        Some(Code::PartitionEOF) => {}
        // The client repeats it, in addition to the error of each broker.
        Some(Code::AllBrokersDown) => tracing::debug!(%error, reason = %reason, "Kafka client"),
        _ => {
            let at = broker_in(reason).map_or_else(|| error.to_string(), str::to_owned);
            tell(|outages, now_ms| outages.failed(&at, reason, now_ms).into_iter().collect());
        }
    }
}

/// Handles the statistics of a client.
pub(super) fn report_statistics(statistics: &Statistics) {
    let in_state = |states: &[&str]| {
        let brokers = statistics.brokers.values();
        let these = brokers.filter(|broker| states.contains(&broker.state.as_str()));
        these.map(|broker| broker.nodename.clone()).collect::<BTreeSet<String>>()
    };
    let (connected, sought) = (in_state(&["UP"]), in_state(&SOUGHT));
    tell(|outages, now_ms| outages.stand(&connected, &sought, now_ms));
}

/// Handles a log line of a client.
pub(super) fn report_log_line(level: Level, facility: &str, message: &str) {
    let of_connection = OF_CONNECTIONS.contains(&facility);
    match level {
        _ if of_connection => tracing::debug!(target: "librdkafka", facility, "{message}"),
        Level::Emerg | Level::Alert | Level::Critical | Level::Error => {
            tracing::error!(target: "librdkafka", facility, "{message}");
        }
        Level::Warning => tracing::warn!(target: "librdkafka", facility, "{message}"),
        Level::Notice | Level::Info => {
            tracing::info!(target: "librdkafka", facility, "{message}");
        }
        Level::Debug => tracing::debug!(target: "librdkafka", facility, "{message}"),
    }
}

fn tell(note: impl FnOnce(&mut Outages, u64) -> Vec<OutageLine>) {
    let (started, outages) = &*OUTAGES;
    let now_ms = started.elapsed().as_millis() as u64;
    let lines = note(&mut outages.lock().unwrap_or_else(PoisonError::into_inner), now_ms);
    for OutageLine { news, at, reason, seconds, failures } in lines {
        match news {
            OutageNews::Fails => tracing::warn!(at, reason = %reason, "Kafka fails; retrying"),
            OutageNews::StillFails => {
                tracing::warn!(at, reason = %reason, seconds, failures, "Kafka still fails");
            }
            OutageNews::Over => tracing::info!(at, seconds, failures, "Kafka has recovered"),
        }
    }
}

/// A line to write.
#[derive(Debug, PartialEq, Eq)]
struct OutageLine {
    news: OutageNews,
    /// The broker, or the error if it names no broker.
    at: String,
    /// The latest reason, in the client's words.
    reason: String,
    /// The duration of the failure.
    seconds: u64,
    /// The number of failures, over all clients.
    failures: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum OutageNews {
    Fails,
    StillFails,
    Over,
}

/// Brokers by address, and other errors by name.
#[derive(Default)]
struct Outages(BTreeMap<String, BrokerState>);

#[derive(Default)]
struct BrokerState {
    /// When a client was last seen connected to it.
    connected_ms: Option<u64>,
    failing: Option<Failing>,
}

struct Failing {
    since_ms: u64,
    latest_ms: u64,
    failures: u64,
    reason: String,
    told_ms: Option<u64>,
}

impl Outages {
    fn failed(&mut self, at: &str, reason: &str, now_ms: u64) -> Option<OutageLine> {
        let broker = self.0.entry(at.to_owned()).or_default();
        let connected_ms = broker.connected_ms;
        let failing = broker.failing.get_or_insert_with(|| Failing {
            since_ms: now_ms,
            latest_ms: now_ms,
            failures: 0,
            reason: String::new(),
            told_ms: None,
        });
        failing.latest_ms = now_ms;
        failing.failures += 1 + suppressed(reason);
        reason.clone_into(&mut failing.reason);
        let doubted = connected_ms.is_some_and(|at_ms| now_ms < at_ms + CONNECTED_MS);
        if doubted && failing.told_ms.is_none() {
            return None;
        }
        failing.tell(at, now_ms)
    }

    /// Updates the outages from the statistics of a client.
    fn stand(
        &mut self,
        connected: &BTreeSet<String>,
        sought: &BTreeSet<String>,
        now_ms: u64,
    ) -> Vec<OutageLine> {
        for at in connected {
            self.0.entry(at.to_owned()).or_default().connected_ms = Some(now_ms);
        }
        let mut lines = Vec::new();
        for (at, broker) in &mut self.0 {
            let Some(failing) = &mut broker.failing else { continue };
            if connected.contains(at) || now_ms >= failing.latest_ms + OVER_MS {
                let told = failing.told_ms.is_some();
                lines.extend(told.then(|| failing.line(OutageNews::Over, at, now_ms)));
                broker.failing = None;
            } else if sought.contains(at) {
                lines.extend(failing.tell(at, now_ms));
            }
        }
        lines
    }
}

impl Failing {
    fn tell(&mut self, at: &str, now_ms: u64) -> Option<OutageLine> {
        let news = match self.told_ms {
            None => OutageNews::Fails,
            Some(told_ms) if now_ms >= told_ms + TELL_MS => OutageNews::StillFails,
            Some(_) => return None,
        };
        self.told_ms = Some(now_ms);
        Some(self.line(news, at, now_ms))
    }

    fn line(&self, news: OutageNews, at: &str, now_ms: u64) -> OutageLine {
        let seconds = (now_ms - self.since_ms) / 1_000;
        let (at, reason) = (at.to_owned(), self.reason.clone());
        OutageLine { news, at, reason, seconds, failures: self.failures }
    }
}

/// The broker that a client's reason names, as host and port: `h:1/7: Connect to …` or
/// `GroupCoordinator: h:1: Disconnected …`.
fn broker_in(reason: &str) -> Option<&str> {
    reason.split(' ').find_map(|word| {
        let word = word.trim_end_matches(':');
        let word = word.split_once("://").map_or(word, |(_, rest)| rest);
        let address = word.split_once('/').map_or(word, |(address, _)| address);
        let (host, port) = address.rsplit_once(':')?;
        (!host.is_empty() && port.parse::<u16>().is_ok()).then_some(address)
    })
}

/// How many equal failures the client suppressed before this one.
fn suppressed(reason: &str) -> u64 {
    let before = reason.split_once(" identical error(s) suppressed").map(|(before, _)| before);
    before.and_then(|before| before.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: &str = "h:9092/1: Connect to ipv4#127.0.0.1:9092 failed: Connection refused";

    fn set(of: &[&str]) -> BTreeSet<String> {
        of.iter().map(|at| (*at).to_owned()).collect()
    }

    fn failed(outages: &mut Outages, now_ms: u64) -> Option<OutageNews> {
        outages.failed("h:9092", REFUSED, now_ms).map(|line| line.news)
    }

    #[test]
    fn five_clients_make_a_line_when_it_begins_one_a_minute_and_one_at_the_end() {
        let mut outages = Outages::default();
        let mut told = Vec::new();
        for now_ms in (0..150_000).step_by(100) {
            let lines = (0..5).filter_map(|_| failed(&mut outages, now_ms));
            told.extend(lines.map(|news| (news, now_ms)));
        }
        assert_eq!(
            told,
            [
                (OutageNews::Fails, 0),
                (OutageNews::StillFails, 60_000),
                (OutageNews::StillFails, 120_000)
            ]
        );
        let over = outages.stand(&set(&["h:9092"]), &set(&[]), 150_500);
        let [OutageLine { news: OutageNews::Over, seconds: 150, failures: 7_500, .. }] = &over[..]
        else {
            panic!("{over:?}")
        };
        assert_eq!(outages.stand(&set(&["h:9092"]), &set(&[]), 155_000), []);
    }

    #[test]
    fn late_reports_of_an_idle_client_and_broken_connections_are_not_outages() {
        let mut outages = Outages::default();
        let (up, none) = (set(&["h:9092"]), set(&[]));
        assert_eq!(outages.stand(&up, &none, 0), []);
        assert_eq!(failed(&mut outages, 1_000), None);
        assert_eq!(outages.stand(&up, &none, 5_000), [], "another is connected");
        assert_eq!(failed(&mut outages, 6_000), None);
        assert_eq!(outages.stand(&none, &none, 10_000), [], "no client tries to connect");
        let sought = outages.stand(&none, &up, 11_000);
        assert!(matches!(&sought[..], [OutageLine { news: OutageNews::Fails, .. }]), "{sought:?}");
        assert_eq!(failed(&mut outages, 12_000), None, "it was told");
        let over = outages.stand(&none, &none, 72_000);
        assert!(
            matches!(&over[..], [OutageLine { news: OutageNews::Over, .. }]),
            "{over:?}: silence"
        );
    }

    #[test]
    fn reasons_are_read() {
        for (reason, broker, left_out) in [
            (REFUSED, Some("h:9092"), 0),
            ("sasl_ssl://[::1]:9093/bootstrap: SSL handshake failed", Some("[::1]:9093"), 0),
            ("GroupCoordinator: k-1.example:9092: Disconnected", Some("k-1.example:9092"), 0),
            (
                "h:1/2: x (after 0ms in state CONNECT, 7 identical error(s) suppressed)",
                Some("h:1"),
                7,
            ),
            ("3/3 brokers are down", None, 0),
        ] {
            assert_eq!((broker_in(reason), suppressed(reason)), (broker, left_out), "{reason}");
        }
    }
}
