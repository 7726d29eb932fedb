//! Where effects may reach, and what they may cost.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdpoint::model::{EffectMode, EffectSpec, HttpSpec, Kind, Limits, WayOut};
use holdpoint::{Command, EffectFailure, EngineError, GraphSpec, RunStatus};
use serde_json::{Value, json};

use crate::hostile::is_limit;
use crate::world::*;

pub fn sends_to(url: &str) -> GraphSpec {
    let http = HttpSpec {
        method: "POST".into(),
        url: url.into(),
        headers: Default::default(),
        timeout_ms: Some(2_000),
        auth: None,
    };
    scripted(&["n"]).effect("e", EffectSpec { http: Some(http), ..EffectSpec::default() })
}

fn send() -> Value {
    script(json!([{ "effect": { "name": "e", "key": "k", "input": 1 } }, { "put_results": "a" }]))
}

/// The first sending is never answered, each later one is.
#[tokio::test(flavor = "multi_thread")]
async fn s12_an_effect_that_never_ends_ends_at_the_deadline_and_is_in_doubt_or_sent_again() {
    for mode in [EffectMode::AtLeastOnce, EffectMode::AtMostOnce] {
        let world = World::new();
        let limits = Limits { deadline_ms: 500, tasks_at_once: 1, ..Limits::default() };
        let (sent, left) = (Arc::new(Mutex::new(Vec::new())), Arc::new(()));
        let (sending, held) = (sent.clone(), left.clone());
        let host = world.builder().database(world.db()).limits(limits).effect("e", move |request| {
            let (sending, held) = (sending.clone(), held.clone());
            async move {
                let first = {
                    let mut sent = sending.lock().unwrap();
                    sent.push(request.idempotency_key);
                    sent.len() == 1
                };
                if first {
                    std::future::pending::<()>().await;
                }
                drop(held);
                Ok::<Value, EffectFailure>(json!("done"))
            }
        });
        let host = host.open().await.unwrap();
        let spec = scripted(&["n"]).effect("e", EffectSpec { mode, ..EffectSpec::default() });
        let graph = host.compile(&spec).await.unwrap();
        let handles = Arc::strong_count(&left);
        let run = graph.invoke(on("t"), send()).await.unwrap();
        assert_eq!(failed(&run), Kind::Limit);
        is_limit(&run.error.unwrap(), "deadline_ms", 500);
        // Nothing is left of it: what was being sent is dropped, and the one place for a task is free.
        assert_eq!(Arc::strong_count(&left), handles, "{mode:?}");
        completed(graph.invoke(on("other"), script(json!([]))).await.unwrap());
        let again = host.retry(on("t")).await.unwrap();
        match mode {
            EffectMode::AtLeastOnce => completed(again),
            EffectMode::AtMostOnce => {
                let asked = paused(again).remove(0);
                assert_eq!((asked.kind.as_str(), sent.lock().unwrap().len()), ("in-doubt", 1));
                let not_done = Command::resume(json!({ "not_done": true }));
                completed(graph.resume(on("t"), not_done).await.unwrap());
            }
        }
        let sent = sent.lock().unwrap().clone();
        assert!(sent.len() == 2 && sent[0] == sent[1], "{mode:?}: under the same key: {sent:?}");
        assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!([{ "ok": "done" }]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s28_a_graph_reaches_only_what_the_operator_opened() {
    let world = World::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let arrived = tokio::spawn(async move { listener.accept().await.map(|_| ()) });
    let host = world.host().await;
    // What the URL itself says is refused when the graph is compiled.
    for address in
        ["127.0.0.1", "[::1]", "10.0.0.1", "169.254.169.254", "192.168.1.1", "0.0.0.0", "2130706433"]
    {
        let refused = host.compile(&sends_to(&format!("http://{address}:{port}/"))).await;
        let Err(EngineError::Refused(refused)) = refused.map(|_| ()) else { panic!("{address}") };
        assert_eq!(refused.error.kind, Kind::Denied);
        assert!(refused.error.message.contains("has not opened it"), "{}", refused.error.message);
        assert!(matches!(&refused.error.ways_out[..], [WayOut::Open { .. }]), "{address}");
    }
    // A name that leads inside is refused when it is resolved for the connection.
    let graph = host.compile(&sends_to(&format!("http://localhost:{port}/"))).await.unwrap();
    completed(graph.invoke(on("name"), send()).await.unwrap());
    let state = graph.state(on("name")).await.unwrap();
    assert_eq!(state["a"][0]["err"]["kind"], "denied", "{state}");

    // So is a redirect: the host that was opened answers, and nobody follows it inside.
    let inside = format!("http://127.0.0.1:{port}/");
    let app =
        axum::Router::new().fallback(move || async move { axum::response::Redirect::temporary(&inside) });
    let opened = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = opened.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(opened, app).await });
    let host = world.builder().database(world.db()).egress(&address).open().await.unwrap();
    let graph = host.compile(&sends_to(&format!("http://{address}/"))).await.unwrap();
    completed(graph.invoke(on("redirect"), send()).await.unwrap());
    let state = graph.state(on("redirect")).await.unwrap();
    assert_eq!(state["a"][0]["err"]["value"]["status"], 307, "{state}");
    assert!(!arrived.is_finished(), "nothing came to the address that was not opened");
}

#[tokio::test(flavor = "multi_thread")]
async fn s29_another_nodes_key_is_another_key() {
    let world = World::new();
    // The first guesses the key that the second will use, with an outcome and an input of its own.
    let spec = scripted(&["thief"]).node("owner", script_node()).edge("thief", "owner");
    let graph = world.graph(&spec).await;
    let effect = |input: u32| json!({ "effect": { "name": "e", "key": "refund-7", "input": input } });
    let input = script(
        json!({ "thief": [effect(666), { "put_results": "a" }], "owner": [effect(1), { "put_results": "a" }] }),
    );
    completed(graph.invoke(on("t"), input).await.unwrap());
    let sent = world.sent.lock().unwrap().clone();
    assert_eq!(sent.iter().map(|request| &request.input).collect::<Vec<_>>(), [&json!(666), &json!(1)]);
    assert_ne!(sent[0].idempotency_key, sent[1].idempotency_key);
    let state = graph.state(on("t")).await.unwrap();
    assert_eq!(state["a"], json!([{ "ok": { "sent": 1 } }, { "ok": { "sent": 2 } }]));
    // Nor does another thread's node of the same name share it.
    let input = script(json!({ "thief": [], "owner": [effect(1)] }));
    completed(graph.invoke(on("u"), input).await.unwrap());
    assert_eq!(world.sent(), 3);
    assert_ne!(world.sent.lock().unwrap()[2].idempotency_key, sent[1].idempotency_key);
}

#[tokio::test(flavor = "multi_thread")]
async fn s24_a_thousand_runs_at_once_queue_and_none_is_lost() {
    let world = World::new();
    let limits = Limits { tasks_at_once: 50, deadline_ms: 120_000, ..Limits::default() };
    let host = world.builder().database(world.db()).limits(limits).open().await.unwrap();
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    let runs = (0..1_000).map(|i| {
        let graph = graph.clone();
        tokio::spawn(async move {
            let ops = script(json!([{ "ask": i }, { "put_results": "a" }]));
            paused(graph.invoke(on(&format!("t{i}")), ops).await.unwrap());
        })
    });
    for run in runs.collect::<Vec<_>>() {
        run.await.unwrap();
    }
    let answers = (0..1_000).map(|i| {
        let graph = graph.clone();
        tokio::spawn(async move {
            completed(graph.resume(on(&format!("t{i}")), Command::resume(i)).await.unwrap())
        })
    });
    for answer in answers.collect::<Vec<_>>() {
        answer.await.unwrap();
    }
    for i in [0, 1, 499, 999] {
        assert_eq!(graph.state(on(&format!("t{i}"))).await.unwrap()["a"], json!([i]));
    }
    let after = tokio::time::timeout(Duration::from_secs(20), graph.invoke(on("after"), script(json!([]))));
    completed(after.await.expect("the host serves as before").unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn i58_steps_are_counted_on_across_resumes() {
    let world = World::new();
    let limits = Limits { steps: 4, ..Limits::default() };
    let mut spec = scripted(&["n"]);
    spec.nodes.get_mut("n").unwrap().routes = script_node().routes(&[("x", "n")]).routes;
    let open = async || world.builder().database(world.db()).limits(limits.clone()).open().await.unwrap();
    let graph = open().await.compile(&spec).await.unwrap();
    let mut run = graph.invoke(on("t"), script(json!([{ "ask": "again?" }, { "go": "x" }]))).await.unwrap();
    let mut resumes = 0;
    while run.status == RunStatus::Interrupted {
        run = open().await.resume(on("t"), Command::resume(true)).await.unwrap();
        resumes += 1;
        assert!(resumes <= 4);
    }
    assert_eq!((failed(&run), resumes), (Kind::Limit, 4));
    assert_eq!(run.error.unwrap().more["limit"], json!("steps"));
}
