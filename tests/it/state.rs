//! What a person writes into a thread's state.

use holdpoint::engine::StateUpdate;
use holdpoint::model::{InterruptKind, Kind};
use holdpoint::{Command, GraphSpec, RunStatus};
use serde_json::{Value, json};

use crate::world::*;

fn set(values: Value) -> StateUpdate {
    StateUpdate { values, as_node: None, actor: Some("maria".into()), ..StateUpdate::default() }
}

fn set_as(node: &str, values: Value) -> StateUpdate {
    StateUpdate { as_node: Some(node.into()), ..set(values) }
}

/// `p` asks after an effect, `q` finishes, and then comes `r`.
fn two_then_one() -> GraphSpec {
    let mut spec = scripted(&["p", "q"]).node("r", script_node()).edge("q", "r");
    spec.nodes.get_mut("p").unwrap().routes = Default::default();
    spec.edge("p", "r")
}

fn ops() -> Value {
    json!({
        "p": [{ "effect": { "name": "e", "key": "k", "input": 1 } }, { "read": "c" }, { "ask": "?" }, { "put_results": "a" }],
        "q": [{ "put": { "a": ["q"], "c": 1 } }],
        "r": [{ "read": "c" }, { "put_results": "a" }],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn i52_setting_the_state_keeps_what_siblings_finished_and_asks_the_rest_anew() {
    let world = World::new();
    let host = world.host().await;
    let graph = host.compile(&two_then_one()).await.unwrap();
    let old = paused(graph.invoke(on("t"), script(ops())).await.unwrap()).remove(0);
    world.started();
    let execution = host.set_state(on("t"), set(json!({ "c": 10 }))).await.unwrap();
    let new = paused(execution).remove(0);
    // `q` does not run again, what follows it does, and `p` asks from the new state.
    let mut started = world.started();
    started.sort();
    assert_eq!(started, ["p", "r"]);
    assert_ne!(new.interrupt.id, old.interrupt.id);
    assert_eq!(world.sent(), 1, "what was done is not done again");
    let state = graph.state(on("t")).await.unwrap();
    assert_eq!(
        (&state["a"], &state["c"]),
        (&json!(["q"]), &json!(11)),
        "the sibling's update is folded first"
    );
    let late = refused(graph.resume(on("t"), Command::answers([(old.interrupt.id, json!(1))])).await);
    assert_eq!((late.error.kind, &late.pending), (Kind::Stale, &vec![new.clone()]));
    assert!(late.error.message.contains("maria"), "{}", late.error.message);
    completed(graph.resume(on("t"), Command::resume("yes")).await.unwrap());
    let sent = json!({ "ok": { "sent": 1 } });
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!(["q", sent, 11, "yes", 11, 11]));
}

#[tokio::test(flavor = "multi_thread")]
async fn i52_a_state_set_in_a_nodes_name_stands_for_what_it_waits_to_do() {
    let world = World::new();
    let host = world.host().await;
    let graph = host.compile(&two_then_one()).await.unwrap();
    paused(graph.invoke(on("t"), script(ops())).await.unwrap());
    world.started();
    completed(host.set_state(on("t"), set_as("p", json!({ "a": ["for p"], "c": 5 }))).await.unwrap());
    assert_eq!(world.started(), ["r"], "both edges meet in one task");
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!(["q", "for p", 6]));
    // On a thread that is done, it goes on from that node's edges, or not at all.
    completed(host.set_state(on("t"), set(json!({ "c": 1 }))).await.unwrap());
    assert!(world.started().is_empty());
    completed(host.set_state(on("t"), set_as("q", json!({}))).await.unwrap());
    assert_eq!(world.started(), ["r"]);
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!(["q", "for p", 6, 7]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_does_not_fit_changes_nothing() {
    let world = World::new();
    let host = world.host().await;
    let graph = host.compile(&two_then_one()).await.unwrap();
    let before = graph.invoke(on("t"), script(ops())).await.unwrap();
    for (update, what) in [
        (set(json!({ "none": 1 })), "none"),
        (set(json!({ "a": 1 })), "array"),
        (set(json!([1])), "object"),
        (set_as("nobody", json!({})), "nobody"),
    ] {
        let refusal = refused(host.set_state(on("t"), update).await);
        assert_eq!(refusal.error.kind, Kind::Invalid);
        assert!(refusal.error.message.contains(what), "{}", refusal.error.message);
        assert_eq!(refusal.pending, before.interrupts);
    }
    assert_eq!(host.execution(on("t")).await.unwrap(), before);
    assert_eq!(refused(host.set_state(on("none"), set(json!({}))).await).error.kind, Kind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_is_not_passed_by_setting_the_state() {
    let world = World::new();
    let host = world.host().await;
    let mut spec = scripted(&["p"]);
    spec.nodes.get_mut("p").unwrap().interrupt_after = true;
    let graph = host.compile(&spec).await.unwrap();
    let held = paused(graph.invoke(on("t"), script(json!([{ "put": { "a": ["p"] } }]))).await.unwrap());
    assert_eq!(held[0].kind, InterruptKind::After);
    let again = paused(host.set_state(on("t"), set(json!({ "c": 1 }))).await.unwrap());
    assert_eq!((again[0].kind, again.len()), (InterruptKind::After, 1));
    let state = graph.state(on("t")).await.unwrap();
    assert_eq!((&state["a"], &state["c"]), (&Value::Null, &json!(1)));
    completed(graph.resume(on("t"), Command::proceed()).await.unwrap());
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!(["p"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_failed_goes_on_from_a_state_that_was_mended() {
    let world = World::new();
    let host = world.host().await;
    let graph = host.compile(&scripted(&["p"])).await.unwrap();
    let ops = json!([{ "read": "c" }, { "if_last": { "equals": 3, "then": [{ "put": { "a": ["mended"] } }],
        "else": [{ "fail": "c is wrong" }] } }]);
    failed(&graph.invoke(on("t"), script(ops)).await.unwrap());
    let execution = host.set_state(on("t"), set(json!({ "c": 3 }))).await.unwrap();
    assert_eq!(execution.status, RunStatus::Completed, "{execution:#?}");
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!(["mended"]));
}
