//! The files to read facts from, and their options.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use turnstream_knowledge::{Format, ImportOptions};

use turnstream_console::failure::Usage;
use turnstream_sources::knowledge::SourceFile;

/// The format of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// Decided by the first line of each file
    Auto,
    /// ConceptNet's public assertions: uri, relation, start, end, JSON
    ConceptnetCsv,
    /// relation, head, tail, weight, and optionally source and sentence
    Tsv,
    /// head, relation, tail; every weight is 1
    Triples,
}

impl From<FormatArg> for Format {
    fn from(format: FormatArg) -> Self {
        match format {
            FormatArg::Auto => Self::Auto,
            FormatArg::ConceptnetCsv => Self::ConceptNetCsv,
            FormatArg::Tsv => Self::Tsv,
            FormatArg::Triples => Self::Triples,
        }
    }
}

/// Selects the facts to read.
#[derive(Clone, Debug, clap::Args)]
pub struct InputArgs {
    /// Files to read: plain, gzip or zstd; each may say ",source=NAME", ",language=CODE" and
    /// ",format=FORMAT" for itself
    #[arg(required = true, value_name = "FILE[,KEY=VALUE...]")]
    files: Vec<String>,
    /// Format of the lines
    #[arg(long, value_enum, default_value_t = FormatArg::Auto)]
    format: FormatArg,
    /// Languages to keep, such as en,zh; "all" keeps every one. Lines without a language count as
    /// the first
    #[arg(long, default_value = "en", value_delimiter = ',', value_name = "LANGUAGE")]
    language: Vec<String>,
    /// Source of all facts, instead of those that the lines name
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Most bad lines to report for each file; all are counted
    #[arg(long, default_value_t = 20, value_name = "N")]
    bad_lines: usize,
    /// Keep English facts that are unfit to be told (sex, drugs, violence, slurs); by default they
    /// are left out and counted
    #[arg(long)]
    keep_unfit: bool,
}

impl InputArgs {
    /// The files, each with its options.
    ///
    /// # Errors
    /// The options of a file cannot be parsed.
    pub(super) fn files(&self) -> Result<Vec<SourceFile>, Usage> {
        self.files.iter().map(|file| self.file(file)).collect()
    }

    fn file(&self, given: &str) -> Result<SourceFile, Usage> {
        let mut options = ImportOptions {
            format: self.format.into(),
            languages: languages(&self.language),
            source: self.source.clone(),
            bad_lines_kept: self.bad_lines,
            keep_unfit: self.keep_unfit,
        };
        // A name may contain a comma.
        if Path::new(given).exists() {
            return Ok(SourceFile { path: given.into(), options });
        }
        let mut parts = given.split(',');
        let path = PathBuf::from(parts.next().unwrap_or_default());
        for part in parts {
            let refused = |what: &str| {
                Usage::new(
                    format!("{given:?}: {what} {part:?}"),
                    "write FILE[,source=NAME][,language=CODE]\
                     [,format=auto|conceptnet-csv|tsv|triples]",
                )
            };
            match part.split_once('=') {
                Some(("source", name)) if !name.is_empty() => options.source = Some(name.into()),
                Some(("language", code)) if !code.is_empty() => {
                    options.languages = languages(&[code.to_owned()]);
                }
                Some(("format", name)) => {
                    let format = FormatArg::from_str(name, false);
                    options.format = format.map_err(|_| refused("unknown format in"))?.into();
                }
                _ => return Err(refused("unknown option")),
            }
        }
        Ok(SourceFile { path, options })
    }
}

/// The languages to keep. Empty means all.
fn languages(named: &[String]) -> Vec<String> {
    if named.iter().any(|name| name == "all") { Vec::new() } else { named.to_vec() }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct InputProgram {
        #[command(flatten)]
        input: InputArgs,
    }

    fn files(line: &[&str]) -> Result<Vec<SourceFile>, String> {
        let program = InputProgram::try_parse_from([&["import"], line].concat()).expect("usage");
        program.input.files().map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn a_file_may_speak_for_itself() {
        let line = ["a.csv", "b,c.tsv", "kb.tsv.gz,source=kdconv,language=zh,format=triples"];
        let folder = tempfile::tempdir().expect("a folder");
        let comma = folder.path().join("b,c.tsv").display().to_string();
        std::fs::write(&comma, "").expect("written");
        let flags = ["--language", "en,zh", "--source", "ours"];
        let found = files(&[&[line[0], &comma, line[2]], &flags[..]].concat()).expect("files");
        let plain = ImportOptions {
            languages: vec!["en".into(), "zh".into()],
            source: Some("ours".into()),
            ..ImportOptions::default()
        };
        let chinese = ImportOptions {
            format: Format::Triples,
            languages: vec!["zh".into()],
            source: Some("kdconv".into()),
            ..ImportOptions::default()
        };
        let expected = [
            SourceFile { path: "a.csv".into(), options: plain.clone() },
            SourceFile { path: comma.into(), options: plain },
            SourceFile { path: "kb.tsv.gz".into(), options: chinese },
        ];
        assert_eq!(found, expected);
        let all = files(&["a.csv", "--language", "all"]).expect("a file");
        assert_eq!(all[0].options.languages, Vec::<String>::new());
    }

    #[test]
    fn what_is_not_understood_is_named_with_the_remedy() {
        for (given, part) in [
            ("a.tsv,name=x", "name=x"),
            ("a.tsv,format=xml", "format=xml"),
            ("a.tsv,b.tsv", "b.tsv"),
        ] {
            let error = files(&[given]).expect_err("refused");
            assert!(error.contains(part) && error.contains(",source=NAME"), "{error}");
        }
    }
}
