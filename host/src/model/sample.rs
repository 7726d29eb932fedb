//! An answer for a question that nobody is there to answer, made from what the question says of itself.

use serde::Serialize;
use serde_json::{Map, Number, Value, json};

use super::interrupt::Question;
use super::json::Json;
use super::schema::AnswerSchema;

/// What an answer was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MadeFrom {
    Schema,
    DefaultAnswer,
    /// The question says nothing of its answer, and `true` is one to most.
    Nothing,
}

/// An answer that the question takes; `None` if none was found, which does not mean that there is none.
pub fn answer(question: &Question) -> Option<(Json, MadeFrom)> {
    let schema = match &question.answer_schema {
        Some(schema) => {
            let made = made_from(schema);
            if made.is_some() {
                return made.map(|value| (value, MadeFrom::Schema));
            }
            AnswerSchema::compile(schema).ok()
        }
        None => None,
    };
    if let Some(default) = &question.default_answer {
        return Some((default.clone(), MadeFrom::DefaultAnswer));
    }
    match schema {
        Some(schema) if schema.check(&Value::Bool(true)).is_err() => None,
        _ => Some((Json::from_value(&Value::Bool(true)).ok()?, MadeFrom::Nothing)),
    }
}

/// A number within the bounds that a schema sets, where one was found.
pub fn number_of(kind: &str, schema: &Map<String, Value>) -> Option<Value> {
    number(schema, if kind == "integer" { 1.0 } else { 0.0 })
}

fn made_from(schema: &Json) -> Option<Json> {
    let root = schema.value();
    // Only a schema that ends, references written out, compiles.
    let checked = AnswerSchema::compile(schema).ok()?;
    let value = Sampler { root: &root }.sample(&root)?;
    checked.check(&value).ok()?;
    Json::from_value(&value).ok()
}

/// Guesses; the schema itself has the last word.
struct Sampler<'s> {
    root: &'s Value,
}

/// A longer text or list than this is not made.
const LENGTH_MAX: usize = 1_000;

impl Sampler<'_> {
    fn sample(&self, schema: &Value) -> Option<Value> {
        let schema = match schema {
            Value::Bool(true) => return Some(Value::Bool(true)),
            Value::Object(schema) => schema,
            _ => return None,
        };
        if let Some(value) = schema.get("const").or_else(|| first(schema, "enum")) {
            return Some(value.clone());
        }
        if let Some(value) = schema.get("default").or_else(|| first(schema, "examples")) {
            return Some(value.clone());
        }
        if let Some(reference) = schema.get("$ref") {
            return self.sample(self.root.pointer(reference.as_str()?.strip_prefix('#')?)?);
        }
        for choice in ["anyOf", "oneOf"] {
            if let Some(one) = schema.get(choice) {
                return one.as_array()?.iter().find_map(|one| self.sample(one));
            }
        }
        if let Some(all) = schema.get("allOf") {
            let mut merged = schema.clone();
            merged.remove("allOf");
            for one in all.as_array()? {
                for (key, value) in one.as_object()? {
                    merge(&mut merged, key, value);
                }
            }
            return self.sample(&Value::Object(merged));
        }
        match kind(schema)? {
            "object" => self.object(schema),
            "array" => self.array(schema),
            "string" => string(schema),
            "integer" => number(schema, 1.0),
            "number" => number(schema, 0.0),
            "boolean" => Some(Value::Bool(true)),
            "null" => Some(Value::Null),
            _ => None,
        }
    }

    fn object(&self, schema: &Map<String, Value>) -> Option<Value> {
        let mut object = Map::new();
        let empty = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let required: Vec<&str> = match schema.get("required") {
            Some(names) => names.as_array()?.iter().filter_map(Value::as_str).collect(),
            None => Vec::new(),
        };
        for (name, property) in properties {
            match self.sample(property) {
                Some(value) => object.insert(name.clone(), value),
                None if required.contains(&name.as_str()) => return None,
                None => continue,
            };
        }
        for name in required {
            object.entry(name).or_insert(Value::Bool(true));
        }
        Some(Value::Object(object))
    }

    fn array(&self, schema: &Map<String, Value>) -> Option<Value> {
        let mut array = Vec::new();
        if let Some(places) = schema.get("prefixItems") {
            array = places.as_array()?.iter().map(|place| self.sample(place)).collect::<Option<_>>()?;
        }
        let count = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0);
        let count = usize::try_from(count).ok().filter(|&count| count <= LENGTH_MAX)?;
        while array.len() < count {
            array.push(schema.get("items").map_or(Some(Value::Bool(true)), |item| self.sample(item))?);
        }
        Some(Value::Array(array))
    }
}

fn first<'v>(schema: &'v Map<String, Value>, key: &str) -> Option<&'v Value> {
    schema.get(key)?.as_array()?.first()
}

fn merge(into: &mut Map<String, Value>, key: &str, value: &Value) {
    match (into.get_mut(key), value) {
        (Some(Value::Object(present)), Value::Object(more)) => present.extend(more.clone()),
        (Some(Value::Array(present)), Value::Array(more)) => present.extend(more.clone()),
        _ => _ = into.insert(key.to_owned(), value.clone()),
    }
}

/// The type that it names, or that its other words are about.
fn kind(schema: &Map<String, Value>) -> Option<&str> {
    match schema.get("type") {
        Some(Value::String(kind)) => return Some(kind),
        Some(Value::Array(kinds)) => return kinds.first()?.as_str(),
        _ => {}
    }
    let has = |words: &[&str]| words.iter().any(|&word| schema.contains_key(word));
    match () {
        () if has(&["properties", "required", "additionalProperties"]) => Some("object"),
        () if has(&["items", "prefixItems", "minItems"]) => Some("array"),
        () if has(&["minLength", "maxLength", "pattern", "format"]) => Some("string"),
        () if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) => {
            Some("number")
        }
        () => Some("boolean"),
    }
}

fn string(schema: &Map<String, Value>) -> Option<Value> {
    let length = |key| schema.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
    let known = match schema.get("format").and_then(Value::as_str) {
        Some("date-time") => "2026-01-01T00:00:00Z",
        Some("date") => "2026-01-01",
        Some("time") => "00:00:00Z",
        Some("email") => "somebody@example.org",
        Some("uri") => "https://example.org/",
        Some("uuid") => "00000000-0000-4000-8000-000000000000",
        _ => "answer",
    };
    let mut text = known.to_owned();
    if let Some(least) = length("minLength") {
        let missing = least.min(LENGTH_MAX).saturating_sub(text.len());
        text.extend(std::iter::repeat_n('x', missing));
    }
    text.truncate(length("maxLength").unwrap_or(text.len()));
    Some(text.into())
}

/// `grain`: what it is a multiple of; 0 for none.
fn number(schema: &Map<String, Value>, grain: f64) -> Option<Value> {
    let bound = |key| schema.get(key).and_then(Value::as_f64);
    let grain = bound("multipleOf").unwrap_or(grain);
    let step = if grain > 0.0 { grain } else { 1.0 };
    let (least, above) = (bound("minimum"), bound("exclusiveMinimum"));
    let (most, below) = (bound("maximum"), bound("exclusiveMaximum"));
    let fits = |value: &f64| {
        least.is_none_or(|bound| *value >= bound)
            && above.is_none_or(|bound| *value > bound)
            && most.is_none_or(|bound| *value <= bound)
            && below.is_none_or(|bound| *value < bound)
    };
    let (low, high) = (least.or(above), most.or(below));
    let between = low.zip(high).map(|(low, high)| low.midpoint(high));
    let candidates = [Some(1.0), low, low.map(|low| low + step), high, high.map(|high| high - step), between];
    let value = candidates
        .into_iter()
        .flatten()
        .map(|value| if grain > 0.0 { (value / grain).ceil() * grain } else { value })
        .find(fits)?;
    if value.fract() == 0.0 && value.abs() < 9e15 {
        return Some(json!(value as i64));
    }
    Number::from_f64(value).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::json::JsonBounds;

    fn made(schema: Option<&str>, default: Option<&str>) -> Option<(String, MadeFrom)> {
        let json = |text: &str| Json::parse(text, JsonBounds::TRUSTED).unwrap();
        let question = Question {
            payload: Json::null(),
            answer_schema: schema.map(json),
            expires_after_ms: None,
            default_answer: default.map(json),
        };
        answer(&question).map(|(answer, from)| (answer.to_string(), from))
    }

    #[test]
    fn an_answer_is_made_that_the_schema_takes() {
        for (schema, answer) in [
            (r#"{"type":"boolean"}"#, "true"),
            ("{}", "true"),
            (r#"{"type":["string","null"],"minLength":8}"#, r#""answerxx""#),
            (r#"{"maxLength":2}"#, r#""an""#),
            (r#"{"type":"string","format":"date"}"#, r#""2026-01-01""#),
            (r#"{"enum":["no","yes"]}"#, r#""no""#),
            (r#"{"const":{"a":[1.50]}}"#, r#"{"a":[1.50]}"#),
            (r#"{"type":"integer","minimum":7,"multipleOf":5}"#, "10"),
            (r#"{"type":"number","exclusiveMinimum":0,"maximum":0.25}"#, "0.25"),
            (r#"{"type":"number","exclusiveMinimum":2,"exclusiveMaximum":3}"#, "2.5"),
            (r#"{"type":"integer","maximum":-7}"#, "-7"),
            (r#"{"type":"array","items":{"type":"null"},"minItems":2}"#, "[null,null]"),
            (r#"{"type":"array","prefixItems":[{"const":1}],"items":{"const":2},"minItems":2}"#, "[1,2]"),
            (
                r#"{"type":"object","properties":{"approved":{"type":"boolean"},"note":{"type":"string"}},
                    "required":["approved","extra"]}"#,
                r#"{"approved":true,"extra":true,"note":"answer"}"#,
            ),
            (r##"{"$defs":{"n":{"type":"integer"}},"properties":{"a":{"$ref":"#/$defs/n"}}}"##, r#"{"a":1}"#),
            (r#"{"oneOf":[{"type":"object"},{"const":4}]}"#, "{}"),
            (
                r#"{"allOf":[{"properties":{"a":{"const":1}}},{"properties":{"b":{"const":2}}}]}"#,
                r#"{"a":1,"b":2}"#,
            ),
        ] {
            assert_eq!(made(Some(schema), None), Some((answer.to_owned(), MadeFrom::Schema)), "{schema}");
        }
    }

    #[test]
    fn where_the_schema_helps_nothing_the_default_stands_and_then_true() {
        let pattern = r#"{"type":"string","pattern":"^[0-9]{4}$"}"#;
        assert_eq!(made(Some(pattern), Some("\"1234\"")), Some(("\"1234\"".into(), MadeFrom::DefaultAnswer)));
        assert_eq!(made(Some(pattern), None), None);
        assert_eq!(made(None, Some("7")), Some(("7".into(), MadeFrom::DefaultAnswer)));
        assert_eq!(made(None, None), Some(("true".into(), MadeFrom::Nothing)));
    }
}
