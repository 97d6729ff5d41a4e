//! turnstream
pub mod knowledge;
