//! Dead letters on a log. The record has the input's own bytes, key and headers, so that it can be
//! corrected and sent again. Eight more headers follow those of the input and give the reason;
//! their names begin with `turnstream.`.

use std::fmt::Display;

use turnstream_schemas::outcome::Bytes;
use turnstream_schemas::{DeadLetter, Fault, FaultKind, Header, InputId, Stage};

use super::{LogError, Output, Record, Topic};

/// The names of the headers, in the order in which they are appended.
pub const HEADERS: [&str; 8] = [
    "turnstream.schema_version",
    "turnstream.topic",
    "turnstream.partition",
    "turnstream.offset",
    "turnstream.stage",
    "turnstream.kind",
    "turnstream.reason",
    "turnstream.time",
];

/// The record of a dead letter.
pub fn encode(letter: &DeadLetter) -> Output {
    let values: [&dyn Display; 8] = [
        &letter.schema_version,
        &letter.input.topic,
        &letter.input.partition,
        &letter.input.offset,
        &letter.fault.stage,
        &letter.fault.kind.name(),
        &letter.fault.reason,
        &letter.time,
    ];
    let mut headers = letter.headers.clone();
    headers.extend(HEADERS.iter().zip(values).map(|(name, value)| Header {
        name: (*name).to_owned(),
        value: Some(Bytes(value.to_string().into_bytes())),
    }));
    Output {
        topic: Topic::DeadLetters,
        partition: letter.input.partition,
        input_offset: letter.input.offset,
        key: letter.key.as_ref().map(|key| key.0.clone()),
        value: letter.value.as_ref().map(|value| value.0.clone()),
        headers,
    }
}

/// Reads a dead letter back from its record.
///
/// # Errors
///
/// [`LogError::Refused`] unless the last eight headers are those that [`encode`] appends.
pub fn decode(
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &[Header],
) -> Result<DeadLetter, LogError> {
    let own = headers.len().saturating_sub(HEADERS.len());
    let (input, ours) = headers.split_at(own);
    let text = |index: usize| -> Result<&str, LogError> {
        ours.get(index)
            .filter(|header| header.name == HEADERS[index])
            .and_then(|header| header.value.as_ref())
            .and_then(|value| std::str::from_utf8(&value.0).ok())
            .ok_or_else(|| not_ours(HEADERS[index]))
    };
    Ok(DeadLetter {
        schema_version: number(text(0)?, HEADERS[0])?,
        input: InputId {
            topic: text(1)?.to_owned(),
            partition: number(text(2)?, HEADERS[2])?,
            offset: number(text(3)?, HEADERS[3])?,
        },
        value: value.map(|value| Bytes(value.to_vec())),
        key: key.map(|key| Bytes(key.to_vec())),
        headers: input.to_vec(),
        fault: Fault {
            stage: find(Stage::ALL.iter().map(|stage| (*stage, stage.name())), text(4)?)
                .ok_or_else(|| not_ours(HEADERS[4]))?,
            kind: find(FaultKind::ALL.iter().map(|kind| (*kind, kind.name())), text(5)?)
                .ok_or_else(|| not_ours(HEADERS[5]))?,
            reason: text(6)?.to_owned(),
        },
        time: number(text(7)?, HEADERS[7])?,
    })
}

/// The header of a record that marks a dead letter as sent again. It names the letter by its place
/// on the topic of dead letters, as `partition-offset`.
pub const REDRIVEN: &str = "turnstream.redriven";

/// Makes the record that marks a dead letter as sent again. It has the letter's key and no value.
pub fn mark(letter: &Record) -> Output {
    let place = format!("{}-{}", letter.partition, letter.offset);
    Output {
        topic: Topic::DeadLetters,
        partition: letter.partition,
        input_offset: letter.offset,
        key: letter.key.clone(),
        value: None,
        headers: vec![Header { name: REDRIVEN.to_owned(), value: Some(Bytes(place.into_bytes())) }],
    }
}

/// Returns the place of the dead letter that this record marks as sent again: its partition and
/// offset. `None` for a dead letter.
pub fn marked(record: &Record) -> Option<(i32, i64)> {
    // A dead letter's own headers follow the client's, so a client's header never counts as a mark.
    let [Header { name, value: Some(Bytes(place)) }] = &record.headers[..] else { return None };
    let (partition, offset) = std::str::from_utf8(place).ok()?.split_once('-')?;
    (name == REDRIVEN).then_some((partition.parse().ok()?, offset.parse().ok()?))
}

fn number<T: std::str::FromStr>(text: &str, header: &str) -> Result<T, LogError> {
    text.parse().map_err(|_| not_ours(header))
}

fn find<T>(mut known: impl Iterator<Item = (T, &'static str)>, text: &str) -> Option<T> {
    known.find(|(_, name)| *name == text).map(|(value, _)| value)
}

fn not_ours(header: &str) -> LogError {
    LogError::Refused(format!(
        "a record of {} has no readable header `{header}`; only this engine may write there",
        Topic::DeadLetters.name()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_names_its_letter_and_is_not_a_letter() {
        let letter =
            Record { partition: 3, offset: 41, key: Some(b"k".to_vec()), ..Record::default() };
        let Output { topic, partition, key, value, headers, .. } = mark(&letter);
        assert_eq!((topic, partition), (Topic::DeadLetters, 3));
        let marks = Record { partition, offset: 50, key, value, headers, ..Record::default() };
        assert_eq!(marked(&marks), Some((3, 41)));
        assert!(decode(marks.key.as_deref(), None, &marks.headers).is_err());
        // A client's header of that name comes before those of the letter.
        let sent = DeadLetter {
            schema_version: 1,
            input: InputId { topic: "turns".to_owned(), partition: 3, offset: 41 },
            value: None,
            key: None,
            headers: marks.headers,
            fault: Fault::new(Stage::Ingest, FaultKind::Invalid, "no value"),
            time: 1,
        };
        let headers = encode(&sent).headers;
        assert_eq!(marked(&Record { headers, ..letter }), None);
    }

    #[test]
    fn a_dead_letter_reads_back_and_keeps_the_record_as_it_came() {
        let came = Header { name: HEADERS[3].to_owned(), value: Some(Bytes(b"77".to_vec())) };
        for kind in FaultKind::ALL {
            let letter = DeadLetter {
                schema_version: 1,
                input: InputId { topic: "turns".to_owned(), partition: 3, offset: 41 },
                value: Some(Bytes(vec![0xff, 0, b'x'])),
                key: None,
                headers: vec![came.clone(), Header { name: "traceparent".to_owned(), value: None }],
                fault: Fault::new(Stage::Ingest, kind, "not UTF-8 at byte 0"),
                time: 1_700_000_000_000,
            };
            let output = encode(&letter);
            assert_eq!(output.value.as_deref(), Some(&[0xff, 0, b'x'][..]));
            assert_eq!((output.partition, output.input_offset), (3, 41));
            let back = decode(output.key.as_deref(), output.value.as_deref(), &output.headers);
            assert_eq!(back.unwrap(), letter, "a header sent again is not mistaken for ours");
        }
        let error = decode(None, None, &[came]).unwrap_err();
        assert!(error.to_string().contains("turnstream."), "{error}");
    }
}
