//! turnstream

pub mod config;
