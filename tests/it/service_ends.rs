//! How the service ends: the first SIGTERM lets what runs go on for a while, the second ends it at once, and
//! neither loses anything.

use std::time::Instant;

use holdpoint::model::TenantId;
use holdpoint::store::{InvocationStatus, Store};
use serde_json::{Value, json};

use crate::service_durable::Process;

/// Computes so long, `times` tens of milliseconds or more.
fn long(times: u32) -> Value {
    let ops =
        json!([{ "repeat": { "times": times, "ops": [{ "hash_order": 300 }] } }, { "put": { "c": 1 } }]);
    json!({ "assistant_id": "scripted", "input": { "script": ops }, "if_not_exists": "create" })
}

async fn statuses(dir: &std::path::Path) -> Vec<InvocationStatus> {
    let store = Store::open(&dir.join("s.db")).await.unwrap();
    let rows = store.invocations(&TenantId::default(), &"t".parse().unwrap(), None, (10, 0)).await.unwrap();
    store.close().await;
    rows.iter().map(|row| row.status).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_sigterm_lets_what_runs_come_to_its_end_and_takes_nothing_new() {
    let mut process = Process::start(&["--drain-ms", "120000"]).await;
    let caller = process.caller();
    caller.scripted(&["n"]).await;
    caller.post("/threads/t/runs", long(40)).await.is(200);
    process.terminate();
    process.says("ending").await;
    // A connection that was open may bring one more before it is closed.
    loop {
        let sent = caller.request(reqwest::Method::POST, "/threads/u/runs").json(&long(1)).send().await;
        if !sent.is_ok_and(|response| response.status().is_success()) {
            break;
        }
    }
    assert!(process.ended().await.success());
    assert_eq!(statuses(process.dir.path()).await, [InvocationStatus::Success]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_sigterm_ends_it_at_once_and_the_next_start_goes_on() {
    let mut process = Process::start(&["--drain-ms", "120000"]).await;
    let caller = process.caller();
    caller.scripted(&["n"]).await;
    // Longer than anybody would wait here.
    // So many that they are not over in between.
    let mut runs = Vec::new();
    for i in 0..16 {
        let run = caller.post(&format!("/threads/t{i}/runs"), long(400)).await.is(200);
        runs.push(format!("/threads/t{i}/runs/{}/join", run["run_id"].as_str().unwrap()));
    }
    process.terminate();
    process.says("ending").await;
    let told = Instant::now();
    process.terminate();
    let status = process.ended().await;
    assert_eq!(status.code(), Some(130), "{status:?}");
    assert!(told.elapsed().as_secs() < 10, "{:?}", told.elapsed());
    let dir = process.dir.clone();
    let store = Store::open(&dir.path().join("s.db")).await.unwrap();
    assert!(!store.open_invocations(0).await.unwrap().is_empty());
    store.close().await;
    let process = Process::start_in(dir, &[], None).await;
    let caller = process.caller();
    for path in runs {
        let values = caller.get(&path).await.is(200);
        assert_eq!(values["c"], 1, "{values}");
    }
}
