//! Following a compacted topic.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{LogError, Record};

/// Reads a whole compacted topic and then its new records: every partition from its oldest record,
/// committed records only, without a group. Every process follows the whole topic. One thread owns
/// it.
pub trait Follower: Send {
    /// Waits at most `wait` for records and returns those that came, in bounded batches, in offset
    /// order within each partition, tombstones included. Records that compaction removed are
    /// missing. Returns an empty list if nothing came in time. A zero `wait` reads no clock.
    ///
    /// # Errors
    ///
    /// Only errors that another poll cannot recover from. Broken connections are made again
    /// silently.
    fn poll(&mut self, wait: Duration) -> Result<Vec<Record>, LogError>;

    /// The next offset of each partition that `poll` has not returned. The position is past aborted
    /// records and transaction markers by the time the follower has caught up.
    fn positions(&self) -> BTreeMap<i32, i64>;

    /// Whether `poll` has returned everything that was committed when the topic was opened. The
    /// follower waits for a transaction that was open at that time, since committed records may lie
    /// behind it.
    fn has_caught_up(&self) -> bool;

    /// Offsets between the returned records and the end of each partition, as far as they are known
    /// without asking the broker. May be some seconds old.
    fn lag(&self) -> BTreeMap<i32, u64>;
}
