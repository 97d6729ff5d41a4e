//! When a batch closes: the decision alone, without a clock and without a queue.

use std::time::Duration;

/// What a batch may hold, and how long its first request may wait for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Tokens at most, but for a single request with more.
    pub tokens: usize,
    /// Texts at most, likewise.
    pub texts: usize,
    /// How long the first request may wait, from when it came.
    pub wait: Duration,
}

/// How large a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Tokens in all its texts, as far as can be said without a tokenizer.
    pub tokens: usize,
    /// Texts.
    pub texts: usize,
}

/// What to do with a batch that is being gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait for another request, no longer than this.
    Wait(Duration),
    /// Work on it.
    Launch,
}

/// A batch that is being gathered by a thread that is idle.
#[derive(Clone, Debug, Default)]
pub struct Gathering {
    size: Size,
    /// When its first request came.
    opened: Option<Duration>,
}

impl Gathering {
    /// Takes a request in that came at `came` where it still fits; says whether it did. The first
    /// one always does.
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

    /// What to do when no further request is there at `now`. Nothing is launched as nothing: no
    /// thread is kept for it.
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
        // It waited in the queue while every thread was at work: nothing is left to wait for.
        let mut batch = Gathering::default();
        assert!(batch.admit(request, ms(10), &BOUNDS));
        assert_eq!(batch.next(ms(40), &BOUNDS), Next::Launch);
    }
}
