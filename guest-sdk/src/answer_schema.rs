//! Whether a scripted answer is one that its question takes. A node is tested with few crates, so this knows the
//! common words of JSON Schema and no more; the host checks all of them, when the node runs for real.

use serde_json::{Map, Value};

/// References lead into the schema, and may lead back.
const DEPTH_MAX: u32 = 64;

/// Where the answer is another than the schema says, and what is expected there; `None` if nothing was found.
pub fn mismatch(schema: &Value, answer: &Value) -> Option<String> {
    Check { root: schema }.at(schema, answer, "", 0).err()
}

struct Check<'s> {
    root: &'s Value,
}

impl Check<'_> {
    fn at(&self, schema: &Value, value: &Value, place: &str, depth: u32) -> Result<(), String> {
        let parts = match schema {
            Value::Bool(false) => return Err(wrong(place, value, "nothing")),
            Value::Object(parts) if depth < DEPTH_MAX => parts,
            _ => return Ok(()),
        };
        let below = |schema: &Value, value: &Value, place: &str| self.at(schema, value, place, depth + 1);
        if let Some(schema) = parts.get("$ref").and_then(Value::as_str).and_then(|to| self.referred(to)) {
            below(schema, value, place)?;
        }
        if let Some(expected) = parts.get("const").filter(|expected| !same(expected, value)) {
            return Err(wrong(place, value, &expected.to_string()));
        }
        if let Some(Value::Array(all)) = parts.get("enum")
            && !all.iter().any(|one| same(one, value))
        {
            let all: Vec<String> = all.iter().map(Value::to_string).collect();
            return Err(wrong(place, value, &format!("one of {}", all.join(", "))));
        }
        let kinds: Vec<&str> = match parts.get("type") {
            Some(Value::String(kind)) => vec![kind],
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !kinds.is_empty() && !kinds.iter().any(|kind| is_of(kind, value)) {
            return Err(wrong(place, value, &kinds.join(" or ")));
        }
        let list = |key: &str| parts.get(key).and_then(Value::as_array).into_iter().flatten();
        for schema in list("allOf") {
            below(schema, value, place)?;
        }
        let fitting = |key: &str| list(key).filter(|schema| below(schema, value, place).is_ok()).count();
        for (key, fits) in [("anyOf", 1..usize::MAX), ("oneOf", 1..2)] {
            if parts.contains_key(key) && !fits.contains(&fitting(key)) {
                let reasons: Vec<String> = list(key)
                    .map(|schema| below(schema, value, place).err().unwrap_or("fits".into()))
                    .collect();
                let what = format!("one of the {} in {key} ({})", reasons.len(), reasons.join("; "));
                return Err(wrong(place, value, &what));
            }
        }
        if let Some(not) = parts.get("not").filter(|not| below(not, value, place).is_ok()) {
            return Err(wrong(place, value, &format!("anything but {not}")));
        }
        match value {
            Value::Number(number) => in_range(parts, number.as_f64(), place, value),
            Value::String(text) => {
                counted(parts, ("minLength", "maxLength"), text.chars().count(), "characters")
                    .map_err(|what| wrong(place, value, &what))
            }
            Value::Array(items) => {
                counted(parts, ("minItems", "maxItems"), items.len(), "items")
                    .map_err(|what| wrong(place, value, &what))?;
                let first: Vec<&Value> = list("prefixItems").collect();
                for (i, item) in items.iter().enumerate() {
                    let schema = first.get(i).copied().or(parts.get("items"));
                    schema.map_or(Ok(()), |schema| below(schema, item, &format!("{place}/{i}")))?;
                }
                Ok(())
            }
            Value::Object(members) => {
                if let Some(name) =
                    list("required").filter_map(Value::as_str).find(|name| !members.contains_key(*name))
                {
                    return Err(wrong(place, value, &format!("an object with `{name}`")));
                }
                let known = parts.get("properties").and_then(Value::as_object);
                // Which names a pattern takes is not known here.
                let others =
                    parts.get("additionalProperties").filter(|_| !parts.contains_key("patternProperties"));
                for (name, member) in members {
                    let schema = known.and_then(|known| known.get(name)).or(others);
                    schema.map_or(Ok(()), |schema| below(schema, member, &format!("{place}/{name}")))?;
                }
                Ok(())
            }
            Value::Bool(_) | Value::Null => Ok(()),
        }
    }

    fn referred(&self, to: &str) -> Option<&Value> {
        self.root.pointer(to.strip_prefix('#')?)
    }
}

fn wrong(place: &str, value: &Value, expected: &str) -> String {
    let place = if place.is_empty() { "/" } else { place };
    format!("at {place}: expected {expected}, and it is {value}")
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => true,
    }
}

/// 1 and 1.0 are one number.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (one, other) => one == other,
    }
}

fn in_range(
    parts: &Map<String, Value>,
    number: Option<f64>,
    place: &str,
    value: &Value,
) -> Result<(), String> {
    let Some(number) = number else { return Ok(()) };
    let bound = |key: &str| parts.get(key).and_then(Value::as_f64);
    for (key, fits, words) in [
        ("minimum", bound("minimum").is_none_or(|bound| number >= bound), "at least"),
        ("exclusiveMinimum", bound("exclusiveMinimum").is_none_or(|bound| number > bound), "more than"),
        ("maximum", bound("maximum").is_none_or(|bound| number <= bound), "at most"),
        ("exclusiveMaximum", bound("exclusiveMaximum").is_none_or(|bound| number < bound), "less than"),
        (
            "multipleOf",
            bound("multipleOf").is_none_or(|bound| (number / bound).fract() == 0.0),
            "a multiple of",
        ),
    ] {
        if !fits {
            return Err(wrong(place, value, &format!("{words} {}", parts[key])));
        }
    }
    Ok(())
}

fn counted(
    parts: &Map<String, Value>,
    (least, most): (&str, &str),
    count: usize,
    what: &str,
) -> Result<(), String> {
    let bound = |key: &str| parts.get(key).and_then(Value::as_u64);
    let count = count as u64;
    match (bound(least), bound(most)) {
        (Some(least), _) if count < least => Err(format!("at least {least} {what}")),
        (_, Some(most)) if count > most => Err(format!("at most {most} {what}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mismatch_names_the_place_and_what_is_expected_there() {
        let approval = json!({
            "type": "object", "required": ["approved"], "additionalProperties": false,
            "properties": { "approved": { "type": "boolean" }, "marks": { "items": { "maximum": 5 } } }
        });
        let ways = json!({ "oneOf": [{ "const": 1 }, { "type": "string", "minLength": 2 }] });
        let refers =
            json!({ "$defs": { "n": { "type": ["integer", "null"] } }, "items": { "$ref": "#/$defs/n" } });
        for (schema, answer, said) in [
            (&approval, json!({ "approved": true, "marks": [1, 5] }), None),
            (&approval, json!("yes"), Some(r#"at /: expected object, and it is "yes""#)),
            (&approval, json!({}), Some("at /: expected an object with `approved`, and it is {}")),
            (
                &approval,
                json!({ "approved": "yes" }),
                Some(r#"at /approved: expected boolean, and it is "yes""#),
            ),
            (
                &approval,
                json!({ "approved": true, "why": 1 }),
                Some("at /why: expected nothing, and it is 1"),
            ),
            (
                &approval,
                json!({ "approved": true, "marks": [6] }),
                Some("at /marks/0: expected at most 5, and it is 6"),
            ),
            (&ways, json!(1.0), None),
            (&ways, json!("ab"), None),
            (
                &ways,
                json!("a"),
                Some(
                    "at /: expected one of the 2 in oneOf (at /: expected 1, and it is \"a\"; at /: expected at least \
                     2 characters, and it is \"a\"), and it is \"a\"",
                ),
            ),
            (&refers, json!([1, null]), None),
            (&refers, json!([1.5]), Some("at /0: expected integer or null, and it is 1.5")),
            (
                &json!({ "enum": ["a", "b"] }),
                json!("c"),
                Some(r#"at /: expected one of "a", "b", and it is "c""#),
            ),
            (
                &json!({ "not": { "type": "null" } }),
                json!(null),
                Some(r#"at /: expected anything but {"type":"null"}, and it is null"#),
            ),
            (
                &json!({ "multipleOf": 5, "exclusiveMinimum": 0 }),
                json!(0),
                Some("at /: expected more than 0, and it is 0"),
            ),
            // What it does not know it lets pass.
            (&json!({ "type": "string", "pattern": "^a$" }), json!("b"), None),
            (&json!({ "$ref": "#" }), json!(1), None),
        ] {
            assert_eq!(mismatch(schema, &answer).as_deref(), said, "{schema} {answer}");
        }
    }
}
