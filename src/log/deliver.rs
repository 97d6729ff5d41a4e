//! Reads committed records for callers that pass them on, each at least once.

use std::time::Duration;

use super::{LogError, Record, Topic};

/// Reads committed records as a member of a separate group, whose members share the partitions.
/// Records that were polled and not committed as delivered are polled again, by this member or
/// another. One thread owns it.
pub trait Delivery: Send {
    /// Waits at most `wait` for records and returns those that came, in offset order within each
    /// partition. The records count as delivered only after [`Self::delivered`].
    ///
    /// # Errors
    ///
    /// Only errors that another poll cannot recover from.
    fn poll(&mut self, wait: Duration) -> Result<Vec<(Topic, Record)>, LogError>;

    /// Stays a member for `wait` while the caller delivers the polled records. Call it every few
    /// seconds.
    ///
    /// # Errors
    ///
    /// As [`Self::poll`].
    fn hold(&mut self, wait: Duration) -> Result<(), LogError>;

    /// Commits everything that was polled as delivered. Leaves partitions that have moved meanwhile
    /// to their new members.
    ///
    /// # Errors
    ///
    /// The log refuses, and would refuse again.
    fn delivered(&mut self) -> Result<(), LogError>;
}
