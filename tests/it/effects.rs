//! Effects under their keys: done once, whoever asks again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdpoint::engine::Watched;
use holdpoint::model::Kind;
use holdpoint::{Command, EffectFailure};
use serde_json::{Value, json};

use crate::world::*;

fn effect(key: &str, input: Value) -> Value {
    json!({ "effect": { "name": "e", "key": key, "input": input } })
}

/// How many were sent, each under a key of its own on the wire.
fn sent_once_each(world: &World) -> usize {
    let sent = world.sent.lock().unwrap();
    let keys: BTreeSet<&str> = sent.iter().map(|request| request.idempotency_key.as_str()).collect();
    assert_eq!(keys.len(), sent.len(), "{sent:#?}");
    sent.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn i76_an_effect_before_ten_resumes_is_done_once() {
    let world = World::new();
    let graph = world.one().await;
    let asks = json!({ "repeat": { "times": 10, "ops": [{ "ask": "on?" }] } });
    let ops = json!([effect("k", json!({ "amount": 1.50 })), asks, { "put_results": "a" }]);
    paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    for i in 0..9 {
        // Now here, now in another process.
        let host = world.host().await;
        let resumed = if i % 2 == 0 { &host } else { &world.host().await };
        paused(resumed.resume(on("t"), Command::resume(i)).await.unwrap());
        assert_eq!(world.sent(), 1);
    }
    completed(graph.resume(on("t"), Command::resume(9)).await.unwrap());
    assert_eq!((world.sent(), world.started().len()), (1, 11));
    let outcome = json!({ "ok": { "sent": 1 } });
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!([outcome, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]));
}

#[tokio::test(flavor = "multi_thread")]
async fn i78_a_key_with_another_input_is_a_conflict() {
    let world = World::new();
    let graph = world.one().await;
    let same = json!({ "raw_effect": { "name": "e", "key": "k", "input": r#" {"b":  2, "a":1}"# } });
    let other = effect("k", json!({ "a": 1, "b": 3 }));
    let ops = json!([effect("k", json!({ "a": 1, "b": 2 })), same, other, { "ask": 1 }, other, { "put_results": "a" }]);
    paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    completed(world.host().await.resume(on("t"), Command::resume("on")).await.unwrap());
    let (done, conflict) =
        (json!({ "ok": { "sent": 1 } }), json!({ "err": { "kind": "key-conflict", "message": null } }));
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!([done, done, conflict, "on", conflict]));
    assert_eq!(world.sent(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn i79_two_tasks_that_use_one_key_at_once_get_one_outcome() {
    let world = World::new();
    let about = Arc::new(AtomicUsize::new(0));
    let sent = world.sent.clone();
    let watcher = {
        let about = about.clone();
        Arc::new(move |watched: &Watched<'_>| {
            if matches!(watched, Watched::Log { .. }) {
                about.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    // Does not answer before both tasks are about to ask.
    let handler = move |request| {
        let (about, sent) = (about.clone(), sent.clone());
        async move {
            sent.lock().unwrap().push(request);
            while about.load(Ordering::SeqCst) < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok::<Value, EffectFailure>(json!("done"))
        }
    };
    let host =
        world.builder().database(world.db()).watcher(watcher).effect("e", handler).open().await.unwrap();
    let fan = script_node().routes(&[("x", "x")]);
    let spec = scripted(&["p"]).node("p", fan).node("x", script_node());
    let graph = host.compile(&spec).await.unwrap();
    let log = json!({ "log": { "level": "info", "message": "about to" } });
    let arg = json!({ "script": [log, effect("k", json!(1)), { "put_results": "a" }] });
    let send = json!({ "send": { "label": "x", "arg": arg } });
    completed(graph.invoke(on("t"), script(json!({ "p": [send, send] }))).await.unwrap());
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!([{ "ok": "done" }, { "ok": "done" }]));
    assert_eq!(sent_once_each(&world), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_that_another_task_was_given_is_not_asked_for_any_more() {
    let denied = json!({ "err": { "kind": "denied", "message": "not approved" } });
    for (approved, outcome) in [(true, json!({ "ok": { "sent": 1 } })), (false, denied)] {
        let world = World::new();
        let fan = script_node().routes(&[("x", "x")]);
        let mut spec = scripted(&["p"]).node("p", fan).node("x", script_node());
        spec.effects.get_mut("e").unwrap().approve = true;
        let graph = world.graph(&spec).await;
        let ops = json!([effect("k", json!(7)), { "put_results": "a" }]);
        let send = json!({ "send": { "label": "x", "arg": { "script": ops } } });
        let asked = paused(graph.invoke(on("t"), script(json!({ "p": [send, send] }))).await.unwrap());
        assert_eq!(asked.len(), 2);
        let [first, second] = [asked[0].interrupt.id, asked[1].interrupt.id];
        let answer = Command::answers([(second, json!({ "approved": approved }))]);
        completed(graph.resume(on("t"), answer).await.unwrap());
        assert_eq!(world.sent(), usize::from(approved));
        assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!([outcome, outcome]));
        let late = Command::answers([(first, json!({ "approved": !approved }))]);
        let late = refused(graph.resume(on("t"), late).await);
        assert_eq!(late.error.kind, Kind::Stale);
        assert!(late.error.message.contains("settled by another task"), "{}", late.error.message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i79_a_key_is_done_for_each_thread_and_for_each_node() {
    let world = World::new();
    let graph = world.graph(&scripted(&["p", "q"])).await;
    let ops = json!([effect("k", json!(1)), { "put_results": "a" }]);
    for (runs, thread) in ["t", "u", "t"].into_iter().enumerate() {
        completed(graph.invoke(on(thread), script(ops.clone())).await.unwrap());
        // The thread's second run uses the keys of its first.
        assert_eq!(sent_once_each(&world), [2, 4, 4][runs]);
    }
    let sent = world.sent.lock().unwrap();
    assert!(sent.iter().all(|request| request.effect == "e" && request.input == json!(1)), "{sent:#?}");
}
