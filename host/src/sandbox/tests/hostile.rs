//! What no toolchain emits, and what can only be seen from within this layer; that each limit holds is
//! tested on the host as a whole.

use std::sync::Arc;
use std::time::Duration;

use super::super::*;
use super::bench::{self, World, attempt, compiled, component, journal, module, node, sandbox};
use crate::model::error::{ErrorRecord, Kind};

async fn failure(bytes: Vec<u8>, limits: &Limits) -> (ErrorRecord, bool) {
    match bench::run(bytes, limits).await.end {
        End::Failed { error, retryable } => (error, retryable),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn is_limit(error: &ErrorRecord, name: &str, value: u64) {
    assert_eq!(error.kind, Kind::Limit, "{error}");
    assert_eq!(error.more["limit"], name, "{error}");
    assert_eq!(error.more["value"], value, "{error}");
    assert!(error.message.contains(name), "{error}");
}

#[tokio::test]
async fn a_node_that_does_nothing_finishes() {
    let ran = bench::run(node("", "(i32.const 0)"), &Limits::default()).await;
    let End::Finished { update, routes } = ran.end else { panic!("{:?}", ran.end) };
    assert!(update.is_empty() && routes.is_empty());
    assert!(ran.fuel > 0 && ran.fuel < 1_000, "{}", ran.fuel);
    assert_eq!(ran.memory_bytes, 65_536);
}

#[tokio::test]
async fn a_node_describes_itself() {
    let sandbox = sandbox();
    let component = compiled(&sandbox, node("", "(i32.const 0)")).await;
    let info = bench::describe(&sandbox, &component).await.unwrap();
    assert_eq!((info.name.as_str(), info.version.as_str()), ("n", "1"));
}

#[tokio::test]
async fn an_attempt_that_is_out_of_fuel_used_all_of_it() {
    let limits = Limits { fuel: 1_000_000, ..Limits::default() };
    let ran = bench::run(node("", "(loop (br 0)) (unreachable)"), &limits).await;
    let End::Failed { error, retryable: false } = ran.end else { panic!("{:?}", ran.end) };
    is_limit(&error, "fuel", 1_000_000);
    assert_eq!(ran.fuel, 1_000_000);
}

#[tokio::test]
async fn a_memory_with_a_maximum_of_its_own_is_told_so() {
    let run =
        "(if (i32.ne (memory.grow $small (i32.const 2)) (i32.const -1)) (then (unreachable))) (i32.const 0)";
    let ran = bench::run(node("(memory $small 1 2)", run), &Limits::default()).await;
    assert!(matches!(ran.end, End::Finished { .. }), "{:?}", ran.end);
    assert_eq!(ran.memory_bytes, 2 * 65_536);
}

#[tokio::test]
async fn a_bad_call_is_told_by_its_kind_and_frames_by_the_names_that_were_written() {
    for (run, code, frame) in [
        ("(call $deeper)", "unreachable", "core::panicking::panic"),
        ("(call_indirect $t (result i32) (i32.const 7))", "table-out-of-bounds", "run"),
        ("(call_indirect $t (result i32) (i32.const 0))", "null-function", "run"),
    ] {
        let items = r#"
            (table $t 1 funcref)
            (func $deeper (@name "_ZN4core9panicking5panic17h0123456789abcdefE") (result i32) (unreachable))"#;
        let (error, retryable) = failure(node(items, run), &Limits::default()).await;
        assert_eq!((error.kind, retryable), (Kind::Trap, false));
        assert_eq!(error.more["trap"], code, "{error}");
        assert_eq!(error.more["frames"][0], frame, "{:?}", error.more);
        let text = serde_json::to_string(&error).unwrap();
        assert!(!text.contains("0x") && !text.contains("wasm trap") && !text.contains(".rs"), "{text}");
    }
}

#[tokio::test]
async fn an_exception_is_the_nodes_own_and_cannot_fill_the_host() {
    let items = "(tag $e (param i32))";
    let caught =
        "(block $caught (result i32) (try_table (catch $e $caught) (throw $e (i32.const 0))) (unreachable))";
    let ran = bench::run(node(items, caught), &Limits::default()).await;
    assert!(matches!(ran.end, End::Finished { .. }), "{:?}", ran.end);
    let (error, _) = failure(node(items, "(throw $e (i32.const 0))"), &Limits::default()).await;
    assert_eq!(error.kind, Kind::Trap);

    // One after the other they are collected; all at once they are memory.
    let limits =
        Limits { memory_bytes: 4 << 20, table_elements: 1_000_000, fuel: 20_000_000, ..Limits::default() };
    let items = "(tag $e (param i32)) (table $kept 900000 exnref) (global $i (mut i32) (i32.const 0))";
    let caught = |keep: &str| {
        format!(
            "(loop $again
                (block $caught (result exnref)
                    (try_table (catch_all_ref $caught) (throw $e (i32.const 0))) (unreachable))
                {keep}
                (global.set $i (i32.add (global.get $i) (i32.const 1)))
                (br $again)) (unreachable)"
        )
    };
    let (error, _) = failure(node(items, &caught("(drop)")), &limits).await;
    is_limit(&error, "fuel", 20_000_000);
    let keep = "(global.set $x) (table.set $kept (global.get $i) (global.get $x))";
    let items = format!("{items} (global $x (mut exnref) (ref.null exn))");
    let (error, _) = failure(node(&items, &caught(keep)), &limits).await;
    is_limit(&error, "memory_bytes", 4 << 20);
}

#[tokio::test]
async fn what_is_not_on_the_list_of_features_does_not_compile() {
    let sandbox = sandbox();
    for (what, items) in [
        ("shared memory", "(memory $s 1 1 shared)"),
        ("64-bit memory", "(memory $s i64 1)"),
        (
            "garbage collection",
            "(type $s (struct (field i32))) (func (result (ref $s)) (struct.new_default $s))",
        ),
        ("atomics", "(func (result i32) (i32.atomic.load (i32.const 0)))"),
        ("small pages", "(memory $s 1 1 (pagesize 1))"),
        ("128-bit arithmetic", "(func (result i64 i64) (i64.mul_wide_u (i64.const 1) (i64.const 1)))"),
    ] {
        let bytes = node(items, "(i32.const 0)");
        let error = bench::compile(&sandbox, bytes).await.unwrap_err();
        assert!(
            matches!(error, SandboxError::Invalid(InvalidComponent::Malformed { .. })),
            "{what}: {error}"
        );
    }
}

#[tokio::test]
async fn a_component_that_expects_another_contract_is_refused() {
    let sandbox = sandbox();
    let imports = r#"(import "holdpoint:node/log@0.1.0" (instance (export "write" (func (param "x" u64)))))"#;
    let bytes = component(imports, "", &module("", "(i32.const 0)"));
    let error = bench::compile(&sandbox, bytes).await.unwrap_err();
    assert!(matches!(error, SandboxError::Invalid(InvalidComponent::Contract { .. })), "{error}");

    let bytes =
        wat::parse_str(r#"(component (instance $i) (export "holdpoint:node/handler@0.1.0" (instance $i)))"#)
            .unwrap();
    let error = bench::compile(&sandbox, bytes).await.unwrap_err();
    assert!(matches!(error, SandboxError::Invalid(InvalidComponent::Contract { .. })), "{error}");
}

#[tokio::test]
async fn a_description_is_bounded_and_may_not_ask_the_host() {
    let sandbox = sandbox();
    let looping = module("", "(i32.const 0)").replace("(i32.const 128))\n", "(loop (br 0)) (unreachable))\n");
    let looping = compiled(&sandbox, component("", "", &looping)).await;
    let error = bench::describe(&sandbox, &looping).await.unwrap_err().to_string();
    assert!(error.contains("fuel"), "{error}");

    let imports = r#"
        (import "holdpoint:node/events@0.1.0" (instance $events (export "emit" (func (param "event" string)))))
        (core module $memory (memory (export "memory") 1))
        (core instance $memory (instantiate $memory))
        (core func $emit (canon lower (func $events "emit") (memory (core memory $memory "memory"))))
        (core instance $events (export "emit" (func $emit)))"#;
    let items = r#"(import "events" "emit" (func $emit (param i32 i32)))"#;
    let asking = module(items, "(i32.const 0)")
        .replace("(i32.const 128))\n", "(call $emit (i32.const 0) (i32.const 0)) (i32.const 128))\n");
    let asking =
        compiled(&sandbox, component(imports, r#"(with "events" (instance $events))"#, &asking)).await;
    let error = bench::describe(&sandbox, &asking).await.unwrap_err().to_string();
    assert!(error.contains("describe called an import"), "{error}");

    let nameless = module(r#"(data (i32.const 132) "\00")"#, "(i32.const 0)");
    let nameless = nameless.replace(r#"\c0\00\00\00\01\00"#, r#"\c0\00\00\00\00\00"#);
    let nameless = compiled(&sandbox, component("", "", &nameless)).await;
    let error = bench::describe(&sandbox, &nameless).await.unwrap_err();
    let is_named = InvalidComponent::Description { field: "name", what: "it is empty".into() };
    assert!(matches!(&error, SandboxError::Invalid(invalid) if *invalid == is_named), "{error}");
}

#[tokio::test]
async fn attempts_beyond_the_limit_wait_and_their_permits_come_back() {
    let limits = Limits { tasks_at_once: 2, fuel: u64::MAX, deadline_ms: 100, ..Limits::default() };
    let sandbox = Sandbox::new(bench::options(limits.clone())).unwrap();
    let spinning = compiled(&sandbox, node("", "(loop (br 0)) (unreachable)")).await;
    let quick = compiled(&sandbox, node("", "(i32.const 0)")).await;
    let world: Arc<World> = Arc::default();
    // Dropped in the middle, as by Ctrl-C.
    for _ in 0..4 {
        let run = sandbox.run(&spinning, attempt("{}", &journal(vec![]), &world, &limits));
        assert!(tokio::time::timeout(Duration::from_millis(20), run).await.is_err());
    }
    let runs = (0..10).map(|_| sandbox.run(&quick, attempt("{}", &journal(vec![]), &world, &limits)));
    for ran in futures::future::join_all(runs).await {
        assert!(matches!(ran.end, End::Finished { .. }), "{:?}", ran.end);
    }
    assert_eq!(sandbox.counters().instantiations, 14);
}

#[tokio::test]
async fn one_component_is_compiled_once_however_many_want_it() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let cache_dir = Some(dir.path().join("cache"));
        Sandbox::new(SandboxOptions { cache_dir, ..bench::options(Limits::default()) }).unwrap()
    };
    let bytes = node("", "(i32.const 0)");
    let digest = Digest::of(&bytes);
    let (tenant, limits) = (TenantId::default(), Limits::default());
    let whose = (&tenant, &limits);
    let sandbox = open();
    assert!(sandbox.cached(digest).await.is_none());
    let wanted = (0..8).map(|_| sandbox.compile(whose, digest, bytes.clone()));
    for compiled in futures::future::join_all(wanted).await {
        compiled.unwrap();
    }
    assert_eq!(sandbox.counters(), Counters { instantiations: 0, compiles: 1, artifact_loads: 0 });

    let next = open();
    assert!(next.cached(digest).await.is_some());
    next.compile(whose, digest, bytes.clone()).await.unwrap();
    assert_eq!(next.counters(), Counters { instantiations: 0, compiles: 0, artifact_loads: 1 });

    let error = next.compile(whose, Digest([0; 32]), bytes).await.unwrap_err();
    assert!(matches!(error, SandboxError::WrongDigest { .. }), "{error}");
}

/// What a host function gives back is put into the node's memory by a function of the node's own, which
/// runs on what the stack has left.
#[tokio::test]
async fn s06_the_nodes_own_allocator_overflows_no_other_stack() {
    let imports = r#"
        (import "wasi:random/random@0.2.0" (instance $random
            (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
        (core module $memory (memory (export "memory") 1)
            (func $deeper (param i32) (result i32)
                (if (result i32) (local.get 0)
                    (then (i32.add (i32.const 1) (call $deeper (i32.sub (local.get 0) (i32.const 1)))))
                    (else (i32.const 0))))
            (func (export "realloc") (param i32 i32 i32 i32) (result i32)
                (drop (call $deeper (i32.const 100000000))) (i32.const 0)))
        (core instance $memory (instantiate $memory))
        (core func $random (canon lower (func $random "get-random-bytes")
            (memory (core memory $memory "memory")) (realloc (core func $memory "realloc"))))
        (core instance $random (export "bytes" (func $random)))"#;
    let items = r#"
        (import "random" "bytes" (func $bytes (param i64 i32)))
        (func $deeper (param i32) (result i32)
            (if (result i32) (local.get 0)
                (then (i32.add (i32.const 1) (call $deeper (i32.sub (local.get 0) (i32.const 1)))))
                (else (call $bytes (i64.const 8) (i32.const 0)) (i32.const 0))))"#;
    let with = r#"(with "random" (instance $random))"#;
    for depth in [0, 1_000, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000] {
        let run = format!("(drop (call $deeper (i32.const {depth}))) (i32.const 0)");
        let (error, _) = failure(component(imports, with, &module(items, &run)), &Limits::default()).await;
        assert_eq!(error.more["trap"], "stack-overflow", "{depth}: {error:?}");
    }
}

#[tokio::test]
async fn an_exception_that_nothing_catches_is_called_one() {
    let (error, _) =
        failure(node("(tag $t (param i64))", "(throw $t (i64.const 7))"), &Limits::default()).await;
    assert_eq!((error.kind, &error.more["trap"]), (Kind::Trap, &"exception".into()), "{error}");

    // From the node's allocator, while a host function gives something back.
    let imports = r#"
        (import "wasi:random/random@0.2.0" (instance $random
            (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
        (core module $memory (memory (export "memory") 1) (tag $t)
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) (throw $t)))
        (core instance $memory (instantiate $memory))
        (core func $random (canon lower (func $random "get-random-bytes")
            (memory (core memory $memory "memory")) (realloc (core func $memory "realloc"))))
        (core instance $random (export "bytes" (func $random)))"#;
    let items = r#"(import "random" "bytes" (func $bytes (param i64 i32)))"#;
    let with = r#"(with "random" (instance $random))"#;
    // It is the node's own, so the node may also catch it.
    for (run, trap) in [
        ("(call $bytes (i64.const 8) (i32.const 0)) (i32.const 0)", "exception"),
        (
            "(block $c (try_table (catch_all $c) (call $bytes (i64.const 8) (i32.const 0)))) (unreachable)",
            "unreachable",
        ),
    ] {
        let (error, _) = failure(component(imports, with, &module(items, run)), &Limits::default()).await;
        assert_eq!(error.more["trap"], trap, "{error:?}");
    }
}
