//! Tests of `turnstream transactions`, below the command line.

use super::super::transactions::{abort, held_back};
use super::*;

/// A writer dies in the middle of a transaction. Readers wait until its id is taken.
pub(super) fn are_shown_and_ended(broker: &Broker) {
    let mut bed = Topics::fresh(broker);
    assert_eq!(held_back(&bed.0).unwrap(), [], "nothing was written");
    let (member, mut producer) = bed.member("a");
    let positions = vec![position(1, member.held[&1], 1, "")];
    let outputs = vec![output(Topic::Responses, 1, "k", Some("before"))];
    producer.commit(&Transaction { outputs, positions }).unwrap();
    assert_eq!(held_back(&bed.0).unwrap(), [], "it is committed");

    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = i64::try_from(now.as_millis()).unwrap();
    let dead = bed.stranger();
    for (topic, partition) in [(Topic::Responses, 1), (Topic::History, 2), (Topic::History, 2)] {
        let record = BaseRecord::to(bed.0.topics.name(topic)).partition(partition).key("k");
        dead.send(record.payload("never")).unwrap();
    }
    dead.flush(REQUEST_TIMEOUT).unwrap();
    drop(dead);

    let found = held_back(&bed.0).unwrap();
    let places: Vec<_> = found
        .iter()
        .map(|at| (at.topic.as_str(), at.partition, at.stable_end, at.high_watermark))
        .collect();
    // Both sweeps and the committed record, each with its end marker, come first.
    let responses = (bed.0.topics.responses.as_str(), 1, 4, 5);
    assert_eq!(places, [responses, (bed.0.topics.history.as_str(), 2, 2, 4)]);
    for at in &found {
        let since = at.since_ms.expect("the log's time");
        assert!((now..now + 60_000).contains(&since), "{since} is not after {now}");
    }

    abort(&bed.of("somebody-else")).unwrap();
    assert_eq!(held_back(&bed.0).unwrap().len(), 2, "another name ends nothing");
    abort(&bed.of("stranger")).unwrap();
    assert_eq!(held_back(&bed.0).unwrap(), []);
    assert_eq!(bed.committed(Topic::Responses, 1).len(), 1, "nothing of it became visible");
}
