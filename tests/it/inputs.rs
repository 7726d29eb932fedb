//! New input on a thread that is not free.

use std::time::Duration;

use holdpoint::model::{IfBusy, Kind, WayOut};
use holdpoint::{Command, RunStatus};
use serde_json::{Value, json};

use crate::world::*;

fn asks(what: &str) -> Value {
    script(json!([{ "ask": what }, { "put_results": "a" }]))
}

#[tokio::test(flavor = "multi_thread")]
async fn i53_new_input_on_a_paused_thread_is_refused_or_takes_its_place() {
    let world = World::new();
    let graph = world.one().await;
    let first = graph.invoke(on("t"), asks("first")).await.unwrap();
    let old = paused(first.clone()).remove(0);
    let refusal = refused(graph.invoke(on("t"), asks("second")).await);
    assert_eq!((refusal.error.kind, &refusal.pending), (Kind::Busy, &first.interrupts));
    assert_eq!(refusal.error.ways_out, [WayOut::Queue], "{refusal}");
    let second = graph.invoke(on("t").if_busy(IfBusy::Supersede), asks("second")).await.unwrap();
    assert_ne!(second.run_id, first.run_id);
    let new = paused(second).remove(0);
    let late = refused(graph.resume(on("t"), Command::answers([(old.interrupt.id, json!("late"))])).await);
    assert_eq!((late.error.kind, &late.pending), (Kind::Stale, &vec![new]));
    assert!(late.error.message.contains("superseded"), "{}", late.error.message);
    let host = world.host().await;
    let (_, run) = host.store().unwrap().run(&Default::default(), first.run_id).await.unwrap().unwrap();
    assert_eq!(run.status, RunStatus::Cancelled);
    completed(graph.resume(on("t"), Command::resume("in time")).await.unwrap());
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!(["in time"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn i53_input_that_waits_is_started_when_the_thread_is_free() {
    let world = World::new();
    let host = world.host().await;
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    let first = graph.invoke(on("t"), asks("first")).await.unwrap();
    for next in ["second", "third"] {
        // What is shown is the thread as it is.
        let shown =
            world.graph(&scripted(&["n"])).await.invoke(on("t").if_busy(IfBusy::Enqueue), asks(next)).await;
        assert_eq!(shown.unwrap(), first);
    }
    let mut host = host;
    for (answer, next) in [("1", Some("second")), ("2", Some("third")), ("3", None)] {
        completed(host.resume(on("t"), Command::resume(answer)).await.unwrap());
        // Closing waits for what was started.
        host.close().await;
        host = world.host().await;
        let now = host.execution(on("t")).await.unwrap();
        let asked = now.interrupts.first().map(|pending| pending.interrupt.payload.clone());
        assert_eq!(asked, next.map(Value::from));
    }
    assert_eq!(host.state(on("t")).await.unwrap()["a"], json!(["1", "2", "3"]));
    assert!(host.start_queued(on("t")).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn i53_input_on_a_running_thread_takes_its_place_or_waits() {
    for policy in [IfBusy::Supersede, IfBusy::Enqueue] {
        let world = World::new();
        let held = Held::default();
        let host = held.effect(world.builder()).database(world.db()).open().await.unwrap();
        let graph = host.compile(&scripted(&["n"])).await.unwrap();
        let slow = script(
            json!([{ "effect": { "name": "f", "key": "k", "input": 1 } }, { "put": { "a": ["slow"] } }]),
        );
        let running = {
            let graph = graph.clone();
            tokio::spawn(async move { graph.invoke(on("t"), slow).await })
        };
        held.reached().await;
        assert_eq!(refused(graph.invoke(on("t"), script(json!([]))).await).error.kind, Kind::Busy);
        let next = script(json!([{ "put": { "a": ["next"] } }]));
        let new = graph.invoke(on("t").if_busy(policy), next).await.unwrap();
        held.go_on();
        let old = tokio::time::timeout(Duration::from_secs(20), running).await.unwrap().unwrap().unwrap();
        host.close().await;
        let state = world.host().await.state(on("t")).await.unwrap();
        match policy {
            IfBusy::Supersede => {
                completed(new);
                assert_eq!((old.status, &state["a"]), (RunStatus::Cancelled, &json!(["next"])));
            }
            _ => {
                assert_eq!(new.status, RunStatus::Running);
                assert_eq!((old.status, &state["a"]), (RunStatus::Completed, &json!(["slow", "next"])));
            }
        }
    }
}
