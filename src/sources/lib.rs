//! The sources of evidence: the graph ([`knowledge`]), [`documents`] with their vector [`index`],
//! the rows of [`tables`], and the [`mod@phrasings`] that lead to them.
//!
//! A process opens them at start and hands them to the stages through `turnstream_ports`; commands
//! import into them. [`gold`] judges responses by the places and words that should have answered.

pub mod documents;
pub mod gold;
pub mod index;
pub mod knowledge;
pub mod phrasings;
pub mod tables;
