//! Serves metrics and health over HTTP: `/metrics`, `/live` and `/ready`, from its own thread.
//!
//! The server only reads, so that clients cannot slow the engine down. A connection answers one
//! request. `connections.rs` bounds the number of connections and the time of each.

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

/// The content type of OpenMetrics text, as scrapers expect it.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A source of metrics and health. All clones share it.
pub trait Observed: Clone + Send + Sync + 'static {
    /// All metrics as they are now, in the text format of OpenMetrics 1.0.
    ///
    /// # Errors
    /// A metric cannot be written: a bug.
    fn scrape(&self) -> Result<String, fmt::Error>;

    /// Checks that the process is alive.
    fn live(&self) -> Check;

    /// The checks of readiness. The process is ready if all pass.
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
        /// The error of the system.
        source: std::io::Error,
    },
    /// The server could not be started.
    #[error("serving metrics: {0}; free memory or raise the limit of processes and open files")]
    Start(std::io::Error),
}

impl Server {
    /// Binds the address and serves these metrics from then on. Port 0 takes any free port.
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
            // Timers end idle connections, and delay accepting while no descriptor is free.
            .enable_time()
            .build()
            .map_err(ServerError::Start)?;
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            let served = runtime.block_on(async {
                let connections = Connections::new(TcpListener::from_std(listener)?, MOST, AT_MOST);
                tokio::select! {
                    served = axum::serve(connections, routes(metrics)) => served,
                    // A running answer is cut off, so that no client delays the end.
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

    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The server may have ended already.
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

/// Makes the only answer of a connection, and closes the connection so that it does not idle.
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

/// The answer of `/live` and `/ready`.
#[derive(Serialize)]
struct Verdict {
    /// The probe's name.
    probe: &'static str,
    /// Whether all checks pass.
    ok: bool,
    checks: Vec<Check>,
}

impl Verdict {
    /// Status 200 if all checks pass, otherwise 503.
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
