//! Queries on a JSON Schema: the alternatives of a place, the known keys, and the expectation in
//! words.

use serde_json::{Map, Value};

/// The alternatives that a place allows. `null` is left out, because TOML has none. The list is
/// empty if the schema says nothing.
///
/// Resolves `oneOf`, `anyOf` and `allOf`, and merges their siblings into each alternative.
pub(super) fn alternatives(schema: &Value) -> Vec<Map<String, Value>> {
    let Value::Object(schema) = schema else { return Vec::new() };
    let mut base = schema.clone();
    let mut all = vec![base.clone()];
    for (word, every) in [("allOf", true), ("oneOf", false), ("anyOf", false)] {
        let Some(Value::Array(parts)) = base.remove(word) else { continue };
        all.iter_mut().for_each(|it| drop(it.remove(word)));
        let parts = parts.iter().map(alternatives);
        all = if every {
            parts.fold(all, |all, part| products(&all, &part))
        } else {
            products(&all, &parts.flatten().collect::<Vec<_>>())
        };
    }
    all.retain(|it| it.get("type").is_none_or(|of| of != "null"));
    all
}

fn products(left: &[Map<String, Value>], right: &[Map<String, Value>]) -> Vec<Map<String, Value>> {
    left.iter().flat_map(|left| right.iter().map(move |right| merged(left, right))).collect()
}

/// Merges two schemas. They share their keys; for other words, the right schema wins.
fn merged(left: &Map<String, Value>, right: &Map<String, Value>) -> Map<String, Value> {
    let mut both = left.clone();
    for (word, value) in right {
        match (both.get_mut(word), value) {
            (Some(Value::Object(into)), Value::Object(from)) if word == "properties" => {
                into.extend(from.clone());
            }
            (Some(Value::Array(into)), Value::Array(from)) if word == "required" => {
                into.extend(from.clone());
            }
            _ => drop(both.insert(word.clone(), value.clone())),
        }
    }
    both
}

/// Picks the alternative whose constants a table has. If none fits, returns the key that tells them
/// apart and its choices.
pub(super) fn pick<'a>(
    allowed: &[&'a Map<String, Value>],
    table: &Map<String, Value>,
) -> Result<&'a Map<String, Value>, (String, Vec<String>)> {
    let fits = |schema: &Map<String, Value>| {
        constants(schema).all(|(key, only)| table.get(key) == Some(only))
    };
    let complete = |schema: &Map<String, Value>| {
        let required = schema.get("required").and_then(Value::as_array);
        required.into_iter().flatten().filter_map(Value::as_str).all(|it| table.contains_key(it))
    };
    let fitting = || allowed.iter().filter(|it| fits(it));
    let chosen = fitting().find(|it| complete(it)).or_else(|| fitting().next());
    if let Some(chosen) = chosen.or(if allowed.len() == 1 { allowed.first() } else { None }) {
        return Ok(chosen);
    }
    let tag = allowed.iter().find_map(|it| constants(it).next()).map(|(key, _)| key.clone());
    let tag = tag.unwrap_or_default();
    let choices = allowed.iter().flat_map(|it| constants(it)).filter(|(key, _)| **key == tag);
    let choices = choices.filter_map(|(_, only)| only.as_str().map(str::to_owned)).collect();
    Err((tag, choices))
}

/// The keys of a table schema with a fixed value.
fn constants(schema: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let keys = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    keys.filter_map(|(key, schema)| schema.get("const").map(|only| (key, only)))
}

/// The keys of a table schema, in alphabetical order.
pub(super) fn known_keys(schema: &Map<String, Value>) -> Vec<String> {
    let keys = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    keys.map(|(key, _)| key.clone()).collect()
}

/// The first table, from the root, that has this key.
pub(super) fn elsewhere(root: &Value, name: &str) -> Option<String> {
    fn search(schema: &Value, name: &str, at: &str) -> Option<String> {
        alternatives(schema).iter().find_map(|schema| {
            let keys = schema.get("properties")?.as_object()?;
            if !at.is_empty() && keys.contains_key(name) {
                return Some(at.to_owned());
            }
            let dot = if at.is_empty() { "" } else { "." };
            keys.iter().find_map(|(key, below)| search(below, name, &format!("{at}{dot}{key}")))
        })
    }
    search(root, name, "")
}

/// The first sentence of a schema's description, without its full stop.
pub(super) fn sentence(schema: &Value) -> Option<String> {
    let text = schema.get("description")?.as_str()?;
    let paragraph = text.split("\n\n").next()?.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = paragraph.find(". ").unwrap_or(paragraph.len());
    let sentence = paragraph[..end].trim_end_matches('.');
    (!sentence.is_empty()).then(|| sentence.to_owned())
}

/// The expectation of the alternatives in words: `an integer from 1 to 64`, `one of "a", "b"`.
pub(super) fn expected(allowed: &[Map<String, Value>]) -> String {
    let mut choices: Vec<String> = Vec::new();
    let mut kinds: Vec<String> = Vec::new();
    for schema in allowed {
        if let Some(only) = schema.get("const") {
            choices.push(only.to_string());
        } else if let Some(Value::Array(any)) = schema.get("enum") {
            choices.extend(any.iter().filter(|it| !it.is_null()).map(Value::to_string));
        } else {
            let types: &[Value] = match schema.get("type") {
                Some(Value::Array(types)) => types,
                Some(of) => std::slice::from_ref(of),
                None => &[],
            };
            let words = types.iter().filter_map(Value::as_str);
            kinds.extend(words.filter_map(|of| in_words(of, schema)));
        }
    }
    match choices.as_slice() {
        [] => {}
        [only] => kinds.insert(0, only.clone()),
        any => kinds.insert(0, format!("one of {}", any.join(", "))),
    }
    kinds.dedup();
    if kinds.is_empty() { "another value".to_owned() } else { kinds.join(" or ") }
}

fn in_words(of: &str, schema: &Map<String, Value>) -> Option<String> {
    let least = |name: &str| schema.get(name).and_then(Value::as_u64).is_some_and(|it| it > 0);
    let size = |name: &str| schema.get(name).and_then(Value::as_u64);
    Some(match of {
        "integer" => format!("an integer{}", range(schema)),
        "number" => format!("a number{}", range(schema)),
        "boolean" => "true or false".to_owned(),
        "string" if least("minLength") => "a string that is not empty".to_owned(),
        "string" => "a string".to_owned(),
        "array" => match (size("minItems"), size("maxItems")) {
            (None | Some(0), None) => "a list".to_owned(),
            (Some(least), None) => format!("a list of at least {least}"),
            (least, Some(most)) => format!("a list of {} to {most}", least.unwrap_or(0)),
        },
        "object" => "a table".to_owned(),
        _ => return None,
    })
}

fn range(schema: &Map<String, Value>) -> String {
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    let least = bound("minimum").map(|it| ("from", it));
    let least = least.or(bound("exclusiveMinimum").map(|it| ("above", it)));
    let most = bound("maximum").map(|it| ("to", it));
    let most = most.or(bound("exclusiveMaximum").map(|it| ("below", it)));
    match (least, most) {
        (None, None) => String::new(),
        (Some(("above", least)), None) => format!(" above {least}"),
        (Some((_, least)), None) => format!(" of at least {least}"),
        (None, Some(("below", most))) => format!(" below {most}"),
        (None, Some((_, most))) => format!(" of at most {most}"),
        (Some(("above", least)), Some(("below", most))) => {
            format!(" above {least} and below {most}")
        }
        (Some(("above", least)), Some((_, most))) => format!(" above {least} and at most {most}"),
        (Some((_, least)), Some(("below", most))) => {
            format!(" of at least {least} and below {most}")
        }
        (Some((_, least)), Some((_, most))) => format!(" from {least} to {most}"),
    }
}
