//! Serves metrics and health over HTTP: `/metrics`, `/live` and `/ready`, from a thread of its own.
//!
//! It only reads, so that whoever asks cannot slow the engine down. One request is answered on a
//! connection; how many there are at once, and for how long, is bounded in `connections.rs`.

use std::fmt;
use std::net::SocketAddr;
use std::thread::JoinHandle;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::connections::{AT_MOST, Connections, MOST};
use super::health::Check;

/// The text format of OpenMetrics, as scrapers want it named.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What is served. Clones are handles on the same.
pub trait Observed: Clone + Send + Sync + 'static {
    /// All metrics as they are now, in the text format of OpenMetrics 1.0.
    ///
    /// # Errors
    /// Where a metric cannot be written, which would be a fault of ours.
    fn scrape(&self) -> Result<String, fmt::Error>;

    /// Whether the process is alive.
    fn live(&self) -> Check;

    /// What makes the process ready; it is when all of it is well.
    fn ready(&self) -> Vec<Check>;
}

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be bound.
    #[error(
        "metrics.address: {address} cannot be bound: {source}; name an address of this machine \
         whose port is free, or leave metrics.address out (for `views`: views.metrics_address)"
    )]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The server could not be started.
    #[error("serving metrics: {0}; free memory or raise the limit of processes and open files")]
    Start(std::io::Error),
}

impl Server {
    /// Binds the address, and serves these metrics from then on. Port 0 takes any free one.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(address: SocketAddr, metrics: impl Observed) -> Result<Self, ServerError> {
        let bound = |source| ServerError::Bind { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(bound)?;
        let address = listener.local_addr().map_err(bound)?;
        listener.set_nonblocking(true).map_err(ServerError::Start)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            // For connections that are idle, and for when there is no descriptor for a new one.
            .enable_time()
            .build()
            .map_err(ServerError::Start)?;
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            let served = runtime.block_on(async {
                let connections = Connections::new(TcpListener::from_std(listener)?, MOST, AT_MOST);
                tokio::select! {
                    served = axum::serve(connections, routes(metrics)) => served,
                    // Whoever is being answered is cut off: nobody may hold up the end.
                    _ = stopped => Ok(()),
                }
            });
            if let Err(error) = served {
                tracing::error!(%error, "metrics are no longer served");
            }
        };
        let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(run);
        let thread = Some(thread.map_err(ServerError::Start)?);
        Ok(Self { address, stop: Some(stop), thread })
    }

    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // It may have ended already.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn routes<M: Observed>(metrics: M) -> Router {
    Router::new()
        .route("/metrics", get(scraped::<M>))
        .route("/live", get(live::<M>))
        .route("/ready", get(ready::<M>))
        .with_state(metrics)
}

async fn scraped<M: Observed>(State(metrics): State<M>) -> Response {
    match metrics.scrape() {
        Ok(text) => answer(StatusCode::OK, OPEN_METRICS, text),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// The one answer of a connection: who asks again makes a new one, so that none is kept idle.
fn answer(status: StatusCode, kind: &'static str, body: String) -> Response {
    let headers = [(header::CONTENT_TYPE, kind), (header::CONNECTION, "close")];
    (status, headers, body).into_response()
}

async fn live<M: Observed>(State(metrics): State<M>) -> Response {
    Verdict::of("live", vec![metrics.live()])
}

async fn ready<M: Observed>(State(metrics): State<M>) -> Response {
    Verdict::of("ready", metrics.ready())
}

/// What `/live` and `/ready` say.
#[derive(Serialize)]
struct Verdict {
    /// Which of them it is.
    probe: &'static str,
    /// Whether all checks are well.
    ok: bool,
    checks: Vec<Check>,
}

impl Verdict {
    /// 200 where all checks are well, else 503.
    fn of(probe: &'static str, checks: Vec<Check>) -> Response {
        let verdict = Self { probe, ok: checks.iter().all(|check| check.ok), checks };
        let status = match verdict.ok {
            true => StatusCode::OK,
            false => StatusCode::SERVICE_UNAVAILABLE,
        };
        match serde_json::to_string(&verdict) {
            Ok(json) => answer(status, "application/json", json + "\n"),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}
