//! `[gateway]`: the address that the gateway listens on, and who may speak through it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_log::Topic;

/// The optional prefix of a secret, which marks it as one.
const SECRET_PREFIX: &str = "whsec_";
/// The shortest key that events are signed with, in bytes.
const LEAST_KEY_BYTES: usize = 24;

/// `[gateway]`: HTTP in front of the topics (`turnstream gateway`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayConfig {
    /// IP address and port that it listens on. Without `tenants` the address must be a loopback
    /// one, since every client that reaches it may speak for the default tenant, as a user and as
    /// an agent.
    pub address: String,
    /// Milliseconds that a request waits for its outcome, before the client is told where to ask again.
    #[schemars(range(min = 1, max = 600000))]
    pub wait_ms: u64,
    /// Most requests of one tenant at a time, streams of events among them, from 1; beyond that a request
    /// is answered with 429.
    #[schemars(range(min = 1))]
    pub max_requests_per_tenant: usize,
    /// Most bytes of a request's body, from 1.
    #[schemars(range(min = 1))]
    pub max_body_bytes: usize,
    /// Minutes before the start whose outcomes are read again, so that a turn that was sent to
    /// another copy, or before a restart, is answered when it is repeated.
    pub remember_minutes: u64,
    /// Most outcomes that are remembered, from 1; about 1 KiB each.
    #[schemars(range(min = 1))]
    pub max_outcomes: usize,
    /// Origins, such as `https://shop.example`, whose pages may call the gateway from a browser.
    pub allowed_origins: Vec<String>,
    /// Whether clients that ask for them get partial responses, before they are committed:
    /// `turnstream run` then writes them to the topic `partials`, which the gateway reads. The
    /// outcome of the turn replaces them, and may have other words or none.
    pub partials: bool,
    /// The receiver that the gateway calls with committed events.
    pub webhook: WebhookConfig,
    /// The tenants that may speak, by name, with their tokens; `default` is the tenant of turns that name none.
    pub tenants: BTreeMap<String, TenantConfig>,
}

/// The tokens of a tenant, which its requests carry as `Authorization: Bearer TOKEN`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TenantConfig {
    /// The token of front ends, which speak for users; if empty, none may.
    pub token: String,
    /// The token of agent desks, which may also speak for the other side, take conversations over
    /// and release them; if empty, none may.
    pub agent_token: String,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            address: "127.0.0.1:8077".to_owned(),
            wait_ms: 30_000,
            max_requests_per_tenant: 1_000,
            max_body_bytes: 262_144,
            remember_minutes: 15,
            max_outcomes: 100_000,
            allowed_origins: Vec::new(),
            partials: false,
            webhook: WebhookConfig::default(),
            tenants: BTreeMap::new(),
        }
    }
}

/// `[gateway.webhook]`: the receiver that the gateway calls with committed events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WebhookConfig {
    /// The address that each event is sent to, by POST. Without it no receiver is called.
    pub url: Option<String>,
    /// The key that events are signed with, which the receiver has too: base64 of at least 24 bytes, with
    /// or without `whsec_` before it. `openssl rand -base64 32` makes one.
    pub secret: String,
    /// The events that are sent.
    pub events: Vec<WebhookEvent>,
    /// Milliseconds that a call may take, from 1.
    #[schemars(range(min = 1))]
    pub timeout_ms: u64,
    /// Conversations that are served at the same time, 1 to 256; each event of one waits for the one before.
    #[schemars(range(min = 1, max = 256))]
    pub max_conversations: usize,
    /// Most milliseconds between two attempts. A receiver that cannot be reached, or answers 408,
    /// 425, 429 or 500 and above, is called again until it takes the event; any other answer but
    /// 2xx refuses it.
    pub max_wait_ms: u64,
}

/// An event that the gateway sends to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebhookEvent {
    /// A response.
    Response,
    /// A turn that could not be served.
    DeadLetter,
    /// A conversation has changed hands.
    Conversation,
}

impl WebhookEvent {
    fn topic(self) -> Topic {
        match self {
            Self::Response => Topic::Responses,
            Self::DeadLetter => Topic::DeadLetters,
            Self::Conversation => Topic::Conversations,
        }
    }
}

impl Default for WebhookConfig {
    fn default() -> Self {
        Self {
            url: None,
            secret: String::new(),
            events: vec![WebhookEvent::Response, WebhookEvent::Conversation],
            timeout_ms: 10_000,
            max_conversations: 16,
            max_wait_ms: 60_000,
        }
    }
}

/// Why the configuration of a webhook is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookRefused {
    /// The address is not valid.
    #[error("`gateway.webhook.url` is not an address such as https://desk.example/events")]
    Url,
    /// The key is not valid.
    #[error(
        "`gateway.webhook.secret` must be base64 of at least 24 bytes; make one with `openssl rand \
         -base64 32`"
    )]
    Secret,
    /// No events are named.
    #[error("`gateway.webhook.events` is empty; name events, or leave out `gateway.webhook.url`")]
    Events,
}

impl WebhookConfig {
    /// The topics that the events are on.
    pub fn topics(&self) -> Vec<Topic> {
        let mut topics: Vec<Topic> = self.events.iter().map(|event| event.topic()).collect();
        topics.sort_unstable();
        topics.dedup();
        topics
    }

    /// Checks what would otherwise fail at the first event. Returns the key, which is empty if no
    /// receiver is configured.
    ///
    /// # Errors
    /// The address or the key is not valid, or no events are named.
    pub fn check(&self) -> Result<Vec<u8>, WebhookRefused> {
        let Some(url) = &self.url else { return Ok(Vec::new()) };
        let uri: Result<axum::http::Uri, _> = url.parse();
        let is_address = uri.is_ok_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
        });
        if !is_address {
            return Err(WebhookRefused::Url);
        }
        if self.events.is_empty() {
            return Err(WebhookRefused::Events);
        }
        let secret = self.secret.strip_prefix(SECRET_PREFIX).unwrap_or(&self.secret);
        let key = STANDARD.decode(secret.trim()).ok().filter(|key| key.len() >= LEAST_KEY_BYTES);
        key.ok_or(WebhookRefused::Secret)
    }
}

/// Why the configuration of the gateway is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatewayRefused {
    /// The address is not valid.
    #[error("`{0}` is not an IP address with a port such as 127.0.0.1:8077")]
    Address(String),
    /// Without tokens, every client could speak.
    #[error(
        "{0} is reachable from other machines, and no tenant has a token; set `gateway.tenants`, \
         or listen on 127.0.0.1"
    )]
    Open(SocketAddr),
    /// Two tenants, or the two sides of one, have the same token.
    #[error("tenant `{0}` has a token that is used twice; give each tenant and side its own")]
    SameToken(String),
    /// A tenant without a token.
    #[error("tenant `{0}` has neither `token` nor `agent_token`")]
    NoToken(String),
    /// An origin that no browser sends.
    #[error("`{0}` is not an origin such as https://shop.example")]
    Origin(String),
    /// The configuration of the webhook is refused.
    #[error(transparent)]
    Webhook(#[from] WebhookRefused),
}

impl GatewayConfig {
    /// Checks the configuration. Returns the address to listen on.
    ///
    /// # Errors
    /// The address is not valid, every client could speak, a token is missing or is used twice, an
    /// origin is not valid, or the configuration of the webhook is refused.
    pub fn check(&self) -> Result<SocketAddr, GatewayRefused> {
        let address: SocketAddr =
            self.address.parse().map_err(|_| GatewayRefused::Address(self.address.clone()))?;
        if self.tenants.is_empty() && !address.ip().is_loopback() {
            return Err(GatewayRefused::Open(address));
        }
        let mut seen = std::collections::BTreeSet::new();
        for (tenant, TenantConfig { token, agent_token }) in &self.tenants {
            let mut tokens = [token, agent_token].into_iter().filter(|token| !token.is_empty());
            if !tokens.clone().all(|token| seen.insert(token)) {
                return Err(GatewayRefused::SameToken(tenant.clone()));
            }
            if tokens.next().is_none() {
                return Err(GatewayRefused::NoToken(tenant.clone()));
            }
        }
        self.webhook.check()?;
        let is_origin = |origin: &&String| {
            let host = origin.split_once("://").map(|(_, host)| host);
            host.is_some_and(|host| !host.is_empty() && !host.contains('/') && origin.is_ascii())
        };
        match self.allowed_origins.iter().find(|origin| !is_origin(origin)) {
            Some(origin) => Err(GatewayRefused::Origin(origin.clone())),
            None => Ok(address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_open_to_all_is_refused() {
        let tenant = |token: &str, agent_token: &str| TenantConfig {
            token: token.to_owned(),
            agent_token: agent_token.to_owned(),
        };
        let with = |address: &str, tenants: &[(&str, TenantConfig)]| GatewayConfig {
            address: address.to_owned(),
            tenants: tenants.iter().map(|(name, of)| ((*name).to_owned(), of.clone())).collect(),
            ..GatewayConfig::default()
        };
        let said = |config: &GatewayConfig| config.check().unwrap_err().to_string();
        assert!(GatewayConfig::default().check().is_ok());
        assert!(with("[::1]:80", &[]).check().is_ok());
        assert!(said(&with("0.0.0.0:80", &[])).contains("no tenant has a token"));
        assert!(with("0.0.0.0:80", &[("a", tenant("x", ""))]).check().is_ok());
        assert!(said(&with("localhost", &[])).contains("not an IP address"));
        let twice = with("0.0.0.0:80", &[("a", tenant("x", "y")), ("b", tenant("y", ""))]);
        assert!(said(&twice).contains("tenant `b` has a token that is used twice"));
        assert!(said(&with("0.0.0.0:80", &[("a", tenant("", ""))])).contains("neither"));
        for origin in ["shop.example", "https://", "https://shop.example/"] {
            let allowed_origins = vec![origin.to_owned()];
            let config = GatewayConfig { allowed_origins, ..GatewayConfig::default() };
            assert!(said(&config).contains("not an origin"), "{origin}");
        }
    }

    #[test]
    fn what_cannot_be_called_is_refused() {
        let check = |url: &str, secret: &str, events: Vec<WebhookEvent>| {
            let config = WebhookConfig {
                url: Some(url.to_owned()),
                secret: secret.to_owned(),
                events,
                ..WebhookConfig::default()
            };
            config.check()
        };
        let all = || vec![WebhookEvent::Response];
        const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        assert_eq!(WebhookConfig::default().check(), Ok(vec![]), "nobody is called");
        assert_eq!(check("https://desk.example/x", SECRET, all()).map(|key| key.len()), Ok(24));
        assert_eq!(check("desk.example", SECRET, all()), Err(WebhookRefused::Url));
        assert_eq!(check("ftp://desk.example", SECRET, all()), Err(WebhookRefused::Url));
        assert_eq!(check("https://desk.example", "", all()), Err(WebhookRefused::Secret));
        assert_eq!(
            check("https://desk.example", "whsec_c2hvcnQ=", all()),
            Err(WebhookRefused::Secret)
        );
        assert_eq!(check("https://desk.example", SECRET, vec![]), Err(WebhookRefused::Events));
    }
}
