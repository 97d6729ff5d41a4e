//! Checks a document against the JSON Schema of the type that it is read into.
//!
//! The schema is generated from the structs that serde reads, so the check knows every key, type
//! and range without a second list. It runs before serde, because it finds all problems at once,
//! suggests the nearest key, and never quotes a value that must not be shown. Serde still decides
//! last.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};
use turnstream_ports::secret::without_userinfo;

use super::document::{Document, Places};
use super::problem::{Bare, KeyPath, Problem};
use super::schema::{alternatives, elsewhere, expected, known_keys, pick, sentence};

/// Longest quote of a string in a message, in characters.
const MAX_QUOTED_CHARS: usize = 40;

/// The schema of a type, with everything inlined.
pub(super) fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|it| it.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// Checks keys, types and ranges. Returns these problems together with those of the document.
/// Strings from the environment become numbers or booleans where those are expected.
pub(super) fn check(document: &mut Document, schema: &Value) -> Vec<Problem> {
    let mut checker =
        Checker { file: &document.file, places: &document.places, root: schema, found: Vec::new() };
    checker.value(&mut document.value, schema, &KeyPath::root());
    let mut found = checker.found;
    found.append(&mut document.problems);
    found.sort_by_key(|problem| problem.line);
    found
}

struct Checker<'a> {
    file: &'a str,
    places: &'a Places,
    root: &'a Value,
    found: Vec<Problem>,
}

impl Checker<'_> {
    fn value(&mut self, value: &mut Value, schema: &Value, path: &KeyPath) {
        let allowed = alternatives(schema);
        match self.places.get(path) {
            Some(place) if place.flawed => return,
            Some(place) if place.raw.is_some() => coerce(value, &allowed),
            _ => {}
        }
        let of_type = |name: &str| -> Vec<&Map<String, Value>> {
            allowed.iter().filter(|it| has_type(it, name)).collect()
        };
        match value {
            Value::Object(table) if !of_type("object").is_empty() => {
                self.table(table, &of_type("object"), path);
            }
            Value::Array(list) if !of_type("array").is_empty() => {
                if allowed.iter().any(|it| fits_length(list.len(), it, "minItems", "maxItems")) {
                    self.list(list, &of_type("array"), path);
                } else {
                    self.mismatch(&format!("a list of {}", list.len()), &allowed, path, schema);
                }
            }
            scalar if allowed.is_empty() || allowed.iter().any(|it| accepts(it, scalar)) => {}
            other => {
                let found = self.shown(other, path);
                self.mismatch(&found, &allowed, path, schema);
                self.hint(other, &allowed, path);
            }
        }
    }

    fn list(&mut self, list: &mut [Value], allowed: &[&Map<String, Value>], path: &KeyPath) {
        if let Some(items) = allowed.iter().find_map(|it| it.get("items")) {
            for (index, item) in list.iter_mut().enumerate() {
                self.value(item, items, &path.index(index));
            }
        }
    }

    fn table(
        &mut self,
        table: &mut Map<String, Value>,
        allowed: &[&Map<String, Value>],
        path: &KeyPath,
    ) {
        let chosen = match pick(allowed, table) {
            Ok(chosen) => chosen,
            Err((tag, choices)) => return self.tag(table.get(&tag), &tag, &choices, path),
        };
        let none = Map::new();
        let keys = chosen.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let others = chosen.get("additionalProperties").or(chosen.get("unevaluatedProperties"));
        for (name, value) in table.iter_mut() {
            match (keys.get(name), others) {
                (Some(schema), _) => self.value(value, schema, &path.key(name)),
                (None, Some(Value::Bool(false))) => self.unknown(name, &known_keys(chosen), path),
                (None, Some(schema)) => self.value(value, schema, &path.key(name)),
                (None, None) => {}
            }
        }
        let required = chosen.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !table.contains_key(name) {
                let schema = keys.get(name).unwrap_or(&Value::Null);
                let message = format!("missing; expected {}", expected(&alternatives(schema)));
                self.problem(&path.key(name), message, meaning(schema));
            }
        }
    }

    /// Reports that the key that selects a variant is missing or names none.
    fn tag(&mut self, found: Option<&Value>, tag: &str, choices: &[String], path: &KeyPath) {
        let path = path.key(tag);
        if self.places.get(&path).is_some_and(|place| place.flawed) {
            return;
        }
        let choices_shown: Vec<String> = choices.iter().map(|it| format!("{it:?}")).collect();
        let choices_shown = choices_shown.join(", ");
        let (message, remedy) = match found {
            None => ("missing".to_owned(), format!("write one of {choices_shown}")),
            Some(found) => (
                format!("expected one of {choices_shown}, found {}", self.shown(found, &path)),
                found
                    .as_str()
                    .filter(|_| !self.places.is_concealed(&path))
                    .and_then(|found| nearest(found, choices.iter().map(String::as_str)))
                    .map_or(String::new(), |near| format!("did you mean {near:?}?")),
            ),
        };
        self.problem(&path, message, remedy);
    }

    fn unknown(&mut self, name: &str, known: &[String], path: &KeyPath) {
        let here = path.key(name);
        let keys = format!("the keys here are {}", known.join(", "));
        let remedy = if let Some(near) = nearest(name, known.iter().map(String::as_str)) {
            format!("did you mean `{}`?", Bare(near))
        } else {
            match elsewhere(self.root, name) {
                Some(place) if place == path.to_string() => {
                    format!("it goes with another `kind`; {keys}")
                }
                Some(place) => format!("`{name}` is a key of [{place}]"),
                None => keys,
            }
        };
        self.problem(&here, "there is no such key".to_owned(), remedy);
    }

    fn mismatch(
        &mut self,
        found: &str,
        allowed: &[Map<String, Value>],
        path: &KeyPath,
        schema: &Value,
    ) {
        let message = format!("expected {}, found {found}", expected(allowed));
        self.problem(path, message, meaning(schema));
    }

    /// Replaces the remedy of the last problem if a better one is known.
    fn hint(&mut self, found: &Value, allowed: &[Map<String, Value>], path: &KeyPath) {
        let choices = allowed.iter().filter_map(|it| it.get("const").and_then(Value::as_str));
        let listed = allowed.iter().filter_map(|it| it.get("enum").and_then(Value::as_array));
        let choices = choices.chain(listed.flatten().filter_map(Value::as_str));
        let remedy = match found {
            Value::String(found) if !self.places.is_concealed(path) => {
                nearest(found, choices).map(|near| format!("did you mean {near:?}?"))
            }
            // `sasl.password = "x"` without quotes around the key makes a table in a table.
            Value::Object(inner) if allowed.iter().any(|it| has_type(it, "string")) => {
                let name = path.names().last().unwrap_or_default();
                inner.keys().next().map(|next| {
                    format!("a key with dots in it is written in quotes: \"{name}.{next}\" = …")
                })
            }
            _ => None,
        };
        if let (Some(remedy), Some(last)) = (remedy, self.found.last_mut()) {
            last.remedy = remedy;
        }
    }

    /// A value as messages show it.
    fn shown(&self, value: &Value, path: &KeyPath) -> String {
        let concealed = self.places.is_concealed(path);
        match value {
            Value::Object(_) => "a table".to_owned(),
            Value::Array(_) => "a list".to_owned(),
            Value::String(_) if concealed => "a string that is not shown here".to_owned(),
            _ if concealed => "a value that is not shown here".to_owned(),
            Value::String(text) => {
                let text = without_userinfo(text);
                let cut: String = text.chars().take(MAX_QUOTED_CHARS).collect();
                let more = if cut.len() < text.len() { "…" } else { "" };
                format!("the string {cut:?}{more}")
            }
            other => other.to_string(),
        }
    }

    fn problem(&mut self, path: &KeyPath, message: String, remedy: String) {
        self.found.push(Problem {
            file: self.file.to_owned(),
            line: self.places.line(path),
            key: path.to_string(),
            message,
            remedy,
        });
    }
}

fn meaning(schema: &Value) -> String {
    sentence(schema).map_or(String::new(), |sentence| format!("meaning: {sentence}"))
}

/// The nearest of some names: one that is few edits away (one in three letters), or else one that
/// `name` shortens (`tresh` for `threshold`). Ties go to the alphabetically first name.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let known: Vec<&str> = known.collect();
    let allowed = (name.chars().count() / 3).max(1);
    let edits = known.iter().map(|it| (strsim::damerau_levenshtein(name, it), *it));
    let few = edits.filter(|(edits, _)| *edits <= allowed).min();
    let shortened = || {
        let longer = known.iter().filter(|it| shortens(name, it));
        longer.map(|it| (it.len(), *it)).min()
    };
    few.or_else(shortened).map(|(_, it)| it)
}

/// Whether `short` has three or more letters, which occur in `long` in the same order, and both
/// begin with the same letter.
fn shortens(short: &str, long: &str) -> bool {
    let mut letters = long.chars();
    short.chars().count() >= 3
        && short.chars().next() == long.chars().next()
        && short.chars().all(|letter| letters.any(|it| it == letter))
}

fn has_type(schema: &Map<String, Value>, name: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(of)) => of == name,
        Some(Value::Array(any)) => any.iter().any(|of| of == name),
        _ => false,
    }
}

/// Converts a string from the environment if no string is allowed here.
fn coerce(value: &mut Value, allowed: &[Map<String, Value>]) {
    let Value::String(text) = &*value else { return };
    let wants = |name: &str| allowed.iter().any(|it| has_type(it, name));
    if wants("string") || allowed.iter().any(|it| !it.contains_key("type")) {
        return;
    }
    let parsed = serde_json::from_str::<Value>(text.trim()).ok();
    let fits = |parsed: &Value| {
        parsed.is_number() && (wants("integer") || wants("number"))
            || parsed.is_boolean() && wants("boolean")
    };
    if let Some(parsed) = parsed.filter(fits) {
        *value = parsed;
    }
}

/// Whether a schema accepts a scalar.
fn accepts(schema: &Map<String, Value>, value: &Value) -> bool {
    let type_fits = match value {
        _ if !schema.contains_key("type") => true,
        Value::Null => has_type(schema, "null"),
        Value::Bool(_) => has_type(schema, "boolean"),
        Value::Number(number) => {
            has_type(schema, "number") || has_type(schema, "integer") && !number.is_f64()
        }
        Value::String(_) => has_type(schema, "string"),
        Value::Array(_) => has_type(schema, "array"),
        Value::Object(_) => has_type(schema, "object"),
    };
    type_fits
        && schema.get("const").is_none_or(|only| only == value)
        && schema.get("enum").and_then(Value::as_array).is_none_or(|any| any.contains(value))
        && value.as_f64().is_none_or(|number| in_range(schema, number))
        && value
            .as_str()
            .is_none_or(|text| fits_length(text.chars().count(), schema, "minLength", "maxLength"))
}

fn in_range(schema: &Map<String, Value>, number: f64) -> bool {
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    bound("minimum").is_none_or(|least| number >= least)
        && bound("maximum").is_none_or(|most| number <= most)
        && bound("exclusiveMinimum").is_none_or(|below| number > below)
        && bound("exclusiveMaximum").is_none_or(|above| number < above)
}

fn fits_length(length: usize, schema: &Map<String, Value>, least: &str, most: &str) -> bool {
    let bound = |name: &str| schema.get(name).and_then(Value::as_u64);
    let length = length as u64;
    bound(least).is_none_or(|least| length >= least)
        && bound(most).is_none_or(|most| length <= most)
}
