//! Reads DSTC11 track 5: responses with gold snippets, beside other snippets of the first gold
//! snippet's hotel or restaurant, and snippets of other places.

use std::collections::BTreeSet;
use std::path::Path;

use super::{LabelledResponse, Relation, drawn};
use crate::eval::retrieval::dstc::{Snippet, snippets};
use crate::eval::retrieval::{EvalError, records};
use crate::eval::unified::dstc::{Dialogues, Instance};

/// Reads the responses of a split.
///
/// # Errors
/// A file cannot be read, or no response has a gold snippet.
pub fn read(path: &Path, knowledge: &Path, seed: u64) -> Result<Vec<LabelledResponse>, EvalError> {
    let known: Vec<(String, String)> =
        snippets(knowledge)?.into_iter().map(|snippet| (snippet.id, snippet.text)).collect();
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut cases, mut dialogues) = (Vec::new(), Dialogues::default());
    for instance in records::<Instance>(path)? {
        let conversation = dialogues.of(&instance);
        let gold: BTreeSet<String> = instance.knowledge.iter().map(Snippet::id).collect();
        let (Some(first), Some(response)) = (instance.knowledge.first(), instance.response) else {
            continue;
        };
        let entity = first.entity();
        let of = |is: &dyn Fn(&str) -> bool| -> Vec<&String> {
            let of = known.iter().filter(|(id, _)| is(id));
            of.map(|(_, text)| text).collect()
        };
        let in_gold = of(&|id| gold.contains(id));
        let same = of(&|id| id.starts_with(&entity) && !gold.contains(id));
        let other = of(&|id| !id.starts_with(&entity) && !gold.contains(id));
        if in_gold.is_empty() {
            continue;
        }
        let told = |texts: Vec<&String>, relation| {
            texts.into_iter().map(move |text| (text.clone(), relation)).collect::<Vec<_>>()
        };
        let evidence = [
            told(in_gold, Relation::Gold),
            told(drawn(same, &mut random), Relation::Same),
            told(drawn(other, &mut random), Relation::Other),
        ];
        cases.push(LabelledResponse { conversation, response, evidence: evidence.concat() });
    }
    if cases.is_empty() { Err(EvalError::Nothing { path: path.to_owned() }) } else { Ok(cases) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::testing::Files;

    #[test]
    fn a_response_stands_beside_snippets_of_its_place_and_of_others() {
        let files = Files::new();
        let knowledge = r#"{"hotel": {
            "1": {"name": "OAK", "reviews": {"0": {"sentences": {"0": "Beds are soft.", "1": "It is loud."}}}},
            "2": {"name": "ELM", "faqs": {"0": {"question": "Pool?", "answer": "No."}}}}}"#;
        let line = r#"{"target": true, "turns": [{"text": "Soft beds?"}], "response": "Yes, soft.",
            "knowledge": [{"domain": "hotel", "entity_id": 1, "doc_type": "review", "doc_id": 0, "sent_id": 0}]}"#;
        let small_talk = r#"{"target": false, "turns": [{"text": "Hi."}]}"#;
        let data = files.write("d.jsonl", &[line, small_talk]);
        let knowledge = files.write("k.json", &[knowledge]);
        let cases = read(&data, &knowledge, 1).expect("cases");
        let [case] = &cases[..] else { panic!("{cases:?}") };
        let texts: Vec<(&str, Relation)> =
            case.evidence.iter().map(|(text, relation)| (text.as_str(), *relation)).collect();
        assert_eq!(case.response, "Yes, soft.");
        assert_eq!(
            texts,
            [
                ("Beds are soft.", Relation::Gold),
                ("It is loud.", Relation::Same),
                ("Pool? No.", Relation::Other)
            ]
        );
    }
}
