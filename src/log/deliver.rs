//! Reading for who passes records on to others, each at least once.

use std::time::Duration;

use super::{LogError, Record, Topic};

/// Reads committed records as a member of a group of its own, whose copies share the partitions. What was
/// polled and not committed as delivered is polled again, by this copy or another. One thread owns it.
pub trait Delivery: Send {
    /// Waits at most `wait` for records and returns those that came, in offset order within each partition.
    /// What was returned before counts as delivered only with [`Self::delivered`].
    ///
    /// # Errors
    ///
    /// Only errors that another poll cannot recover from.
    fn poll(&mut self, wait: Duration) -> Result<Vec<(Topic, Record)>, LogError>;

    /// Stays a member for `wait`, while what was polled is delivered. To be called every few seconds.
    ///
    /// # Errors
    ///
    /// As [`Self::poll`].
    fn hold(&mut self, wait: Duration) -> Result<(), LogError>;

    /// Commits that everything that was polled is delivered. Partitions that have moved meanwhile are left
    /// to who has them now.
    ///
    /// # Errors
    ///
    /// The log refuses, and would refuse again.
    fn delivered(&mut self) -> Result<(), LogError>;
}
