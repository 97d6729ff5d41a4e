//! Defines the two services under test: the configuration of each, and the names of its topics.

use std::path::{Path, PathBuf};

use crate::kafka::histories::Rules;

/// Partitions of every topic.
pub(crate) const PARTITIONS: i32 = 4;
/// The most entries of a history: few, so that long conversations evict some.
const MAX_ENTRIES: usize = 10;

/// A configuration under test, with topics and a group of its own.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) name: &'static str,
    /// The prefix of each topic's name.
    pub(crate) prefix: &'static str,
    /// The name of the topic of turns, with the prefix.
    pub(crate) turns: &'static str,
    /// Whether a scope is a user; otherwise it is a conversation.
    pub(crate) by_user: bool,
    /// Whether each process keeps its place in the group while it is down, as a static member.
    pub(crate) keeps_place: bool,
}

/// Scopes by conversation with dynamic members; scopes by user with static members.
pub(crate) const SERVICES: [Service; 2] = [
    Service {
        name: "conversations",
        prefix: "",
        turns: "turns",
        by_user: false,
        keeps_place: false,
    },
    Service {
        name: "users",
        prefix: "by-user-",
        turns: "by-user-turns",
        by_user: true,
        keeps_place: true,
    },
];

impl Service {
    /// Returns the name of a topic on the broker.
    pub(crate) fn topic(&self, plain: &str) -> String {
        format!("{}{plain}", self.prefix)
    }

    /// Returns the consumer group.
    pub(crate) fn group(&self) -> String {
        format!("crash-{}", self.name)
    }

    pub(crate) fn rules(&self) -> Rules {
        Rules { by_user: self.by_user, max_entries: MAX_ENTRIES, topic: self.turns }
    }

    /// Writes the configuration of one of its processes. Transactions are small and follow each
    /// other at once, so that many kills fall into one. A session is as short as a busy machine
    /// allows; a dead process holds readers back for less than ten seconds.
    pub(crate) fn write_config(&self, bootstrap: &str, slot: usize, folder: &Path) -> PathBuf {
        let group = self.group();
        let scope = if self.by_user { "user" } else { "conversation" };
        // In one of the two services, turns that a script sends without a pause are one utterance.
        let burst_ms = if self.by_user { 3 } else { 0 };
        let place = if self.keeps_place { format!("{group}-{slot}") } else { String::new() };
        let topics: Vec<String> =
            [("turns", "turns"), ("responses", "responses"), ("recorded", "recorded")]
                .into_iter()
                .chain([("traces", "traces"), ("conversations", "conversations")])
                .chain([("dead_letters", "dead-letters"), ("history", "history")])
                .chain([("knowledge", "knowledge")])
                .map(|(key, plain)| format!("{key} = \"{}\"", self.topic(plain)))
                .collect();
        let text = format!(
            "[run]\nworkers = 2\n\n[turns]\nscope = \"{scope}\"\nburst_ms = {burst_ms}\n\n\
             [history]\nmax_entries = {MAX_ENTRIES}\n\n\
             [commit]\ninterval_ms = 2\nmax_outcomes = 40\n\n\
             [log]\nkind = \"kafka\"\n\n[log.kafka]\nbootstrap_servers = \"{bootstrap}\"\n\
             group_id = \"{group}\"\ngroup_instance_id = \"{place}\"\n\
             transactional_id = \"{group}-{slot}\"\n\
             session_timeout_ms = 3000\ntransaction_timeout_ms = 6000\n\n\
             [log.kafka.topics]\n{}\n",
            topics.join("\n")
        );
        let path = folder.join(format!("{}-{slot}.toml", self.name));
        std::fs::write(&path, text).expect("written");
        path
    }
}
