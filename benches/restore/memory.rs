//! Reads the memory of this process, as the system reports it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// KiB in memory.
#[derive(Clone, Copy)]
pub(crate) struct Resident {
    /// The process's own memory, which only the process can release.
    pub(crate) anon: u64,
    /// Pages of mapped files, which the system reclaims when it needs room.
    pub(crate) file: u64,
}

impl Resident {
    pub(crate) fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
            line.trim_end_matches("kB").trim().parse().expect("KiB")
        };
        Self { anon: of("RssAnon:"), file: of("RssFile:") }
    }
}

impl std::fmt::Display for Resident {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |kib: u64| kib as f64 / 1024.0;
        write!(out, "{:.0} MiB own, {:.0} MiB of files", mib(self.anon), mib(self.file))
    }
}

/// Samples the memory every few milliseconds.
pub(crate) struct Peak {
    stop: Arc<AtomicBool>,
    peaks: Arc<(AtomicU64, AtomicU64)>,
    thread: JoinHandle<()>,
}

impl Peak {
    pub(crate) fn watch() -> Self {
        let (stop, peaks) =
            (Arc::<AtomicBool>::default(), Arc::<(AtomicU64, AtomicU64)>::default());
        let (asked, seen) = (Arc::clone(&stop), Arc::clone(&peaks));
        let thread = std::thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                let Resident { anon, file } = Resident::now();
                seen.0.fetch_max(anon, Ordering::Relaxed);
                seen.1.fetch_max(file, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Self { stop, peaks, thread }
    }

    /// Stops, and returns the most memory of each kind.
    pub(crate) fn end(self) -> Resident {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the watching thread");
        let of = |peak: &AtomicU64| peak.load(Ordering::Relaxed);
        Resident { anon: of(&self.peaks.0), file: of(&self.peaks.1) }
    }
}
