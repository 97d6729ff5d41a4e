//! The gate in the form `adapter`: a language model with a low-rank adapter decides. (RAGate-PEFT.)
//!
//! The model reads an instruction and an input, and the probabilities of its two answers are the
//! score. This module writes the prompts, for the stage and for training alike.

use std::fmt::Write;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnstream_ports::model::gate::{ANSWER_FOLLOWS, GateInputs, GateReading};
use turnstream_schemas::Speaker;

use crate::stage::CallConfig;

/// The most bytes of the dialogue in a prompt; earlier utterances are left out.
const DIALOGUE_BYTES: usize = 1_200;
/// The most bytes of a response, and of a piece of knowledge.
const TEXT_BYTES: usize = 300;
/// The most pieces of knowledge.
const KNOWLEDGE: usize = 3;

/// The language model of the form `adapter`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdapterGateConfig {
    /// The model: a folder in the layout of transformers with weights in safetensors, or a GGUF
    /// file into which the adapter was merged.
    pub model: Option<PathBuf>,
    /// The folder that `deploy/training/train adapter fit` wrote: `gate.json`, and the adapter's
    /// weights unless they are merged.
    pub directory: Option<PathBuf>,
    /// How long to wait for the model.
    pub call: CallConfig,
}

/// Writes the prompt about a turn.
pub fn prompt(turn: &GateReading<'_>, inputs: GateInputs) -> String {
    let mut text = "### Instruction:\nRead the dialogue".to_owned();
    if inputs.reads_response() {
        text.push_str(", a reply to its last line and the names in the reply");
    }
    if inputs.reads_knowledge() {
        text.push_str(", and knowledge that was found for it");
    }
    text.push_str(
        ". Is knowledge from outside of the dialogue needed for the reply? Answer True or False.\n\
         ### Input:\n",
    );
    for (speaker, said) in latest(&turn.utterances) {
        let name = if *speaker == Speaker::User { "User" } else { "System" };
        let _ = writeln!(text, "{name}: {}", cut(said, DIALOGUE_BYTES));
    }
    if let Some(response) = turn.response.filter(|_| inputs.reads_response()) {
        let _ = writeln!(text, "Reply: {}", cut(response, TEXT_BYTES));
        let _ = writeln!(text, "Names: {}", named_entities(response).join(", "));
    }
    if inputs.reads_knowledge() {
        for knowledge in turn.knowledge.iter().take(KNOWLEDGE) {
            let source = match inputs {
                GateInputs::ContxRespNerKnowSource => "Knowledge of the company's sources",
                _ => "Knowledge",
            };
            let _ = writeln!(text, "{source}: {}", cut(knowledge, TEXT_BYTES));
        }
    }
    text.push_str(ANSWER_FOLLOWS);
    text
}

/// The latest utterances that fit, at least one.
fn latest<'t, 'a>(all: &'t [(Speaker, &'a str)]) -> &'t [(Speaker, &'a str)] {
    let mut bytes = 0;
    let fits = |(_, said): &&(Speaker, &str)| {
        bytes += said.len();
        bytes <= DIALOGUE_BYTES
    };
    let count = all.iter().rev().take_while(fits).count().max(1);
    &all[all.len().saturating_sub(count)..]
}

/// The text on one line, cut to a number of bytes.
fn cut(text: &str, most: usize) -> String {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Names in a text: runs of words with a capital letter that do not begin a sentence, and words with
/// digits.
fn named_entities(text: &str) -> Vec<String> {
    let (mut names, mut open, mut begins) = (Vec::<String>::new(), false, true);
    for word in text.split_whitespace() {
        let name = word.trim_matches(|letter: char| !letter.is_alphanumeric());
        let is_number = name.chars().any(|letter| letter.is_ascii_digit());
        let is_name = name.chars().next().is_some_and(char::is_uppercase)
            && !begins
            && name.split(['\'', '’']).next() != Some("I");
        match names.last_mut() {
            Some(last) if open && is_name => {
                last.push(' ');
                last.push_str(name);
            }
            _ if is_name || is_number => names.push(name.to_owned()),
            _ => {}
        }
        begins = word.ends_with(['.', '!', '?', ':']);
        open = is_name && word.ends_with(char::is_alphanumeric);
    }
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{GateConfig, GateForm};
    use crate::stage_config::StageConfig;

    fn reading<'a>(utterances: &[(Speaker, &'a str)]) -> GateReading<'a> {
        GateReading {
            utterances: utterances.to_vec(),
            knowledge: vec!["Wifi is\nfree.", "two", "three", "four"],
            response: Some("The Oslo Inn has it. Call 555, or ask Ana at the desk, as I'd do."),
        }
    }

    #[test]
    fn a_prompt_has_the_inputs_that_it_was_asked_for() {
        let turn = reading(&[(Speaker::System, "Hello!"), (Speaker::User, "Is there\nwifi?")]);
        let contx = prompt(&turn, GateInputs::Contx);
        assert!(contx.ends_with("### Input:\nSystem: Hello!\nUser: Is there wifi?\n### Response:"));
        assert!(!contx.contains("Oslo") && !contx.contains("free"), "{contx}");
        let all = prompt(&turn, GateInputs::ContxRespNerKnowSource);
        for part in [
            "Reply: The Oslo Inn has it.",
            "Names: Oslo Inn, 555, Ana\n",
            "Knowledge of the company's sources: Wifi is free.\n",
        ] {
            assert!(all.contains(part), "{part}: {all}");
        }
        assert!(!all.contains("four"), "{all}");
        assert!(!prompt(&turn, GateInputs::ContxRespNer).contains("free"));
    }

    #[test]
    fn earlier_utterances_leave_a_long_dialogue_first() {
        let long = "é".repeat(DIALOGUE_BYTES);
        let turn = reading(&[(Speaker::User, "first"), (Speaker::System, &long)]);
        let prompt = prompt(&turn, GateInputs::Contx);
        assert!(!prompt.contains("first") && prompt.len() < DIALOGUE_BYTES + 300, "{prompt}");
    }

    #[test]
    fn an_adapter_needs_its_model() {
        let mut config = GateConfig { form: GateForm::Adapter, ..GateConfig::default() };
        config.adapter.model = Some("base".into());
        let refused = config.check().expect_err("no adapter").to_string();
        assert!(refused.contains("gate.adapter.directory"), "{refused}");
        config.adapter.directory = Some("adapter".into());
        config.check().expect("whole");
    }
}
