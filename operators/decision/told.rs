//! Finds what does not answer, however it scores: what the response before a turn has said already, and cells
//! that measure something else than what is asked for.

use std::collections::BTreeSet;

use turnstream_knowledge::language::has_han;
use turnstream_knowledge::phrasings::NearestPhrasings;
use turnstream_knowledge::terms::terms;
use turnstream_ports::model::reader::{Question, Reading};
use turnstream_schemas::Evidence;

use super::choice::section;
use crate::tables::{measures_otherwise, subject};

/// The score of a sentence or cell that is not said: again, or for an amount in another unit.
pub(super) const TOLD: f32 = f32::NEG_INFINITY;

/// What asks for the same once more.
const AGAIN: [&str; 6] = ["repeat", "pardon", "再说", "重复", "没听清", "没看懂"];

/// Returns a reading in which the sentences and cells that the response before the question has said
/// have the score [`TOLD`], unless the question comes back to them, and cells that measure something else than
/// the unit that it asks for have it too.
pub(super) fn untold(
    read: &[(usize, &Evidence)],
    reading: &Reading,
    question: &Question,
) -> Reading {
    let mut untold = in_units(read, reading.clone(), &question.utterance);
    let Some(before) = question.system_before.as_deref() else { return untold };
    let asked = named(&question.utterance);
    let asked_before = question.user_before.as_deref().map(named).unwrap_or_default();
    let spoken = question.utterance.to_lowercase();
    // Not "do I get it back again if he is ill".
    let ends_again = spoken.split([',', '.', '?', '!']).any(|it| it.trim_end().ends_with("again"));
    let asks_again = ends_again || AGAIN.iter().any(|it| spoken.contains(it));
    if asks_again || asked.is_subset(&asked_before) {
        return untold;
    }
    let said: BTreeSet<String> = terms(before).into_iter().collect();
    let has_said = |text: &str| {
        let terms = terms(text);
        !terms.is_empty() && terms.iter().all(|it| said.contains(it))
    };
    for ((_, evidence), scores) in read.iter().zip(&mut untold.scores) {
        let texts = section(evidence, &NearestPhrasings::default()).sentences;
        for (at, (score, text)) in scores.iter_mut().zip(&texts).enumerate() {
            // A response may give a cell under other words than the column's, but names its row.
            let is_said = match &evidence.row {
                Some(row) => {
                    let name = subject(&row.columns).map_or("", |it| &it.value);
                    row.columns.get(at).is_some_and(|it| has_said(&format!("{name} {}", it.value)))
                }
                None => has_said(text),
            };
            if is_said && named(text).is_disjoint(&asked) {
                *score = TOLD;
            }
        }
    }
    untold
}

fn in_units(read: &[(usize, &Evidence)], mut reading: Reading, utterance: &str) -> Reading {
    for ((_, evidence), scores) in read.iter().zip(&mut reading.scores) {
        let cells = evidence.row.iter().flat_map(|row| &row.columns);
        for (score, cell) in scores.iter_mut().zip(cells) {
            if measures_otherwise(cell, utterance) {
                *score = TOLD;
            }
        }
    }
    reading
}

/// Returns what a text names, as it is compared with another: words, and Chinese characters by twos.
fn named(text: &str) -> BTreeSet<String> {
    let terms = terms(text);
    let is_chinese = |term: &String| has_han(term);
    let pairs = terms.windows(2).filter(|pair| pair.iter().all(is_chinese));
    let pairs: Vec<String> = pairs.map(<[String]>::concat).collect();
    terms.into_iter().filter(|it| !has_han(it)).chain(pairs).collect()
}
