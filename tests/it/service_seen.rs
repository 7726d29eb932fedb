//! What whoever runs the service sees of it: spans at a collector, figures, and a log that tells no secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::{Value, json};

use crate::service::*;
use crate::service_durable::Process;

/// A collector that keeps what it is sent.
async fn collector() -> (String, Arc<Mutex<Vec<ExportTraceServiceRequest>>>) {
    let got: Arc<Mutex<Vec<ExportTraceServiceRequest>>> = Arc::default();
    let keeps = got.clone();
    let take = move |headers: axum::http::HeaderMap, body: axum::body::Bytes| async move {
        assert_eq!(headers["content-type"], "application/x-protobuf");
        keeps.lock().unwrap().push(ExportTraceServiceRequest::decode(body).unwrap());
    };
    let app = axum::Router::new().route("/v1/traces", axum::routing::post(take));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, got)
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_of_runs_steps_tasks_attempts_host_calls_and_commits_reach_a_collector() {
    let (url, got) = collector().await;
    let mut process = Process::start(&["--otlp-endpoint", &url]).await;
    let caller = process.caller();
    caller.scripted(&["n"]).await;
    let script = json!([{ "ask": "a secret question" }, { "put": { "a": ["a secret word"] } }, { "put_results": "a" }]);
    caller.wait("t", script).await.is(200);
    caller.resume("t", json!("a secret answer")).await.is(200);
    process.terminate();
    assert!(process.ended().await.success());
    let got = got.lock().unwrap();
    let resources: Vec<String> = got
        .iter()
        .flat_map(|sent| &sent.resource_spans)
        .flat_map(|of| of.resource.iter().flat_map(|resource| &resource.attributes))
        .map(|attribute| format!("{attribute:?}"))
        .collect();
    assert!(resources.iter().any(|text| text.contains("service.name") && text.contains("holdpoint")));
    let spans: Vec<&Span> = got
        .iter()
        .flat_map(|sent| &sent.resource_spans)
        .flat_map(|of| &of.scope_spans)
        .flat_map(|of| &of.spans)
        .collect();
    let by_id: BTreeMap<&[u8], &Span> = spans.iter().map(|span| (span.span_id.as_slice(), *span)).collect();
    let above = |span: &Span| -> Vec<String> {
        let mut names = Vec::new();
        let mut at = by_id.get(span.parent_span_id.as_slice());
        while let Some(span) = at {
            names.push(span.name.clone());
            at = by_id.get(span.parent_span_id.as_slice());
        }
        names
    };
    let named = |name: &str| spans.iter().filter(|span| span.name == name).copied().collect::<Vec<_>>();
    let lines = [
        ("host_call", vec!["attempt", "task", "step", "run", "invocation"]),
        ("attempt", vec!["task", "step", "run", "invocation"]),
        ("task", vec!["step", "run", "invocation"]),
        ("step", vec!["run", "invocation"]),
        ("commit", vec!["run", "invocation"]),
    ];
    for (name, line) in lines {
        // One for the start, one for the answer.
        let found = named(name);
        assert!(found.len() >= 2, "{name}: {}", found.len());
        for span in found {
            let found = above(span);
            assert!(
                found.len() >= line.len() && found[..line.len()] == line[..],
                "{name}: {found:?}; {spans:#?}"
            );
            assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
        }
    }
    let runs: BTreeSet<String> = named("run").iter().map(|span| format!("{:?}", span.attributes)).collect();
    assert!(runs.iter().all(|run| run.contains("\"t\"")), "{runs:?}");
    assert!(!format!("{spans:?}").contains("secret"), "nothing that was said is in them");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_objects_and_has_no_payload_and_no_key() {
    let process = Process::start(&["--require-keys", "--log", "holdpoint=debug", "--log-form", "json"]).await;
    let made = process.key("acme", &["deploy", "run", "answer"]);
    let caller = Caller { key: Some(made.clone()), ..process.caller() };
    caller.scripted(&["n"]).await;
    let script = json!([
        { "log": { "level": "warn", "message": "a secret log" } }, { "ask": "a secret question" }, { "put": { "a": ["a secret word"] } },
        { "put_results": "a" },
    ]);
    caller.wait("t", script).await.is(200);
    caller.resume("t", json!("a secret answer")).await.is(200);
    caller.wait("u", json!([{ "fail": "a secret failure" }])).await.is(200);
    let wrong = Caller { key: Some(format!("{made}0")), ..caller.clone() };
    wrong.get("/threads/t").await.is(401);
    // The last of them is written down as well.
    process.says("\"status\":401").await;
    let lines = process.said();
    let objects: Vec<Value> = lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert!(objects.len() >= 10, "{lines:#?}");
    let of_us = |line: &Value| line["spans"].to_string().contains("request") || line["level"] == "DEBUG";
    assert!(objects.iter().any(of_us), "{objects:#?}");
    let text = lines.join("\n");
    let secret_half = made.rsplit('_').next().unwrap();
    for secret in ["a secret", secret_half] {
        let found = lines.iter().find(|line| line.contains(secret));
        assert!(!text.contains(secret), "{secret:?}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_figures_say_what_happened_and_their_labels_are_few() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    caller.scripted(&["n"]).await;
    for i in 0..5 {
        let thread = format!("thread-{i}");
        caller.wait(&thread, json!([{ "ask": "?" }, { "put_results": "a" }])).await.is(200);
        caller.resume(&thread, json!(i)).await.is(200);
        caller.resume(&thread, json!("late")).await.is(409);
    }
    let text = caller.get("/metrics").await.is(200);
    let text = text.as_str().unwrap();
    let value = |name: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("{name} is not there:\n{text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(value("holdpoint_pauses_total{tenant=\"default\"}"), 5.0);
    assert_eq!(value("holdpoint_resumes_total{tenant=\"default\"}"), 5.0);
    assert_eq!(value("holdpoint_refusals_total{kind=\"not-pending\"}"), 5.0);
    assert_eq!(value("holdpoint_invocations_queued"), 0.0);
    assert_eq!(value("holdpoint_invocations_open"), 0.0);
    assert!(value("holdpoint_store_commit_batches_count") >= 10.0);
    assert!(value("holdpoint_store_commit_batches_sum") >= value("holdpoint_store_commit_batches_count"));
    assert!(value("holdpoint_store_commit_batches_bucket{le=\"+Inf\"}") >= 10.0);
    assert!(value("holdpoint_http_request_seconds_count") >= 15.0);
    assert!(value("holdpoint_invocation_seconds_count") >= 10.0);
    assert_eq!(value("holdpoint_tenant_threads{tenant=\"default\"}"), 5.0);
    assert!(value("holdpoint_tenant_fuel{tenant=\"default\"}") > 0.0);
    assert!(value("holdpoint_tenant_storage_bytes{tenant=\"default\"}") > 1000.0);
    assert!(!text.contains("thread-1"), "no label grows with what callers name");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tasks_journal_shows_what_it_asked_and_was_told() {
    let served = Served::start(settings()).await;
    let caller = served.caller();
    caller.scripted(&["n"]).await;
    caller.wait("t", json!([{ "ask": "first?" }, { "steering": true }, { "ask": "second?" }])).await.is(200);
    let state = caller.get("/threads/t/state").await.is(200);
    let path = format!("/tasks/{}/journal", state["tasks"][0]["id"].as_str().unwrap());
    let journal = caller.get(&path).await.is(200);
    assert_eq!(journal["state"], "paused");
    assert_eq!(journal["entries"][0]["call"]["question"]["payload"], "first?");
    assert_eq!(journal["entries"][0]["reply"], json!({ "answers": [null] }));
    caller.resume("t", json!("one")).await.is(200);
    let journal = caller.get(&path).await.is(200);
    let calls: Vec<&Value> =
        journal["entries"].as_array().unwrap().iter().map(|entry| &entry["call"]["call"]).collect();
    assert_eq!(calls, ["interrupt", "steering", "interrupt"]);
    assert_eq!(journal["entries"][0]["reply"], json!({ "answers": ["one"] }));
    assert_eq!(journal["attempts"], 2);
    caller.get(&format!("/tasks/{}/journal", uuid::Uuid::nil())).await.is(404);
    served.end().await;
}
