//! Outcomes to files, in the order of their inputs.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use turnstream_schemas::EntryKey;

use super::super::{LogError, Output, Producer, Topic, Transaction, evictions, letters};
use super::sink::Sink;
use super::{Boundaries, GENERATION, PARTITION, Sinks, Written};

/// Writes outcomes to files. Files are complete once [`finish`](Self::finish) was called or the
/// producer was dropped.
pub struct JsonlProducer {
    sinks: BTreeMap<Topic, Sink>,
    checkpoint: Option<PathBuf>,
    boundaries: Boundaries,
    /// Lines of inputs at or above the lowest pending one.
    waiting: BTreeMap<i64, VecDeque<(Topic, Vec<u8>)>>,
    written: Written,
    /// The lowest pending input.
    position: i64,
}

impl JsonlProducer {
    pub(super) fn open(
        sinks: &Sinks,
        resume: Option<&Written>,
        boundaries: Boundaries,
    ) -> Result<Self, LogError> {
        let mut open = BTreeMap::new();
        for (topic, path, keep) in [
            (Topic::Responses, &sinks.responses, resume.map(|written| written.responses)),
            (Topic::Recorded, &sinks.recorded, resume.map(|written| written.recorded)),
            (Topic::DeadLetters, &sinks.dead_letters, resume.map(|written| written.dead_letters)),
            (Topic::History, &sinks.history, resume.map(|written| written.history)),
        ] {
            if let Some(path) = path {
                open.insert(topic, Sink::open(path, keep)?);
            }
        }
        let written = resume.copied().unwrap_or_default();
        Ok(Self {
            sinks: open,
            checkpoint: sinks.checkpoint.clone(),
            boundaries,
            waiting: BTreeMap::new(),
            written,
            position: written.offset,
        })
    }

    /// How far the files hold everything: the last boundary between conversations before the
    /// lowest pending input.
    pub fn written(&self) -> Written {
        self.written
    }

    /// Ends the files. Outcomes that still wait for an earlier one are not written; their
    /// number is given, 0 where every input had its outcome.
    pub fn finish(mut self) -> Result<usize, LogError> {
        self.sinks.values_mut().try_for_each(Sink::finish)?;
        Ok(self.waiting.values().map(VecDeque::len).sum())
    }

    /// Writes everything below the lowest pending input, noting each boundary on the way.
    fn write_out(&mut self) -> Result<(), LogError> {
        let still = self.waiting.split_off(&self.position);
        let ready = std::mem::replace(&mut self.waiting, still);
        for (offset, lines) in ready {
            self.pass_boundaries(offset);
            for (topic, line) in lines {
                if let Some(sink) = self.sinks.get_mut(&topic) {
                    sink.write(&line)?;
                }
            }
        }
        self.pass_boundaries(self.position);
        self.sinks.values_mut().try_for_each(Sink::flush)
    }

    /// Notes the last boundary that is not above `offset`; nothing of it or above was written.
    fn pass_boundaries(&mut self, offset: i64) {
        let mut boundaries = self.boundaries.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(&boundary) = boundaries.range(..=offset).next_back() else {
            return;
        };
        *boundaries = boundaries.split_off(&(boundary + 1));
        drop(boundaries);
        let bytes = |topic| self.sinks.get(&topic).map_or(0, |sink| sink.bytes);
        self.written = Written {
            offset: boundary,
            responses: bytes(Topic::Responses),
            recorded: bytes(Topic::Recorded),
            dead_letters: bytes(Topic::DeadLetters),
            history: bytes(Topic::History),
        };
    }

    fn save_checkpoint(&self, path: &Path) -> Result<(), LogError> {
        let file = |source| LogError::File { path: path.display().to_string(), source };
        let text = serde_json::to_vec(&self.written).map_err(|error| file(error.into()))?;
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        std::fs::write(&name, text).and_then(|()| std::fs::rename(&name, path)).map_err(file)
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
        let before = self.written;
        for position in &transaction.positions {
            self.position = self.position.max(position.offset);
        }
        self.write_out()?;
        match &self.checkpoint {
            Some(path) if self.written != before => self.save_checkpoint(path),
            _ => Ok(()),
        }
    }
}

impl Drop for JsonlProducer {
    fn drop(&mut self) {
        for sink in self.sinks.values_mut() {
            if let Err(error) = sink.finish() {
                tracing::error!(%error, "an output file could not be completed");
            }
        }
    }
}

/// The output as one line of its file, without the line's end.
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
                .map_err(|error| refused(&format!("has a key that is none: {error}")))?;
            change(key, parsed.entry.is_some(), output)
        }
        Topic::Turns | Topic::Responses | Topic::Recorded | Topic::Knowledge | Topic::Views => {
            output.value.clone().ok_or_else(|| refused("has no value"))?
        }
    };
    if line.contains(&b'\n') {
        return Err(refused("is more than one line; records must be compact JSON"));
    }
    Ok(line)
}

/// A `HistoryChange` from the key and the value of its record, both JSON already.
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
