//! Uses kcat as the client: it writes turns, and reads every topic back byte for byte.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::broker::{Broker, said};

/// The separator of key and value in a line that kcat sends.
pub(crate) const KEY_END: u8 = b'\t';

/// A record as kcat read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) time_ms: i64,
    pub(crate) key: Option<Vec<u8>>,
    /// `None` for a tombstone.
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: BTreeMap<String, String>,
}

/// Sends lines of key, [`KEY_END`] and value, in order; `headers` go with each of them. With
/// `null` an empty value is a tombstone.
pub(crate) fn send_lines(broker: &Broker, lines: &[Vec<u8>], headers: &[&str], null: bool) {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    for line in lines {
        assert!(!line.contains(&b'\n'), "a record with a line feed cannot be a line");
        file.write_all(line).and_then(|()| file.write_all(b"\n")).expect("written");
    }
    file.flush().expect("written");
    let mut kcat = broker.kcat();
    kcat.args(["-P", "-t", "turns", "-K", "\t", "-X", "enable.idempotence=true"]);
    for header in headers {
        kcat.args(["-H", header]);
    }
    if null {
        kcat.arg("-Z");
    }
    kcat.arg("-l").arg(file.path());
    said(&kcat.output().expect("kcat runs"), "kcat -P");
}

/// Sends whole files, each as one record, under one key: for bytes that no line can hold.
pub(crate) fn send_files(broker: &Broker, key: &str, files: &[&Path]) {
    let mut kcat = broker.kcat();
    kcat.args(["-P", "-t", "turns", "-k", key]).args(files);
    said(&kcat.output().expect("kcat runs"), "kcat -P");
}

/// Reads a topic to its end as readers of committed records see it, in offset order within each
/// partition.
pub(crate) fn read_all(broker: &Broker, topic: &str) -> Vec<Read> {
    let mut kcat = broker.kcat();
    kcat.args(["-C", "-t", topic, "-o", "beginning", "-e", "-q"]);
    kcat.args(["-X", "isolation.level=read_committed"]);
    // Print lengths before bytes, so that any byte may be in them.
    kcat.args(["-f", "%p %o %T %K %S\\n%k%s\\n%h\\n"]);
    let done = kcat.output().expect("kcat runs");
    said(&done, "kcat -C");
    let mut rest = done.stdout.as_slice();
    let mut records = Vec::new();
    while !rest.is_empty() {
        records.push(parse(&mut rest));
    }
    records
}

fn parse(rest: &mut &[u8]) -> Read {
    let numbers = String::from_utf8(line(rest)).expect("numbers");
    let numbers: Vec<i64> =
        numbers.split(' ').map(|number| number.parse().expect("a number")).collect();
    let [partition, offset, time_ms, key, value] = numbers[..] else {
        panic!("kcat wrote {numbers:?}")
    };
    let key = sized(rest, key);
    let value = sized(rest, value);
    assert_eq!(line(rest), b"", "kcat wrote more than the lengths say");
    let headers = String::from_utf8(line(rest)).expect("headers of this test are text");
    let partition = i32::try_from(partition).expect("a partition");
    Read { partition, offset, time_ms, key, value, headers: headers_of(&headers) }
}

/// Parses headers. kcat joins them as `name=value,…`, so that a value with a comma looks like two;
/// what follows a comma and is no name of ours belongs to the value before.
fn headers_of(text: &str) -> BTreeMap<String, String> {
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    let mut last = None;
    for part in text.split(',').filter(|_| !text.is_empty()) {
        match part.split_once('=') {
            Some((name, value)) if name.starts_with("turnstream.") || name == "traceparent" => {
                headers.insert(name.to_owned(), value.to_owned());
                last = Some(name.to_owned());
            }
            _ => {
                let name = last.as_ref().expect("a header of another name than this test knows");
                let value = headers.get_mut(name).expect("put there before");
                value.push(',');
                value.push_str(part);
            }
        }
    }
    headers
}

fn line(rest: &mut &[u8]) -> Vec<u8> {
    let end = rest.iter().position(|byte| *byte == b'\n').expect("kcat ended within a line");
    let (line, after) = rest.split_at(end);
    *rest = &after[1..];
    line.to_vec()
}

/// Returns the next bytes; kcat prints -1 if there is no key or value at all.
fn sized(rest: &mut &[u8], length: i64) -> Option<Vec<u8>> {
    let length = usize::try_from(length).ok()?;
    let (bytes, after) = rest.split_at(length);
    *rest = after;
    Some(bytes.to_vec())
}

/// Counts committed records of topics as they come.
pub(crate) struct Counter {
    count: Arc<AtomicUsize>,
    readers: Vec<Child>,
}

impl Counter {
    /// Starts a reader for each topic.
    pub(crate) fn start(broker: &Broker, topics: &[&str]) -> Self {
        let mut counter = Self { count: Arc::default(), readers: Vec::new() };
        for topic in topics {
            let mut kcat = broker.kcat();
            kcat.args(["-C", "-t", topic, "-o", "beginning", "-q", "-u", "-f", "%o\\n"]);
            kcat.args(["-X", "isolation.level=read_committed"]);
            let reader = kcat.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
            let mut reader = reader.expect("kcat runs");
            let lines = BufReader::new(reader.stdout.take().expect("piped")).lines();
            let count = Arc::clone(&counter.count);
            // Ends with the reader, whose output it reads.
            std::thread::spawn(move || {
                for _ in lines.map_while(Result::ok) {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
            counter.readers.push(reader);
        }
        counter
    }

    /// Returns how many records have come so far, over all topics.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        for reader in &mut self.readers {
            // Ignore the error: the process may have exited already.
            let _ = reader.kill();
            let _ = reader.wait();
        }
    }
}
