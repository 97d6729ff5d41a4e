//! The topics of a log, by their purpose.

/// The purpose of a topic. Its name on the log is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// Inputs.
    Turns,
    /// Responses.
    Responses,
    /// The traces of responses. It may be missing: each response then contains its trace.
    Traces,
    /// Inputs that ended without a response.
    Recorded,
    /// Inputs that could not be served.
    DeadLetters,
    /// The holder of each conversation, compacted by scope. It may be missing: holders are then not
    /// published.
    Conversations,
    /// The changelog of histories, compacted by key.
    History,
    /// Changes to the knowledge, compacted by key. Its number of partitions is independent of the
    /// other topics.
    Knowledge,
    /// Partial responses, written outside of transactions. Only used if `gateway.partials` is set.
    Partials,
    /// Counts over responses, histories and knowledge, compacted by key. Only `turnstream views`
    /// reads and writes this topic; its number of partitions is independent too.
    Views,
}

impl Topic {
    /// All topics.
    pub const ALL: [Self; 10] = [
        Self::Turns,
        Self::Responses,
        Self::Traces,
        Self::Recorded,
        Self::DeadLetters,
        Self::Conversations,
        Self::History,
        Self::Knowledge,
        Self::Partials,
        Self::Views,
    ];

    /// The topics of inputs and their outcomes, without which nothing is served. All have the same
    /// number of partitions, as do those of [`Self::MAY_BE_MISSING`] that exist.
    pub const OF_TURNS: [Self; 5] =
        [Self::Turns, Self::Responses, Self::Recorded, Self::DeadLetters, Self::History];

    /// Optional topics of outcomes: turns are served without them.
    pub const MAY_BE_MISSING: [Self; 2] = [Self::Traces, Self::Conversations];

    /// Whether the topic keeps only the last record of each key.
    pub fn is_compacted(self) -> bool {
        matches!(self, Self::Conversations | Self::History | Self::Knowledge | Self::Views)
    }

    /// The default name of the topic, which messages also use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Turns => "turns",
            Self::Responses => "responses",
            Self::Traces => "traces",
            Self::Recorded => "recorded",
            Self::DeadLetters => "dead-letters",
            Self::Conversations => "conversations",
            Self::History => "history",
            Self::Knowledge => "knowledge",
            Self::Partials => "partials",
            Self::Views => "views",
        }
    }
}
