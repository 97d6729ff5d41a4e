//! `turnstream schema`: prints the JSON Schema of a record, as published under `schemas/json/`.

use std::io::Write;

use clap::builder::{PossibleValue, PossibleValuesParser};
use turnstream_schemas::published;

/// Print the JSON Schema of a record that flows in, out or between stages.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  turnstream schema turn
  turnstream schema response > response.schema.json
  turnstream schema --list")]
pub struct SchemaArgs {
    /// Which record.
    #[arg(value_name = "NAME", value_parser = names(), required_unless_present = "list")]
    pub name: Option<String>,
    /// Print the names of all records instead, each with its description.
    #[arg(long, conflicts_with = "name")]
    pub list: bool,
}

/// The known names. Help and completions show them, and an error suggests the nearest.
fn names() -> PossibleValuesParser {
    published::ALL.iter().map(|schema| PossibleValue::new(schema.name).help(schema.about)).into()
}

/// Prints the schema, or the list of schemas.
///
/// # Errors
/// The name is unknown, or `out` cannot be written to.
pub fn execute(args: &SchemaArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let Some(name) = &args.name else {
        let width = published::ALL.iter().map(|schema| schema.name.len()).max().unwrap_or(0);
        for schema in published::ALL {
            writeln!(out, "{:width$}  {}", schema.name, schema.about)?;
        }
        return Ok(());
    };
    let schema = published::find(name).ok_or_else(|| {
        anyhow::anyhow!("there is no record `{name}`; `turnstream schema --list` names them")
    })?;
    out.write_all(schema.text().as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;

    use super::*;

    #[derive(Debug, Parser)]
    struct SchemaProgram {
        #[command(flatten)]
        args: SchemaArgs,
    }

    fn parse(words: &[&str]) -> Result<SchemaArgs, clap::Error> {
        SchemaProgram::try_parse_from([&["schema"], words].concat()).map(|program| program.args)
    }

    fn run(words: &[&str]) -> String {
        let mut out = Vec::new();
        execute(&parse(words).unwrap(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_schema_is_printed_as_it_is_committed() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas/json");
        for schema in published::ALL {
            let file = folder.join(format!("{}.schema.json", schema.name));
            assert_eq!(run(&[schema.name]), std::fs::read_to_string(file).unwrap());
        }
    }

    #[test]
    fn the_list_names_every_schema_with_what_it_is() {
        let list = run(&["--list"]);
        let names: Vec<_> =
            list.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
        assert!(names.iter().copied().eq(published::ALL.iter().map(|schema| schema.name)));
        assert!(list.contains("dead-letter         an input that could not be served"), "{list}");
    }

    #[test]
    fn wrong_usage_is_refused_with_the_nearest_name() {
        let error = parse(&["respons"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidValue);
        assert!(error.to_string().contains("a similar value exists: 'response'"), "{error}");
        assert_eq!(parse(&[]).unwrap_err().kind(), ErrorKind::MissingRequiredArgument);
        let both = parse(&["turn", "--list"]).unwrap_err();
        assert_eq!(both.kind(), ErrorKind::ArgumentConflict);
    }
}
