//! After each hostile node the host's memory and files are where they were. In a process of its own, since
//! other tests take both as well.

use std::path::{Path, PathBuf};
use std::process::Command as Process;

use holdpoint::model::{Limits, NodeLimits};
use holdpoint::sandbox::Compiler;
use holdpoint::{Command, EffectFailure, EngineError, Graph, GraphSpec, NodeSpec, RunConfig, RunStatus};
use serde_json::{Value, json};

use crate::by_hand::node;
use crate::compiling::{large, slow};
use crate::hostile::Bench;
use crate::limits::{MIB, handles, many_names, many_routes, random_bytes};
use crate::process::binary;
use crate::world::*;

/// What may stay: caches that fill, and what the allocator keeps for the next time.
const STAYS_BYTES: u64 = 32 * MIB;
/// What one node may take while it runs, beside its own memory.
const HOST_SHARE_BYTES: u64 = 128 * MIB;

#[test]
fn s04_s07_s09_memory_and_files_are_back_where_they_were_after_each_hostile_node() {
    const ALONE: &str = "HOLDPOINT_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let test = "memory::s04_s07_s09_memory_and_files_are_back_where_they_were_after_each_hostile_node";
        let mut alone = Process::new(std::env::current_exe().unwrap());
        let output = alone.args([test, "--exact", "--nocapture"]).env(ALONE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        println!("{said}");
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // Of its own, so that what is hard to compile is met each time; and what is not has its time.
        let cache = tempfile::tempdir().unwrap();
        let patient = World::new().builder().cache(cache.path()).open().await.unwrap();
        patient.compile(&scripted(&["n"])).await.unwrap();
        drop(patient);
        let bench = bench(cache.path()).await;
        for (row, hostile) in rows(&bench, cache.path()).await {
            // What is compiled, cached and opened for the first time stays.
            hostile.meet(&bench, row).await;
            forget_peak();
            let before = (memory_bytes("VmRSS"), files());
            for _ in 0..3 {
                hostile.meet(&bench, row).await;
            }
            let (after, peak) = (memory_bytes("VmRSS"), memory_bytes("VmHWM"));
            let grown = after.saturating_sub(before.0);
            println!(
                "{row}: {} KiB more, {} MiB at the peak",
                grown / 1024,
                peak.saturating_sub(before.0) / MIB
            );
            assert!(grown < STAYS_BYTES, "{row}: {} {after}", before.0);
            assert!(
                peak < before.0 + Limits::default().memory_bytes + HOST_SHARE_BYTES,
                "{row}: {} {peak}",
                before.0
            );
            // The store's readers open theirs when they are first needed; a leak would be one a run.
            assert!(files() < before.1 + 4, "{row}: {} {}", before.1, files());
        }
    });
}

/// Its effect `e` never answers if it is asked so, and panics if it is asked so.
async fn bench(cache: &Path) -> Bench {
    let limits = Limits { compile_ms: 4_000, compile_memory_bytes: 200 * MIB, ..Limits::default() };
    Bench::with(limits, |builder| {
        let program = binary();
        builder.cache(cache).compiler(Compiler::Process { program }).effect("e", |request| async move {
            if request.input == json!("never") {
                std::future::pending::<()>().await;
            }
            assert!(request.input != json!("a bug"), "a bug of the embedder");
            Ok::<Value, EffectFailure>(json!("x".repeat(10_000)))
        })
    })
    .await
}

enum Hostile {
    /// Ends in a failure of its node.
    Run(Graph, Value),
    /// Does too much, and gets away with it.
    Passes(Value),
    /// Likewise, on a graph of its own.
    Granted(Graph, Value),
    /// Asks again and again.
    Asks(Graph, Value),
    Install(Vec<u8>),
    /// So many of it at once, each on a thread of its own, fail.
    Crowd(usize, Value),
    /// Nobody waits for it any more.
    Dropped(Value),
    /// Meets a bug of the embedder.
    Fault(Value),
    /// Its artifacts in this folder are cut short before each of its runs.
    Cut(PathBuf),
}

impl Hostile {
    async fn meet(&self, bench: &Bench, row: &str) {
        match self {
            Self::Run(graph, input) => {
                failed(&graph.invoke(on("t"), input.clone()).await.unwrap());
            }
            Self::Passes(input) => completed(bench.graph.invoke(on("t"), input.clone()).await.unwrap()),
            Self::Granted(graph, input) => completed(graph.invoke(on("t"), input.clone()).await.unwrap()),
            Self::Asks(graph, input) => {
                let mut run = graph.invoke(on("t"), input.clone()).await.unwrap();
                while run.status == RunStatus::Interrupted {
                    run = graph.resume(on("t"), Command::resume("again")).await.unwrap();
                }
                failed(&run);
            }
            Self::Install(bytes) => {
                let error = bench.host.install("hostile", bytes.clone()).await.unwrap_err();
                assert!(matches!(error, EngineError::Component { .. }), "{row}: {error:?}");
            }
            Self::Crowd(count, input) => {
                let runs = (0..*count).map(|_| async {
                    failed(&bench.graph.invoke(fresh_thread(), input.clone()).await.unwrap());
                });
                futures::future::join_all(runs).await;
            }
            Self::Dropped(input) => {
                let (graph, input) = (bench.graph.clone(), input.clone());
                let before = bench.host.sandbox().counters().instantiations;
                let run = tokio::spawn(async move { graph.invoke(fresh_thread(), input).await });
                while bench.host.sandbox().counters().instantiations == before {
                    tokio::task::yield_now().await;
                }
                run.abort();
                assert!(run.await.unwrap_err().is_cancelled(), "{row}");
            }
            Self::Fault(input) => {
                let error = bench.graph.invoke(fresh_thread(), input.clone()).await.unwrap_err();
                assert!(error.to_string().contains("panicked"), "{row}: {error}");
            }
            Self::Cut(cache) => {
                let files = std::fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path());
                // All but the host's own key.
                for path in files.filter(|path| !path.ends_with("key")) {
                    let whole = std::fs::read(&path).unwrap();
                    std::fs::write(path, &whole[..whole.len() / 2]).unwrap();
                }
                let world = World::new();
                let host = world.builder().cache(cache).database(world.db()).open().await.unwrap();
                let digest = host.install("n", node("", "(i32.const 0)")).await.unwrap().digest;
                let spec = GraphSpec::new("g", "n").node("n", NodeSpec::component(digest));
                completed(host.compile(&spec).await.unwrap().invoke(on("t"), json!({})).await.unwrap());
                let counters = host.sandbox().counters();
                assert_eq!((counters.compiles, counters.artifact_loads), (1, 0), "{row}");
                host.close().await;
            }
        }
        bench.serves().await;
    }
}

fn fresh_thread() -> RunConfig {
    on(&format!("t{}", uuid::Uuid::now_v7()))
}

async fn rows(bench: &Bench, cache: &Path) -> Vec<(&'static str, Hostile)> {
    let lowered = async |limits: NodeLimits| {
        let mut spec = scripted(&["n"]);
        spec.nodes.insert("n".into(), script_node().limits(limits));
        bench.host.compile(&spec).await.unwrap()
    };
    let little_fuel = lowered(NodeLimits { fuel: Some(300_000_000), ..Default::default() }).await;
    let little_time = lowered(NodeLimits { deadline_ms: Some(200), ..Default::default() }).await;
    let few_calls = lowered(NodeLimits { journal_entries: Some(500), ..Default::default() }).await;
    let small_calls = lowered(NodeLimits { journal_bytes: Some(4 * MIB), ..Default::default() }).await;
    let few_questions = lowered(NodeLimits { interrupts: Some(20), ..Default::default() }).await;
    let forever = |op: Value| json!([{ "repeat": { "times": 1_000_000, "ops": [op] } }]);
    let fails = |graph: &Graph, ops: Value| Hostile::Run(graph.clone(), script(ops));
    let own = &bench.graph;
    let by_hand = async |bytes: Vec<u8>| Hostile::Run(bench.by_hand(bytes).await, json!({}));
    let spam = |verb: &str| Hostile::Passes(script(json!([{ verb: { "bytes": MIB, "times": 64 } }])));
    let effect = |input: Value| json!({ "effect": { "name": "e", "key": input, "input": input } });
    let growing_tables =
        "(loop (drop (table.grow $t (ref.null func) (i32.const 1000))) (br 0)) (unreachable)";
    let two_memories =
        "(loop (drop (memory.grow $memory (i32.const 16))) (drop (memory.grow $other (i32.const 16)))
        (br 0)) (unreachable)";
    let whole = std::fs::read(component("script")).unwrap();
    let artifact = std::fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path());
    let artifact = artifact.map(|path| std::fs::read(path).unwrap()).max_by_key(Vec::len).unwrap();
    let cut = whole[..whole.len() / 2].to_vec();
    let bad_pointer = "(i32.store (i32.const 4) (i32.const 0x7fff_0000)) (i32.const 0)";
    let deep = "[".repeat(1_000_000);
    let mut chain = json!({ "$ref": "#/$defs/d0", "$defs": {} });
    for n in 0..8_000 {
        chain["$defs"][format!("d{n}")] = json!({ "$ref": format!("#/$defs/d{}", n + 1) });
    }
    // The default answer does not fit, so that each ends once its schema was compiled.
    let asks = |schema: Value| json!([{ "ask": 1, "schema": schema, "default": 1 }]);
    let patterns: Vec<_> = (0..90).map(|n| json!({ "pattern": format!("^x{{{n}}}\\w{{30}}$") })).collect();
    let inside = bench.host.compile(&crate::outside::sends_to("http://localhost:9/")).await.unwrap();
    let cut_short = cache.join("cut-short");
    std::fs::create_dir(&cut_short).unwrap();
    vec![
        ("s01 a loop", fails(&little_fuel, json!([{ "loop": true }]))),
        ("s02 a loop with time", fails(&little_time, json!([{ "loop": true }]))),
        ("s04 memory", fails(own, forever(json!({ "grow": MIB })))),
        ("s04 two memories", by_hand(node("(memory $other 1)", two_memories)).await),
        ("s05 tables", by_hand(node("(table $t 0 funcref)", growing_tables)).await),
        ("s06 recursion", fails(own, json!([{ "recurse": true }]))),
        ("s07 stdout", spam("spam_print")),
        ("s07 log", spam("spam_log")),
        ("s08 a payload", fails(own, json!([{ "ask": "x".repeat(5 << 20) }]))),
        ("s08 deep JSON", fails(own, json!([{ "raw_ask": deep }]))),
        ("s09 random bytes", by_hand(random_bytes()).await),
        ("s09 routes", by_hand(many_routes()).await),
        ("s09 names", Hostile::Install(many_names())),
        ("s10 handles", by_hand(handles()).await),
        ("s11 effects", fails(&few_calls, forever(effect(json!("again"))))),
        ("s11 large outcomes", fails(&small_calls, forever(effect(json!("again"))))),
        ("s11 questions", Hostile::Asks(few_questions, script(forever(json!({ "ask": "?" }))))),
        ("s12 an effect without end", fails(&little_time, json!([effect(json!("never"))]))),
        ("s13 a panic", fails(own, json!([{ "panic": "x".repeat(1 << 20) }]))),
        ("s14 a bad pointer", by_hand(node("", bad_pointer)).await),
        ("s15 an exit", fails(own, json!([{ "open": "/etc/passwd" }, { "exit": 3 }]))),
        ("s16 no node", Hostile::Install(wat::parse_str("(module (memory 4000))").unwrap())),
        ("s17 a long compilation", Hostile::Install(slow())),
        ("s17 a large compilation", Hostile::Install(large())),
        ("s18 a large file", Hostile::Install(vec![0; 65 << 20])),
        ("s18 a file that is cut short", Hostile::Install(cut)),
        ("s19 a precompiled artifact", Hostile::Install(artifact[32..].to_vec())),
        (
            "s20 a canary all over its memory",
            Hostile::Passes(script(json!([{ "repeat": { "times": 64, "ops": [{ "grow": MIB }] } }]))),
        ),
        ("s22 what it was not given", Hostile::Passes(script(json!([{ "read": "b" }, { "context": true }])))),
        ("s28 an address inside", Hostile::Granted(inside, script(json!([effect(json!("k"))])))),
        ("s30 artifacts that are cut short", Hostile::Cut(cut_short)),
        ("s24 two hundred at once", Hostile::Crowd(200, script(json!([{ "panic": "all of them" }])))),
        ("s25 nobody waits for it", Hostile::Dropped(script(json!([{ "loop": true }])))),
        ("s26 a bug of the embedder", Hostile::Fault(script(json!([effect(json!("a bug"))])))),
        ("s29 another's keys", Hostile::Passes(script(json!([effect(json!("k")), effect(json!("n:k"))])))),
        (
            "s23 an update of the wrong type",
            fails(own, json!([{ "put": { "a": { "x": "x".repeat(1 << 20) } } }])),
        ),
        ("s27 a large schema", fails(own, asks(json!({ "description": "x".repeat(3 << 20) })))),
        ("s27 a chain of references", fails(own, asks(chain))),
        ("s27 many patterns", fails(own, asks(json!({ "type": "string", "allOf": patterns })))),
        ("s21 what is not granted", fails(own, json!([{ "put": { "elsewhere": "x".repeat(1 << 20) } }]))),
    ]
}

/// Of this process, as Linux counts it.
fn memory_bytes(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// `VmHWM` begins anew.
fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

fn files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
