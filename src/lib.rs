//! turnstream
