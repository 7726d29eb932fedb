//! What an answer must look like: JSON Schema, without reach. A reference leads nowhere but into the
//! schema itself and never back to where it came from, a pattern takes linear time, what it is to hold an
//! answer against it is counted beforehand, and the schema is compiled when the question is asked, so that a
//! bad one is the node's failure and not the answering person's.

use std::collections::HashMap;

use jsonschema::{Draft, PatternOptions, Retrieve, Uri, Validator};
use serde_json::Value;

use super::json::Json;
use super::schema_steps::{STEPS_MAX, steps};

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
            Err(error) => Err(clip(&error.to_string())),
        }
    }

    pub fn check(&self, answer: &Value) -> Result<(), Mismatch> {
        if steps(&self.schema, answer).is_none() {
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
                    what: clip(&error.to_string()),
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
            Some(None) => return Err(format!("the reference {} leads back to itself", clip(reference))),
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

    /// How long this thread had a processor, whatever else the machine does.
    fn worked() -> std::time::Duration {
        let status = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        std::time::Duration::from_nanos(status.split(' ').next().unwrap().parse().unwrap())
    }

    /// What may be said is done with soon, whatever the answer: the largest that there may be, against schemas
    /// that say much of each of its parts.
    #[test]
    fn s27_no_schema_and_answer_take_long() {
        let items = |item: &str, bytes: usize| {
            let text = format!("[{}{item}]", format!("{item},").repeat(bytes / (item.len() + 1)));
            serde_json::from_str::<Value>(&text).unwrap()
        };
        let members = |times: usize| -> Value {
            (0..times).map(|n| (format!("k{n}"), json!(n))).collect::<serde_json::Map<_, _>>().into()
        };
        let all = |schema: Value, times: usize| json!({ "allOf": vec![schema; times] });
        let nested = |wrap: &dyn Fn(Value) -> Value, times| {
            (0..times).fold(json!({ "minProperties": 1 }), |schema, _| wrap(schema))
        };
        let random: String = (0..1_u32 << 22)
            .map(|n| if (n.wrapping_mul(2_654_435_761) >> 20) & 1 == 1 { 'a' } else { 'b' })
            .collect();
        let loose = json!({ "type": "integer" });
        let bytes = 4 << 20;
        for (what, schema, answer, fits) in [
            (
                "what is usual",
                json!({ "items": { "type": "integer", "minimum": 0 } }),
                items("1", bytes / 4),
                true,
            ),
            ("an object", json!({ "additionalProperties": { "type": "integer" } }), members(100_000), true),
            ("a text", json!({ "type": "string", "minLength": 1 }), json!(random), true),
            (
                "many of each",
                json!({ "items": all(json!({ "minimum": 0, "maximum": 9 }), 4_000) }),
                items("1", bytes),
                false,
            ),
            (
                "a long list",
                json!({ "items": { "enum": (2..9_000).collect::<Vec<_>>() } }),
                items("1", bytes),
                false,
            ),
            ("unique", json!({ "uniqueItems": true }), (0..600_000).collect::<Vec<_>>().into(), true),
            ("names", json!({ "patternProperties": { "^(a|b)*a(a|b){200}c": {} } }), members(200_000), false),
            ("a pattern", json!({ "pattern": "(a|b)*a(a|b){1000}c" }), json!(random), false),
            ("a shorter text", json!({ "pattern": "(a|b)*a(a|b){1000}c" }), json!(random[..300_000]), false),
            ("patterns", all(json!({ "pattern": "(a|b)*a(a|b){300}c" }), 90), json!(random[..3_000]), false),
            (
                "unevaluated",
                json!({ "anyOf": vec![json!({ "properties": { "k1": {} } }); 40], "unevaluatedProperties": loose }),
                members(100_000),
                false,
            ),
            (
                "nested",
                nested(&|schema| json!({ "anyOf": [schema], "unevaluatedProperties": loose }), 12),
                members(3),
                true,
            ),
            (
                "nested deep",
                nested(&|schema| json!({ "oneOf": [schema, false], "unevaluatedProperties": loose }), 40),
                members(3),
                false,
            ),
            (
                "if",
                nested(&|schema| json!({ "if": schema, "then": true, "unevaluatedProperties": loose }), 40),
                members(3),
                false,
            ),
            (
                "a long number",
                json!({ "multipleOf": 0.01 }),
                serde_json::from_str(&"1".repeat(bytes)).unwrap(),
                false,
            ),
            (
                "a large number",
                json!({ "multipleOf": 3, "type": "integer" }),
                serde_json::from_str("1e999999999").unwrap(),
                false,
            ),
            ("numbers", json!({ "items": { "multipleOf": 0.1 } }), items("1e-999999", bytes / 8), false),
        ] {
            let began = worked();
            let schema = AnswerSchema::compile(&Json::from_value(&schema).unwrap());
            let schema = schema.unwrap_or_else(|error| panic!("{what}: {error}"));
            let compiled = worked() - began;
            let checked = schema.check(&answer);
            let took = worked() - began;
            println!(
                "{what}: {compiled:?} to compile, {took:?} in all, {:?}",
                checked.as_ref().err().map(|no| &no.what)
            );
            assert!(took.as_secs() < 8, "{what}: {took:?}");
            assert!(checked.is_ok() || !fits, "{what}: {checked:?}");
        }
    }
}
