//! Maps each error of the Kafka client to an action.
//!
//! | Error | Action | Result |
//! |---|---|---|
//! | retriable (no leader, a broker is away) | retry until the deadline | [`LogError::Kafka`] |
//! | abortable (a record not delivered, a rebalance) | abort, and try the same again | [`LogError::Kafka`] |
//! | this member does not hold the partitions | drop their outcomes | [`LogError::Stale`] |
//! | fenced: another process has our name | stop | [`LogError::Fenced`] |
//! | refused: ACLs, credentials, topics, limits | stop | [`LogError::Refused`] |
//! | fatal otherwise | stop; a restart continues from the last commit | [`LogError::Kafka`] |
//!
//! `docs/kafka.md` has the same table with exit codes.

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use super::super::LogError;
use super::{KafkaConfig, REQUEST_TIMEOUT};

/// The code of an error, from whichever variant holds it.
pub(super) fn code_of(source: &KafkaError) -> Option<Code> {
    match source {
        KafkaError::AdminOp(code) => Some(*code),
        _ => source.rdkafka_error_code(),
    }
}

/// The remedy of a refused log-in.
const CREDENTIALS: &str = "check `sasl.*` and `ssl.*` in `log.kafka.client`";

/// The error of a broker that refused the credentials, with its message.
pub(super) fn login_refused(doing: &str, said: &str) -> LogError {
    LogError::Refused(format!("{doing}: the broker refuses the credentials: {said}; {CREDENTIALS}"))
}

/// The remedy of an error that every attempt would meet, if one is known.
pub(super) fn remedy_of(source: &KafkaError) -> Option<&'static str> {
    Some(match code_of(source)? {
        Code::SaslAuthenticationFailed => CREDENTIALS,
        Code::UnsupportedSASLMechanism | Code::IllegalSASLState | Code::SecurityDisabled => {
            "the broker does not offer this kind of log-in; check `security.protocol` and \
             `sasl.mechanism` in `log.kafka.client`"
        }
        Code::TopicAuthorizationFailed => {
            "the broker's ACLs forbid it; allow READ of the topics of turns and of history, WRITE \
             to all others and to history, and DESCRIBE of all"
        }
        Code::GroupAuthorizationFailed => {
            "the broker's ACLs forbid it; allow READ of the group `log.kafka.group_id`"
        }
        Code::TransactionalIdAuthorizationFailed => {
            "the broker's ACLs forbid it; allow WRITE and DESCRIBE of the transactional id \
             `log.kafka.transactional_id`"
        }
        Code::ClusterAuthorizationFailed => {
            "the broker's ACLs forbid it; allow IDEMPOTENT_WRITE of the cluster, and CREATE where \
             `log.kafka.create_topics` is set"
        }
        Code::InvalidTransactionTimeout => {
            "lower `log.kafka.transaction_timeout_ms`, or raise the broker's \
             `transaction.max.timeout.ms`"
        }
        Code::InvalidSessionTimeout => {
            "bring `log.kafka.session_timeout_ms` within the broker's `group.min.session.timeout.ms` \
             and `group.max.session.timeout.ms`"
        }
        _ => return None,
    })
}

/// A retriable error, or [`LogError::Refused`] if every attempt would meet it.
pub(super) fn failed(doing: &str, source: KafkaError) -> LogError {
    if let Some(remedy) = remedy_of(&source) {
        return refused(doing, &source, remedy);
    }
    let fatal = matches!(
        source,
        KafkaError::ClientConfig(..)
            | KafkaError::ClientCreation(_)
            | KafkaError::MessageConsumptionFatal(_)
    );
    LogError::Kafka { doing: doing.to_owned(), source, fatal }
}

/// The error when no broker answered within [`REQUEST_TIMEOUT`]. `why` is the client's last reason.
pub(super) fn unanswered(
    config: &KafkaConfig,
    why: Option<String>,
    source: KafkaError,
) -> LogError {
    let servers = &config.bootstrap_servers;
    let seconds = REQUEST_TIMEOUT.as_secs();
    let why = why.unwrap_or_else(|| "no connection was made".to_owned());
    let check = to_check(&why);
    let doing = format!("no broker answered at {servers} in {seconds} s: {why}; {check}");
    LogError::Kafka { doing, source, fatal: false }
}

/// Returns the remedy if no broker answers. `why` has the words of librdkafka 2.12.
fn to_check(why: &str) -> &'static str {
    let says = |words: &[&str]| words.iter().any(|word| why.contains(word));
    match () {
        () if says(&["PLAINTEXT broker listener", "wrong version number"]) => {
            "that port speaks no TLS: check `security.protocol` in `log.kafka.client`, or name the \
             broker's port for TLS in `log.kafka.bootstrap_servers`"
        }
        () if says(&["certificate"]) => {
            "check `ssl.ca.location` in `log.kafka.client`, and that the broker's certificate is for \
             the names in `log.kafka.bootstrap_servers`"
        }
        () if says(&["SSL handshake failed"]) => {
            "check `security.protocol` and `ssl.*` in `log.kafka.client`, and that the port is the \
             broker's for TLS"
        }
        // The broker accepts the connection and closes it at the first request.
        () if says(&["in state UP", "in state APIVERSION_QUERY", "Invalid response size"]) => {
            "that port may want a log-in (SASL) or TLS: check `security.protocol`, `sasl.*` and \
             `ssl.*` in `log.kafka.client`, or name another port of the broker in \
             `log.kafka.bootstrap_servers`"
        }
        () if says(&["resolve"]) => {
            "check the names in `log.kafka.bootstrap_servers`, and that this machine resolves them"
        }
        () => {
            "check that a broker runs there, `log.kafka.bootstrap_servers`, and that nothing between \
             keeps connections out"
        }
    }
}

/// An error that the broker, with its present settings, will return again.
pub(super) fn refused(doing: &str, source: &KafkaError, remedy: &str) -> LogError {
    LogError::Refused(format!("{doing}: {source}; {remedy}"))
}

/// An error after which the client cannot be used any more. `first` is the client's own first
/// fatal error, if it has one; later errors only follow from it.
///
/// The broker uses the same code to fence a client whose transaction outlived its timeout and a
/// client whose id another process took. If our transaction has `outlived` its timeout, there is no
/// other process to look for, and a restart recovers.
pub(super) fn fatal(
    config: &KafkaConfig,
    doing: &str,
    first: Option<Code>,
    outlived: bool,
    source: KafkaError,
) -> LogError {
    let codes = || first.into_iter().chain(code_of(&source));
    let named = |code| match code {
        Code::ProducerFenced | Code::Fenced | Code::InvalidProducerEpoch if !outlived => {
            Some(("transactional id", &config.transactional_id))
        }
        Code::FencedInstanceId => Some(("group instance id", &config.group_instance_id)),
        _ => None,
    };
    if let Some((name, id)) = codes().find_map(named) {
        return LogError::Fenced { name, id: id.clone() };
    }
    let known = codes().find_map(|code| remedy_of(&KafkaError::Global(code)));
    if let Some(remedy) = known {
        return refused(doing, &source, remedy);
    }
    let doing = if outlived {
        format!(
            "{doing}; the transaction outlived `log.kafka.transaction_timeout_ms` and was aborted, \
             perhaps because the process was halted"
        )
    } else {
        doing.to_owned()
    };
    LogError::Kafka { doing, source, fatal: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fencing_error_names_the_fenced_id() {
        let config = KafkaConfig {
            transactional_id: "writer-3".to_owned(),
            group_instance_id: "member-3".to_owned(),
            ..KafkaConfig::default()
        };
        for (first, code, expected) in [
            (None, Code::ProducerFenced, "writer-3"),
            (None, Code::Fenced, "writer-3"),
            (None, Code::InvalidProducerEpoch, "writer-3"),
            (None, Code::FencedInstanceId, "member-3"),
            (Some(Code::Fenced), Code::Fatal, "writer-3"),
            (Some(Code::FencedInstanceId), Code::State, "member-3"),
        ] {
            let error = fatal(&config, "committing", first, false, KafkaError::Global(code));
            let LogError::Fenced { id, .. } = &error else { panic!("{code:?}: {error}") };
            assert_eq!(id, expected, "{first:?} {code:?}");
        }
        let fenced = || KafkaError::Global(Code::Fenced);
        let outlived = fatal(&config, "committing", None, true, fenced());
        assert!(matches!(outlived, LogError::Kafka { fatal: true, .. }), "{outlived:?}");
        assert!(outlived.to_string().contains("transaction_timeout_ms"), "{outlived}");
        let member = KafkaError::Global(Code::FencedInstanceId);
        let member = fatal(&config, "reading", None, true, member);
        assert!(matches!(member, LogError::Fenced { .. }), "{member:?}");
        let state = KafkaError::Global(Code::InvalidTransactionalState);
        let other = fatal(&config, "committing", None, false, state);
        assert!(matches!(other, LogError::Kafka { fatal: true, .. }), "{other:?}");
    }

    #[test]
    fn permanent_errors_are_refused_with_a_remedy() {
        for (code, remedy) in [
            (Code::SaslAuthenticationFailed, "sasl.*"),
            (Code::UnsupportedSASLMechanism, "sasl.mechanism"),
            (Code::TopicAuthorizationFailed, "READ of the topics"),
            (Code::GroupAuthorizationFailed, "log.kafka.group_id"),
            (Code::TransactionalIdAuthorizationFailed, "log.kafka.transactional_id"),
            (Code::ClusterAuthorizationFailed, "log.kafka.create_topics"),
            (Code::InvalidTransactionTimeout, "log.kafka.transaction_timeout_ms"),
            (Code::InvalidSessionTimeout, "log.kafka.session_timeout_ms"),
        ] {
            for error in [
                failed("asking", KafkaError::AdminOp(code)),
                fatal(&KafkaConfig::default(), "asking", None, false, KafkaError::Global(code)),
            ] {
                let LogError::Refused(said) = &error else { panic!("{code:?}: {error:?}") };
                assert!(said.starts_with("asking: ") && said.contains(remedy), "{said}");
            }
        }
        let gone = failed("asking", KafkaError::MetadataFetch(Code::BrokerTransportFailure));
        assert!(!gone.is_fatal(), "{gone:?}");
    }

    /// The reasons are in the words of librdkafka 2.12.
    #[test]
    fn an_unreachable_broker_is_reported_with_what_to_check() {
        let config = KafkaConfig::default();
        for (why, check) in [
            ("h:1/bootstrap: Connect to ipv4#10.0.0.1:1 failed: Connection refused", "broker runs"),
            ("h:1/bootstrap: Failed to resolve 'h:1': Name or service not known", "resolves them"),
            (
                "h:1/bootstrap: Disconnected: connection closed by peer: receive 0 after POLLIN \
                 (after 49ms in state UP, 1 identical error(s) suppressed)",
                "a log-in (SASL)",
            ),
            (
                "h:1/bootstrap: Receive failed: Invalid response size 352518912 (0..100000000): \
                 increase receive.message.max.bytes",
                "or TLS",
            ),
            (
                "ssl://h:1/bootstrap: SSL handshake failed: connecting to a PLAINTEXT broker \
                 listener?",
                "speaks no TLS",
            ),
            (
                "ssl://h:1/bootstrap: SSL handshake failed: broker certificate could not be \
                 verified, verify that ssl.ca.location is correctly configured",
                "`ssl.ca.location`",
            ),
            ("", "broker runs"),
        ] {
            let source = KafkaError::MetadataFetch(Code::BrokerTransportFailure);
            let error = unanswered(&config, Some(why.to_owned()), source);
            assert!(!error.is_fatal(), "{error:?}");
            let said = error.to_string();
            let begins = format!("no broker answered at {} in 30 s: ", config.bootstrap_servers);
            assert!(said.starts_with(&begins) && said.contains(why), "{said}");
            assert!(said.contains(check), "{said}");
        }
    }
}
