//! The checks that each section of the configuration has to pass.
//!
//! Ranges that a struct declares for its schema are checked before; what stands here is what is
//! documented in words, and what needs more than one key. Messages never hold values: a value may
//! be a secret, or come from the environment.

use turnstream_operators::history::HistoryConfig;
use turnstream_operators::ingest::TurnsConfig;

use super::{Checks, Config, KnowledgeConfig, RunConfig, Snapshot, Validate};

impl Validate for Config {
    fn validate(&self, checks: &mut Checks) {
        checks.within("turns", |checks| self.turns.validate(checks));
        checks.within("history", |checks| self.history.validate(checks));
        checks.within("knowledge", |checks| self.knowledge.validate(checks));
        checks.within("run", |checks| self.run.validate(checks));
    }
}

/// Reports a count that has to be at least 1.
fn at_least_one(checks: &mut Checks, counts: &[(&str, usize)]) {
    for (key, count) in counts {
        checks.ensure(*count > 0, key, "expected an integer of at least 1, found 0", "");
    }
}

/// Reports a share that does not lie in 0..=1.
fn fraction(checks: &mut Checks, key: &str, share: f64) {
    checks.ensure((0.0..=1.0).contains(&share), key, "expected a number from 0 to 1", "");
}

impl Validate for TurnsConfig {
    fn validate(&self, checks: &mut Checks) {
        at_least_one(
            checks,
            &[
                ("max_text_bytes", self.max_text_bytes),
                ("max_id_bytes", self.max_id_bytes),
                ("max_record_bytes", self.max_record_bytes),
                ("max_in_flight_per_partition", self.max_in_flight_per_partition),
                ("max_in_flight", self.max_in_flight),
            ],
        );
        checks.ensure(
            self.max_record_bytes >= self.max_text_bytes,
            "max_record_bytes",
            "less than max_text_bytes: no record could hold so long a text",
            "raise it, or lower max_text_bytes",
        );
    }
}

impl Validate for HistoryConfig {
    fn validate(&self, checks: &mut Checks) {
        fraction(checks, "alpha", self.alpha);
        fraction(checks, "min_recall_relevance", self.min_recall_relevance);
        checks.ensure(
            self.half_life_seconds > 0,
            "half_life_seconds",
            "expected an integer of at least 1, found 0",
            "a very short one makes recency count for nothing",
        );
    }
}

impl Validate for KnowledgeConfig {
    fn validate(&self, checks: &mut Checks) {
        if let Snapshot::File(path) = &self.snapshot {
            checks.ensure(
                path.is_file(),
                "snapshot",
                "there is no such file",
                "make one with `turnstream knowledge import`, or write \"pack\" for the English \
                 pack that the program carries",
            );
        }
    }
}

impl Validate for RunConfig {
    fn validate(&self, checks: &mut Checks) {
        checks.ensure(
            (1..=Self::MAX_WORKERS).contains(&self.workers),
            "workers",
            "expected an integer from 1 to 256",
            "one worker per core that the process may use is most",
        );
    }
}
