//! turnstream: a streaming dataflow engine for retrieval-augmented dialogue.
//!
//! Turns arrive on a log, flow through the operators of `turnstream_operators`, and leave as
//! responses, recorded turns or dead letters, in one transaction with the history and the
//! offsets. This package is the wiring: how the stages are joined, run, configured and fed.
//!
//! Reading order is data order:
//!
//! 1. [`dataflow`]: the figure, one function, one line per stage. Begin here.
//! 2. [`engine`]: one process: a consumer thread, workers, a committer.
//! 3. [`turnstream_log`]: where inputs come from and outcomes go: Kafka, embedded, JSON lines.
//! 4. [`intake`] and [`flow_control`]: from the log to the workers, within bounds; [`cache`]: where
//!    changelogs are restored to, and idle scopes lie.
//! 5. [`parts`]: what the dataflow is built from, opened once. [`worker`]: the deterministic core, driven by `step(now)`, and the threads that drive it.
//! 6. [`commit`]: outcomes to bytes, and transactions; [`tally`]: what is counted about them.
//! 7. [`metrics`]: what is counted, and whether the process is alive and ready, over HTTP.
//! 8. [`knowledge`]: opens the graph; the shipped pack. [`learning`]: changes to it, from the log to
//!    the workers. [`documents`]: the source beside the graph; [`index`]: its vectors.
//! 9. [`model`]: what answers the stages that ask a model.
//! 10. [`config`] and [`cli`]: flags and files to all of the above; [`turnstream_formats`]: public data sets
//!     as conversation logs, and [`labelled`], what they say about the need for knowledge;
//!     [`explain`]: a response's path for people, [`histories`]: what is kept of a conversation.
//!
//! # Invariants
//!
//! Every input ends as exactly one outcome. A scope's outcomes come in log order. Everything an
//! input caused and the position behind it are in one transaction. Time, threads and random
//! order live out here and never in the operators or the core. `ARCHITECTURE.md` lists all
//! invariants with the tests that hold them.

pub mod annotations;
pub mod cache;
pub mod cli;
pub mod commit;
pub mod config;
pub mod dataflow;
pub mod documents;
pub mod engine;
pub mod eval;
pub mod explain;
pub mod flow_control;
pub mod histories;
pub mod index;
pub mod intake;
pub mod knowledge;
pub mod labelled;
pub mod learning;
pub mod meaning;
pub mod metrics;
pub mod model;
pub mod panics;
pub mod parts;
pub mod tables;
pub mod tally;
pub mod views;
pub mod worker;
