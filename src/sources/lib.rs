//! What turns are answered from: the graph ([`knowledge`]), [`documents`] with the vectors in their
//! [`index`], and the rows of [`tables`].
//!
//! Everything here is opened when a process starts and handed to the stages through
//! `turnstream_ports`; commands import into it.

pub mod documents;
pub mod index;
pub mod knowledge;
pub mod tables;
