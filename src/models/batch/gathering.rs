//! Decides when a batch closes, from times and sizes alone, without a clock or a queue.

use std::time::Duration;

/// Bounds of a batch, and how long its first request may wait for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most tokens, except for a single larger request.
    pub tokens: usize,
    /// The most texts, except for a single larger request.
    pub texts: usize,
    /// How long the first request may wait, counted from its arrival.
    pub wait: Duration,
}

/// The size of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Estimated tokens in all its texts.
    pub tokens: usize,
    /// Texts.
    pub texts: usize,
}

/// The next step for a batch that is being gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait for another request, at most this long.
    Wait(Duration),
    /// Compute the batch.
    Launch,
}

/// A batch that an idle thread is gathering.
#[derive(Clone, Debug, Default)]
pub struct Gathering {
    size: Size,
    /// When the first request arrived.
    opened: Option<Duration>,
}

impl Gathering {
    /// Adds a request that arrived at `came`, if it fits, and returns whether it did. The first
    /// request always fits.
    pub fn admit(&mut self, request: Size, came: Duration, bounds: &Bounds) -> bool {
        let fits = self.size.tokens + request.tokens <= bounds.tokens
            && self.size.texts + request.texts <= bounds.texts;
        if self.opened.is_some() && !fits {
            return false;
        }
        self.opened.get_or_insert(came);
        self.size.tokens += request.tokens;
        self.size.texts += request.texts;
        true
    }

    /// Decides what to do at `now` when no further request is queued. An empty batch is launched
    /// empty, so that no thread is held for it.
    pub fn next(&self, now: Duration, bounds: &Bounds) -> Next {
        let Some(opened) = self.opened else { return Next::Launch };
        let full = self.size.tokens >= bounds.tokens || self.size.texts >= bounds.texts;
        let left = (opened + bounds.wait).saturating_sub(now);
        if full || left.is_zero() { Next::Launch } else { Next::Wait(left) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { tokens: 100, texts: 4, wait: Duration::from_millis(2) };

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn a_batch_closes_at_its_tokens_or_texts() {
        let mut batch = Gathering::default();
        assert!(batch.admit(Size { tokens: 60, texts: 1 }, ms(10), &BOUNDS));
        assert!(!batch.admit(Size { tokens: 41, texts: 1 }, ms(10), &BOUNDS));
        assert!(batch.admit(Size { tokens: 40, texts: 1 }, ms(10), &BOUNDS));
        assert_eq!(batch.next(ms(10), &BOUNDS), Next::Launch);
        let mut batch = Gathering::default();
        for _ in 0..4 {
            assert!(batch.admit(Size { tokens: 1, texts: 1 }, ms(10), &BOUNDS));
        }
        assert_eq!(batch.next(ms(10), &BOUNDS), Next::Launch);
    }

    #[test]
    fn a_request_beyond_the_bounds_is_a_batch_of_its_own() {
        let mut batch = Gathering::default();
        assert!(batch.admit(Size { tokens: 900, texts: 9 }, ms(0), &BOUNDS));
        assert_eq!(batch.next(ms(0), &BOUNDS), Next::Launch);
        assert!(!batch.admit(Size { tokens: 1, texts: 1 }, ms(0), &BOUNDS));
    }

    #[test]
    fn the_first_request_waits_no_longer_than_it_may_wherever_it_waited() {
        let mut batch = Gathering::default();
        assert_eq!(batch.next(ms(7), &BOUNDS), Next::Launch);
        let request = Size { tokens: 10, texts: 1 };
        assert!(batch.admit(request, ms(10), &BOUNDS));
        assert_eq!(batch.next(ms(11), &BOUNDS), Next::Wait(ms(1)));
        assert!(batch.admit(request, ms(11), &BOUNDS));
        assert_eq!(batch.next(ms(12), &BOUNDS), Next::Launch);
        // The request waited in the queue while every thread was busy, so its waiting time is over.
        let mut batch = Gathering::default();
        assert!(batch.admit(request, ms(10), &BOUNDS));
        assert_eq!(batch.next(ms(40), &BOUNDS), Next::Launch);
    }
}
