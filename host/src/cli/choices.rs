//! What a question takes, in a line that a person reads. A node wrote the schema, and may mean ill: what is said
//! of it is bounded, and shown as text alone.

use serde_json::{Map, Value};

use super::screen::{clip, harmless};

const LINE_CHARS_MAX: usize = 600;
const VALUE_CHARS_MAX: usize = 60;
const DEPTH_MAX: u32 = 4;
const NAMED_MAX: usize = 12;

/// `one of "refund", "keep"`; what cannot be said in a line is said to be a schema's.
pub fn choices(schema: Option<&Value>) -> String {
    let said = match schema {
        None => "any JSON value".to_owned(),
        Some(schema) => of(schema, 0),
    };
    harmless(&clip(&said, LINE_CHARS_MAX)).into_owned()
}

fn of(schema: &Value, depth: u32) -> String {
    let Some(parts) = schema.as_object() else {
        return if schema == &Value::Bool(false) { "nothing" } else { "any JSON value" }.to_owned();
    };
    if depth == DEPTH_MAX {
        return "what its schema says (--json shows it)".to_owned();
    }
    if let Some(value) = parts.get("const") {
        return shown(value);
    }
    if let Some(Value::Array(values)) = parts.get("enum") {
        return match &values[..] {
            [one] => shown(one),
            many => format!("one of {}", listed(many.iter().map(shown), ", ")),
        };
    }
    for key in ["oneOf", "anyOf"] {
        if let Some(Value::Array(ways)) = parts.get(key) {
            let mut said: Vec<String> = ways.iter().map(|way| of(&with(parts, way), depth + 1)).collect();
            said.dedup();
            return listed(said.into_iter(), ", or ");
        }
    }
    if let Some(Value::Array(all)) = parts.get("allOf") {
        return of(&all.iter().fold(without(parts, "allOf"), with_parts), depth + 1);
    }
    let kinds: Vec<&str> = match parts.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ if parts.contains_key("properties") || parts.contains_key("required") => vec!["object"],
        _ if ["$ref", "not", "if", "pattern"].iter().any(|key| parts.contains_key(*key)) => {
            return "what its schema says (--json shows it)".to_owned();
        }
        _ => return "any JSON value".to_owned(),
    };
    kinds.iter().map(|kind| of_kind(kind, parts, depth)).collect::<Vec<_>>().join(" or ")
}

fn of_kind(kind: &str, parts: &Map<String, Value>, depth: u32) -> String {
    match kind {
        "boolean" => "true or false".to_owned(),
        "null" => "null".to_owned(),
        "string" => {
            let mut said = match parts.get("format").and_then(Value::as_str) {
                Some(format) => format!("a string ({format})"),
                None => "a string".to_owned(),
            };
            said += &range(parts, ("minLength", "maxLength"), " characters");
            if let Some(pattern) = parts.get("pattern").and_then(Value::as_str) {
                said += &format!(" that matches {}", clip(pattern, VALUE_CHARS_MAX));
            }
            said
        }
        "integer" => "a whole number".to_owned() + &bounds(parts),
        "number" => "a number".to_owned() + &bounds(parts),
        "array" => {
            let items = parts.get("items").map(|items| format!(", each {}", of(items, depth + 1)));
            let count = range(parts, ("minItems", "maxItems"), " items");
            format!("a list{count}{}", items.unwrap_or_default())
        }
        "object" => object(parts, depth),
        other => other.to_owned(),
    }
}

fn object(parts: &Map<String, Value>, depth: u32) -> String {
    let required: Vec<&str> = parts
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let none = Map::new();
    let properties = parts.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let named = properties.iter().map(|(name, schema)| {
        let optional = if required.contains(&name.as_str()) { "" } else { ", may be left out" };
        format!("{name} ({}{optional})", of(schema, depth + 1))
    });
    let bare = required.iter().filter(|name| !properties.contains_key(**name));
    let all: Vec<String> = named.chain(bare.map(|name| format!("{name} (any JSON value)"))).collect();
    if all.is_empty() {
        "an object".to_owned()
    } else {
        format!("an object: {}", listed(all.into_iter(), ", "))
    }
}

/// Of a number.
fn bounds(parts: &Map<String, Value>) -> String {
    let mut said = range(parts, ("minimum", "maximum"), "");
    for (key, words) in [
        ("exclusiveMinimum", "more than"),
        ("exclusiveMaximum", "less than"),
        ("multipleOf", "a multiple of"),
    ] {
        if let Some(value) = parts.get(key) {
            let between = if said.is_empty() { "" } else { "," };
            said += &format!("{between} {words} {}", shown(value));
        }
    }
    said
}

fn range(parts: &Map<String, Value>, (least, most): (&str, &str), unit: &str) -> String {
    match (parts.get(least), parts.get(most)) {
        (Some(least), Some(most)) => format!(" from {least} to {most}{unit}"),
        (Some(least), None) => format!(" of at least {least}{unit}"),
        (None, Some(most)) => format!(" of at most {most}{unit}"),
        (None, None) => String::new(),
    }
}

fn shown(value: &Value) -> String {
    clip(&value.to_string(), VALUE_CHARS_MAX).into_owned()
}

fn listed(items: impl ExactSizeIterator<Item = String>, between: &str) -> String {
    let more = items.len().saturating_sub(NAMED_MAX);
    let mut said = items.take(NAMED_MAX).collect::<Vec<_>>().join(between);
    if more > 0 {
        said += &format!("{between}{more} more (--json shows them)");
    }
    said
}

/// What a schema and one of its alternatives ask for together, as far as a line needs it.
fn with(parts: &Map<String, Value>, way: &Value) -> Value {
    let whole = ["oneOf", "anyOf"].iter().fold(Value::Object(parts.clone()), |whole, key| match whole {
        Value::Object(parts) => without(&parts, key),
        whole => whole,
    });
    with_parts(whole, way)
}

fn with_parts(whole: Value, part: &Value) -> Value {
    super::answer::both(&whole, part)
}

fn without(parts: &Map<String, Value>, key: &str) -> Value {
    Value::Object(
        parts.iter().filter(|(name, _)| *name != key).map(|(k, v)| (k.clone(), v.clone())).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_question_takes_is_said_in_a_line() {
        for (schema, line) in [
            (json!({ "enum": ["refund", "keep"] }), r#"one of "refund", "keep""#),
            (json!({ "type": "boolean" }), "true or false"),
            (json!({ "type": ["string", "null"] }), "a string or null"),
            (json!({ "type": "integer", "minimum": 3, "maximum": 5 }), "a whole number from 3 to 5"),
            (
                json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 9, "multipleOf": 0.5 }),
                "a number of at most 9, more than 0, a multiple of 0.5",
            ),
            (
                json!({ "type": "string", "format": "date", "pattern": "^20" }),
                "a string (date) that matches ^20",
            ),
            (json!({ "type": "string", "minLength": 1 }), "a string of at least 1 characters"),
            (json!({ "type": "string", "pattern": "^[A-Z]$" }), "a string that matches ^[A-Z]$"),
            (json!({ "type": "array", "items": { "type": "number" } }), "a list, each a number"),
            (json!({}), "any JSON value"),
            (json!({ "$ref": "#/$defs/a" }), "what its schema says (--json shows it)"),
            (
                json!({ "type": "object", "required": ["approved"], "properties": {
                    "approved": { "type": "boolean" }, "reason": { "type": "string" } } }),
                "an object: approved (true or false), reason (a string, may be left out)",
            ),
            (
                json!({ "type": "object", "required": ["approved"], "oneOf": [
                    { "properties": { "approved": { "const": true } } },
                    { "properties": { "approved": { "const": false }, "reason": { "type": "string" } },
                      "required": ["reason"] } ] }),
                "an object: approved (true), or an object: approved (false), reason (a string)",
            ),
        ] {
            assert_eq!(choices(Some(&schema)), line, "{schema}");
        }
        assert_eq!(choices(None), "any JSON value");
    }

    #[test]
    fn a_schema_that_means_ill_is_said_in_a_line_as_well() {
        let mut deep = json!({ "type": "null" });
        for _ in 0..60 {
            deep = json!({ "oneOf": [deep.clone(), { "type": "array", "items": deep }] });
            if deep.to_string().len() > 20_000 {
                break;
            }
        }
        assert!(choices(Some(&deep)).chars().count() <= LINE_CHARS_MAX + 1);
        let steers = json!({ "enum": ["\u{9b}2J", "x".repeat(500)] });
        let said = choices(Some(&steers));
        assert!(said.contains("\\u{9b}") && said.chars().count() < 200, "{said}");
        let many = json!({ "enum": (0..100).collect::<Vec<_>>() });
        assert!(choices(Some(&many)).ends_with("88 more (--json shows them)"));
    }
}
