//! Progress of long work: a bar on a terminal, plain lines elsewhere, both on standard error.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is printed where there is no terminal.
const LINE: Duration = Duration::from_secs(10);
/// How many steps lie between two looks at the clock.
const LOOK_EVERY: u64 = 1_024;

/// Counts steps of which nobody knows how many there will be. Clones share the count.
#[derive(Clone)]
pub struct Progress(Arc<Shared>);

struct Shared {
    what: &'static str,
    done: AtomicU64,
    bar: Option<ProgressBar>,
    started: Instant,
    said: Mutex<Instant>,
}

impl Progress {
    /// Starts counting `what`, in the plural.
    pub fn start(what: &'static str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            let template = format!("{{spinner}} {{human_pos}} {what}, {{per_sec}}, {{elapsed}}");
            if let Ok(style) = ProgressStyle::with_template(&template) {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        let now = Instant::now();
        let said = Mutex::new(now);
        Self(Arc::new(Shared { what, done: AtomicU64::new(0), bar, started: now, said }))
    }

    /// One more is done.
    pub fn advance(&self) {
        let done = self.0.done.fetch_add(1, Ordering::Relaxed) + 1;
        match &self.0.bar {
            Some(bar) => bar.set_position(done),
            None if done.is_multiple_of(LOOK_EVERY) => self.say(done),
            None => {}
        }
    }

    /// Nothing more will be done.
    pub fn finish(&self) {
        if let Some(bar) = &self.0.bar {
            bar.finish_and_clear();
        }
    }

    fn say(&self, done: u64) {
        let mut said = self.0.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.elapsed() >= LINE {
            *said = Instant::now();
            let seconds = self.0.started.elapsed().as_secs_f64();
            eprintln!("{done} {}, {:.0} a second", self.0.what, done as f64 / seconds);
        }
    }
}
