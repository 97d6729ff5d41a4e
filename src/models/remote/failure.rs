//! The failures of a request to a server: which are retried, which count against the server, and
//! their messages. No message contains the key.

use std::fmt;
use std::time::{Duration, SystemTime};

use turnstream_ports::secret::MASK;
use turnstream_schemas::text::bounded_line;

use crate::metrics::RemoteFault;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderValue, RETRY_AFTER};

use super::breaker::Open;

/// The most characters of a server's or a model's text in a message.
const EXCERPT: usize = 300;

/// A server's key.
#[derive(Clone)]
pub(super) struct ApiKey(String);

impl ApiKey {
    /// Makes a key and its header; `None` if a header cannot hold the key.
    pub(super) fn new(key: &str) -> Option<(Self, HeaderValue)> {
        let key = key.trim();
        let mut header = HeaderValue::from_str(&format!("Bearer {key}")).ok()?;
        header.set_sensitive(true);
        (!key.is_empty()).then(|| (Self(key.to_owned()), header))
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(MASK)
    }
}

/// Removes the key from a text.
pub(super) fn without_key(text: &str, key: Option<&ApiKey>) -> String {
    key.map_or_else(|| text.to_owned(), |ApiKey(key)| text.replace(key.as_str(), MASK))
}

/// The beginning of a text for a message, on one line and without the key.
pub(super) fn excerpt(text: &str, key: Option<&ApiKey>) -> String {
    bounded_line(&without_key(text, key), EXCERPT)
}

/// Why a server gave no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("no connection: {0}; start the server, or correct base_url or ca_file")]
    Connection(String),
    #[error("no whole answer within {0} ms; the server is slow or hangs (answer_timeout_ms)")]
    Timeout(u64),
    #[error("the answer stalled for {0} ms (idle_timeout_ms)")]
    Idle(u64),
    #[error("status {status}{}{said}; {}", if said.is_empty() { "" } else { ": " }, remedy(*.status, *.retry_after))]
    Status {
        status: StatusCode,
        said: String,
        field: Option<String>,
        retry_after: Option<Duration>,
    },
    #[error("the answer broke off: {0}; the server's own log may say why")]
    Cut(String),
    #[error("the answer has more than {0} bytes; raise max_answer_bytes if that is expected")]
    TooLong(usize),
    #[error("{0}; base_url may not be that of an OpenAI-compatible server")]
    Malformed(String),
    #[error("no text: {0}")]
    NoText(String),
    #[error(
        "the answer does not follow the schema, even at the second try: {wrong}; it says: {said}"
    )]
    Unfit { wrong: String, said: String },
    #[error("the schema cannot be used: {0}")]
    Schema(String),
    #[error("{0}")]
    Embeddings(String),
    #[error(
        "not asked: {failures} attempts in a row failed, the last with: {last}; requests \
         pause for {left_ms} ms more"
    )]
    Open { failures: u32, last: String, left_ms: u64 },
}

fn remedy(status: StatusCode, retry_after: Option<Duration>) -> String {
    match (status, retry_after) {
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
            "check the key in the variable that api_key_env names".to_owned()
        }
        (StatusCode::NOT_FOUND, _) => {
            "check base_url, which usually ends in /v1, and the model's name".to_owned()
        }
        (_, Some(wait)) => format!("it asks us to wait {} s", wait.as_secs()),
        (StatusCode::TOO_MANY_REQUESTS, _) => {
            "lower max_concurrent or requests_per_second".to_owned()
        }
        (status, _) if status.is_redirection() => {
            "set base_url to the redirect's address".to_owned()
        }
        (status, _) if status.is_server_error() => "the server's log may say why".to_owned(),
        _ => "the server does not accept this request".to_owned(),
    }
}

impl From<Open> for Failure {
    fn from(Open { failures, last, left }: Open) -> Self {
        Self::Open { failures, last, left_ms: left.as_millis() as u64 }
    }
}

impl Failure {
    /// Classifies an error of the HTTP client.
    pub(super) fn of(error: reqwest::Error, began: bool) -> Self {
        // The message already contains the address.
        let (connecting, error) = (error.is_connect(), error.without_url());
        let mut reason = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(inner) = cause {
            reason = inner.to_string();
            cause = inner.source();
        }
        if connecting && !began { Self::Connection(reason) } else { Self::Cut(reason) }
    }

    /// Classifies a status other than success.
    pub(super) fn status(
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
        key: Option<&ApiKey>,
    ) -> Self {
        let body = String::from_utf8_lossy(body);
        let json: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
        let error = json.get("error").unwrap_or(&json);
        let said = error.get("message").unwrap_or(error).as_str().unwrap_or(&body);
        let field = error.get("param").and_then(|field| field.as_str());
        let retry_after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        Self::Status {
            status,
            said: excerpt(said, key),
            field: field.map(str::to_owned),
            retry_after: retry_after.and_then(|value| wait_of(value, SystemTime::now())),
        }
    }

    /// Whether another attempt may succeed.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Connection(_) | Self::Timeout(_) | Self::Idle(_) | Self::Cut(_) => true,
            Self::Status { status, .. } => {
                matches!(status.as_u16(), 408 | 425 | 429 | 500 | 502..=599)
            }
            _ => false,
        }
    }

    /// Whether the failure shows that the server does not work; a refused or throttled request does
    /// not.
    pub(super) fn is_of_server(&self) -> bool {
        match self {
            Self::Status { status, .. } => status.is_server_error() && status.as_u16() != 501,
            failure => failure.is_passing(),
        }
    }

    /// The pause that the server asked for.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The metric's label of the failure.
    pub(super) fn fault(&self) -> RemoteFault {
        match self {
            Self::Connection(_) => RemoteFault::Connection,
            Self::Timeout(_) | Self::Idle(_) => RemoteFault::Timeout,
            Self::Status { status, .. } if status.as_u16() == 429 => RemoteFault::Throttled,
            Self::Status { status, .. } if status.is_server_error() => RemoteFault::Server,
            Self::Status { .. } => RemoteFault::Client,
            Self::Cut(_) => RemoteFault::Cut,
            Self::TooLong(_) => RemoteFault::TooLong,
            Self::Malformed(_) | Self::NoText(_) | Self::Embeddings(_) => RemoteFault::Malformed,
            Self::Unfit { .. } | Self::Schema(_) => RemoteFault::Unfit,
            Self::Open { .. } => RemoteFault::Open,
        }
    }
}

/// Parses `Retry-After`: seconds or a date.
fn wait_of(value: &str, now: SystemTime) -> Option<Duration> {
    let seconds = value.trim().parse().map(Duration::from_secs).ok();
    seconds.or_else(|| {
        let date = httpdate::parse_http_date(value).ok()?;
        Some(date.duration_since(now).unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        for (value, seconds) in [
            ("3", Some(3)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
        ] {
            assert_eq!(wait_of(value, now), seconds.map(Duration::from_secs), "{value}");
        }
    }

    #[test]
    fn excerpts_are_short_and_without_the_key() {
        let (key, header) = ApiKey::new("sk-hush\n").unwrap();
        assert!(header.is_sensitive());
        assert_eq!(format!("{key:?}{header:?}"), format!("{MASK}Sensitive"));
        let text = format!("key\tsk-hush \u{1}\n{}", "wide ".repeat(1_000));
        let short = excerpt(&text, Some(&key));
        assert!(short.starts_with("key ******** wide wide"), "{short}");
        assert_eq!(short.chars().count(), EXCERPT + 1);
        // A key across the cut must not leave its first half.
        let across = format!("{}sk-hush", "x".repeat(EXCERPT - 4));
        assert!(!excerpt(&across, Some(&key)).contains("sk"));
        assert!(ApiKey::new("a\nb").is_none() && ApiKey::new(" ").is_none());
    }

    #[test]
    fn a_status_says_what_the_server_said_and_what_to_do() {
        let status = |status: u16, body: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            Failure::status(status, &HeaderMap::new(), body.as_bytes(), None)
        };
        let openai = r#"{"error":{"message":"Unsupported","param":"seed","type":"t"}}"#;
        let Failure::Status { said, field, .. } = status(400, openai) else { panic!() };
        assert_eq!((said.as_str(), field.as_deref()), ("Unsupported", Some("seed")));
        for (code, body, says) in [
            (401, r#"{"error":"no"}"#, "401 Unauthorized: no; check the key"),
            (404, "<html>", "404 Not Found: <html>; check base_url"),
            (503, "", "503 Service Unavailable; the server's log"),
            (302, r#"{"detail":1}"#, r#"302 Found: {"detail":1}; set base_url"#),
        ] {
            let message = status(code, body).to_string();
            assert!(message.contains(says), "{message}");
        }
        let (passing, of_server): (Vec<u16>, Vec<u16>) = (
            (300..600).filter(|code| status(*code, "").is_passing()).collect(),
            (300..600).filter(|code| status(*code, "").is_of_server()).collect(),
        );
        assert!([408, 425, 429, 500, 502, 503].iter().all(|code| passing.contains(code)));
        assert!([400, 401, 403, 404, 422, 501].iter().all(|code| !passing.contains(code)));
        assert!(!of_server.contains(&429) && of_server.contains(&500), "{of_server:?}");
    }
}
