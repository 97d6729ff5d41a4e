//! Rate limiting: spaces requests evenly, and holds them back while a server asks for a pause.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// When the next request may go.
#[derive(Debug)]
pub(super) struct Pace {
    period: Duration,
    next: Cell<Instant>,
}

impl Pace {
    /// Allows this many requests a second, evenly spaced; `None` does not limit them.
    pub(super) fn new(requests_per_second: Option<f64>) -> Self {
        let period = requests_per_second.map_or(Duration::ZERO, |rate| {
            Duration::try_from_secs_f64(1.0 / rate).unwrap_or(Duration::ZERO)
        });
        Self { period, next: Cell::new(Instant::now()) }
    }

    /// Waits for a slot, behind all earlier waiters.
    pub(super) async fn turn(&self) {
        let turn = self.next.get().max(Instant::now());
        self.next.set(turn + self.period);
        sleep_until(turn).await;
    }

    /// Delays all later slots until this time has passed.
    pub(super) fn hold_back(&self, time: Duration) {
        self.next.set(self.next.get().max(Instant::now() + time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Tokio's paused clock advances only by sleeping, so these times are exact.
    #[tokio::test(start_paused = true)]
    async fn requests_are_spaced_and_held_back() {
        let (began, pace) = (Instant::now(), Pace::new(Some(4.0)));
        for quarter in 0..8 {
            pace.turn().await;
            let passed = began.elapsed().as_millis() as i64;
            assert!((passed - quarter * 250).abs() <= 8, "{quarter}: {passed}");
        }
        let (began, unbound) = (Instant::now(), Pace::new(None));
        for _ in 0..100 {
            unbound.turn().await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        unbound.hold_back(Duration::from_secs(3));
        unbound.hold_back(Duration::from_secs(1));
        unbound.turn().await;
        assert_eq!(began.elapsed().as_secs(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn unused_turns_are_not_saved_up() {
        let pace = Pace::new(Some(10.0));
        pace.turn().await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let began = Instant::now();
        for _ in 0..3 {
            pace.turn().await;
        }
        assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
    }
}
