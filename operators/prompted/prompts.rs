//! The prompts of all stages: those that ship, and files that replace them.

use std::collections::BTreeMap;
use std::sync::Arc;

use turnstream_schemas::Stage;

use super::StagePrompts;
use super::template::{Template, TemplateError};

/// A prompt that ships.
#[derive(Debug)]
pub struct Shipped {
    /// Its name in the configuration. The default prompt of a stage has the stage's name.
    pub name: &'static str,
    /// The stage it is for.
    pub stage: Stage,
    /// The file in English.
    pub english: &'static str,
    /// The file in Chinese; the English one serves where there is none.
    pub chinese: Option<&'static str>,
}

macro_rules! shipped {
    ($($name:literal, $stage:ident, $english:literal, $chinese:expr;)*) => {
        /// All prompts that ship.
        pub const SHIPPED: &[Shipped] = &[$(Shipped {
            name: $name,
            stage: Stage::$stage,
            english: include_str!(concat!("../prompts/en/", $english)),
            chinese: $chinese,
        }),*];
    };
}

shipped! {
    "history", History, "history.txt", Some(include_str!("../prompts/zh/history.txt"));
    "gate", Gate, "gate.txt", Some(include_str!("../prompts/zh/gate.txt"));
    "gate_examples", Gate, "gate_examples.txt", None;
    "source_planning", SourcePlanning, "source_planning.txt",
        Some(include_str!("../prompts/zh/source_planning.txt"));
    "query_production", QueryProduction, "query_production.txt",
        Some(include_str!("../prompts/zh/query_production.txt"));
    "query_production_continuation", QueryProduction, "query_production_continuation.txt", None;
    "topic_planning", TopicPlanning, "topic_planning.txt",
        Some(include_str!("../prompts/zh/topic_planning.txt"));
    "cross_revision", CrossRevision, "cross_revision.txt",
        Some(include_str!("../prompts/zh/cross_revision.txt"));
    "relevance", Relevance, "relevance.txt",
        Some(include_str!("../prompts/zh/relevance.txt"));
    "fact_selection", FactSelection, "fact_selection.txt",
        Some(include_str!("../prompts/zh/fact_selection.txt"));
    "decision", Decision, "decision.txt", Some(include_str!("../prompts/zh/decision.txt"));
    "generation", Generation, "generation.txt",
        Some(include_str!("../prompts/zh/generation.txt"));
    "generation_plain", Generation, "generation_plain.txt", None;
    "generation_facts", Generation, "generation_facts.txt", None;
    "generation_knowledge", Generation, "generation_knowledge.txt", None;
    "consistency", Consistency, "consistency.txt",
        Some(include_str!("../prompts/zh/consistency.txt"));
}

/// Why a prompt cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// The file cannot be read.
    #[error(
        "{}.prompted.prompt: {prompt} is not a shipped prompt ({known}), and cannot be read as a \
         file: {source}",
        table_of(*stage)
    )]
    Read {
        /// The stage that was to use it.
        stage: Stage,
        /// The name in the configuration.
        prompt: String,
        /// The names of the prompts that ship.
        known: String,
        /// Why the file cannot be read.
        source: std::io::Error,
    },
    /// A prompt for another stage.
    #[error("{}.prompted.prompt: the prompt {prompt} is for {of}", table_of(*stage))]
    OtherStage {
        /// The stage that was to use it.
        stage: Stage,
        /// The name in the configuration.
        prompt: String,
        /// The stage it is for.
        of: Stage,
    },
    /// The file is not a prompt.
    #[error("{prompt}: {source}")]
    Template {
        /// The name in the configuration.
        prompt: String,
        /// What is wrong with it.
        source: TemplateError,
    },
}

/// Returns the dotted path of the configuration table that has a stage's `prompted`.
pub fn table_of(stage: Stage) -> &'static str {
    stage.row().prompted.unwrap_or(stage.name())
}

/// The prompts of the stages that have a prompted form. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Prompts(BTreeMap<Stage, Arc<StagePrompts>>);

impl Prompts {
    /// Adds the prompts of a stage: those that ship under a name, those in a file that `read` reads, or,
    /// without a name, the stage's default.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a prompt of the stage.
    pub fn add(
        &mut self,
        stage: Stage,
        prompt: Option<&str>,
        read: impl Fn(&str) -> std::io::Result<String>,
    ) -> Result<(), PromptError> {
        self.0.insert(stage, Arc::new(load(stage, prompt, read)?));
        Ok(())
    }

    /// Returns the default prompts of a stage, as they ship.
    pub fn shipped(stage: Stage) -> Option<Arc<StagePrompts>> {
        let no_file = |_: &str| Err(std::io::ErrorKind::NotFound.into());
        load(stage, None, no_file).ok().map(Arc::new)
    }

    /// Returns the prompts of a stage.
    pub fn of(&self, stage: Stage) -> Option<Arc<StagePrompts>> {
        self.0.get(&stage).cloned()
    }
}

fn load(
    stage: Stage,
    prompt: Option<&str>,
    read: impl Fn(&str) -> std::io::Result<String>,
) -> Result<StagePrompts, PromptError> {
    let name = prompt.unwrap_or(stage.name());
    let parse = |file: &str| {
        let error = |source| PromptError::Template { prompt: name.to_owned(), source };
        Template::parse(stage, file).map_err(error)
    };
    if let Some(shipped) = SHIPPED.iter().find(|shipped| shipped.name == name) {
        if shipped.stage != stage {
            let (prompt, of) = (name.to_owned(), shipped.stage);
            return Err(PromptError::OtherStage { stage, prompt, of });
        }
        let english = parse(shipped.english)?;
        let chinese = shipped.chinese.map_or_else(|| Ok(english.clone()), parse)?;
        return Ok(StagePrompts { chinese, english });
    }
    let file = read(name).map_err(|source| {
        let of_stage = SHIPPED.iter().filter(|shipped| shipped.stage == stage);
        let known = of_stage.map(|shipped| shipped.name).collect::<Vec<_>>().join(", ");
        PromptError::Read { stage, prompt: name.to_owned(), known, source }
    })?;
    let template = parse(&file)?;
    Ok(StagePrompts { chinese: template.clone(), english: template })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nowhere(_: &str) -> std::io::Result<String> {
        Err(std::io::ErrorKind::NotFound.into())
    }

    #[test]
    fn every_prompt_that_ships_is_one_of_its_stage() {
        for shipped in SHIPPED {
            let mut prompts = Prompts::default();
            prompts.add(shipped.stage, Some(shipped.name), nowhere).expect(shipped.name);
            let prompts = prompts.of(shipped.stage).expect("its prompts");
            let thinks = prompts.english.think().is_some();
            assert_eq!(thinks, prompts.chinese.think().is_some(), "{}", shipped.name);
        }
        let own = SHIPPED.iter().filter(|shipped| shipped.name == shipped.stage.name()).count();
        let asking = Stage::ALL.into_iter().filter(|stage| stage.row().prompted.is_some());
        assert_eq!(own, asking.count(), "each stage with a prompted form has its own");
    }

    #[test]
    fn a_file_takes_the_place_of_a_prompt() {
        let file = "[task]\nT\n[material]\n{{dialogue}}\n[answer]\nA\n";
        let read = |path: &str| if path == "my.txt" { Ok(file.to_owned()) } else { nowhere(path) };
        let load = |prompt| {
            let mut prompts = Prompts::default();
            prompts.add(Stage::Gate, Some(prompt), read).map(|()| prompts)
        };
        let prompts = load("my.txt").expect("a prompt").of(Stage::Gate).expect("the gate's");
        assert_eq!((prompts.english.task(), prompts.chinese.task()), ("T", "T"));
        let wrong = |prompt| load(prompt).expect_err("refused").to_string();
        assert!(wrong("there.txt").contains("gate, gate_examples"), "{}", wrong("there.txt"));
        assert!(wrong("generation").contains("is for generation"));
    }
}
