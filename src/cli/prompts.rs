//! `turnstream prompts`: shows the shipped prompts, also as a start for one's own.

use std::io::Write;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Subcommand, ValueEnum};
use serde_json::json;
use turnstream_operators::prompted::{SHIPPED, Template};

use turnstream_console::print_json;

/// Show the prompts that language models are given in the prompted form of stages.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream prompts list
  turnstream prompts show cross_revision
  turnstream prompts show generation --language zh > my-generation.txt")]
pub struct PromptsArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: PromptsCommand,
}

/// The operations on prompts.
#[derive(Clone, Debug, Subcommand)]
pub enum PromptsCommand {
    /// List the prompts that ship, each with its stage and the hash that responses carry
    #[command(after_help = "\
Examples:
  turnstream prompts list
  turnstream prompts list --json")]
    List(PromptsListArgs),
    /// Print a prompt as a file that `prompted.prompt` can name
    #[command(after_help = "\
Examples:
  turnstream prompts show gate_examples
  turnstream prompts show topic_planning --language zh")]
    Show(PromptsShowArgs),
}

/// `prompts list`
#[derive(Clone, Debug, clap::Args)]
pub struct PromptsListArgs {
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

/// `prompts show`
#[derive(Clone, Debug, clap::Args)]
pub struct PromptsShowArgs {
    /// Name of the prompt
    #[arg(value_name = "NAME", value_parser = names())]
    name: String,
    /// Language of the prompt
    #[arg(long, value_enum, value_name = "LANGUAGE", default_value_t)]
    language: Language,
}

/// A language that prompts are written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Language {
    /// English, also for prompts without a translation.
    #[default]
    En,
    /// Chinese.
    Zh,
}

fn names() -> PossibleValuesParser {
    SHIPPED.iter().map(|prompt| PossibleValue::new(prompt.name)).into()
}

impl PromptsArgs {
    /// Whether the last line on standard output is to be a JSON object.
    pub fn json(&self) -> bool {
        matches!(&self.command, PromptsCommand::List(args) if args.json)
    }
}

/// Runs the command.
///
/// # Errors
/// `out` cannot be written to.
pub fn execute(args: &PromptsArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    match &args.command {
        PromptsCommand::List(args) => list(args, out),
        PromptsCommand::Show(args) => show(args, out),
    }
}

fn list(args: &PromptsListArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut listed = Vec::new();
    for prompt in SHIPPED {
        let hash =
            |file| Ok::<_, anyhow::Error>(Template::parse(prompt.stage, file)?.hash().to_owned());
        let (english, chinese) = (hash(prompt.english)?, prompt.chinese.map(hash).transpose()?);
        listed.push((prompt, english, chinese));
    }
    if args.json {
        let prompts = listed.iter().map(|(prompt, en, zh)| {
            json!({ "name": prompt.name, "stage": prompt.stage, "en": en, "zh": zh })
        });
        return Ok(print_json(out, &json!({ "prompts": prompts.collect::<Vec<_>>() }))?);
    }
    for (prompt, en, zh) in &listed {
        let (name, stage, zh) = (prompt.name, prompt.stage.name(), zh.as_deref().unwrap_or("-"));
        writeln!(out, "{name:<18} {stage:<17} en {en}  zh {zh}")?;
    }
    Ok(())
}

fn show(args: &PromptsShowArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let prompt = SHIPPED.iter().find(|prompt| prompt.name == args.name);
    // The parser accepts no other name.
    let Some(prompt) = prompt else { return Ok(()) };
    let file = match args.language {
        Language::En => prompt.english,
        Language::Zh => prompt.chinese.unwrap_or(prompt.english),
    };
    out.write_all(file.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_a_prompt_of_the_hash_that_is_listed() {
        let mut listed = Vec::new();
        list(&PromptsListArgs { json: true }, &mut listed).unwrap();
        let listed: serde_json::Value = serde_json::from_slice(&listed).unwrap();
        for prompt in listed["prompts"].as_array().unwrap() {
            let name = prompt["name"].as_str().unwrap().to_owned();
            let stage = SHIPPED.iter().find(|shipped| shipped.name == name).unwrap().stage;
            for (language, key) in [(Language::En, "en"), (Language::Zh, "zh")] {
                let Some(hash) = prompt[key].as_str() else { continue };
                let mut shown = Vec::new();
                show(&PromptsShowArgs { name: name.clone(), language }, &mut shown).unwrap();
                let shown = String::from_utf8(shown).unwrap();
                assert_eq!(Template::parse(stage, &shown).unwrap().hash(), hash, "{name}");
            }
        }
        assert!(listed["prompts"].as_array().unwrap().len() >= 9);
    }
}
