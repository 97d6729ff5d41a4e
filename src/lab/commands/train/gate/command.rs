//! Formats the command of a training for the gate's card: with the same data and the same program,
//! the command makes the same gate again.

use std::path::Path;

use clap::ValueEnum;

use super::TrainGateArgs;

impl TrainGateArgs {
    /// Lists every argument that the gate depends on, including defaults, quoted for a shell; files
    /// appear by name only.
    pub(super) fn command(&self) -> String {
        let (shape, options) = (self.shape(), self.options());
        let mut words = vec!["turnstream".to_owned(), "train".to_owned(), "gate".to_owned()];
        let mut say = |flag: &str, value: String| words.extend([format!("--{flag}"), value]);
        self.data.iter().for_each(|file| say("data", without_folder(file)));
        self.development.iter().for_each(|file| say("development", without_folder(file)));
        if let Some(knowledge) = &self.knowledge {
            say("knowledge", name_of(knowledge));
        }
        say("variant", self.variant.name().to_owned());
        say("out", name_of(&self.out));
        say("preset", name_of_value(&self.preset));
        say("tokens", name_of_value(&self.tokens));
        say("language", self.language.clone());
        say("name", self.name.clone());
        self.licence.iter().for_each(|licence| say("licence", licence.clone()));
        for (flag, number) in [
            ("layers", shape.layers),
            ("heads", shape.heads),
            ("width", shape.width),
            ("max-tokens", shape.max_tokens),
            ("max-utterances", shape.max_utterances),
            ("batch", options.batch),
            ("turns-per-epoch", options.turns_per_epoch),
            ("threads", options.threads),
        ] {
            say(flag, number.to_string());
        }
        say("min-count", self.min_count.to_string());
        say("epochs", options.epochs.to_string());
        say("patience", options.patience.to_string());
        say("rate", options.rate.to_string());
        say("decay", options.decay.to_string());
        say("dropout", options.dropout.to_string());
        say("seed", options.seed.to_string());
        if self.no_noise {
            words.push("--no-noise".to_owned());
        }
        words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }
}

fn name_of_value(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.display().to_string())
}

/// Shortens `FILE,format=FORMAT` to the file's name.
fn without_folder(given: &str) -> String {
    match given.rsplit_once(",format=") {
        Some((path, format)) => format!("{},format={format}", name_of(Path::new(path))),
        None => given.to_owned(),
    }
}

/// Puts a word into single quotes if a shell needs them.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.,=+:/@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Parser};

    use super::*;
    use crate::commands::train::{self, TrainCommand};
    use crate::commands::{Cli, Command};

    fn parsed<'a>(words: impl IntoIterator<Item = &'a str>) -> TrainGateArgs {
        let cli = Cli::try_parse_from(words).unwrap();
        match cli.command {
            Command::Train(train::TrainArgs { command: TrainCommand::Gate(args) }) => *args,
            other => panic!("{other:?}"),
        }
    }

    /// Splits a line into words, except within single quotes.
    fn words(line: &str) -> Vec<&str> {
        let parts = line.split('\'').enumerate();
        let words = parts.flat_map(|(at, part)| match at % 2 {
            0 => part.split_whitespace().collect(),
            _ => vec![part],
        });
        words.collect()
    }

    /// Every value differs from its default.
    const GIVEN: &str = "turnstream train gate --data 'some where/a,b.jsonl,format=dstc11' \
        --data c.jsonl.gz,format=sgd --development far/d.jsonl,format=dstc11 --knowledge far/k.json \
        --variant contx-plus-know --out far/own.zst --preset paper --tokens words --language de \
        --name own --licence CDLA-Sharing-1.0 --licence 'CC BY-SA 4.0' --layers 3 --heads 2 \
        --width 48 --max-tokens 96 --max-utterances 4 --min-count 5 --epochs 7 --patience 2 --batch 16 \
        --turns-per-epoch 300 --rate 0.002 --decay 0.05 --dropout 0.25 --no-noise --seed 9 --threads 3";

    #[test]
    fn the_command_names_every_argument_that_the_gate_depends_on() {
        let command = parsed(words(GIVEN)).command();
        let all = TrainGateArgs::augment_args(clap::Command::new("gate"));
        let flags = all.get_arguments().filter_map(|argument| argument.get_long());
        let flags: Vec<&str> =
            flags.filter(|flag| !["resume", "json", "help"].contains(flag)).collect();
        assert!(flags.len() > 25, "{flags:?}");
        for flag in flags {
            assert!(words(&command).contains(&&*format!("--{flag}")), "no --{flag} in {command}");
        }
        assert!(command.contains("--licence 'CC BY-SA 4.0'"), "{command}");
        assert!(!command.contains("where") && !command.contains("far/"), "a folder in {command}");
    }

    #[test]
    fn what_the_command_says_is_what_was_asked_for() {
        let few = "turnstream train gate --data a.jsonl,format=kbp --out b.zst --width 32";
        for line in [GIVEN, few] {
            let asked = parsed(words(line));
            let again = parsed(words(&asked.command()));
            assert_eq!((again.shape(), again.options()), (asked.shape(), asked.options()));
            let others = |args: &TrainGateArgs| {
                let TrainGateArgs { tokens, min_count, language, name, licence, .. } = args.clone();
                (tokens, min_count, language, name, licence)
            };
            assert_eq!(others(&again), others(&asked));
            assert_eq!(again.command(), asked.command());
        }
    }
}
