//! A node of Rust that does as it is told, verified; and one that does not do again what was recorded.

use holdpoint::engine::verify::{At, VerifyError, record, verify};
use holdpoint::model::{Json, Limits};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::telling::{Stage, finished, telling};
use crate::world::component as built;

/// What only the first attempt shows to others (log lines, events) is not to be seen by the node.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_guest_of_rust_can_find_out_is_the_same_in_every_attempt() {
    let limits = Limits { log_bytes: 2_000, host_call_bytes: 100_000, ..Limits::default() };
    let stage = Stage::new(limits).await;
    let bytes = std::fs::read(built("script")).unwrap();
    let effect = json!({ "effect": { "name": "e", "key": "k", "input": { "n": 1 } } });
    let ask = json!({ "ask_results": true });
    let emit = json!({ "repeat": { "times": 50, "ops": [{ "emit": "x".repeat(5_000) }] } });
    for (ops, ends) in [
        (
            json!([{ "now": true }, { "monotonic": true }, ask, { "now": true }, { "monotonic": true }, effect, { "now": true }, ask, { "steering": true }, { "now": true }, ask]),
            true,
        ),
        (
            json!([{ "hash_order": true }, ask, { "random": 9 }, { "insecure_random": 3 }, effect, { "insecure_seed": true }, { "hash_order": true }, ask]),
            true,
        ),
        (
            json!([{ "sleep_ms": 90_000_000 }, { "now": true }, ask, { "sleep_ms": 5 }, { "now": true }, effect, { "monotonic": true }, ask]),
            true,
        ),
        (
            json!([{ "spam_log": { "bytes": 300, "times": 20 } }, { "spam_print": { "bytes": 300, "times": 20 } }, emit, ask, emit, effect, { "eprint": "late" }, ask]),
            true,
        ),
        (
            json!([{ "env": true }, { "args": true }, { "stdin": true }, { "open": "/etc/passwd" }, { "write": "/x" }, { "list": "/" }, ask]),
            true,
        ),
        (
            json!([{ "connect": "127.0.0.1:1" }, { "udp": "0.0.0.0:0" }, effect, { "connect": "127.0.0.1:1" }, ask]),
            true,
        ),
        (json!([{ "grow": 1_000_000 }, ask, { "grow": 50_000_000 }, effect, ask]), true),
        (json!([{ "ask_all": [1, 2, 3] }, effect, { "ask_all": [] }, { "context": true }, ask]), true),
        (json!([effect, ask, { "panic": "halfway" }]), false),
        (json!([effect, ask, { "recurse": true }]), false),
        (json!([effect, ask, { "trap": "oob" }]), false),
        (json!([effect, ask, { "exit": 3 }]), false),
        (json!([effect, ask, { "retry": "later" }]), false),
        (json!([effect, ask, { "effect": { "name": "unheard", "key": "k", "input": 1 } }]), false),
        (json!([effect, ask, { "raw_update": "no JSON" }]), false),
    ] {
        let report = stage.report(bytes.clone(), json!({ "script": ops })).await;
        assert_eq!(report.difference, None, "{ops}");
        assert!(report.prefixes > 1);
        assert_eq!(finished(&report.ended.outcome), ends, "{ops}: {:?}", report.ended.outcome);
    }
}

/// A node that does not do again what was recorded: here it is another node, since none was found that
/// does something else by itself.
#[tokio::test(flavor = "multi_thread")]
async fn what_another_node_does_differently_is_found_at_its_first_difference() {
    let stage = Stage::new(Limits::default()).await;
    let script = std::fs::read(built("script")).unwrap();
    let is = |input: u32, ask: &str, print: &str, later: u32, put: u32, go: &str| {
        json!([
            { "effect": { "name": "e", "key": "k", "input": input } }, { "ask": ask }, { "print": print },
            { "effect": { "name": "e", "key": "l", "input": later } }, { "put": { "c": put } }, { "go": go }
        ])
    };
    let was = is(1, "go?", "hm", 1, 1, "x");
    let effect = |key: &str, input: u32| json!({ "call": "effect", "name": "e", "key": key, "input": input });
    let finished = |c: u32, go: &str| json!({ "finished": { "c": c }, "routes": [{ "go": go }] });
    let early = json!([{ "effect": { "name": "e", "key": "k", "input": 1 } }, { "end": true }]);
    let printed = json!({
        "stdout": "ha\n", "stderr": "", "stdout_tail": "ha", "stderr_tail": "", "truncated": false
    });
    let asks = json!({ "call": "interrupt", "question": { "payload": "go!" } });
    for (is, prefix, at, replayed) in [
        (is(2, "go?", "hm", 1, 1, "x"), 0, At::Call { index: 0 }, effect("k", 2)),
        (is(1, "go!", "hm", 1, 1, "x"), 0, At::Call { index: 1 }, asks),
        (early, 0, At::Call { index: 1 }, json!({ "ended": { "finished": {}, "routes": ["end"] } })),
        (is(1, "go?", "hm", 2, 1, "x"), 2, At::Call { index: 2 }, effect("l", 2)),
        (is(1, "go?", "hm", 1, 2, "x"), 2, At::Outcome, finished(2, "x")),
        (is(1, "go?", "hm", 1, 1, "y"), 2, At::Outcome, finished(1, "y")),
        (is(1, "go?", "ha", 1, 1, "x"), 2, At::Output, printed),
    ] {
        let first = stage.subject(script.clone(), json!({ "script": was })).await;
        let other = stage.subject(script.clone(), json!({ "script": is })).await;
        let mut yes = |_: usize, _: &_| Ok(Json::from_value(&json!(true)).unwrap());
        let recorded = record(stage.host.sandbox(), &first, &mut yes).await.unwrap();
        let report = recorded.replayed_by(stage.host.sandbox(), &other, &mut |_, _| {}).await.unwrap();
        let difference = report.difference.unwrap_or_else(|| panic!("{is}"));
        assert_eq!((difference.prefix, difference.at), (prefix, at), "{is}: {difference:?}");
        let mut shown = difference.replayed.clone();
        // Options that a question does not use.
        if let Some(question) = shown.get_mut("question").and_then(Value::as_object_mut) {
            question.retain(|_, value| !value.is_null());
        }
        assert_eq!(shown, replayed, "{is}");
        assert_ne!(difference.first, difference.replayed);
    }
}

/// The same calls, and another way there.
#[tokio::test(flavor = "multi_thread")]
async fn another_way_to_the_same_calls_is_seen_by_clock_fuel_and_memory() {
    let stage = Stage::new(Limits::default()).await;
    let say = "(call $say (i64.const 7))";
    for (was, is, at) in [
        ("", "(call $poll (i32.const 2048) (i32.const 1) (i32.const 2064))", At::Clock { index: 0 }),
        ("", "(drop (i32.mul (local.get 0) (local.get 0)))", At::Fuel),
        (
            "(drop (memory.grow $memory (i32.const 1)))",
            "(drop (memory.grow $memory (i32.const 2)))",
            At::Memory,
        ),
    ] {
        let slept = "(i32.store (i32.const 2048) (call $subscribe (i64.const 9000000)))";
        let was = stage.subject(telling("", &format!("{slept} {was} {say}")), json!({})).await;
        let is = stage.subject(telling("", &format!("{slept} {is} {say}")), json!({})).await;
        let mut yes = |_: usize, _: &_| Ok(Json::from_value(&json!(true)).unwrap());
        let recorded = record(stage.host.sandbox(), &was, &mut yes).await.unwrap();
        let report = recorded.replayed_by(stage.host.sandbox(), &is, &mut |_, _| {}).await.unwrap();
        assert_eq!(report.difference.unwrap().at, at);
    }
}

/// How fast the machine was is not the node's doing.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_the_host_cut_short_says_nothing_of_the_node() {
    let stage = Stage::new(Limits { fuel: u64::MAX, deadline_ms: 200, ..Limits::default() }).await;
    let script = std::fs::read(built("script")).unwrap();
    let subject = stage.subject(script, json!({ "script": [{ "loop": true }] })).await;
    let no = |_: usize, _: &_| Err("nobody asks".to_owned());
    let error = verify(stage.host.sandbox(), &subject, no, |_, _| {}).await.unwrap_err();
    let VerifyError::CutShort(error) = error else { panic!("{error}") };
    assert_eq!(error.more["limit"], "deadline_ms");
}

/// A few things that a node can do, in any order.
fn program() -> impl Strategy<Value = Vec<Value>> {
    let effect = |name, key: u8| json!({ "effect": { "name": name, "key": key.to_string(), "input": key } });
    let op = prop_oneof![
        Just(json!({ "ask_results": true })),
        Just(json!({ "ask_results": true, "schema": { "type": "integer" }, "expires_ms": 5 })),
        (0..3u8).prop_map(move |key| effect("e", key)),
        (0..3u8).prop_map(move |key| effect("f", key)),
        Just(json!({ "ask_all": ["x", { "y": 1.50 }] })),
        Just(json!({ "ask_all": [] })),
        Just(json!({ "steering": true })),
        Just(json!({ "now": true })),
        Just(json!({ "monotonic": true })),
        (0..9_000_000u64).prop_map(|ms| json!({ "sleep_ms": ms })),
        (0..40u8).prop_map(|bytes| json!({ "random": bytes })),
        (0..40u8).prop_map(|bytes| json!({ "insecure_random": bytes })),
        Just(json!({ "insecure_seed": true })),
        Just(json!({ "hash_order": true })),
        (0..300_000u32).prop_map(|bytes| json!({ "grow": bytes })),
        Just(json!({ "print": "printed" })),
        Just(json!({ "eprint": "printed" })),
        Just(json!({ "emit": { "n": 1 } })),
        Just(json!({ "log": { "level": "warn", "message": "logged" } })),
        Just(json!({ "catch": [{ "ask_results": true }, { "panic": "caught" }] })),
        Just(
            json!({ "if_last": { "equals": true, "then": [{ "ask": "then" }], "else": [{ "now": true }] } })
        ),
        Just(json!({ "put_results": "a" })),
        Just(json!({ "send": { "label": "w", "arg": 1 } })),
        Just(json!({ "trap": "div0" })),
        Just(json!({ "retry": "later" })),
    ];
    proptest::collection::vec(op, 1..14)
}

#[test]
fn whatever_a_node_does_in_whatever_order_replays() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let stage = runtime.block_on(Stage::new(Limits::default()));
    let script = std::fs::read(built("script")).unwrap();
    let calls = std::cell::Cell::new(0);
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() });
    let ran = runner.run(&program(), |ops| {
        let report = runtime.block_on(stage.report(script.clone(), json!({ "script": ops })));
        calls.set(calls.get() + report.journal.len());
        prop_assert_eq!(report.difference, None);
        Ok(())
    });
    ran.unwrap();
    // Some 90 as a rule; many programs end at their first op.
    assert!(calls.get() > 20, "calls of all programs: {}", calls.get());
}
