//! Why a stage could not do its work. Failure is data: every fallible operator gives values and
//! faults.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stages::Stage;
use crate::text::bounded_line;

/// Characters of a reason at most. What servers say is in it, so that it has to have a bound.
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
    /// A model answered, and its answer cannot be used.
    Unfit,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::Invalid, Self::Error, Self::Timeout, Self::Panic, Self::Unfit];

    /// The kind's name in records and metrics.
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

/// Why a stage could not do its work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fault {
    /// The stage that failed.
    pub stage: Stage,
    /// What kind of failure it was.
    pub kind: FaultKind,
    /// What happened and what would mend it, for a person: one line of some 1,000 characters at most.
    pub reason: String,
}

impl Fault {
    /// A fault of a stage. The reason may come from outside: it is cut to its bound, and what would
    /// steer a terminal is taken out of it.
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

/// A stage that failed and was gone without.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Degraded {
    /// The stage, and why.
    Because(Fault),
    /// The stage alone: records that were written before they said why.
    Stage(Stage),
}

impl Degraded {
    /// Which stage.
    pub fn stage(&self) -> Stage {
        match self {
            Self::Because(fault) => fault.stage,
            Self::Stage(stage) => *stage,
        }
    }

    /// Why, where the record says.
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
