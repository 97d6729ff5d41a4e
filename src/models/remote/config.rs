//! The configuration of a model on a server: how to reach it, and limits.

use std::path::PathBuf;

use reqwest::Url;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A model on an OpenAI-compatible server (OpenAI's own, llama.cpp's, vLLM, mistral.rs, …).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RemoteConfig {
    /// The base URL of the server's interface, with its version, such as
    /// `"http://127.0.0.1:8080/v1"` or `"https://api.openai.com/v1"`. No name, password, query or
    /// fragment.
    pub base_url: String,
    /// The model's name on the server. Some servers have only one and disregard it.
    pub model: String,
    /// The kind of requests: `chat` (messages), `completions` (a text that is continued, for models
    /// without a chat template) or `embeddings`.
    pub api: Api,
    /// The name of the environment variable that holds the server's key; if not set, no key is
    /// sent. The key is read at start and is never shown.
    pub api_key_env: Option<String>,
    /// A file of certificates (PEM) to trust beside the system's, for a server whose certificate is
    /// from a private authority.
    pub ca_file: Option<PathBuf>,
    /// Requests that the server works on at once, from 1, including those that wait for another
    /// attempt.
    #[schemars(range(min = 1))]
    pub max_concurrent: usize,
    /// Requests that may wait behind them, from 1. A stage that finds the queue full holds its turn
    /// and asks again.
    #[schemars(range(min = 1))]
    pub queue_requests: usize,
    /// Most requests a second, over 0, evenly spaced; each attempt is one. No limit if not set.
    #[schemars(range(min = 0.001))]
    pub requests_per_second: Option<f64>,
    /// Milliseconds that connecting may take, from 1.
    #[schemars(range(min = 1))]
    pub connect_timeout_ms: u64,
    /// Milliseconds from sending a request to the last byte of its answer, from 1, for each
    /// attempt. The stage's `timeout_ms` bounds all attempts together: the stage then gives the
    /// request up, which cancels it.
    #[schemars(range(min = 1))]
    pub answer_timeout_ms: u64,
    /// Milliseconds without a byte after which an answer that has begun is given up, from 1.
    #[schemars(range(min = 1))]
    pub idle_timeout_ms: u64,
    /// Most attempts, 1 to 20. Retried are: no connection, no answer in time, an answer that breaks
    /// off, and statuses 408, 425, 429 and 500 to 599 but 501.
    #[schemars(range(min = 1, max = 20))]
    pub attempts: u32,
    /// Milliseconds before the second attempt, from 1; doubles with each further one. A random time
    /// up to as much again is added.
    #[schemars(range(min = 1))]
    pub backoff_ms: u64,
    /// Most milliseconds between two attempts, before the random time is added. A server that asks
    /// for longer (`Retry-After`) is not tried again.
    #[schemars(range(min = 1))]
    pub backoff_max_ms: u64,
    /// Attempts in a row that find no working server, after which it is left alone and requests
    /// fail at once; 0 never leaves it alone.
    pub breaker_failures: u32,
    /// Milliseconds that the server is left alone, from 1. Then one request is let through, which
    /// decides.
    #[schemars(range(min = 1))]
    pub breaker_open_ms: u64,
    /// How the server learns the JSON Schema that an answer must follow.
    pub schema_by: SchemaBy,
    /// Whether the server is asked for the log-probabilities of the tokens it chose; the lowest is
    /// the answer's confidence.
    pub log_probabilities: bool,
    /// When answers are streamed.
    pub stream: Streaming,
    /// Most bytes of an answer, as it comes over the network, from 1,024. A longer one is broken
    /// off and is an error.
    #[schemars(range(min = 1024))]
    pub max_answer_bytes: usize,
    /// Numbers in an embedding. If not set, as many as the first one has.
    #[schemars(range(min = 1))]
    pub dimensions: Option<usize>,
    /// Most texts in one request for embeddings, from 1.
    #[schemars(range(min = 1))]
    pub batch_texts: usize,
}

/// The kind of requests to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// `chat/completions`.
    #[default]
    Chat,
    /// `completions`.
    Completions,
    /// `embeddings`.
    Embeddings,
}

impl Api {
    /// The path after the base URL.
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "chat/completions",
            Self::Completions => "completions",
            Self::Embeddings => "embeddings",
        }
    }
}

/// How a server learns a JSON Schema. Every answer is checked here all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SchemaBy {
    /// `json_schema`; if the server refuses that, `json_object`, and if it refuses that too,
    /// `prompt`. What it refused is remembered for the schema.
    #[default]
    Auto,
    /// By `response_format` of type `json_schema`, strict: the server lets the model write nothing
    /// else.
    JsonSchema,
    /// By `response_format` of type `json_object`, and the schema in the prompt.
    JsonObject,
    /// In the prompt only.
    Prompt,
}

/// When answers are streamed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Streaming {
    /// If a listener reads along.
    #[default]
    Listened,
    /// Always: this distinguishes a server that writes slowly from one that hangs.
    Always,
    /// Never.
    Never,
}

impl Default for RemoteConfig {
    fn default() -> Self {
        Self {
            base_url: "http://127.0.0.1:8080/v1".to_owned(),
            model: String::new(),
            api: Api::default(),
            api_key_env: None,
            ca_file: None,
            max_concurrent: 4,
            queue_requests: 256,
            requests_per_second: None,
            connect_timeout_ms: 5_000,
            answer_timeout_ms: 25_000,
            idle_timeout_ms: 10_000,
            attempts: 3,
            backoff_ms: 200,
            backoff_max_ms: 5_000,
            breaker_failures: 5,
            breaker_open_ms: 10_000,
            schema_by: SchemaBy::default(),
            log_probabilities: false,
            stream: Streaming::default(),
            max_answer_bytes: 4 << 20,
            dimensions: None,
            batch_texts: 64,
        }
    }
}

/// An invalid key of [`RemoteConfig`]. Never contains the value, which may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}; {remedy}")]
pub struct ConfigProblem {
    /// The key's name.
    pub key: &'static str,
    /// What is wrong with its value.
    pub problem: &'static str,
    /// What to do.
    pub remedy: &'static str,
}

impl RemoteConfig {
    /// Checks the configuration without contacting the server.
    ///
    /// # Errors
    /// The first invalid key.
    pub fn check(&self) -> Result<(), ConfigProblem> {
        self.check_url()?;
        let problem = |key, problem, remedy| Err(ConfigProblem { key, problem, remedy });
        if self.model.trim().is_empty() {
            return problem("model", "it is empty", "write the model's name on the server");
        }
        if self.api_key_env.as_deref().is_some_and(|name| !is_variable(name)) {
            let remedy = "write the variable's name, and the key itself into the environment only";
            return problem("api_key_env", "it is not the name of a variable", remedy);
        }
        for (key, count) in [
            ("max_concurrent", self.max_concurrent as u64),
            ("queue_requests", self.queue_requests as u64),
            ("connect_timeout_ms", self.connect_timeout_ms),
            ("answer_timeout_ms", self.answer_timeout_ms),
            ("idle_timeout_ms", self.idle_timeout_ms),
            ("backoff_ms", self.backoff_ms),
            ("breaker_open_ms", self.breaker_open_ms),
            ("dimensions", self.dimensions.unwrap_or(1) as u64),
            ("batch_texts", self.batch_texts as u64),
        ] {
            if count == 0 {
                return problem(key, "it is 0", "write an integer of at least 1");
            }
        }
        if !(1..=20).contains(&self.attempts) {
            return problem("attempts", "it is out of range", "write an integer from 1 to 20");
        }
        if self.backoff_max_ms < self.backoff_ms {
            return problem("backoff_max_ms", "it is less than backoff_ms", "raise it");
        }
        if self.requests_per_second.is_some_and(|rate| !(0.001..=1e6).contains(&rate)) {
            let remedy = "write a number from 0.001 to 1000000, or leave it out";
            return problem("requests_per_second", "it is out of range", remedy);
        }
        if self.max_answer_bytes < 1_024 {
            return problem("max_answer_bytes", "it is too small", "write at least 1024");
        }
        Ok(())
    }

    fn check_url(&self) -> Result<(), ConfigProblem> {
        let problem = |problem, remedy| Err(ConfigProblem { key: "base_url", problem, remedy });
        let Ok(url) = Url::parse(&self.base_url) else {
            return problem("it is not a URL", "write it as \"http://127.0.0.1:8080/v1\"");
        };
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return problem("it is not an HTTP address", "begin it with http:// or https://");
        }
        if !url.username().is_empty() || url.password().is_some() {
            let remedy = "remove them; a key goes into the variable that api_key_env names";
            return problem("it holds a name or password", remedy);
        }
        if url.query().is_some() || url.fragment().is_some() {
            return problem("it has a query or fragment", "end it with the path, as in /v1");
        }
        Ok(())
    }

    /// The URL of requests.
    pub fn address(&self) -> String {
        format!("{}/{}", self.base_url.trim_end_matches('/'), self.api.path())
    }
}

/// Whether `name` can be a variable's name. A secret key written here by mistake is long, or
/// contains a dash.
fn is_variable(name: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let begins = name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
    begins && name.len() <= 64 && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usable() -> RemoteConfig {
        RemoteConfig { model: "m".to_owned(), ..RemoteConfig::default() }
    }

    #[test]
    fn what_cannot_be_used_is_named_and_never_shown() {
        assert_eq!(usable().check(), Ok(()));
        type Spoil = fn(&mut RemoteConfig);
        let refused: [(&str, Spoil); 14] = [
            ("model", |config| config.model = " ".to_owned()),
            ("base_url", |config| config.base_url = "localhost:8080".to_owned()),
            ("base_url", |config| config.base_url = "file:///v1".to_owned()),
            ("base_url", |config| config.base_url = "https://me:hush-hush@host/v1".to_owned()),
            ("base_url", |config| config.base_url = "https://host/v1?key=hush-hush".to_owned()),
            ("api_key_env", |config| config.api_key_env = Some("sk-hush-hush".to_owned())),
            ("api_key_env", |config| config.api_key_env = Some(String::new())),
            ("attempts", |config| config.attempts = 0),
            ("attempts", |config| config.attempts = 21),
            ("backoff_max_ms", |config| config.backoff_max_ms = 1),
            ("requests_per_second", |config| config.requests_per_second = Some(0.0)),
            ("requests_per_second", |config| config.requests_per_second = Some(f64::NAN)),
            ("max_concurrent", |config| config.max_concurrent = 0),
            ("max_answer_bytes", |config| config.max_answer_bytes = 10),
        ];
        for (key, spoil) in refused {
            let mut config = usable();
            spoil(&mut config);
            let problem = config.check().unwrap_err();
            assert_eq!(problem.key, key);
            assert!(!problem.to_string().contains("hush"), "{problem}");
        }
    }

    #[test]
    fn addresses_have_one_slash() {
        for base_url in ["http://h:1/v1", "http://h:1/v1/"] {
            let config = RemoteConfig { base_url: base_url.to_owned(), ..usable() };
            assert_eq!(config.address(), "http://h:1/v1/chat/completions");
        }
    }
}
