//! Reads a model's text or JSON into the answer type of a stage.

use schemars::{JsonSchema, schema_for};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use turnstream_schemas::{
    ConsistencyAnswer, DecisionAnswer, GateAnswer, PlanAnswer, QueriesAnswer, RelevanceAnswer,
    RevisionAnswer, SelectionAnswer, TopicsAnswer,
};

/// Longest piece of an answer that an error message repeats, in characters.
const MOST_REPEATED: usize = 80;

/// The type of a model's answer to a stage.
pub(crate) trait PromptAnswer: DeserializeOwned + JsonSchema + 'static {
    /// The property that holds the thought, where the stage thinks.
    const THOUGHT: Option<&'static str>;

    /// Returns the thought.
    fn thought(&self) -> &str {
        ""
    }

    /// Returns the JSON Schema of the answer, with the thought or without; `None` where it is text.
    fn schema(thinks: bool) -> Option<String> {
        let mut schema = schema_for!(Self).to_value();
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            if let Some(thought) = Self::THOUGHT.filter(|_| !thinks) {
                properties.shift_remove(thought);
            }
            // The model must write properties that have a default too.
            let required = properties.keys().cloned().collect::<Vec<_>>();
            schema["required"] = required.into();
        }
        Some(schema.to_string())
    }

    /// Reads an answer. Text around the JSON is ignored.
    ///
    /// # Errors
    /// The reason why the answer cannot be read.
    fn read(text: &str) -> Result<Self, String> {
        let begin = text.find('{');
        let json = begin.and_then(|begin| text.get(begin..=text.rfind('}')?));
        let shown: String = text.chars().take(MOST_REPEATED).collect();
        let json = json.ok_or_else(|| format!("no JSON object in {shown:?}"))?;
        serde_json::from_str(json).map_err(|error| format!("{error} in {shown:?}"))
    }
}

/// An answer of plain text, without a schema.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) struct Words(pub String);

impl PromptAnswer for Words {
    const THOUGHT: Option<&'static str> = None;

    fn schema(_: bool) -> Option<String> {
        None
    }

    fn read(text: &str) -> Result<Self, String> {
        Ok(Self(text.to_owned()))
    }
}

impl PromptAnswer for GateAnswer {
    const THOUGHT: Option<&'static str> = None;

    /// Reads an answer that is not JSON as RAGate's authors do: "false" anywhere means no, else "true"
    /// anywhere means yes. An answer with neither cannot be read.
    fn read(text: &str) -> Result<Self, String> {
        let lower = text.to_lowercase();
        match (lower.contains("false"), lower.contains("true")) {
            (true, _) => Ok(Self { needs_knowledge: false }),
            (false, true) => Ok(Self { needs_knowledge: true }),
            (false, false) => {
                let shown: String = text.chars().take(MOST_REPEATED).collect();
                Err(format!("neither true nor false in {shown:?}"))
            }
        }
    }
}

impl PromptAnswer for PlanAnswer {
    const THOUGHT: Option<&'static str> = None;
}

impl PromptAnswer for RelevanceAnswer {
    const THOUGHT: Option<&'static str> = None;
}

impl PromptAnswer for DecisionAnswer {
    const THOUGHT: Option<&'static str> = None;
}

impl PromptAnswer for ConsistencyAnswer {
    const THOUGHT: Option<&'static str> = None;
}

impl PromptAnswer for QueriesAnswer {
    const THOUGHT: Option<&'static str> = Some("aim");

    fn thought(&self) -> &str {
        &self.aim
    }
}

impl PromptAnswer for TopicsAnswer {
    const THOUGHT: Option<&'static str> = Some("course");

    fn thought(&self) -> &str {
        &self.course
    }
}

impl PromptAnswer for RevisionAnswer {
    const THOUGHT: Option<&'static str> = Some("changes");

    fn thought(&self) -> &str {
        &self.changes
    }
}

impl PromptAnswer for SelectionAnswer {
    const THOUGHT: Option<&'static str> = None;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_around_the_json_is_passed_over() {
        let text =
            "Sure!\n```json\n{\"aim\": \"a\", \"explicit\": [\"tea\"], \"implicit\": []}\n```";
        let answer = QueriesAnswer::read(text).expect("an answer");
        assert_eq!((answer.thought(), &*answer.explicit), ("a", &["tea".to_owned()][..]));
        for (wrong, says) in [
            ("I think so", "no JSON object"),
            ("{\"explicit\": [1], \"implicit\": []}", "expected a string"),
            ("{\"explicit\": []}", "missing field `implicit`"),
            ("} {", "no JSON object"),
        ] {
            let reason = QueriesAnswer::read(wrong).expect_err(wrong);
            assert!(reason.contains(says), "{reason}");
        }
    }

    #[test]
    fn the_gate_reads_true_and_false_as_its_authors_do() {
        for (text, needs) in [
            ("{\"needs_knowledge\": true}", Ok(true)),
            ("True", Ok(true)),
            ("It is FALSE that this is true.", Ok(false)),
            ("perhaps", Err(())),
        ] {
            let answer = GateAnswer::read(text).map(|answer| answer.needs_knowledge);
            assert_eq!(answer.map_err(|_| ()), needs, "{text}");
        }
    }

    #[test]
    fn a_thought_comes_first_in_a_schema_or_not_at_all() {
        fn properties<A: PromptAnswer>(thinks: bool) -> Vec<String> {
            let schema: Value =
                serde_json::from_str(&A::schema(thinks).expect("one")).expect("JSON");
            let required = schema["required"].as_array().expect("required").len();
            let names: Vec<_> =
                schema["properties"].as_object().expect("properties").keys().cloned().collect();
            assert_eq!(required, names.len(), "everything is required");
            names
        }
        for names in [
            properties::<QueriesAnswer>(true),
            properties::<TopicsAnswer>(true),
            properties::<RevisionAnswer>(true),
        ] {
            assert!(["aim", "course", "changes"].contains(&&*names[0]), "{names:?}");
        }
        assert_eq!(properties::<QueriesAnswer>(false), ["explicit", "implicit"]);
    }
}
