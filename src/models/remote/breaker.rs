//! A circuit breaker (Nygard) with one probe. After a number of failures in a row, requests fail at
//! once for a while; then one request goes through and decides.
//!
//! A pure state machine: the caller passes the time.

use std::time::Duration;

use tokio::time::Instant;

/// The state of the breaker.
#[derive(Debug)]
pub(super) struct Breaker {
    /// Failures in a row that open the breaker; 0 never opens it.
    failures_allowed: u32,
    open_for: Duration,
    state: State,
    failures: u32,
    last: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open {
        until: Instant,
    },
    /// One probing request is under way and decides.
    Probing,
}

/// A request that may go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    /// A regular request.
    Usually,
    /// The probe, which decides.
    Probe,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Open {
    /// Failures in a row.
    pub(super) failures: u32,
    /// The last failure.
    pub(super) last: String,
    /// The time until the probe; zero while the probe is under way.
    pub(super) left: Duration,
}

impl Breaker {
    pub(super) fn new(failures_allowed: u32, open_for: Duration) -> Self {
        let (state, failures, last) = (State::Closed, 0, String::new());
        Self { failures_allowed, open_for, state, failures, last }
    }

    /// Decides whether a request may go through. The caller must report the outcome of an admitted
    /// request.
    pub(super) fn admit(&mut self, now: Instant) -> Result<Admitted, Open> {
        let left = match self.state {
            State::Closed => return Ok(Admitted::Usually),
            State::Open { until } if until <= now => {
                self.state = State::Probing;
                return Ok(Admitted::Probe);
            }
            State::Open { until } => until - now,
            State::Probing => Duration::ZERO,
        };
        Err(Open { failures: self.failures, last: self.last.clone(), left })
    }

    /// Reports a success, which closes the breaker.
    pub(super) fn succeeded(&mut self) {
        (self.state, self.failures) = (State::Closed, 0);
    }

    /// Reports that an admitted request failed on the server's side.
    pub(super) fn failed(&mut self, admitted: Admitted, now: Instant, reason: String) {
        self.failures = self.failures.saturating_add(1);
        self.last = reason;
        let too_many = self.failures_allowed > 0 && self.failures >= self.failures_allowed;
        // A request that was under way when the breaker opened does not extend the time.
        if admitted == Admitted::Probe || (too_many && self.state == State::Closed) {
            self.state = State::Open { until: now + self.open_for };
        }
    }

    /// Reports that an admitted request was cancelled. If it was the probe, the next request is the
    /// probe.
    pub(super) fn cancelled(&mut self, admitted: Admitted, now: Instant) {
        if admitted == Admitted::Probe && self.state == State::Probing {
            self.state = State::Open { until: now };
        }
    }

    /// Whether requests are held back.
    pub(super) fn is_open(&self) -> bool {
        self.state != State::Closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN_FOR: Duration = Duration::from_secs(10);

    fn opened(now: Instant) -> Breaker {
        let mut breaker = Breaker::new(2, OPEN_FOR);
        for reason in ["first", "second"] {
            let admitted = breaker.admit(now).expect("closed");
            breaker.failed(admitted, now, reason.to_owned());
        }
        breaker
    }

    #[test]
    fn it_opens_after_failures_in_a_row_and_one_probe_closes_it() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let open = Open { failures: 2, last: "second".to_owned(), left: OPEN_FOR };
        assert_eq!(breaker.admit(now), Err(open));
        assert!(breaker.admit(now + OPEN_FOR / 2).is_err());
        assert_eq!(breaker.admit(now + OPEN_FOR), Ok(Admitted::Probe));
        let meanwhile = breaker.admit(now + OPEN_FOR).unwrap_err();
        assert_eq!(meanwhile.left, Duration::ZERO, "only one");
        breaker.succeeded();
        assert_eq!(breaker.admit(now + OPEN_FOR), Ok(Admitted::Usually));
        assert!(!breaker.is_open());
    }

    #[test]
    fn a_probe_that_fails_opens_it_again_and_one_that_is_cancelled_lets_the_next_try() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let later = now + OPEN_FOR;
        let probe = breaker.admit(later).unwrap();
        breaker.failed(probe, later, "third".to_owned());
        assert_eq!(breaker.admit(later).unwrap_err().left, OPEN_FOR);
        let later = later + OPEN_FOR;
        let probe = breaker.admit(later).unwrap();
        breaker.cancelled(probe, later);
        assert_eq!(breaker.admit(later), Ok(Admitted::Probe));
    }

    #[test]
    fn a_success_between_begins_the_count_anew_and_late_failures_do_not_count_twice() {
        let now = Instant::now();
        let mut breaker = Breaker::new(2, OPEN_FOR);
        breaker.failed(Admitted::Usually, now, String::new());
        breaker.succeeded();
        breaker.failed(Admitted::Usually, now, String::new());
        assert!(breaker.admit(now).is_ok());
        breaker.failed(Admitted::Usually, now, String::new());
        breaker.failed(Admitted::Usually, now + OPEN_FOR / 2, String::new());
        assert_eq!(breaker.admit(now + OPEN_FOR), Ok(Admitted::Probe));
        let mut never = Breaker::new(0, OPEN_FOR);
        (0..100).for_each(|_| never.failed(Admitted::Usually, now, String::new()));
        assert!(!never.is_open());
    }
}
