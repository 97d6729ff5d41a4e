//! Writes a configuration as TOML, with the description of each key above it and secrets masked.
//!
//! This module prints the defaults as the sample under `deploy/config/`. The sample can therefore
//! neither lack a key nor describe one wrongly.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use turnstream_ports::secret::{MASK, is_secret, without_userinfo};

use super::document::Places;
use super::load::Loaded;
use super::problem::{Bare, KeyPath};
use super::schema::{alternatives, expected, pick};
use super::shape::schema_of;

/// Width of comments, in characters.
const COLUMNS: usize = 98;

/// Why a configuration cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum PrintError {
    /// TOML cannot hold the configuration.
    #[error("the configuration cannot be written as TOML: {0}")]
    Serialize(#[from] toml::ser::Error),
    /// The written TOML cannot be read back.
    #[error("the configuration's TOML cannot be read back: {0}")]
    Reread(#[from] toml::de::Error),
}

impl<T: Serialize + JsonSchema> Loaded<T> {
    /// The effective configuration as TOML: every key with its description, in the order of the
    /// structs. Secret values are masked. A value that names variables of the environment is shown
    /// by their names. Keys that are not set are commented out.
    ///
    /// # Errors
    /// [`PrintError`], for types that TOML cannot hold.
    pub fn to_toml(&self) -> Result<String, PrintError> {
        let text = toml::to_string(&self.value)?;
        let root = DeTable::parse(&text)?;
        let mut printer = Printer { text: &text, places: &self.places, out: String::new() };
        let schema = schema_of::<T>();
        printer.comment(&schema);
        printer.table(root.get_ref(), &schema, &KeyPath::root());
        Ok(printer.out)
    }

    /// The same as JSON, for programs.
    ///
    /// # Errors
    /// As [`Loaded::to_toml`].
    pub fn to_json(&self) -> Result<Value, PrintError> {
        Ok(toml::from_str(&self.to_toml()?)?)
    }
}

struct Printer<'a> {
    /// The output of serde, from which the values' text is taken.
    text: &'a str,
    places: &'a Places,
    out: String,
}

impl Printer<'_> {
    fn table(&mut self, table: &DeTable<'_>, schema: &Value, path: &KeyPath) {
        let chosen = chosen(schema, table);
        let nothing = Map::new();
        let keys = chosen.get("properties").and_then(Value::as_object).unwrap_or(&nothing);
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let schema_of = |name: &str| {
            let others = chosen.get("additionalProperties");
            keys.get(name).or(others).unwrap_or(&Value::Null)
        };
        for (key, value) in &entries {
            if !is_table(value.get_ref()) {
                let schema = schema_of(key.get_ref());
                self.comment(schema);
                self.choices(schema);
                self.key(key.get_ref(), value, path);
            }
        }
        for (name, schema) in keys {
            if !table.contains_key(name.as_str()) {
                self.comment(schema);
                let expected = expected(&alternatives(schema));
                let _ = writeln!(self.out, "# {} = # not set; {expected}", Bare(name));
            }
        }
        for (key, value) in &entries {
            let (name, path) = (key.get_ref(), path.key(key.get_ref()));
            match value.get_ref() {
                DeValue::Table(below) => self.section(below, schema_of(name), &path),
                DeValue::Array(list) if is_table(value.get_ref()) => {
                    for item in list.iter() {
                        if let DeValue::Table(below) = item.get_ref() {
                            let _ = writeln!(self.out, "\n[[{path}]]");
                            let items = schema_of(name).get("items").unwrap_or(&Value::Null);
                            self.table(below, items, &path);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn section(&mut self, table: &DeTable<'_>, schema: &Value, path: &KeyPath) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        self.comment(schema);
        let _ = writeln!(self.out, "[{path}]");
        self.table(table, schema, path);
    }

    fn key(&mut self, key: &str, value: &Spanned<DeValue<'_>>, path: &KeyPath) {
        let shown = self.shown(value, &path.key(key));
        let _ = writeln!(self.out, "{} = {shown}", Bare(key));
    }

    /// A value as TOML, with secrets masked.
    fn shown(&self, value: &Spanned<DeValue<'_>>, path: &KeyPath) -> String {
        let raw = self.places.get(path).and_then(|place| place.raw.as_deref());
        let secret = path.names().any(is_secret);
        match (raw, value.get_ref()) {
            (Some(raw), _) if !secret || is_one_variable(raw) => string(raw),
            (None, DeValue::String(text)) if text.is_empty() => string(""),
            _ if secret => string(MASK),
            (_, DeValue::Array(list)) => {
                let items = list.iter().enumerate();
                let items = items.map(|(index, item)| self.shown(item, &path.index(index)));
                format!("[{}]", items.collect::<Vec<_>>().join(", "))
            }
            // `${` would be read back as a variable.
            _ => without_userinfo(&self.text[value.span()]).replace('$', "$$"),
        }
    }

    /// Writes a key's description as comment lines. Prose is wrapped; fenced examples stay as they
    /// are.
    fn comment(&mut self, schema: &Value) {
        let Some(text) = schema.get("description").and_then(Value::as_str) else { return };
        let mut fenced = false;
        let mut line = String::new();
        for written in text.lines() {
            let fence = written.starts_with("```");
            if fence || fenced || written.trim().is_empty() {
                self.comment_line(&mut line);
            }
            if fence {
                fenced = !fenced;
            } else if fenced {
                line.push_str("   ");
                line.push_str(written);
                self.comment_line(&mut line);
            } else {
                for word in written.split_whitespace() {
                    if line.chars().count() + 3 + word.chars().count() > COLUMNS {
                        self.comment_line(&mut line);
                    }
                    line.push(' ');
                    line.push_str(word);
                }
            }
        }
        self.comment_line(&mut line);
    }

    /// Writes the allowed words of a key that has a fixed choice.
    fn choices(&mut self, schema: &Value) {
        let allowed = alternatives(schema);
        if allowed.iter().any(|it| it.contains_key("const") || it.contains_key("enum")) {
            let _ = writeln!(self.out, "# Expects {}.", expected(&allowed));
        }
    }

    fn comment_line(&mut self, line: &mut String) {
        if !line.is_empty() {
            let _ = writeln!(self.out, "#{}", line.trim_end());
            line.clear();
        }
    }
}

/// The alternative of a schema that fits a table.
fn chosen(schema: &Value, table: &DeTable<'_>) -> Map<String, Value> {
    let scalars = table.iter().filter_map(|(key, value)| match value.get_ref() {
        DeValue::String(text) => Some((key.get_ref().to_string(), Value::from(text.as_ref()))),
        DeValue::Table(_) => Some((key.get_ref().to_string(), Value::Object(Map::new()))),
        _ => None,
    });
    let scalars = scalars.collect();
    let allowed = alternatives(schema);
    pick(&allowed.iter().collect::<Vec<_>>(), &scalars).cloned().unwrap_or_default()
}

fn is_table(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::Table(_) => true,
        DeValue::Array(list) => {
            !list.is_empty() && list.iter().all(|it| matches!(it.get_ref(), DeValue::Table(_)))
        }
        _ => false,
    }
}

/// Whether a string is one variable without a default, which reveals nothing.
fn is_one_variable(raw: &str) -> bool {
    raw.strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'))
        .is_some_and(|name| !name.contains([':', '}', '$']))
}

fn string(text: &str) -> String {
    toml::Value::from(text).to_string()
}
