//! Tests of the topic checks without a broker. `log::kafka::tests` has the rest.

use super::*;

fn fine() -> BTreeMap<Topic, Settings> {
    let settings = |topic: Topic| Settings {
        policy: Some(if topic.is_compacted() { "compact" } else { "delete" }.to_owned()),
        limit_bytes: Some(TOPIC_LIMIT_BYTES),
        min_insync: Some(1),
    };
    Topic::OF_TURNS.map(|topic| (topic, settings(topic))).into()
}

fn checked(
    limit: Option<&str>,
    change: impl Fn(&mut BTreeMap<Topic, Settings>),
) -> Result<Option<usize>, String> {
    let mut config = KafkaConfig::default();
    if let Some(limit) = limit {
        config.client.0.insert(MESSAGE_LIMIT.to_owned(), limit.to_owned());
    }
    let mut settings = fine();
    change(&mut settings);
    check(&config, &settings).map_err(|error| error.to_string())
}

#[test]
fn the_topic_of_histories_is_compacted_and_nothing_else() {
    for (policy, is_fine) in [
        ("compact", true),
        ("delete", false),
        ("compact,delete", false),
        ("delete, compact", false),
        ("", false),
    ] {
        let found = checked(None, |settings| {
            settings.get_mut(&Topic::History).unwrap().policy = Some(policy.to_owned());
        });
        assert_eq!(found.is_ok(), is_fine, "{policy}: {found:?}");
        if let Err(said) = found {
            let named = format!("`history` has cleanup.policy={policy},");
            assert!(said.contains(&named) && said.contains("deploy/kafka/topics"), "{said}");
        }
    }
}

#[test]
fn a_topic_accepts_what_the_client_sends() {
    let limit = |topic: Topic, bytes: usize| {
        move |settings: &mut BTreeMap<Topic, Settings>| {
            settings.get_mut(&topic).unwrap().limit_bytes = Some(bytes);
        }
    };
    assert_eq!(checked(None, |_| ()), Ok(Some(TOPIC_LIMIT_BYTES)));
    assert_eq!(checked(None, limit(Topic::History, 2_000_000)), Ok(Some(2_000_000)));
    for topic in [Topic::Responses, Topic::Recorded, Topic::DeadLetters, Topic::History] {
        let said = checked(None, limit(topic, 999_999)).unwrap_err();
        for word in [topic.name(), "999999", "1000000", "max.message.bytes"] {
            assert!(said.contains(word), "{word} is not in {said}");
        }
        let lowered = checked(Some("500000"), limit(topic, 999_999));
        assert_eq!(lowered.is_ok(), topic != Topic::DeadLetters, "{topic:?}: {lowered:?}");
        let raised = checked(Some("1048589"), |_| ()).unwrap_err();
        assert!(raised.contains("1048589"), "{raised}");
    }
    let said = checked(None, limit(Topic::Turns, 5_000_000)).unwrap_err();
    assert!(said.contains("`dead-letters`") && said.contains("5065536"), "{said}");
}

#[test]
fn what_the_broker_does_not_tell_is_not_checked() {
    assert_eq!(checked(None, |settings| settings.clear()), Ok(None));
    let silent = |settings: &mut BTreeMap<Topic, Settings>| {
        settings.insert(Topic::History, Settings::default());
    };
    assert!(checked(None, silent).is_ok());
}

#[test]
fn topics_that_are_created_pass_the_check() {
    for limit in [None, Some("900000"), Some("1048588"), Some("8000000")] {
        let mut config = KafkaConfig::default();
        if let Some(limit) = limit {
            config.client.0.insert(MESSAGE_LIMIT.to_owned(), limit.to_owned());
        }
        let mut settings = fine();
        for (topic, settings) in &mut settings {
            settings.limit_bytes = created_limit(&config, *topic).or(Some(TOPIC_LIMIT_BYTES));
        }
        assert!(check(&config, &settings).is_ok(), "{limit:?}: {settings:?}");
    }
}
