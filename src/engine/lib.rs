//! The engine: how the stages of `turnstream_operators` are joined, run, configured and fed.
//!
//! Turns arrive on a log, flow through the stages, and leave as responses, recorded turns or dead
//! letters, in one transaction with the history and the offsets. Reading order is data order:
//!
//! 1. [`dataflow`]: the figure, one function, one line per stage. Begin here.
//! 2. [`serve`]: one process: a consumer thread, workers, a committer.
//! 3. [`turnstream_log`]: where inputs come from and outcomes go: Kafka, embedded, JSON lines.
//! 4. [`intake`] and [`flow_control`]: from the log to the workers, within bounds; [`cache`]: where
//!    changelogs are restored to, and idle scopes lie.
//! 5. [`parts`]: what the dataflow is built from, opened once, by [`config`]. [`worker`]: the
//!    deterministic core, driven by `step(now)`, and the threads that drive it.
//! 6. [`commit`]: outcomes to bytes, and transactions; [`tally`]: what is counted about them.
//! 7. [`metrics`]: what is counted, and whether the process is alive and ready, over HTTP.
//! 8. [`learning`]: changes of the graph, from the log to the workers; [`meaning`]: their vectors.
//! 9. Beside serving: [`views`], over what was committed, and [`histories`], what is kept of a
//!    conversation.
//!
//! # Invariants
//!
//! Every input ends as exactly one outcome. A scope's outcomes come in log order. Everything an
//! input caused and the position behind it are in one transaction. Time, threads and random
//! order live out here and never in the operators or the core. `ARCHITECTURE.md` lists all
//! invariants with the tests that hold them.

pub mod cache;
pub mod commit;
pub mod config;
pub mod dataflow;
pub mod flow_control;
pub mod histories;
pub mod intake;
pub mod learning;
pub mod meaning;
pub mod metrics;
pub mod panics;
pub mod parts;
pub mod serve;
pub mod tally;
pub mod views;
pub mod worker;
