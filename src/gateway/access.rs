//! Admits requests: finds the tenant and the side of a token, bounds the requests that a tenant may
//! have at a time, and refuses pages of other origins.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::GatewayConfig;
use crate::failure::RequestFailure;

/// Refuses the requests of pages of another origin, unless the configuration allows it: a browser
/// keeps such a page from reading the answer, but not from sending a turn or opening a WebSocket.
pub(crate) async fn refuse_foreign_pages(
    State(allowed): State<Arc<Vec<String>>>,
    request: Request,
    next: Next,
) -> Response {
    let is_welcome = is_welcome(request.headers(), &allowed);
    match is_welcome {
        true => next.run(request).await,
        false => RequestFailure::ForeignPage.into_response(),
    }
}

/// Whether the request comes from no page, from one of the gateway's own origin, or from one of an
/// allowed origin.
fn is_welcome(headers: &HeaderMap, allowed: &[String]) -> bool {
    let named = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let Some(origin) = named(header::ORIGIN) else { return true };
    let host = origin.split_once("://").map(|(_, host)| host);
    (host.is_some() && host == named(header::HOST)) || allowed.iter().any(|it| it == origin)
}

/// The tenant of turns that name none.
pub(crate) const DEFAULT_TENANT: &str = "default";

/// The tokens of the callers, and the requests of each tenant.
pub(crate) struct Access {
    /// Callers by the digest of their token, so that the time of a look-up reveals nothing about
    /// it. If empty, every caller is admitted.
    by_token: BTreeMap<[u8; 32], Caller>,
    requests: BTreeMap<String, Arc<Semaphore>>,
}

/// The caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The tenant.
    pub(crate) tenant: String,
    /// Whether the caller may do what agents do.
    pub(crate) is_agent: bool,
}

/// A caller whose request counts among those of the tenant until this is dropped.
#[derive(Debug)]
pub(crate) struct AdmittedCaller {
    pub(crate) caller: Caller,
    _permit: OwnedSemaphorePermit,
}

impl Access {
    pub(crate) fn new(config: &GatewayConfig) -> Self {
        let mut by_token = BTreeMap::new();
        for (tenant, of) in &config.tenants {
            for (token, is_agent) in [(&of.token, false), (&of.agent_token, true)] {
                if !token.is_empty() {
                    by_token.insert(digest(token), Caller { tenant: tenant.clone(), is_agent });
                }
            }
        }
        let names = config.tenants.keys().cloned().chain([DEFAULT_TENANT.to_owned()]);
        let most = config.max_requests_per_tenant.min(Semaphore::MAX_PERMITS);
        let requests = names.map(|tenant| (tenant, Arc::new(Semaphore::new(most)))).collect();
        Self { by_token, requests }
    }

    /// Admits a request.
    ///
    /// # Errors
    /// The token is unknown, or the tenant has too many requests at a time.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Result<AdmittedCaller, RequestFailure> {
        let sent = headers.get(header::AUTHORIZATION).and_then(|it| it.to_str().ok());
        let token = sent.and_then(|sent| sent.strip_prefix("Bearer "));
        // Pages cannot set headers when they open a WebSocket, except for the protocols that they
        // speak.
        let spoken = headers.get(header::SEC_WEBSOCKET_PROTOCOL).and_then(|it| it.to_str().ok());
        let mut spoken = spoken.into_iter().flat_map(|spoken| spoken.split(','));
        let token = token.or_else(|| spoken.find_map(|it| it.trim().strip_prefix("bearer.")));
        let caller = match self.by_token.is_empty() {
            true => Caller { tenant: DEFAULT_TENANT.to_owned(), is_agent: true },
            false => {
                let known = token.and_then(|token| self.by_token.get(&digest(token.trim())));
                known.ok_or(RequestFailure::Unknown)?.clone()
            }
        };
        let requests = self.requests.get(&caller.tenant).ok_or(RequestFailure::Unknown)?;
        let permit =
            Arc::clone(requests).try_acquire_owned().map_err(|_| RequestFailure::TooMany)?;
        Ok(AdmittedCaller { caller, _permit: permit })
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TenantConfig;

    #[test]
    fn a_token_stands_for_a_tenant_and_a_side() {
        let of = |token: &str, agent: &str| TenantConfig {
            token: token.to_owned(),
            agent_token: agent.to_owned(),
        };
        let tenants = [("a".to_owned(), of("front", "desk")), ("b".to_owned(), of("other", ""))];
        let config = GatewayConfig {
            max_requests_per_tenant: 2,
            tenants: tenants.into(),
            ..GatewayConfig::default()
        };
        let access = Access::new(&config);
        let admit = |token: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, token.parse().unwrap());
            access.admit(&headers)
        };
        let who = |token: &str| admit(token).map(|it| (it.caller.tenant, it.caller.is_agent)).ok();
        assert_eq!(who("Bearer front"), Some(("a".to_owned(), false)));
        assert_eq!(who("Bearer desk"), Some(("a".to_owned(), true)));
        assert_eq!(who("Bearer other"), Some(("b".to_owned(), false)));
        for unknown in ["Bearer ", "Bearer fron", "front", "Basic front"] {
            assert_eq!(who(unknown), None, "{unknown}");
        }
        assert!(matches!(access.admit(&HeaderMap::new()), Err(RequestFailure::Unknown)));
        let mut page = HeaderMap::new();
        let protocols = "turnstream.v1, bearer.other".parse().unwrap();
        page.insert(header::SEC_WEBSOCKET_PROTOCOL, protocols);
        assert_eq!(access.admit(&page).unwrap().caller.tenant, "b");
        let held = [admit("Bearer front"), admit("Bearer desk")];
        assert!(matches!(admit("Bearer front"), Err(RequestFailure::TooMany)), "two at a time");
        assert!(who("Bearer other").is_some(), "another tenant has its own");
        drop(held);
        assert!(who("Bearer front").is_some());
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let allowed = ["https://shop.example".to_owned()];
        let asks = |origin: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, "desk.example:8077".parse().unwrap());
            headers.insert(header::ORIGIN, origin.parse().unwrap());
            is_welcome(&headers, &allowed)
        };
        assert!(asks("https://shop.example") && asks("http://desk.example:8077"));
        for foreign in ["https://shop.example.evil", "http://desk.example", "null", ""] {
            assert!(!asks(foreign), "{foreign}");
        }
        assert!(is_welcome(&HeaderMap::new(), &[]), "no page asks");
    }

    #[test]
    fn without_tenants_everybody_is_let_in() {
        let access = Access::new(&GatewayConfig::default());
        let caller = access.admit(&HeaderMap::new()).unwrap().caller;
        assert_eq!(caller, Caller { tenant: DEFAULT_TENANT.to_owned(), is_agent: true });
    }
}
