//! What happens in a conversation, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event as Sse, KeepAlive};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use futures_util::stream;

use crate::conversations::Event;
use crate::failure::Failure;
use crate::turns::Gateway;

/// How often a silent stream says that it is there, so that nothing between takes it for dead.
pub(crate) const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// `GET /v1/conversations/{id}/events`: what is committed from now on, or behind `Last-Event-ID`. A
/// reader that is too slow is cut off, and may come again with the last id that it saw.
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    Path(conversation): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let admitted = gateway.access.admit(&headers)?;
    let after = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let key = (admitted.caller.tenant.clone(), conversation);
    let (missed, listener) = gateway.conversations.listen(&key, after);
    // The request counts among the tenant's as long as the stream is open.
    let coming = stream::unfold((listener, admitted), async |(mut listener, admitted)| {
        listener.next().await.ok().map(|event| (event, (listener, admitted)))
    });
    let events = stream::iter(missed).chain(coming).map(|event| Ok::<_, Infallible>(sse(&event)));
    let keep = KeepAlive::new().interval(SIGN_OF_LIFE);
    Ok(axum::response::Sse::new(events).keep_alive(keep).into_response())
}

fn sse(event: &Event) -> Sse {
    Sse::default().id(&event.id).event(event.kind.name()).data(&*event.json)
}
