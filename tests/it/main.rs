//! Integration tests: what the program and its packages do together.

mod broker;
mod kafka;
mod schemas;
