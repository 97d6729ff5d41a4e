//! Writes partial responses to the topic `partials`, beside the flow.
//!
//! Nothing waits for the topic. If a model writes faster than the log takes records, some are
//! skipped, since every record has all the words so far. After a failed write the next record opens
//! the log again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, TrySendError};
use turnstream_log::LogError;
use turnstream_log::write::Writer;
use turnstream_operators::flow::TurnContext;
use turnstream_operators::prompted::ReadAlong;
use turnstream_ports::model::Listener;
use turnstream_schemas::{InputId, PartialResponse, SCHEMA_VERSION};

/// The least time between two records of a turn.
const PACE: Duration = Duration::from_millis(50);

/// The most partial responses that wait to be written.
const MOST_WAITING: usize = 4_096;

/// Opens the topic of partial responses to write to it.
pub type OpenPartials = Box<dyn Fn() -> Result<Box<dyn Writer>, LogError> + Send>;

/// Writes partial responses to the log, on a thread that ends when the returned value and all its
/// listeners are dropped.
///
/// # Errors
/// The topic cannot be opened.
pub fn write_partials(open: OpenPartials) -> Result<ReadAlong, LogError> {
    let writer = open()?;
    let (told, written) = crossbeam_channel::bounded(MOST_WAITING);
    std::thread::spawn(move || write_all(&written, writer, &open));
    Ok(ReadAlong(Arc::new(move |turn: &TurnContext| {
        let (input, told) = (turn.input.clone(), told.clone());
        let begun = PartialResponse {
            schema_version: SCHEMA_VERSION,
            conversation_id: turn.turn.conversation_id.clone(),
            tenant_id: turn.turn.tenant_id.clone(),
            turn_id: turn.turn_id.clone(),
            text: String::new(),
        };
        Listener(Arc::new(move |text: &str| {
            let partial = PartialResponse { text: text.to_owned(), ..begun.clone() };
            if let Err(TrySendError::Full(_)) = told.try_send((input.clone(), partial)) {
                tracing::debug!(%input, "too many partial responses at once; dropped one");
            }
        }))
    })))
}

fn write_all(
    written: &Receiver<(InputId, PartialResponse)>,
    writer: Box<dyn Writer>,
    open: &OpenPartials,
) {
    let mut writer = Some(writer);
    while let Ok(first) = written.recv() {
        let latest: BTreeMap<InputId, PartialResponse> =
            std::iter::once(first).chain(written.try_iter()).collect();
        let done = writer.take().map_or_else(open, Ok).and_then(|mut opened| {
            write(&mut *opened, latest.values())?;
            writer = Some(opened);
            Ok(())
        });
        if let Err(error) = done {
            tracing::warn!(%error, "cannot write partial responses; retrying with the next");
        }
        std::thread::sleep(PACE);
    }
}

fn write<'p>(
    writer: &mut dyn Writer,
    partials: impl Iterator<Item = &'p PartialResponse>,
) -> Result<(), LogError> {
    for partial in partials {
        // The record has only text and numbers, so serialising it cannot fail.
        let Ok(value) = serde_json::to_vec(partial) else { continue };
        writer.write(partial.conversation_id.as_str().as_bytes(), Some(&value))?;
    }
    writer.finish().map(|_| ())
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::Sender;
    use turnstream_log::embedded::{EmbeddedConfig, EmbeddedLog};
    use turnstream_log::write::Written;
    use turnstream_log::{Follower as _, Record, Topic};

    use super::*;

    /// A writer that has lost its log. A model writes meanwhile.
    struct LostWriter(Sender<(InputId, PartialResponse)>);

    impl Writer for LostWriter {
        fn partitions(&self) -> i32 {
            1
        }

        fn write_to(&mut self, _: i32, _: Option<&[u8]>, _: Option<&[u8]>) -> Result<(), LogError> {
            Ok(())
        }

        fn finish(&mut self) -> Result<Written, LogError> {
            for (turn, text) in [(1, "tea"), (2, "no"), (1, "tea is"), (1, "tea is calm")] {
                self.0.send(so_far(turn, text)).unwrap();
            }
            Err(LogError::Refused("not today".to_owned()))
        }
    }

    fn so_far(offset: i64, text: &str) -> (InputId, PartialResponse) {
        let input = InputId { topic: "turns".to_owned(), partition: 0, offset };
        let partial = PartialResponse {
            schema_version: SCHEMA_VERSION,
            conversation_id: "c".into(),
            tenant_id: None,
            turn_id: input.turn_id(),
            text: text.to_owned(),
        };
        (input, partial)
    }

    #[test]
    fn the_latest_words_of_each_turn_are_written_and_a_lost_log_is_tried_again() {
        let log = EmbeddedLog::in_memory(&EmbeddedConfig::default()).unwrap();
        let (told, written) = crossbeam_channel::unbounded();
        told.send(so_far(1, "lost")).unwrap();
        let opened = log.clone();
        let open: OpenPartials = Box::new(move || Ok(Box::new(opened.writer(Topic::Partials))));
        write_all(&written, Box::new(LostWriter(told)), &open);
        let records = log.follower(Topic::Partials).poll(Duration::ZERO).unwrap();
        let read = |record: &Record| -> PartialResponse {
            serde_json::from_slice(record.value.as_deref().unwrap()).unwrap()
        };
        let read: Vec<PartialResponse> = records.iter().map(read).collect();
        let [(_, first), (_, second)] = [so_far(1, "tea is calm"), so_far(2, "no")];
        assert_eq!(read, [first, second]);
    }
}
