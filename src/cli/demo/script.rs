//! The demo's conversations: JSON lines in the shape of `schemas/turn.rs`, written for the demo.
//!
//! The files deviate from records in three ways, because a file cannot know the answers in advance:
//!
//! - A system turn's `response_id` names the *turn* whose answer it echoes. The player replaces it
//!   with the id and the words of the actual answer.
//! - A turn within [`AT_ONCE_MS`] of the one before does not wait for that one's outcome, as people
//!   do not wait either. All others wait.
//! - A line that is not a turn is appended as it is: logs contain such records too.

use turnstream_schemas::Turn;

/// Turns closer than this, in milliseconds of event time, come at once.
const AT_ONCE_MS: i64 = 3_000;

/// A conversation that the demo shows.
pub(super) struct Conversation {
    /// Its name, and its id on the log.
    pub(super) name: &'static str,
    /// What it shows.
    pub(super) about: &'static str,
    /// Its records, grouped by those that come at once.
    pub(super) steps: Vec<Vec<ScriptLine>>,
}

/// One line of a conversation.
#[derive(Clone, Debug)]
pub(super) struct ScriptLine {
    /// The line of the file.
    pub(super) json: &'static str,
    /// The turn, if the line is one.
    pub(super) turn: Option<Turn>,
}

/// A customer of a company, before and after its staff taught a phrasing.
pub(super) fn company() -> [Conversation; 2] {
    [
        conversation(
            "teahouse",
            "A customer writes to a tea house. The answers are sentences of its pages and cells of its \
             table, unchanged, or there is none.",
            include_str!("conversations/teahouse.jsonl"),
        ),
        conversation(
            "taught",
            "Its staff wrote down how another customer put it: \"can we come with the whole office\", and what \
             answers that. The same question again:",
            include_str!("conversations/taught.jsonl"),
        ),
    ]
}

/// The conversations about common knowledge, in the order in which they are shown.
pub(super) fn common_knowledge() -> Vec<Conversation> {
    vec![
        conversation(
            "parcel",
            "A customer waits for a coffee maker. See a colleague answer before the engine does, \
             and hold the conversation until she gives it back; an answer of ours come back as an \
             echo, a turn that is sent twice, and a record that is no turn at all.",
            include_str!("conversations/parcel.jsonl"),
        ),
        conversation(
            "chatty",
            "Talk about sleep, a dog, rain and food. See the gate keep greetings and thanks away \
             from retrieval, and let questions through.",
            include_str!("conversations/chatty.jsonl"),
        ),
        conversation(
            "returning",
            "From the guitar to the garden and back, then to the beach. See earlier turns about the \
             guitar recalled by relevance once they are relevant again, and turns about the garden \
             evicted before them, though they are newer.",
            include_str!("conversations/returning.jsonl"),
        ),
        conversation(
            "hotel",
            "A guest asks about rooms. See the hotel's table asked where the words call for it, the columns of \
             its rows that answer said, and the graph asked for the rest.",
            include_str!("conversations/hotel.jsonl"),
        ),
    ]
}

fn conversation(name: &'static str, about: &'static str, lines: &'static str) -> Conversation {
    let mut steps: Vec<Vec<ScriptLine>> = Vec::new();
    for json in lines.lines() {
        let line = ScriptLine { json, turn: serde_json::from_str(json).ok() };
        match steps.last_mut() {
            Some(step) if step.last().is_some_and(|before| at_once(before, &line)) => {
                step.push(line);
            }
            _ => steps.push(vec![line]),
        }
    }
    Conversation { name, about, steps }
}

fn at_once(before: &ScriptLine, line: &ScriptLine) -> bool {
    let time = |line: &ScriptLine| Some(line.turn.as_ref()?.timestamp?.millis());
    matches!((time(before), time(line)), (Some(before), Some(now)) if now - before <= AT_ONCE_MS)
}

#[cfg(test)]
mod tests {
    use turnstream_schemas::{Speaker, TurnId, TurnsRecord};

    use super::*;

    #[test]
    fn the_conversations_are_what_the_demo_promises() {
        let all = common_knowledge();
        let lines = |of: &Conversation| of.steps.concat();
        for conversation in &all {
            let turns: Vec<Turn> =
                lines(conversation).into_iter().filter_map(|line| line.turn).collect();
            let users = turns.iter().filter(|turn| turn.speaker == Speaker::User).count();
            assert!((8..=14).contains(&users), "{}: {users} user turns", conversation.name);
            let times: Vec<_> = turns.iter().map(|turn| turn.timestamp).collect();
            assert!(times.iter().all(Option::is_some) && times.is_sorted());
            assert!(turns.iter().all(|turn| turn.conversation_id.as_str() == conversation.name));
        }
        let parsed = |line: ScriptLine| TurnsRecord::parse(line.json).ok();
        let broken = all.iter().flat_map(lines).filter(|line| parsed(line.clone()).is_none());
        assert_eq!(broken.count(), 1, "one record is neither turn nor directive, on purpose");
        let at_once: Vec<_> =
            all.iter().flat_map(|of| &of.steps).filter(|step| step.len() > 1).collect();
        assert_eq!(at_once.len(), 1, "one agent answers before the engine does");
        let agent = at_once[0][1].turn.as_ref().unwrap();
        assert_eq!((agent.speaker, &agent.response_id), (Speaker::System, &None));
    }

    #[test]
    fn the_company_is_asked_the_same_again() {
        let [before, after] = company().map(|of| of.steps.concat());
        let text = |line: &ScriptLine| line.turn.as_ref().map(|turn| turn.text.clone());
        assert!(before.iter().all(|line| line.turn.is_some()));
        assert!(before.iter().any(|line| text(line) == text(&after[0])));
    }

    #[test]
    fn an_echo_names_an_earlier_turn() {
        for conversation in common_knowledge() {
            let mut earlier: Vec<TurnId> = Vec::new();
            for turn in conversation.steps.concat().into_iter().filter_map(|line| line.turn) {
                if let Some(echoed) = &turn.response_id {
                    assert!(earlier.iter().any(|id| id.as_str() == echoed.as_str()), "{echoed}");
                }
                earlier.extend(turn.turn_id);
            }
        }
    }
}
