//! `dstc11`, `dstc10`: conversations about hotels and restaurants, each up to a user turn that may
//! need knowledge from reviews and from questions answered earlier. DSTC11 track 5 (Amazon;
//! CDLA-Sharing-1.0) is written; DSTC10 track 2, task 2 (Amazon; Apache-2.0) has the same shape and
//! was spoken.
//!
//! Reads one instance a record: upstream's label with its log as `turns`, that is
//! `target`, `turns [{speaker, text}]`, `knowledge? [{domain, entity_id, doc_type?, doc_id,
//! sent_id?}]`, `response?`. Upstream keeps logs and labels apart; this joins them:
//!
//! ```text
//! jq -cn --slurpfile logs logs.json --slurpfile labels labels.json \
//!   'range($logs[0] | length) as $i | $labels[0][$i] + {turns: $logs[0][$i]}' > instances.jsonl
//! ```
//!
//! - Every instance becomes a dialogue. Many instances begin alike, since they are prefixes of the
//!   same conversations, each labelled at its end.
//! - User: `speaker` names the role (`U`, `S`).
//! - Conversation id: the instance's place, which is upstream's numbering. Turn ids: places.
//! - Label `need`, on the last turn only: unstructured if `target` is true, else none. The user
//!   *asks* for something that is not in the database. Absent if there is no `target`.
//! - Label `gold`: the snippets, as `domain/entity/type/document/sentence`, without absent parts.
//! - Label `domain`: that of the first snippet, if there is one.
//! - Label `reply`: `response`, the reply to the last turn.
//! - Dropped: DSTC10's list of alternative transcriptions.

use serde::Deserialize;
use serde_json::Value;
use turnstream_schemas::Speaker;

use super::dialogue::{Dialogue, Shape, Utterance, id_text, side_by_role};
use super::{Labels, Need};

#[derive(Deserialize)]
pub(super) struct DstcInstance {
    target: Option<bool>,
    turns: Vec<DstcTurn>,
    #[serde(default)]
    knowledge: Vec<Snippet>,
    response: Option<String>,
}

#[derive(Deserialize)]
struct DstcTurn {
    speaker: String,
    text: String,
}

#[derive(Deserialize)]
struct Snippet {
    domain: String,
    entity_id: Value,
    doc_type: Option<String>,
    doc_id: Value,
    sent_id: Option<Value>,
}

impl Snippet {
    fn id(&self) -> String {
        let parts = [
            Some(self.domain.clone()),
            Some(id_text(&self.entity_id)),
            self.doc_type.clone(),
            Some(id_text(&self.doc_id)),
            self.sent_id.as_ref().map(id_text),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("/")
    }
}

impl Shape for DstcInstance {
    fn dialogue(self) -> Result<Dialogue, String> {
        let mut utterances = Vec::with_capacity(self.turns.len());
        for turn in self.turns {
            utterances.push(Utterance::new(side_by_role(&turn.speaker)?, turn.text));
        }
        if let Some(last) = utterances.last_mut() {
            if last.speaker != Speaker::User {
                return Err("the last turn, which is the labelled one, is not a user's".to_owned());
            }
            last.answering = Labels {
                need: self.target.map(|yes| if yes { Need::Unstructured } else { Need::None }),
                gold: self.knowledge.iter().map(Snippet::id).collect(),
                domain: self.knowledge.first().map(|snippet| snippet.domain.clone()),
                reply: self.response,
                ..Labels::default()
            };
        }
        Ok(Dialogue::english(None, utterances))
    }
}
