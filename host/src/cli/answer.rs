//! The command that answers a question, ready to be typed.

use serde_json::{Map, Value};

use super::Shell;
use crate::model::sample;
use crate::model::schema::AnswerSchema;
use crate::model::{Json, PendingInterrupt, ThreadId};

/// An answer longer than this is for its author to write …
const EXAMPLE_BYTES_MAX: usize = 200;
/// … and so is one to a schema larger than this: a node wrote it, and may mean ill.
const SCHEMA_BYTES_MAX: usize = 16 * 1024;
const DEPTH_MAX: u32 = 16;
const VALUES_MAX: u32 = 100;
const WAYS_MAX: usize = 4;

/// The commands that answer `question`: one, or one for each way that its schema opens.
pub fn commands(shell: &Shell, thread: &ThreadId, question: &PendingInterrupt) -> Vec<String> {
    let id = question.interrupt.id.to_string();
    let words = ["resume", "--thread", thread.as_str(), "--interrupt", &id];
    if question.kind.is_gate() {
        return vec![shell.command(words.into_iter().chain(["--proceed"]))];
    }
    examples(question.answer_schema.as_ref())
        .iter()
        .map(|answer| shell.command(words.into_iter().chain([answer.as_str()])))
        .collect()
}

/// Answers that the schema takes, as JSON text. What only whoever answers can know is a word in angle brackets,
/// which is no JSON: typed as it stands it is refused, and no question is used up.
pub fn examples(schema: Option<&Value>) -> Vec<String> {
    let Some(schema) = schema else {
        return vec![ANYTHING.to_owned()];
    };
    let small = Json::from_value(schema).ok().filter(|text| text.as_str().len() <= SCHEMA_BYTES_MAX);
    let check = small.as_ref().and_then(|schema| AnswerSchema::compile(schema).ok());
    let loose = small.and_then(|schema| {
        AnswerSchema::compile(&Json::from_value(&patternless(&schema.value())).ok()?).ok()
    });
    let mut examples = Vec::new();
    if let Some(check) = check {
        for way in &ways(schema, WAYS_MAX) {
            let fits = Example { values_left: VALUES_MAX, marks: false }.of(way, 0);
            let text = open(&Example { values_left: VALUES_MAX, marks: true }.of(way, 0).to_string());
            // What must match a pattern is for a person to fill in, and can't be made up.
            let is_open =
                || text.contains('<') && loose.as_ref().is_some_and(|loose| loose.check(&fits).is_ok());
            if text.len() <= EXAMPLE_BYTES_MAX && (check.check(&fits).is_ok() || is_open()) {
                examples.push(text);
            }
        }
    }
    examples.dedup();
    if examples.is_empty() {
        examples.push(ANYTHING.to_owned());
    }
    examples
}

fn patternless(schema: &Value) -> Value {
    match schema {
        Value::Object(parts) => parts
            .iter()
            .filter(|(key, value)| *key != "pattern" || !value.is_string())
            .map(|(key, value)| (key.clone(), patternless(value)))
            .collect(),
        Value::Array(all) => all.iter().map(patternless).collect(),
        other => other.clone(),
    }
}

const ANYTHING: &str = "<JSON>";
/// Begins a string that stands for what must be filled in; no answer has it, since it is no character.
const MARK: char = '\u{fdd0}';

/// `"\u{fdd0}string"` becomes `<string>`.
fn open(text: &str) -> String {
    let mark = format!("\"{MARK}");
    let mut parts = text.split(&mark);
    let mut opened = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (word, rest) = part.split_once('"').unwrap_or((part, ""));
        opened += &format!("<{word}>{rest}");
    }
    opened
}

/// The schema once for each of its alternatives; and where there are at most `most` values to choose from, once for
/// each.
pub fn ways(schema: &Value, most: usize) -> Vec<Value> {
    let alternatives = ["oneOf", "anyOf"].iter().find_map(|key| schema.get(key)?.as_array());
    let ways: Vec<Value> = match alternatives {
        None => vec![schema.clone()],
        Some(alternatives) => alternatives.iter().map(|way| both(schema, way)).collect(),
    };
    let each: Vec<Value> = ways.iter().flat_map(|way| choices(way, most)).collect();
    let mut ways = if each.len() <= most { each } else { ways };
    ways.truncate(most);
    ways
}

/// A schema once for each value, where it or the first member that it requires has few of them.
fn choices(schema: &Value, most: usize) -> Vec<Value> {
    let fixed = |value: &Value| serde_json::json!({ "const": value });
    if let Some(values) = few(schema, most) {
        return values.iter().map(fixed).collect();
    }
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let chosen = required.filter_map(Value::as_str).find_map(|name| {
        let values = few(schema.get("properties")?.get(name)?, most)?;
        Some((name.to_owned(), values))
    });
    match chosen {
        None => vec![schema.clone()],
        Some((name, values)) => values
            .iter()
            .map(|value| both(schema, &serde_json::json!({ "properties": { name.as_str(): fixed(value) } })))
            .collect(),
    }
}

fn few(schema: &Value, most: usize) -> Option<Vec<Value>> {
    if schema.get("const").is_some() || schema.get("default").is_some() {
        return None;
    }
    match schema.get("enum").and_then(Value::as_array) {
        Some(values) => (2..=most).contains(&values.len()).then(|| values.clone()),
        None => (schema.get("type") == Some(&"boolean".into())).then(|| vec![true.into(), false.into()]),
    }
}

/// What both of two schemas ask for, as far as an example needs it.
pub fn both(one: &Value, other: &Value) -> Value {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else {
        return other.clone();
    };
    let mut merged = one.clone();
    for key in ["oneOf", "anyOf", "allOf"] {
        merged.remove(key);
    }
    for (key, value) in other {
        let value = match (key.as_str(), merged.get(key), value) {
            ("properties", Some(Value::Object(before)), Value::Object(more)) => {
                let mut all = before.clone();
                all.extend(more.clone());
                Value::Object(all)
            }
            ("required", Some(Value::Array(before)), Value::Array(more)) => {
                Value::Array(before.iter().chain(more).cloned().collect())
            }
            _ => value.clone(),
        };
        merged.insert(key.clone(), value);
    }
    Value::Object(merged)
}

/// An example in the making.
struct Example {
    values_left: u32,
    /// Whether what must be filled in is marked, or filled with what fits.
    marks: bool,
}

impl Example {
    fn of(&mut self, schema: &Value, depth: u32) -> Value {
        let Some(parts) = schema.as_object() else {
            return self.filled("JSON", "…".into());
        };
        if depth == DEPTH_MAX || self.values_left == 0 {
            return self.filled("JSON", "…".into());
        }
        self.values_left -= 1;
        let first = |key: &str| parts.get(key).and_then(Value::as_array).and_then(|list| list.first());
        if let Some(value) = parts.get("const").or(parts.get("default")) {
            return value.clone();
        }
        match parts.get("enum").and_then(Value::as_array).map(Vec::as_slice) {
            Some([one]) => return one.clone(),
            Some([first, ..]) => return self.filled("one of those", first.clone()),
            _ => {}
        }
        if let Some(value) = first("examples") {
            return value.clone();
        }
        if let Some(all) = parts.get("allOf").and_then(Value::as_array) {
            let merged = all.iter().fold(schema.clone(), |merged, part| both(&merged, part));
            return self.of(&merged, depth + 1);
        }
        if let Some(way) = first("oneOf").or(first("anyOf")) {
            return self.of(&both(schema, way), depth + 1);
        }
        let kind = match parts.get("type") {
            Some(Value::String(kind)) => kind.as_str(),
            Some(Value::Array(kinds)) => kinds.first().and_then(Value::as_str).unwrap_or_default(),
            _ if parts.contains_key("properties") || parts.contains_key("required") => "object",
            _ => return self.filled("JSON", "…".into()),
        };
        let count = |key: &str| parts.get(key).and_then(Value::as_u64).unwrap_or(0);
        match kind {
            "object" => Value::Object(self.required(parts, depth)),
            "array" => {
                let item = parts.get("items").unwrap_or(&Value::Null);
                let items = 0..count("minItems").min(VALUES_MAX.into());
                Value::Array(items.map(|_| self.of(item, depth + 1)).collect())
            }
            "boolean" => self.filled("true or false", true.into()),
            "number" | "integer" => {
                let fits = sample::number_of(kind, parts);
                self.filled(kind, fits.unwrap_or_else(|| 0.into()))
            }
            "null" => Value::Null,
            _ => {
                let fits: String = (0..count("minLength").clamp(1, 64)).map(|_| '…').collect();
                self.filled("string", fits.into())
            }
        }
    }

    fn filled(&self, word: &str, fits: Value) -> Value {
        if self.marks { Value::String(format!("{MARK}{word}")) } else { fits }
    }

    fn required(&mut self, parts: &Map<String, Value>, depth: u32) -> Map<String, Value> {
        let names = parts.get("required").and_then(Value::as_array).into_iter().flatten();
        let mut members = Map::new();
        for name in names.filter_map(Value::as_str) {
            if !members.contains_key(name) {
                let schema = parts.get("properties").and_then(|all| all.get(name)).unwrap_or(&Value::Null);
                members.insert(name.to_owned(), self.of(schema, depth + 1));
            }
        }
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(schema: Value, right: &[&str]) {
        assert_eq!(examples(Some(&schema)), right, "{schema}");
    }

    #[test]
    fn an_example_is_one_that_the_schema_takes() {
        assert_eq!(examples(None), [ANYTHING]);
        check(json!({}), &[ANYTHING]);
        check(json!({ "type": "boolean" }), &["true", "false"]);
        check(json!({ "type": "integer", "minimum": 3 }), &["<integer>"]);
        check(json!({ "enum": ["red", "green"] }), &[r#""red""#, r#""green""#]);
        check(json!({ "enum": [1, 2, 3, 4, 5] }), &["<one of those>"]);
        check(json!({ "type": "array", "items": { "type": "null" }, "minItems": 2 }), &["[null,null]"]);
        check(
            json!({ "type": "object", "required": ["approved"], "properties": { "approved": { "type": "boolean" } } }),
            &[r#"{"approved":true}"#, r#"{"approved":false}"#],
        );
        check(json!({ "type": "string", "pattern": "^[0-9]+$" }), &["<string>"]);
        check(json!({ "type": "number", "exclusiveMinimum": 0, "multipleOf": 0.5 }), &["<number>"]);
        check(json!({ "type": "integer", "$ref": "#" }), &[ANYTHING]);
        check(json!({ "$ref": "#/$defs/a", "$defs": { "a": { "type": "integer" } } }), &[ANYTHING]);
    }

    #[test]
    fn each_way_to_answer_has_an_example() {
        check(
            json!({
                "type": "object",
                "required": ["approved"],
                "oneOf": [
                    { "properties": { "approved": { "const": true } }, "additionalProperties": false },
                    { "properties": { "approved": { "const": false }, "reason": { "type": "string" } },
                      "required": ["reason"], "additionalProperties": false },
                ],
            }),
            &[r#"{"approved":true}"#, r#"{"approved":false,"reason":<string>}"#],
        );
        check(
            json!({ "oneOf": [
                { "type": "object", "required": ["done"], "properties": { "done": {} } },
                { "type": "object", "required": ["not_done"], "properties": { "not_done": { "const": true } } },
            ] }),
            &[r#"{"done":<JSON>}"#, r#"{"not_done":true}"#],
        );
    }

    #[test]
    fn what_must_be_filled_in_is_refused_as_it_stands() {
        for schema in [json!({ "type": "string" }), json!({ "type": "integer" }), json!({})] {
            for example in examples(Some(&schema)) {
                assert!(serde_json::from_str::<Value>(&example).is_err(), "{example}");
            }
        }
    }

    #[test]
    fn a_schema_that_means_ill_ends() {
        let mut wide = json!({ "type": "null" });
        for _ in 0..20 {
            wide = json!({ "type": "array", "minItems": 16, "items": wide });
        }
        check(wide, &[ANYTHING]);
        check(json!({ "const": "x".repeat(SCHEMA_BYTES_MAX) }), &[ANYTHING]);
        let mut schema = json!({ "type": "null" });
        for _ in 0..60 {
            schema = json!({ "type": "array", "minItems": 1, "items": schema });
        }
        check(schema, &[ANYTHING]);
    }
}
