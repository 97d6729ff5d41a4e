//! Runs the gateway as a process: its threads, its routes and its end.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tower_http::cors::CorsLayer;
use turnstream_log::deliver::Delivery;
use turnstream_log::write::Writer;
use turnstream_log::{Follower, LogError, Topic};
use turnstream_ports::partitioner::Partitioner;
use turnstream_schemas::ScopeKind;

use crate::access::{Access, refuse_foreign_pages};
use crate::config::{GatewayConfig, GatewayRefused};
use crate::conversations::KnownConversations;
use crate::following::follow;
use crate::turns::{self, Gateway};
use crate::webhook::Webhook;
use crate::writing::{OpenWriter, TurnWriting, write_all};
use crate::{chat, events, socket};

/// How often the server checks whether to stop.
const LOOK: Duration = Duration::from_millis(100);

/// The gateway's side of the log.
pub struct GatewayTopics {
    /// The topics of outcomes, from `since_ms` on, the whole topic of conversations, and the topic
    /// of partial responses from now on, if they are passed on.
    pub outcomes: Vec<(Topic, Box<dyn Follower>)>,
    /// The time on the log from which outcomes are remembered, in milliseconds since 1970.
    pub since_ms: i64,
    /// Opens the topic of turns to write to it.
    pub turns: Box<dyn Fn() -> Result<Box<dyn Writer>, LogError> + Send>,
    /// The events for the webhook, if one is configured.
    pub webhook: Option<Box<dyn Delivery>>,
    /// How clients place keys on partitions.
    pub partitioner: Partitioner,
    /// The kind of scopes.
    pub scope: ScopeKind,
}

/// Why the gateway does not serve.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The configuration is refused.
    #[error("gateway: {0}")]
    Config(#[from] GatewayRefused),
    /// The address cannot be bound, or no thread started.
    #[error("gateway.address = `{address}`: {source}; name one of this machine whose port is free")]
    Bind {
        /// The address.
        address: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The log fails.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Serves until `stop` is set. Calls `ready` with the bound address once it serves.
///
/// # Errors
/// [`GatewayError`], also if a reader of the log ends while it serves.
pub fn serve(
    config: &GatewayConfig,
    topics: GatewayTopics,
    stop: &Arc<AtomicBool>,
    ready: impl FnOnce(std::net::SocketAddr),
) -> Result<(), GatewayError> {
    let address = config.check()?;
    let bound = |source| GatewayError::Bind { address: config.address.clone(), source };
    let GatewayTopics { outcomes, since_ms, turns, webhook, partitioner, scope } = topics;
    let turns: OpenWriter = turns;
    let writer = turns()?;
    let listener = std::net::TcpListener::bind(address).map_err(bound)?;
    listener.set_nonblocking(true).map_err(bound)?;
    let address = listener.local_addr().map_err(bound)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(bound)?;

    let conversations = Arc::new(KnownConversations::new(config.max_outcomes));
    let (behind, caught_up) = channel();
    let mut readers: Vec<JoinHandle<Result<(), LogError>>> = outcomes
        .into_iter()
        .map(|(topic, follower)| {
            let (conversations, stop) = (Arc::clone(&conversations), Arc::clone(stop));
            let behind = behind.clone();
            std::thread::spawn(move || {
                follow(topic, follower, (&conversations, since_ms), &stop, behind)
            })
        })
        .collect();
    drop(behind);
    let called = Webhook::new(&config.webhook).map_err(GatewayRefused::from)?;
    readers.extend(called.zip(webhook).map(|(called, source)| {
        let stop = Arc::clone(stop);
        std::thread::spawn(move || called.run(source, &stop))
    }));
    // Before that, a turn that was answered could seem new. The wait also ends if a reader does.
    let _: Result<(), _> = caught_up.recv();
    let (sender, records) = channel();
    let writing =
        std::thread::spawn(move || write_all(&records, Some(writer), &turns, partitioner));
    let gateway = Arc::new(Gateway {
        access: Access::new(config),
        conversations,
        writing: TurnWriting(sender),
        scope,
        wait: Duration::from_millis(config.wait_ms),
        max_body_bytes: config.max_body_bytes,
    });
    let served = runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        ready(address);
        let over = async {
            let mut look = tokio::time::interval(LOOK);
            // A reader ends early only on an error.
            let is_over =
                || stop.load(Ordering::Relaxed) || readers.iter().any(JoinHandle::is_finished);
            poll_fn(|context| match is_over() {
                true => Poll::Ready(()),
                false => {
                    while look.poll_tick(context).is_ready() {}
                    Poll::Pending
                }
            })
            .await;
        };
        tokio::select! {
            served = axum::serve(listener, routes(config, gateway)).into_future() => served,
            // Streams are cut off, so that no client delays the end.
            () = over => Ok(()),
        }
    });
    stop.store(true, Ordering::Relaxed);
    // Drops the requests that wait for outcomes, and with them the last sender, which ends
    // `writing`.
    drop(runtime);
    let mut ended = Ok(());
    for reader in readers {
        let reader = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ended = ended.and(reader);
    }
    writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    served.map_err(bound)?;
    Ok(ended?)
}

/// The description of the requests as OpenAPI.
const DESCRIPTION: &str = include_str!("openapi.json");

async fn described() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], DESCRIPTION)
}

fn routes(config: &GatewayConfig, gateway: Arc<Gateway>) -> Router {
    let origins: Vec<HeaderValue> =
        config.allowed_origins.iter().filter_map(|origin| origin.parse().ok()).collect();
    let named = ["x-conversation-id", "last-event-id", "prefer"].map(HeaderName::from_static);
    let headers = [header::AUTHORIZATION, header::CONTENT_TYPE].into_iter().chain(named);
    let allowed = Arc::new(config.allowed_origins.clone());
    let cors = CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::POST])
        .allow_headers(headers.collect::<Vec<_>>());
    Router::new()
        .route("/v1/conversations/{conversation}/turns", post(turns::post))
        .route("/v1/conversations/{conversation}/turns/{turn}", get(turns::get))
        .route("/v1/conversations/{conversation}/events", get(events::get))
        .route("/v1/conversations/{conversation}/socket", get(socket::get))
        .route("/v1/conversations/{conversation}/{directive}", post(turns::direct))
        .route("/v1/waiting", get(events::waiting))
        .route("/v1/waiting/events", get(events::of_desk))
        .route("/v1/chat/completions", post(chat::complete))
        .route("/v1/models", get(chat::models))
        .route("/openapi.json", get(described))
        .layer(DefaultBodyLimit::max(config.max_body_bytes))
        .layer(from_fn_with_state(allowed, refuse_foreign_pages))
        .layer(cors)
        .with_state(gateway)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_has_every_route() {
        let description: serde_json::Value = serde_json::from_str(DESCRIPTION).unwrap();
        let paths = description["paths"].as_object().unwrap();
        let source = include_str!("server.rs");
        let (source, _) = source.split_once("mod tests").unwrap();
        let routes = source.split(".route(\"").skip(1);
        let routes: Vec<&str> = routes.filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(routes.len(), paths.len());
        for route in routes {
            assert!(paths.contains_key(route), "{route} is not described");
        }
    }
}
