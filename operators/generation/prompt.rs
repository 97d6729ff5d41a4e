//! What a language model is asked for a response: the facts that were selected, what was recalled
//! from before, and the dialogue. (DCRAG eq 8: R from H, E and the selected facts.)

use std::fmt::Write;

use turnstream_schemas::{Speaker, Stage};

use super::GenerationConfig;
use crate::flow::Grounded;
use crate::model::GenerateRequest;

/// The task as the model is told it.
const SYSTEM: &str = include_str!("../prompts/generation.txt");

/// The request for a turn.
pub(super) fn request(turn: &Grounded, config: &GenerationConfig) -> GenerateRequest {
    GenerateRequest {
        stage: Stage::Generation,
        system: SYSTEM.to_owned(),
        prompt: prompt(turn),
        max_tokens: config.max_tokens,
        temperature: config.temperature,
        schema: None,
        seed: 0,
        listener: None,
    }
}

fn prompt(turn: &Grounded) -> String {
    let context = &turn.turn.context;
    let mut prompt = String::new();
    let selected = || turn.evidence.iter().filter(|evidence| evidence.selected);
    section(
        &mut prompt,
        "Facts",
        selected().filter(|evidence| evidence.document.is_none()).map(|evidence| &*evidence.text),
    );
    let passages = selected().filter_map(|evidence| {
        let title = &evidence.document.as_ref()?.title;
        Some(if title.is_empty() {
            evidence.text.clone()
        } else {
            format!("{title}: {}", evidence.text)
        })
    });
    section(&mut prompt, "Passages", passages);
    let in_window = |turn_id| context.dialogue.iter().any(|said| &said.turn_id == turn_id);
    let earlier = context.recalled.iter().map(|recalled| &recalled.entry);
    let earlier = earlier.filter(|entry| !in_window(&entry.turn_id)).map(|entry| {
        let said = [("user", &entry.query), ("you", &entry.response)];
        let said =
            said.into_iter().filter_map(|(who, text)| Some(format!("{who}: {}", text.as_ref()?)));
        said.collect::<Vec<_>>().join(" / ")
    });
    section(&mut prompt, "Earlier exchanges", earlier);
    let dialogue = context.dialogue.iter().map(|said| {
        let who = match said.speaker {
            Speaker::User => "user",
            Speaker::System => "you",
        };
        format!("{who}: {}", said.text)
    });
    section(&mut prompt, "Dialogue", dialogue);
    prompt
}

/// A heading and a line each; nothing where there is no line. Line ends within a text would look
/// like lines of ours.
fn section(prompt: &mut String, heading: &str, lines: impl Iterator<Item = impl AsRef<str>>) {
    let mut lines = lines.peekable();
    if lines.peek().is_none() {
        return;
    }
    if !prompt.is_empty() {
        prompt.push('\n');
    }
    // Writing to a string cannot fail.
    let _ = writeln!(prompt, "{heading}:");
    for line in lines {
        let line = line.as_ref().split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = writeln!(prompt, "- {line}");
    }
}
