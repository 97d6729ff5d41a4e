//! The client of one server: sends a request, retries if that may help, and reads the answer within
//! bounds.
//!
//! A client and its counters live on one thread.

use std::cell::RefCell;
use std::time::Duration;

use turnstream_ports::model::CallError;

use crate::metrics::RemoteMetrics;
use backon::{ExponentialBuilder, Retryable};
use bytes::Bytes;
use eventsource_stream::{EventStreamError, Eventsource};
use futures_util::stream::{Stream, StreamExt, try_unfold};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Certificate, Client, Response, Url, redirect};
use tokio::time::{Instant, timeout};

use super::StartError;
use super::breaker::{Admitted, Breaker};
use super::config::RemoteConfig;
use super::failure::{ApiKey, Failure, excerpt, without_key};
use super::pace::Pace;

/// The most bytes read of an error response.
const ERROR_BYTES: usize = 16 << 10;

/// A server's client and its state.
pub(super) struct Server {
    client: Client,
    address: String,
    key: Option<ApiKey>,
    pub(super) config: RemoteConfig,
    pace: Pace,
    breaker: RefCell<Breaker>,
    pub(super) metrics: RemoteMetrics,
}

impl Server {
    /// Builds the client without contacting the server.
    ///
    /// # Errors
    /// The configuration, the key or the certificates cannot be used.
    pub(super) fn new(config: &RemoteConfig, metrics: RemoteMetrics) -> Result<Self, StartError> {
        config.check()?;
        let (key, header) = match &config.api_key_env {
            None => (None, None),
            Some(variable) => {
                let (key, header) = key_of(variable)?;
                (Some(key), Some(header))
            }
        };
        let client = client(config, header)?;
        let open_for = Duration::from_millis(config.breaker_open_ms);
        let breaker = RefCell::new(Breaker::new(config.breaker_failures, open_for));
        Ok(Self {
            client,
            address: config.address(),
            key,
            config: config.clone(),
            pace: Pace::new(config.requests_per_second),
            breaker,
            metrics,
        })
    }

    /// The beginning of a text, for a message.
    pub(super) fn excerpt(&self, text: &str) -> String {
        excerpt(text, self.key.as_ref())
    }

    /// Describes a failure, with the server's address.
    pub(super) fn describe(&self, failure: &Failure) -> String {
        let message = format!("`{}` at {}: {failure}", self.config.model, self.address);
        without_key(&message, self.key.as_ref())
    }

    /// Converts a failure to the caller's error.
    pub(super) fn error(&self, failure: &Failure) -> CallError {
        let message = self.describe(failure);
        match failure {
            Failure::NoText(_) => CallError::Empty(message),
            _ => CallError::Model(message),
        }
    }

    /// Describes an answer that cannot be parsed; `no` says what it is not.
    pub(super) fn malformed(&self, no: &str, error: &serde_json::Error, body: &[u8]) -> Failure {
        let (error, body) = (error.to_string(), String::from_utf8_lossy(body));
        let (error, said) = (self.excerpt(&error), self.excerpt(&body));
        Failure::Malformed(format!("{no}: {error}; it says: {said}"))
    }

    /// Sends a request and reads its answer; retries while that may help and attempts are left.
    pub(super) async fn post<T>(
        &self,
        request: &serde_json::Value,
        read: impl AsyncFn(Body<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let request = request.to_string();
        let most = Duration::from_millis(self.config.backoff_max_ms);
        let waits = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(self.config.backoff_ms))
            .with_max_delay(most)
            .with_max_times(self.config.attempts.saturating_sub(1) as usize)
            .with_jitter();
        (|| self.attempt(&request, &read))
            .retry(waits)
            .sleep(tokio::time::sleep)
            .when(Failure::is_passing)
            // The pace enforces the pause that a server asks for; a pause that is too long ends the
            // attempts.
            .adjust(|failure, wait| wait.filter(|_| failure.retry_after() <= Some(most)))
            .notify(|failure, wait| {
                self.metrics.retries.inc();
                let failure = self.describe(failure);
                tracing::debug!(failure, wait_ms = wait.as_millis() as u64, "asking again");
            })
            .await
    }

    /// Makes one counted attempt, after waiting for the pace, if the breaker admits it.
    async fn attempt<T>(
        &self,
        request: &str,
        read: &impl AsyncFn(Body<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.pace.turn().await;
        let attempt = Attempt::begin(self).inspect_err(|failure| {
            self.metrics.fault(failure.fault()).inc();
        })?;
        let most = self.config.answer_timeout_ms;
        let answer = timeout(Duration::from_millis(most), self.exchange(request, read)).await;
        let answer = answer.unwrap_or(Err(Failure::Timeout(most)));
        if let Err(failure) = &answer {
            self.metrics.fault(failure.fault()).inc();
            if let Some(wait) = failure.retry_after() {
                self.pace.hold_back(wait.min(Duration::from_millis(self.config.backoff_max_ms)));
            }
        }
        attempt.end(answer.as_ref().err());
        answer
    }

    async fn exchange<T>(
        &self,
        request: &str,
        read: &impl AsyncFn(Body<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let post = self.client.post(&self.address).header(CONTENT_TYPE, "application/json");
        let response = post.body(request.to_owned()).send().await;
        let response = response.map_err(|error| Failure::of(error, false))?;
        let status = response.status();
        let mut body = Body { response, server: self, left: self.config.max_answer_bytes };
        if status.is_success() {
            return read(body).await;
        }
        let headers = body.response.headers().clone();
        let mut said = Vec::new();
        // The part before the connection broke off is enough for a message.
        while said.len() < ERROR_BYTES
            && let Ok(Some(chunk)) = body.chunk().await
        {
            said.extend_from_slice(&chunk);
        }
        said.truncate(ERROR_BYTES);
        Err(Failure::status(status, &headers, &said, self.key.as_ref()))
    }
}

/// An attempt under way; dropping it unfinished counts as cancelled.
struct Attempt<'a> {
    server: &'a Server,
    admitted: Option<Admitted>,
    began: Instant,
}

impl<'a> Attempt<'a> {
    fn begin(server: &'a Server) -> Result<Self, Failure> {
        let began = Instant::now();
        let admitted = Some(server.breaker.borrow_mut().admit(began)?);
        Ok(Self { server, admitted, began })
    }

    fn end(mut self, failure: Option<&Failure>) {
        let Self { server, began, .. } = self;
        server.metrics.seconds.observe(began.elapsed().as_secs_f64());
        let Some(admitted) = self.admitted.take() else { return };
        let mut breaker = server.breaker.borrow_mut();
        let was_open = breaker.is_open();
        match failure.filter(|failure| failure.is_of_server()) {
            None => breaker.succeeded(),
            Some(failure) => breaker.failed(admitted, Instant::now(), failure.to_string()),
        }
        if breaker.is_open() != was_open {
            server.metrics.breaker_open.set(breaker.is_open().into());
            let failure = failure.map(|failure| server.describe(failure));
            match failure.filter(|_| breaker.is_open()) {
                Some(failure) => tracing::warn!(failure, "a model server fails; pausing requests"),
                None => tracing::info!(address = %server.address, "a model server works again"),
            }
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(admitted) = self.admitted {
            self.server.breaker.borrow_mut().cancelled(admitted, Instant::now());
        }
    }
}

/// A response's body, read within bounds.
pub(super) struct Body<'a> {
    response: Response,
    server: &'a Server,
    left: usize,
}

impl<'a> Body<'a> {
    /// The server that sent the body.
    pub(super) fn server(&self) -> &'a Server {
        self.server
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        let RemoteConfig { idle_timeout_ms, max_answer_bytes, .. } = self.server.config;
        let chunk = timeout(Duration::from_millis(idle_timeout_ms), self.response.chunk()).await;
        let chunk = chunk.map_err(|_| Failure::Idle(idle_timeout_ms))?;
        let chunk = chunk.map_err(|error| Failure::of(error, true))?;
        let length = chunk.as_ref().map_or(0, Bytes::len);
        self.left = self.left.checked_sub(length).ok_or(Failure::TooLong(max_answer_bytes))?;
        Ok(chunk)
    }

    /// Whether the body is an event stream: a server that cannot stream sends the whole answer at
    /// once.
    pub(super) fn is_events(&self) -> bool {
        let kind = self.response.headers().get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        kind.trim_start().starts_with("text/event-stream")
    }

    /// Reads the whole body.
    pub(super) async fn whole(mut self) -> Result<Vec<u8>, Failure> {
        let mut whole = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            whole.extend_from_slice(&chunk);
        }
        Ok(whole)
    }

    /// Yields the data of the body's events as they arrive.
    pub(super) fn events(self) -> impl Stream<Item = Result<String, Failure>> {
        let chunks =
            try_unfold(self, async |mut body| Ok(body.chunk().await?.map(|chunk| (chunk, body))));
        chunks.eventsource().map(|event| match event {
            Ok(event) => Ok(event.data),
            Err(EventStreamError::Transport(failure)) => Err(failure),
            Err(error) => Err(Failure::Malformed(format!("no stream of events: {error}"))),
        })
    }
}

/// Reads the key from an environment variable.
fn key_of(variable: &str) -> Result<(ApiKey, HeaderValue), StartError> {
    let key = std::env::var(variable);
    let key = key.map_err(|_| StartError::NoKey { variable: variable.to_owned() })?;
    ApiKey::new(&key).ok_or_else(|| StartError::BadKey { variable: variable.to_owned() })
}

fn client(config: &RemoteConfig, key: Option<HeaderValue>) -> Result<Client, StartError> {
    let unusable = |error: reqwest::Error| StartError::Client(error.without_url().to_string());
    let url = Url::parse(&config.base_url).ok();
    let is_encrypted = url.as_ref().is_some_and(|url| url.scheme() == "https");
    let host = url.as_ref().and_then(Url::host_str).unwrap_or_default().trim_matches(['[', ']']);
    let address = host.parse::<std::net::IpAddr>();
    let is_local = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    if key.is_some() && !is_encrypted && !is_local {
        tracing::warn!(host, "the key goes over the network unencrypted; use https");
    }
    let headers: HeaderMap = key.into_iter().map(|key| (AUTHORIZATION, key)).collect();
    let builder = Client::builder()
        .connect_timeout(Duration::from_millis(config.connect_timeout_ms))
        .default_headers(headers)
        // Redirects could send the key to another host.
        .redirect(redirect::Policy::none())
        .user_agent(concat!("turnstream/", env!("CARGO_PKG_VERSION")));
    let builder = if is_local { builder.no_proxy() } else { builder };
    // Fails if a provider is already installed, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = match is_encrypted {
        true => builder.tls_certs_merge(certificates(config)?),
        // Without TLS nothing is verified, so the system needs no certificates.
        false => builder.tls_certs_only([]),
    };
    builder.build().map_err(unusable)
}

fn certificates(config: &RemoteConfig) -> Result<Vec<Certificate>, StartError> {
    let Some(path) = &config.ca_file else { return Ok(Vec::new()) };
    let refused = |reason: String| StartError::Certificates { path: path.clone(), reason };
    let pem = std::fs::read(path).map_err(|error| refused(error.to_string()))?;
    match Certificate::from_pem_bundle(&pem) {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(refused("it holds no certificate".to_owned())),
        Err(error) => Err(refused(error.to_string())),
    }
}
