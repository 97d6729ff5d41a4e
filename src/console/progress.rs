//! Progress of long work on standard error: a changing line on a terminal, plain lines elsewhere.
//! If the total is known, the lines have the share that is done and the time left at the present
//! rate.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressStyle};

/// Time between updates on a terminal.
const ON_TERMINAL: Duration = Duration::from_millis(100);
/// Time between lines without a terminal.
const LINE: Duration = Duration::from_secs(10);

/// Counts steps. Clones share the count.
#[derive(Clone)]
pub struct Progress(Arc<Shared>);

struct Shared {
    what: &'static str,
    whole: Whole,
    done: AtomicU64,
    bar: Option<ProgressBar>,
    started: Instant,
    /// Milliseconds from the start to the next line.
    due_ms: AtomicU64,
    begun: Mutex<Stand>,
}

/// The total amount of work.
enum Whole {
    Unknown,
    /// A number of steps.
    Steps(u64),
    /// The bytes of a file, and how many of them are read.
    Bytes(u64, Arc<AtomicU64>),
}

/// The progress at one instant.
#[derive(Clone, Copy)]
struct Stand {
    at: Instant,
    done: u64,
    /// 0..=1, if known.
    share: Option<f64>,
}

impl Progress {
    /// Starts counting `what`, in the plural, without a known total.
    pub fn start(what: &'static str) -> Self {
        Self::of_whole(what, Whole::Unknown)
    }

    /// Starts counting `what`, with a known total.
    pub fn of(total: usize, what: &'static str) -> Self {
        Self::of_whole(what, Whole::Steps(total as u64))
    }

    /// Starts counting `what` in a file, of which `read` counts the bytes. The total is unknown if
    /// `file` is not a regular file.
    pub fn through(file: &Path, read: &Arc<AtomicU64>, what: &'static str) -> Self {
        let length = std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file);
        let whole = length.map_or(Whole::Unknown, |it| Whole::Bytes(it.len(), Arc::clone(read)));
        Self::of_whole(what, whole)
    }

    fn of_whole(what: &'static str, whole: Whole) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        let every = if bar.is_some() { ON_TERMINAL } else { LINE };
        let (due_ms, started) = (AtomicU64::new(every.as_millis() as u64), Instant::now());
        let begun = Mutex::new(Stand { at: started, done: 0, share: whole.share(0) });
        Self(Arc::new(Shared { what, whole, done: AtomicU64::new(0), bar, started, due_ms, begun }))
    }

    /// Starts measuring the rate here, after skipped steps.
    pub fn begins_here(&self) {
        *self.0.begun.lock().unwrap_or_else(PoisonError::into_inner) = self.0.stand();
    }

    /// Counts one step.
    pub fn advance(&self) {
        self.0.done.fetch_add(1, Ordering::Relaxed);
        let now_ms = self.0.started.elapsed().as_millis() as u64;
        let due_ms = self.0.due_ms.load(Ordering::Relaxed);
        if now_ms < due_ms {
            return;
        }
        let every = if self.0.bar.is_some() { ON_TERMINAL } else { LINE };
        let next_ms = now_ms + every.as_millis() as u64;
        let order = Ordering::Relaxed;
        if self.0.due_ms.compare_exchange(due_ms, next_ms, order, order).is_ok() {
            self.0.say();
        }
    }

    /// Ends the count.
    pub fn finish(&self) {
        if let Some(bar) = &self.0.bar {
            bar.finish_and_clear();
        }
    }
}

impl Shared {
    fn stand(&self) -> Stand {
        let done = self.done.load(Ordering::Relaxed);
        Stand { at: Instant::now(), done, share: self.whole.share(done) }
    }

    fn say(&self) {
        let begun = *self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let line = line(self.what, &self.whole, begun, self.stand());
        match &self.bar {
            Some(bar) => bar.set_message(line),
            None => eprintln!("{line}"),
        }
    }
}

impl Whole {
    fn share(&self, done: u64) -> Option<f64> {
        let (part, whole) = match self {
            Self::Unknown => return None,
            Self::Steps(total) => (done, *total),
            Self::Bytes(length, read) => (read.load(Ordering::Relaxed), *length),
        };
        Some((part as f64 / whole.max(1) as f64).min(1.0))
    }
}

/// The text about the progress between two instants.
fn line(what: &str, whole: &Whole, begun: Stand, now: Stand) -> String {
    let of = match whole {
        Whole::Steps(total) => format!(" of {}", HumanCount(*total)),
        Whole::Unknown | Whole::Bytes(..) => String::new(),
    };
    let seconds = now.at.duration_since(begun.at).as_secs_f64().max(f64::EPSILON);
    let rate = (now.done - begun.done) as f64 / seconds;
    let places = if rate < 1.0 { 2 } else { usize::from(rate < 10.0) };
    let mut line = format!("{}{of} {what}, {rate:.places$} a second", HumanCount(now.done));
    if let (Some(before), Some(share)) = (begun.share, now.share) {
        line.push_str(&format!(", {:.0} %", share * 100.0));
        if share > before {
            let left = seconds * (1.0 - share) / (share - before);
            let left = Duration::try_from_secs_f64(left.round()).unwrap_or(Duration::MAX);
            line.push_str(&format!(", {} left", HumanDuration(left)));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(whole: &Whole, (from, to): (u64, u64), seconds: u64) -> String {
        let at = Instant::now();
        let begun = Stand { at, done: from, share: whole.share(from) };
        if let Whole::Bytes(length, read) = whole {
            read.store(length / 4, Ordering::Relaxed);
        }
        let at = at + Duration::from_secs(seconds);
        line("turns", whole, begun, Stand { at, done: to, share: whole.share(to) })
    }

    #[test]
    fn progress_shows_the_total_if_it_is_known() {
        assert_eq!(said(&Whole::Unknown, (0, 3_000), 10), "3,000 turns, 300 a second");
        let whole = Whole::Steps(12_000);
        let expected = "3,000 of 12,000 turns, 300 a second, 25 %, 30 seconds left";
        assert_eq!(said(&whole, (0, 3_000), 10), expected);
        let expected = "9,000 of 12,000 turns, 50 a second, 75 %, 60 seconds left";
        assert_eq!(said(&whole, (6_000, 9_000), 60), expected, "of what was not passed over");
        let file = Whole::Bytes(1 << 20, Arc::default());
        let expected = "30 turns, 0.25 a second, 25 %, 6 minutes left";
        assert_eq!(said(&file, (0, 30), 120), expected);
        assert_eq!(said(&whole, (0, 0), 5), "0 of 12,000 turns, 0.00 a second, 0 %");
    }
}
