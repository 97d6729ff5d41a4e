//! Following a compacted topic: the third half of a log.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{LogError, Record};

/// Reads a compacted topic whole and for ever: every partition, from its oldest record, committed
/// records only, in no group. Every process follows all of it. Owned by one thread.
pub trait Follower: Send {
    /// Waits at most `wait` for records and gives those that came, in bounded batches: in offset
    /// order within each partition, tombstones among them. What compaction removed is not there.
    /// Empty when nothing came in time. A zero `wait` reads no clock.
    ///
    /// # Errors
    ///
    /// Only what polling again cannot mend: connections that broke are made again silently.
    fn poll(&mut self, wait: Duration) -> Result<Vec<Record>, LogError>;

    /// For every partition: the next offset that was not given. Passes aborted records and the
    /// marks of transactions no later than the follower catches up.
    fn positions(&self) -> BTreeMap<i32, i64>;

    /// Whether everything was given that was committed when the topic was opened. A transaction
    /// that was open there then is waited for: there may be committed records behind it.
    fn has_caught_up(&self) -> bool;

    /// For every partition: offsets between what was given and its end, as far as that is known
    /// without asking anybody. May be some seconds old.
    fn lag(&self) -> BTreeMap<i32, u64>;
}
