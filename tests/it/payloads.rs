//! What a question shows and an answer says comes back as it went in, or is refused.

use holdpoint::Command;
use holdpoint::model::Kind;
use serde_json::{Value, json};

use crate::world::*;

#[tokio::test(flavor = "multi_thread")]
async fn i07_payloads_and_answers_come_back_as_they_went_in() {
    let world = World::new();
    let graph = world.one().await;
    let long = json!("x".repeat(1 << 20)).to_string();
    let deep = format!("{}{}", "[".repeat(90), "]".repeat(90));
    let texts = [
        "null",
        "false",
        "0",
        "\"\"",
        "[]",
        "{}",
        &long,
        &deep,
        "12345678901234567890123",
        "1.10",
        "-0.0",
        "1e400",
        "\"🦀 é 👩‍👩‍👧\\u0000\\n\"",
        r#"{"a":[1.10,{"b":null}],"z":"\"\\"}"#,
    ];
    for (i, text) in texts.into_iter().enumerate() {
        let thread = format!("t{i}");
        let ops = json!([{ "raw_ask": text }, { "put_results": "a" }]);
        paused(graph.invoke(on(&thread), script(ops)).await.unwrap());
        let host = world.host().await;
        let asked = paused(host.execution(on(&thread)).await.unwrap());
        let right: Value = serde_json::from_str(text).unwrap();
        assert_eq!(asked[0].interrupt.payload.to_string(), right.to_string());
        completed(host.resume(on(&thread), Command::resume(right.clone())).await.unwrap());
        let state = host.state(on(&thread)).await.unwrap();
        assert_eq!(state["a"].to_string(), format!("[{right}]"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i07_what_two_readers_would_read_differently_fails_the_node() {
    let world = World::new();
    let graph = world.one().await;
    for (i, text) in ["NaN", "Infinity", r#"{"a":1,"b":2,"a":3}"#, r#""\ud800""#].into_iter().enumerate() {
        for verb in ["raw_ask", "raw_update"] {
            let execution =
                graph.invoke(on(&format!("{verb}{i}")), script(json!([{ verb: text }]))).await.unwrap();
            assert_eq!(failed(&execution), Kind::Invalid, "{text}");
            assert!(execution.interrupts.is_empty());
            let error = execution.error.unwrap();
            assert_eq!(error.more["node"], json!("n"));
            assert!(error.message.contains("byte"), "{error}");
        }
    }
}
