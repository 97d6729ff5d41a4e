//! Writes turns and directives to the log, many at a time, each acknowledged.
//!
//! A thread of its own owns the log's writer, which blocks. It writes all waiting records together.

use std::sync::mpsc::{Receiver, Sender};

use tokio::sync::oneshot;
use turnstream_log::LogError;
use turnstream_log::write::Writer;
use turnstream_ports::partitioner::Partitioner;

use crate::failure::RequestFailure;

/// Most records that are acknowledged together.
const MOST_AT_ONCE: usize = 1_000;

/// Opens a writer to the topic of turns.
pub(crate) type OpenWriter = Box<dyn Fn() -> Result<Box<dyn Writer>, LogError> + Send>;

/// A record to write.
pub(crate) struct ToWrite {
    key: String,
    value: String,
    /// Receives whether the record is on the log.
    written: oneshot::Sender<bool>,
}

#[cfg(test)]
impl ToWrite {
    /// The value to write.
    pub(crate) fn value(&self) -> &str {
        &self.value
    }

    /// Reports whether the record was written.
    pub(crate) fn acknowledge(self, is_written: bool) {
        self.written.send(is_written).unwrap();
    }
}

/// Writes records through the thread that runs [`write_all`].
#[derive(Clone)]
pub(crate) struct TurnWriting(pub(crate) Sender<ToWrite>);

impl TurnWriting {
    /// Writes a record, and returns once it is certain to be on the log.
    ///
    /// # Errors
    /// The record may not be on the log. It may be there all the same, so it must be sent again
    /// with the same turn id.
    pub(crate) async fn write(&self, key: &str, value: String) -> Result<(), RequestFailure> {
        let (written, is_written) = oneshot::channel();
        let record = ToWrite { key: key.to_owned(), value, written };
        self.0.send(record).map_err(|_| RequestFailure::NotWritten)?;
        match is_written.await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(RequestFailure::NotWritten),
        }
    }
}

/// Writes records until all senders are gone. If a writer fails, opens a new one for the next
/// records.
pub(crate) fn write_all(
    records: &Receiver<ToWrite>,
    mut writer: Option<Box<dyn Writer>>,
    open: &OpenWriter,
    partitioner: Partitioner,
) {
    while let Ok(first) = records.recv() {
        let together = records.try_iter().take(MOST_AT_ONCE - 1);
        let together: Vec<ToWrite> = std::iter::once(first).chain(together).collect();
        let is_written = match writer.take().map_or_else(open, Ok) {
            Ok(mut opened) => match write(&mut *opened, &together, partitioner) {
                Ok(()) => {
                    writer = Some(opened);
                    true
                }
                Err(error) => {
                    tracing::warn!(%error, records = together.len(), "cannot write turns");
                    false
                }
            },
            Err(error) => {
                tracing::warn!(%error, "cannot open the topic of turns for writing");
                false
            }
        };
        for record in together {
            // The request may be gone.
            let _ = record.written.send(is_written);
        }
    }
}

fn write(
    writer: &mut dyn Writer,
    records: &[ToWrite],
    partitioner: Partitioner,
) -> Result<(), LogError> {
    // Kafka's own placement, unless the configuration says how clients place keys.
    let partitioner = match partitioner {
        Partitioner::Unchecked => Partitioner::Murmur2,
        named => named,
    };
    for ToWrite { key, value, .. } in records {
        let partition = partitioner.partition(key.as_bytes(), writer.partitions()).unwrap_or(0);
        writer.write_to(partition, Some(key.as_bytes()), Some(value.as_bytes()))?;
    }
    writer.finish().map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use turnstream_log::write::Written;

    use super::*;

    /// A writer that notes what is written, or fails at the end.
    struct Notes {
        notes: Arc<Mutex<Vec<String>>>,
        fails: bool,
    }

    impl Writer for Notes {
        fn partitions(&self) -> i32 {
            4
        }

        fn write_to(
            &mut self,
            partition: i32,
            key: Option<&[u8]>,
            value: Option<&[u8]>,
        ) -> Result<(), LogError> {
            let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
            let note = format!("{partition} {} {}", text(key), text(value));
            self.notes.lock().unwrap().push(note);
            Ok(())
        }

        fn finish(&mut self) -> Result<Written, LogError> {
            match self.fails {
                true => Err(LogError::Refused("not today".to_owned())),
                false => Ok(Written::default()),
            }
        }
    }

    #[test]
    fn a_failed_write_is_reported_and_the_next_succeeds() {
        let notes = Arc::<Mutex<Vec<String>>>::default();
        let (sender, records) = std::sync::mpsc::channel();
        let opened = Arc::clone(&notes);
        let open: OpenWriter =
            Box::new(move || Ok(Box::new(Notes { notes: Arc::clone(&opened), fails: false })));
        let failing = Box::new(Notes { notes: Arc::clone(&notes), fails: true });
        let thread = std::thread::spawn(move || {
            write_all(&records, Some(failing), &open, Partitioner::Unchecked);
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let writing = TurnWriting(sender);
        let write = |key: &str, value: &str| runtime.block_on(writing.write(key, value.to_owned()));
        assert!(matches!(write("c", "1"), Err(RequestFailure::NotWritten)));
        assert!(write("c", "1").is_ok() && write("d", "2").is_ok());
        drop(writing);
        thread.join().unwrap();
        let place = |key: &str| Partitioner::Murmur2.partition(key.as_bytes(), 4).unwrap();
        let (c, d) = (place("c"), place("d"));
        let expected = [format!("{c} c 1"), format!("{c} c 1"), format!("{d} d 2")];
        assert_eq!(*notes.lock().unwrap(), expected);
    }
}
