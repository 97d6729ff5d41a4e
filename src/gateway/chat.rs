//! Serves OpenAI's chat completions, so that an existing chat front end can talk to the engine.
//!
//! The last user message is the turn. Earlier messages are not read: the engine has the history,
//! which the header `x-conversation-id` or the field `user` names.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as Sse, KeepAlive};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use turnstream_schemas::{Speaker, Turn, TurnId};

use crate::access::AdmittedCaller;
use crate::conversations::{ConversationEvent, EventKind};
use crate::events::SIGN_OF_LIFE;
use crate::failure::{RequestFailure, answer};
use crate::turns::{Gateway, SentRecord, new_id, unfit};

/// The only model.
const MODEL: &str = "turnstream";

/// The parts of a request that are read.
#[derive(Debug, Deserialize)]
struct ChatRequest {
    messages: Vec<ChatMessage>,
    #[serde(default)]
    stream: bool,
    /// Whether a stream also has partial responses, before they are committed.
    #[serde(default)]
    partials: bool,
    user: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ChatMessage {
    role: String,
    #[serde(default)]
    content: Value,
}

/// `GET /v1/models`.
pub(crate) async fn models(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
) -> Result<Response, RequestFailure> {
    gateway.access.admit(&headers)?;
    let model = json!({ "id": MODEL, "object": "model", "created": 0, "owned_by": MODEL });
    Ok(answer(StatusCode::OK, &json!({ "object": "list", "data": [model] })))
}

/// `POST /v1/chat/completions`.
pub(crate) async fn complete(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, RequestFailure> {
    let admitted = gateway.access.admit(&headers)?;
    let asked: ChatRequest = serde_json::from_slice(&body).map_err(|error| unfit(&error))?;
    let turn = turn(&asked, &headers)?;
    let sent = gateway.sent(&admitted.caller, turn)?;
    if asked.stream {
        return Ok(streamed(gateway, admitted, sent, asked.partials));
    }
    let event = gateway.send(&sent).await?.ok_or(RequestFailure::Late)?;
    let said = said(&event)?;
    let choice = json!({
        "index": 0,
        "message": { "role": "assistant", "content": said.text, "refusal": null },
        "logprobs": null,
        "finish_reason": "stop",
    });
    let mut completion = envelope("chat.completion", &sent);
    completion["choices"] = json!([choice]);
    completion["turnstream"] = said.outcome;
    Ok(answer(StatusCode::OK, &completion))
}

/// Converts a request to the turn to answer.
fn turn(asked: &ChatRequest, headers: &HeaderMap) -> Result<Turn, RequestFailure> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let conversation = header("x-conversation-id").or(asked.user.as_deref()).ok_or_else(|| {
        RequestFailure::Unfit(
            "name the conversation by the header x-conversation-id, or by `user`".to_owned(),
        )
    })?;
    let last = asked.messages.last().filter(|message| message.role == "user");
    let text = last.and_then(|message| text(&message.content)).ok_or_else(|| {
        RequestFailure::Unfit("the last of `messages` must be a user's, with text".to_owned())
    })?;
    let mut turn = Turn::new(conversation, Speaker::User, &text);
    turn.user_id = asked.user.as_deref().map(Into::into);
    turn.turn_id = Some(match header("idempotency-key") {
        Some(key) => key.into(),
        None => turn_id(asked),
    });
    Ok(turn)
}

/// The id of a request's turn. A client that tries again sends the same messages, and so gets the
/// same id. A client that sends only the last message may say the same twice, and gets a new id.
fn turn_id(asked: &ChatRequest) -> TurnId {
    if asked.messages.len() < 2 {
        return new_id();
    }
    let mut digest = Sha256::new();
    for ChatMessage { role, content } in &asked.messages {
        digest.update(json!([role, content]).to_string());
    }
    let digest: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    TurnId(format!("chat-{}", &digest[..32]))
}

/// The text of a message: a string, or the parts that have text.
fn text(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            let texts: Vec<&str> = texts.collect();
            (!texts.is_empty()).then(|| texts.join("\n"))
        }
        _ => None,
    }
}

/// The words for the user, with their outcome.
struct AnswerWords {
    text: String,
    outcome: Value,
}

/// Returns the words of an outcome. They are empty if a person holds the conversation, or if a
/// later turn's response answers this turn too.
fn said(event: &ConversationEvent) -> Result<AnswerWords, RequestFailure> {
    let outcome: Value = serde_json::from_str(&event.json).unwrap_or_default();
    let field = |name: &str| outcome[name].as_str().unwrap_or_default().to_owned();
    match event.kind {
        EventKind::DeadLetter => Err(RequestFailure::Unfit(field("reason"))),
        _ => Ok(AnswerWords { text: field("text"), outcome }),
    }
}

/// The fields that a completion and its chunks have in common.
fn envelope(object: &str, sent: &SentRecord) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    json!({
        "id": format!("chatcmpl-{}", sent.turn_id),
        "object": object,
        "created": now,
        "model": MODEL,
        "choices": [],
    })
}

/// Streams the partial responses to a turn. Their chunks have no words for clients that do not know
/// partial responses.
fn partials(gateway: &Arc<Gateway>, sent: &SentRecord) -> impl Stream<Item = Value> + use<> {
    let (_, listener) = gateway.conversations.listen(&sent.conversation, None);
    stream::unfold((listener, sent.clone()), async |(mut listener, sent)| {
        loop {
            let event = listener.next().await.ok()?;
            if event.kind == EventKind::Partial && event.turn_id.as_ref() == Some(&sent.turn_id) {
                let partial: Value = serde_json::from_str(&event.json).unwrap_or_default();
                let mut chunk = envelope("chat.completion.chunk", &sent);
                chunk["turnstream"] = json!({ "partial": partial["text"] });
                return Some((chunk, (listener, sent)));
            }
        }
    })
}

/// Streams the completion: begins at once, and sends the words once they are committed.
fn streamed(
    gateway: Arc<Gateway>,
    admitted: AdmittedCaller,
    sent: SentRecord,
    wants_partials: bool,
) -> Response {
    let partials = wants_partials.then(|| partials(&gateway, &sent));
    let (ended, end) = oneshot::channel::<()>();
    let chunk = |sent: &SentRecord, delta: Value, finish: Value| {
        let mut chunk = envelope("chat.completion.chunk", sent);
        chunk["choices"] = json!([{ "index": 0, "delta": delta, "finish_reason": finish }]);
        chunk
    };
    let begun = chunk(&sent, json!({ "role": "assistant", "content": "" }), Value::Null);
    let answered = async move {
        let (_admitted, _ended) = (admitted, ended);
        let outcome = gateway.send(&sent).await.and_then(|event| event.ok_or(RequestFailure::Late));
        match outcome.and_then(|event| said(&event)) {
            Ok(AnswerWords { text, outcome }) => {
                let mut end = chunk(&sent, json!({}), json!("stop"));
                end["turnstream"] = outcome;
                vec![chunk(&sent, json!({ "content": text }), Value::Null), end]
            }
            Err(failure) => vec![failure.body()],
        }
    };
    let written = stream::iter(partials).flatten().take_until(end).boxed();
    let answered = stream::once(answered).flat_map(stream::iter).boxed();
    let chunks = stream::once(async { begun }).chain(stream::select(written, answered));
    let chunks = chunks.map(|chunk| chunk.to_string());
    let chunks = chunks.chain(stream::once(async { "[DONE]".to_owned() }));
    let events = chunks.map(|data| Ok::<_, Infallible>(Sse::default().data(data)));
    let keep = KeepAlive::new().interval(SIGN_OF_LIFE);
    axum::response::Sse::new(events).keep_alive(keep).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(value: Value) -> ChatRequest {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_last_user_message_is_the_turn() {
        let mut headers = HeaderMap::new();
        let messages = json!([
            { "role": "system", "content": "Be kind." },
            { "role": "user", "content": [{ "type": "text", "text": "hi" }, { "type": "image_url" }] },
        ]);
        let request = json!({ "model": "any", "user": "u", "messages": messages });
        let sent = turn(&asked(request.clone()), &headers).unwrap();
        assert_eq!((sent.conversation_id.as_str(), &*sent.text), ("u", "hi"));
        assert_eq!(sent.user_id, Some("u".into()));
        headers.insert("x-conversation-id", "c".parse().unwrap());
        let named = turn(&asked(request.clone()), &headers).unwrap();
        assert_eq!(named.conversation_id.as_str(), "c");
        assert_eq!(named.turn_id, sent.turn_id, "sent again it has the same id");
        headers.insert("idempotency-key", "k".parse().unwrap());
        assert_eq!(turn(&asked(request), &headers).unwrap().turn_id, Some("k".into()));
        for messages in [
            json!([]),
            json!([{ "role": "assistant", "content": "hi" }]),
            json!([{ "role": "user", "content": null }]),
        ] {
            let request = asked(json!({ "messages": messages }));
            assert!(matches!(turn(&request, &headers), Err(RequestFailure::Unfit(_))));
        }
        let request = asked(json!({ "messages": [{ "role": "user", "content": "hi" }] }));
        assert!(
            matches!(turn(&request, &HeaderMap::new()), Err(RequestFailure::Unfit(_))),
            "of whom?"
        );
        assert_ne!(turn_id(&request), turn_id(&request), "it may be said twice");
    }
}
