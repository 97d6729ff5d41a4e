//! Asks the shipped unified model fifty questions about what it was not trained on, through the
//! program: each is answered by the realiser, or by the model in words of the row alone.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Map, Value};
use turnstream_knowledge::terms::terms;

use crate::persona::{replayed, turn};

/// A question, and the row that it is about.
#[derive(Deserialize)]
struct Prompt {
    asked: String,
    row: Map<String, Value>,
}

const PROMPTS: &str = include_str!("outside.jsonl");
const PLAIN_WORDS: &str = include_str!("../../operators/generation/plain_words.txt");

fn numbers(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_ascii_digit()).filter(|number| !number.is_empty()).collect()
}

#[test]
fn outside_its_domains_the_model_says_no_more_than_rows_do() {
    let prompts: Vec<Prompt> =
        PROMPTS.lines().map(|line| serde_json::from_str(line).expect("a prompt")).collect();
    assert_eq!(prompts.len(), 50);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("things.jsonl");
    let rows = prompts.iter().map(|prompt| format!("{}\n", Value::from(prompt.row.clone())));
    std::fs::write(&file, rows.collect::<String>()).expect("written");
    let config = format!(
        "[models]\nembedder = \"none\"\n[gate]\nform = \"always\"\n\
         [decision]\nform = \"off\"\n[generation]\nform = \"learned\"\n[generation.learned.call]\ntimeout_ms = 900000\n[sources.things]\nkind = \"table\"\nfile = {file:?}\n"
    );
    let turns: Vec<Value> =
        (0..).zip(&prompts).map(|(at, prompt)| turn(at, &prompt.asked, &[])).collect();
    let responses = replayed(folder.path(), &turns, &config);
    assert_eq!(responses.len(), prompts.len());
    assert!(responses.iter().all(|response| response.degraded.is_empty()));
    let plain: BTreeSet<String> = PLAIN_WORDS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(|line| terms(line.split(':').next().unwrap_or_default()))
        .collect();

    let mut by_model = 0;
    for response in &responses {
        let prompt = &prompts[response.conversation_id.0.parse::<usize>().expect("a number")];
        let said = &response.text;
        let leading = response.evidence.first().filter(|found| found.selected);
        println!("{}: {} -> {said}", response.model.name, prompt.asked);
        let Some(leading) = leading else {
            assert_eq!(response.model.name, "realiser", "{said}");
            continue;
        };
        // Whichever of them words it, every number is the row's, as the table has it, or the question's.
        let values = leading.row.iter().flat_map(|row| &row.columns).map(|it| &*it.value);
        let of_row = std::iter::once(&*leading.text).chain(values).collect::<Vec<_>>().join(" ");
        let known = &numbers(&of_row) | &numbers(&prompt.asked);
        assert!(numbers(said).is_subset(&known), "{}: {said}", prompt.asked);
        if response.model.name == "realiser" {
            continue;
        }
        assert_eq!(response.model.name, "reader-en");
        by_model += 1;
        let of_row: BTreeSet<String> = terms(&of_row).into_iter().collect();
        let strange = |term: &String| !of_row.contains(term) && !plain.contains(term);
        let strange: Vec<String> = terms(said).into_iter().filter(strange).collect();
        assert!(strange.is_empty(), "{}: {said}: {strange:?}", prompt.asked);
    }
    println!("{by_model} of {} in the model's words", responses.len());
    assert!(by_model > 0, "the model was not asked");
}
