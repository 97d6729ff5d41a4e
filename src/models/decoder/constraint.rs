//! Answers that follow a JSON Schema. At each step, llguidance computes the tokens after which the
//! answer can still become valid. JSON has no white space between its parts, and objects name their
//! properties in the schema's order.
//!
//! A schema rarely limits the length of a text or a list, and a model that never closes one spends
//! all its tokens on it. Limits are therefore added where the schema has none; an answer within the
//! limits is still valid by the schema.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{SimpleVob, TokEnv, TokTrie, TokenId, TokenizerEnv};
use llguidance::{JsonCompileOptions, Matcher, ParserFactory};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::vocabulary::DecoderVocabulary;

/// The bounds of what a JSON Schema leaves open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SchemaBounds {
    /// Most characters of a text whose schema has no `maxLength`, from 1.
    #[schemars(range(min = 1))]
    pub text_characters: u32,
    /// Most items of a list whose schema has no `maxItems`, from 1. Objects have only the
    /// properties that their schema names; if it names none, at most this many.
    #[schemars(range(min = 1))]
    pub items: u32,
    /// Numbers go from minus this to this if their schema has no bound and their `format` implies
    /// none, from 1.
    #[schemars(range(min = 1))]
    pub numbers: u32,
}

impl Default for SchemaBounds {
    fn default() -> Self {
        Self { text_characters: 1_000, items: 32, numbers: 1_000_000_000 }
    }
}

impl SchemaBounds {
    /// Whether a bound is 0, which no answer could satisfy.
    pub(super) fn has_zero(&self) -> bool {
        [self.text_characters, self.items, self.numbers].contains(&0)
    }

    /// Adds the missing bounds to a schema and its subschemas.
    fn apply(&self, schema: &mut Value) {
        match schema {
            Value::Array(schemas) => schemas.iter_mut().for_each(|schema| self.apply(schema)),
            Value::Object(schema) => {
                for (key, schema) in schema.iter_mut() {
                    // These keys hold values, not schemas.
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
        // These keywords may name further properties.
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
    /// The range of numbers of a format, by the format names of schemars.
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

/// The most grammars kept; a stage uses one or a few.
const REMEMBERED: usize = 64;

/// After this many digits in a row, another digit is allowed only if no other token is. No schema
/// limits the digits after a decimal point, and some models never stop.
const DIGITS: usize = 16;

/// Makes constraints for one model.
pub(super) struct Constraints {
    vocabulary: Arc<DecoderVocabulary>,
    /// Tokens that begin with a digit.
    digits: Arc<[u32]>,
    factory: ParserFactory,
    bounds: SchemaBounds,
    /// Grammars at the beginning of an answer, by schema, the oldest first.
    ready: RefCell<VecDeque<(Arc<str>, Matcher)>>,
}

/// The tokenizer, as the grammar sees it.
struct Environment {
    vocabulary: Arc<DecoderVocabulary>,
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
        // Tokens may be forced only if a piece of a text has the same tokens alone.
        self.vocabulary.by_bytes()
    }
}

impl Constraints {
    /// Prepares the vocabulary for grammars.
    ///
    /// # Errors
    /// The vocabulary cannot be used.
    pub(super) fn new(
        vocabulary: &Arc<DecoderVocabulary>,
        bounds: SchemaBounds,
    ) -> Result<Self, String> {
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

    /// Makes the constraint for an answer that follows a JSON Schema.
    ///
    /// # Errors
    /// The schema is not JSON, or cannot be enforced.
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
            return Err("the schema is not a JSON object".to_owned());
        }
        self.bounds.apply(&mut schema);
        // The grammar does not know the number formats that schemars writes. `oneOf` is treated as
        // `anyOf`.
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
    vocabulary: Arc<DecoderVocabulary>,
    digits: Arc<[u32]>,
    /// Digits at the end of the answer so far.
    in_a_row: usize,
}

impl Constraint {
    /// Returns the tokens that may come next, including those that end a complete answer.
    ///
    /// # Errors
    /// The grammar exceeds its limits.
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

    /// Advances by the chosen token.
    ///
    /// # Errors
    /// The token was not allowed.
    pub(super) fn consume(&mut self, token: u32) -> Result<(), String> {
        self.see(token);
        self.matcher.consume_token(token).map_err(|error| format!("the schema: {error:#}"))
    }

    fn see(&mut self, token: u32) {
        let bytes = self.vocabulary.bytes(token);
        let digits = bytes.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        self.in_a_row = digits + if digits == bytes.len() { self.in_a_row } else { 0 };
    }

    /// Consumes and returns the tokens that must come next.
    pub(super) fn forced(&mut self) -> Vec<u32> {
        let forced = self.matcher.consume_ff_tokens();
        forced.iter().for_each(|token| self.see(*token));
        forced
    }

    /// Whether the answer is complete and cannot continue.
    pub(super) fn is_finished(&self) -> bool {
        self.matcher.is_stopped()
    }

    /// Whether the answer is complete, even if it can continue.
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
