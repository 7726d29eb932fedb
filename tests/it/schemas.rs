//! Schemas that mean ill, and the largest answers: what a check costs is bounded.

use std::time::{Duration, Instant};

use holdpoint::Command;
use holdpoint::model::schema::AnswerSchema;
use holdpoint::model::{Json, Kind};
use serde_json::{Value, json};
use tokio::sync::oneshot::error::TryRecvError;

use crate::world::*;

/// How long this thread had a processor, whatever else the machine does.
fn worked() -> Duration {
    let status = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(status.split(' ').next().unwrap().parse().unwrap())
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

/// On one thread: whatever keeps it busy keeps everybody waiting.
#[tokio::test]
async fn s27_an_answer_that_takes_long_to_check_keeps_nobody_else_waiting() {
    let world = World::new();
    let graph = world.one().await;
    let schema = json!({ "items": { "allOf": vec![json!({ "minimum": 0 }); 300] } });
    let ops = json!([{ "ask": "?", "schema": schema }, { "put_results": "a" }]);
    paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let ticking = tokio::spawn(async move {
        let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
        while stopped.try_recv() == Err(TryRecvError::Empty) {
            tokio::time::sleep(Duration::from_millis(2)).await;
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        longest
    });
    let mut wrong = vec![1; 20_000];
    wrong.push(-1);
    let (schema, value) = (Json::from_value(&schema).unwrap(), json!(wrong));
    assert!(!AnswerSchema::is_light(&schema, &value) && AnswerSchema::is_light(&schema, &json!([1])));
    let began = Instant::now();
    let refusal = refused(graph.resume(on("t"), Command::resume(value)).await);
    let took = began.elapsed();
    stop.send(()).unwrap();
    let longest = ticking.await.unwrap();
    assert_eq!((refusal.error.kind, &refusal.error.more["path"]), (Kind::Schema, &json!("/20000")));
    println!("{took:?}, {longest:?} without a turn");
    assert!(longest < took / 2, "{longest:?} of {took:?}");
    completed(graph.resume(on("t"), Command::resume(json!([1, 2]))).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn s27_a_schema_that_refers_to_a_file_or_an_address_reaches_neither() {
    let world = World::new();
    let graph = world.one().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    // Whoever opened it would wait for somebody who writes.
    let pipe = world.dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (n, reference) in
        [format!("http://{address}/s.json"), format!("file://{}", pipe.display()), pipe.display().to_string()]
            .into_iter()
            .enumerate()
    {
        for schema in [
            json!({ "$ref": reference }),
            json!({ "$schema": reference, "type": "string" }),
            json!({ "$id": reference, "$ref": "other.json" }),
        ] {
            let ops = script(json!([{ "ask": "?", "schema": schema }]));
            let run = graph.invoke(on(&format!("t{n}{}", schema.get("$schema").is_some())), ops);
            let run =
                tokio::time::timeout(Duration::from_secs(20), run).await.expect("it opens nothing").unwrap();
            // What only says by which rules it is written leads nowhere; all else is refused.
            if schema.get("$schema").is_some() {
                paused(run);
                continue;
            }
            failed(&run);
            let error = run.error.unwrap();
            assert!(error.message.contains("schema"), "{schema}: {error}");
        }
    }
    assert!(listener.accept().is_err(), "nobody came");
    completed(graph.invoke(on("after"), script(json!([]))).await.unwrap());
}
