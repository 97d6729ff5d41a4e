//! Works out what is owed after every fault, from the sent records and from no internal state of
//! the engine.

use std::collections::BTreeMap;

use serde_json::Value;

use super::feed::SentChange;
use super::reader::Found;
use super::service::Service;
use crate::kafka::histories::Histories;
use crate::kafka::kcat::Read;
use crate::kafka::outcomes::{Conservation, Ended, Outcome, Place, out_of_order, parse};

/// The findings, as numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) inputs: usize,
    pub(crate) responses: usize,
    pub(crate) recorded: usize,
    pub(crate) dead_letters: usize,
    pub(crate) lost: usize,
    pub(crate) doubled: usize,
    pub(crate) unknown: usize,
    pub(crate) out_of_order: usize,
    pub(crate) entries: usize,
    pub(crate) handovers: usize,
    pub(crate) evictions: u64,
}

/// Counts what is lost, doubled, unknown and out of order, and names the first of each.
pub(crate) fn count(service: &Service, sent: &SentChange, found: &Found) -> Verdict {
    let ended = || found.outcomes.iter().flat_map(|(_, ended)| ended);
    let conservation = Conservation::of(sent.keys().copied(), ended().map(|ended| ended.place));
    let scope = |outcome| scope(service, outcome);
    let wrong: Vec<String> = found
        .outcomes
        .iter()
        .flat_map(|(_, ended)| out_of_order(ended.iter(), scope))
        .chain(found.history.out_of_order().iter().cloned())
        .collect();
    let many = |topic: &str| {
        let of_it = found.outcomes.iter().filter(|(plain, _)| *plain == topic);
        of_it.map(|(_, ended)| ended.len()).sum()
    };
    let Conservation { lost, doubled, unknown } = &conservation;
    for (what, named) in [
        ("lost", format!("{:?}", &lost[..lost.len().min(20)])),
        ("doubled", format!("{:?}", &doubled[..doubled.len().min(20)])),
        ("unknown", format!("{:?}", &unknown[..unknown.len().min(20)])),
        ("out of order", format!("{:#?}", &wrong[..wrong.len().min(20)])),
    ] {
        if named != "[]" {
            eprintln!("{}: {what}: {named}", service.name);
        }
    }
    Verdict {
        inputs: sent.len(),
        responses: many("responses"),
        recorded: many("recorded"),
        dead_letters: many("dead-letters"),
        lost: lost.len(),
        doubled: doubled.len(),
        unknown: unknown.len(),
        out_of_order: wrong.len(),
        ..Verdict::default()
    }
}

/// Compares every payload and the histories with what was sent. Panics at the first mismatch.
pub(crate) fn check(service: &Service, sent: &SentChange, found: &Found, verdict: &mut Verdict) {
    let Verdict { lost, doubled, unknown, out_of_order, .. } = *verdict;
    assert_eq!(
        (lost, doubled, unknown, out_of_order),
        (0, 0, 0, 0),
        "{}: lost, doubled, unknown, out of order",
        service.name
    );
    let inputs: BTreeMap<Place, Read> =
        found.inputs.iter().map(|read| ((read.partition, read.offset), read.clone())).collect();
    assert_eq!(inputs.len(), sent.len(), "records on the topic of turns");
    for (place, (written, _)) in sent {
        assert_eq!(inputs.get(place), Some(written), "the input at {place:?}");
    }
    let ended = || found.outcomes.iter().flat_map(|(_, ended)| ended);
    for ended in ended() {
        let (input, unfit) = &sent[&ended.place];
        check_payload(ended, input, *unfit);
    }
    let histories = Histories::expected(ended(), &inputs, &service.rules());
    verdict.handovers = histories.check(&found.history, &found.conversations);
    (verdict.entries, verdict.evictions) = histories.sizes();
}

/// Checks that an outcome is of the right kind, in the right place, and carries what its input had.
fn check_payload(ended: &Ended, input: &Read, unfit: Option<&str>) {
    let Ended { place, read, outcome } = ended;
    assert_eq!(place.0, read.partition, "{place:?}: an outcome is on its input's partition number");
    assert_eq!(read.key, input.key, "{place:?}: key");
    for (name, value) in &input.headers {
        assert_eq!(read.headers.get(name), Some(value), "{place:?}: header {name}");
    }
    let is_letter = matches!(outcome, Outcome::DeadLetter);
    assert_eq!(is_letter, unfit.is_some(), "{place:?}: {:?} {unfit:?}", read.headers);
    if let Some(unfit) = unfit {
        assert_eq!(read.value, input.value, "{place:?}: the bytes of a dead letter");
        let reason = &read.headers["turnstream.reason"];
        assert!(reason.contains(unfit), "{place:?}: `{unfit}` is not in `{reason}`");
        assert_eq!(read.headers["turnstream.stage"], "ingest", "{place:?}");
        return;
    }
    let turn: Value = parse(input);
    let (metadata, extra) = match outcome {
        Outcome::Response(response) => {
            let id = response.response_id.as_str();
            let topic = &response.input.topic;
            assert_eq!(id, format!("{topic}-{}-{}", place.0, place.1));
            assert!(!response.text.trim().is_empty(), "{place:?}: nothing is said");
            assert!(response.degraded.is_empty(), "{place:?}: {:?}", response.degraded);
            (&response.metadata, &response.extra)
        }
        Outcome::Recorded(recorded) => (&recorded.metadata, &recorded.extra),
        Outcome::DeadLetter => unreachable!("looked at above"),
    };
    assert_eq!(outcome.conversation(), turn["conversation_id"].as_str(), "{place:?}");
    assert_eq!(outcome.user(), turn["user_id"].as_str(), "{place:?}");
    assert_eq!(extra.get("mood"), turn.get("mood"), "{place:?}");
    let expected = turn.get("metadata").and_then(Value::as_object);
    assert_eq!(expected.is_some(), !metadata.is_empty(), "{place:?}: metadata");
    assert!(expected.is_none_or(|expected| expected == metadata), "{place:?}: {metadata:?}");
}

/// Checks that turns that came after all faults were answered.
pub(crate) fn check_last_words(places: &[Place], found: &Found) {
    for place in places {
        let mut ended = found.outcomes.iter().flat_map(|(_, ended)| ended);
        let ended = ended.find(|ended| ended.place == *place).expect("none was lost");
        let answered = matches!(ended.outcome, Outcome::Response(_));
        assert!(answered, "{place:?} came after all faults and is a {}", ended.outcome.name());
    }
}

fn scope<'a>(service: &Service, outcome: &'a Outcome) -> Option<&'a str> {
    if service.by_user { outcome.user() } else { outcome.conversation() }
}
