//! Rows for the loader: TOML text in, the whole message out. The tree is one of the tests' own,
//! with every shape that a real section may have.

use std::collections::BTreeMap;
use std::env::VarError;

use super::load::read_str;
use super::*;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Tree {
    /// Decides who asks.
    gate: Gate,
    log: Log,
    commit: Commit,
    names: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Gate {
    /// Score from which a turn asks for knowledge, 0 to 1. Higher asks less.
    ///
    /// ```toml
    /// threshold = 0.9
    ///
    /// ```
    /// Or so.
    #[schemars(range(min = 0.0, max = 1.0))]
    threshold: f32,
    /// What is done with a reply.
    on_agent_reply: OnAgentReply,
    max_turns: Option<u16>,
    verbose: bool,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            threshold: 0.3,
            on_agent_reply: OnAgentReply::Supersede,
            max_turns: None,
            verbose: false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OnAgentReply {
    /// Stop.
    Supersede,
    /// Go on.
    Answer,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "snake_case")]
enum Log {
    /// Apache Kafka.
    Kafka {
        /// Addresses of brokers.
        brokers: String,
        /// Settings of librdkafka.
        #[serde(default)]
        properties: BTreeMap<String, String>,
    },
    /// In a directory.
    Embedded {
        /// The directory.
        directory: Option<PathBuf>,
    },
}

impl Default for Log {
    fn default() -> Self {
        Self::Embedded { directory: None }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Commit {
    /// Milliseconds between transactions.
    #[schemars(range(min = 1, max = 10_000))]
    interval_ms: u64,
    max_outcomes: u32,
}

impl Default for Commit {
    fn default() -> Self {
        Self { interval_ms: 50, max_outcomes: 1000 }
    }
}

impl Validate for Tree {
    fn validate(&self, checks: &mut Checks) {
        checks.within("commit", |checks| {
            let fine = self.commit.max_outcomes > 0;
            checks.ensure(fine, "max_outcomes", "must be above 0", "write at least 1");
        });
        checks.within("gate", |checks| {
            let fine = self.gate.threshold > 0.0;
            checks.ensure(fine, "threshold", "must be above 0", "write 0.1");
        });
    }
}

fn lookup(name: &str) -> Result<String, VarError> {
    match name {
        "SECRET" => Ok("hunter22".to_owned()),
        "N" => Ok("7".to_owned()),
        "YES" => Ok("true".to_owned()),
        "HALF" => Ok("0.5".to_owned()),
        _ => Err(VarError::NotPresent),
    }
}

fn tree(text: &str) -> Result<Loaded<Tree>, ConfigError> {
    read_str::<Tree>("t.toml", text, &lookup).and_then(Loaded::validated)
}

/// Checks the problems that loading the text reports, one line each.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let said = tree(text).err().map(|error| error.to_string()).unwrap_or_default();
    assert_eq!(said.lines().collect::<Vec<_>>(), expected, "of:\n{text}");
    assert!(!said.contains("hunter22"), "{said}");
}

#[test]
fn unknown_keys_name_the_nearest() {
    check(
        "[gate]\ntreshold = 0.5",
        &["t.toml:2: gate.treshold: there is no such key; did you mean `threshold`?"],
    );
    check(
        "[gate]\ntresh = 0.5",
        &["t.toml:2: gate.tresh: there is no such key; did you mean `threshold`?"],
    );
    check("[gates]", &["t.toml:1: gates: there is no such key; did you mean `gate`?"]);
    check(
        "interval_ms = 5",
        &["t.toml:1: interval_ms: there is no such key; `interval_ms` is a key of [commit]"],
    );
    check(
        "\n[commit]\nsomething = 5",
        &["t.toml:3: commit.something: there is no such key; the keys here are interval_ms, \
           max_outcomes"],
    );
    check(
        "[log]\nkind = 'kafka'\nbrokers = 'b'\ndirectory = '/x'",
        &["t.toml:4: log.directory: there is no such key; it goes with another `kind`; the keys \
           here are kind, brokers, properties"],
    );
    check(
        "gate.treshold = 0.5\n[[gat]]\n",
        &[
            "t.toml:1: gate.treshold: there is no such key; did you mean `threshold`?",
            "t.toml:2: gat: there is no such key; did you mean `gate`?",
        ],
    );
}

#[test]
fn types_and_ranges_say_what_was_expected() {
    let threshold = "meaning: Score from which a turn asks for knowledge, 0 to 1";
    check(
        "[gate]\nthreshold = 1.5\nmax_turns = -1\nverbose = 'yes'",
        &[
            &format!(
                "t.toml:2: gate.threshold: expected a number from 0 to 1, found 1.5; {threshold}"
            ),
            "t.toml:3: gate.max_turns: expected an integer from 0 to 65535, found -1",
            "t.toml:4: gate.verbose: expected true or false, found the string \"yes\"",
        ],
    );
    check(
        "[gate]\nthreshold = 'https://me:pw@host'",
        &[&format!(
            "t.toml:2: gate.threshold: expected a number from 0 to 1, found the string \
             \"https://********@host\"; {threshold}"
        )],
    );
    check(
        "[gate]\non_agent_reply = 'supercede'",
        &["t.toml:2: gate.on_agent_reply: expected one of \"supersede\", \"answer\", found the \
           string \"supercede\"; did you mean \"supersede\"?"],
    );
    check(
        "[commit]\ninterval_ms = 0\nmax_outcomes = 1.5",
        &[
            "t.toml:2: commit.interval_ms: expected an integer from 1 to 10000, found 0; \
             meaning: Milliseconds between transactions",
            "t.toml:3: commit.max_outcomes: expected an integer of at least 0, found 1.5",
        ],
    );
    check("gate = 3", &["t.toml:1: gate: expected a table, found 3; meaning: Decides who asks"]);
    check("names = ['a', 2]", &["t.toml:1: names[1]: expected a string, found 2"]);
    check(
        "[commit]\ninterval_ms = 99999999999999999999",
        &["t.toml:2: commit.interval_ms: expected a number that 64 bits can hold"],
    );
}

#[test]
fn variants_are_told_apart_by_their_tag() {
    check(
        "[log]\nkind = 'kafak'",
        &["t.toml:2: log.kind: expected one of \"kafka\", \"embedded\", found the string \
           \"kafak\"; did you mean \"kafka\"?"],
    );
    check(
        "\n[log]\nbrokers = 'b'",
        &["t.toml:2: log.kind: missing; write one of \"kafka\", \"embedded\""],
    );
    check(
        "[log]\nkind = 'kafka'",
        &["t.toml:1: log.brokers: missing; expected a string; meaning: Addresses of brokers"],
    );
    check(
        "[log]\nkind = 'kafka'\nbrokers = 'b'\n[log.properties]\nsasl.password = 'hunter22'",
        &["t.toml:5: log.properties.sasl: expected a string, found a table; a key with dots in \
           it is written in quotes: \"sasl.password\" = …"],
    );
}

#[test]
fn no_message_shows_a_secret() {
    check(
        "[gate]\nthreshold = '${SECRET}'",
        &["t.toml:2: gate.threshold: expected a number from 0 to 1, found a string that is not \
           shown here; meaning: Score from which a turn asks for knowledge, 0 to 1"],
    );
    check(
        "[gate]\non_agent_reply = '${SECRET}'",
        &["t.toml:2: gate.on_agent_reply: expected one of \"supersede\", \"answer\", found a \
           string that is not shown here; meaning: What is done with a reply"],
    );
    check(
        "[log]\nkind = 'kafka'\nbrokers = 'b'\n[log.properties]\n\"sasl.password\" = 1234567",
        &["t.toml:5: log.properties.\"sasl.password\": expected a string, found a value that is \
           not shown here"],
    );
    check(
        "[log]\nkind = '${SECRET}'",
        &["t.toml:2: log.kind: expected one of \"kafka\", \"embedded\", found a string that is \
           not shown here"],
    );
    check(
        "[log]\nkind = 'kafka'\nbrokers = '${SECRET} ${NONE}'\nbroker = 1",
        &[
            "t.toml:3: log.brokers: the environment variable NONE is not set; set it, or write \
           ${NONE:default}",
            "t.toml:4: log.broker: there is no such key; did you mean `brokers`?",
        ],
    );
    check(
        "[log]\nkind = '${NONE}'\n[gate]\nmax_turns = '${NONE}'",
        &[
            "t.toml:2: log.kind: the environment variable NONE is not set; set it, or write \
             ${NONE:default}",
            "t.toml:4: gate.max_turns: the environment variable NONE is not set; set it, or \
             write ${NONE:default}",
        ],
    );
}

#[test]
fn serde_has_the_last_word_and_quotes_nothing_concealed() {
    /// Refuses everything and quotes what it was given.
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(try_from = "String")]
    #[schemars(with = "String")]
    struct Fussy;
    impl TryFrom<String> for Fussy {
        type Error = String;
        fn try_from(text: String) -> Result<Self, String> {
            Err(format!("{text} is not nice"))
        }
    }
    #[derive(Debug, Deserialize, JsonSchema)]
    struct Holder {
        #[allow(dead_code)]
        fussy: Fussy,
    }
    let said = |text| match read_str::<Holder>("t.toml", text, &lookup) {
        Err(error) => error.to_string(),
        Ok(_) => String::new(),
    };
    assert_eq!(said("\nfussy = 'this'"), "t.toml:2: fussy: this is not nice");
    assert_eq!(
        said("fussy = '${SECRET}'"),
        "t.toml:1: fussy: the value, which is not shown here, does not fit; expected a string"
    );
}

#[test]
fn variables_become_the_type_that_is_expected() {
    let text = "names = ['${NONE:x}', '$${N}', '${N}']\n[gate]\nthreshold = '${HALF}'\n\
                max_turns = '${N}'\nverbose = '${YES}'\n[commit]\ninterval_ms = '${NONE:20}'";
    let value = tree(text).expect("loads").value;
    assert_eq!(value.names, ["x", "${N}", "7"]);
    assert_eq!(
        value.gate,
        Gate { threshold: 0.5, max_turns: Some(7), verbose: true, ..Gate::default() }
    );
    assert_eq!(value.commit.interval_ms, 20);
    // A plain string is no number, however it looks.
    check(
        "[gate]\nmax_turns = '7'",
        &["t.toml:2: gate.max_turns: expected an integer from 0 to 65535, found the string \"7\""],
    );
}

#[test]
fn checks_across_keys_are_collected_and_placed() {
    check(
        "[gate]\nthreshold = 0\n[commit]\nmax_outcomes = 0",
        &[
            "t.toml:2: gate.threshold: must be above 0; write 0.1",
            "t.toml:4: commit.max_outcomes: must be above 0; write at least 1",
        ],
    );
}

#[test]
fn flags_override_the_file_and_their_problems_name_no_line() {
    let mut loaded = read_str::<Tree>("t.toml", "[gate]\nthreshold = 1", &lookup).expect("loads");
    assert_eq!(loaded.value.gate.threshold, 1.0);
    assert_eq!(loaded.value.commit, Commit::default());
    loaded.override_key("gate.threshold", |tree| tree.gate.threshold = 0.0);
    let said = loaded.validated().expect_err("refused").to_string();
    assert_eq!(said, "t.toml: gate.threshold: must be above 0; write 0.1");
}

#[test]
fn printing_masks_secrets_and_reads_back() {
    let text = "names = ['plain', 'a${N}']\n[gate]\nthreshold = 0.25\n[log]\nkind = 'kafka'\n\
                brokers = 'a$b,${SECRET}'\n[log.properties]\n'sasl.password' = 'swordfish'\n\
                'ssl.key.password' = '${SECRET}'\n'ssl.keystore.password' = '${NONE:swordfish}'\n\
                'sasl.username' = 'me'\nproxy = 'https://me:swordfish@host'\n'api.key' = ''\n";
    let loaded = tree(text).expect("loads");
    let printed = loaded.to_toml().expect("prints");
    for line in [
        "names = [\"plain\", \"a${N}\"]",
        "# Score from which a turn asks for knowledge, 0 to 1. Higher asks less.",
        "#   threshold = 0.9",
        "#",
        "# Or so.",
        "# Expects one of \"supersede\", \"answer\".",
        "threshold = 0.25",
        "# max_turns = # not set; an integer from 0 to 65535",
        "brokers = \"a$b,${SECRET}\"",
        "\"sasl.password\" = \"********\"",
        "\"ssl.key.password\" = \"${SECRET}\"",
        "\"ssl.keystore.password\" = \"********\"",
        "\"sasl.username\" = \"me\"",
        "\"api.key\" = \"\"",
        "proxy = \"https://********@host\"",
    ] {
        assert!(printed.lines().any(|it| it == line), "{line} is not in:\n{printed}");
    }
    for secret in ["hunter22", "swordfish"] {
        assert!(!printed.contains(secret), "{printed}");
        assert!(!loaded.to_json().expect("prints").to_string().contains(secret));
        assert!(loaded.concealed().any(|it| it == secret));
    }
    let again = tree(&printed).expect("reads back").value;
    assert_eq!(again.gate, loaded.value.gate);
    assert_eq!(again.commit, loaded.value.commit);
}

#[test]
fn a_dollar_sign_survives_printing() {
    let loaded = tree("names = ['$${N}', '^x$', '$$']").expect("loads");
    let printed = loaded.to_toml().expect("prints");
    assert_eq!(tree(&printed).expect("reads back").value.names, ["${N}", "^x$", "$"]);
}

#[test]
fn files_that_cannot_be_read_say_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.toml");
    let said = || match read::<Tree>(&path) {
        Err(error) => error.to_string().replace(&folder.path().display().to_string(), ""),
        Ok(_) => String::new(),
    };
    let absent = said();
    assert!(absent.starts_with("/t.toml: cannot read the configuration: "), "{absent}");
    std::fs::write(&path, b"[gate]\n# \xff\n").expect("written");
    assert_eq!(said(), "/t.toml:2: not UTF-8; check --config");
    std::fs::write(&path, "#".repeat((1 << 20) + 1)).expect("written");
    assert_eq!(said(), "/t.toml: longer than 1048576 bytes; check --config");
    std::fs::write(&path, "[gate]\nverbose = true").expect("written");
    assert!(load::<Tree>(&path).is_ok_and(|tree| tree.gate.verbose));
}
