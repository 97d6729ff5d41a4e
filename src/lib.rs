//! turnstream
pub mod commit;
pub mod log;
