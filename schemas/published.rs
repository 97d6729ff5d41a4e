//! Generates the JSON Schemas, which are published under `schemas/json/` and printed by
//! `turnstream schema NAME`.

use schemars::Schema;

/// One published schema.
#[derive(Clone, Copy)]
pub struct Published {
    /// The name on the command line and of the file, without `.schema.json`.
    pub name: &'static str,
    /// One line about the record.
    pub about: &'static str,
    generate: fn() -> Schema,
}

impl Published {
    /// Returns the schema as in the committed file: pretty JSON with a final newline.
    pub fn text(&self) -> String {
        // A schema is a JSON value, so writing it to a string cannot fail.
        let mut text =
            serde_json::to_string_pretty(&(self.generate)()).unwrap_or_else(|_| "{}".to_owned());
        text.push('\n');
        text
    }
}

macro_rules! published {
    ($($name:literal, $type:ty, $about:literal;)*) => {
        /// All published schemas.
        pub const ALL: &[Published] = &[$(Published {
            name: $name,
            about: $about,
            generate: || schemars::schema_for!($type),
        }),*];
    };
}

published! {
    "turn", crate::TurnsRecord, "an input on the `turns` topic";
    "response", crate::Response, "an answer on the `responses` topic";
    "recorded", crate::Recorded, "an input that was recorded and not answered";
    "dead-letter", crate::DeadLetter, "an input that could not be served, as JSON lines hold it";
    "conversation", crate::ConversationRecord, "the value of a record on the `conversations` topic";
    "partial", crate::PartialResponse, "the value of a record on the `partials` topic";
    "history-key", crate::EntryKey, "the key of a record on the `history` topic";
    "history-entry", crate::HistoryEntry, "an entry on the `history` topic";
    "history-scope", crate::ScopeRecord, "the scope record on the `history` topic";
    "history-change", crate::HistoryChange, "a line of `replay --out-history`";
    "knowledge-key", crate::FactKey, "the key of a fact on the `knowledge` topic";
    "knowledge-value", crate::FactValue, "the value of a fact on the `knowledge` topic";
    "phrasing-key", crate::PhrasingKey, "the key of a phrasing on the `knowledge` topic";
    "phrasing-value", crate::PhrasingValue, "the value of a phrasing on the `knowledge` topic";
    "view-key", crate::ViewKey, "the key of a record on the `views` topic";
    "view-value", crate::ViewValue, "the value of a record on the `views` topic";
    "queries", crate::Queries, "what query production gives";
    "topics", crate::Topics, "what topic planning gives";
    "demand", crate::Demand, "what cross revision gives";
    "evidence", crate::Evidence, "one piece of evidence";
    "answer-gate", crate::GateAnswer, "what a language model answers the gate";
    "answer-plan", crate::PlanAnswer, "what a language model answers source planning";
    "answer-queries", crate::QueriesAnswer, "what a language model answers query production";
    "answer-topics", crate::TopicsAnswer, "what a language model answers topic planning";
    "answer-revision", crate::RevisionAnswer, "what a language model answers cross revision";
    "answer-relevance", crate::RelevanceAnswer, "what a language model answers relevance";
    "answer-decision", crate::DecisionAnswer, "what a language model answers the decision";
    "answer-consistency", crate::ConsistencyAnswer, "what a language model answers consistency";
    "answer-selection", crate::SelectionAnswer, "what a language model answers fact selection";
}

/// Returns the published schema of that name.
pub fn find(name: &str) -> Option<Published> {
    ALL.iter().copied().find(|schema| schema.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `UPDATE_SCHEMAS=1 cargo test` rewrites the files.
    #[test]
    fn committed_schemas_are_those_of_the_types() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("json");
        for schema in ALL {
            let file = folder.join(format!("{}.schema.json", schema.name));
            if std::env::var_os("UPDATE_SCHEMAS").is_some() {
                std::fs::write(&file, schema.text()).unwrap();
            }
            let committed = std::fs::read_to_string(&file)
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            assert_eq!(
                committed,
                schema.text(),
                "{} differs from its type; run the test once with UPDATE_SCHEMAS=1",
                file.display()
            );
        }
        let files = std::fs::read_dir(&folder).unwrap().count();
        assert_eq!(files, ALL.len(), "a file in schemas/json has no type");
    }
}
