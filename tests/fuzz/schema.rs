//! An answer's schema is the node's, and the answer somebody else's.

use std::time::Duration;

use holdpoint::model::schema::AnswerSchema;
use holdpoint::model::{Json, Limits};
use serde_json::json;

/// Nobody waits longer for what was said in so few bytes.
const AT_ONCE: Duration = Duration::from_secs(5);

/// How long this thread had a processor.
fn worked() -> Duration {
    let status = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(status.split(' ').next().unwrap().parse().unwrap())
}

/// The first line is a schema, the rest is an answer to it.
pub fn schema(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    let (schema, answer) = text.split_once('\n').unwrap_or((&text, "null"));
    let bounds = Limits::default().json(1 << 20);
    let (Ok(schema), Ok(answer)) = (Json::parse(schema, bounds), Json::parse(answer, bounds)) else {
        return false;
    };
    let began = worked();
    let taken = match AnswerSchema::compile(&schema) {
        Ok(compiled) => {
            for answer in [answer.value(), json!(null), json!({ "approved": true }), schema.value()] {
                if let Err(mismatch) = compiled.check(&answer) {
                    assert!(mismatch.to_string().len() < 10_000);
                }
            }
            true
        }
        Err(why) => {
            assert!(why.len() < 10_000, "{why}");
            false
        }
    };
    let took = worked() - began;
    assert!(took < AT_ONCE, "{took:?}");
    taken
}
