//! Tests of the shipped configuration: defaults, sample, checks and documentation.

use std::collections::BTreeSet;
use std::env::VarError;
use std::path::Path;

use turnstream_schemas::Stage;

use crate::config::load::read_str;
use crate::config::schema::alternatives;
use crate::config::shape::schema_of;
use crate::config::{Config, ConfigError, KeyPath, Loaded};

fn lookup(name: &str) -> Result<String, VarError> {
    if name == "SECRET" { Ok("hunter22".to_owned()) } else { Err(VarError::NotPresent) }
}

fn config(text: &str) -> Result<Loaded<Config>, ConfigError> {
    read_str::<Config>("t.toml", text, &lookup).and_then(Loaded::validated)
}

#[test]
fn the_defaults_are_valid_and_read_back() {
    let defaults = Loaded::<Config>::defaults().validated().expect("valid");
    let printed = defaults.to_toml().expect("prints");
    let again = read_str::<Config>("t.toml", &printed, &lookup).expect("reads back");
    assert_eq!(again.value, Config::default());
}

/// The sample is the output of `turnstream validate --print`, so it has every key.
#[test]
fn the_sample_is_the_defaults() {
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/config/turnstream.toml");
    let sample = std::fs::read_to_string(sample).expect("the sample is there");
    let printed = Loaded::<Config>::defaults().to_toml().expect("prints");
    assert!(
        sample == printed,
        "deploy/config/turnstream.toml is not the defaults; run\n  \
         cargo run -- validate --print > deploy/config/turnstream.toml"
    );
}

#[test]
fn numbers_out_of_range_are_refused_by_key() {
    for (key, wrong, range) in [
        ("turns.max_in_flight", "0", "an integer of at least 1"),
        ("history.alpha", "1.1", "a number from 0 to 1"),
        ("history.max_entries", "100_001", "an integer from 0 to 100000"),
        ("history.half_life_seconds", "0", "an integer of at least 1"),
        ("history.recall.min_relevance", "-1", "a number from 0 to 1"),
        ("history.chains.max_entries", "0", "an integer of at least 1"),
        ("gate.threshold", "2", "a number from 0 to 1"),
        ("gate.weights.bias", "inf", "a number"),
        ("gate.search.min_similarity", "0", "a number above 0 and at most 1"),
        ("gate.linking.max_words", "6", "an integer from 1 to 5"),
        ("query_production.recency.system", "9", "a number from 0 to 1"),
        ("query_production.by_meaning.max_facts", "1_025", "an integer from 1 to 1024"),
        ("persona_retrieval.max_sentence_bytes", "70_000", "an integer from 1 to 65536"),
        ("persona_retrieval.min_score", "nan", "a number that 64 bits can hold"),
        ("integration.temperature", "0.0", "a number from 0.01 to 10"),
        ("relevance.calibration_slope", "0.0", "a number above 0"),
        ("self_refinement.steps", "6", "an integer from 0 to 5"),
        ("decision.hand_off.nothing_found_turns", "65", "an integer from 0 to 64"),
        ("generation.prompted.temperature", "2.1", "a number from 0 to 2"),
        ("generation.prompted.call.attempts", "0", "an integer of at least 1"),
        ("generation.prompted.call.timeout_ms", "0", "an integer of at least 1"),
        ("embedding.call.busy_retry_ms", "0", "an integer of at least 1"),
        ("metrics.live_stall_seconds", "9", "an integer of at least 10"),
        ("run.workers", "257", "an integer from 1 to 256"),
    ] {
        let said = config(&format!("{key} = {wrong}")).expect_err(key).to_string();
        assert!(said.starts_with(&format!("t.toml:1: {key}: expected {range}")), "{said}");
    }
}

#[test]
fn sections_are_checked() {
    let said = config("[turns]\nmax_text_bytes = 300_000\n").expect_err("refused");
    let places: Vec<_> = said.problems().into_iter().map(|it| (it.line, it.key)).collect();
    assert_eq!(places, [(Some(1), "turns.max_record_bytes".to_owned())]);
    let shares = "[fact_retrieval]\ndemand_share = 0.7\nstrength_share = 0.7\n";
    let said = config(shares).expect_err("refused").to_string();
    assert!(said.starts_with("t.toml:3: fact_retrieval.strength_share: "), "{said}");
}

#[test]
fn stages_and_logs_are_checked() {
    let kafka = "[log.kafka]\ngroup_id = ''\nmax_poll_interval_ms = 10\n\
                 [log.kafka.topics]\nturns = 'a'\nhistory = 'a'\n";
    let said = |text| match config(text) {
        Err(error) => error.to_string(),
        Ok(_) => String::new(),
    };
    assert_eq!(
        said(kafka).lines().collect::<Vec<_>>(),
        [
            "t.toml:2: log.kafka.group_id: expected a string that is not empty; name one",
            "t.toml:3: log.kafka.max_poll_interval_ms: less than session_timeout_ms; raise it, \
             or lower session_timeout_ms",
            "t.toml:6: log.kafka.topics.history: the same topic as turns; name another topic",
        ]
    );
    // A form that the stage does not have is named with the key and with those that it has.
    for (text, says) in [
        (
            "[query_production]\nform = 'learned'",
            "t.toml:2: query_production.form: expected one of \"lexical\", \"prompted\", \"off\", \
             found the string \"learned\"",
        ),
        (
            "[history.summaries]\nform = 'off'",
            "t.toml:2: history.summaries.form: expected one of \"lexical\", \"prompted\", found the \
             string \"off\"",
        ),
    ] {
        assert!(said(text).starts_with(says), "{}", said(text));
    }
    assert_eq!(
        said("[log]\nkind = 'embedded'\n[log.kafka]\ngroup_id = ''"),
        "t.toml:1: log.directory: missing; the embedded log lives in a directory; name one"
    );
    let guarded = said("[log.kafka.client]\n'isolation.level' = 'read_uncommitted'");
    assert!(guarded.starts_with("t.toml:2: log.kafka.client.\"isolation.level\": "), "{guarded}");
}

#[test]
fn a_local_model_is_refused_by_the_key_that_is_wrong() {
    let text = "[language_models.one]\nkind = 'local'\npath = 'm.gguf'\nmax_sequences = 9\n\
                step_tokens = 17\n[language_models.two]\nkind = 'local'\npath = 'm.gguf'\n\
                [language_models.two.sampling]\ntop_p = 0\n";
    assert_eq!(
        config(text).expect_err("refused").to_string().lines().collect::<Vec<_>>(),
        [
            "t.toml:5: language_models.one.step_tokens: it is 17; it is at least twice \
             max_sequences, 18",
            "t.toml:10: language_models.two.sampling.top_p: it is 0; it is above 0 and at most 1",
        ]
    );
}

#[test]
fn no_secret_of_kafka_is_shown() {
    let text = "[log.kafka.client]\n'sasl.password' = '${SECRET}'\n\
                'sasl.oauthbearer.client.secret' = 'swordfish'\n'sasl.username' = \
                'user-${SECRET}'\n'security.protocol' = 'sasl_plaintext'\n\
                'sasl.mechanism' = 'PLAIN'\n";
    // Some builds have a client that refuses these settings, so the test only reads them.
    let loaded = read_str::<Config>("t.toml", text, &lookup).expect("read");
    let client = &loaded.value.log.kafka.client.0;
    assert_eq!(client["sasl.password"], "hunter22", "it still reaches the client");
    let printed = loaded.to_toml().expect("prints");
    for shown in [printed.clone(), format!("{:?}", loaded.value)] {
        assert!(!shown.contains("hunter22") && !shown.contains("swordfish"), "{shown}");
    }
    for line in [
        "\"sasl.password\" = \"${SECRET}\"",
        "\"sasl.oauthbearer.client.secret\" = \"********\"",
        "\"sasl.username\" = \"user-${SECRET}\"",
        "\"security.protocol\" = \"sasl_plaintext\"",
    ] {
        assert!(printed.lines().any(|it| it == line), "{line} is not in:\n{printed}");
    }
}

/// Every key has a description, which the sample and the errors show.
#[test]
fn every_key_is_documented() {
    fn walk(schema: &serde_json::Value, path: &KeyPath, found: &mut Vec<String>) {
        for schema in alternatives(schema) {
            let keys = schema.get("properties").and_then(serde_json::Value::as_object);
            for (name, below) in keys.into_iter().flatten() {
                let path = path.key(name);
                let documented = below.get("description").is_some() || below.get("const").is_some();
                if !documented {
                    found.push(path.to_string());
                }
                walk(below, &path, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(&schema_of::<Config>(), &KeyPath::root(), &mut found);
    assert_eq!(found, Vec::<String>::new(), "keys without documentation");
}

#[test]
fn the_table_of_stages_says_what_their_sections_take() {
    let schema = schema_of::<Config>();
    let defaults = serde_json::to_value(Config::default()).expect("JSON");
    for stage in Stage::ALL {
        let keys = &schema["properties"][stage.name()]["properties"];
        let forms = alternatives(&keys["form"]);
        let forms: Vec<&str> = forms.iter().filter_map(|form| form["const"].as_str()).collect();
        assert_eq!(forms, stage.row().forms, "{stage}.form");
        let on_failure = defaults[stage.name()]["on_failure"].as_str();
        assert_eq!(on_failure, stage.row().on_failure, "{stage}.on_failure");
        if let Some(table) = stage.row().prompted {
            let place = format!("/{}/prompted/model", table.replace('.', "/"));
            assert!(defaults.pointer(&place).is_some(), "there is no {place}");
        }
    }
    let config = Config::default();
    let mut sections = config.stages().map(|(stage, _)| stage);
    sections.sort_unstable();
    let fails = Stage::ALL.into_iter().filter(|stage| stage.row().on_failure.is_some());
    assert_eq!(fails.collect::<Vec<_>>(), sections, "each that can fail is checked");
}

/// Collects every key of the schema, from the root, and the tables with free keys.
fn walk_keys(schema: &serde_json::Value, path: &str, found: &mut (BTreeSet<String>, Vec<String>)) {
    for schema in alternatives(schema) {
        if schema.get("additionalProperties").is_some_and(|any| *any != false) {
            found.1.push(format!("{path}."));
        }
        let keys = schema.get("properties").and_then(serde_json::Value::as_object);
        for (name, below) in keys.into_iter().flatten() {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            walk_keys(below, &path, found);
            found.0.insert(path);
        }
    }
}

/// Collects the text in backticks from the sources' code, without comments and tests.
fn quoted(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in folder.read_dir().expect("a folder of sources").flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "tests" {
            quoted(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") && name != "tests.rs" {
            let code = std::fs::read_to_string(&path).expect("a source");
            let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let lines = code.lines().map(str::trim).filter(|line| !line.starts_with("//"));
            // A string literal continues after a backslash.
            let code = lines.collect::<Vec<_>>().join("\n").replace("\\\n", "");
            let quoted = code.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
            found.extend(quoted.map(|it| (path.display().to_string(), it.to_owned())));
        }
    }
}

/// Messages name keys from the root, so that they can be typed.
#[test]
fn messages_name_keys_that_exist() {
    let mut known = (BTreeSet::new(), Vec::new());
    walk_keys(&schema_of::<Config>(), "", &mut known);
    let (known, free) = known;
    let names: BTreeSet<&str> = known.iter().flat_map(|path| path.split('.')).collect();
    let mut texts = Vec::new();
    for folder in ["src", "operators"] {
        quoted(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder), &mut texts);
    }
    assert!(texts.iter().any(|(_, text)| text == "log.kafka.create_topics = true"), "{texts:?}");
    let is_wrong = |text: &str| {
        let key = text.split(" = ").next().unwrap_or_default();
        let plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.".contains(&byte);
        let first = key.split('.').next().unwrap_or_default();
        // A single word may be anything. A name with dots or underscores counts as a key if a key
        // has its first part as a name.
        let meant = key.bytes().all(plain) && names.contains(first) && key.contains(['.', '_']);
        meant && !known.contains(key) && !free.iter().any(|table| key.starts_with(table))
    };
    assert!(is_wrong("kafka.create_topics") && is_wrong("poll_records") && !is_wrong("responses"));
    texts.retain(|(_, text)| is_wrong(text));
    assert_eq!(texts, []);
}
