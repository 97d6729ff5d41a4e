//! `topiocqa`: questions about Wikipedia that move from topic to topic (McGill; CC BY-NC-SA 4.0:
//! for measurement only).
//!
//! Reads one conversation a record: `conversation` (its number),
//! `turns [{turn, question, answer, topic}]`. Upstream is a flat list of rows; this groups it:
//!
//! ```text
//! jq -c 'group_by(.Conversation_no)[] | {conversation: .[0].Conversation_no,
//!   turns: [.[] | {turn: .Turn_no, question: .Question, answer: .Answer, topic: .Topic}]}' \
//!   topiocqa_train.json > train.jsonl
//! ```
//!
//! - User: the asker. Each upstream turn becomes a user turn and the system's reply.
//! - Conversation id: the number. Turn ids: `q` or `a` and the upstream turn's number.
//! - Text: unchanged; a question without an answer has upstream's `UNANSWERABLE` as its reply.
//! - Label `topic`: the title of the article that answers; absent if none does.
//! - Dropped: section, and the source of the first question.

use serde::Deserialize;
use serde_json::Value;
use turnstream_schemas::Speaker;

use super::Labels;
use super::dialogue::{Dialogue, Shape, Utterance, id_text};

#[derive(Deserialize)]
pub(super) struct TopiocqaConversation {
    conversation: Value,
    turns: Vec<QuestionAndAnswer>,
}

#[derive(Deserialize)]
struct QuestionAndAnswer {
    turn: u32,
    question: String,
    answer: String,
    #[serde(default)]
    topic: String,
}

impl Shape for TopiocqaConversation {
    fn dialogue(self) -> Result<Dialogue, String> {
        let utterances = self.turns.into_iter().flat_map(|exchange| {
            let mut question = Utterance::new(Speaker::User, exchange.question);
            question.id = Some(format!("q{}", exchange.turn));
            let mut answer = Utterance::new(Speaker::System, exchange.answer);
            answer.id = Some(format!("a{}", exchange.turn));
            let topic = Some(exchange.topic).filter(|topic| !topic.is_empty());
            answer.made_with = Labels { topic, ..Labels::default() };
            [question, answer]
        });
        Ok(Dialogue::english(Some(id_text(&self.conversation)), utterances.collect()))
    }
}
