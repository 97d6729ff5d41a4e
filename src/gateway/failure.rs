//! The answers to requests that cannot be served.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Why a request is not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestFailure {
    #[error("no such token; send `Authorization: Bearer TOKEN` with one of `gateway.tenants`")]
    Unknown,
    #[error("this is a front end's token; use an agent desk's for this request")]
    NotAnAgent,
    #[error("pages of this origin are not allowed (gateway.allowed_origins)")]
    ForeignPage,
    #[error("too many concurrent requests of this tenant (gateway.max_requests_per_tenant)")]
    TooMany,
    #[error("{0}")]
    Unfit(String),
    #[error("this turn is unknown here; send it, or ask the gateway that it was sent to")]
    NoTurn,
    #[error("the turn could not be written to the log; send it again with the same turn id")]
    NotWritten,
    #[error("no outcome yet; ask again with the same turn id")]
    Late,
}

impl RequestFailure {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Unknown => StatusCode::UNAUTHORIZED,
            Self::NotAnAgent | Self::ForeignPage => StatusCode::FORBIDDEN,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::Unfit(_) => StatusCode::BAD_REQUEST,
            Self::NoTurn => StatusCode::NOT_FOUND,
            Self::NotWritten => StatusCode::SERVICE_UNAVAILABLE,
            Self::Late => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The body in the form that clients of OpenAI's interface expect; it fits all others too.
    pub(crate) fn body(&self) -> Value {
        let kind = match self.status() {
            status if status.is_server_error() => "server_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            _ => "invalid_request_error",
        };
        json!({ "error": { "message": self.to_string(), "type": kind, "param": null, "code": null } })
    }
}

impl IntoResponse for RequestFailure {
    fn into_response(self) -> Response {
        answer(self.status(), &self.body())
    }
}

/// An answer in JSON.
pub(crate) fn answer(status: StatusCode, body: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}
