//! The consumer of the embedded log: a member of a group.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::super::{Consumer, Event, LogError, Restored, Standing, TakeChangelog, Topic};
use super::EmbeddedLog;
use super::group::MemberRef;

/// Reads a topic as one member of a group. When dropped, it leaves the group, which assigns its
/// partitions to the other members at once.
pub struct EmbeddedConsumer {
    log: EmbeddedLog,
    group: String,
    member: u64,
    crashed: bool,
}

impl EmbeddedConsumer {
    pub(super) fn join(log: EmbeddedLog, group: &str, topic: Topic) -> Result<Self, LogError> {
        let member = log.state().join(group, topic)?;
        log.shared.changed.notify_all();
        Ok(Self { log, group: group.to_owned(), member, crashed: false })
    }

    /// The number of the member, unique within the log, for [`EmbeddedLog::expel`].
    pub fn member(&self) -> u64 {
        self.member
    }

    /// The group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Stops without leaving the group, as a killed process does. The member keeps its partitions
    /// until it is [expelled](EmbeddedLog::expel). Returns the number of the member.
    pub fn crash(mut self) -> u64 {
        self.crashed = true;
        self.member
    }

    fn member_ref(&self) -> MemberRef<'_> {
        MemberRef { group: &self.group, member: self.member }
    }
}

impl Drop for EmbeddedConsumer {
    fn drop(&mut self) {
        if self.crashed {
            return;
        }
        self.log.state().leave(&self.member_ref());
        self.log.shared.changed.notify_all();
    }
}

impl Consumer for EmbeddedConsumer {
    fn poll(&mut self, wait: Duration) -> Result<Event, LogError> {
        let config = &self.log.shared.config;
        let deadline = (!wait.is_zero()).then(|| Instant::now() + wait);
        let mut state = self.log.state();
        loop {
            let event = state.poll(&self.member_ref(), config.start, config.poll_records)?;
            if let Some(event) = event {
                return Ok(event);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            match left {
                None | Some(Duration::ZERO) => return Ok(Event::Records(Vec::new())),
                Some(left) => {
                    let waited = self.log.shared.changed.wait_timeout(state, left);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    fn pause(&mut self, partition: i32) -> Result<(), LogError> {
        self.log.state().flow(&self.member_ref(), partition, false);
        Ok(())
    }

    fn resume(&mut self, partition: i32) -> Result<(), LogError> {
        self.log.state().flow(&self.member_ref(), partition, true);
        Ok(())
    }

    fn restore(
        &mut self,
        partition: i32,
        changelog: TakeChangelog<'_>,
    ) -> Result<Restored, LogError> {
        let start = self.log.shared.config.start;
        self.log.state().restore(&self.member_ref(), partition, start, changelog)
    }

    fn release(&mut self) -> Result<(), LogError> {
        self.log.state().release(&self.member_ref());
        self.log.shared.changed.notify_all();
        Ok(())
    }

    fn standing(&self) -> Standing {
        self.log.state().standing(&self.member_ref())
    }
}
