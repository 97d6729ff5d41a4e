//! Faults that the crash simulation and the recount of views must notice. They test those tests.
//!
//! Each fault breaks one promise on purpose, in the code that keeps it. Only a build with debug
//! assertions can break one, when a test asks for it on its own thread. In every other build,
//! including every program that serves, [`Broken::here`] is the constant `false`.

/// A promise to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Offsets that were finished before a restart are served again.
    NoSkip,
    /// Only the last applied offset of each scope decides what is skipped. Inputs without a scope,
    /// such as dead letters, are served again.
    SkipByLastApplied,
    /// The committed offset passes inputs that are pending.
    CommitPastPending,
    /// A changelog is read until its last record's offset appears, although control records follow.
    RestoreByLastMessage,
    /// A process that takes a transactional id does not sweep, so forgotten transactions stay open.
    NoSweep,
    /// Answers of an older assignment of a partition count.
    LateAnswers,
    /// Superseded turns end after the agent's words that superseded them.
    SupersededAfterAgent,
    /// A turn is answered although an agent holds the conversation.
    AnswerWhileHeld,
    /// A release does not return the conversation to the engine.
    LostRelease,
    /// A fragment that was answered goes into the next utterance as well.
    FragmentAnsweredTwice,
    /// A restored history clusters its entries anew.
    ClusterAnew,
    /// Views of histories keep counting an entry that has left.
    CountWhatLeft,
}

impl Broken {
    /// Whether this thread breaks the promise.
    #[cfg(not(debug_assertions))]
    #[inline]
    pub const fn here(self) -> bool {
        false
    }

    /// Whether this thread breaks the promise.
    #[cfg(debug_assertions)]
    pub fn here(self) -> bool {
        CHOSEN.get() == Some(self)
    }
}

#[cfg(debug_assertions)]
thread_local! {
    static CHOSEN: std::cell::Cell<Option<Broken>> = const { std::cell::Cell::new(None) };
}

/// Sets the promise that this thread breaks from now on, if any.
#[cfg(debug_assertions)]
pub fn choose(broken: Option<Broken>) {
    CHOSEN.set(broken);
}
