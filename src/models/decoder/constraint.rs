//! Answers that follow a JSON Schema: at each step, the tokens that keep the answer one that can
//! still become valid, by llguidance. JSON is written without white space between its parts, and
//! objects name their properties in the schema's order.
//!
//! A schema seldom says how long a text or a list may be, and a model that never closes one spends
//! all its tokens on it. So what a schema leaves open is bounded: an answer within the bounds is
//! valid by the schema as well.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{SimpleVob, TokEnv, TokTrie, TokenId, TokenizerEnv};
use llguidance::{JsonCompileOptions, Matcher, ParserFactory};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::vocabulary::Vocabulary;

/// The bounds of what a JSON Schema leaves open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SchemaBounds {
    /// Characters of a text whose schema has no `maxLength`, from 1.
    #[schemars(range(min = 1))]
    pub text_characters: u32,
    /// Items of a list whose schema has no `maxItems`, from 1. Objects have no properties but
    /// those that their schema names; where it names none, this many.
    #[schemars(range(min = 1))]
    pub items: u32,
    /// Numbers go from minus this to this where their schema has no bound and their `format` says
    /// nothing, from 1.
    #[schemars(range(min = 1))]
    pub numbers: u32,
}

impl Default for SchemaBounds {
    fn default() -> Self {
        Self { text_characters: 1_000, items: 32, numbers: 1_000_000_000 }
    }
}

impl SchemaBounds {
    /// Whether a bound is 0, which nothing could keep.
    pub(super) fn has_zero(&self) -> bool {
        [self.text_characters, self.items, self.numbers].contains(&0)
    }

    /// Adds the bounds to a schema and those in it, where it has none.
    fn apply(&self, schema: &mut Value) {
        match schema {
            Value::Array(schemas) => schemas.iter_mut().for_each(|schema| self.apply(schema)),
            Value::Object(schema) => {
                for (key, schema) in schema.iter_mut() {
                    // These hold values and no schemas.
                    if !["const", "enum", "default", "examples", "required"].contains(&key.as_str())
                    {
                        self.apply(schema);
                    }
                }
                self.bound(schema);
            }
            _ => {}
        }
    }

    fn bound(&self, schema: &mut Map<String, Value>) {
        let is = |kind: &str| match schema.get("type") {
            Some(Value::String(given)) => given == kind,
            Some(Value::Array(given)) => given.iter().any(|given| given == kind),
            _ => false,
        };
        let (text, list, object) = (is("string"), is("array"), is("object"));
        let number = is("number") || is("integer");
        let has = |keys: &[&str]| keys.iter().any(|key| schema.contains_key(*key));
        let text = text && !has(&["maxLength", "const", "enum", "pattern", "format"]);
        let list = list && !has(&["maxItems"]);
        // Together with others they may name properties that this one does not.
        let together = has(&["patternProperties", "allOf", "anyOf", "oneOf", "$ref"]);
        let named = has(&["properties"]);
        let closed = object && named && !together && !has(&["additionalProperties"]);
        let open = object && !named && !together && !has(&["maxProperties"]);
        let number = number && !has(&["const", "enum"]);
        let least = number && !has(&["minimum", "exclusiveMinimum"]);
        let most = number && !has(&["maximum", "exclusiveMaximum"]);
        let (lowest, highest) = self.range(schema.get("format"));
        for (bounds, key, bound) in [
            (least, "minimum", Value::from(lowest)),
            (most, "maximum", Value::from(highest)),
            (text, "maxLength", Value::from(self.text_characters)),
            (list, "maxItems", Value::from(self.items)),
            (closed, "additionalProperties", Value::from(false)),
            (open, "maxProperties", Value::from(self.items)),
        ] {
            if bounds {
                schema.insert(key.to_owned(), bound);
            }
        }
    }
}

impl SchemaBounds {
    /// From where to where numbers of a format go, by the names that schemars gives.
    fn range(&self, format: Option<&Value>) -> (i64, i64) {
        match format.and_then(Value::as_str) {
            Some("uint8") => (0, i64::from(u8::MAX)),
            Some("uint16") => (0, i64::from(u16::MAX)),
            Some("uint32") => (0, i64::from(u32::MAX)),
            Some("uint" | "uint64") => (0, i64::from(self.numbers)),
            Some("int8") => (i64::from(i8::MIN), i64::from(i8::MAX)),
            Some("int16") => (i64::from(i16::MIN), i64::from(i16::MAX)),
            Some("int32") => (i64::from(i32::MIN), i64::from(i32::MAX)),
            _ => (-i64::from(self.numbers), i64::from(self.numbers)),
        }
    }
}

/// Schemas whose grammars are remembered; a stage has one, or few.
const REMEMBERED: usize = 64;

/// Digits in a row after which another one is allowed only where nothing else is: no schema bounds
/// how many may stand behind a point, and some models never stop.
const DIGITS: usize = 16;

/// Makes constraints for one model.
pub(super) struct Constraints {
    vocabulary: Arc<Vocabulary>,
    /// Tokens that begin with a digit.
    digits: Arc<[u32]>,
    factory: ParserFactory,
    bounds: SchemaBounds,
    /// At the beginning of an answer, by schema, the oldest first.
    ready: RefCell<VecDeque<(Arc<str>, Matcher)>>,
}

/// What the grammar may ask of the tokenizer.
struct Environment {
    vocabulary: Arc<Vocabulary>,
    tree: TokTrie,
}

impl TokenizerEnv for Environment {
    fn tok_trie(&self) -> &TokTrie {
        &self.tree
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        if self.vocabulary.by_bytes()
            && let Ok(text) = std::str::from_utf8(bytes)
            && let Ok(tokens) = self.vocabulary.plain(text)
        {
            return tokens;
        }
        self.tree.greedy_tokenize(bytes)
    }

    fn tokenize_is_canonical(&self) -> bool {
        // Where a piece of a text has other tokens alone, none are forced upon the model.
        self.vocabulary.by_bytes()
    }
}

impl Constraints {
    /// # Errors
    /// The vocabulary cannot be used.
    pub(super) fn new(vocabulary: &Arc<Vocabulary>, bounds: SchemaBounds) -> Result<Self, String> {
        let tree = vocabulary.tree();
        let environment: TokEnv =
            Arc::new(Environment { vocabulary: Arc::clone(vocabulary), tree });
        let mut factory =
            ParserFactory::new_simple(&environment).map_err(|error| format!("{error:#}"))?;
        factory.quiet().limits_mut().verbose_errors = false;
        let begins = |token: &u32| vocabulary.bytes(*token).first().is_some_and(u8::is_ascii_digit);
        let digits = (0..vocabulary.len() as u32).filter(begins).collect();
        let vocabulary = Arc::clone(vocabulary);
        Ok(Self { vocabulary, digits, factory, bounds, ready: RefCell::default() })
    }

    /// For an answer that follows the JSON Schema.
    ///
    /// # Errors
    /// It is no JSON, or no schema that an answer can be held to.
    pub(super) fn json(&self, schema: &Arc<str>) -> Result<Constraint, String> {
        let mut ready = self.ready.borrow_mut();
        if let Some((_, matcher)) = ready.iter().find(|(known, _)| known == schema) {
            return Ok(self.begin(matcher.clone()));
        }
        let matcher = self.matcher(schema)?;
        if ready.len() == REMEMBERED {
            ready.pop_front();
        }
        ready.push_back((Arc::clone(schema), matcher.clone()));
        Ok(self.begin(matcher))
    }

    fn begin(&self, matcher: Matcher) -> Constraint {
        let (vocabulary, digits) = (Arc::clone(&self.vocabulary), Arc::clone(&self.digits));
        Constraint { matcher, vocabulary, digits, in_a_row: 0 }
    }

    fn matcher(&self, schema: &str) -> Result<Matcher, String> {
        let mut schema: Value =
            serde_json::from_str(schema).map_err(|error| format!("the schema: {error}"))?;
        if !schema.is_object() {
            return Err("the schema is no JSON object".to_owned());
        }
        self.bounds.apply(&mut schema);
        // Numbers' formats (schemars writes them) are known to no grammar. Alternatives of which
        // exactly one may hold become alternatives.
        let options = JsonCompileOptions {
            whitespace_flexible: false,
            coerce_one_of: true,
            lenient: true,
            ..JsonCompileOptions::default()
        };
        options.apply_to(&mut schema);
        let parser = self.factory.create_parser(TopLevelGrammar::from_json_schema(schema));
        let matcher = Matcher::new(parser);
        match matcher.get_error() {
            Some(error) => Err(format!("the schema: {error}")),
            None => Ok(matcher),
        }
    }
}

/// The state of one answer.
pub(super) struct Constraint {
    matcher: Matcher,
    vocabulary: Arc<Vocabulary>,
    digits: Arc<[u32]>,
    /// Digits that the answer ends with.
    in_a_row: usize,
}

impl Constraint {
    /// Which tokens may come next. Those that end the answer may where it is complete.
    ///
    /// # Errors
    /// The grammar takes more than its bounds allow.
    pub(super) fn allowed(&mut self) -> Result<SimpleVob, String> {
        let all = self.matcher.compute_mask_or_eos();
        let all = all.map_err(|error| format!("the schema: {error:#}"))?;
        if self.in_a_row < DIGITS {
            return Ok(all);
        }
        let mut others = all.clone();
        self.digits.iter().for_each(|token| others.disallow_token(*token));
        Ok(if others.num_set() > 0 { others } else { all })
    }

    /// A token was chosen.
    ///
    /// # Errors
    /// It was not allowed.
    pub(super) fn consume(&mut self, token: u32) -> Result<(), String> {
        self.see(token);
        self.matcher.consume_token(token).map_err(|error| format!("the schema: {error:#}"))
    }

    fn see(&mut self, token: u32) {
        let bytes = self.vocabulary.bytes(token);
        let digits = bytes.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        self.in_a_row = digits + if digits == bytes.len() { self.in_a_row } else { 0 };
    }

    /// The tokens that must come next, already consumed.
    pub(super) fn forced(&mut self) -> Vec<u32> {
        let forced = self.matcher.consume_ff_tokens();
        forced.iter().for_each(|token| self.see(*token));
        forced
    }

    /// Whether the answer is complete and nothing may follow.
    pub(super) fn is_finished(&self) -> bool {
        self.matcher.is_stopped()
    }

    /// Whether the answer is complete, whatever may follow.
    pub(super) fn is_complete(&mut self) -> bool {
        self.matcher.is_stopped() || self.matcher.is_accepting().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_schema_leaves_open_is_bounded_and_what_it_says_is_kept() {
        let bounds = SchemaBounds { text_characters: 9, items: 3, numbers: 50 };
        let mut schema = json!({
            "type": "object",
            "properties": {
                "free": { "type": "string" },
                "short": { "type": "string", "maxLength": 4 },
                "kind": { "type": "string", "enum": ["string"] },
                "list": { "type": "array", "items": { "$ref": "#/$defs/Free" } },
                "map": { "type": "object" },
                "share": { "type": "number", "maximum": 1 },
                "byte": { "type": "integer", "format": "uint8" },
                "type": { "type": ["string", "null"] },
            },
            "$defs": { "Free": { "type": "object", "properties": {}, "additionalProperties": true } },
        });
        bounds.apply(&mut schema);
        let expected = json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "free": { "type": "string", "maxLength": 9 },
                "short": { "type": "string", "maxLength": 4 },
                "kind": { "type": "string", "enum": ["string"] },
                "list": { "type": "array", "items": { "$ref": "#/$defs/Free" }, "maxItems": 3 },
                "map": { "type": "object", "maxProperties": 3 },
                "share": { "type": "number", "maximum": 1, "minimum": -50 },
                "byte": { "type": "integer", "format": "uint8", "minimum": 0, "maximum": 255 },
                "type": { "type": ["string", "null"], "maxLength": 9 },
            },
            "$defs": { "Free": { "type": "object", "properties": {}, "additionalProperties": true } },
        });
        assert_eq!(schema, expected);
    }
}
