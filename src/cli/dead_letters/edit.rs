//! Changes the value of a dead letter by a jq program.

use jaq_core::data::JustLut;
use jaq_core::load::{Arena, Error, File, Loader};
use jaq_core::{Compiler, Ctx, Native, Vars, unwrap_valr};
use jaq_json::{Val, read};
use turnstream_console::Usage;

/// A compiled program.
pub(super) struct Edit(jaq_core::compile::Filter<Native<JustLut<Val>>>);

impl Edit {
    /// Compiles a program.
    ///
    /// # Errors
    /// The program is not valid jq; the message says where.
    pub(super) fn new(program: &str) -> Result<Self, Usage> {
        let defs = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
        let functions = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
        let (loader, arena) = (Loader::new(defs), Arena::default());
        let refused = |what: String| {
            Usage::new(format!("--edit: {what}"), "give a jq program, such as .speaker = \"user\"")
        };
        let loaded = loader.load(&arena, File { code: program, path: () }).map_err(|errors| {
            let said = errors.into_iter().map(|(_, error)| match error {
                Error::Io(of) => of.into_iter().map(|(_, said)| said).collect(),
                Error::Lex(of) => {
                    of.into_iter().map(|(it, at)| expected(it.as_str(), at)).collect()
                }
                Error::Parse(of) => {
                    of.into_iter().map(|(it, at)| expected(it.as_str(), at)).collect()
                }
            });
            refused(said.collect::<Vec<Vec<String>>>().concat().join("; "))
        })?;
        let compiled =
            Compiler::default().with_funs(functions).compile(loaded).map_err(|errors| {
                let unknown = errors.into_iter().flat_map(|(_, of)| of);
                let unknown =
                    unknown.map(|(name, it)| format!("no {} is named {name}", it.as_str()));
                refused(unknown.collect::<Vec<String>>().join("; "))
            })?;
        Ok(Self(compiled))
    }

    /// Applies the program to a JSON value.
    ///
    /// # Errors
    /// The bytes are not JSON, or the program fails or does not give exactly one value; the message
    /// says which.
    pub(super) fn of(&self, value: &[u8]) -> Result<Vec<u8>, String> {
        let input = read::parse_single(value)
            .map_err(|error| format!("the letter is not JSON: {error}"))?;
        let context = Ctx::<JustLut<Val>>::new(&self.0.lut, Vars::new([]));
        let mut made = self.0.id.run((context, input)).map(unwrap_valr);
        match (made.next(), made.next()) {
            (Some(Ok(one)), None) => {
                let text = one.to_string();
                // jq has values that JSON does not.
                match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
                    Ok(_) => Ok(text.into_bytes()),
                    Err(error) => Err(format!("the program's result is not JSON: {error}")),
                }
            }
            (Some(Err(error)), _) | (_, Some(Err(error))) => {
                Err(format!("the program failed: {error}"))
            }
            (None, _) => Err("the program gives no value".to_owned()),
            (Some(Ok(_)), Some(Ok(_))) => Err("the program gives several values".to_owned()),
        }
    }
}

fn expected(what: &str, rest: &str) -> String {
    match rest {
        "" => format!("expected {what} at the end"),
        rest => format!("expected {what} at `{rest}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_changes_a_value_or_says_why_not() {
        let edit = |program: &str, value: &str| {
            let edit = Edit::new(program).expect("a program");
            edit.of(value.as_bytes()).map(|made| String::from_utf8(made).expect("text"))
        };
        let turn = r#"{"speaker":"customer","text":"Où ?","n":1.50}"#;
        let said = edit(".speaker = \"user\" | del(.n)", turn);
        assert_eq!(said, Ok(r#"{"speaker":"user","text":"Où ?"}"#.to_owned()));
        assert_eq!(edit(".", turn), Ok(turn.to_owned()), "numbers as they are written");
        for (program, value, why) in [
            (".", "{", "letter is not JSON"),
            ("empty", "{}", "no value"),
            (".a, .b", "{}", "several"),
            ("nan", "{}", "result is not JSON"),
            (".a.b", r#"{"a": 1}"#, "failed"),
        ] {
            let said = edit(program, value).expect_err("refused");
            assert!(said.contains(why), "{program}: {said}");
        }
        for (program, why) in [(".speaker = ", "expected"), ("nothing_of_the_kind", "no filter")] {
            let said = Edit::new(program).err().expect("refused").to_string();
            assert!(said.contains(why), "{program}: {said}");
        }
    }
}
