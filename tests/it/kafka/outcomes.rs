//! Reads outcomes as a reader of committed records finds them on the topics, and checks the two
//! laws that need nothing but their coordinates: each input has exactly one, in the order of its
//! scope.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use turnstream_schemas::{Recorded, Response};

use super::kcat::Read;

/// The topics of outcomes.
pub(crate) const OUTCOMES: [&str; 3] = ["responses", "recorded", "dead-letters"];

/// The topic of traces.
pub(crate) const TRACES: &str = "traces";

/// Partition and offset of an input.
pub(crate) type Place = (i32, i64);

/// An outcome.
pub(crate) enum Outcome {
    Response(Box<Response>),
    Recorded(Box<Recorded>),
    DeadLetter,
}

/// An input that ended.
pub(crate) struct Ended {
    /// The place of the input.
    pub(crate) place: Place,
    /// The record of the outcome.
    pub(crate) read: Read,
    /// The outcome.
    pub(crate) outcome: Outcome,
}

impl Ended {
    /// Reads a record of one of the topics of [`OUTCOMES`], or of [`TRACES`].
    pub(crate) fn of(topic: &str, read: Read) -> Self {
        let (place, outcome) = match topic {
            "responses" | TRACES => {
                let response: Response = parse(&read);
                (place(&response.input), Outcome::Response(Box::new(response)))
            }
            "recorded" => {
                let recorded: Recorded = parse(&read);
                (place(&recorded.input), Outcome::Recorded(Box::new(recorded)))
            }
            "dead-letters" => (place_in_headers(&read), Outcome::DeadLetter),
            other => panic!("there are no outcomes on `{other}`"),
        };
        Self { place, read, outcome }
    }
}

impl Outcome {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Response(_) => "response",
            Self::Recorded(_) => "recorded",
            Self::DeadLetter => "dead letter",
        }
    }

    /// Returns the conversation, if the input had one.
    pub(crate) fn conversation(&self) -> Option<&str> {
        match self {
            Self::Response(response) => Some(response.conversation_id.as_str()),
            Self::Recorded(recorded) => recorded.conversation_id.as_ref().map(|id| id.as_str()),
            Self::DeadLetter => None,
        }
    }

    /// Returns the user, if the input named one.
    pub(crate) fn user(&self) -> Option<&str> {
        let user = match self {
            Self::Response(response) => response.user_id.as_ref(),
            Self::Recorded(recorded) => recorded.user_id.as_ref(),
            Self::DeadLetter => None,
        };
        user.map(|user| user.as_str())
    }

    pub(crate) fn turn_id(&self) -> Option<&str> {
        match self {
            Self::Response(response) => Some(response.turn_id.as_str()),
            Self::Recorded(recorded) => Some(recorded.turn_id.as_str()),
            Self::DeadLetter => None,
        }
    }

    pub(crate) fn json(&self) -> Option<Value> {
        match self {
            Self::Response(response) => serde_json::to_value(response).ok(),
            Self::Recorded(recorded) => serde_json::to_value(recorded).ok(),
            Self::DeadLetter => None,
        }
    }
}

/// Replaces the brief responses by their traces. Each of them has exactly one, with its key and
/// headers, and no trace lacks its response.
pub(crate) fn complete(responses: &mut [Ended], traces: Vec<Ended>) {
    assert_eq!(responses.len(), traces.len(), "responses and traces");
    let mut of: BTreeMap<Place, Ended> =
        traces.into_iter().map(|trace| (trace.place, trace)).collect();
    for ended in responses {
        let trace = of.remove(&ended.place);
        let trace = trace.unwrap_or_else(|| panic!("{:?} has no trace", ended.place));
        let (Outcome::Response(brief), Outcome::Response(whole)) =
            (&mut ended.outcome, trace.outcome)
        else {
            unreachable!("topics of responses")
        };
        assert!(brief.brief && !whole.brief, "{:?}", ended.place);
        let (read, traced) = (&ended.read, &trace.read);
        assert_eq!((&read.key, &read.headers), (&traced.key, &traced.headers), "{:?}", ended.place);
        assert_eq!(read.partition, traced.partition, "{:?}", ended.place);
        let said = |of: &Response| (of.response_id.clone(), of.turn_id.clone(), of.text.clone());
        assert_eq!(said(brief), said(&whole), "{:?}", ended.place);
        *brief = whole;
    }
}

/// The mismatches of inputs and outcomes.
#[derive(Debug, Default)]
pub(crate) struct Conservation {
    /// Inputs without an outcome.
    pub(crate) lost: Vec<Place>,
    /// Inputs with more than one outcome, and how many.
    pub(crate) doubled: Vec<(Place, usize)>,
    /// Outcomes of inputs that do not exist.
    pub(crate) unknown: Vec<Place>,
}

impl Conservation {
    /// Compares outcomes with inputs.
    pub(crate) fn of(
        inputs: impl Iterator<Item = Place>,
        outcomes: impl Iterator<Item = Place>,
    ) -> Self {
        let mut ended: BTreeMap<Place, usize> = BTreeMap::new();
        for place in outcomes {
            *ended.entry(place).or_default() += 1;
        }
        let inputs: BTreeSet<Place> = inputs.collect();
        let doubled = ended.iter().filter(|(_, count)| **count > 1);
        Self {
            lost: inputs.iter().filter(|place| !ended.contains_key(place)).copied().collect(),
            doubled: doubled.map(|(place, count)| (*place, *count)).collect(),
            unknown: ended.keys().filter(|place| !inputs.contains(place)).copied().collect(),
        }
    }
}

/// Returns where, in one topic, an outcome of a scope does not follow those of earlier inputs.
/// Records come in the order within their partitions.
pub(crate) fn out_of_order<'a>(
    ended: impl Iterator<Item = &'a Ended>,
    scope: impl Fn(&'a Outcome) -> Option<&'a str>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut last: BTreeMap<(&str, i32), (i64, i64)> = BTreeMap::new();
    for Ended { place: (partition, offset), read, outcome } in ended {
        let Some(scope) = scope(outcome) else { continue };
        let now = (*offset, read.offset);
        let before = last.insert((scope, *partition), now);
        if before.is_some_and(|(input, at)| input >= *offset || at >= read.offset) {
            wrong.push(format!("{scope}: {}: {now:?} after {before:?}", outcome.name()));
        }
    }
    wrong
}

fn place(input: &turnstream_schemas::InputId) -> Place {
    (input.partition, input.offset)
}

fn place_in_headers(read: &Read) -> Place {
    let number = |name: &str| {
        let text = read.headers.get(name).unwrap_or_else(|| panic!("no header {name}: {read:?}"));
        text.parse::<i64>().expect("a number")
    };
    let partition = number("turnstream.partition");
    (i32::try_from(partition).expect("a partition"), number("turnstream.offset"))
}

/// Parses a record of ours.
pub(crate) fn parse<T: serde::de::DeserializeOwned>(read: &Read) -> T {
    let value = read.value.as_deref().unwrap_or_default();
    serde_json::from_slice(value)
        .unwrap_or_else(|error| panic!("{error} in {}", String::from_utf8_lossy(value)))
}
