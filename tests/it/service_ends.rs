//! How the service ends: the first SIGTERM lets what runs go on for a while, the second ends it at once, and
//! neither loses anything.

use std::time::Instant;

use holdpoint::model::TenantId;
use holdpoint::store::{InvocationStatus, Store};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::service::{Served, settings};
use crate::service_durable::Process;
use crate::world::scripted;

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
    // Where the effect goes: it is taken and not answered, so that the run is not over in between.
    let outside = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = outside.local_addr().unwrap().to_string();
    let args = ["--drain-ms", "120000", "--egress", &address];
    let mut process = Process::start(&args).await;
    let caller = process.caller();
    caller.deploy_sending(&scripted(&["n"]), &address).await;
    let ops = json!([{ "effect": { "name": "e", "key": "k", "input": 1 } }, { "put": { "c": 1 } }]);
    let body = json!({ "assistant_id": "scripted", "input": { "script": ops }, "if_not_exists": "create" });
    let run = caller.post("/threads/t/runs", body).await.is(200);
    let (first, _) = outside.accept().await.unwrap();
    process.terminate();
    process.says("ending").await;
    let told = Instant::now();
    process.terminate();
    let status = process.ended().await;
    assert_eq!(status.code(), Some(130), "{status:?}");
    assert!(told.elapsed().as_secs() < 10, "{:?}", told.elapsed());
    drop(first);
    assert_eq!(statuses(process.dir.path()).await, [InvocationStatus::Running]);
    let process = Process::start_in(process.dir.clone(), &args, None).await;
    let (mut again, _) = outside.accept().await.unwrap();
    let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    again.write_all(answer).await.unwrap();
    let join = format!("/threads/t/runs/{}/join", run["run_id"].as_str().unwrap());
    let values = process.caller().get(&join).await.is(200);
    assert_eq!(values["c"], 1, "{values}");
}

/// Slow by a byte now and then, or silent from the first: none is kept for longer than a request may take.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_does_not_say_what_it_wants_is_ended() {
    let served = Served::start(holdpoint::server::ServeSettings { request_ms: 1_500, ..settings() }).await;
    let address = served.url.strip_prefix("http://").unwrap().to_owned();
    for (what, first, piece) in [
        ("silent", "", ""),
        ("perhaps HTTP/2", "PRI * HTTP/2", ""),
        ("half a line", "GET /ok HT", "T"),
        ("headers without end", "GET /ok HTTP/1.1\r\nhost: 127.0.0.1\r\n", "x: y\r\n"),
        ("silent after an answer", "GET /ok HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", ""),
    ] {
        let (mut read, mut write) = tokio::net::TcpStream::connect(&address).await.unwrap().into_split();
        write.write_all(first.as_bytes()).await.unwrap();
        let drips = tokio::spawn(async move {
            while write.write_all(piece.as_bytes()).await.is_ok() {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        });
        let mut came = Vec::new();
        let ends = read.read_to_end(&mut came);
        // An end or a reset: what was still being sent is thrown away.
        tokio::time::timeout(std::time::Duration::from_secs(20), ends).await.expect(what).ok();
        assert_eq!(what == "silent after an answer", came.starts_with(b"HTTP/1.1 200"), "{what}");
        drips.abort();
    }
    served.caller().get("/ok").await.is(200);
    served.end().await;
}

/// What the manual's container file asks, as it stands there.
#[tokio::test(flavor = "multi_thread")]
async fn the_health_check_of_the_manual_tells_whether_it_serves() {
    let manual = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/src/server/README.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let line = manual.lines().find_map(|line| line.strip_prefix("HEALTHCHECK CMD ")).unwrap();
    let words: Vec<String> = serde_json::from_str(line).unwrap();
    let process = Process::start(&["--require-keys"]).await;
    let port = process.caller().url.rsplit(':').next().unwrap().to_owned();
    let asks = || {
        let words: Vec<String> = words.iter().map(|word| word.replace("2024", &port)).collect();
        let output = std::process::Command::new(&words[0]).args(&words[1..]).output().unwrap();
        output.status.success()
    };
    assert!(asks());
    process.kill();
    assert!(!asks());
}
