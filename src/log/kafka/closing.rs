//! Clients that are closed, and [called](ClosedInTime::call) where they may never return, in bounded
//! time.
//!
//! Closing a client waits for all its threads, and each of them for the work that it has under way.
//! If a broker goes away meanwhile, closing may take for ever (librdkafka 2.12, its issue 4519).
//! The committer would then stop, and a process that was told to stop would not end. A thread
//! therefore closes the client, and the caller waits only as long as closing usually takes. A
//! client that is still closing does no harm: the next client of its transactional id fences it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;

/// The longest wait. Closing takes milliseconds, or a second if a broker does not answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// A client that is closed on drop. The drop takes at most three seconds.
pub(super) struct ClosedInTime<C: Send + Sync + 'static>(Option<Arc<C>>);

impl<C: Send + Sync + 'static> ClosedInTime<C> {
    pub(super) fn new(client: C) -> Self {
        Self(Some(Arc::new(client)))
    }

    fn client(&self) -> &Arc<C> {
        self.0.as_ref().expect("there until it is dropped")
    }

    /// Makes a call that may never return, and waits for it at most this long. `None` if it has not
    /// returned by then, or no thread could be started. After that the client must be dropped; it
    /// is closed when the call returns.
    pub(super) fn call<T: Send + 'static>(
        &self,
        wait: Duration,
        call: impl FnOnce(&C) -> T + Send + 'static,
    ) -> Option<T> {
        let client = Arc::clone(self.client());
        let (returning, returned) = crossbeam_channel::bounded(1);
        let thread = std::thread::Builder::new().name("calling".to_owned());
        let calls = move || {
            let found = call(&client);
            // Before the answer, so that whoever has it holds the only client.
            drop(client);
            let _ = returning.send(found);
        };
        thread.spawn(calls).ok()?;
        returned.recv_timeout(wait).ok()
    }
}

impl<C: Send + Sync + 'static> Deref for ClosedInTime<C> {
    type Target = C;

    fn deref(&self) -> &C {
        self.client()
    }
}

impl<C: Send + Sync + 'static> Drop for ClosedInTime<C> {
    fn drop(&mut self) {
        let client = self.0.take();
        let (closing, closed) = crossbeam_channel::bounded::<()>(0);
        let thread = std::thread::Builder::new().name("closing".to_owned());
        let close = move || {
            drop(client);
            drop(closing);
        };
        // If no thread can be started, the client is dropped here together with the closure.
        if thread.spawn(close).is_ok()
            && closed.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout)
        {
            tracing::warn!("a Kafka client does not close; leaving it until the process ends");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// A client that closes only when it is told to.
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
        // A plain drop would never return.
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

    #[test]
    fn a_call_that_does_not_return_is_left_alone_with_its_client() {
        let (end, ends) = crossbeam_channel::bounded(0);
        let client = ClosedInTime::new(ends);
        let short = Duration::from_millis(1);
        assert_eq!(client.call(PATIENCE, |_| "returned"), Some("returned"));
        assert_eq!(client.call(short, crossbeam_channel::Receiver::recv), None);
        drop(client);
        end.send(()).expect("the call goes on");
    }
}
