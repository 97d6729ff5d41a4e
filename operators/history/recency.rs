//! Recency: how fresh an entry is, from event time alone.

use turnstream_schemas::EventTime;

/// Returns Recency(t_i) of DH-RAG eq 13: exponential decay of event time with a half-life, 0..=1.
/// `now` is the latest event time seen in the scope; the recency of an entry after `now` is 1.
///
/// ```
/// use turnstream_operators::history::recency::recency;
/// use turnstream_schemas::EventTime;
///
/// assert_eq!(recency(EventTime(3_000), EventTime(1_000), 2), 0.5);
/// assert_eq!(recency(EventTime(1_000), EventTime(3_000), 2), 1.0);
/// ```
pub fn recency(now: EventTime, then: EventTime, half_life_seconds: u64) -> f64 {
    let age_ms = now.millis().saturating_sub(then.millis()).max(0) as f64;
    let half_life_ms = half_life_seconds.max(1) as f64 * 1_000.0;
    (-age_ms / half_life_ms).exp2()
}
