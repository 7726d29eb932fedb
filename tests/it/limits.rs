//! Nodes that take too much: each is stopped at a limit, by its name and value, and the host serves on.

use std::time::Duration;

use futures::future::{Either, select};
use holdpoint::Command;
use holdpoint::model::{Kind, Limits};
use serde_json::{Value, json};

use crate::by_hand::{component, module, node};
use crate::hostile::{Bench, is_limit};
use crate::world::*;

pub const MIB: u64 = 1 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn s01_an_endless_loop_runs_out_of_fuel() {
    const FUEL: u64 = 300_000_000;
    let bench = Bench::new(Limits { fuel: FUEL, ..Limits::default() }).await;
    let error = bench.script_fails(json!([{ "loop": true }])).await;
    is_limit(&error, "fuel", FUEL);
    let frames = error.more["frames"].as_array().unwrap();
    assert!(frames.iter().any(|frame| frame.as_str().unwrap().contains("script::")), "{frames:?}");
}

/// On one thread, which is not the guest's.
#[tokio::test]
async fn s02_an_endless_loop_with_fuel_ends_at_the_deadline_and_others_go_on_meanwhile() {
    let world = World::new();
    let limits = Limits { fuel: u64::MAX, deadline_ms: 3_000, ..Limits::default() };
    let host = world.builder().limits(limits).database(world.db()).open().await.unwrap();
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    let looping = Box::pin(graph.invoke(on("looping"), script(json!([{ "loop": true }]))));
    let well = Box::pin(async {
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Another tenant's as well.
        let other = host.for_tenant("other".parse().unwrap()).compile(&scripted(&["n"])).await.unwrap();
        completed(other.invoke(on("looping"), script(json!([{ "put": { "c": 1 } }]))).await.unwrap());
        graph.invoke(on("well"), script(json!([{ "put": { "c": 1 } }]))).await
    });
    let Either::Right((first, looping)) = select(looping, well).await else {
        panic!("timers and runs of others waited for the loop");
    };
    completed(first.unwrap());
    let stopped = looping.await.unwrap();
    failed(&stopped);
    let error = stopped.error.unwrap();
    is_limit(&error, "deadline_ms", 3_000);
    assert_eq!(error.more["retryable"], true, "how fast the host was is not the node's doing");
    completed(graph.invoke(on("looping"), script(json!([]))).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn s03_every_later_loop_on_the_same_host_is_stopped_too() {
    for (limits, name, value) in [
        (Limits { fuel: u64::MAX, deadline_ms: 200, ..Limits::default() }, "deadline_ms", 200),
        (Limits { fuel: 100_000_000, ..Limits::default() }, "fuel", 100_000_000),
    ] {
        let bench = Bench::new(limits).await;
        for _ in 0..3 {
            is_limit(&bench.script_fails(json!([{ "loop": true }])).await, name, value);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s04_memory_is_held_to_its_limit_in_total() {
    let limit = 32 * MIB;
    let bench = Bench::new(Limits { memory_bytes: limit, ..Limits::default() }).await;
    let grow = json!([{ "repeat": { "times": 1_000_000, "ops": [{ "grow": MIB }] } }]);
    is_limit(&bench.script_fails(grow).await, "memory_bytes", limit);

    let both =
        "(loop (drop (memory.grow $memory (i32.const 16))) (drop (memory.grow $other (i32.const 16))) (br 0))
        (unreachable)";
    is_limit(&bench.component_fails(node("(memory $other 1)", both)).await, "memory_bytes", limit);

    // What it is born with is met when it is installed.
    is_limit(&bench.install_fails(node("(memory $other 600)", "(i32.const 0)")).await, "memory_bytes", limit);
    let instances = |count: usize, memory_pages: usize| {
        let many: String = (0..count).map(|i| format!("(core instance $i{i} (instantiate $m))")).collect();
        let imports = format!("(core module $m (memory {memory_pages})) {many}");
        component(&imports, "", &module("", "(i32.const 0)"))
    };
    is_limit(&bench.install_fails(instances(40, 16)).await, "memory_bytes", limit);
    is_limit(&bench.install_fails(instances(100, 0)).await, "instances", 64);
}

#[tokio::test(flavor = "multi_thread")]
async fn s05_tables_are_held_to_their_limit() {
    let limits = Limits { table_elements: 50_000, ..Limits::default() };
    let bench = Bench::new(limits).await;
    let error = bench.install_fails(node("(table 4000000000 funcref)", "(i32.const 0)")).await;
    is_limit(&error, "table_elements", 50_000);
    let grow = "(loop (drop (table.grow $t (ref.null func) (i32.const 1000))) (br 0)) (unreachable)";
    let error = bench.component_fails(node("(table $t 0 funcref)", grow)).await;
    is_limit(&error, "table_elements", 50_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn s06_endless_recursion_overflows_the_nodes_stack_only() {
    let bench = Bench::new(Limits::default()).await;
    let items = "(func $deep (result i32) (i32.add (i32.const 1) (call $deep)))";
    let mutual = "(func $a (result i32) (i32.add (i32.const 1) (call $b))) (func $b (result i32) (i32.add (i32.const 1) (call $a)))";
    for (items, run) in [(items, "(call $deep)"), (mutual, "(call $a)")] {
        let error = bench.component_fails(node(items, run)).await;
        assert_eq!((error.kind, &error.more["trap"]), (Kind::Trap, &json!("stack-overflow")), "{error:?}");
        assert!(error.more["frames"].as_array().unwrap().len() <= 32);
    }
    let error = bench.script_fails(json!([{ "recurse": true }])).await;
    assert_eq!(&error.more["trap"], "stack-overflow");
}

#[tokio::test(flavor = "multi_thread")]
async fn s07_a_gibibyte_of_output_is_cut_to_a_prefix_and_says_so() {
    // An unoptimised host takes its time to take so much down.
    let bench = Bench::new(Limits { fuel: 20_000_000_000, deadline_ms: 600_000, ..Limits::default() }).await;
    let limit = usize::try_from(Limits::default().log_bytes).unwrap();
    for verb in ["spam_print", "spam_log"] {
        let ops = json!([{ verb: { "bytes": MIB, "times": 1024 } }, { "put": { "c": 1 } }]);
        completed(bench.graph.invoke(on("t"), script(ops)).await.unwrap());
        let lines = std::mem::take(&mut *bench.world.logged.lock().unwrap());
        let (last, kept) = lines.split_last().unwrap();
        assert!(last.contains("cut off") && last.contains(&format!("{limit} bytes (log_bytes)")), "{last}");
        assert!(!kept.is_empty() && kept.iter().all(|line| line.bytes().all(|byte| byte == b'x')));
        assert!(kept.iter().map(String::len).sum::<usize>() <= limit);
        bench.serves().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s07_the_end_of_what_a_node_printed_is_told_with_its_failure() {
    let bench = Bench::new(Limits { fuel: 300_000_000, ..Limits::default() }).await;
    let print = json!({ "repeat": { "times": 200, "ops": [{ "eprint": "before ".repeat(20) }] } });
    for last in [json!({ "trap": "div0" }), json!({ "exit": 1 }), json!({ "loop": true })] {
        let error = bench.script_fails(json!([print, { "eprint": "ValueError: no such order" }, last])).await;
        let told = error.more["stderr"].as_str().unwrap();
        assert!(told.ends_with("\nValueError: no such order") && told.len() <= 2_048, "{last}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s08_what_is_handed_over_is_bounded_before_it_is_parsed() {
    let limits = Limits {
        payload_bytes: 200_000,
        effect_bytes: 210_000,
        update_bytes: 220_000,
        host_call_bytes: 3 * MIB,
        ..Limits::default()
    };
    let bench = Bench::new(limits).await;
    let big = "x".repeat(230_000);
    let effect = |input: Value| json!({ "effect": { "name": "e", "key": "k", "input": input } });
    for (op, name, value) in [
        (json!({ "ask": big }), "payload_bytes", 200_000),
        (json!({ "ask_all": [1, big] }), "payload_bytes", 200_000),
        (json!({ "ask": 1, "schema": { "const": big } }), "payload_bytes", 200_000),
        (json!({ "ask": 1, "default": big }), "payload_bytes", 200_000),
        (json!({ "emit": big }), "payload_bytes", 200_000),
        (effect(json!(big)), "effect_bytes", 210_000),
        (json!({ "put": { "a": [big] } }), "update_bytes", 220_000),
        (json!({ "send": { "label": "x", "arg": big } }), "update_bytes", 220_000),
        (json!({ "fail": { "message": "m", "detail": big } }), "update_bytes", 220_000),
        (json!({ "spam_log": { "bytes": 4 * MIB, "times": 1 } }), "host_call_bytes", 3 * MIB),
    ] {
        is_limit(&bench.script_fails(json!([op])).await, name, value);
    }
    // A node fails in its own words, however many: they are cut.
    let error = bench.script_fails(json!([{ "fail": big }])).await;
    assert!(error.kind == Kind::NodeFailed && error.message.len() <= 4096, "{error}");

    for deep in [
        "[".repeat(100_000),
        format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)),
        "{\"a\":".repeat(30_000),
    ] {
        let effect = json!({ "raw_effect": { "name": "e", "key": "k", "input": deep } });
        for op in
            [json!({ "raw_ask": deep }), json!({ "raw_emit": deep }), json!({ "raw_update": deep }), effect]
        {
            is_limit(&bench.script_fails(json!([op])).await, "json_depth", 100);
        }
    }
    assert_eq!((bench.world.sent(), bench.world.logged.lock().unwrap().len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn s08_an_answer_an_input_and_a_state_over_their_limits_are_refused_by_name() {
    let limits = Limits { answer_bytes: 1_000, state_bytes: 5_000, ..Limits::default() };
    let bench = Bench::new(limits).await;
    let ask = json!([{ "ask": "?" }, { "put_results": "a" }]);
    let asked = paused(bench.graph.invoke(on("t"), script(ask)).await.unwrap());
    let big = json!("x".repeat(1_000));
    let id = asked[0].interrupt.id;
    for command in [Command::resume(big.clone()), Command::answers([(id, big.clone())])] {
        let refused = refused(bench.graph.resume(on("t"), command).await);
        is_limit(&refused.error, "answer_bytes", 1_000);
        assert_eq!(refused.pending[0].interrupt.id, id, "it can be answered again");
    }
    let deep = (0..400).fold(json!(1), |inner, _| json!([inner]));
    let refusal = refused(bench.graph.resume(on("t"), Command::resume(deep.clone())).await);
    is_limit(&refusal.error, "json_depth", 100);
    completed(bench.graph.resume(on("t"), Command::resume("yes")).await.unwrap());

    let refusal = refused(bench.graph.invoke(on("t"), json!({ "a": ["x".repeat(5_000)] })).await);
    is_limit(&refusal.error, "state_bytes", 5_000);
    let refusal = refused(bench.graph.invoke(on("t"), json!({ "a": deep })).await);
    is_limit(&refusal.error, "json_depth", 100);

    // Each update is small enough, and what they add up to is not.
    let add = || json!({ "script": [], "a": ["x".repeat(2_000)] });
    for _ in 0..2 {
        completed(bench.graph.invoke(on("large"), add()).await.unwrap());
    }
    let execution = bench.graph.invoke(on("large"), add()).await.unwrap();
    failed(&execution);
    is_limit(&execution.error.unwrap(), "state_bytes", 5_000);
    bench.serves().await;
}

/// Asks for 4 GiB of random bytes.
pub fn random_bytes() -> Vec<u8> {
    let imports = r#"
        (import "wasi:random/random@0.2.0" (instance $random
            (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
        (core module $memory (memory (export "memory") 1)
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0)))
        (core instance $memory (instantiate $memory))
        (core func $random (canon lower (func $random "get-random-bytes")
            (memory (core memory $memory "memory")) (realloc (core func $memory "realloc"))))
        (core instance $random (export "bytes" (func $random)))"#;
    let items = r#"(import "random" "bytes" (func $bytes (param i64 i32)))"#;
    let run = "(call $bytes (i64.const 4294967296) (i32.const 0)) (i32.const 0)";
    component(imports, r#"(with "random" (instance $random))"#, &module(items, run))
}

/// Describes itself with ten million empty names.
pub fn many_names() -> Vec<u8> {
    let describe = "(drop (memory.grow (i32.const 1300)))
        (i32.store (i32.const 144) (i32.const 65536)) (i32.store (i32.const 148) (i32.const 10000000))
        (i32.const 128))\n";
    component("", "", &module("", "(i32.const 0)").replace("(i32.const 128))\n", describe))
}

/// Returns five million routes.
pub fn many_routes() -> Vec<u8> {
    let run = "(drop (memory.grow (i32.const 2000)))
        (i32.store (i32.const 12) (i32.const 65536)) (i32.store (i32.const 16) (i32.const 5000000))
        (i32.const 0)";
    node("", run)
}

#[tokio::test(flavor = "multi_thread")]
async fn s09_one_call_hands_over_a_bounded_amount() {
    let bench = Bench::new(Limits::default()).await;
    let limit = Limits::default().host_call_bytes;
    is_limit(&bench.component_fails(random_bytes()).await, "host_call_bytes", limit);
    is_limit(&bench.install_fails(many_names()).await, "host_call_bytes", limit);
    is_limit(&bench.component_fails(many_routes()).await, "host_call_bytes", limit);
    let strings = json!([{ "ask_all": vec![""; 100_000] }]);
    is_limit(&bench.script_fails(strings).await, "interrupts", 1_000);
}

/// Makes without end what this imports.
fn making(imports: &str, takes: &str) -> Vec<u8> {
    let items = format!(r#"(import "from" "make" (func $make (param {takes}) (result i32)))"#);
    let run = format!("(loop (drop (call $make ({takes}.const 1))) (br 0)) (unreachable)");
    component(imports, r#"(with "from" (instance $from))"#, &module(&items, &run))
}

/// Makes pollables without end.
pub fn handles() -> Vec<u8> {
    let pollables = r#"
        (import "wasi:io/poll@0.2.0" (instance $poll (export "pollable" (type (sub resource)))))
        (alias export $poll "pollable" (type $pollable))
        (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
            (alias outer 1 $pollable (type $p)) (export "pollable" (type $pollable (eq $p)))
            (export "subscribe-duration" (func (param "when" u64) (result (own $pollable))))))
        (core func $subscribe (canon lower (func $clock "subscribe-duration")))
        (core instance $from (export "make" (func $subscribe)))"#;
    making(pollables, "i64")
}

#[tokio::test(flavor = "multi_thread")]
async fn s10_handles_are_held_to_their_limit() {
    let bench = Bench::new(Limits { handles: 500, ..Limits::default() }).await;
    let own = r#"
        (type $own (resource (rep i64)))
        (core func $new (canon resource.new $own))
        (core instance $from (export "make" (func $new)))"#;
    for bytes in [handles(), making(&own.replace("i64", "i32"), "i32")] {
        is_limit(&bench.component_fails(bytes).await, "handles", 500);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_effects_and_questions_without_end_meet_the_journals_limit() {
    let bench = Bench::new(Limits { journal_entries: 200, interrupts: 50, ..Limits::default() }).await;
    let forever = |op: Value| json!([{ "repeat": { "times": 1_000_000, "ops": [op] } }]);
    let effect = json!({ "effect": { "name": "e", "key": "k", "input": 1 } });
    is_limit(&bench.script_fails(forever(effect)).await, "journal_entries", 200);
    assert_eq!(bench.world.sent(), 1, "one key is one effect, however often it is asked for");
    is_limit(&bench.script_fails(forever(json!({ "steering": true }))).await, "journal_entries", 200);
    is_limit(&bench.script_fails(json!([{ "ask_all": vec![1; 51] }])).await, "interrupts", 50);

    // One question after the other: each is answered, and the last is not asked.
    let question = forever(json!({ "ask": "again?" }));
    let mut execution = bench.graph.invoke(on("asked"), script(question)).await.unwrap();
    for _ in 0..50 {
        assert_eq!(paused(execution).len(), 1);
        execution = bench.graph.resume(on("asked"), Command::resume("yes")).await.unwrap();
    }
    failed(&execution);
    is_limit(&execution.error.unwrap(), "interrupts", 50);
    bench.serves().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_what_is_asked_and_what_is_answered_count_together() {
    let bench = Bench::new(Limits { journal_bytes: 100_000, ..Limits::default() }).await;
    let large = json!({ "effect": { "name": "e", "key": "k", "input": "x".repeat(1_000) } });
    is_limit(
        &bench.script_fails(json!([{ "repeat": { "times": 1_000, "ops": [large] } }])).await,
        "journal_bytes",
        100_000,
    );
    let mut execution = bench
        .graph
        .invoke(on("asked"), script(json!([{ "repeat": { "times": 10, "ops": [{ "ask": "?" }] } }])))
        .await
        .unwrap();
    for _ in 0..4 {
        assert_eq!(paused(execution).len(), 1);
        execution = bench.graph.resume(on("asked"), Command::resume("x".repeat(30_000))).await.unwrap();
    }
    failed(&execution);
    is_limit(&execution.error.unwrap(), "journal_bytes", 100_000);
    bench.serves().await;
}
