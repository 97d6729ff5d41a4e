//! Defines faults: the reasons why a stage could not serve a turn. Failure is data: every fallible
//! operator gives values and faults.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stages::Stage;
use crate::text::bounded_line;

/// The most characters of a reason. It may quote a server, so it needs a bound.
const REASON_CHARACTERS: usize = 1_000;

/// The kind of a fault.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The input itself cannot be served.
    Invalid,
    /// A model or source answered with an error.
    Error,
    /// No answer came in time.
    Timeout,
    /// The stage or the model panicked; the panic was contained.
    Panic,
    /// A model answered, but its answer cannot be used.
    Unfit,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::Invalid, Self::Error, Self::Timeout, Self::Panic, Self::Unfit];

    /// Returns the kind's name in records and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Panic => "panic",
            Self::Unfit => "unfit",
        }
    }
}

/// The reason why a stage could not serve a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fault {
    /// The stage that failed.
    pub stage: Stage,
    /// The kind of the failure.
    pub kind: FaultKind,
    /// What happened and what would fix it, for a person: one line of at most about 1,000 characters.
    pub reason: String,
}

impl Fault {
    /// Makes a fault of a stage. The reason may come from outside, so it is cut to its bound and
    /// loses characters that control a terminal.
    pub fn new(stage: Stage, kind: FaultKind, reason: impl Into<String>) -> Self {
        Self { stage, kind, reason: bounded_line(&reason.into(), REASON_CHARACTERS) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.stage, self.reason)
    }
}

impl std::error::Error for Fault {}

/// A stage that failed and that the response was made without.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Degraded {
    /// The stage, and why it failed.
    Because(Fault),
    /// The stage alone, as older records have it.
    Stage(Stage),
}

impl Degraded {
    /// Returns the stage that failed.
    pub fn stage(&self) -> Stage {
        match self {
            Self::Because(fault) => fault.stage,
            Self::Stage(stage) => *stage,
        }
    }

    /// Returns why it failed, if the record says.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Because(fault) => Some(fault),
            Self::Stage(_) => None,
        }
    }
}

impl From<Fault> for Degraded {
    fn from(fault: Fault) -> Self {
        Self::Because(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_written_by_its_name() {
        for kind in FaultKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }

    #[test]
    fn a_reason_from_outside_is_bounded_and_steers_nothing() {
        let said = format!("status 500:\n\u{1b}[2J\u{202e}{}", "<div>".repeat(1_000));
        let fault = Fault::new(Stage::Gate, FaultKind::Error, said);
        assert!(fault.reason.starts_with("status 500: [2J <div>"), "{}", fault.reason);
        assert_eq!(fault.reason.chars().count(), REASON_CHARACTERS + 1);
        assert!(!fault.reason.contains(crate::text::is_steering));
    }

    #[test]
    fn a_degraded_stage_says_why_and_an_older_record_need_not() {
        let both = r#"["gate",{"stage":"generation","kind":"error","reason":"no key"}]"#;
        let read: Vec<Degraded> = serde_json::from_str(both).unwrap();
        let fault = Fault::new(Stage::Generation, FaultKind::Error, "no key");
        assert_eq!(read, [Degraded::Stage(Stage::Gate), fault.clone().into()]);
        assert_eq!(
            read.iter().map(Degraded::stage).collect::<Vec<_>>(),
            [Stage::Gate, Stage::Generation]
        );
        assert_eq!((read[0].fault(), read[1].fault()), (None, Some(&fault)));
        assert_eq!(serde_json::to_string(&read).unwrap(), both);
        assert!(serde_json::from_str::<Degraded>(r#"{"stage":"gate"}"#).is_err());
    }
}
