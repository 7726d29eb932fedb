//! Nodes that mean harm or are broken: a typed error comes out, and the host serves on as before.

use std::sync::Arc;
use std::time::Duration;

use holdpoint::engine::{Settings, Watched};
use holdpoint::model::{ErrorRecord, Kind, Limits, RunStatus, TenantId, ThreadId};
use holdpoint::{EffectFailure, EngineError, Graph, GraphSpec, Host, HostBuilder, NodeSpec, Reducer};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::by_hand::node;
use crate::world::*;

/// A host that runs one task at a time, and a graph that means no harm.
pub struct Bench {
    pub world: World,
    pub host: Host,
    pub graph: Graph,
    tasks_before: usize,
}

impl Bench {
    pub async fn new(limits: Limits) -> Self {
        Self::with(limits, |builder| builder).await
    }

    pub async fn with(limits: Limits, set: impl FnOnce(HostBuilder) -> HostBuilder) -> Self {
        let world = World::new();
        let limits = Limits { tasks_at_once: 1, ..limits };
        let host = set(world.builder()).limits(limits).database(world.db()).open().await.unwrap();
        let graph = host.compile(&scripted(&["n"])).await.unwrap();
        let mut bench = Self { world, host, graph, tasks_before: usize::MAX };
        bench.serves().await;
        bench.tasks_before = Handle::current().metrics().num_alive_tasks();
        bench
    }

    /// A graph of one node, `n`, that is this component.
    pub async fn by_hand(&self, bytes: Vec<u8>) -> Graph {
        let installed = self.host.install("by hand", bytes).await.unwrap();
        let spec = GraphSpec::new("by-hand", "n").node("n", NodeSpec::component(installed.digest));
        self.host.compile(&spec).await.unwrap()
    }

    /// What the script's run fails with.
    pub async fn script_fails(&self, ops: Value) -> ErrorRecord {
        self.fails(&self.graph, script(ops)).await
    }

    /// What a component's run fails with.
    pub async fn component_fails(&self, bytes: Vec<u8>) -> ErrorRecord {
        self.fails(&self.by_hand(bytes).await, json!({})).await
    }

    /// What a component is refused with when it is installed.
    pub async fn install_fails(&self, bytes: Vec<u8>) -> ErrorRecord {
        let error = self.host.install("by hand", bytes).await.unwrap_err();
        assert!(matches!(error, EngineError::Component { .. }), "{error:?}");
        self.serves().await;
        error.record()
    }

    async fn fails(&self, graph: &Graph, input: Value) -> ErrorRecord {
        let execution = graph.invoke(on("t"), input).await.unwrap();
        failed(&execution);
        let error = execution.error.unwrap();
        assert_eq!(error.more["node"], "n");
        self.serves().await;
        error
    }

    /// The next run, on the same host and thread, is as if nothing had been: no lease is left, no task,
    /// no file of ours, and the one permit to run a task was given back.
    pub async fn serves(&self) {
        let well = script(json!([{ "put": { "d": { "well": true } } }]));
        completed(self.graph.invoke(on("t"), well).await.unwrap());
        let thread = ThreadId::parse("t").unwrap();
        let left = self.host.store().unwrap().load(&TenantId::default(), &thread).await.unwrap().unwrap();
        assert_eq!(left.lease, None);
        // The runtime needs a moment to take finished ones off its list.
        let none_left = async {
            while Handle::current().metrics().num_alive_tasks() > self.tasks_before {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), none_left).await.expect("a task is left");
    }

    pub async fn state(&self) -> Value {
        self.graph.state(on("t")).await.unwrap()
    }
}

/// A limit's error, which names it and its value.
#[track_caller]
pub fn is_limit(error: &ErrorRecord, name: &str, value: u64) {
    assert_eq!(error.kind, Kind::Limit, "{error}");
    assert_eq!((&error.more["limit"], &error.more["value"]), (&json!(name), &json!(value)), "{error}");
    assert!(error.message.contains(name), "{error}");
    assert!(error.message.contains(&value.to_string()), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s13_a_trap_is_told_by_its_kind_with_message_and_the_nodes_own_frames() {
    let bench = Bench::new(Limits::default()).await;
    for (op, trap, says, stderr, frame) in [
        (json!({ "trap": "unreachable" }), "unreachable", "unreachable", "", "hostile::"),
        (json!({ "trap": "oob" }), "memory-out-of-bounds", "outside of its memory", "", "hostile::trap"),
        (json!({ "trap": "div0" }), "division-by-zero", "by zero", "", "hostile::trap"),
        (json!({ "panic": "s13-canary" }), "unreachable", "panic", "s13-canary", "panic"),
        (json!({ "recurse": true }), "stack-overflow", "stack overflow", "", "deeper"),
    ] {
        let error = bench.script_fails(json!([op])).await;
        assert_eq!((error.kind, &error.more["trap"]), (Kind::Trap, &json!(trap)), "{op}: {error:?}");
        assert!(error.message.contains(says), "{op}: {error}");
        let printed = error.more.get("stderr").and_then(Value::as_str).unwrap_or_default();
        assert!(printed.contains(stderr), "{op}: {error:?}");
        let frames = error.more["frames"].as_array().unwrap();
        assert!(frames.iter().any(|f| f.as_str().unwrap().contains(frame)), "{op}: {frames:?}");
        let text = serde_json::to_string(&error).unwrap();
        assert!(!text.contains("0x") && !text.contains("wasm trap"), "{op}: host internals: {text}");
    }

    // All that the next guest on the same thread can look at knows nothing of it.
    bench.script_fails(json!([{ "panic": "s13-canary" }])).await;
    let look = json!([
        { "context": true }, { "read": "script" }, { "read": "a" }, { "read": "d" }, { "stdin": true },
        { "env": true }, { "args": true }, { "steering": true }, { "put_results": "a" }
    ]);
    completed(bench.graph.invoke(on("t"), script(look)).await.unwrap());
    let seen = bench.state().await["a"].to_string();
    assert!(seen.contains("well") && !seen.contains("canary"), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s14_what_is_no_value_of_its_type_is_a_trap_and_never_the_hosts_panic() {
    let bench = Bench::new(Limits::default()).await;
    let store = |at: i32, value: u32| format!("(i32.store (i32.const {at}) (i32.const {value}))");
    for (what, run) in [
        ("bad UTF-8", format!("{} (i32.const 0)", store(64, 0xffff))),
        ("UTF-8 that is cut off", format!("{} {} (i32.const 0)", store(64, 0xe2), store(8, 1))),
        ("a pointer out of memory", format!("{} (i32.const 0)", store(4, 0x7fff_0000))),
        ("a pointer that wraps around", format!("{} (i32.const 0)", store(4, u32::MAX))),
        ("a length out of memory", format!("{} (i32.const 0)", store(8, 0x1_0000))),
        ("a length that wraps around", format!("{} (i32.const 0)", store(8, u32::MAX))),
        ("a list out of memory", format!("{} {} (i32.const 0)", store(12, 64), store(16, 1 << 28))),
        ("a misaligned list", format!("{} {} (i32.const 0)", store(12, 1), store(16, 1))),
        ("a case that is none", format!("{} (i32.const 0)", store(0, 9))),
        ("a result out of memory", "(i32.const -16)".to_owned()),
        ("a misaligned result", "(i32.const 2)".to_owned()),
    ] {
        let error = bench.component_fails(node("", &run)).await;
        assert_eq!((error.kind, &error.more["trap"]), (Kind::Trap, &json!("abi")), "{what}: {error:?}");
        assert!(error.message.contains("bad pointer, length, case or text"), "{what}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s15_the_world_of_a_node_is_empty() {
    let bench = Bench::new(Limits::default()).await;
    let target = bench.world.dir.path().join("written");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let look = json!([
        { "env": true }, { "args": true }, { "stdin": true },
        { "open": "/etc/passwd" }, { "open": "../etc/passwd" }, { "write": target }, { "list": "/" },
        { "connect": listener.local_addr().unwrap().to_string() }, { "udp": "0.0.0.0:0" },
        { "put_results": "a" }
    ]);
    completed(bench.graph.invoke(on("t"), script(look)).await.unwrap());
    let told = bench.state().await["a"].take();
    assert_eq!((&told[0], &told[1], &told[2]), (&json!({}), &json!([]), &json!({ "ok": "" })));
    for (i, word) in [
        (3, "capabilities"),
        (4, "capabilities"),
        (5, "capabilities"),
        (6, "capabilities"),
        (7, "access-denied"),
        (8, "access-denied"),
    ] {
        let why = told[i]["err"].as_str().unwrap_or_else(|| panic!("{i}: {told}"));
        assert!(why.to_lowercase().replace(' ', "-").contains(word), "{i}: {why}");
    }
    assert!(!target.exists() && listener.accept().is_err());

    for code in [0, 3] {
        let error = bench.script_fails(json!([{ "exit": code }])).await;
        assert_eq!((error.kind, &error.more["trap"]), (Kind::Trap, &json!("exit")), "{error:?}");
        assert!(error.message.contains("the node called exit("), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s20_fresh_memory_is_zeroes_whoever_had_it_before() {
    let bench = Bench::new(Limits::default()).await;
    // From the second page on: the first holds what the component itself puts there.
    let over_all = |body: &str| {
        format!(
            "(local $at i32) (drop (memory.grow (i32.const 400))) (local.set $at (i32.const 65536))
             (loop $next {body}
                (local.set $at (i32.add (local.get $at) (i32.const 4)))
                (br_if $next (i32.lt_u (local.get $at) (i32.mul (memory.size) (i32.const 65536)))))
             (i32.const 0)"
        )
    };
    let fills = bench.by_hand(node("", &over_all("(i32.store (local.get $at) (i32.const 0xC0FFEE))"))).await;
    let look = "(if (i32.load (local.get $at)) (then (unreachable)))";
    let both = over_all(
        "(i32.store (local.get $at) (i32.const 1)) (if (i32.load (local.get $at)) (then (unreachable)))",
    );
    assert_eq!(bench.component_fails(node("", &both)).await.kind, Kind::Trap, "it would find something");
    // The next is another tenant's, in the one place that there is for a task.
    let other = bench.host.for_tenant("other".parse().unwrap());
    let digest = other.install("looks", node("", &over_all(look))).await.unwrap().digest;
    let spec = GraphSpec::new("by-hand", "n").node("n", NodeSpec::component(digest));
    let others = other.compile(&spec).await.unwrap();
    for _ in 0..5 {
        completed(fills.invoke(on("t"), json!({})).await.unwrap());
        completed(others.invoke(on("u"), json!({})).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s21_what_was_not_declared_or_granted_is_refused_by_name_and_nothing_is_folded() {
    let bench = Bench::new(Limits::default()).await;
    let put = json!({ "put": { "a": [1], "c": 5 } });
    let effect = |name: &str| json!({ "effect": { "name": name, "key": "k", "input": 1 } });
    for (what, name, op) in [
        // Declared by the component, and not granted by the graph; then neither.
        ("output", "b", json!({ "put": { "b": 1 } })),
        ("output", "script", json!({ "put": { "script": [] } })),
        ("output", "elsewhere", json!({ "put": { "elsewhere": 1 } })),
        ("route", "x", json!({ "go": "x" })),
        ("route", "y", json!({ "send": { "label": "y", "arg": 1 } })),
        ("route", "n", json!({ "go": "n" })),
        ("effect", "g", effect("g")),
    ] {
        let error = bench.script_fails(json!([put, op])).await;
        assert_eq!(error.kind, Kind::Undeclared, "{op}: {error}");
        assert_eq!(
            (&error.more["what"], &error.more["name"]),
            (&json!(what), &json!(name)),
            "{op}: {error:?}"
        );
        assert!(error.message.contains(&format!("{what} {name:?}")), "{op}: {error}");
        let state = bench.state().await;
        assert_eq!((state.get("a"), state.get("c"), state.get("b")), (None, None, None), "{op}");
    }
    assert_eq!(bench.world.sent(), 0);

    let mut spec = scripted(&["n"]);
    spec.nodes.insert("n".into(), script_node().effects(&["f"]));
    let without_e = bench.host.compile(&spec).await.unwrap();
    let error = bench.fails(&without_e, script(json!([effect("e")]))).await;
    assert_eq!((error.kind, &error.more["name"]), (Kind::Undeclared, &json!("e")), "{error:?}");
    assert_eq!(bench.world.sent(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn s22_a_node_sees_the_channels_mapped_to_it_and_no_more() {
    let bench = Bench::new(Limits::default()).await;
    // It declares that it reads `a`, and fails with its whole state as the message.
    let items = r#"
        (data (memory $memory) (i32.const 144) "\d0\00\00\00\01\00\00\00")
        (data (memory $memory) (i32.const 208) "\d8\00\00\00\01\00\00\00a")"#;
    let run = "
        (i32.store (i32.const 0) (i32.const 1)) (i32.store (i32.const 4) (i32.const 1))
        (i32.store (i32.const 8) (local.get 14)) (i32.store (i32.const 12) (local.get 15))
        (i32.store (i32.const 16) (i32.const 0)) (i32.const 0)";
    let digest = bench.host.install("tells", node(items, run)).await.unwrap().digest;
    let tells = NodeSpec::component(digest);
    for (node, sees) in [
        (tells.clone().reads_as(&[("a", "shown")]), r#"{"a":[1]}"#),
        (tells.clone().reads_as(&[("a", "unwritten")]), "{}"),
        (tells, "{}"),
    ] {
        let spec = GraphSpec::new("g", "n")
            .channel("shown", Reducer::Replace)
            .channel("hidden", Reducer::Replace)
            .channel("unwritten", Reducer::Replace)
            .node("n", node);
        let graph = bench.host.compile(&spec).await.unwrap();
        let error = bench.fails(&graph, json!({ "shown": [1], "hidden": ["secret"] })).await;
        assert_eq!((error.kind, error.message.as_str()), (Kind::NodeFailed, sees));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s23_an_update_of_the_wrong_type_is_refused_by_channel_and_type() {
    let bench = Bench::new(Limits::default()).await;
    for (channel, value, wants, got) in [
        ("a", json!(1), "an array", "a number"),
        ("a", json!({ "0": 1 }), "an array", "an object"),
        ("a", json!(null), "an array", "null"),
        ("c", json!("1"), "a number", "a string"),
        ("c", json!(true), "a number", "a boolean"),
        ("d", json!([["k", 1]]), "an object", "an array"),
    ] {
        let error = bench.script_fails(json!([{ "put": { channel: value } }])).await;
        assert_eq!((error.kind, &error.more["channel"]), (Kind::Invalid, &json!(channel)), "{error:?}");
        for word in [&format!("channel {channel}"), wants, got, "node n"] {
            assert!(error.message.contains(word), "{word}: {error}");
        }
        assert_eq!(bench.state().await.get(channel).is_some(), channel == "d");
    }
    for update in ["[1]", "1", "null", "\"a\""] {
        let error = bench.script_fails(json!([{ "raw_update": update }])).await;
        assert_eq!(error.kind, Kind::Invalid, "{error}");
        assert!(error.message.contains("must be an object"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s25_a_run_that_has_ended_is_not_left_running_by_its_own_claim() {
    let world = World::new();
    // The claim is renewed all the time, so also at the moment when the run ends.
    let settings = Settings { lease_ms: 3, budget_ms: 1 };
    let host = world.builder().settings(settings).database(world.db()).open().await.unwrap();
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    for round in 0..150 {
        completed(graph.invoke(on("t"), script(json!([{ "put": { "c": 1 } }]))).await.unwrap());
        let stands = host.execution(on("t")).await.unwrap();
        assert_eq!(stands.status, RunStatus::Completed, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s26_a_bug_of_the_embedder_ends_that_run_and_the_host_lives() {
    let world = World::new();
    let host = world
        .builder()
        .limits(Limits { tasks_at_once: 1, ..Limits::default() })
        .effect("e", |request| {
            assert!(request.input != json!("at once"), "a bug before the future");
            async move {
                assert!(request.input != json!("later"), "a bug in the future");
                Ok::<Value, EffectFailure>(json!("done"))
            }
        })
        .watcher(Arc::new(|watched: &Watched<'_>| {
            assert!(!matches!(watched, Watched::Log { message: "bug", .. }), "a bug in the watcher");
        }))
        .database(world.db())
        .open()
        .await
        .unwrap();
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    let effect = |input: &str| json!({ "effect": { "name": "e", "key": input, "input": input } });
    let log = |message: &str| json!({ "log": { "level": "info", "message": message } });
    for (thread, op, says) in [
        ("1", effect("at once"), "the handler of effect e panicked"),
        ("2", effect("later"), "the handler of effect e panicked"),
        ("3", log("bug"), "while it ran node n"),
    ] {
        let ops = json!([log("fine"), op, { "put": { "c": 1 } }]);
        let error = graph.invoke(on(thread), script(ops)).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Store, "{error:?}");
        assert!(
            error.to_string().contains(says) && error.to_string().contains("can be continued"),
            "{error}"
        );
        let well = script(json!([effect("well"), { "put": { "c": 1 } }]));
        completed(graph.invoke(on(&format!("{thread} after")), well).await.unwrap());
    }
    host.close().await;

    // Once it is mended, the runs go on.
    let host = world.host().await;
    for thread in ["1", "2", "3"] {
        completed(host.continue_run(on(thread)).await.unwrap());
        assert_eq!(host.state(on(thread)).await.unwrap()["c"], 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s30_an_artifact_that_was_replaced_or_cut_short_is_compiled_again() {
    let world = World::new();
    let cache = world.dir.path().join("cache");
    let open = async || world.builder().cache(&cache).database(world.db()).open().await.unwrap();
    let plain = node("", "(i32.const 0)");
    let other = node("", "(unreachable)");
    let run = async |host: &Host, bytes: &[u8]| {
        let digest = host.install("n", bytes.to_vec()).await.unwrap().digest;
        let graph =
            host.compile(&GraphSpec::new("g", "n").node("n", NodeSpec::component(digest))).await.unwrap();
        (graph.invoke(on("t"), json!({})).await.unwrap(), host.sandbox().counters())
    };
    let artifact = |bytes: &[u8]| {
        let hex = holdpoint::model::Digest::of(bytes).hex();
        let found = std::fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path());
        found.into_iter().find(|path| path.display().to_string().contains(&hex)).unwrap()
    };
    let host = open().await;
    completed(run(&host, &plain).await.0);
    failed(&run(&host, &other).await.0);
    host.close().await;
    let (path, evil) = (artifact(&plain), std::fs::read(artifact(&other)).unwrap());
    let good = std::fs::read(&path).unwrap();

    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for (what, content) in [
        ("another component's", &evil[..]),
        ("one byte differs", &flipped),
        ("cut short", &good[..good.len() / 2]),
        ("empty", &[]),
        ("without what vouches for it", &good[32..]),
    ] {
        std::fs::write(&path, content).unwrap();
        let host = open().await;
        let (execution, counters) = run(&host, &plain).await;
        completed(execution);
        assert_eq!((counters.compiles, counters.artifact_loads), (1, 0), "{what}");
        assert_eq!(std::fs::read(&path).unwrap(), good, "{what}: put right");
        host.close().await;
    }
    let host = open().await;
    let (execution, counters) = run(&host, &plain).await;
    completed(execution);
    assert_eq!((counters.compiles, counters.artifact_loads), (0, 1), "unharmed, it is used");
}
