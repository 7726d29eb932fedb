//! What an answer must look like: JSON Schema, without reach. A reference leads nowhere but into the
//! schema itself and never back to where it came from, a pattern takes linear time, and the schema is
//! compiled when the question is asked, so that a bad one is the node's failure and not the answering
//! person's.

use std::collections::HashMap;

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
        let schema = schema.value();
        Weigher { root: &schema, known: HashMap::new() }.weigh_root()?;
        jsonschema::options()
            .with_draft(Draft::Draft202012)
            .with_retriever(Nowhere)
            .with_pattern_options(PatternOptions::regex())
            .build(&schema)
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

/// How many schemas one answer may be held against, references written out.
const WEIGHT_MAX: u64 = 20_000;

/// Counts what a schema is with every reference written out. A short one can say, through references to
/// references, what takes longer than anybody lives; and one that leads back to itself need never end.
struct Weigher<'s> {
    root: &'s Value,
    /// By reference; `None` while it is being followed.
    known: HashMap<&'s str, Option<u64>>,
}

impl<'s> Weigher<'s> {
    fn weigh_root(&mut self) -> Result<(), String> {
        match self.weigh(self.root)? {
            weight if weight > WEIGHT_MAX => {
                Err(format!("written out, its references make more than {WEIGHT_MAX} schemas"))
            }
            _ => Ok(()),
        }
    }

    fn weigh(&mut self, schema: &'s Value) -> Result<u64, String> {
        let mut weight: u64 = 1;
        match schema {
            Value::Array(all) => {
                for schema in all {
                    weight = weight.saturating_add(self.weigh(schema)?);
                }
            }
            Value::Object(members) => {
                for (key, value) in members {
                    let more = match (key.as_str(), value) {
                        // Plain values, whatever they look like.
                        ("const" | "enum" | "default" | "examples", _) => 0,
                        ("$ref", Value::String(reference)) => self.follow(reference)?,
                        (
                            "$id" | "$anchor" | "$dynamicAnchor" | "$dynamicRef" | "$recursiveRef",
                            Value::String(_),
                        ) => {
                            return Err(format!("{key} is not taken; refer by #/$defs/NAME"));
                        }
                        _ => self.weigh(value)?,
                    };
                    weight = weight.saturating_add(more);
                }
            }
            _ => {}
        }
        Ok(weight)
    }

    fn follow(&mut self, reference: &'s str) -> Result<u64, String> {
        match self.known.get(reference) {
            Some(Some(weight)) => return Ok(*weight),
            Some(None) => return Err(format!("the reference {} leads back to itself", clip(reference))),
            None => {}
        }
        let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        let target =
            target.ok_or_else(|| format!("the reference {} leads nowhere in the schema", clip(reference)))?;
        self.known.insert(reference, None);
        let weight = self.weigh(target)?;
        self.known.insert(reference, Some(weight));
        Ok(weight)
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
    fn s27_references_are_followed_as_far_as_they_end_soon() {
        let fine =
            r##"{"$defs":{"n":{"type":"integer"}},"properties":{"a":{"$ref":"#/$defs/n"},"$ref":{}}}"##;
        let taken = schema(fine).unwrap();
        assert_eq!(taken.check(&json!({"a": "1"})).unwrap_err().path, "/a");
        // Each level holds against the next one twice.
        let mut defs = vec![r#""d40":{}"#.to_owned()];
        for level in 0..40 {
            let next = level + 1;
            defs.push(format!(
                r##""d{level}":{{"allOf":[{{"$ref":"#/$defs/d{next}"}},{{"$ref":"#/$defs/d{next}"}}]}}"##
            ));
        }
        let doubling = format!(r##"{{"$defs":{{{}}},"$ref":"#/$defs/d0"}}"##, defs.join(","));
        for (refused, why) in [
            (doubling.as_str(), "more than 20000 schemas"),
            (r##"{"$ref":"#"}"##, "leads back to itself"),
            (r##"{"anyOf":[{"type":"null"},{"items":{"$ref":"#"}}]}"##, "leads back to itself"),
            (
                r##"{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}"##,
                "itself",
            ),
            (r##"{"$ref":"#/$defs/none"}"##, "leads nowhere"),
            (r##"{"$dynamicRef":"#x"}"##, "$dynamicRef is not taken"),
        ] {
            let error = schema(refused).err().expect(refused);
            assert!(error.contains(why), "{refused}: {error}");
        }
    }

    #[test]
    fn a_pattern_takes_linear_time() {
        let schema = schema(r#"{"type":"string","pattern":"^(a+)+$"}"#).unwrap();
        assert!(schema.check(&json!(format!("{}!", "a".repeat(50_000)))).is_err());
        assert!(super::AnswerSchema::compile(&Json::from_canonical(r#"{"pattern":"(a)\\1"}"#)).is_err());
    }
}
