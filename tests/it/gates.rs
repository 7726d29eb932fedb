//! Stops that the graph or the run sets, without a word from the node.

use holdpoint::model::interrupt::{InterruptKind, PendingInterrupt};
use holdpoint::model::{Kind, RunStatus};
use holdpoint::{Command, Execution, GraphSpec, ResumeTarget};
use serde_json::{Value, json};

use crate::world::*;

/// Nodes that stop at both gates.
fn gated(nodes: &[&str]) -> GraphSpec {
    let mut spec = scripted(nodes);
    for node in spec.nodes.values_mut() {
        node.interrupt_before = true;
        node.interrupt_after = true;
    }
    spec
}

#[track_caller]
fn only(execution: Execution) -> PendingInterrupt {
    let pending = paused(execution);
    assert_eq!(pending.len(), 1, "{pending:#?}");
    pending.into_iter().next().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn i40_a_gate_before_a_node_is_passed_once_for_each_time_it_runs() {
    let world = World::new();
    let mut spec = scripted(&["n"]);
    let node = spec.nodes.get_mut("n").unwrap();
    node.interrupt_before = true;
    node.routes = script_node().routes(&[("x", "n")]).routes;
    let graph = world.graph(&spec).await;
    // Goes round once: the second time it finds its own mark.
    let ops = json!([{ "read": "a" }, { "put": { "a": ["been"] } },
        { "if_last": { "equals": null, "then": [{ "go": "x" }], "else": [] } }]);
    let first = only(graph.invoke(on("t"), script(ops)).await.unwrap());
    assert_eq!((first.kind, &first.interrupt.payload), (InterruptKind::Before, &Value::Null));
    assert_eq!(world.started(), Vec::<String>::new());
    let second = only(graph.resume(on("t"), Command::proceed()).await.unwrap());
    assert_eq!((second.kind, world.started()), (InterruptKind::Before, vec!["n".to_owned()]));
    assert_ne!(second.interrupt.id, first.interrupt.id);
    completed(graph.resume(on("t"), Command::proceed()).await.unwrap());
    assert_eq!(world.started(), ["n"]);
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!(["been", "been"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn i41_a_gate_after_a_node_holds_its_update_back() {
    let world = World::new();
    let graph = world.graph(&scripted(&["n"])).await;
    let config = on("t").interrupt_after("n");
    let gate = only(graph.invoke(config, script(json!([{ "put": { "a": [1], "c": 2 } }]))).await.unwrap());
    assert_eq!((gate.kind, &gate.interrupt.payload), (InterruptKind::After, &json!({ "a": [1], "c": 2 })));
    assert_eq!(graph.state(on("t")).await.unwrap().get("a"), None);
    completed(graph.resume(on("t"), Command::proceed()).await.unwrap());
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!([1]));
    assert_eq!(world.started(), ["n"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn i42_before_the_question_and_after_come_in_that_order() {
    let world = World::new();
    let graph = world.graph(&gated(&["n"])).await;
    let ops = json!([{ "ask": "ok?" }, { "put_results": "a" }]);
    let before = only(graph.invoke(on("t"), script(ops)).await.unwrap());
    let question = only(graph.resume(on("t"), Command::proceed()).await.unwrap());
    let after = only(graph.resume(on("t"), Command::resume("yes")).await.unwrap());
    let kinds = [before.kind, question.kind, after.kind];
    assert_eq!(kinds, [InterruptKind::Before, InterruptKind::Node, InterruptKind::After]);
    assert_eq!(after.interrupt.payload, json!({ "a": ["yes"] }));
    completed(graph.resume(on("t"), Command::proceed()).await.unwrap());
    assert_eq!(world.started(), ["n", "n"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn i43_a_gate_takes_no_value_and_a_question_is_not_passed() {
    let world = World::new();
    let graph = world.graph(&gated(&["n"])).await;
    let gate = only(graph.invoke(on("t"), script(json!([{ "ask": "ok?" }]))).await.unwrap());
    let by_id = Command::answers([(gate.interrupt.id, json!(true))]);
    for command in [Command::resume(true), by_id] {
        let refused = refused(graph.resume(on("t"), command).await);
        assert_eq!(refused.error.kind, Kind::GateTakesNoValue);
    }
    only(graph.resume(on("t"), Command::proceed()).await.unwrap());
    assert_eq!(refused(graph.resume(on("t"), Command::proceed()).await).error.kind, Kind::NotPending);
    assert_eq!(world.started(), ["n"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn i44_a_gate_at_a_node_that_is_not_there_is_refused() {
    let world = World::new();
    let graph = world.one().await;
    for config in [on("t").interrupt_before("m"), on("t").interrupt_after("m")] {
        let refused = refused(graph.invoke(config, script(json!([]))).await);
        assert_eq!(refused.error.kind, Kind::Invalid);
        assert!(refused.error.message.contains("the graph has n"), "{}", refused.error.message);
    }
    let error = GraphSpec::from_toml("name = 'g'\nentry = 'n'\ninterrupt_before = ['m']").unwrap_err();
    assert!(error.contains("line 3"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn i45_a_gate_holds_back_one_of_three_tasks() {
    let world = World::new();
    let graph = world.graph(&scripted(&["p", "q", "r"])).await;
    let input =
        script(json!({ "p": [{ "put": { "c": 1 } }], "q": [{ "put": { "c": 2 } }], "r": [{ "ask": 1 }] }));
    let pending = paused(graph.invoke(on("t").interrupt_before("q"), input).await.unwrap());
    assert_eq!(
        pending.iter().map(|i| i.kind).collect::<Vec<_>>(),
        [InterruptKind::Before, InterruptKind::Node]
    );
    let mut started = world.started();
    started.sort();
    assert_eq!(started, ["p", "r"]);
    // A value goes to the question, and proceed to the gate, whichever comes first.
    let pending = paused(graph.resume(on("t"), Command::resume(0)).await.unwrap());
    assert_eq!(pending[0].kind, InterruptKind::Before);
    completed(graph.resume(on("t"), Command::proceed()).await.unwrap());
    assert_eq!(graph.state(on("t")).await.unwrap()["c"], json!(3));
    assert_eq!(world.started(), ["r", "q"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn i46_a_gate_for_one_run_is_kept_with_the_run() {
    let world = World::new();
    let spec = scripted(&["p"]).node("q", script_node()).edge("p", "q");
    let input = || script(json!({ "p": [{ "ask": 1 }], "q": [{ "put": { "c": 1 } }] }));
    let graph = world.graph(&spec).await;
    only(graph.invoke(on("t").interrupt_before("q"), input()).await.unwrap());
    let host = world.host().await;
    let gate = only(host.resume(on("t"), Command::resume(0)).await.unwrap());
    assert_eq!((gate.kind, gate.interrupt.node.as_str()), (InterruptKind::Before, "q"));
    let target = ResumeTarget::run(gate.run_path[0]).interrupt(gate.interrupt.id);
    completed(world.host().await.resume_targeted(target, Command::proceed()).await.unwrap());
    // The next run on the thread has none.
    only(graph.invoke(on("t"), input()).await.unwrap());
    completed(graph.resume(on("t"), Command::resume(0)).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn i47_gate_question_and_approval_of_one_task_are_told_apart() {
    let world = World::new();
    let mut spec = gated(&["n"]);
    spec.effects.get_mut("e").unwrap().approve = true;
    let graph = world.graph(&spec).await;
    let ops = json!([{ "effect": { "name": "e", "key": "k", "input": 7 } }, { "ask": "ok?" }, { "put_results": "a" }]);
    let before = only(graph.invoke(on("t"), script(ops)).await.unwrap());
    let approve = only(graph.resume(on("t"), Command::proceed()).await.unwrap());
    assert_eq!((approve.kind, world.sent()), (InterruptKind::Approve, 0));
    assert_eq!(approve.interrupt.payload["input"], json!(7));
    let question = only(graph.resume(on("t"), Command::resume(json!({ "approved": true }))).await.unwrap());
    assert_eq!((question.kind, question.interrupt.order, world.sent()), (InterruptKind::Node, 0, 1));
    let after = only(graph.resume(on("t"), Command::resume("yes")).await.unwrap());
    let mut ids: Vec<_> = [before, approve, question, after].iter().map(|i| i.interrupt.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4);
    let done = graph.resume(on("t"), Command::proceed()).await.unwrap();
    assert_eq!(done.status, RunStatus::Completed);
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!([{ "ok": { "sent": 1 } }, "yes"]));
    assert_eq!(world.sent(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn i82_an_effect_that_a_person_refuses_is_denied_and_never_sent() {
    let world = World::new();
    let mut spec = scripted(&["n"]);
    spec.effects.get_mut("e").unwrap().approve = true;
    let graph = world.graph(&spec).await;
    let ops =
        json!([{ "effect": { "name": "e", "key": "k", "input": { "to": "x" } } }, { "put_results": "a" }]);
    let asked = only(graph.invoke(on("t"), script(ops)).await.unwrap());
    let shown = &asked.interrupt.payload;
    assert_eq!(
        (&shown["effect"], &shown["key"], &shown["input"]),
        (&json!("e"), &json!("k"), &json!({ "to": "x" }))
    );
    assert_eq!(
        shown["sends"]["idempotency_key"].as_str().unwrap().len(),
        64,
        "the key that the service sees"
    );
    let no = Command::resume(json!({ "approved": false, "reason": "too much" }));
    completed(graph.resume(on("t"), no).await.unwrap());
    let denied = json!([{ "err": { "kind": "denied", "message": "too much" } }]);
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], denied);
    assert_eq!(world.sent(), 0);
}
