//! What an answer must look like: JSON Schema, without reach. A reference leads nowhere but into the
//! schema itself, a pattern takes linear time, and the schema is compiled when the question is asked,
//! so that a bad one is the node's failure and not the answering person's.

use jsonschema::{Draft, PatternOptions, Retrieve, Uri, Validator};
use serde_json::Value;

use super::json::Json;

pub struct AnswerSchema(Validator);

/// An answer that its question does not take, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at {path}: {what}")]
pub struct Mismatch {
    /// JSON pointer into the answer; `/` is the answer itself.
    pub path: String,
    pub what: String,
}

struct Nowhere;

impl Retrieve for Nowhere {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("the reference {uri} leads outside of the schema").into())
    }
}

impl AnswerSchema {
    /// The error says what is wrong with the schema.
    pub fn compile(schema: &Json) -> Result<Self, String> {
        jsonschema::options()
            .with_draft(Draft::Draft202012)
            .with_retriever(Nowhere)
            .with_pattern_options(PatternOptions::regex())
            .build(&schema.value())
            .map(Self)
            .map_err(|error| clip(&error.to_string()))
    }

    pub fn check(&self, answer: &Value) -> Result<(), Mismatch> {
        match self.0.iter_errors(answer).next() {
            None => Ok(()),
            Some(error) => {
                let path = error.instance_path().to_string();
                Err(Mismatch {
                    path: if path.is_empty() { "/".into() } else { path },
                    what: clip(&error.to_string()),
                })
            }
        }
    }
}

/// The library's messages show the value, which may be large.
fn clip(message: &str) -> String {
    match message.char_indices().nth(400) {
        None => message.to_owned(),
        Some((at, _)) => format!("{}…", &message[..at]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::json::JsonBounds;
    use serde_json::json;

    fn schema(text: &str) -> Result<AnswerSchema, String> {
        AnswerSchema::compile(&Json::parse(text, JsonBounds::TRUSTED).unwrap())
    }

    #[test]
    fn a_mismatch_names_the_path() {
        let schema = schema(
            r#"{"type":"object","properties":{"approved":{"type":"boolean"}},"required":["approved"]}"#,
        )
        .unwrap();
        assert_eq!(schema.check(&json!({"approved": true})), Ok(()));
        assert_eq!(schema.check(&json!({"approved": "yes"})).unwrap_err().path, "/approved");
        assert_eq!(schema.check(&json!({})).unwrap_err().path, "/");
    }

    #[test]
    fn a_schema_reaches_nowhere() {
        for reference in ["file:///etc/passwd", "http://127.0.0.1/x.json", "other.json"] {
            assert!(schema(&format!(r#"{{"$ref":"{reference}"}}"#)).is_err(), "{reference}");
        }
        assert!(schema(r#"{"type":"nothing"}"#).is_err());
    }

    #[test]
    fn a_pattern_takes_linear_time() {
        let schema = schema(r#"{"type":"string","pattern":"^(a+)+$"}"#).unwrap();
        assert!(schema.check(&json!(format!("{}!", "a".repeat(50_000)))).is_err());
        assert!(super::AnswerSchema::compile(&Json::from_canonical(r#"{"pattern":"(a)\\1"}"#)).is_err());
    }
}
