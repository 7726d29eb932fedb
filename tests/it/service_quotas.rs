//! What a tenant may use: refused in the engine, with the limit's name and value, and over HTTP as 429 or 413.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use holdpoint::Host;
use holdpoint::engine::Clock;
use holdpoint::model::{Kind, Limits, TenantId};
use holdpoint::server::ServeSettings;
use holdpoint::store::Scope;
use serde_json::{Value, json};

use crate::service::*;
use crate::world::*;

async fn host(world: &World, limits: Limits, clock: Clock) -> Host {
    world.builder().database(world.db()).limits(limits).clock(clock).open().await.unwrap()
}

fn limit(refusal: &holdpoint::Refused) -> (Kind, Value, Value) {
    (refusal.error.kind, refusal.error.more["limit"].clone(), refusal.error.more["value"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn fuel_that_is_used_up_is_waited_for_by_what_runs_and_refused_to_what_is_new() {
    let world = World::new();
    let now = Arc::new(AtomicI64::new(1_800_000_000_000));
    let limits = Limits { fuel_per_minute: 1_000, ..Limits::default() };
    let host = host(&world, limits, Clock::Set(now.clone())).await;
    let mut spec = scripted(&["n", "m"]);
    spec.entry = "n".into();
    let graph = host.compile(&spec.edge("n", "m")).await.unwrap();
    let waits = {
        let graph = graph.clone();
        tokio::spawn(async move { graph.invoke(on("t"), script(json!([{ "put": { "c": 1 } }]))).await })
    };
    // `n` went over; `m` is not begun before that is made up for.
    while world.started.lock().unwrap().len() < 2 || host.fuel_spent() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let spent = host.fuel_spent();
    assert!(spent > 1_000, "{spent}");
    let refusal = refused(graph.invoke(on("u"), script(json!([]))).await);
    assert_eq!(limit(&refusal), (Kind::Limit, json!("fuel_per_minute"), json!(1_000)));
    assert!(refusal.error.more["retry_after_ms"].as_u64().unwrap() > 1_000);
    assert_eq!(host.fuel_spent(), spent);
    assert!(!waits.is_finished());
    // Another tenant is not slowed down by it.
    let other = host.for_tenant(TenantId::parse("other").unwrap());
    assert!(other.may_spend().is_ok());
    while !waits.is_finished() {
        now.fetch_add(60_000, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    completed(waits.await.unwrap().unwrap());
    assert!(host.fuel_spent() > spent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_so_many_threads_and_one_that_is_deleted_makes_room() {
    let world = World::new();
    let host = host(&world, Limits { threads: 2, ..Limits::default() }, Clock::System).await;
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    let start = |name: &'static str| graph.invoke(on(name), script(json!([])));
    completed(start("a").await.unwrap());
    completed(start("b").await.unwrap());
    assert_eq!(limit(&refused(start("c").await)), (Kind::Limit, json!("threads"), json!(2)));
    let copy = host.copy(on("a"), "d".parse().unwrap()).await;
    assert_eq!(limit(&refused(copy)), (Kind::Limit, json!("threads"), json!(2)));
    // Those there are go on.
    completed(start("a").await.unwrap());
    host.delete(on("b"), Default::default()).await.unwrap();
    completed(start("c").await.unwrap());
    let other = host.for_tenant(TenantId::parse("other").unwrap());
    completed(
        other.compile(&scripted(&["n"])).await.unwrap().invoke(on("a"), script(json!([]))).await.unwrap(),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_keeps_so_many_bytes_and_what_runs_over_can_be_tried_again_once_there_is_room() {
    let world = World::new();
    let unbounded = host(&world, Limits::default(), Clock::System).await;
    unbounded.compile(&scripted(&["n"])).await.unwrap();
    let tenant = TenantId::default();
    let store = unbounded.store().unwrap();
    let kept = || async { store.usage(&tenant).await.unwrap().bytes() };
    let limit_bytes = kept().await + 40_000;
    let host = host(&world, Limits { storage_bytes: limit_bytes, ..Limits::default() }, Clock::System).await;
    let graph = host.compile(&scripted(&["n"])).await.unwrap();
    let text = "x".repeat(15_000);
    let put = async |host: &holdpoint::Graph, name: &'static str| {
        host.invoke(on(name), script(json!([{ "put": { "a": [text] } }]))).await
    };
    completed(put(&graph, "a").await.unwrap());
    let failed = put(&graph, "b").await.unwrap();
    let error = failed.error.clone().unwrap();
    assert_eq!((error.kind, &error.more["limit"]), (Kind::Limit, &json!("storage_bytes")), "{failed:?}");
    assert_eq!(error.more["value"], json!(limit_bytes));
    let refusal = refused(put(&graph, "c").await);
    assert_eq!(limit(&refusal), (Kind::Limit, json!("storage_bytes"), json!(limit_bytes)));
    host.delete(on("a"), Default::default()).await.unwrap();
    completed(host.retry(on("b")).await.unwrap());
    let bytes = std::fs::read(component("draft-python")).unwrap();
    let refusal = host.install("draft-python", bytes).await.unwrap_err();
    assert_eq!(refusal.record().more["limit"], "storage_bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_holds_each_tenant_to_its_quotas_and_says_which_it_was() {
    let served = Served::start(ServeSettings { needs_keys: true, ..settings() }).await;
    let admin = served.key("operator", &[Scope::Admin]).await;
    let caller = served.key("acme", &[Scope::Deploy, Scope::Run, Scope::Answer]).await;
    caller.scripted(&["n"]).await;
    caller.wait("t", json!([{ "ask": "?" }])).await.is(200);
    let set = |quotas: Value| {
        let admin = admin.clone();
        async move { admin.put("/tenants/acme", json!({ "quotas": quotas })).await.is(200) }
    };
    let tenant = set(json!({ "fuel_per_minute": 1 })).await;
    assert!(tenant["usage"]["fuel"].as_u64().unwrap() > 0, "{tenant}");
    assert!(tenant["usage"]["journal_bytes"].as_u64().unwrap() > 0, "{tenant}");
    // A minute's fuel is there until it is spent.
    caller.resume("t", json!(1)).await.is(200);
    for (thread, came) in [("t", caller.wait("t", json!([])).await), ("u", caller.wait("u", json!([])).await)]
    {
        assert_eq!(came.body["error"]["limit"], "fuel_per_minute", "{thread}: {came:?}");
        assert!(came.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() > 0);
        came.is(429);
    }
    set(json!({})).await;
    caller.wait("t", json!([])).await.is(200);
    set(json!({ "threads": 1 })).await;
    let came = caller.wait("u", json!([])).await;
    assert_eq!((&came.body["error"]["limit"], &came.body["error"]["value"]), (&json!("threads"), &json!(1)));
    came.is(429);
    caller.post("/threads/t/copy", json!({})).await.is(429);
    set(json!({ "storage_bytes": 1000 })).await;
    let came = caller.wait("t", json!([])).await;
    assert_eq!(came.body["error"]["limit"], "storage_bytes", "{came:?}");
    came.is(413);
    // Nobody else is held to that.
    let other = served.key("other", &[Scope::Deploy, Scope::Run]).await;
    other.scripted(&["n"]).await;
    other.wait("t", json!([])).await.is(200);
    served.end().await;
}

/// What was taken before the fuel was used up waits for more, and is done.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_taken_waits_for_fuel_and_does_not_fail() {
    let served = Served::start(ServeSettings { needs_keys: true, ..settings() }).await;
    let admin = served.key("operator", &[Scope::Admin]).await;
    let caller = served.key("acme", &[Scope::Deploy, Scope::Run]).await;
    caller.scripted(&["n"]).await;
    caller.wait("t", json!([{ "ask": "?" }])).await.is(200);
    let behind = json!({
        "assistant_id": "scripted", "input": { "script": [{ "put": { "c": 1 } }] }, "multitask_strategy": "enqueue",
    });
    let behind = caller.post("/threads/t/runs", behind).await.is(200);
    let set = |quotas: Value| {
        let admin = admin.clone();
        async move { admin.put("/tenants/acme", json!({ "quotas": quotas })).await.is(200) }
    };
    set(json!({ "fuel_per_minute": 1 })).await;
    caller.resume("t", json!(1)).await.is(200);
    let path = format!("/threads/t/runs/{}", behind["run_id"].as_str().unwrap());
    while caller.get(&path).await.is(200)["status"] == "pending" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(caller.get(&path).await.is(200)["status"], "running");
    set(json!({})).await;
    let values = caller.get(&format!("{path}/join")).await.is(200);
    assert_eq!(values["c"], 1, "{values}");
    served.end().await;
}

/// Of one tenant so many runs and so many tasks go on at once; the others wait their turn, and are done.
#[tokio::test(flavor = "multi_thread")]
async fn more_runs_and_tasks_than_may_go_on_at_once_wait() {
    let outside = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = outside.local_addr().unwrap().to_string();
    let served = Served::start(ServeSettings { needs_keys: true, ..settings() }).await;
    let admin = served.key("operator", &[Scope::Admin]).await;
    for (tenant, quotas, runs) in
        [("acme", json!({ "runs_at_once": 1 }), 2), ("other", json!({ "tasks_at_once": 1 }), 2)]
    {
        admin.put(&format!("/tenants/{tenant}"), json!({ "quotas": quotas })).await.is(200);
        let caller = served.key(tenant, &[Scope::Deploy, Scope::Run]).await;
        caller.deploy_sending(&scripted(&["n"]), &address).await;
        let script = json!([{ "effect": { "name": "e", "key": "k", "input": 1 } }, { "put": { "c": 1 } }]);
        let mut paths = Vec::new();
        for n in 0..runs {
            let body = json!({ "assistant_id": "scripted", "input": { "script": script }, "if_not_exists": "create" });
            let run = caller.post(&format!("/threads/t{n}/runs"), body).await.is(200);
            paths.push(format!("/threads/t{n}/runs/{}/join", run["run_id"].as_str().unwrap()));
        }
        for _ in 0..runs {
            let (mut first, _) = outside.accept().await.unwrap();
            // The other one would come at once if it were under way.
            let second = tokio::time::timeout(Duration::from_millis(300), outside.accept()).await;
            assert!(second.is_err(), "{tenant}");
            use tokio::io::AsyncWriteExt as _;
            let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
            first.write_all(answer).await.unwrap();
        }
        for path in paths {
            assert_eq!(caller.get(&path).await.is(200)["c"], 1, "{tenant}");
        }
    }
    served.end().await;
}
