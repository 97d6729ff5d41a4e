//! Reads KBP: responses that used sentences of the persona or the knowledge behind them, beside
//! other sentences of the dialogue and of other dialogues.

use std::collections::BTreeSet;
use std::path::Path;

use super::{LabelledResponse, Relation, drawn};
use crate::eval::persona::kbp::joined;
use crate::eval::retrieval::kbp::Record;
use crate::eval::retrieval::{EvalError, records};

/// The most texts to draw from.
const ELSEWHERE: usize = 64;

/// Reads the responses of a split that used any evidence.
///
/// # Errors
/// The file cannot be read, or has no such response.
pub fn read(path: &Path, seed: u64) -> Result<Vec<LabelledResponse>, EvalError> {
    let dialogues = records::<Record>(path)?;
    let texts: Vec<Vec<(String, String)>> = dialogues.iter().map(texts).collect();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut cases = Vec::new();
    for (conversation, record) in dialogues.iter().enumerate() {
        for exchange in &record.conversation {
            let used: BTreeSet<&String> = exchange.used.iter().flatten().collect();
            let own = &texts[conversation];
            let of = |is_used: bool| -> Vec<&String> {
                let of = own.iter().filter(|(id, _)| used.contains(id) == is_used);
                of.map(|(_, text)| text).collect()
            };
            let (gold, same) = (of(true), of(false));
            if gold.is_empty() {
                continue;
            }
            let mut other = Vec::new();
            for _ in 0..ELSEWHERE {
                let at = random.usize(0..texts.len());
                let text = random.choice(&texts[at]).map(|(_, text)| text);
                other.extend(
                    text.filter(|text| {
                        at != conversation && own.iter().all(|(_, own)| own != *text)
                    }),
                );
            }
            let told = |texts: Vec<&String>, relation| {
                texts.into_iter().map(move |text| (text.clone(), relation)).collect::<Vec<_>>()
            };
            let evidence = [
                told(gold, Relation::Gold),
                told(drawn(same, &mut random), Relation::Same),
                told(drawn(other, &mut random), Relation::Other),
            ];
            let response = joined(&exchange.system);
            cases.push(LabelledResponse { conversation, response, evidence: evidence.concat() });
        }
    }
    if cases.is_empty() { Err(EvalError::Nothing { path: path.to_owned() }) } else { Ok(cases) }
}

/// Returns everything that a dialogue's responses may use, by id.
fn texts(record: &Record) -> Vec<(String, String)> {
    let sentences = record.persona.iter().map(|(id, text)| (id.clone(), joined(text)));
    let known = record.persona_kg.iter().flat_map(|(id, known)| {
        known.iter().map(move |(below, text)| (format!("{id}-{below}"), joined(text)))
    });
    sentences.chain(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::testing::Files;

    #[test]
    fn what_was_used_is_gold_and_what_else_is_known_is_not() {
        let files = Files::new();
        let first = r#"{"persona": {"B0": "我 爬山", "B1": "我有猫"}, "persona_kg": {"B0": {"K0": "爬山好。"}},
            "conversation": [{"U": "你好", "S": "你好", "P-K": []},
                             {"U": "周末？", "S": "我 去爬山", "P-K": [["B0"]]}]}"#;
        let second = r#"{"persona": {"B0": "我开车"}, "conversation": []}"#;
        let cases = read(&files.write("kbp.jsonl", &[first, second]), 1).expect("cases");
        let [case] = &cases[..] else { panic!("{cases:?}") };
        assert_eq!((case.conversation, case.response.as_str()), (0, "我去爬山"));
        let of = |relation| -> BTreeSet<&str> {
            let of = case.evidence.iter().filter(|(_, is)| *is == relation);
            of.map(|(text, _)| text.as_str()).collect()
        };
        assert_eq!(of(Relation::Gold), BTreeSet::from(["我爬山"]));
        assert_eq!(of(Relation::Same), BTreeSet::from(["我有猫", "爬山好。"]));
        assert_eq!(of(Relation::Other), BTreeSet::from(["我开车"]));
    }
}
