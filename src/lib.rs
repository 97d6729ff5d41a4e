//! turnstream

pub mod formats;
