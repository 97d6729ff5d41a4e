//! Checks of the topics' settings on the broker. They refuse settings that would lose histories
//! later or leave an outcome that no topic accepts.

use std::collections::BTreeMap;

use rdkafka::admin::{AdminClient, ConfigResource, OwnedResourceSpecifier, ResourceSpecifier};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use super::super::super::{LogError, Topic};
use super::super::KafkaConfig;
use super::super::config::MESSAGE_LIMIT;
use super::super::errors::{code_of, failed};
use super::super::restore::OutsideGroup;
use super::{options, wait_for};

/// Kafka's own default of `max.message.bytes`.
const TOPIC_LIMIT_BYTES: usize = 1_048_588;

/// The room for a dead letter's own headers (reason and place), in bytes, beyond its input.
const LETTER_BYTES: usize = 65_536;

/// The settings of a topic, as far as the broker reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// `cleanup.policy`.
    pub(super) policy: Option<String>,
    /// `max.message.bytes`.
    pub(super) limit_bytes: Option<usize>,
    /// `min.insync.replicas`.
    pub(super) min_insync: Option<usize>,
}

/// Asks for the settings of topics. Settings that the broker does not report are not checked.
pub(super) fn settings(
    admin: &AdminClient<OutsideGroup>,
    config: &KafkaConfig,
    topics: &[Topic],
) -> Result<BTreeMap<Topic, Settings>, LogError> {
    let name = |topic: &Topic| ResourceSpecifier::Topic(config.topics.name(*topic));
    let names: Vec<ResourceSpecifier<'_>> = topics.iter().map(name).collect();
    let described = match wait_for(admin.describe_configs(&names, &options())) {
        Ok(described) => described,
        Err(source) if is_forbidden(&source) => Vec::new(),
        Err(source) => {
            let doing = format!("asking {} for the settings of topics", config.bootstrap_servers);
            return Err(failed(&doing, source));
        }
    };
    let mut settings = BTreeMap::new();
    for resource in described.into_iter().flatten() {
        let OwnedResourceSpecifier::Topic(name) = &resource.specifier else { continue };
        if let Some(topic) = topics.iter().find(|of| config.topics.name(**of) == name) {
            settings.insert(*topic, read(&resource));
        }
    }
    for topic in topics {
        // The client library does not report that a single topic was forbidden: its settings are
        // empty.
        if settings.get(topic).is_none_or(|found| found.policy.is_none()) {
            tracing::warn!(
                topic = config.topics.name(*topic),
                "the broker does not report the topic's settings (permission DESCRIBE_CONFIGS), so \
                 its cleanup.policy and max.message.bytes are not checked"
            );
        }
    }
    Ok(settings)
}

fn is_forbidden(source: &KafkaError) -> bool {
    matches!(
        code_of(source),
        Some(Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed)
    )
}

fn read(resource: &ConfigResource) -> Settings {
    let value = |name| resource.get(name).and_then(|entry| entry.value.clone());
    let number = |name| value(name).and_then(|value| value.parse().ok());
    Settings {
        policy: value("cleanup.policy"),
        limit_bytes: number("max.message.bytes"),
        min_insync: number("min.insync.replicas"),
    }
}

/// Refuses settings that would lose histories or stop the process later. Returns the largest record
/// that a topic of outcomes accepts.
pub(super) fn check(
    config: &KafkaConfig,
    settings: &BTreeMap<Topic, Settings>,
) -> Result<Option<usize>, LogError> {
    for (topic, found) in settings {
        check_policy(config.topics.name(*topic), *topic, found)?;
    }
    let written = Topic::OF_TURNS.into_iter().filter(|topic| *topic != Topic::Turns);
    let outcomes = || written.clone().chain(Topic::MAY_BE_MISSING);
    let limit = |topic| settings.get(&topic).and_then(|found| found.limit_bytes);
    let sent = config.sent_bytes();
    for topic in outcomes() {
        let Some(accepted) = limit(topic).filter(|accepted| *accepted < sent) else { continue };
        let name = config.topics.name(topic);
        return Err(LogError::Refused(format!(
            "topic `{name}` accepts records and batches of {accepted} bytes (`max.message.bytes`), \
             and the client sends up to {sent} (`{MESSAGE_LIMIT}`): an outcome in between would \
             stop the process; raise the first to {sent} (`deploy/kafka/topics` creates it so), or \
             lower `log.kafka.client.\"{MESSAGE_LIMIT}\"`"
        )));
    }
    if let (Some(turns), Some(letters)) = (limit(Topic::Turns), limit(Topic::DeadLetters)) {
        let names = (config.topics.name(Topic::Turns), config.topics.name(Topic::DeadLetters));
        if letters < turns {
            return Err(LogError::Refused(format!(
                "topic `{}` accepts records of {letters} bytes (`max.message.bytes`) and `{}` of \
                 {turns}: a large record that is not a turn could not become a dead letter, and \
                 would stop the process; raise the first to {}",
                names.1,
                names.0,
                turns + LETTER_BYTES
            )));
        }
        let client = config.message_limit_bytes().unwrap_or(usize::MAX);
        if letters.min(client) < turns + LETTER_BYTES {
            tracing::warn!(
                turns,
                letters,
                client = config.message_limit_bytes(),
                wanted = turns + LETTER_BYTES,
                "a record that is not a turn and nearly as large as its topic allows could not \
                 become a dead letter, which also has headers, and would stop the process; raise \
                 max.message.bytes of topic `{}`, and message.max.bytes where it is set",
                names.1
            );
        }
    }
    Ok(outcomes().filter_map(limit).max())
}

fn check_policy(name: &str, topic: Topic, found: &Settings) -> Result<(), LogError> {
    let Some(policy) = &found.policy else { return Ok(()) };
    let has = |wanted| policy.split(',').any(|it| it.trim() == wanted);
    if topic.is_compacted() && (!has("compact") || has("delete")) {
        let (of, lost) = match topic {
            Topic::Knowledge => ("knowledge", "changes to it would be forgotten"),
            Topic::Views => ("views", "counts that do not change would be gone"),
            Topic::Conversations => ("conversations", "their holders would be forgotten"),
            _ => ("histories", "conversations would lose their histories"),
        };
        return Err(LogError::Refused(format!(
            "topic `{name}` has cleanup.policy={policy}, and the topic of {of} must have compact \
             alone: deleted by age, {lost}; set cleanup.policy=compact, or create it with \
             `deploy/kafka/topics` or `log.kafka.create_topics`"
        )));
    }
    if !topic.is_compacted() && has("compact") {
        tracing::warn!(
            topic = name,
            policy,
            "records of the same key replace each other on this topic, so late readers miss some; \
             set cleanup.policy=delete"
        );
    }
    Ok(())
}

/// `max.message.bytes` of a topic that is created, if Kafka's default is too small.
pub(super) fn created_limit(config: &KafkaConfig, topic: Topic) -> Option<usize> {
    let client = config.sent_bytes();
    let needed = match topic {
        // A dead letter must hold any turn, so the limit is set even if it is Kafka's default.
        Topic::Turns => return Some(TOPIC_LIMIT_BYTES),
        Topic::DeadLetters => client.max(TOPIC_LIMIT_BYTES + LETTER_BYTES),
        Topic::Responses | Topic::Traces | Topic::Recorded | Topic::History => client,
        // Batches of the client may be as large as its limit, however small their records.
        Topic::Conversations => client,
        // Changes, counts and words are small.
        Topic::Knowledge | Topic::Partials | Topic::Views => return None,
    };
    (needed > TOPIC_LIMIT_BYTES).then_some(needed)
}

#[cfg(test)]
mod tests;
