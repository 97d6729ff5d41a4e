//! The producer of a JSON-lines log. It writes outcomes in the order of their inputs.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::sync::PoisonError;

use turnstream_schemas::EntryKey;

use super::super::{LogError, Output, Producer, Topic, Transaction, evictions, letters};
use super::sink::Sink;
use super::{Checkpoint, GENERATION, Marks, PARTITION, Sinks};

/// Writes outcomes to files. The files are complete after [`finish`](Self::finish) or after the
/// producer is dropped.
pub struct JsonlProducer {
    sinks: BTreeMap<Topic, Sink>,
    checkpoint: Option<PathBuf>,
    marks: Marks,
    /// Lines of inputs at or above the lowest pending one.
    waiting: BTreeMap<i64, VecDeque<(Topic, Vec<u8>)>>,
    written: Checkpoint,
    /// The lowest pending input.
    position: i64,
}

impl JsonlProducer {
    /// Opens the files at their length in the checkpoint. The caller has checked them against it.
    pub(super) fn open(
        sinks: &Sinks,
        mut written: Checkpoint,
        marks: Marks,
    ) -> Result<Self, LogError> {
        let mut open = BTreeMap::new();
        for (topic, path) in sinks.files() {
            if let (Some(path), Some(prefix)) = (path, written.prefix_mut(topic)) {
                open.insert(topic, Sink::open(path, *prefix)?);
            }
        }
        let checkpoint = sinks.checkpoint.clone();
        if let Some(path) = &checkpoint {
            written.save(path)?;
        }
        let (waiting, position) = (BTreeMap::new(), written.offset);
        Ok(Self { sinks: open, checkpoint, marks, waiting, written, position })
    }

    /// Writes responses to `stream`.
    pub fn respond_to(&mut self, stream: Box<dyn Write + Send>) {
        self.sinks.insert(Topic::Responses, Sink::stream("standard output", stream));
    }

    /// The progress of the files, up to the lowest pending input.
    pub fn written(&self) -> &Checkpoint {
        &self.written
    }

    /// Completes the files. Returns the number of outcomes that still wait for an earlier one and
    /// are not written: 0 if every input had its outcome.
    pub fn finish(mut self) -> Result<usize, LogError> {
        self.sinks.values_mut().try_for_each(Sink::finish)?;
        Ok(self.waiting.values().map(VecDeque::len).sum())
    }

    /// Writes everything below the lowest pending input, and records the progress of the files.
    fn write_out(&mut self) -> Result<(), LogError> {
        let still = self.waiting.split_off(&self.position);
        let ready = std::mem::replace(&mut self.waiting, still);
        for (offset, lines) in ready {
            self.pass_marks(offset);
            for (topic, line) in lines {
                if let Some(sink) = self.sinks.get_mut(&topic) {
                    sink.write(&line)?;
                }
            }
        }
        self.pass_marks(self.position);
        for (topic, sink) in &mut self.sinks {
            sink.flush()?;
            if let Some(prefix) = self.written.prefix_mut(*topic) {
                *prefix = sink.prefix();
            }
        }
        Ok(())
    }

    /// Removes the marks up to `offset`, when all before `offset` and nothing at or above it is
    /// written.
    fn pass_marks(&mut self, offset: i64) {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let above = marks.split_off(&(offset + 1));
        let passed = std::mem::replace(&mut *marks, above);
        drop(marks);
        if passed.values().any(|mark| mark.is_boundary) {
            let history = self.sinks.get(&Topic::History);
            self.written.changelog_from = history.map_or(0, |sink| sink.prefix().bytes);
        }
        if let Some((at, mark)) = passed.last_key_value() {
            (self.written.offset, self.written.inputs) = (*at, mark.inputs);
        }
    }
}

impl Producer for JsonlProducer {
    fn keeps_every_change(&self) -> bool {
        true
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<(), LogError> {
        transaction.check()?;
        let stale = transaction
            .positions
            .iter()
            .find(|position| position.partition != PARTITION || position.generation != GENERATION);
        if let Some(position) = stale {
            return Err(LogError::Stale { partitions: vec![position.partition] });
        }
        let mut lines = Vec::new();
        for output in &transaction.outputs {
            if self.sinks.contains_key(&output.topic) {
                lines.push((output.input_offset, output.topic, line(output)?));
            }
        }
        for (offset, topic, line) in lines {
            self.waiting.entry(offset).or_default().push_back((topic, line));
        }
        let before = self.written.offset;
        for position in &transaction.positions {
            self.position = self.position.max(position.offset);
        }
        self.write_out()?;
        match &self.checkpoint {
            Some(path) if self.written.offset != before => self.written.save(path),
            _ => Ok(()),
        }
    }
}

impl Drop for JsonlProducer {
    fn drop(&mut self) {
        for sink in self.sinks.values_mut() {
            match sink.finish() {
                // The reader of the pipe has closed it on purpose.
                Err(LogError::File { source, .. }) if source.kind() == ErrorKind::BrokenPipe => {}
                Err(error) => tracing::error!(%error, "an output file could not be completed"),
                Ok(()) => {}
            }
        }
    }
}

/// The output as one line of its file, without the newline.
fn line(output: &Output) -> Result<Vec<u8>, LogError> {
    let refused = |what: &str| {
        LogError::Refused(format!(
            "{}: the outcome of input {} {what}",
            output.topic.name(),
            output.input_offset
        ))
    };
    let line = match output.topic {
        Topic::DeadLetters => {
            let (key, value) = (output.key.as_deref(), output.value.as_deref());
            let letter = letters::decode(key, value, &output.headers)?;
            serde_json::to_vec(&letter).map_err(|error| refused(&error.to_string()))?
        }
        Topic::History => {
            let key = output.key.as_deref().ok_or_else(|| refused("has no key"))?;
            let parsed: EntryKey = serde_json::from_slice(key)
                .map_err(|error| refused(&format!("has an unreadable key: {error}")))?;
            change(key, parsed.entry.is_some(), output)
        }
        Topic::Turns
        | Topic::Responses
        | Topic::Traces
        | Topic::Recorded
        | Topic::Conversations
        | Topic::Knowledge
        | Topic::Partials
        | Topic::Views => output.value.clone().ok_or_else(|| refused("has no value"))?,
    };
    if line.contains(&b'\n') {
        return Err(refused("is more than one line; records must be compact JSON"));
    }
    Ok(line)
}

/// A `HistoryChange` from the key and value of its record, both already JSON.
fn change(key: &[u8], of_entry: bool, output: &Output) -> Vec<u8> {
    let evicted = evictions::decode(&output.headers).and_then(|of| serde_json::to_vec(&of).ok());
    let (change, field, value) = match (&output.value, of_entry) {
        (None, _) if evicted.is_none() => ("gone", "", None),
        (None, _) => ("gone", ",\"evicted\":", evicted.as_ref()),
        (Some(value), true) => ("entry", ",\"entry\":", Some(value)),
        (Some(value), false) => ("scope", ",\"record\":", Some(value)),
    };
    let mut line = format!("{{\"change\":\"{change}\",\"key\":").into_bytes();
    line.extend(key);
    line.extend(field.as_bytes());
    line.extend(value.into_iter().flatten());
    line.push(b'}');
    line
}
