//! Who has to know is told: signed, in order, and again until they have taken it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::http::{HeaderMap, StatusCode};
use holdpoint::store::Scope;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::service::*;

/// Takes what it is told, but the first of each thread only at the third time.
#[derive(Clone, Default)]
struct Receiver {
    taken: Arc<Mutex<Vec<(HeaderMap, String)>>>,
    refused: Arc<Mutex<BTreeMap<String, u32>>>,
    came: Arc<Notify>,
}

impl Receiver {
    async fn start(&self) -> String {
        let this = self.clone();
        let take = move |headers: HeaderMap, body: String| async move {
            let value: Value = serde_json::from_str(&body).unwrap();
            let thread = value["thread_id"].as_str().unwrap().to_owned();
            let mut refused = this.refused.lock().unwrap();
            let times = refused.entry(thread).or_default();
            *times += 1;
            if *times < 3 {
                return StatusCode::INTERNAL_SERVER_ERROR;
            }
            this.taken.lock().unwrap().push((headers, body));
            this.came.notify_one();
            StatusCode::NO_CONTENT
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let app = axum::Router::new().fallback(take);
        tokio::spawn(async move { axum::serve(listener, app).await });
        url
    }

    async fn wait_for(&self, n: usize) -> Vec<(HeaderMap, Value)> {
        while self.taken.lock().unwrap().len() < n {
            self.came.notified().await;
        }
        let taken = self.taken.lock().unwrap();
        taken.iter().map(|(headers, body)| (headers.clone(), serde_json::from_str(body).unwrap())).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_question_that_waits_is_told_in_order_and_signed() {
    let receiver = Receiver::default();
    let url = receiver.start().await;
    let served = Served::start(settings()).await;
    let caller = served.caller();
    caller.scripted(&["n"]).await;
    caller.put("/tenants/default", json!({ "webhook": "http://10.0.0.1/" })).await.is(422);
    let tenant = caller.put("/tenants/default", json!({ "webhook": url })).await.is(200);
    let secret = tenant["webhook_secret"].as_str().unwrap().to_owned();
    let shown = caller.get("/tenants/default").await.is(200);
    assert!(shown.get("webhook_secret").is_none(), "a secret is shown once");
    let asks = json!([{ "ask": 1 }, { "ask": 2 }, { "ask": 3 }]);
    for thread in ["t", "u"] {
        caller.wait(thread, asks.clone()).await.is(200);
        caller.resume(thread, json!("a")).await.is(200);
        caller.resume(thread, json!("b")).await.is(200);
    }
    let taken = receiver.wait_for(6).await;
    for thread in ["t", "u"] {
        let of: Vec<&Value> = taken
            .iter()
            .filter(|(_, body)| body["thread_id"] == thread)
            .map(|(_, body)| &body["interrupts"][0]["payload"])
            .collect();
        assert_eq!(of, [&json!(1), &json!(2), &json!(3)], "{thread}");
    }
    let mut names = std::collections::BTreeSet::new();
    for ((headers, _), (_, body)) in taken.iter().zip(receiver.taken.lock().unwrap().iter()) {
        let signature = headers["holdpoint-signature"].to_str().unwrap();
        let (at, mac) = signature.strip_prefix("t=").unwrap().split_once(",v1=").unwrap();
        // By another implementation than the service's.
        let checked = std::process::Command::new("openssl")
            .args(["dgst", "-sha256", "-mac", "HMAC", "-macopt", &format!("hexkey:{secret}")])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .and_then(|mut child| {
                use std::io::Write as _;
                child.stdin.take().unwrap().write_all(format!("{at}.{body}").as_bytes())?;
                child.wait_with_output()
            })
            .unwrap();
        assert!(String::from_utf8_lossy(&checked.stdout).trim().ends_with(mac), "{checked:?}");
        names.insert(headers["holdpoint-delivery"].to_str().unwrap().to_owned());
    }
    assert_eq!(names.len(), 6);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_started_a_run_is_told_how_it_ended_also_by_the_next_process() {
    let receiver = Receiver::default();
    let url = receiver.start().await;
    let mut slow = settings();
    // Not before it has ended.
    slow.webhook_backoff_ms = 3_000;
    let served = Served::start(slow).await;
    let caller = served.caller();
    caller.scripted(&["n"]).await;
    let body = json!({
        "assistant_id": "scripted", "input": { "script": [{ "put": { "c": 1 } }] }, "if_not_exists": "create",
        "webhook": url,
    });
    caller.post("/threads/t/runs/wait", body).await.is(200);
    let dir = served.end().await;
    let served = Served::start_in(dir, settings()).await;
    let taken = receiver.wait_for(1).await;
    assert_eq!((&taken[0].1["type"], &taken[0].1["status"]), (&json!("run"), &json!("success")));
    assert_eq!(taken[0].1["values"]["c"], json!(1));
    assert_eq!(served.key("x", &[Scope::Run]).await.get("/threads/t").await.status, 404);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s28_a_webhook_reaches_only_what_the_operator_opened() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    caller.scripted(&["n"]).await;
    let run = |webhook: &str| {
        json!({
            "assistant_id": "scripted", "input": { "script": [{ "put": { "c": 1 } }] },
            "if_not_exists": "create", "webhook": webhook,
        })
    };
    for url in [
        "http://10.0.0.1/",
        "http://192.168.1.1/",
        "http://169.254.169.254/latest",
        "http://[::1]:9/",
        "http://[::ffff:10.0.0.1]/",
        "file:///etc/passwd",
    ] {
        let refused = caller.put("/tenants/default", json!({ "webhook": url })).await.is(422);
        let why = if url.starts_with("file") { "only http: and https:" } else { "has not opened it" };
        assert!(refused.to_string().contains(why), "{url}: {refused}");
        caller.post("/threads/t/runs/wait", run(url)).await.is(422);
    }

    // One that it may reach sends it on: whoever that is hears nothing.
    let receiver = Receiver::default();
    let elsewhere = receiver.start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let app = axum::Router::new().fallback(move || {
        let elsewhere = elsewhere.clone();
        async move { axum::response::Redirect::temporary(&elsewhere) }
    });
    tokio::spawn(async move { axum::serve(listener, app).await });
    caller.post("/threads/t/runs/wait", run(&url)).await.is(200);
    let tried = async {
        let not_taken = "webhooks_total{taken=\"no\"}";
        while !caller
            .request(Method::GET, "/metrics")
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap()
            .contains(not_taken)
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), tried).await.unwrap();
    assert!(receiver.refused.lock().unwrap().is_empty() && receiver.taken.lock().unwrap().is_empty());
    served.end().await;
}

/// Also what was called off, and what another took the place of.
#[tokio::test(flavor = "multi_thread")]
async fn who_started_a_run_is_told_that_it_was_called_off() {
    let receiver = Receiver::default();
    let url = receiver.start().await;
    let served = Served::start(settings()).await;
    let caller = served.caller();
    caller.scripted(&["n"]).await;
    caller.wait("t", json!([{ "ask": "?" }])).await.is(200);
    let start = |strategy: &str| {
        let body = json!({
            "assistant_id": "scripted", "input": { "script": [] }, "multitask_strategy": strategy,
            "webhook": url,
        });
        caller.post("/threads/t/runs", body)
    };
    let called_off = start("enqueue").await.is(200)["run_id"].clone();
    let path = format!("/threads/t/runs/{}/cancel", called_off.as_str().unwrap());
    caller.post(&path, json!({})).await.is(202);
    let superseded = start("enqueue").await.is(200)["run_id"].clone();
    let last = start("interrupt").await.is(200)["run_id"].clone();
    let told: Vec<(Value, Value)> = receiver
        .wait_for(3)
        .await
        .into_iter()
        .map(|(_, body)| (body["run_id"].clone(), body["status"].clone()))
        .collect();
    let expected = [(called_off, "interrupted"), (superseded, "interrupted"), (last, "success")];
    assert_eq!(told, expected.map(|(run, status)| (run, json!(status))));
    served.end().await;
}

/// Who does not answer holds up nobody but itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_never_answers_is_in_no_other_tenants_way() {
    let served = Served::start(holdpoint::server::ServeSettings { needs_keys: true, ..settings() }).await;
    let admin = served.key("operator", &[Scope::Admin]).await;
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let receiver = Receiver::default();
    let urls = [format!("http://{}/", mute.local_addr().unwrap()), receiver.start().await];
    let mut callers = Vec::new();
    for (tenant, url) in ["acme", "other"].into_iter().zip(urls) {
        admin.put(&format!("/tenants/{tenant}"), json!({ "webhook": url })).await.is(200);
        let caller = served.key(tenant, &[Scope::Deploy, Scope::Run]).await;
        caller.scripted(&["n"]).await;
        callers.push(caller);
    }
    let ask = || json!([{ "ask": "?" }]);
    // More of them than are sent at once.
    for n in 0..40 {
        callers[0].wait(&format!("t{n}"), ask()).await.is(200);
    }
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(mute.accept().await.unwrap());
    }
    callers[1].wait("t", ask()).await.is(200);
    let told = tokio::time::timeout(std::time::Duration::from_secs(5), receiver.wait_for(1)).await;
    assert_eq!(told.expect("it is told meanwhile")[0].1["thread_id"], "t");
    served.end().await;
}
