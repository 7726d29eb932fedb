//! Whose limit holds: the host's, a tenant's in its place, a node's below that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use holdpoint::model::{Kind, Limits, NodeLimits, TenantId};
use holdpoint::{Command, EffectFailure, EngineError, GraphSpec};
use serde_json::{Value, json};

use crate::by_hand::node;
use crate::hostile::is_limit;
use crate::world::*;

const MIB: u64 = 1 << 20;

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

/// `n`, held to these.
fn lowered(limits: NodeLimits) -> GraphSpec {
    let mut spec = scripted(&["n", "free"]);
    spec.nodes.insert("n".into(), script_node().limits(limits));
    spec
}

fn fuel(fuel: u64) -> NodeLimits {
    NodeLimits { fuel: Some(fuel), ..NodeLimits::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_held_to_its_own_limit_and_its_neighbour_is_not() {
    let world = World::new();
    let host = world.host().await;
    let big = "x".repeat(3_000);
    let effect = json!({ "effect": { "name": "e", "key": "k", "input": big } });
    let grow = json!([{ "repeat": { "times": 64, "ops": [{ "grow": MIB }] } }]);
    for (n, (limits, ops, name, value)) in [
        (
            fuel(5_000_000),
            json!([{ "repeat": { "times": 1_000, "ops": [{ "hash_order": true }] } }]),
            "fuel",
            5_000_000,
        ),
        (NodeLimits { memory_bytes: Some(16 * MIB), ..Default::default() }, grow, "memory_bytes", 16 * MIB),
        (
            NodeLimits { payload_bytes: Some(2_000), ..Default::default() },
            json!([{ "emit": big }]),
            "payload_bytes",
            2_000,
        ),
        (
            NodeLimits { effect_bytes: Some(2_000), ..Default::default() },
            json!([effect]),
            "effect_bytes",
            2_000,
        ),
        (
            NodeLimits { update_bytes: Some(2_000), ..Default::default() },
            json!([{ "put": { "a": [big] } }]),
            "update_bytes",
            2_000,
        ),
        (
            NodeLimits { journal_entries: Some(3), ..Default::default() },
            json!([{ "repeat": { "times": 4, "ops": [{ "steering": true }] } }]),
            "journal_entries",
            3,
        ),
        (
            NodeLimits { journal_bytes: Some(5_000), ..Default::default() },
            json!([{ "repeat": { "times": 2, "ops": [effect] } }]),
            "journal_bytes",
            5_000,
        ),
        (
            NodeLimits { interrupts: Some(2), ..Default::default() },
            json!([{ "ask_all": [1, 2, 3] }]),
            "interrupts",
            2,
        ),
        (
            NodeLimits { state_bytes: Some(50), ..Default::default() },
            json!([{ "value": big }]),
            "state_bytes",
            50,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        // As its file says it, too.
        let spec = GraphSpec::from_toml(&lowered(limits).to_toml()).unwrap();
        let graph = host.compile(&spec).await.unwrap();
        let run = graph.invoke(on(&format!("t{n}")), script(json!({ "n": ops, "free": [] }))).await.unwrap();
        failed(&run);
        let error = run.error.unwrap();
        assert_eq!(error.more["node"], "n");
        is_limit(&error, name, value);
        let swapped = script(json!({ "n": [], "free": ops }));
        if name != "state_bytes" {
            let run = graph.invoke(on(&format!("u{n}")), swapped).await.unwrap();
            assert_eq!(run.error, None, "{name}: the other node has the tenant's");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_lowers_limits_and_does_not_raise_them() {
    let world = World::new();
    let host = world.host().await;
    let Err(EngineError::Refused(refused)) = host.compile(&lowered(fuel(u64::MAX))).await.map(drop) else {
        panic!("it was compiled");
    };
    is_limit(&refused.error, "fuel", Limits::default().fuel);
    let message = &refused.error.message;
    assert!(message.contains("nodes.n.limits.fuel") && message.contains(&u64::MAX.to_string()), "{message}");

    let text = lowered(fuel(1)).to_toml().replace("fuel = 1", "fule = 1");
    let error = GraphSpec::from_toml(&text).unwrap_err();
    assert!(error.contains("fule") && error.contains("memory_bytes") && error.contains("line"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nodes_limit_is_pinned_with_its_graph_and_a_tenants_holds_as_it_is_now() {
    let world = World::new();
    let open =
        async |limits: Limits| world.builder().limits(limits).database(world.db()).open().await.unwrap();
    let host = open(Limits::default()).await;
    let graph = host.compile(&lowered(fuel(30_000_000))).await.unwrap();
    let ops = |spin: bool| {
        let then = if spin { json!({ "loop": true }) } else { json!({ "put": { "c": 1 } }) };
        script(json!({ "n": [{ "ask": "?" }, then], "free": [] }))
    };
    for (thread, spin) in [("a", true), ("b", true), ("c", false)] {
        paused(graph.invoke(on(thread), ops(spin)).await.unwrap());
    }
    host.close().await;

    let more = open(Limits { fuel: Limits::default().fuel * 2, ..Limits::default() }).await;
    let run = more.resume(on("a"), Command::resume(1)).await.unwrap();
    is_limit(&run.error.unwrap(), "fuel", 30_000_000);
    more.close().await;

    let less = open(Limits { fuel: 20_000_000, ..Limits::default() }).await;
    let run = less.resume(on("b"), Command::resume(1)).await.unwrap();
    is_limit(&run.error.unwrap(), "fuel", 20_000_000);
    completed(less.resume(on("c"), Command::resume(1)).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_limits_of_its_own_and_the_rest_have_the_hosts() {
    let world = World::new();
    let narrow = Limits {
        fuel: 30_000_000,
        answer_bytes: 100,
        instruction_bytes: 10,
        state_bytes: 3_000,
        component_bytes: 100,
        ..Limits::default()
    };
    let host = world
        .builder()
        .limits_for(tenant("narrow"), narrow.clone())
        .limits_for(tenant("wide"), Limits { component_bytes: 64 * MIB, ..narrow.clone() })
        .database(world.db())
        .open()
        .await
        .unwrap();
    let error = host.for_tenant(tenant("narrow")).install("n", node("", "(i32.const 0)")).await.unwrap_err();
    is_limit(&error.record(), "component_bytes", 100);

    let held = host.for_tenant(tenant("wide")).compile(&scripted(&["n"])).await.unwrap();
    let free = host.for_tenant(tenant("other")).compile(&scripted(&["n"])).await.unwrap();
    let spin = json!([{ "ask": "?" }, { "repeat": { "times": 10_000, "ops": [{ "hash_order": true }] } }]);
    for graph in [&held, &free] {
        paused(graph.invoke(on("t"), script(spin.clone())).await.unwrap());
    }
    let large = || Command::resume(json!("x".repeat(100)));
    is_limit(&refused(held.resume(on("t"), large()).await).error, "answer_bytes", 100);
    let steered = Command::resume(1).steer("x".repeat(11));
    is_limit(&refused(held.resume(on("t"), steered.clone()).await).error, "instruction_bytes", 10);
    is_limit(&held.resume(on("t"), Command::resume(1)).await.unwrap().error.unwrap(), "fuel", 30_000_000);
    completed(
        free.resume(on("t"), Command::resume(json!("x".repeat(100))).steer("x".repeat(11))).await.unwrap(),
    );

    let large = json!({ "script": [], "a": ["x".repeat(3_000)] });
    is_limit(&refused(held.invoke(on("u"), large.clone()).await).error, "state_bytes", 3_000);
    completed(free.invoke(on("u"), large).await.unwrap());
    // A thread of one is none of the other's.
    assert_eq!(refused(held.resume(on("u"), Command::resume(1)).await).error.kind, Kind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn s04_the_memory_of_all_tasks_together_is_bounded_and_no_growth_fails_for_it() {
    let world = World::new();
    let limits = Limits { memory_bytes: 32 * MIB, memory_bytes_at_once: 80 * MIB, ..Limits::default() };
    let (now, most): (Arc<AtomicU32>, Arc<AtomicU32>) = Default::default();
    let peak = Arc::clone(&most);
    let host = world
        .builder()
        .limits(limits)
        // Where all tasks come by that run.
        .effect("e", move |_| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                for _ in 0..1_000 {
                    tokio::task::yield_now().await;
                }
                now.fetch_sub(1, Ordering::SeqCst);
                Ok::<Value, EffectFailure>(json!(1))
            }
        })
        .database(world.db())
        .open()
        .await
        .unwrap();
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    let runs = (0..30).map(|n| {
        let graph = graph.clone();
        tokio::spawn(async move {
            let effect = json!({ "effect": { "name": "e", "key": "k", "input": 1 } });
            let ops = json!([{ "grow": 20 * MIB }, effect, { "put_results": "a" }]);
            completed(graph.invoke(on(&format!("t{n}")), script(ops)).await.unwrap());
        })
    });
    for run in runs.collect::<Vec<_>>() {
        run.await.unwrap();
    }
    for n in 0..30 {
        assert_eq!(graph.state(on(&format!("t{n}"))).await.unwrap()["a"][0], json!(true));
    }
    assert!(peak.load(Ordering::SeqCst) <= 2, "{peak:?} tasks of 32 MiB at once within 80 MiB");
}
