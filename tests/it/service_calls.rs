//! What a call costs, and what is left of one that was called off: the real program, and its own figures.

use std::time::Duration;

use serde_json::{Value, json};

use crate::service::*;
use crate::service_durable::Process;
use crate::world::scripted;

async fn figure(caller: &Caller, name: &str) -> u64 {
    let text = caller.get("/metrics").await.is(200);
    let lines = text.as_str().unwrap().lines().filter(|line| line.starts_with(name));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Waits until so many calls were carried out to their end.
async fn carried_out(caller: &Caller, count: u64) {
    while figure(caller, "holdpoint_invocations_total").await < count {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// One commit takes the call, and one is its output: run, questions, and that the call is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_costs_two_commits() {
    // However slow the machine is, a run is made durable when it ends.
    let process = Process::start(&["--budget-ms", "600000"]).await;
    let caller = process.caller();
    caller.scripted(&["n"]).await;
    let script = json!([{ "ask": "?" }, { "put_results": "a" }]);
    let commits = async || figure(&caller, "holdpoint_store_commits_total").await;
    let mut calls = 0;
    let mut costs = async |what: &str, before: u64| {
        calls += 1;
        carried_out(&caller, calls).await;
        let took = commits().await - before;
        assert_eq!(took, 2, "{what}");
    };
    let before = commits().await;
    caller.wait("t", script.clone()).await.is(200);
    costs("a start", before).await;
    let before = commits().await;
    caller.resume("t", json!(1)).await.is(200);
    costs("an answer", before).await;
    let before = commits().await;
    caller.wait("t", script.clone()).await.is(200);
    costs("another start", before).await;
    let id = caller.get("/interrupts").await.is(200)[0]["id"].as_str().unwrap().to_owned();
    let before = commits().await;
    caller.post(&format!("/interrupts/{id}/answer"), json!({ "value": 1 })).await.is(200);
    costs("an answer by its question", before).await;
    let body =
        json!({ "assistant_id": "scripted", "input": { "script": script }, "if_not_exists": "create" });
    let before = commits().await;
    caller.post("/threads/u/runs", body).await.is(200);
    costs("a start in the background", before).await;
    // Each of them is over, as of the same commit.
    let runs = caller.get("/threads/t/runs").await.is(200);
    let statuses: Vec<&Value> = runs.as_array().unwrap().iter().map(|run| &run["status"]).collect();
    assert_eq!(statuses, ["success"; 4]);
}

/// However far it is: computing, before or after its run was made durable, or with something on its way outside.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_called_off_begins_nothing_and_leaves_nothing_behind() {
    let outside = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = outside.local_addr().unwrap().to_string();
    let computes =
        json!([{ "repeat": { "times": 64_000, "ops": [{ "hash_order": 300 }] } }, { "ask": "late?" }]);
    let sends = json!([{ "effect": { "name": "e", "key": "k", "input": 1 } }, { "ask": "late?" }]);
    // Made durable when it ends; as usual; before it sends.
    for (how, budget, script) in
        [("not durable", "600000", &computes), ("computes", "200", &computes), ("sends", "200", &sends)]
    {
        let process = Process::start(&["--budget-ms", budget, "--egress", &address]).await;
        let caller = process.caller();
        caller.deploy_sending(&scripted(&["n"]), &address).await;
        caller.wait("done", json!([])).await.is(200);
        caller.wait("waits", json!([{ "ask": "?" }])).await.is(200);
        let mut connections = Vec::new();
        for (thread, strategy) in [("new", "reject"), ("done", "reject"), ("waits", "interrupt")] {
            let what = format!("{thread}, {how}");
            let body = json!({
                "assistant_id": "scripted", "input": { "script": script }, "if_not_exists": "create",
                "multitask_strategy": strategy,
            });
            let run = caller.post(&format!("/threads/{thread}/runs"), body).await.is(200);
            let run = format!("/threads/{thread}/runs/{}", run["run_id"].as_str().unwrap());
            if how == "sends" {
                // It is taken, and never answered.
                connections.push(outside.accept().await.unwrap());
            }
            caller.post(&format!("{run}/cancel?wait=true"), json!({})).await.is(204);
            assert_eq!(caller.get(&run).await.is(200)["status"], "interrupted", "{what}");
            let left = caller.get(&format!("/threads/{thread}")).await.is(200);
            assert_eq!((&left["status"], &left["interrupts"]), (&json!("idle"), &json!({})), "{what}");
            // It is free for what comes next.
            let next = caller.wait(thread, json!([{ "put": { "c": 1 } }])).await.is(200);
            assert_eq!(next["c"], json!(1), "{what}");
        }
        assert_eq!(caller.get("/interrupts").await.is(200), json!([]), "{how}");
        assert_eq!(figure(&caller, "holdpoint_invocations_open").await, 0, "{how}");
    }
}

/// What waits for a call that somebody else calls off is answered with how things stand.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_a_call_that_is_called_off_is_answered() {
    let process = Process::start(&["--budget-ms", "600000"]).await;
    let caller = process.caller();
    caller.scripted(&["n"]).await;
    let waits = tokio::spawn({
        let caller = caller.clone();
        let long =
            json!([{ "repeat": { "times": 64_000, "ops": [{ "hash_order": 300 }] } }, { "ask": "late?" }]);
        async move { caller.wait("t", long).await }
    });
    let run = loop {
        let came = caller.get("/threads/t/runs").await;
        if let Some(run) = came.body.get(0) {
            break run["run_id"].as_str().unwrap().to_owned();
        }
    };
    caller.post(&format!("/threads/t/runs/{run}/cancel"), json!({})).await.is(202);
    assert_eq!(waits.await.unwrap().is(200), json!({}));
}
