//! The engine: joins, configures, runs and feeds the stages of `turnstream_operators`.
//!
//! Turns arrive on a log, flow through the stages, and leave as responses, recorded turns or dead
//! letters. One transaction holds the outcomes, the changes of histories and the offsets. The
//! modules in the order of the data:
//!
//! 1. [`dataflow`]: the figure as one function, with one line per stage. Begin here.
//! 2. [`serve`]: one process, with a consumer thread, workers and a committer.
//! 3. [`turnstream_log`]: the source of inputs and the destination of outcomes: Kafka, embedded,
//!    JSON lines.
//! 4. [`intake`] and [`flow_control`]: from the log to the workers, within bounds. [`cache`]: the
//!    disk cache that changelogs are restored to and that holds idle scopes.
//! 5. [`dependencies`]: the parts that the dataflow is built from, opened once according to
//!    [`config`], and their [`digests`], which responses carry. [`worker`]: the deterministic core,
//!    driven by `step(now)`, and the threads that drive it.
//! 6. [`commit`]: encodes outcomes and writes transactions. [`tally`]: counts outcomes.
//! 7. [`metrics`]: counters, liveness and readiness over HTTP.
//! 8. [`knowledge_feed`]: carries changes of the graph from the log to the workers. [`meaning`]:
//!    vectors of the changed facts.
//! 9. Beside serving: [`views`] over committed records, and [`histories`], the stored history of a
//!    conversation.
//!
//! # Invariants
//!
//! Every input ends as exactly one outcome. A scope's outcomes come in log order. One transaction
//! holds everything that an input caused and the position behind it. Clocks, threads and random
//! order exist only in this crate, outside the core, and never in the operators. `ARCHITECTURE.md`
//! lists all invariants with the tests that hold them.

pub mod cache;
pub mod commit;
pub mod config;
pub mod dataflow;
pub mod dependencies;
pub mod digests;
pub mod flow_control;
pub mod histories;
pub mod intake;
pub mod knowledge_feed;
pub mod meaning;
pub mod metrics;
pub mod panics;
pub mod partials;
pub mod serve;
pub mod tally;
pub mod teaching;
pub mod views;
pub mod worker;
