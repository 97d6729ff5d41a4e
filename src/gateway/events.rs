//! Streams the events of a conversation as server-sent events.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as Sse, KeepAlive};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::AdmittedCaller;
use crate::conversations::{ConversationEvent, ConversationKey, EventKind, desks_of};
use crate::failure::{RequestFailure, answer};
use crate::turns::Gateway;

/// How often a silent stream sends a sign of life, so that nothing between takes it for dead.
pub(crate) const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// The query of a reader of events.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EventsQuery {
    /// Whether to send partial responses too, before they are committed.
    pub(crate) partials: bool,
    /// The id of the event after which to begin.
    pub(crate) after: Option<String>,
}

/// `GET /v1/conversations/{id}/events`: what is committed from now on, or after `Last-Event-ID`. A
/// reader that is too slow is cut off, and may return with the last id that it saw.
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    Path(conversation): Path<String>,
    Query(EventsQuery { partials, after }): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, RequestFailure> {
    let admitted = gateway.access.admit(&headers)?;
    // A client that reconnects has the header from the stream, and `after` from its first request.
    let seen = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let key = (admitted.caller.tenant.clone(), conversation);
    Ok(streamed(&gateway, admitted, &key, seen.or(after.as_deref()), partials))
}

/// `GET /v1/waiting`: the conversations whose users wait for an agent, the longest wait first.
pub(crate) async fn waiting(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
) -> Result<Response, RequestFailure> {
    let admitted = admit_desk(&gateway, &headers)?;
    let waiting = gateway.conversations.waiting(&admitted.caller.tenant);
    let waiting: Vec<Value> =
        waiting.iter().filter_map(|record| serde_json::from_str(record).ok()).collect();
    Ok(answer(StatusCode::OK, &json!({ "waiting": waiting })))
}

/// `GET /v1/waiting/events`: every change of hands of the tenant's conversations, from now on.
pub(crate) async fn of_desk(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
) -> Result<Response, RequestFailure> {
    let admitted = admit_desk(&gateway, &headers)?;
    let key = desks_of(&admitted.caller.tenant);
    Ok(streamed(&gateway, admitted, &key, None, false))
}

fn admit_desk(gateway: &Gateway, headers: &HeaderMap) -> Result<AdmittedCaller, RequestFailure> {
    let admitted = gateway.access.admit(headers)?;
    if admitted.caller.is_agent { Ok(admitted) } else { Err(RequestFailure::NotAnAgent) }
}

fn streamed(
    gateway: &Gateway,
    admitted: AdmittedCaller,
    key: &ConversationKey,
    after: Option<&str>,
    partials: bool,
) -> Response {
    let (missed, listener) = gateway.conversations.listen(key, after);
    // The request counts among the tenant's as long as the stream is open.
    let coming = stream::unfold((listener, admitted), async |(mut listener, admitted)| {
        listener.next().await.ok().map(|event| (event, (listener, admitted)))
    });
    let events = stream::iter(missed).chain(coming);
    let wanted = events.filter(move |event| ready(partials || event.kind != EventKind::Partial));
    let events = wanted.map(|event| Ok::<_, Infallible>(sse(&event)));
    let keep = KeepAlive::new().interval(SIGN_OF_LIFE);
    axum::response::Sse::new(events).keep_alive(keep).into_response()
}

fn sse(event: &ConversationEvent) -> Sse {
    let told = match event.kind {
        // A reader cannot resume after an event that is not kept.
        EventKind::Partial => Sse::default(),
        _ => Sse::default().id(&event.id),
    };
    told.event(event.kind.name()).data(&*event.json)
}
