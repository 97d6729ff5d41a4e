//! Reads DSTC11 track 5 as cases: whether the last user turn needs reviews and answered questions,
//! the gold snippets, and the reply that rests on them. Beside the gold snippets, two others are
//! judged: one of the same hotel or restaurant, and one of another.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use serde::Deserialize;
use turnstream_ports::model::unified::{EvidenceText, Exchange, TITLE};
use turnstream_schemas::{Column, SourceKind};

use super::{JudgedEvidence, Relation, Reply, UnifiedCase};
use crate::eval::retrieval::dstc::{Snippet, snippets};
use crate::eval::retrieval::{EvalError, records};

/// The most snippets that a response is worded from.
const MOST_GIVEN: usize = 5;

#[derive(Deserialize)]
pub(in crate::eval) struct Instance {
    target: bool,
    turns: Vec<DstcTurn>,
    #[serde(default)]
    pub(in crate::eval) knowledge: Vec<Snippet>,
    pub(in crate::eval) response: Option<String>,
}

#[derive(Deserialize)]
struct DstcTurn {
    text: String,
}

/// Numbers dialogues: instances of one dialogue share a number.
#[derive(Default)]
pub(in crate::eval) struct Dialogues(HashMap<String, usize>);

impl Dialogues {
    /// Returns the number of an instance's dialogue; instances with the same beginning are one
    /// dialogue.
    pub(in crate::eval) fn of(&mut self, instance: &Instance) -> usize {
        let beginning = instance.turns.first().map(|turn| turn.text.clone()).unwrap_or_default();
        let next = self.0.len();
        *self.0.entry(beginning).or_insert(next)
    }
}

/// Reads the cases of a split, or of a number of its conversations, drawn with a seed.
///
/// # Errors
/// A file cannot be read, or has no case.
pub fn read(
    path: &Path,
    knowledge: &Path,
    conversations: Option<usize>,
    seed: u64,
) -> Result<Vec<UnifiedCase>, EvalError> {
    let known: BTreeMap<String, EvidenceText> = snippets(knowledge)?
        .into_iter()
        .map(|snippet| (snippet.id, piece(&titled(&snippet.title), &snippet.text)))
        .collect();
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut cases, mut dialogues) = (Vec::new(), Dialogues::default());
    for instance in records::<Instance>(path)? {
        let conversation = dialogues.of(&instance);
        cases.push(case(conversation, instance, &known, &mut random));
    }
    if let Some(count) = conversations {
        let mut order: Vec<usize> = (0..dialogues.0.len()).collect();
        random.shuffle(&mut order);
        let kept: BTreeSet<usize> = order.into_iter().take(count).collect();
        cases.retain(|case| kept.contains(&case.conversation));
    }
    if cases.is_empty() { Err(EvalError::Nothing { path: path.to_owned() }) } else { Ok(cases) }
}

/// Returns a snippet in the model's form: after the name of its subject.
fn piece(name: &str, text: &str) -> EvidenceText {
    let text = format!("{name}: {text}");
    let title = Column { name: TITLE.to_owned(), value: name.to_owned() };
    EvidenceText { kind: SourceKind::Documents, text, columns: vec![title] }
}

/// Converts a name in capitals to the case of dialogues.
fn titled(name: &str) -> String {
    let word = |word: &str| {
        let mut chars = word.chars();
        let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
        first + &chars.as_str().to_lowercase()
    };
    name.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn case(
    conversation: usize,
    instance: Instance,
    known: &BTreeMap<String, EvidenceText>,
    random: &mut fastrand::Rng,
) -> UnifiedCase {
    let gold: BTreeSet<String> = instance.knowledge.iter().map(Snippet::id).collect();
    let pieces: Vec<&EvidenceText> = gold.iter().filter_map(|id| known.get(id)).collect();
    let judge = |piece: &EvidenceText, relation| JudgedEvidence { piece: piece.clone(), relation };
    let mut judged: Vec<JudgedEvidence> =
        pieces.iter().map(|piece| judge(piece, Relation::Gold)).collect();
    if let Some(first) = instance.knowledge.first().filter(|_| !pieces.is_empty()) {
        let entity = first.entity();
        let others = |of_entity: bool| -> Vec<&EvidenceText> {
            let others = known
                .iter()
                .filter(|(id, _)| id.starts_with(&entity) == of_entity && !gold.contains(*id));
            others.map(|(_, piece)| piece).collect()
        };
        for (of_entity, relation) in [(true, Relation::Same), (false, Relation::Other)] {
            let other = random.choice(others(of_entity));
            judged.extend(other.map(|piece| judge(piece, relation)));
        }
    }
    let evidence: Vec<EvidenceText> = pieces.into_iter().take(MOST_GIVEN).cloned().collect();
    let reply = instance.response.filter(|_| !evidence.is_empty());
    let reply = reply.map(|text| Reply { text, evidence, frame: None });
    let (dialogue, kind) = (exchanges(&instance.turns), SourceKind::Documents);
    UnifiedCase { conversation, dialogue, kind, asks: instance.target, judged, reply }
}

/// Groups turns into exchanges; the last turn is the user's.
fn exchanges(turns: &[DstcTurn]) -> Vec<Exchange> {
    let said: Vec<&str> = turns.iter().map(|turn| turn.text.as_str()).collect();
    let from = usize::from(said.len().is_multiple_of(2) && !said.is_empty());
    let pair = |pair: &[&str]| Exchange {
        user: pair.first().map_or_else(String::new, |text| (*text).to_owned()),
        response: pair.get(1).map(|text| (*text).to_owned()),
    };
    said[from..].chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::testing::Files;
    use Relation::{Gold, Other, Same};

    #[test]
    fn gold_snippets_fit_and_others_of_the_same_place_and_elsewhere_do_not() {
        let files = Files::new();
        let knowledge = r#"{"hotel": {
            "1": {"name": "ASHLEY INN", "reviews": {"0": {"sentences": {"0": "Quiet.", "1": "Clean."}}},
                  "faqs": {"3": {"question": "Pets?", "answer": "No."}}},
            "11": {"name": "BRIDGE", "reviews": {"0": {"sentences": {"0": "Loud."}}}}}}"#;
        let knowledge = files.write("knowledge.json", &[knowledge]);
        let gold = r#"[{"domain": "hotel", "entity_id": 1, "doc_type": "review", "doc_id": 0, "sent_id": 0},
                       {"domain": "hotel", "entity_id": 1, "doc_type": "faq", "doc_id": 3}]"#;
        let asked = format!(
            r#"{{"target": true, "turns": [{{"speaker": "U", "text": "Hi"}}, {{"speaker": "S", "text": "Hello"}},
            {{"speaker": "U", "text": "Quiet?"}}], "knowledge": {gold}, "response": "It is quiet."}}"#
        );
        let not = r#"{"target": false, "turns": [{"speaker": "U", "text": "Hi"}]}"#;
        let data = files.write("dev.jsonl", &[&asked, not]);
        let cases = read(&data, &knowledge, None, 1).expect("cases");
        assert_eq!(
            cases.iter().map(|it| (it.asks, it.conversation)).collect::<Vec<_>>(),
            [(true, 0), (false, 0)]
        );
        let judged: Vec<(&str, Relation)> =
            cases[0].judged.iter().map(|it| (it.piece.text.as_str(), it.relation)).collect();
        assert_eq!(
            judged,
            [
                ("Ashley Inn: Pets? No.", Gold),
                ("Ashley Inn: Quiet.", Gold),
                ("Ashley Inn: Clean.", Same),
                ("Bridge: Loud.", Other)
            ]
        );
        assert_eq!(cases[0].judged[0].piece.columns[0].value, "Ashley Inn");
        assert_eq!(cases[0].dialogue.len(), 2);
        assert_eq!(cases[0].reply.as_ref().map(|it| it.evidence.len()), Some(2));
        assert!(cases[1].judged.is_empty() && cases[1].reply.is_none());
    }
}
