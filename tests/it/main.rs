//! Tests what the program and its packages do together.

use std::path::Path;
use std::process::{Command, Stdio};

mod answers;
mod broker;
mod cache_folder;
mod chat;
mod crash;
mod dead_letters;
mod demo;
mod diff;
mod documents;
mod documents_flow;
mod draining;
mod encrypted;
mod explain;
mod failing_models;
mod from_log;
mod fronts;
mod gate;
mod gateway;
mod generation;
mod history;
mod history_import;
mod invariants;
mod kafka;
mod knowledge_flow;
mod knowledge_live;
mod lab;
mod language_server;
mod languages;
mod logs;
mod meaning;
mod methods;
mod metrics;
mod models;
mod operations;
mod outside;
mod panics;
mod people;
mod persona;
mod prompted;
mod recipes;
mod refinement;
mod replay;
mod resume;
mod schemas;
mod scraping;
mod scripted_server;
mod sources;
mod stalled_encoder;
mod static_members;
mod taught_live;
mod trained_tables;
mod validate;
mod verify;
mod views;
mod webhook;

/// Returns a command that runs the program with the shared snapshot of the shipped knowledge, and
/// an empty standard input.
fn turnstream(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnstream"));
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    command.args(args).env("TURNSTREAM_CACHE", cache).env_remove("TURNSTREAM_LOG");
    command.stdin(Stdio::null());
    command
}
