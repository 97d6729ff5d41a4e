//! The sources of evidence: the graph ([`knowledge`]), [`documents`] with their vector [`index`],
//! and the rows of [`tables`].
//!
//! A process opens them at start and hands them to the stages through `turnstream_ports`; commands
//! import into them.

pub mod documents;
pub mod index;
pub mod knowledge;
pub mod tables;
