//! `dstc11`, `dstc10`: conversations about hotels and restaurants up to a user turn that may
//! need reviews and questions answered before. DSTC11 track 5 (Amazon; CDLA-Sharing-1.0) is
//! written; DSTC10 track 2, task 2 (Amazon; Apache-2.0) is of the same shape and was spoken.
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
//! - Every instance is a dialogue of its own, although many begin alike: they are prefixes of
//!   the same conversations, each labelled at its end.
//! - User: `speaker` says (`U`, `S`).
//! - Conversation id: the instance's place, which is how upstream counts. Turn ids: places.
//! - Label `need`, on the last turn only: unstructured where `target` is true, else none: the
//!   user *asks* for what is not in the database. Absent where there is no `target`.
//! - Label `gold`: the snippets, as `domain/entity/type/document/sentence` with absent parts
//!   left out.
//! - Label `domain`, where there are snippets: that of the first.
//! - Label `reply`: `response`, the reply to the last turn.
//! - Dropped: DSTC10's list of other hearings.

use serde::Deserialize;
use serde_json::Value;
use turnstream_schemas::Speaker;

use super::dialogue::{Dialogue, Shape, Utterance, id_text, side_by_role};
use super::{Labels, Need};

#[derive(Deserialize)]
pub(super) struct Record {
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

impl Shape for Record {
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
