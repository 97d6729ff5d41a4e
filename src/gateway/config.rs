//! `[gateway]`: where the gateway listens, and who may speak through it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::webhook::{WebhookConfig, WebhookRefused};

/// `[gateway]`: HTTP in front of the topics (`turnstream gateway`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayConfig {
    /// IP address and port that it listens on. Without `tenants` the address must be a loopback one,
    /// since everybody who reaches it may speak for the default tenant, as a user and as an agent.
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
    /// Minutes before the start whose outcomes are read again, so that a turn that was sent to another copy,
    /// or before a restart, is answered when it is sent once more.
    pub remember_minutes: u64,
    /// Most outcomes that are remembered, from 1; about 1 KiB each.
    #[schemars(range(min = 1))]
    pub max_outcomes: usize,
    /// Origins, such as `https://shop.example`, whose pages may call the gateway from a browser.
    pub allowed_origins: Vec<String>,
    /// Whom the gateway calls with what is committed.
    pub webhook: WebhookConfig,
    /// The tenants that may speak, by name, with their tokens; `default` is the tenant of turns that name none.
    pub tenants: BTreeMap<String, TenantConfig>,
}

/// What a tenant's requests carry as `Authorization: Bearer TOKEN`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TenantConfig {
    /// The token of front ends, which say what users say; empty: none may.
    pub token: String,
    /// The token of agent desks, which may also speak for the other side, take conversations over and release
    /// them; empty: none may.
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
            webhook: WebhookConfig::default(),
            tenants: BTreeMap::new(),
        }
    }
}

/// Why the gateway cannot be configured so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatewayRefused {
    /// The address is none.
    #[error("`{0}` is not an IP address with a port, such as 127.0.0.1:8077")]
    Address(String),
    /// Everybody could speak.
    #[error(
        "{0} can be reached from elsewhere, and no tenant has a token; name `gateway.tenants`, or listen \
         on 127.0.0.1"
    )]
    Open(SocketAddr),
    /// Two tenants, or the two sides of one, have the same token.
    #[error("tenant `{0}` has a token that is used twice; give each its own")]
    SameToken(String),
    /// A tenant that nobody can speak for.
    #[error("tenant `{0}` has neither `token` nor `agent_token`")]
    NoToken(String),
    /// An origin that no browser sends.
    #[error("`{0}` is not an origin, such as https://shop.example")]
    Origin(String),
    /// Nobody can be called so.
    #[error(transparent)]
    Webhook(#[from] WebhookRefused),
}

impl GatewayConfig {
    /// The address to listen on.
    ///
    /// # Errors
    /// If the address is none, the gateway would be open to everybody, tokens do not tell tenants apart, an
    /// origin is none, or the webhook cannot be called.
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
}
