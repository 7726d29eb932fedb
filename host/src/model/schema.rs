//! What an answer must look like: JSON Schema, without reach. A reference leads nowhere but into the
//! schema itself and never back to where it came from, a pattern takes linear time, what it is to hold an
//! answer against it is counted beforehand, and the schema is compiled when the question is asked, so that a
//! bad one is the node's failure and not the answering person's.

use std::collections::HashMap;

use jsonschema::{Draft, PatternOptions, Retrieve, Uri, Validator};
use serde_json::Value;

use super::json::Json;
use super::schema_steps::{STEPS_MAX, steps};
use super::schema_words::words;

pub struct AnswerSchema {
    schema: Value,
    validator: Validator,
}

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
        if schema.as_str().len() > BYTES_MAX {
            return Err(format!("it has {} bytes, more than {BYTES_MAX}", schema.as_str().len()));
        }
        let schema = schema.value();
        Weigher { root: &schema, known: HashMap::new() }.weigh_root()?;
        let patterns =
            PatternOptions::regex().size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX);
        let built = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .with_retriever(Nowhere)
            .with_pattern_options(patterns)
            .build(&schema);
        match built {
            Ok(validator) => Ok(Self { schema, validator }),
            Err(error) => {
                let what = clip(&error.to_string());
                Err(match what.contains("regex") {
                    true => format!(
                        "{what}; a pattern has neither look-around nor back-references, and is of bounded size"
                    ),
                    false => what,
                })
            }
        }
    }

    /// Whether to compile a schema and to hold an answer against it is done at once. What is not may take seconds,
    /// and belongs where nothing else waits for it. It does not take long to say so.
    pub fn is_light(schema: &Json, answer: &Value) -> bool {
        if schema.as_str().len() > LIGHT_BYTES_MAX {
            return false;
        }
        let schema = schema.value();
        let weight = Weigher { root: &schema, known: HashMap::new() }.weigh(&schema, 0);
        // What is refused is refused soon.
        weight.is_ok_and(|weight| weight.schemas <= LIGHT_WEIGHT_MAX)
            && steps(&schema, answer, LIGHT_STEPS_MAX).is_some()
    }

    pub fn check(&self, answer: &Value) -> Result<(), Mismatch> {
        if steps(&self.schema, answer, STEPS_MAX).is_none() {
            return Err(Mismatch {
                path: "/".into(),
                what: format!(
                    "holding it against the schema takes more than {STEPS_MAX} steps; a shorter answer takes less"
                ),
            });
        }
        match self.validator.iter_errors(answer).next() {
            None => Ok(()),
            Some(error) => {
                let path = error.instance_path().to_string();
                Err(Mismatch {
                    path: if path.is_empty() { "/".into() } else { path },
                    what: words(&self.schema, &error),
                })
            }
        }
    }
}

/// Of its text.
const BYTES_MAX: usize = 256 << 10;

/// How many schemas, and values that are compared with, one answer may be held against, references written out.
const WEIGHT_MAX: u64 = 20_000;

/// How far they may be in each other, references written out: what compiles and checks them goes down as deep.
const DEPTH_MAX: u64 = 200;

/// Some milliseconds, in a build that is not optimised.
const LIGHT_BYTES_MAX: usize = 16 << 10;
const LIGHT_WEIGHT_MAX: u64 = 1_000;
const LIGHT_STEPS_MAX: u64 = 50_000;

/// A pattern, compiled; and that it counts as many schemas, so that all of them together are bounded as well.
const PATTERN_BYTES_MAX: usize = 512 << 10;
const PATTERN_WEIGHT: u64 = 200;

/// Counts what a schema is with every reference written out. A short one can say, through references to
/// references, what takes longer than anybody lives; and one that leads back to itself need never end.
struct Weigher<'s> {
    root: &'s Value,
    /// By reference; `None` while it is being followed.
    known: HashMap<&'s str, Option<Weight>>,
}

#[derive(Clone, Copy)]
struct Weight {
    schemas: u64,
    /// Levels below it, itself included.
    depth: u64,
}

impl<'s> Weigher<'s> {
    fn weigh_root(&mut self) -> Result<(), String> {
        match self.weigh(self.root, 0)? {
            Weight { schemas, .. } if schemas > WEIGHT_MAX => {
                Err(format!("written out, its references make more than {WEIGHT_MAX} schemas"))
            }
            _ => Ok(()),
        }
    }

    /// `above`: in how many others it is.
    fn weigh(&mut self, schema: &'s Value, above: u64) -> Result<Weight, String> {
        // Before it goes further down: it is as deep itself.
        shallow(above)?;
        let mut weight = Weight { schemas: 1, depth: 1 };
        let mut add = |more: Weight| {
            weight.schemas = weight.schemas.saturating_add(more.schemas);
            weight.depth = weight.depth.max(more.depth + 1);
            shallow(above + weight.depth)
        };
        match schema {
            Value::Array(all) => {
                for schema in all {
                    add(self.weigh(schema, above + 1)?)?;
                }
            }
            Value::Object(members) => {
                for (key, value) in members {
                    add(match (key.as_str(), value) {
                        // Plain values, whatever they look like.
                        ("const" | "enum" | "default" | "examples", _) => {
                            Weight { schemas: values(value), depth: 0 }
                        }
                        ("$ref", Value::String(reference)) => self.follow(reference, above + 1)?,
                        ("pattern", Value::String(_)) => Weight { schemas: PATTERN_WEIGHT, depth: 0 },
                        ("patternProperties", Value::Object(patterns)) => {
                            let mut all = self.weigh(value, above + 1)?;
                            let patterns = PATTERN_WEIGHT.saturating_mul(patterns.len() as u64);
                            all.schemas = all.schemas.saturating_add(patterns);
                            all
                        }
                        (
                            "$id" | "$anchor" | "$dynamicAnchor" | "$dynamicRef" | "$recursiveRef",
                            Value::String(_),
                        ) => {
                            return Err(format!("{key} is not taken; refer by #/$defs/NAME"));
                        }
                        _ => self.weigh(value, above + 1)?,
                    })?;
                }
            }
            _ => {}
        }
        Ok(weight)
    }

    fn follow(&mut self, reference: &'s str, above: u64) -> Result<Weight, String> {
        match self.known.get(reference) {
            Some(Some(weight)) => return Ok(*weight),
            Some(None) => {
                let reference = clip(reference);
                return Err(format!(
                    "the reference {reference} leads back to itself; write out as many levels as an answer may have"
                ));
            }
            None => {}
        }
        let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        let target =
            target.ok_or_else(|| format!("the reference {} leads nowhere in the schema", clip(reference)))?;
        self.known.insert(reference, None);
        let weight = self.weigh(target, above)?;
        self.known.insert(reference, Some(weight));
        Ok(weight)
    }
}

fn shallow(depth: u64) -> Result<(), String> {
    match depth > DEPTH_MAX {
        true => Err(format!("written out, its references are more than {DEPTH_MAX} levels deep")),
        false => Ok(()),
    }
}

/// How many there are in it.
fn values(value: &Value) -> u64 {
    match value {
        Value::Array(all) => 1 + all.iter().map(values).sum::<u64>(),
        Value::Object(members) => 1 + members.values().map(values).sum::<u64>(),
        _ => 1,
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
    fn of_several_ways_to_answer_each_says_why_it_is_none() {
        let approval = schema(
            r#"{"oneOf":[
                {"title":"yes","properties":{"approved":{"const":true}},"required":["approved"]},
                {"properties":{"approved":{"const":false},"reason":{"type":"string"}},"required":["approved","reason"]}]}"#,
        )
        .unwrap();
        assert_eq!(
            approval.check(&json!({ "approved": false })).unwrap_err().to_string(),
            "at /: {\"approved\":false} fits none of 2 ways to answer; 1 (yes): at /approved: true was expected; \
             2: \"reason\" is a required property"
        );
        let both = schema(r#"{"oneOf":[{"type":"integer"},{"minimum":3},{"type":"null"}]}"#).unwrap();
        assert_eq!(
            both.check(&json!(5)).unwrap_err().what,
            "5 fits more than one of 3 ways to answer; 1: it fits; 2: it fits; 3: 5 is not of type \"null\""
        );
        let far = json!({ "anyOf": vec![json!({ "const": "x".repeat(1_000) }); 90] });
        let far = schema(&far.to_string()).unwrap().check(&json!("y".repeat(5_000))).unwrap_err().what;
        assert!(far.ends_with("; and 86 more") && far.chars().count() < 1_000, "{far}");
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
        let error =
            super::AnswerSchema::compile(&Json::from_canonical(r#"{"pattern":"(a)\\1"}"#)).err().unwrap();
        assert!(error.contains("neither look-around nor back-references"), "{error}");
    }

    /// A chain is as deep for what compiles it as what stands in itself so often.
    #[test]
    fn s27_a_long_chain_of_references_is_refused_and_does_not_end_the_host() {
        let chain = |length: usize| {
            let links: Vec<_> =
                (0..length).map(|n| format!(r##""d{n}":{{"$ref":"#/$defs/d{}"}}"##, n + 1)).collect();
            format!(
                r##"{{"$defs":{{{},"d{length}":{{"type":"null"}}}},"$ref":"#/$defs/d0"}}"##,
                links.join(",")
            )
        };
        assert!(schema(&chain(50)).unwrap().check(&json!(1)).is_err());
        for length in [300, 5_000] {
            let error = schema(&chain(length)).err().expect("it is too deep");
            assert!(error.contains("more than 200 levels deep"), "{length}: {error}");
        }
        // The same, where each link is met on the way back, from the shallow end.
        let backwards = r##"{"$defs":{"a0":{"type":"null"}},"allOf":[]}"##;
        let mut root: Value = serde_json::from_str(backwards).unwrap();
        for n in 1..300 {
            root["$defs"][format!("a{n}")] = json!({ "$ref": format!("#/$defs/a{}", n - 1) });
            root["allOf"].as_array_mut().unwrap().push(json!({ "$ref": format!("#/$defs/a{n}") }));
        }
        let error = schema(&root.to_string()).err().expect("it is too deep");
        assert!(error.contains("levels deep"), "{error}");
    }

    #[test]
    fn s27_a_schema_that_weighs_too_much_is_refused() {
        let many = |value: &str, times: usize| format!("[{}]", vec![value; times].join(","));
        for (refused, why) in [
            (format!(r#"{{"description":"{}"}}"#, "x".repeat(300_000)), "more than 262144"),
            (format!(r#"{{"enum":{}}}"#, many("1", 30_000)), "more than 20000 schemas"),
            (format!(r#"{{"allOf":{}}}"#, many("{}", 30_000)), "more than 20000 schemas"),
            (format!(r#"{{"allOf":{}}}"#, many(r#"{"pattern":"a"}"#, 120)), "more than 20000 schemas"),
            (r#"{"pattern":"(a|b)*a(a|b){9000}c"}"#.to_owned(), "a|b"),
        ] {
            let error = schema(&refused).err().unwrap_or_else(|| panic!("{why}"));
            assert!(error.contains(why), "{why}: {error}");
        }
        for taken in [
            r#"^\\w{1,32}$"#,
            r#"^[\\w.+-]+@[\\w-]+\\.[\\w.]+$"#,
            r#"^\\d{4}-\\d{2}-\\d{2}$"#,
            "^[a-z0-9-]{1,64}$",
            r#"^\\p{L}{1,20}$"#,
        ] {
            let taken = format!(r#"{{"pattern":"{taken}"}}"#);
            schema(&taken).unwrap_or_else(|error| panic!("{taken}: {error}"));
        }
    }
}
