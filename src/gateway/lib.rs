//! The gateway: HTTP in front of the topics, for clients that do not speak Kafka.
//!
//! ```text
//!  POST turn ──▶ access ──▶ writing ──▶ turns ─ ─ ─ ▶ turnstream run
//!     ▲                                                     │
//!     └── conversations ◀── following ◀── responses, recorded, dead-letters, conversations
//!  events ◀─────┘
//!  webhook ◀──────────────────── responses, dead-letters, conversations
//! ```
//!
//! It is a process of its own beside the engine, with as many copies as wanted: none of them keeps
//! anything that the log does not have. Each copy reads all committed outcomes of the last minutes,
//! so that a client may ask any of them, and may send a turn again to another. A turn counts once
//! because of its id, which the engine remembers.
//!
//! Reading order is the order of a request: [`server`], `access`, `turns` and `chat`, `writing`,
//! `conversations`, `following`, `events` and `socket`; and `webhook`, which calls a receiver.

mod access;
mod chat;
pub mod config;
mod conversations;
mod events;
mod failure;
mod following;
pub mod server;
mod socket;
mod turns;
mod webhook;
mod writing;

pub use config::GatewayConfig;
pub use server::{GatewayError, GatewayTopics, serve};
