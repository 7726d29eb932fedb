//! What fails, and what is tried again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdpoint::model::{InterruptKind, Kind, TenantId};
use holdpoint::{Command, EffectFailure, GraphSpec, Host, NodeSpec, RunStatus};
use serde_json::{Value, json};

use crate::world::*;

/// A host whose effect `f` fails so often before it succeeds.
async fn flaky(world: &World, failures: usize) -> (Host, Arc<AtomicUsize>) {
    let times = Arc::new(AtomicUsize::new(0));
    let counted = times.clone();
    let builder = world.builder().effect("f", move |_| {
        let nth = counted.fetch_add(1, Ordering::SeqCst);
        std::future::ready(if nth < failures {
            Err(EffectFailure::Retryable(json!("busy")))
        } else {
            Ok(json!("done"))
        })
    });
    (builder.database(world.db()).open().await.unwrap(), times)
}

fn effect(name: &str) -> Value {
    json!({ "effect": { "name": name, "key": "k", "input": 1 } })
}

/// Goes on if the effect before was done, and asks to be tried again if not.
fn unless_done(rest: Value) -> Value {
    json!({ "if_last": { "equals": { "ok": "done" }, "then": rest, "else": [{ "retry": "the service is busy" }] } })
}

fn one(node: NodeSpec) -> GraphSpec {
    let mut spec = scripted(&["n"]);
    spec.nodes.insert("n".into(), node);
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn i06_of_three_tasks_only_the_one_that_failed_is_tried_again() {
    let world = World::new();
    let (host, times) = flaky(&world, 1).await;
    let graph = host.compile(&scripted(&["asks", "done", "fails"])).await.unwrap();
    let ops = json!({
        "asks": [{ "ask": "?" }, { "put_results": "a" }],
        "done": [{ "put": { "a": ["done"] } }],
        "fails": [effect("f"), unless_done(json!([{ "put": { "a": ["failed once"] } }]))],
    });
    let execution = graph.invoke(on("t"), script(ops)).await.unwrap();
    assert_eq!(execution.error.as_ref().map(|error| error.kind), Some(Kind::NodeFailed));
    let asked = paused(execution);
    world.started();
    let execution = host.retry(on("t")).await.unwrap();
    assert_eq!(execution.error, None);
    assert_eq!(paused(execution), asked, "the question is the same");
    assert_eq!(world.started(), ["fails"]);
    assert_eq!(times.load(Ordering::SeqCst), 2);
    completed(graph.resume(on("t"), Command::resume("answer")).await.unwrap());
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!(["answer", "done", "failed once"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn i23_an_answer_is_kept_when_the_node_fails_after_it() {
    let world = World::new();
    let (host, times) = flaky(&world, 1).await;
    let graph = host.compile(&one(script_node())).await.unwrap();
    let ops = json!([{ "ask": "?" }, effect("e"), effect("f"), unless_done(json!([{ "put_results": "a" }]))]);
    paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    let execution = graph.resume(on("t"), Command::resume("yes")).await.unwrap();
    assert_eq!(failed(&execution), Kind::NodeFailed);
    completed(host.retry(on("t")).await.unwrap());
    let state = graph.state(on("t")).await.unwrap();
    assert_eq!(state["a"], json!(["yes", { "ok": { "sent": 1 } }, { "ok": "done" }]));
    assert_eq!((world.sent(), times.load(Ordering::SeqCst)), (1, 2), "what was done is not done again");
    let nothing = refused(host.retry(on("t")).await);
    assert_eq!(nothing.error.kind, Kind::NotPending);
}

#[tokio::test(flavor = "multi_thread")]
async fn i81_another_attempt_sends_what_failed_again_and_its_clock_has_moved() {
    let world = World::new();
    let (host, times) = flaky(&world, 2).await;
    let graph = host.compile(&one(script_node().retry(3, 40))).await.unwrap();
    let ops = json!([
        { "now": true }, effect("e"), { "now": true }, effect("f"),
        unless_done(json!([{ "now": true }, { "ask": "?" }, { "now": true }, { "put_results": "a" }])),
    ]);
    let asked = paused(graph.invoke(on("t"), script(ops)).await.unwrap()).remove(0);
    assert_eq!((world.sent(), times.load(Ordering::SeqCst)), (1, 3));
    assert_eq!(world.started(), ["n"; 3]);
    // Another host, later: the same times again.
    completed(world.host().await.resume(on("t"), Command::resume("yes")).await.unwrap());
    let state = graph.state(on("t")).await.unwrap();
    let time = |i: usize| state["a"][i].as_i64().unwrap();
    // Two waits of 40 and 80 ms lie between what is kept of the first attempt and the last one's effect.
    assert!(time(0) <= time(2) && time(4) >= time(0) + 120, "{state}");
    assert_eq!(asked.interrupt.order, 0);
    let task =
        host.store().unwrap().task(&TenantId::default(), asked.interrupt.task_id).await.unwrap().unwrap().1;
    assert_eq!((task.attempts, task.failures, task.generation), (4, 2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_tried_as_often_as_the_graph_says_and_no_more() {
    let world = World::new();
    let (host, times) = flaky(&world, 9).await;
    let graph = host.compile(&one(script_node().retry(3, 1))).await.unwrap();
    let ops = json!([effect("f"), unless_done(json!([]))]);
    let execution = graph.invoke(on("t"), script(ops)).await.unwrap();
    assert_eq!(failed(&execution), Kind::NodeFailed);
    assert_eq!((world.started().len(), times.load(Ordering::SeqCst)), (3, 3));
    // A person's word gives it as many again.
    assert_eq!(failed(&host.retry(on("t")).await.unwrap()), Kind::NodeFailed);
    assert_eq!((world.started().len(), times.load(Ordering::SeqCst)), (3, 6));
    // What never passes is not tried again.
    let ops = json!([{ "fail": "for good" }]);
    failed(&graph.invoke(on("u"), script(ops)).await.unwrap());
    assert_eq!(world.started().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_after_an_effect_that_failed_is_asked_anew_by_another_attempt() {
    let world = World::new();
    let (host, _) = flaky(&world, 1).await;
    let graph = host.compile(&one(script_node())).await.unwrap();
    let ops = json!([{ "ask": "first" }, effect("f"), { "ask": "go on?" }, { "if_last": { "equals": "again",
        "then": [{ "retry": "as you say" }], "else": [{ "put_results": "a" }] } }]);
    paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    let second = paused(graph.resume(on("t"), Command::resume("one")).await.unwrap()).remove(0);
    failed(&graph.resume(on("t"), Command::resume("again")).await.unwrap());
    let anew = paused(host.retry(on("t")).await.unwrap()).remove(0);
    assert_eq!((anew.interrupt.order, &anew.interrupt.payload), (1, &second.interrupt.payload));
    assert_ne!(anew.interrupt.id, second.interrupt.id);
    completed(world.host().await.resume(on("t"), Command::resume("good")).await.unwrap());
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!(["one", { "ok": "done" }, "good"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_goes_to_the_node_that_the_graph_names() {
    let world = World::new();
    let host = world.host().await;
    let mut spec = scripted(&["n", "p"]).node("h", script_node()).edge("n", "p");
    spec.entry = "n".into();
    spec.nodes.insert("n".into(), script_node().on_error("h"));
    let graph = host.compile(&spec).await.unwrap();
    for (ops, kind) in [
        (json!([{ "fail": { "message": "no", "detail": 7 } }]), "node-failed"),
        (json!([{ "trap": "unreachable" }]), "trap"),
        (json!([{ "put": { "b": 1 } }]), "undeclared"),
    ] {
        let thread = format!("t-{kind}");
        let ops = json!({ "n": ops, "h": [{ "context": true }, { "put_results": "a" }], "p": [] });
        completed(graph.invoke(on(&thread), script(ops)).await.unwrap());
        assert_eq!(world.started(), ["n", "h"], "its edges are not followed");
        let told = graph.state(on(&thread)).await.unwrap()["a"][0]["arg"].clone();
        assert_eq!((&told["node"], &told["error"]["kind"]), (&json!("n"), &json!(kind)), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_called_off_asks_nothing_any_more() {
    let world = World::new();
    let host = world.host().await;
    let child = host.compile(&scripted(&["x"])).await.unwrap().digest();
    let mut spec = scripted(&["p"]).node("s", NodeSpec::subgraph(child).reads(&["script"]));
    spec.entry = holdpoint::model::OneOrMany::Many(["p", "s"].map(String::from).to_vec());
    let graph = host.compile(&spec).await.unwrap();
    let asked = paused(graph.invoke(on("t"), script(json!([{ "ask": "?" }]))).await.unwrap());
    let execution = host.cancel(on("t"), Some("maria"), Some("the customer called")).await.unwrap();
    assert_eq!((execution.status, execution.interrupts.len()), (RunStatus::Cancelled, 0));
    let error = execution.error.unwrap();
    assert_eq!((error.kind, &error.more["by"]), (Kind::Cancelled, &json!("maria")));
    let store = host.store().unwrap();
    for pending in &asked {
        let late = refused(graph.resume(on("t"), Command::answers([(pending.interrupt.id, json!(1))])).await);
        assert_eq!(late.error.kind, Kind::Stale);
        assert!(late.error.message.contains("maria: the customer called"), "{}", late.error.message);
        let run =
            store.run(&TenantId::default(), *pending.run_path.last().unwrap()).await.unwrap().unwrap().1;
        assert_eq!(run.status, RunStatus::Cancelled);
    }
    for twice in [host.cancel(on("t"), None, None).await, host.retry(on("t")).await] {
        assert_eq!(refused(twice).error.kind, Kind::NotPending);
    }
    // The thread is free.
    completed(graph.invoke(on("t"), script(json!([]))).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn s25_a_run_that_is_called_off_while_it_runs_writes_nothing_more() {
    let world = World::new();
    // An effect that is on its way when the run is called off, by this process or by another.
    for other_process in [false, true] {
        let held = Held::default();
        let host = held.effect(world.builder()).database(world.db()).open().await.unwrap();
        let graph = host.compile(&scripted(&["n"])).await.unwrap();
        let thread = format!("t{other_process}");
        let running = {
            let (graph, thread) = (graph.clone(), thread.clone());
            tokio::spawn(async move {
                graph.invoke(on(&thread), script(json!([effect("f"), { "ask": 1 }]))).await
            })
        };
        held.reached().await;
        let canceller = if other_process { world.host().await } else { host.clone() };
        let execution = canceller.cancel(on(&thread), Some("maria"), None).await.unwrap();
        assert_eq!(execution.status, RunStatus::Cancelled);
        held.go_on();
        let ended = tokio::time::timeout(Duration::from_secs(20), running).await.unwrap().unwrap().unwrap();
        assert_eq!((ended.status, ended.interrupts.len()), (RunStatus::Cancelled, 0));
        assert_eq!(canceller.execution(on(&thread)).await.unwrap().status, RunStatus::Cancelled);
        completed(graph.invoke(on(&thread), script(json!([]))).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_expired_is_asked_anew_by_another_attempt() {
    let world = World::new();
    let now = Arc::new(std::sync::atomic::AtomicI64::new(1_800_000_000_000));
    let clock = holdpoint::engine::Clock::Set(now.clone());
    let host = world.builder().clock(clock).database(world.db()).open().await.unwrap();
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    let ops = json!([{ "ask": "quick", "expires_ms": 50 }, { "put_results": "a" }]);
    let first = paused(graph.invoke(on("t"), script(ops)).await.unwrap()).remove(0);
    now.fetch_add(60, Ordering::SeqCst);
    let execution = host.continue_run(on("t")).await.unwrap();
    assert_eq!(failed(&execution), Kind::Expired);
    let anew = paused(host.retry(on("t")).await.unwrap()).remove(0);
    assert_eq!((anew.kind, anew.interrupt.order), (InterruptKind::Node, 0));
    assert_ne!(anew.interrupt.id, first.interrupt.id);
    completed(graph.resume(on("t"), Command::resume("in time")).await.unwrap());
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!(["in time"]));
}
