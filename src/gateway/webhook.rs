//! Calls a front end or an agent desk with committed events: each at least once, those of a
//! conversation in their order, signed as [Standard Webhooks](https://www.standardwebhooks.com)
//! defines.
//!
//! A group of its own reads the events, so that copies of the gateway share them. Several are read
//! together: those of one conversation are sent one after the other, those of several conversations
//! side by side. The position is committed only when all were sent, so an event may come twice
//! after a crash, under the same id.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use turnstream_log::deliver::Delivery;
use turnstream_log::{LogError, Record, Topic};
use ureq::Agent;

use crate::config::{WebhookConfig, WebhookRefused};
use crate::conversations::{ConversationEvent, ConversationKey};
use crate::following::event;

/// How long a poll of the log waits before it checks whether to stop.
const WAIT: Duration = Duration::from_millis(100);
/// How often the membership of the group is maintained while events are sent.
const HOLD: Duration = Duration::from_millis(5);
/// The wait before the second attempt; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Calls a receiver.
pub(crate) struct Webhook {
    agent: Agent,
    url: String,
    key: Vec<u8>,
    max_conversations: usize,
    max_wait: Duration,
}

/// The result of a call.
enum Called {
    Taken,
    /// The receiver will not take the event.
    Refused(String),
    /// The receiver may take the event later, after this time at least.
    Again(String, Option<Duration>),
}

impl Webhook {
    /// Returns `None` if no receiver is configured.
    ///
    /// # Errors
    /// As [`WebhookConfig::check`].
    pub(crate) fn new(config: &WebhookConfig) -> Result<Option<Self>, WebhookRefused> {
        let (Some(url), key) = (&config.url, config.check()?) else { return Ok(None) };
        let agent = Agent::config_builder()
            .timeout_global(Some(Duration::from_millis(config.timeout_ms)))
            .http_status_as_error(false)
            // An event is signed for this receiver, and must not reach another.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("turnstream/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        let max_wait = Duration::from_millis(config.max_wait_ms).max(FIRST_WAIT);
        let max_conversations = config.max_conversations;
        Ok(Some(Self { agent, url: url.clone(), key, max_conversations, max_wait }))
    }

    /// Calls the receiver with every event until `stop` is set.
    ///
    /// # Errors
    /// The log refuses, or the client cannot go on.
    pub(crate) fn run(
        &self,
        mut source: Box<dyn Delivery>,
        stop: &AtomicBool,
    ) -> Result<(), LogError> {
        while !stop.load(Ordering::Relaxed) {
            let records = source.poll(WAIT)?;
            if !records.is_empty() && self.deliver_all(&mut *source, &records, stop)? {
                source.delivered()?;
            }
        }
        Ok(())
    }

    /// Calls the receiver with the events of these records. Returns `false` if it was stopped
    /// before the end: all of them then come again.
    fn deliver_all(
        &self,
        source: &mut dyn Delivery,
        records: &[(Topic, Record)],
        stop: &AtomicBool,
    ) -> Result<bool, LogError> {
        let conversations = by_conversation(records);
        let threads = self.max_conversations.min(conversations.len());
        let (queue, given_up) = (Mutex::new(conversations.into_iter()), AtomicBool::new(false));
        let is_over = || stop.load(Ordering::Relaxed) || given_up.load(Ordering::Relaxed);
        let work = || loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(events) = next else { return true };
            if !events.iter().all(|event| self.deliver(event, &is_over)) {
                return false;
            }
        };
        std::thread::scope(|scope| {
            let working: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let mut held = Ok(());
            while held.is_ok() && !working.iter().all(|thread| thread.is_finished()) {
                held = source.hold(HOLD);
            }
            given_up.store(held.is_err(), Ordering::Relaxed);
            let all = working.into_iter().all(|thread| thread.join().unwrap_or(false));
            held.map(|()| all)
        })
    }

    /// Calls the receiver until it takes or refuses an event. Returns `false` if it was told to
    /// give up.
    fn deliver(&self, event: &ConversationEvent, is_over: &dyn Fn() -> bool) -> bool {
        let mut wait = FIRST_WAIT;
        for attempt in 1_u64.. {
            if is_over() {
                return false;
            }
            match self.call(event) {
                Called::Taken => return true,
                Called::Refused(said) => {
                    tracing::error!(
                        event = event.id,
                        said,
                        "the webhook refused an event; dropped it"
                    );
                    return true;
                }
                Called::Again(said, after) => {
                    tracing::warn!(
                        event = event.id,
                        attempt,
                        said,
                        "the webhook did not take an event; retrying"
                    );
                    let mut left =
                        wait.mul_f64(1.0 + fastrand::f64() / 4.0).max(after.unwrap_or_default());
                    while !left.is_zero() && !is_over() {
                        std::thread::sleep(left.min(WAIT));
                        left = left.saturating_sub(WAIT);
                    }
                    wait = (wait * 2).min(self.max_wait);
                }
            }
        }
        false
    }

    fn call(&self, event: &ConversationEvent) -> Called {
        let body = event.enveloped();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let sent = self
            .agent
            .post(&self.url)
            .header("content-type", "application/json")
            .header("webhook-id", &event.id)
            .header("webhook-timestamp", now.to_string())
            .header("webhook-signature", signature(&self.key, &event.id, now, &body))
            .send(body.as_bytes());
        let response = match sent {
            Ok(response) => response,
            Err(error) => return Called::Again(error.to_string(), None),
        };
        let status = response.status().as_u16();
        let after = response.headers().get("retry-after").and_then(|it| it.to_str().ok());
        let after = after.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        match status {
            200..=299 => Called::Taken,
            408 | 425 | 429 | 500.. => {
                Called::Again(format!("status {status}"), after.map(|it| it.min(self.max_wait)))
            }
            _ => Called::Refused(format!("status {status}")),
        }
    }
}

/// Groups the events by conversation, in their order. Leaves out records that name no conversation.
fn by_conversation(records: &[(Topic, Record)]) -> Vec<Vec<ConversationEvent>> {
    let mut places: HashMap<ConversationKey, usize> = HashMap::new();
    let mut conversations: Vec<Vec<ConversationEvent>> = Vec::new();
    for (key, event) in records.iter().filter_map(|(topic, record)| event(*topic, record)) {
        let place = *places.entry(key).or_insert_with(|| {
            conversations.push(Vec::new());
            conversations.len() - 1
        });
        conversations[place].push(event);
    }
    conversations
}

/// The signature of an event: HMAC-SHA256 of its id, the time in seconds since 1970, and the body.
fn signature(key: &[u8], id: &str, seconds: u64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key)
        .unwrap_or_else(|_| unreachable!("a key of any length will do"));
    mac.update(format!("{id}.{seconds}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests;
