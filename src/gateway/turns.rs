//! Takes turns and directives by HTTP: a client sends one, and gets its outcome.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use turnstream_schemas::{
    ConversationId, Directive, DirectiveKind, ScopeKind, Speaker, TenantId, Turn, TurnId,
};

use crate::access::{Access, Caller, DEFAULT_TENANT};
use crate::conversations::{ConversationEvent, ConversationKey, EventKind, KnownConversations};
use crate::failure::{RequestFailure, answer};
use crate::writing::TurnWriting;

/// The state that all requests share.
pub(crate) struct Gateway {
    pub(crate) access: Access,
    pub(crate) conversations: Arc<KnownConversations>,
    pub(crate) writing: TurnWriting,
    pub(crate) scope: ScopeKind,
    pub(crate) wait: Duration,
    /// Most bytes of a turn.
    pub(crate) max_body_bytes: usize,
}

/// A record to write, which is to have an outcome.
#[derive(Clone)]
pub(crate) struct SentRecord {
    pub(crate) conversation: ConversationKey,
    pub(crate) turn_id: String,
    /// The key on the log: the conversation, or the user where users are scopes.
    log_key: String,
    value: String,
}

impl Gateway {
    /// Writes the record, and answers with its outcome, unless the client does not wait for it.
    async fn answer(
        self: &Arc<Self>,
        sent: &SentRecord,
        headers: &HeaderMap,
    ) -> Result<Response, RequestFailure> {
        let outcome = match waits_not(headers) {
            true => self.write(sent).await?,
            false => self.send(sent).await?,
        };
        Ok(outcome_or_place(outcome, sent))
    }

    /// [Writes](Self::write) the record, and waits for its outcome. `None` if it does not come in
    /// time.
    ///
    /// # Errors
    /// The log does not take the record.
    pub(crate) async fn send(
        self: &Arc<Self>,
        sent: &SentRecord,
    ) -> Result<Option<ConversationEvent>, RequestFailure> {
        let SentRecord { conversation, turn_id, .. } = sent;
        match self.write(sent).await? {
            None => Ok(self.conversations.wait(conversation, turn_id, self.wait).await),
            known => Ok(known),
        }
    }

    /// Writes the record, unless it was written already or has an outcome. Returns the outcome.
    ///
    /// # Errors
    /// The log does not take the record.
    pub(crate) async fn write(
        self: &Arc<Self>,
        sent: &SentRecord,
    ) -> Result<Option<ConversationEvent>, RequestFailure> {
        let SentRecord { conversation, turn_id, .. } = sent;
        let known = self.conversations.outcome(conversation, turn_id);
        // A turn that could not be served may be sent again under the same id.
        if let Some(known) = known.filter(|known| known.kind != EventKind::DeadLetter) {
            return Ok(Some(known));
        }
        if self.conversations.write(conversation, turn_id) {
            // A client that goes away ends its own request. The task learns all the same whether
            // the turn was written; otherwise the turn would count as written for ever.
            let (gateway, sent) = (Arc::clone(self), sent.clone());
            let written = tokio::spawn(async move {
                let written = gateway.writing.write(&sent.log_key, sent.value).await;
                if written.is_err() {
                    gateway.conversations.unwrite(&sent.conversation, &sent.turn_id);
                }
                written
            });
            written.await.unwrap_or(Err(RequestFailure::NotWritten))?;
        }
        Ok(None)
    }

    /// Converts a turn of this caller to the record for the log. Gives it an id, if it has none.
    ///
    /// # Errors
    /// The caller may not speak for this side, or the turn names no user although users are scopes.
    pub(crate) fn sent(
        &self,
        caller: &Caller,
        mut turn: Turn,
    ) -> Result<SentRecord, RequestFailure> {
        if turn.speaker == Speaker::System && !caller.is_agent {
            return Err(RequestFailure::NotAnAgent);
        }
        turn.tenant_id = tenant_of(caller);
        let turn_id = turn.turn_id.get_or_insert_with(new_id).0.clone();
        let conversation = turn.conversation_id.0.clone();
        let user = turn.user_id.as_ref().map(|user| user.0.clone());
        let value = serde_json::to_string(&turn).map_err(|error| unfit(&error))?;
        self.of(caller, (conversation, user), turn_id, value)
    }

    fn of(
        &self,
        caller: &Caller,
        (conversation, user): (String, Option<String>),
        turn_id: String,
        value: String,
    ) -> Result<SentRecord, RequestFailure> {
        let log_key = match self.scope {
            ScopeKind::Conversation => conversation.clone(),
            ScopeKind::User => user.ok_or_else(|| {
                RequestFailure::Unfit(
                    "`user_id` is missing; turns.scope = \"user\" needs it".to_owned(),
                )
            })?,
        };
        Ok(SentRecord {
            conversation: (caller.tenant.clone(), conversation),
            turn_id,
            log_key,
            value,
        })
    }
}

/// `POST /v1/conversations/{id}/turns`: a turn, without `tenant_id` and `conversation_id`.
pub(crate) async fn post(
    State(gateway): State<Arc<Gateway>>,
    Path(conversation): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, RequestFailure> {
    let admitted = gateway.access.admit(&headers)?;
    let sent = gateway.sent(&admitted.caller, turn(&conversation, &body)?)?;
    gateway.answer(&sent, &headers).await
}

/// Parses the turn in a body.
///
/// # Errors
/// The body is not a turn.
pub(crate) fn turn(conversation: &str, body: &[u8]) -> Result<Turn, RequestFailure> {
    let mut value = object(body)?;
    value["conversation_id"] = conversation.into();
    let speaker = value.get("speaker").cloned().unwrap_or_else(|| "user".into());
    value["speaker"] = speaker;
    serde_json::from_value(value).map_err(|error| unfit(&error))
}

/// Whether the client wants to hear only that the turn is on the log (RFC 7240).
fn waits_not(headers: &HeaderMap) -> bool {
    let wishes = headers.get_all("prefer").iter().filter_map(|wish| wish.to_str().ok());
    wishes.flat_map(|wish| wish.split([',', ';'])).any(|wish| wish.trim() == "respond-async")
}

/// `POST /v1/conversations/{id}/takeover` and `…/release`: a directive.
pub(crate) async fn direct(
    State(gateway): State<Arc<Gateway>>,
    Path((conversation, kind)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, RequestFailure> {
    let admitted = gateway.access.admit(&headers)?;
    let caller = &admitted.caller;
    if !caller.is_agent {
        return Err(RequestFailure::NotAnAgent);
    }
    let kind = match kind.as_str() {
        "takeover" => DirectiveKind::Takeover,
        "release" => DirectiveKind::Release,
        _ => return Ok(StatusCode::NOT_FOUND.into_response()),
    };
    let mut value = if body.is_empty() { json!({}) } else { object(&body)? };
    value["kind"] = json!(kind);
    let mut directive: Directive = serde_json::from_value(value).map_err(|error| unfit(&error))?;
    directive.tenant_id = tenant_of(caller);
    if gateway.scope == ScopeKind::Conversation {
        directive.conversation_id = Some(ConversationId(conversation.clone()));
    }
    let turn_id = directive.turn_id.get_or_insert_with(new_id).0.clone();
    let user = directive.user_id.as_ref().map(|user| user.0.clone());
    let value = serde_json::to_string(&directive).map_err(|error| unfit(&error))?;
    let sent = gateway.of(caller, (conversation, user), turn_id, value)?;
    if gateway.scope == ScopeKind::User {
        // A directive about a user names no conversation, so no conversation hears its outcome.
        gateway.writing.write(&sent.log_key, sent.value.clone()).await?;
        return Ok(outcome_or_place(None, &sent));
    }
    gateway.answer(&sent, &headers).await
}

/// `GET /v1/conversations/{id}/turns/{turn}`: the outcome of a turn.
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    Path((conversation, turn_id)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, RequestFailure> {
    let admitted = gateway.access.admit(&headers)?;
    let key = (admitted.caller.tenant.clone(), conversation);
    let outcome = match gateway.conversations.is_open(&key, &turn_id) {
        true => gateway.conversations.wait(&key, &turn_id, gateway.wait).await,
        false => Some(gateway.conversations.outcome(&key, &turn_id).ok_or(RequestFailure::NoTurn)?),
    };
    let (log_key, value) = Default::default();
    Ok(outcome_or_place(outcome, &SentRecord { conversation: key, turn_id, log_key, value }))
}

/// Answers with the outcome, or the place to ask for it.
fn outcome_or_place(outcome: Option<ConversationEvent>, sent: &SentRecord) -> Response {
    let Some(event) = outcome else {
        let SentRecord { conversation: (_, conversation), turn_id, .. } = sent;
        let place =
            format!("/v1/conversations/{}/turns/{}", escaped(conversation), escaped(turn_id));
        let body = json!({ "conversation_id": conversation, "turn_id": turn_id });
        let mut late = answer(StatusCode::ACCEPTED, &body);
        if let Ok(place) = place.parse() {
            late.headers_mut().insert(header::LOCATION, place);
        }
        return late;
    };
    let status = match event.kind {
        EventKind::DeadLetter => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::OK,
    };
    (status, [(header::CONTENT_TYPE, "application/json")], event.json.to_string()).into_response()
}

/// Escapes a segment of a path.
fn escaped(id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escape = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    id.bytes().map(escape).collect()
}

/// The tenant in a record: none for `default`, as in the turns of all other clients.
fn tenant_of(caller: &Caller) -> Option<TenantId> {
    Some(TenantId(caller.tenant.clone())).filter(|tenant| tenant.as_str() != DEFAULT_TENANT)
}

pub(crate) fn new_id() -> TurnId {
    TurnId(format!("{:032x}", fastrand::u128(..)))
}

fn object(body: &[u8]) -> Result<Value, RequestFailure> {
    let value: Value = serde_json::from_slice(body).map_err(|error| unfit(&error))?;
    match value.is_object() {
        true => Ok(value),
        false => Err(RequestFailure::Unfit("the body must be a JSON object".to_owned())),
    }
}

pub(crate) fn unfit(error: &serde_json::Error) -> RequestFailure {
    RequestFailure::Unfit(format!("the body is invalid: {error}"))
}

#[cfg(test)]
pub(crate) mod testing {
    use std::sync::mpsc::Receiver;

    use super::*;
    use crate::config::GatewayConfig;
    use crate::writing::ToWrite;

    /// A gateway that does not wait, and the receiver of what is to be written.
    pub(crate) fn gateway(config: &GatewayConfig) -> (Arc<Gateway>, Receiver<ToWrite>) {
        let (sender, records) = std::sync::mpsc::channel();
        let gateway = Gateway {
            access: Access::new(config),
            conversations: Arc::new(KnownConversations::new(10)),
            writing: TurnWriting(sender),
            scope: ScopeKind::Conversation,
            wait: Duration::from_millis(1),
            max_body_bytes: config.max_body_bytes,
        };
        (Arc::new(gateway), records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GatewayConfig;

    /// A client goes away while the log is away. Its turn does not count as written, and the next
    /// try writes it.
    #[test]
    fn a_turn_whose_client_went_away_can_be_sent_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (gateway, records) = testing::gateway(&GatewayConfig::default());
        let caller = Caller { tenant: DEFAULT_TENANT.to_owned(), is_agent: false };
        let mut turn = Turn::new("c", Speaker::User, "hello");
        turn.turn_id = Some("t".into());
        let sent = gateway.sent(&caller, turn).unwrap();
        runtime.block_on(async {
            let gone = tokio::time::timeout(Duration::from_millis(1), gateway.send(&sent)).await;
            assert!(gone.is_err(), "nobody writes yet");
            drop(records.recv().unwrap());
            let is_open = || gateway.conversations.is_open(&sent.conversation, "t");
            while is_open() {
                tokio::task::yield_now().await;
            }
            let again = tokio::time::timeout(Duration::from_millis(1), gateway.send(&sent)).await;
            assert!(again.is_err() && records.try_recv().is_ok(), "it is written again");
            let held = ConversationEvent {
                id: "recorded-0-0".to_owned(),
                kind: EventKind::Recorded,
                turn_id: Some("t".to_owned()),
                json: "{}".into(),
            };
            gateway.conversations.note(sent.conversation.clone(), held.clone());
            assert_eq!(gateway.send(&sent).await.unwrap(), Some(held));
            assert!(records.try_recv().is_err(), "what ended is not written again");
        });
    }

    #[test]
    fn a_client_may_not_want_to_wait() {
        let waits = |wish: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("prefer", wish.parse().unwrap());
            !waits_not(&headers)
        };
        assert!(waits("handling=lenient") && waits("respond-asynchronously"));
        assert!(!waits("respond-async") && !waits("handling=lenient, respond-async; wait=10"));
    }
}
