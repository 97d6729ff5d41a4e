//! Limits how often a frequent event is logged: at once the first time, then at intervals, with the
//! number of events since.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// The last log line of each kind of event.
#[derive(Debug)]
pub(super) struct Seldom<K> {
    every: Duration,
    told: HashMap<K, (Instant, u64)>,
}

impl<K: Eq + Hash> Seldom<K> {
    /// At most one line per kind in each interval.
    pub(super) fn new(every: Duration) -> Self {
        Self { every, told: HashMap::new() }
    }

    /// Counts an event. Returns the number of events to log, if a line is due now.
    pub(super) fn happens(&mut self, what: K, now: Instant) -> Option<u64> {
        let Some((told, times)) = self.told.get_mut(&what) else {
            self.told.insert(what, (now, 0));
            return Some(1);
        };
        *times += 1;
        if now.saturating_duration_since(*told) < self.every {
            return None;
        }
        *told = now;
        Some(std::mem::take(times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_the_others_are_counted() {
        let (minute, begin) = (Duration::from_secs(60), Instant::now());
        let mut seldom = Seldom::new(minute);
        assert_eq!(seldom.happens("dry", begin), Some(1));
        assert_eq!(seldom.happens("wet", begin), Some(1), "another thing");
        for second in 1..60 {
            assert_eq!(seldom.happens("dry", begin + Duration::from_secs(second)), None);
        }
        assert_eq!(seldom.happens("dry", begin + minute), Some(60));
        assert_eq!(seldom.happens("dry", begin + minute), None);
        assert_eq!(seldom.happens("dry", begin + minute * 9), Some(2));
        assert_eq!(seldom.happens("wet", begin + minute * 9), Some(1));
    }
}
