//! Faults that the crash simulation, and the recount of views, must catch: the test of the test.
//!
//! Each breaks one promise on purpose, in the code that keeps it. Without the feature `broken`,
//! which only those tests turn on, nothing is broken and no code is left of it.

/// A promise that is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Offsets that were finished before a restart are served again.
    NoSkip,
    /// Only the last applied offset of each scope decides what is skipped: what has no scope,
    /// such as a dead letter, is served again.
    SkipByLastApplied,
    /// The committed offset passes inputs that are pending.
    CommitPastPending,
    /// A changelog is read until the offset of its last record is seen, which control records
    /// hide.
    RestoreByLastMessage,
    /// Who takes a transactional id does not sweep: what the log forgot of it stays open.
    NoSweep,
    /// What was worked out under an older assignment of a partition counts.
    LateAnswers,
    /// Superseded turns end after the agent's words that superseded them.
    SupersededAfterAgent,
    /// A history that is restored clusters its entries anew.
    ClusterAnew,
    /// Views of histories go on counting an entry that left.
    CountWhatLeft,
}

impl Broken {
    /// Whether this thread runs with it broken.
    #[cfg(not(feature = "broken"))]
    #[inline]
    pub const fn here(self) -> bool {
        false
    }

    /// Whether this thread runs with it broken.
    #[cfg(feature = "broken")]
    pub fn here(self) -> bool {
        CHOSEN.get() == Some(self)
    }
}

#[cfg(feature = "broken")]
thread_local! {
    static CHOSEN: std::cell::Cell<Option<Broken>> = const { std::cell::Cell::new(None) };
}

/// Breaks a promise on this thread from now on, or none.
#[cfg(feature = "broken")]
pub fn choose(broken: Option<Broken>) {
    CHOSEN.set(broken);
}
