//! Looks ahead in a log for fragments: marks each user turn whose utterance the next record of its
//! scope continues (`turns.burst_ms`).
//!
//! A replay has no time to wait for the next fragment, and the bytes that it writes must not depend
//! on its speed.

use std::collections::VecDeque;

use turnstream_log::jsonl::Records;
use turnstream_log::{LogError, Record};
use turnstream_operators::flow::Original;
use turnstream_operators::history::sequence::Fragmenting;
use turnstream_operators::ingest::{Peeked, TurnsConfig, peek};

/// Most records between a turn and its next fragment. In the log of a service, what other users say
/// meanwhile lies there.
const MOST_BETWEEN: usize = 1_000;

/// A log that is read some records ahead.
struct Lookahead {
    records: Records,
    config: TurnsConfig,
    fragmenting: Fragmenting,
    ahead: VecDeque<Ahead>,
    most: usize,
}

/// A record that was read and not passed on, with what ingest will make of it.
struct Ahead {
    record: Result<Record, LogError>,
    peeked: Option<Peeked>,
}

/// Returns the records with [`Record::followed`] set; unchanged if `turns.burst_ms` is 0.
pub(super) fn with_fragments(records: Records, config: &TurnsConfig) -> Records {
    let TurnsConfig { burst_ms, max_text_bytes, .. } = *config;
    if burst_ms == 0 {
        return records;
    }
    // A turn that waits for its next fragment is in flight, and so are all records between them.
    let bound = config.max_in_flight.min(config.max_in_flight_per_partition);
    Box::new(Lookahead {
        records,
        config: config.clone(),
        fragmenting: Fragmenting { burst_ms, max_text_bytes },
        ahead: VecDeque::new(),
        most: MOST_BETWEEN.min(bound.saturating_sub(1)),
    })
}

impl Iterator for Lookahead {
    type Item = Result<Record, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ahead.len() <= self.most
            && let Some(record) = self.records.next()
        {
            let peeked = record.as_ref().ok().and_then(|record| {
                let original = Original { value: record.value.clone(), ..Original::default() };
                peek(&original, &self.config)
            });
            self.ahead.push_back(Ahead { record, peeked });
        }
        let Ahead { record, peeked } = self.ahead.pop_front()?;
        let followed = peeked.is_some_and(|turn| self.is_followed(&turn));
        Some(record.map(|record| Record { followed, ..record }))
    }
}

impl Lookahead {
    fn is_followed(&self, turn: &Peeked) -> bool {
        let Some(said) = turn.said_at else { return false };
        let mut ahead = self.ahead.iter().filter_map(|ahead| ahead.peeked.as_ref());
        let next = ahead.find(|next| next.scope == turn.scope).and_then(|next| next.said_at);
        next.is_some_and(|next| self.fragmenting.goes_on(said, next))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use turnstream_operators::ingest::TurnsConfig;

    use super::*;

    /// The numbers of the records that are followed.
    fn followed(config: &TurnsConfig, values: Vec<serde_json::Value>) -> Vec<usize> {
        let record = |value: serde_json::Value| {
            Ok(Record { value: Some(value.to_string().into_bytes()), ..Record::default() })
        };
        let records = Box::new(values.into_iter().map(record));
        let records = with_fragments(records, config).enumerate();
        records.filter_map(|(at, record)| record.unwrap().followed.then_some(at)).collect()
    }

    #[test]
    fn the_next_record_of_the_scope_decides() {
        let config = TurnsConfig { burst_ms: 1_500, ..TurnsConfig::default() };
        let said = |id: &str, speaker: &str, ms: i64| json!({"conversation_id": id, "speaker": speaker, "text": "hi", "timestamp": ms});
        let values = || {
            vec![
                said("a", "user", 0),
                said("b", "user", 0),
                json!({"conversation_id": "a", "speaker": "user", "text": "", "timestamp": 10}),
                said("a", "user", 1_500),
                said("b", "system", 10),
                said("b", "user", 20),
                said("a", "user", 3_001),
                json!({"conversation_id": "a", "speaker": "user", "text": "when?"}),
                json!({"kind": "release", "conversation_id": "b", "timestamp": 30}),
                said("b", "user", 40),
                said("b", "user", 50),
            ]
        };
        assert_eq!(followed(&config, values()), [0, 9], "what ingest refuses is not in between");
        assert_eq!(followed(&TurnsConfig::default(), values()), [0; 0], "by default nothing is");
        let narrow = TurnsConfig { max_in_flight: 3, ..config };
        assert_eq!(followed(&narrow, values()), [9], "no further than what may be in flight");
    }
}
