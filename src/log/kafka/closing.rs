//! Clients whose closing takes a bounded time.
//!
//! Closing a client waits for all its threads, and each of them for what it has under way. Where a
//! broker went away in the midst of that, it may take for ever (librdkafka 2.12, its issue 4519). The
//! committer would stand still with it, and a process that was told to stop would not end. So a
//! thread closes it, and nobody waits longer than that usually takes. What such a client still
//! sends does no harm: the next one of its transactional id fences it.

use std::ops::Deref;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;

/// How long closing is waited for. It takes milliseconds, or a second where a broker does not answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// A client that is closed when it is dropped, within three seconds as far as who drops it can see.
pub(super) struct ClosedInTime<C: Send + 'static>(Option<C>);

impl<C: Send + 'static> ClosedInTime<C> {
    pub(super) fn new(client: C) -> Self {
        Self(Some(client))
    }
}

impl<C: Send + 'static> Deref for ClosedInTime<C> {
    type Target = C;

    fn deref(&self) -> &C {
        self.0.as_ref().expect("there until it is dropped")
    }
}

impl<C: Send + 'static> Drop for ClosedInTime<C> {
    fn drop(&mut self) {
        let client = self.0.take();
        let (closing, closed) = crossbeam_channel::bounded::<()>(0);
        let thread = std::thread::Builder::new().name("closing".to_owned());
        let close = move || {
            drop(client);
            drop(closing);
        };
        // Without a thread to be had it is closed here, by being dropped with what was to run.
        if thread.spawn(close).is_ok()
            && closed.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout)
        {
            tracing::warn!("a Kafka client does not close, and is left to the end of the process");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// What closes only once it is told to.
    struct Endless(crossbeam_channel::Receiver<()>);

    impl Drop for Endless {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    #[test]
    fn a_client_that_does_not_close_is_left_alone() {
        let (end, ends) = crossbeam_channel::bounded(0);
        let client = ClosedInTime::new(Endless(ends));
        let begun = Instant::now();
        // Would never return.
        drop(client);
        assert!(begun.elapsed() >= PATIENCE, "it was waited for");
        end.send(()).expect("it is still closing");
    }

    #[test]
    fn a_client_that_closes_is_waited_for() {
        let (end, ends) = crossbeam_channel::bounded(0);
        let client = ClosedInTime::new(Endless(ends));
        let ending = std::thread::spawn(move || end.send(()));
        drop(client);
        ending.join().expect("it only tells").expect("somebody closed");
    }
}
