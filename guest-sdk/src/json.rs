//! JSON in and out. Everything goes through [`Value`]: on the way out because its keys are sorted, so
//! that a `HashMap` in a question gives the same bytes in every attempt; on the way in because untagged
//! and flattened types read numbers from a `Value` that they cannot read from text.

use std::fmt;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Number, Value};

use crate::NodeError;

/// Why a value is not of the type that was expected, with the field.
pub struct Mismatch(serde_path_to_error::Error<serde_json::Error>);

impl fmt::Display for Mismatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.0.path();
        if path.iter().len() > 0 {
            write!(out, "at `{path}`: ")?;
        }
        write!(out, "{}", self.0.inner())
    }
}

pub(crate) fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, Mismatch> {
    serde_path_to_error::deserialize(value)
        // Untagged and flattened types take 1.5 but not 1.50, whose digits `Value` keeps.
        .or_else(|_| serde_path_to_error::deserialize(&rounded(value)))
        .map_err(Mismatch)
}

/// The same value, with numbers as a program would write them.
fn rounded(value: &Value) -> Value {
    match value {
        Value::Number(number) if !number.is_i64() && !number.is_u64() => {
            number.as_f64().and_then(Number::from_f64).map_or_else(|| value.clone(), Value::Number)
        }
        Value::Array(items) => items.iter().map(rounded).collect(),
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), rounded(value))).collect(),
        other => other.clone(),
    }
}

pub(crate) fn to_text(value: impl Serialize) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_value(value)?.to_string())
}

/// For text from the host, which hands over nothing but JSON.
pub(crate) fn parse(text: &str) -> Result<Value, NodeError> {
    serde_json::from_str(text).map_err(|why| NodeError::fail(format!("the host sent no JSON: {why}")))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde::Deserialize;

    use super::*;

    #[test]
    fn a_map_has_one_text_whatever_its_order() {
        let keys: HashMap<String, u32> = (0..50).map(|key| (format!("{key:02}"), key)).collect();
        let sorted: Vec<_> = (0..50).map(|key| format!("\"{key:02}\":{key}")).collect();
        assert_eq!(to_text(keys).unwrap(), format!("{{{}}}", sorted.join(",")));
    }

    #[test]
    fn a_mismatch_names_the_field() {
        #[derive(Deserialize, Debug)]
        #[expect(dead_code, reason = "only read into")]
        struct Order {
            lines: Vec<Line>,
        }
        #[derive(Deserialize, Debug)]
        #[expect(dead_code, reason = "only read into")]
        struct Line {
            cents: u32,
        }
        let check = |text, expected| {
            let why = from_value::<Order>(&parse(text).unwrap()).err().unwrap();
            assert_eq!(why.to_string(), expected);
        };
        check(
            r#"{"lines": [{"cents": 1}, {"cents": "2"}]}"#,
            "at `lines[1].cents`: invalid type: string \"2\", expected u32",
        );
        check("{}", "missing field `lines`");
    }

    #[test]
    fn numbers_keep_their_digits_and_tagged_types_still_read_them() {
        #[derive(Deserialize, Debug, PartialEq)]
        #[serde(untagged)]
        enum Either {
            Number(f64),
            Text(String),
        }
        let value = parse("1.50").unwrap();
        assert_eq!(to_text(&value).unwrap(), "1.50");
        assert_eq!(from_value::<Either>(&value).ok().unwrap(), Either::Number(1.5));
    }
}
