//! Tests kept fixtures of durable records: a record that was written once must be readable for
//! ever.
//!
//! `tests/fixtures/records/vN/NAME.json` is a record as version N wrote it, with every field
//! filled; `NAME.VARIANT.json` is another of its kind. NAME is that of the published schema. A
//! fixture is never edited or removed; a new version gets a folder of its own.

#![allow(clippy::unwrap_used, reason = "a fixture that is not there fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use turnstream_schemas::{
    BriefResponse, ConversationRecord, DeadLetter, EntryKey, HistoryChange, HistoryEntry, Recorded,
    Response, SCHEMA_VERSION, ScopeRecord, TurnsRecord, published,
};

/// A fixture whose shape is read but no longer written, and the one of the shape that it is written in.
const REWRITTEN: (&str, &str) = ("history-scope", "history-scope.lists");

struct Fixture {
    path: PathBuf,
    name: String,
    /// Whether it is the one of its name with every field filled; there are two for turns, since a
    /// directive is another record.
    full: bool,
    record: Value,
}

/// Returns all fixtures of a version, in the order of their names.
fn fixtures(version: u32) -> Vec<Fixture> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/records")
        .join(format!("v{version}"));
    let files = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: no fixtures: {error}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let name = stem.split('.').next().unwrap().to_owned();
        let record = serde_json::from_slice(&std::fs::read(&path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Fixture { full: name == stem || stem == "turn.takeover", path, name, record }
    };
    paths.into_iter().map(read).collect()
}

/// Reads the record as the type of its name and writes it again.
fn round_trip(name: &str, record: &Value) -> Result<Value, serde_json::Error> {
    fn through<T: DeserializeOwned + Serialize>(
        record: &Value,
    ) -> Result<Value, serde_json::Error> {
        serde_json::to_value(serde_json::from_str::<T>(&record.to_string())?)
    }
    match name {
        "turn" => serde_json::to_value(TurnsRecord::parse(&record.to_string())?),
        "response" if record.get("gate").is_none() => {
            let response: Response = serde_json::from_str(&record.to_string())?;
            serde_json::to_value(BriefResponse::from(&response))
        }
        "response" => through::<Response>(record),
        "recorded" => through::<Recorded>(record),
        "dead-letter" => through::<DeadLetter>(record),
        "conversation" => through::<ConversationRecord>(record),
        "history-key" => through::<EntryKey>(record),
        "history-entry" => through::<HistoryEntry>(record),
        "history-scope" => through::<ScopeRecord>(record),
        "history-change" => through::<HistoryChange>(record),
        _ => panic!("`{name}` is no durable record that this test knows"),
    }
}

fn schema(name: &str) -> Value {
    let schema = published::find(name).unwrap_or_else(|| panic!("no schema `{name}`"));
    serde_json::from_str(&schema.text()).unwrap()
}

/// Returns the record's own schema if the published one allows several.
fn schema_of(name: &str, record: &Value) -> Value {
    let whole = schema(name);
    let Some(several) = whole["anyOf"].as_array().filter(|_| whole["properties"].is_null()) else {
        return whole;
    };
    let mut own = several.iter().filter_map(|one| {
        let name = one["$ref"].as_str()?.strip_prefix("#/$defs/")?;
        let mut one = whole["$defs"][name].clone();
        one["$defs"] = whole["$defs"].clone();
        jsonschema::is_valid(&one, record).then_some(one)
    });
    let first = own.next().unwrap_or_else(|| panic!("{name}: nothing allows {record}"));
    assert_eq!(own.next(), None, "{name}: two of its records allow {record}");
    first
}

#[test]
fn every_version_is_read_and_nothing_of_it_is_lost() {
    for version in 1..=SCHEMA_VERSION {
        let fixtures = fixtures(version);
        for Fixture { path, name, record, .. } in &fixtures {
            let stem = path.file_stem().unwrap();
            let written_as = if stem == REWRITTEN.0 { REWRITTEN.1.as_ref() } else { stem };
            let of_shape = fixtures.iter().find(|it| it.path.file_stem() == Some(written_as));
            let rewritten = of_shape.map_or(Value::Null, |it| it.record.clone());
            let path = path.display();
            let again = round_trip(name, record).unwrap_or_else(|e| panic!("{path}: {e}"));
            assert_eq!(again, rewritten, "{path}: not the same when written again");
            if let Some(written) = record.get("schema_version") {
                assert_eq!(*written, version, "{path}: lies in another version's folder");
            }
        }
    }
}

#[test]
fn every_fixture_is_valid_under_the_published_schema() {
    let mut validators = BTreeMap::new();
    for Fixture { path, name, record, .. } in (1..=SCHEMA_VERSION).flat_map(fixtures) {
        let validator = validators
            .entry(name.clone())
            .or_insert_with(|| jsonschema::validator_for(&schema(&name)).unwrap());
        let errors: Vec<_> = validator.iter_errors(&record).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:#?}", path.display());
    }
}

/// The schemas refuse what they should: a record without one of its required fields.
#[test]
fn a_record_without_a_required_field_is_not_valid() {
    for Fixture { name, record, full, .. } in fixtures(SCHEMA_VERSION) {
        let own = schema_of(&name, &record);
        let Some(required) = own["required"].as_array().filter(|_| full) else { continue };
        let validator = jsonschema::validator_for(&schema(&name)).unwrap();
        for field in required {
            let field = field.as_str().unwrap();
            let mut record = record.clone();
            record.as_object_mut().unwrap().remove(field);
            assert!(!validator.is_valid(&record), "{name} is valid without {field}");
            assert!(round_trip(&name, &record).is_err(), "{name} is read without {field}");
        }
    }
}

#[test]
fn the_current_version_has_a_full_fixture_of_every_durable_record() {
    let fixtures = fixtures(SCHEMA_VERSION);
    let names: BTreeSet<_> = fixtures.iter().filter(|f| f.full).map(|f| &*f.name).collect();
    let durable = [
        "conversation",
        "dead-letter",
        "history-change",
        "history-entry",
        "history-key",
        "history-scope",
        "recorded",
        "response",
        "turn",
    ];
    assert_eq!(names.into_iter().collect::<Vec<_>>(), durable);
    for Fixture { name, record, .. } in fixtures.iter().filter(|fixture| fixture.full) {
        let own = schema_of(name, record);
        for field in own["properties"].as_object().into_iter().flat_map(|fields| fields.keys()) {
            assert!(record.get(field).is_some(), "{name}: the full fixture has no `{field}`");
        }
    }
}

/// A directive that names no history is invalid.
#[test]
fn a_directive_names_something() {
    let validator = jsonschema::validator_for(&schema("turn")).unwrap();
    for (ids, expected) in [
        (serde_json::json!({ "conversation_id": "c" }), true),
        (serde_json::json!({ "user_id": "u" }), true),
        (serde_json::json!({ "tenant_id": "t" }), false),
    ] {
        let mut record = ids.clone();
        record["kind"] = "forget".into();
        assert_eq!(validator.is_valid(&record), expected, "{record}");
        assert!(
            !validator.is_valid(&ids),
            "without its kind it is a turn that says nothing: {ids}"
        );
    }
}
