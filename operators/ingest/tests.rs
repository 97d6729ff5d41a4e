//! Which records become turns, and which are refused for which reason.

use super::*;

fn refusal(bytes: &[u8], change: impl Fn(&mut TurnsConfig)) -> String {
    let mut config = TurnsConfig::default();
    change(&mut config);
    let original =
        Original { value: Some(bytes.to_vec()), time_ms: Some(0), ..Original::default() };
    parsed(&original, &config).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn bad_input_is_refused_with_its_reason() {
    let plain = |_: &mut TurnsConfig| {};
    let said = |text: &str| {
        format!(r#"{{"conversation_id":"c","speaker":"user","text":"{text}"}}"#).into_bytes()
    };
    let rows: &[(Vec<u8>, &str)] = &[
        (b"\xff\xfe".to_vec(), "not UTF-8 from byte 0"),
        (b"hello".to_vec(), "expected value at line 1 column 1"),
        (b"[]".to_vec(), "not a turn"),
        (br#"{"speaker":"user","text":"x"}"#.to_vec(), "missing field `conversation_id`"),
        (
            br#"{"conversation_id":" ","speaker":"user","text":"x"}"#.to_vec(),
            "`conversation_id` is empty",
        ),
        (
            br#"{"conversation_id":"c","speaker":"user","text":7}"#.to_vec(),
            "invalid type: integer `7`",
        ),
        (
            br#"{"conversation_id":"c","speaker":"robot","text":"x"}"#.to_vec(),
            "unknown variant `robot`",
        ),
        (said(""), "`text` is empty"),
        (said(&"x".repeat(9_000)), "`text` has 9000 bytes"),
        (said("a\\u0007b"), "U+0007 at byte 1"),
        (said("a\\u0085b"), "U+0085"),
        (
            br#"{"kind":"sing","conversation_id":"c","speaker":"user","text":"x"}"#.to_vec(),
            "unknown variant `sing`",
        ),
        (br#"{"kind":"forget"}"#.to_vec(), "names neither a conversation nor a user"),
        (
            br#"{"kind":"forget","user_id":"u"}"#.to_vec(),
            "send one such record for each of them, with its `conversation_id`",
        ),
        (br#"{"kind":"forget","conversation_id":" "}"#.to_vec(), "`conversation_id` is empty"),
        (
            br#"{"kind":"forget","conversation_id":"c","turn_id":"a\u0007"}"#.to_vec(),
            "`turn_id` has the control character U+0007",
        ),
        (br#"{"kind":"forget","schema_version":2,"conversation_id":"c"}"#.to_vec(), "newer than 1"),
        (
            br#"{"schema_version":2,"conversation_id":"c","speaker":"user","text":"x"}"#.to_vec(),
            "newer than 1",
        ),
        (
            br#"{"conversation_id":"c","speaker":"user","text":"x","timestamp":90000000}"#.to_vec(),
            "90000 s from the log's time",
        ),
        (
            br#"{"conversation_id":"c","speaker":"user","text":"x","turn_id":""}"#.to_vec(),
            "`turn_id` is empty",
        ),
    ];
    for (bytes, expected) in rows {
        let found = refusal(bytes, plain);
        assert!(found.contains(expected), "{expected:?} is not in {found:?}");
    }
    let no_user = refusal(&said("x"), |config| config.scope = ScopeKind::User);
    assert!(no_user.contains("user_id"), "{no_user}");
    for ids in [r#""conversation_id":"c""#, r#""conversation_id":"c","user_id":"u""#] {
        let forget = format!(r#"{{"kind":"forget",{ids}}}"#).into_bytes();
        let part = refusal(&forget, |config| config.scope = ScopeKind::User);
        assert!(part.contains("send `user_id` without `conversation_id`"), "{part}");
    }
    let large = refusal(&said("x"), |config| config.max_record_bytes = 10);
    assert!(large.contains("max_record_bytes = 10"), "{large}");
}

#[test]
fn a_turn_without_time_takes_the_logs_and_without_that_a_synthetic_one() {
    let value = Some(br#"{"conversation_id":"c","speaker":"user","text":"x"}"#.to_vec());
    let record = |time_ms| InputRecord {
        offset: 7,
        original: Original { value: value.clone(), time_ms, ..Original::default() },
        ..InputRecord::default()
    };
    let config = TurnsConfig::default();
    let topic = InputTopic::from("turns");
    let turn = |time_ms| match read(record(time_ms), &config, &topic) {
        Ok(Arrived::Turn(turn)) => turn,
        other => panic!("no turn: {other:?}"),
    };
    assert_eq!(turn(Some(42)).event_time, EventTime(42));
    assert_eq!(turn(Some(42)).turn_id.as_str(), "0-7");
    assert_eq!(turn(None).event_time, EventTime(7_000));
}

#[test]
fn a_demand_to_forget_is_for_the_scope_that_it_names() {
    let of = |json: &str, scope| {
        let original = Original { value: Some(json.as_bytes().to_vec()), ..Original::default() };
        let record = InputRecord { offset: 7, original, ..InputRecord::default() };
        let config = TurnsConfig { scope, ..TurnsConfig::default() };
        match read(record, &config, &InputTopic::from("turns")) {
            Ok(Arrived::Directive(forget)) => forget,
            other => panic!("no demand to forget: {other:?}"),
        }
    };
    let conversation =
        of(r#"{"kind":"forget","conversation_id":"c","user_id":"u"}"#, ScopeKind::Conversation);
    assert_eq!(conversation.scope, Scope::new(None, "c"));
    assert_eq!(conversation.turn_id.as_str(), "0-7");
    let user =
        of(r#"{"kind":"forget","tenant_id":"t","user_id":"u","turn_id":"f"}"#, ScopeKind::User);
    assert_eq!(user.scope, Scope::new(Some(&"t".into()), "u"));
    assert_eq!(user.turn_id.as_str(), "f");
}

#[test]
fn a_refused_record_that_ends_its_scope_says_which() {
    let ended = |json: &str| {
        let original = Original { value: Some(json.as_bytes().to_vec()), ..Original::default() };
        let record = InputRecord { original, last_of_scope: true, ..InputRecord::default() };
        match ended_scope(&record, &TurnsConfig::default()) {
            Some(Arrived::Ended { scope, .. }) => Some(scope),
            other => other.map(|other| panic!("{other:?}")),
        }
    };
    let of = Some(Scope::new(None, "c"));
    assert_eq!(ended(r#"{"conversation_id":"c","speaker":"user","text":""}"#), of);
    assert_eq!(ended(r#"{"kind":"forget","conversation_id":"c","turn_id":""}"#), of);
    assert_eq!(ended(r#"{"kind":"forget","user_id":"u"}"#), None);
}

#[test]
fn line_breaks_and_tabs_are_text() {
    let original = Original {
        value: Some(br#"{"conversation_id":"c","speaker":"user","text":"a\n\tb"}"#.to_vec()),
        ..Original::default()
    };
    assert!(parsed(&original, &TurnsConfig::default()).is_ok());
}

#[test]
fn a_keyed_turn_on_another_partition_than_its_keys_is_a_dead_letter() {
    let topic = |partitions| InputTopic { name: "turns".into(), partitions };
    let reason = |partitioner, key: Option<&str>, partition, partitions| {
        let value = br#"{"conversation_id":"c-17","speaker":"user","text":"x"}"#.to_vec();
        let original = Original {
            key: key.map(|key| key.as_bytes().to_vec()),
            value: Some(value),
            ..Original::default()
        };
        let record = InputRecord { partition, original, ..InputRecord::default() };
        let config = TurnsConfig { partitioner, ..TurnsConfig::default() };
        read(record, &config, &topic(partitions)).err().map(|finished| {
            let (outcome, _) = &finished.outcomes[0];
            let Outcome::DeadLetter(letter) = outcome else { panic!("{outcome:?}") };
            letter.fault.reason.clone()
        })
    };
    let (murmur2, crc32) = (Partitioner::Murmur2, Partitioner::Crc32);
    // Of 13 partitions `c-17` belongs on 12 by murmur2, and on 7 by CRC32.
    for (partitioner, key, partition, partitions) in [
        (murmur2, Some("c-17"), 12, Some(13)),
        (crc32, Some("c-17"), 7, Some(13)),
        (murmur2, None, 3, Some(13)),
        (crc32, Some(""), 3, Some(13)),
        (murmur2, Some("c-17"), 3, None),
        (Partitioner::Unchecked, Some("c-17"), 3, Some(13)),
    ] {
        let found = reason(partitioner, key, partition, partitions);
        assert_eq!(found, None, "{partitioner:?} {key:?} on {partition} of {partitions:?}");
    }
    let found = reason(murmur2, Some("c-17"), 7, Some(13)).expect("another's partition");
    for said in ["partition 7,", "partition 12 of 13", "turns.partitioner = \"murmur2\"", "client"]
    {
        assert!(found.contains(said), "{said} is not in {found}");
    }
}
