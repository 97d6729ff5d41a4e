//! Validates an answer against its schema, and writes the message that asks a model to repair an
//! invalid one.

use jsonschema::Validator;
use serde_json::Value;

/// The most bytes of an invalid answer that are shown to the model.
const SHOWN_BYTES: usize = 8 << 10;
/// The most faults that are named to the model.
const NAMED: usize = 3;

/// A compiled JSON Schema.
pub(super) struct Schema {
    pub(super) value: Value,
    validator: Validator,
}

impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// The text is not a JSON Schema.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let validator = jsonschema::validator_for(&value).map_err(|error| error.to_string())?;
        Ok(Self { value, validator })
    }

    /// Extracts and validates the JSON of an answer.
    ///
    /// # Errors
    /// What is wrong with the answer; `short` abbreviates its text for the message.
    pub(super) fn check<'a>(
        &self,
        answer: &'a str,
        short: impl Fn(&str) -> String,
    ) -> Result<&'a str, String> {
        let (json, value) = find(answer)?;
        let faults: Vec<String> = self
            .validator
            .iter_errors(&value)
            .take(NAMED)
            .map(|fault| {
                let place = fault.instance_path().to_string();
                let place = if place.is_empty() { "the whole".to_owned() } else { place };
                format!("{place}: {}", short(&fault.to_string()))
            })
            .collect();
        if faults.is_empty() { Ok(json) } else { Err(faults.join("; ")) }
    }
}

/// Finds the first JSON object or list in a text, or parses the whole text as JSON. Models that are
/// merely told to write JSON often put it into a code fence or a sentence.
fn find(text: &str) -> Result<(&str, Value), String> {
    let whole = text.trim();
    let error = match serde_json::from_str(whole) {
        Ok(value) => return Ok((whole, value)),
        Err(error) => error,
    };
    let begin = text.find(['{', '[']).ok_or_else(|| "there is no JSON in it".to_owned())?;
    let rest = &text[begin..];
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
    match values.next() {
        Some(Ok(value)) => Ok((&rest[..values.byte_offset()], value)),
        Some(Err(error)) if begin > 0 => Err(format!("not JSON: {error}")),
        _ => Err(format!("not JSON: {error}")),
    }
}

/// An invalid answer, abbreviated for the model.
pub(super) fn shown(answer: &str) -> String {
    let mut end = SHOWN_BYTES.min(answer.len());
    while !answer.is_char_boundary(end) {
        end -= 1;
    }
    answer[..end].to_owned()
}

/// The message to a model whose answer was invalid.
pub(super) fn repair(wrong: &str, cut_short: bool) -> String {
    let shorter = if cut_short { " It was broken off for its length; be shorter." } else { "" };
    format!(
        "That answer cannot be used ({wrong}).{shorter} Answer again, with the JSON value alone: no \
         explanation, no code fence."
    )
}

#[cfg(test)]
mod tests {
    use super::super::failure::excerpt;
    use super::*;

    const SCHEMA: &str = r#"{"type":"object","required":["use"],"additionalProperties":false,
        "properties":{"use":{"type":"boolean"}}}"#;

    #[test]
    fn json_is_found_in_what_models_put_around_it() {
        let schema = Schema::read(SCHEMA).unwrap();
        let short = |text: &str| excerpt(text, None);
        for (answer, json) in [
            (r#" {"use":true} "#, r#"{"use":true}"#),
            ("```json\n{\"use\": true}\n```", r#"{"use": true}"#),
            (r#"Sure! {"use":false}. Anything else?"#, r#"{"use":false}"#),
        ] {
            assert_eq!(schema.check(answer, short), Ok(json), "{answer}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let schema = Schema::read(SCHEMA).unwrap();
        let short = |text: &str| excerpt(text, None);
        for (answer, says) in [
            ("no idea", "no JSON"),
            (r#"{"use":tr"#, "not JSON"),
            (r#"{"use":"yes"}"#, "/use: \"yes\" is not of type"),
            ("{}", "the whole: \"use\" is a required"),
            (r#"{"use":true,"more":1}"#, "'more' was unexpected"),
            ("[1]", "object"),
        ] {
            let wrong = schema.check(answer, short).unwrap_err();
            assert!(wrong.contains(says), "{answer}: {wrong}");
        }
        let long = format!(r#"{{"use":"{}"}}"#, "x".repeat(10_000));
        assert!(schema.check(&long, short).unwrap_err().len() < 1_000);
        assert!(Schema::read("{").is_err());
        assert!(Schema::read(r#"{"type":"strange"}"#).is_err());
    }

    #[test]
    fn a_bad_answer_is_shown_in_part() {
        let answer = "é".repeat(SHOWN_BYTES);
        assert_eq!(shown(&answer).len(), SHOWN_BYTES);
        assert_eq!(shown("short"), "short");
    }
}
