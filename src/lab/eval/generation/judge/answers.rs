//! Reads the judge's answers, as JSON by a schema. The schema constrains the form; range checks
//! cover the rest (a rating within its bounds, as many verdicts as statements).

use std::sync::Arc;

use schemars::{JsonSchema, schema_for};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The most characters of an answer that an error message repeats.
const MOST_REPEATED: usize = 80;

/// How engaging a response is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Engagement {
    /// 0 to 100.
    #[schemars(range(min = 0, max = 100))]
    pub score: f64,
}

/// How informative a response is, and how good in all.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Quality {
    /// 1 to 5.
    #[schemars(range(min = 1, max = 5))]
    pub informativeness: i64,
    /// 1 to 5.
    #[schemars(range(min = 1, max = 5))]
    pub overall: i64,
}

/// Which evidence is of use.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Relevance {
    /// Its numbers, from 1.
    #[schemars(length(max = 40), inner(range(min = 1, max = 999)))]
    pub relevant: Vec<usize>,
}

/// What a response states.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Statements {
    /// Short sentences.
    #[schemars(length(max = 8), inner(length(min = 1, max = 160)))]
    pub statements: Vec<String>,
}

/// Which statements the evidence bears out.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Support {
    /// A verdict for each.
    #[schemars(length(max = 8))]
    pub supported: Vec<bool>,
}

/// What a response would answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Questions {
    /// What may have been said before it.
    #[schemars(length(min = 1, max = 3), inner(length(min = 1, max = 160)))]
    pub utterances: Vec<String>,
}

/// Returns the JSON Schema of an answer.
pub(super) fn schema<A: JsonSchema>() -> Arc<str> {
    schema_for!(A).to_value().to_string().into()
}

/// Reads an answer, ignoring text around the JSON.
pub(super) fn read<A: DeserializeOwned>(text: &str) -> Result<A, String> {
    let begin = text.find('{');
    let json = begin.and_then(|begin| text.get(begin..=text.rfind('}')?));
    let shown: String = text.chars().take(MOST_REPEATED).collect();
    let json = json.ok_or_else(|| format!("no JSON object in {shown:?}"))?;
    serde_json::from_str(json).map_err(|error| format!("{error} in {shown:?}"))
}

/// Checks that a number is within its bounds.
pub(super) fn within(name: &str, value: f64, (low, high): (f64, f64)) -> Result<f64, String> {
    let fits = (low..=high).contains(&value);
    fits.then_some(value).ok_or_else(|| format!("{name} is {value}, and not from {low} to {high}"))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn answers_are_read_out_of_what_stands_around_them() {
        let answer: Relevance = read("Well:\n```\n{\"relevant\": [2, 1]}\n```").expect("read");
        assert_eq!(answer.relevant, [2, 1]);
        let wrong = |text| read::<Quality>(text).map(|_| ()).expect_err("refused");
        assert!(wrong("five").contains("no JSON object"));
        assert!(wrong("{\"overall\": 4}").contains("informativeness"));
        assert!(wrong("{\"overall\": 4, \"informativeness\": 2.5}").contains("2.5"));
        assert!(within("score", 101.0, (0.0, 100.0)).is_err());
        assert_eq!(within("score", 0.0, (0.0, 100.0)), Ok(0.0));
    }

    #[test]
    fn schemas_bound_what_can_be_written() {
        let quality: Value = serde_json::from_str(&schema::<Quality>()).expect("JSON");
        assert_eq!(quality["properties"]["overall"]["maximum"], 5);
        assert_eq!(quality["required"].as_array().map(Vec::len), Some(2));
        assert_eq!(quality["additionalProperties"], false);
    }
}
