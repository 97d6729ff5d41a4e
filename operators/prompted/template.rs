//! Prompt files: instructions for a language model, in parts, with slots for the texts of a turn.
//!
//! A file has parts, each under a line of its own: `[task]`, what the model has to do, the same for every
//! turn; `[material]`, the turn; `[think]`, how to think first (optional); `[answer]`, how to answer. A
//! slot is a name in double braces. A turn fills each slot once; the texts that fill slots are never
//! searched for slots.

use std::fmt::Write;

use turnstream_schemas::Stage;

/// A parsed prompt file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    task: String,
    material: Vec<Piece>,
    think: Option<String>,
    answer: String,
    /// CRC-32 of the file, in hexadecimal; identifies the prompt.
    hash: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Slot(Slot),
}

/// The slots of prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// The latest utterances, the one to answer last.
    Dialogue,
    /// Recalled exchanges.
    Recalled,
    /// Sources to choose from, each with its description.
    Sources,
    /// Queries, and the thought behind them.
    Queries,
    /// Topics, and the thought behind them.
    Topics,
    /// Foreseen facts, numbered.
    Foreseen,
    /// Unforeseen facts, numbered on from the foreseen ones.
    Unforeseen,
    /// Sentences of the persona, each with whom it describes.
    Persona,
    /// All evidence, numbered.
    Evidence,
    /// Selected facts.
    Facts,
    /// Selected passages of documents.
    Passages,
    /// Exchanges to summarise, the most central first.
    Exchanges,
    /// The drafted response.
    Response,
}

impl Slot {
    /// All slots.
    pub const ALL: [Self; 13] = [
        Self::Dialogue,
        Self::Recalled,
        Self::Sources,
        Self::Queries,
        Self::Topics,
        Self::Foreseen,
        Self::Unforeseen,
        Self::Persona,
        Self::Evidence,
        Self::Facts,
        Self::Passages,
        Self::Exchanges,
        Self::Response,
    ];

    /// Returns its name in a file, and in the fence around its text.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dialogue => "dialogue",
            Self::Recalled => "recalled",
            Self::Sources => "sources",
            Self::Queries => "queries",
            Self::Topics => "topics",
            Self::Foreseen => "foreseen",
            Self::Unforeseen => "unforeseen",
            Self::Persona => "persona",
            Self::Evidence => "evidence",
            Self::Facts => "facts",
            Self::Passages => "passages",
            Self::Exchanges => "exchanges",
            Self::Response => "response",
        }
    }

    /// Returns the slots that a stage fills. A prompt may have any of these and must have the
    /// first.
    pub fn of(stage: Stage) -> &'static [Self] {
        match stage {
            Stage::SourcePlanning => &[Self::Dialogue, Self::Recalled, Self::Sources],
            Stage::Relevance => &[Self::Dialogue, Self::Recalled, Self::Evidence],
            Stage::CrossRevision => &[Self::Dialogue, Self::Recalled, Self::Queries, Self::Topics],
            Stage::FactSelection => &[
                Self::Dialogue,
                Self::Recalled,
                Self::Queries,
                Self::Topics,
                Self::Foreseen,
                Self::Unforeseen,
            ],
            Stage::Generation => &[
                Self::Dialogue,
                Self::Recalled,
                Self::Queries,
                Self::Topics,
                Self::Persona,
                Self::Facts,
                Self::Passages,
            ],
            Stage::Decision => &[Self::Dialogue, Self::Recalled, Self::Persona, Self::Evidence],
            Stage::Consistency => &[Self::Response, Self::Evidence, Self::Dialogue],
            Stage::History => &[Self::Exchanges],
            _ => &[Self::Dialogue, Self::Recalled],
        }
    }
}

/// Why a prompt file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A line before the first part.
    #[error("line {line}: text before the first part; begin with [task]")]
    Outside {
        /// Its number, from 1.
        line: usize,
    },
    /// A part that does not exist, or appears twice.
    #[error(
        "line {line}: {part} is not a part, or occurs twice; the parts are [task], [material], [think] and [answer]"
    )]
    Part {
        /// Its number, from 1.
        line: usize,
        /// The text of the line.
        part: String,
    },
    /// A part is missing.
    #[error(
        "there is no {part}; a prompt has [task], [material], [answer] and, optionally, [think]"
    )]
    Missing {
        /// The missing part.
        part: &'static str,
    },
    /// A slot that the stage does not fill.
    #[error(
        "{{{{{slot}}}}} is not a slot of {stage}, or is outside of [material]; its slots are {known}"
    )]
    Slot {
        /// The name of the slot.
        slot: String,
        /// The stage of the prompt.
        stage: Stage,
        /// The slots of the stage.
        known: String,
    },
    /// The slot that the stage cannot do without is missing.
    #[error("[material] has no {{{{{slot}}}}}, which {stage} requires")]
    NoSlot {
        /// The missing slot.
        slot: &'static str,
        /// The stage of the prompt.
        stage: Stage,
    },
}

const TASK: &str = "[task]";
const MATERIAL: &str = "[material]";
const THINK: &str = "[think]";
const ANSWER: &str = "[answer]";

impl Template {
    /// Reads a prompt file for a stage.
    ///
    /// # Errors
    /// If a part or a slot is missing, unknown or in the wrong place.
    pub fn parse(stage: Stage, file: &str) -> Result<Self, TemplateError> {
        let [task, material, think, answer] = parts(file)?;
        let missing = |part| move || TemplateError::Missing { part };
        let material = material.ok_or_else(missing(MATERIAL))?;
        let material = pieces(&material, Slot::of(stage)).map_err(|slot| no_slot(slot, stage))?;
        let needed = Slot::of(stage).first();
        if let Some(slot) = needed.filter(|slot| !material.contains(&Piece::Slot(**slot))) {
            return Err(TemplateError::NoSlot { slot: slot.name(), stage });
        }
        let template = Self {
            task: task.ok_or_else(missing(TASK))?,
            material,
            think,
            answer: answer.ok_or_else(missing(ANSWER))?,
            hash: format!("{:08x}", crc32fast::hash(file.as_bytes())),
        };
        for part in [Some(&template.task), template.think.as_ref(), Some(&template.answer)] {
            pieces(part.map_or("", String::as_str), &[]).map_err(|slot| no_slot(slot, stage))?;
        }
        Ok(template)
    }

    /// Returns eight hexadecimal digits that identify the prompt.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Returns the part `[task]`.
    pub fn task(&self) -> &str {
        &self.task
    }

    /// Returns the part `[think]`, where the prompt has one.
    pub fn think(&self) -> Option<&str> {
        self.think.as_deref()
    }

    /// Returns the part `[answer]`.
    pub fn answer(&self) -> &str {
        &self.answer
    }

    /// Whether `[material]` has a slot.
    pub fn shows(&self, slot: Slot) -> bool {
        self.material.contains(&Piece::Slot(slot))
    }

    /// Returns the part `[material]` for a turn. `fill` gives the text of each slot, empty where
    /// the turn has none. Lines with only empty slots are left out.
    pub fn material(&self, fill: impl Fn(Slot) -> String) -> String {
        let mut text = String::new();
        for piece in &self.material {
            match piece {
                Piece::Text(piece) if text.is_empty() || text.ends_with('\n') => {
                    text.push_str(piece.trim_start_matches('\n'));
                }
                Piece::Text(piece) => text.push_str(piece),
                // Writing to a string cannot fail.
                Piece::Slot(slot) => drop(write!(text, "{}", fill(*slot))),
            }
        }
        text
    }
}

fn no_slot(slot: String, stage: Stage) -> TemplateError {
    let known = Slot::of(stage).iter().map(|slot| slot.name()).collect::<Vec<_>>().join(", ");
    TemplateError::Slot { slot, stage, known }
}

/// Returns the texts of the parts, in their order.
fn parts(file: &str) -> Result<[Option<String>; 4], TemplateError> {
    let mut parts = [const { None }; 4];
    let mut current = None::<usize>;
    for (at, line) in file.lines().enumerate() {
        let name = line.trim_end();
        if name.starts_with('[') && name.ends_with(']') && !name.contains(' ') {
            let known = [TASK, MATERIAL, THINK, ANSWER].iter().position(|part| *part == name);
            let part = known.filter(|part| parts[*part].is_none());
            let error = || TemplateError::Part { line: at + 1, part: name.to_owned() };
            let part = part.ok_or_else(error)?;
            (parts[part], current) = (Some(String::new()), Some(part));
        } else if let Some(part) = current {
            let text: &mut String = parts[part].get_or_insert_default();
            text.push_str(line);
            text.push('\n');
        } else if !name.is_empty() {
            return Err(TemplateError::Outside { line: at + 1 });
        }
    }
    Ok(parts.map(|part| part.map(|text| text.trim().to_owned())))
}

/// Returns the pieces of a part that may have these slots; as the error, the name of a slot that it
/// may not have.
fn pieces(text: &str, slots: &[Slot]) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, behind)) = after.split_once("}}") else { break };
        let slot = slots.iter().find(|slot| slot.name() == name.trim());
        let slot = slot.ok_or_else(|| name.trim().to_owned())?;
        pieces.extend((!before.is_empty()).then(|| Piece::Text(before.to_owned())));
        pieces.push(Piece::Slot(*slot));
        rest = behind;
    }
    pieces.extend((!rest.is_empty()).then(|| Piece::Text(rest.to_owned())));
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str =
        "[task]\nDo it.\n[material]\n{{recalled}}\n{{dialogue}}\nNow.\n[answer]\nJSON.\n";

    fn parse(file: &str) -> Result<Template, TemplateError> {
        Template::parse(Stage::Gate, file)
    }

    #[test]
    fn a_prompt_is_read_in_parts_and_filled_once() {
        let template = parse(FILE).expect("a prompt");
        assert_eq!((template.task(), template.answer()), ("Do it.", "JSON."));
        assert_eq!(template.think(), None);
        let filled = template.material(|slot| match slot {
            Slot::Dialogue => "say {{recalled}}".to_owned(),
            _ => "before".to_owned(),
        });
        assert_eq!(filled, "before\nsay {{recalled}}\nNow.", "what fills a slot has no slots");
        let filled = template.material(|slot| match slot {
            Slot::Dialogue => "said".to_owned(),
            _ => String::new(),
        });
        assert_eq!(filled, "said\nNow.", "an empty slot leaves no empty line");
        assert_ne!(template.hash(), parse(&FILE.replace("Now", "Then")).expect("another").hash());
    }

    #[test]
    fn what_is_wrong_with_a_prompt_is_said() {
        let wrong = |file: String| parse(&file).expect_err("wrong").to_string();
        assert!(wrong(format!("Hello\n{FILE}")).contains("line 1"));
        assert!(wrong(FILE.replace("[answer]", "[reply]")).contains("line 7: [reply]"));
        assert!(wrong(FILE.replace("[answer]\nJSON.", "")).contains("no [answer]"));
        assert!(
            wrong(FILE.replace("{{recalled}}", "{{facts}}")).contains("{{facts}} is not a slot")
        );
        assert!(wrong(FILE.replace("Do it", "{{dialogue}}")).contains("outside of [material]"));
        assert!(wrong(FILE.replace("{{dialogue}}", "")).contains("no {{dialogue}}"));
    }
}
