//! Replaces `${NAME}` and `${NAME:default}` in the strings of a configuration.
//!
//! A default replaces a variable that is not set; an empty variable counts as set. The default may
//! be empty and runs to the next `}`. `$$` is a dollar sign. Any other dollar sign stands for
//! itself, so that patterns such as `^turns$` need no escape.

use std::env::VarError;

/// Reads a variable of the environment. Tests inject another function.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Result<String, VarError>;

/// A string with its variables replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Interpolated {
    /// The result.
    pub(super) text: String,
    /// Whether the string names a variable, set or not.
    pub(super) names_variables: bool,
    /// The values that came from the environment.
    pub(super) values: Vec<String>,
}

/// Why variables cannot be replaced. Names variables, never their values.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Flaw {
    #[error("the environment variable {0} is not set")]
    Unset(String),
    #[error("the environment variable {0} is not UTF-8")]
    NotUnicode(String),
    #[error("`${{` without `}}`")]
    Unclosed,
    #[error("`${{{0}}}` does not name an environment variable")]
    Name(String),
}

impl Flaw {
    /// The remedy.
    pub(super) fn remedy(&self) -> String {
        match self {
            Self::Unset(name) => format!("set it, or write ${{{name}:default}}"),
            Self::NotUnicode(name) => format!("set {name} to UTF-8 text"),
            Self::Unclosed | Self::Name(_) => {
                "write ${NAME} or ${NAME:default}, and $$ for a dollar sign".to_owned()
            }
        }
    }
}

/// Replaces the variables in `raw`.
pub(super) fn interpolate(raw: &str, lookup: Lookup<'_>) -> Result<Interpolated, Flaw> {
    let mut done = Interpolated { text: String::new(), names_variables: false, values: Vec::new() };
    let mut rest = raw;
    while let Some(dollar) = rest.find('$') {
        let (before, from) = rest.split_at(dollar);
        done.text.push_str(before);
        if let Some(after) = from.strip_prefix("$$") {
            done.text.push('$');
            rest = after;
        } else if let Some(after) = from.strip_prefix("${") {
            let (inside, after) = after.split_once('}').ok_or(Flaw::Unclosed)?;
            done.names_variables = true;
            variable(inside, lookup, &mut done)?;
            rest = after;
        } else {
            done.text.push('$');
            rest = &from[1..];
        }
    }
    done.text.push_str(rest);
    Ok(done)
}

/// Replaces one variable. `inside` is the text between the braces.
fn variable(inside: &str, lookup: Lookup<'_>, done: &mut Interpolated) -> Result<(), Flaw> {
    let (name, default) = match inside.split_once(':') {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    if !is_name(name) {
        // Only the name: a default may hold a secret.
        return Err(Flaw::Name(name.to_owned()));
    }
    match (lookup(name), default) {
        (Ok(value), _) => {
            done.text.push_str(&value);
            done.values.push(value);
            Ok(())
        }
        (Err(VarError::NotPresent), Some(default)) => {
            done.text.push_str(default);
            Ok(())
        }
        (Err(VarError::NotPresent), None) => Err(Flaw::Unset(name.to_owned())),
        (Err(VarError::NotUnicode(_)), _) => Err(Flaw::NotUnicode(name.to_owned())),
    }
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Result<String, VarError> {
        match name {
            "HOST" => Ok("broker".to_owned()),
            "EMPTY" => Ok(String::new()),
            "BYTES" => Err(VarError::NotUnicode("?".into())),
            _ => Err(VarError::NotPresent),
        }
    }

    #[test]
    fn rows() {
        for (raw, text) in [
            ("plain", "plain"),
            ("${HOST}:9092", "broker:9092"),
            ("a ${HOST} b ${HOST} c", "a broker b broker c"),
            ("${NONE:localhost:9092}", "localhost:9092"),
            ("${NONE:}", ""),
            ("${EMPTY:x}", ""),
            ("${HOST:x}", "broker"),
            ("$${HOST}", "${HOST}"),
            ("$$$$", "$$"),
            ("^turns$", "^turns$"),
            ("5$ and $x", "5$ and $x"),
            ("ü${HOST}ü", "übrokerü"),
        ] {
            assert_eq!(interpolate(raw, &lookup).map(|done| done.text).as_deref(), Ok(text));
        }
    }

    #[test]
    fn flaws() {
        for (raw, flaw) in [
            ("${NONE}", Flaw::Unset("NONE".into())),
            ("${BYTES:x}", Flaw::NotUnicode("BYTES".into())),
            ("${HOST", Flaw::Unclosed),
            ("${}", Flaw::Name(String::new())),
            ("${1A:secret}", Flaw::Name("1A".into())),
            ("${A-B}", Flaw::Name("A-B".into())),
        ] {
            assert_eq!(interpolate(raw, &lookup), Err(flaw), "{raw}");
        }
    }

    #[test]
    fn values_from_the_environment_are_told_apart() {
        let done = interpolate("${HOST}${NONE:d}", &lookup).expect("fine");
        assert!(done.names_variables);
        assert_eq!(done.values, ["broker"]);
        assert!(!interpolate("$$x", &lookup).expect("fine").names_variables);
    }
}
