//! Serves a conversation over one WebSocket: turns in, events out, for chat widgets.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::future::OptionFuture;
use serde_json::json;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};
use turnstream_schemas::TurnId;

use crate::access::AdmittedCaller;
use crate::conversations::{ConversationEvent, EventKind};
use crate::events::{EventsQuery, SIGN_OF_LIFE};
use crate::failure::RequestFailure;
use crate::turns::{Gateway, turn};

/// The protocol of the socket, for clients that name protocols.
const PROTOCOL: &str = "turnstream.v1";

/// `GET /v1/conversations/{id}/socket`: every text that the client sends is a turn. The gateway
/// answers `taken` or `refused`, and sends what is committed, from now on or after the event
/// `after`. A reader that is too slow is cut off, and may come again.
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    Path(conversation): Path<String>,
    Query(wanted): Query<EventsQuery>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Result<Response, RequestFailure> {
    let admitted = gateway.access.admit(&headers)?;
    let most = gateway.max_body_bytes;
    let upgrade = upgrade.protocols([PROTOCOL]).max_message_size(most).max_frame_size(most);
    Ok(upgrade.on_upgrade(move |socket| {
        let lively = Lively { socket, is_silent: false };
        talk(gateway, admitted, conversation, wanted, lively)
    }))
}

/// A socket whose client must take what it is sent, and give signs of life.
struct Lively {
    socket: WebSocket,
    /// Whether nothing came since the last ping.
    is_silent: bool,
}

/// The client is gone, or does not read.
struct Gone;

impl Lively {
    async fn send(&mut self, message: Message) -> Result<(), Gone> {
        match timeout(SIGN_OF_LIFE, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Gone),
        }
    }

    /// Returns the text of the next turn; `None` for a message that is not a turn.
    async fn next(&mut self) -> Result<Option<Bytes>, Gone> {
        let message = self.socket.recv().await;
        self.is_silent = false;
        match message {
            Some(Ok(Message::Text(text))) => Ok(Some(text.into())),
            Some(Ok(Message::Binary(bytes))) => Ok(Some(bytes)),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(None),
            Some(Ok(Message::Close(_)) | Err(_)) | None => Err(Gone),
        }
    }

    async fn ask_for_life(&mut self) -> Result<(), Gone> {
        if std::mem::replace(&mut self.is_silent, true) {
            return Err(Gone);
        }
        self.send(Message::Ping(Bytes::new())).await
    }
}

async fn talk(
    gateway: Arc<Gateway>,
    admitted: AdmittedCaller,
    conversation: String,
    EventsQuery { partials, after }: EventsQuery,
    mut socket: Lively,
) {
    let key = (admitted.caller.tenant.clone(), conversation);
    let (missed, mut events) = gateway.conversations.listen(&key, after.as_deref());
    for event in missed {
        if socket.send(Message::text(event.enveloped())).await.is_err() {
            return;
        }
    }
    let mut life: Interval = interval(SIGN_OF_LIFE);
    life.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Takes one turn after the other, in the order in which they were sent.
    let mut writing = None;
    loop {
        let done = tokio::select! {
            event = events.next() => match event {
                Ok(event) if event.kind == EventKind::Partial && !partials => Ok(()),
                Ok(event) => socket.send(Message::text(event.enveloped())).await,
                Err(_) => {
                    let frame = CloseFrame { code: close_code::AGAIN, reason: "too far behind".into() };
                    let _ = socket.send(Message::Close(Some(frame))).await;
                    Err(Gone)
                }
            },
            said = socket.next(), if writing.is_none() => said.map(|said| {
                writing = said.map(|body| Box::pin(take(&gateway, &admitted, &key.1, body)));
            }),
            Some(answer) = OptionFuture::from(writing.as_mut()) => {
                writing = None;
                socket.send(Message::text(answer)).await
            }
            _ = life.tick(), if writing.is_none() => socket.ask_for_life().await,
        };
        if done.is_err() {
            return;
        }
    }
}

/// Writes a turn, and returns the answer: `taken` once it is on the log; its outcome, if it has
/// one; or `refused`, with the status that an HTTP request would get.
async fn take(
    gateway: &Arc<Gateway>,
    admitted: &AdmittedCaller,
    conversation: &str,
    body: Bytes,
) -> String {
    let mut turn_id = None;
    let written = async {
        let turn = turn(conversation, &body)?;
        turn_id.clone_from(&turn.turn_id);
        let sent = gateway.sent(&admitted.caller, turn)?;
        turn_id = Some(TurnId(sent.turn_id.clone()));
        gateway.write(&sent).await
    };
    let written: Result<Option<ConversationEvent>, RequestFailure> = written.await;
    match written {
        Ok(Some(known)) => known.enveloped(),
        Ok(None) => json!({ "type": "taken", "data": { "turn_id": turn_id } }).to_string(),
        Err(failure) => {
            let (status, message) = (failure.status().as_u16(), failure.to_string());
            let data = json!({ "turn_id": turn_id, "status": status, "message": message });
            json!({ "type": "refused", "data": data }).to_string()
        }
    }
}

#[cfg(test)]
mod tests;
